//! Extents: pieces of the segment, each allocated once and owned by one rank.
//!
//! The end of the last extent is one word, moved by compare-and-swap. That is no lock, so a rank
//! that is killed holds nothing. A rank keeps what it frees for its own later use.

use std::io;
use std::os::fd::RawFd;

use portolan_core::{Error, ErrorKind, Result};

use super::Segment;
use super::turn::Turn;
use crate::allocator::{aside, is_aside};
use crate::ring::CELL;
use crate::send::FIRST_AREA;
use crate::sync::Ordering::Relaxed;

/// Size of a page, and the alignment of extents.
pub(crate) const PAGE: u64 = 4096;

impl Segment {
    /// Allocates a zeroed extent of at least `len` bytes for `what`; returns its offset and length.
    pub(crate) fn extend(&self, len: u64, what: &str) -> Result<(u64, u64)> {
        self.extend_by(len, self.total as u64, what, allocate)
    }

    /// The same, if as much is left behind it as the rings and bulk areas of all pairs may need.
    pub(crate) fn extend_for_vectors(&self, len: u64, what: &str) -> Result<(u64, u64)> {
        let head = self.head();
        let ring = u64::from(head.ring_cells.load(Relaxed)) * CELL as u64;
        let areas = head.bulk_bytes.load(Relaxed).saturating_add(FIRST_AREA);
        let pair = areas.saturating_add(ring + 3 * PAGE);
        let pairs = u64::from(self.ranks) * u64::from(self.ranks - 1);
        let most = self.total as u64 - pairs.saturating_mul(pair).min(self.total as u64 / 2);
        self.extend_by(len, most, what, allocate)
    }

    /// The same with `allocate` to get the memory, below the offset `most`.
    pub(super) fn extend_by(
        &self,
        len: u64,
        most: u64,
        what: &str,
        allocate: impl FnOnce(RawFd, u64, u64) -> Result<()>,
    ) -> Result<(u64, u64)> {
        let len = len
            .max(1)
            .checked_next_multiple_of(PAGE)
            .ok_or_else(|| self.full(len, what))?;
        let offset = self.in_turn(|| {
            self.head().allowance.0.take(len, what)?;
            let offset = self
                .reserve(len, most)
                .ok_or_else(|| self.full(len, what))?;
            if let Err(error) = allocate(self.fd(), offset, len) {
                // Some of it may have memory.
                let _ = self.punch(offset, len);
                self.give_back(offset, len);
                return Err(error);
            }
            Ok(offset)
        })?;
        self.touch(offset, len);
        Ok((offset, len))
    }

    /// Does `work` while no other rank allocates. (What it allocates in the program's own memory
    /// must not need a turn, too, so it is done [`aside`]. For the same reason nothing is logged
    /// meanwhile: a subscriber may do anything.)
    fn in_turn<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        let (result, refused) = aside(|| {
            let turn = Turn::take(&self.allocating, self.fd());
            (work(), turn.refused())
        });
        if let Some(error) = refused
            && !is_aside()
        {
            portolan_core::log!(DEBUG, %error, "ranks cannot take turns at allocating shared memory");
        }
        result
    }

    /// Gives an extent back that was reserved and has no memory. Without this, a program that asks
    /// for memory again and again would use up the segment. (If another rank has reserved one
    /// behind it, which the turn usually prevents, the extent stays unused.)
    #[cold]
    fn give_back(&self, offset: u64, len: u64) {
        let used = &self.head().used.0;
        // Relaxed: as in `reserve`.
        let _ = used.compare_exchange(offset + len, offset, Relaxed, Relaxed);
    }

    fn reserve(&self, len: u64, most: u64) -> Option<u64> {
        let used = &self.head().used.0;
        // Relaxed: the word orders nothing; other ranks learn an offset from the extent's owner.
        used.fetch_update(Relaxed, Relaxed, |used| {
            used.checked_add(len).filter(|end| *end <= most)
        })
        .ok()
    }

    /// Gives the memory of an extent back to the system; later reads return zeros.
    pub(crate) fn release(&self, offset: u64, len: u64) {
        if let Err(error) = self.punch(offset, len) {
            portolan_core::log!(WARN, offset, len, %error, "segment memory was not given back");
        }
    }

    /// The same without a word.
    pub(crate) fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a descriptor and a range of its file that the caller owns.
        let done = unsafe {
            libc::fallocate(self.fd(), mode, offset as libc::off_t, len as libc::off_t) == 0
        };
        if done {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Allocates again the memory of an extent that was released.
    pub(crate) fn restore(&self, offset: u64, len: u64, what: &str) -> Result<()> {
        self.in_turn(|| {
            self.head().allowance.0.take(len, what)?;
            allocate(self.fd(), offset, len)
        })?;
        self.touch(offset, len);
        Ok(())
    }

    /// Maps the pages of an extent now, rather than one by one at their first use.
    pub(crate) fn touch(&self, offset: u64, len: u64) {
        debug_assert!(offset + len <= self.total as u64);
        // SAFETY: the range lies in the mapping, and the advice changes no contents. If an old
        // kernel refuses it, the pages are mapped at their first use.
        unsafe {
            libc::madvise(
                self.base.add(offset as usize).cast(),
                len as usize,
                libc::MADV_POPULATE_WRITE,
            )
        };
    }

    /// Whether core dumps are to have an extent, which they have not otherwise.
    pub(crate) fn dump(&self, offset: u64, len: u64, dumped: bool) {
        debug_assert!(offset + len <= self.total as u64);
        let advice = if dumped {
            libc::MADV_DODUMP
        } else {
            libc::MADV_DONTDUMP
        };
        // SAFETY: the range lies in the mapping, and the advice changes no contents.
        unsafe { libc::madvise(self.base.add(offset as usize).cast(), len as usize, advice) };
    }

    fn full(&self, len: u64, what: &str) -> Error {
        let used = self.head().used.0.load(Relaxed);
        Error::new(
            ErrorKind::Exhausted,
            format!(
                "{what} needs {len} bytes, but {used} of the segment's {} are in use",
                self.total
            ),
        )
        .remedy("raise PORTOLAN_SHM_MAX or, if it is unset, ulimit -f and ulimit -v")
        .on_device("shm")
    }
}

/// Most bytes that one call of the system allocates, and fewest. On some kernels a signal makes it
/// give up what it has done, and a program with a fast timer would never come to the end of a long
/// extent.
const PIECE: u64 = 16 << 20;
const LEAST_PIECE: u64 = 64 << 10;

/// Allocates real memory for a range of the file.
pub(crate) fn allocate(fd: RawFd, offset: u64, len: u64) -> Result<()> {
    let (mut at, mut piece) = (0, PIECE);
    while at < len {
        let now = piece.min(len - at);
        let (from, bytes) = ((offset + at) as libc::off_t, now as libc::off_t);
        // SAFETY: a descriptor and a range.
        if unsafe { libc::fallocate(fd, 0, from, bytes) } == 0 {
            at += now;
            continue;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(Error::new(
                ErrorKind::Exhausted,
                format!("{len} bytes of shared memory could not be allocated: {error}"),
            )
            .remedy("free memory, raise the control group's limit, or use smaller PORTOLAN_SHM_RING and PORTOLAN_SHM_BULK")
            .on_device("shm"));
        }
        piece = (piece / 2).max(LEAST_PIECE);
    }
    Ok(())
}
