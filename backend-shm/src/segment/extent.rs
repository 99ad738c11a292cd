//! Extents: pieces of the segment, each allocated once and owned by one rank.
//!
//! The end of the last extent is one word, moved by compare-and-swap. That is no lock, so a rank
//! that is killed holds nothing. A rank keeps what it frees for its own later use.

use std::io;
use std::os::fd::RawFd;

use portolan_core::{Error, ErrorKind, Result};

use super::Segment;
use super::turn::Turn;
use crate::allocator::aside;
use crate::memory_limit;
use crate::sync::Ordering::Relaxed;

/// Size of a page, and the alignment of extents.
pub(crate) const PAGE: u64 = 4096;

impl Segment {
    /// Allocates a zeroed extent of at least `len` bytes for `what`; returns its offset and length.
    pub(crate) fn extend(&self, len: u64, what: &str) -> Result<(u64, u64)> {
        self.extend_by(len, what, allocate)
    }

    /// The same with `allocate` to get the memory.
    pub(super) fn extend_by(
        &self,
        len: u64,
        what: &str,
        allocate: impl FnOnce(RawFd, u64, u64) -> Result<()>,
    ) -> Result<(u64, u64)> {
        let len = len
            .max(1)
            .checked_next_multiple_of(PAGE)
            .ok_or_else(|| self.full(len, what))?;
        let offset = self.in_turn(|| {
            memory_limit::check(len, what)?;
            let offset = self.reserve(len).ok_or_else(|| self.full(len, what))?;
            let allocated = allocate(self.fd(), offset, len);
            allocated.inspect_err(|_| self.give_back(offset, len))?;
            Ok(offset)
        })?;
        self.touch(offset, len);
        Ok((offset, len))
    }

    /// Does `work` while no other rank allocates. (What it allocates in the program's own memory
    /// must not need a turn, too, so it is done [`aside`].)
    fn in_turn<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        aside(|| {
            let _turn = Turn::take(&self.allocating, self.fd());
            work()
        })
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

    fn reserve(&self, len: u64) -> Option<u64> {
        let used = &self.head().used.0;
        // Relaxed: the word orders nothing; other ranks learn an offset from the extent's owner.
        used.fetch_update(Relaxed, Relaxed, |used| {
            used.checked_add(len)
                .filter(|end| *end <= self.total as u64)
        })
        .ok()
    }

    /// Gives the memory of an extent back to the system; later reads return zeros.
    pub(crate) fn release(&self, offset: u64, len: u64) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a descriptor and a range of its file that the caller owns.
        let done = unsafe {
            libc::fallocate(self.fd(), mode, offset as libc::off_t, len as libc::off_t) == 0
        };
        if !done {
            portolan_core::log!(WARN, offset, len, error = %io::Error::last_os_error(), "segment memory was not given back");
        }
    }

    /// Allocates again the memory of an extent that was released.
    pub(crate) fn restore(&self, offset: u64, len: u64, what: &str) -> Result<()> {
        self.in_turn(|| {
            memory_limit::check(len, what)?;
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

    /// Lets core dumps have an extent, which they do not have otherwise.
    pub(crate) fn dump(&self, offset: u64, len: u64) {
        debug_assert!(offset + len <= self.total as u64);
        // SAFETY: the range lies in the mapping, and the advice changes no contents.
        unsafe {
            libc::madvise(
                self.base.add(offset as usize).cast(),
                len as usize,
                libc::MADV_DODUMP,
            )
        };
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

/// Allocates real memory for a range of the file.
pub(crate) fn allocate(fd: RawFd, offset: u64, len: u64) -> Result<()> {
    loop {
        // SAFETY: a descriptor and a range.
        if unsafe { libc::fallocate(fd, 0, offset as libc::off_t, len as libc::off_t) } == 0 {
            return Ok(());
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
    }
}
