//! Validation of the arguments of calls. It happens once, here.

use super::context::COLLECTIVE;
use super::{Communicator, Source, Tag, Tags};
use crate::device::{Device, SendArgs, SendMode};
use crate::error::{Error, ErrorKind, Result};
use crate::matching::Pattern;

impl<D: Device> Communicator<D> {
    /// The device's arguments for a send to rank `dest` of this communicator.
    ///
    /// # Errors
    /// [`InvalidRank`](ErrorKind::InvalidRank), [`InvalidTag`](ErrorKind::InvalidTag).
    #[inline]
    pub fn send_args(&self, mode: SendMode, dest: u32, tag: Tag) -> Result<SendArgs> {
        self.args_on(self.0.context, mode, dest, tag)
    }

    /// Like [`send_args`](Self::send_args), for messages of collectives, which never match the
    /// program's.
    ///
    /// # Errors
    /// As [`send_args`](Self::send_args).
    #[inline]
    pub fn collective_args(&self, dest: u32, tag: Tag) -> Result<SendArgs> {
        self.args_on(self.0.context + COLLECTIVE, SendMode::Standard, dest, tag)
    }

    /// The pattern for a receive or probe on this communicator.
    ///
    /// # Errors
    /// [`InvalidRank`](ErrorKind::InvalidRank), [`InvalidTag`](ErrorKind::InvalidTag).
    #[inline]
    pub fn pattern(&self, source: Source, tag: Tags) -> Result<Pattern> {
        self.pattern_on(self.0.context, source, tag)
    }

    /// Like [`pattern`](Self::pattern), for messages of collectives.
    ///
    /// # Errors
    /// As [`pattern`](Self::pattern).
    #[inline]
    pub fn collective_pattern(&self, source: u32, tag: Tag) -> Result<Pattern> {
        self.pattern_on(
            self.0.context + COLLECTIVE,
            Source::Rank(source),
            Tags::Is(tag),
        )
    }

    /// Checks that `rank` is a rank of this communicator.
    ///
    /// # Errors
    /// [`InvalidRank`](ErrorKind::InvalidRank).
    #[inline]
    pub fn check_rank(&self, what: &str, rank: u32) -> Result<()> {
        if rank < self.size() {
            Ok(())
        } else {
            Err(self.no_such_rank(what, rank))
        }
    }

    /// Checks that the device supports this tag.
    pub(super) fn check_tag(&self, tag: Tag) -> Result<()> {
        if tag.0 <= self.0.tag_ub {
            Ok(())
        } else {
            Err(self.no_such_tag(tag))
        }
    }

    #[inline]
    fn args_on(&self, context: u32, mode: SendMode, dest: u32, tag: Tag) -> Result<SendArgs> {
        let Some(process) = self.0.group.process(dest) else {
            return Err(self.no_such_rank("destination", dest));
        };
        if tag.0 > self.0.tag_ub {
            return Err(self.no_such_tag(tag));
        }
        Ok(SendArgs::new(process, context, self.0.rank, tag.0).mode(mode))
    }

    #[inline]
    fn pattern_on(&self, context: u32, source: Source, tag: Tags) -> Result<Pattern> {
        if let Source::Rank(rank) = source
            && rank >= self.size()
        {
            return Err(self.no_such_rank("source", rank));
        }
        if let Tags::Is(tag) = tag
            && tag.0 > self.0.tag_ub
        {
            return Err(self.no_such_tag(tag));
        }
        Ok(Pattern {
            context,
            source: source.rank(),
            tag: tag.value(),
        })
    }

    #[cold]
    #[inline(never)]
    pub(super) fn no_such_rank(&self, what: &str, rank: u32) -> Error {
        let size = self.size();
        let remedy = match size {
            1 => "only rank 0 is there; was the program started with more ranks?".to_owned(),
            _ => format!("use ranks 0 to {}", size - 1),
        };
        let what = format!("{what} {rank} is outside of a communicator of {size} rank(s)");
        self.error(ErrorKind::InvalidRank, what, &remedy)
    }

    #[cold]
    #[inline(never)]
    fn no_such_tag(&self, tag: Tag) -> Error {
        let what = format!("tag {} is over the largest tag of this device", tag.0);
        self.error(
            ErrorKind::InvalidTag,
            what,
            &format!("use tags 0 to {}", self.0.tag_ub),
        )
    }
}
