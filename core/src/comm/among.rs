//! Agreement among some ranks of a communicator, without the others.
//!
//! The messages travel in a context of the parent that the device knows nothing about
//! (`context.rs` lists the contexts). So ranks there are process numbers, and several agreements of
//! one parent can run in several threads, each with its own tag. It also means that the device
//! cannot tell which agreements a death concerns, so a waiting rank checks for dead members of the
//! group itself.

use super::context::AMONG;
use super::meet::mix;
use super::{Communicator, NoUnwind, Tag, lock};
use crate::buffer::ContigBuf;
use crate::device::{Device, ProcId, SendArgs};
use crate::error::Result;
use crate::group::Group;
use crate::matching::Pattern;
use crate::request::Request;
use crate::status::Status;

/// Some ranks of a communicator, the caller one of them.
pub(super) struct Among<'a, D: Device> {
    comm: &'a Communicator<D>,
    /// Sorted by process number, whatever the group's order, so that ranks whose groups list the
    /// members in different orders still reach each other.
    members: Group,
    /// The caller's place among `members`.
    place: u32,
    tag: Tag,
    /// Starts every message. Ranks may be in agreements of different groups that use the same tag:
    /// when a member dies, some ranks may have left an agreement before others know of the death.
    mark: u64,
}

/// A message of another group's agreement, which arrived before this rank took part in that
/// agreement.
pub(super) struct Stray {
    from: Pattern,
    bytes: Vec<u8>,
}

impl Stray {
    /// The context in which it was sent.
    pub(super) fn context(&self) -> u32 {
        self.from.context
    }
}

/// A number that tells groups apart, and the order of their members.
pub(super) fn mark(group: &Group) -> u64 {
    mix(group.iter().map(|member| u64::from(member.index())))
}

impl<'a, D: Device> Among<'a, D> {
    /// The members of `group`, which must include the caller.
    pub(super) fn new(comm: &'a Communicator<D>, group: &Group, tag: Tag) -> Self {
        let mut members: Vec<ProcId> = group.iter().collect();
        members.sort_unstable_by_key(|member| member.index());
        let members = Group::new(members);
        Self {
            comm,
            place: members.rank_of(comm.process()).unwrap_or(0),
            mark: mark(&members),
            members,
            tag,
        }
    }

    /// Bitwise AND of `words` over the group, by dissemination. At most one message goes from any
    /// rank to any other, so one tag serves all rounds.
    pub(super) fn and_words(&self, words: &mut [u64]) -> Result<()> {
        let (rank, size) = (u64::from(self.place), u64::from(self.members.size()));
        let mut received = vec![0; (words.len() + 1) * 8];
        let mut distance = 1;
        while distance < size {
            let to = self.member((rank + distance) % size)?;
            let from = self.member((rank + size - distance) % size)?;
            let marked = std::iter::once(&self.mark).chain(&*words);
            let sent: Vec<u8> = marked.flat_map(|word| word.to_le_bytes()).collect();
            self.exchange(to, &sent, from, &mut received)?;
            let (theirs, _) = received.as_chunks::<8>();
            for (word, theirs) in words.iter_mut().zip(&theirs[1..]) {
                *word &= u64::from_le_bytes(*theirs);
            }
            distance *= 2;
        }
        Ok(())
    }

    fn member(&self, rank: u64) -> Result<ProcId> {
        let process = self.members.process(rank as u32);
        process.ok_or_else(|| self.comm.no_such_rank("member", rank as u32))
    }

    /// Sends to one process and, at the same time, receives from another.
    fn exchange(&self, to: ProcId, sent: &[u8], from: ProcId, received: &mut [u8]) -> Result<()> {
        let (device, context) = (self.comm.device(), self.comm.context() + AMONG);
        let me = device.attributes().world_rank;
        let args = SendArgs::new(to, context, me, self.tag.0);
        let pattern = Pattern {
            context,
            source: Some(from.index()),
            tag: Some(self.tag.0),
        };
        let guard = NoUnwind::new("the creation of a communicator");
        // SAFETY: the process is a member of the group, the tag was checked. `sent` is borrowed
        // until this function returns. It returns only after the request is over (`wait` completes
        // the request whatever it returns), and the guard lets no panic escape.
        let started = unsafe { device.isend_contig_unchecked(&args, ContigBuf::from_bytes(sent)) };
        let request = match started {
            Ok(request) => request,
            Err(error) => {
                guard.done();
                return Err(error);
            }
        };
        let outcome = self.receive(&pattern, received);
        if outcome.is_err() {
            // The rank that should have taken the message may never do so.
            let _ = device.cancel(request);
        }
        let sent = device.wait(request);
        guard.done();
        outcome?;
        sent.map(drop)
    }

    /// Receives a message of this agreement; keeps messages of other agreements for later.
    fn receive(&self, from: &Pattern, received: &mut [u8]) -> Result<()> {
        let strays = &self.comm.0.job.strays;
        let mark = self.mark.to_le_bytes();
        let mine = |stray: &Stray| stray.from == *from && stray.bytes.starts_with(&mark);
        {
            let mut strays = lock(strays);
            if let Some(place) = strays.iter().position(mine) {
                received.copy_from_slice(&strays.remove(place).bytes);
                return Ok(());
            }
        }
        loop {
            let buf = ContigBuf::from_bytes_mut(received);
            // SAFETY: the source is a member of the group, the tag was checked. `received` is
            // borrowed until this function returns; `finish` returns only when the request is over,
            // and the caller's guard lets no panic escape.
            let request = unsafe { self.comm.device().irecv_contig_unchecked(from, buf)? };
            let status = self.finish(request)?;
            self.comm.expect_bytes(&status, received.len())?;
            if received.starts_with(&mark) {
                return Ok(());
            }
            let bytes = received.to_vec();
            lock(strays).push(Stray { from: *from, bytes });
        }
    }

    /// Waits for a receive for as long as every member is alive; cancels it when one dies.
    fn finish(&self, request: Request) -> Result<Status> {
        let device = self.comm.device();
        match device.wait_for(&self.members, || device.is_complete(request)) {
            Ok(()) => device.wait(request),
            Err(error) => {
                let _ = device.cancel(request);
                let status = device.wait(request)?;
                if status.cancelled {
                    Err(error)
                } else {
                    Ok(status)
                }
            }
        }
    }
}
