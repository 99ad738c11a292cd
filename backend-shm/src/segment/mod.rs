//! The segment: one memory file per job and node, which every rank maps.
//!
//! The file has no name, so nothing can be left behind. It is sparse, of fixed size and sealed, so
//! no rank can shrink it under another. Every extent is allocated before its first use, after a
//! check of how much memory is left, so a shortage is an error with a text and never SIGBUS.

mod create;
mod extent;
pub(crate) mod layout;
mod push;
mod turn;

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

use layout::{Head, Life, RankArea, data_start};

use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

pub(crate) use create::{Geometry, address_space, longest_file, memory_file};
pub(crate) use extent::PAGE;

/// A mapped segment.
#[derive(Debug)]
pub(crate) struct Segment {
    base: *mut u8,
    total: usize,
    ranks: u32,
    file: OwnedFd,
    /// Held by the thread whose turn it is to allocate: see [`turn`].
    allocating: Mutex<()>,
}

// SAFETY: the mapping lives as long as the segment. Threads share only atomics in it, and memory
// that the protocols of rings, inbox and heap give to one rank at a time.
unsafe impl Send for Segment {}
// SAFETY: as above; the methods take `&self` and change only atomics.
unsafe impl Sync for Segment {}

impl Segment {
    /// Number of ranks.
    pub(crate) fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The file's descriptor, for handing the file to other processes.
    pub(crate) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Size of the file, in bytes.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Where the file is mapped: its first address, and the length.
    pub(crate) fn range(&self) -> (usize, usize) {
        (self.base.expose_provenance(), self.total)
    }

    /// Puts a copy of its own in the place of what this process shares: for a forked child. Writes
    /// then stay in the child. Where the system has no room for a copy that can be written, the
    /// child can only read: its first write ends it.
    pub(crate) fn become_private(&self) {
        let used = self.head().used.0.load(Relaxed).min(self.total as u64) as usize;
        let copy = |protection| {
            // SAFETY: it replaces pages of this mapping by the same ones of the same file, and the
            // child has no other thread. Where the system refuses, it leaves the old ones.
            let at = unsafe {
                let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE;
                libc::mmap(self.base.cast(), used, protection, flags, self.fd(), 0)
            };
            at != libc::MAP_FAILED
        };
        let copied = copy(libc::PROT_READ | libc::PROT_WRITE) || copy(libc::PROT_READ);
        // SAFETY: a range of the mapping. What is refused changes nothing.
        unsafe {
            if !copied {
                libc::mprotect(self.base.cast(), used, libc::PROT_READ);
            }
            libc::madvise(self.base.cast(), used, libc::MADV_DONTDUMP);
        }
    }

    /// The head of the segment.
    #[inline(always)]
    pub(crate) fn head(&self) -> &Head {
        // SAFETY: the mapping begins with a `Head` (its size was checked when it was made), and a
        // `Head` is valid whatever bytes it has.
        unsafe { &*self.base.cast::<Head>() }
    }

    /// The area of `rank`.
    #[inline(always)]
    pub(crate) fn rank(&self, rank: u32) -> &RankArea {
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        // SAFETY: `data_start(ranks)` bytes are mapped, and the areas lie in them behind the head.
        unsafe {
            &*self
                .base
                .add(size_of::<Head>())
                .cast::<RankArea>()
                .add(rank as usize)
        }
    }

    /// The address of `len` bytes at `offset`, if they lie in allocated extents.
    pub(crate) fn at(&self, offset: u64, len: usize) -> Option<*mut u8> {
        let used = self.head().used.0.load(Relaxed).min(self.total as u64);
        let end = offset.checked_add(len as u64)?;
        if offset < data_start(self.ranks) || end > used {
            return None;
        }
        // SAFETY: `offset + len ≤ total`, which is mapped.
        Some(unsafe { self.base.add(offset as usize) })
    }

    /// Whether these bytes lie behind the ranks' areas, in this process's mapping.
    #[inline]
    pub(crate) fn holds(&self, data: *const u8, len: usize) -> bool {
        self.offset_of(data).is_some_and(|offset| {
            offset >= data_start(self.ranks) && len as u64 <= self.total as u64 - offset
        })
    }

    /// The offset of an address, if it is in this process's mapping.
    #[inline]
    pub(crate) fn offset_of(&self, data: *const u8) -> Option<u64> {
        let offset = data.addr().wrapping_sub(self.base.addr());
        (offset < self.total).then_some(offset as u64)
    }

    /// The life of `rank`.
    pub(crate) fn life(&self, rank: u32) -> Life {
        // SYNC: pairs with the Release in `fail`, which makes the reason visible, and with the one
        // in `Shm::close`.
        Life::from_word(self.rank(rank).identity.life.load(Acquire))
    }

    /// Records that `rank` is dead, and why, and wakes every rank. Returns `false` if the death was
    /// already known, or if the rank has left in an orderly way.
    pub(crate) fn fail(&self, rank: u32, why: &str) -> bool {
        let identity = &self.rank(rank).identity;
        let living = [Life::Running, Life::Unborn, Life::Ending];
        let claimed = living.into_iter().any(|life| {
            // The rank that moves the word writes the reason. If it is killed, the word stays
            // `Failing`, which also counts as dead.
            identity
                .life
                .compare_exchange(life as u32, Life::Failing as u32, AcqRel, Relaxed)
                .is_ok()
        });
        if !claimed {
            return false;
        }
        let text = cut(why, layout::REASON);
        for (to, byte) in identity.reason.iter().zip(text.bytes()) {
            to.store(byte, Relaxed);
        }
        identity.reason_len.store(text.len() as u32, Relaxed);
        // SYNC: publishes the reason to the Acquire load in `life`.
        identity.life.store(Life::Failed as u32, Release);
        self.count_failure();
        for rank in 0..self.ranks {
            self.rank(rank).bell.ring();
        }
        true
    }

    /// Has every rank look who has failed, the next time that it polls.
    fn count_failure(&self) {
        // Release: a rank that sees the new epoch also sees the lives that led to it.
        self.head().epoch.0.fetch_add(1, Release);
    }

    /// As [`fail`](Self::fail), for a rank whose process has ended, in a process of rank `own`. If
    /// the death was known already, `own` is told once more: the rank may have recorded its own
    /// failure, and been killed before it had told the others.
    pub(crate) fn died(&self, own: u32, rank: u32, why: &str) {
        if !self.fail(rank, why) && self.life(rank).dead() {
            self.count_failure();
            self.rank(own).bell.ring();
        }
    }

    /// Why `rank` is held to be dead, if it is.
    pub(crate) fn reason(&self, rank: u32) -> Option<String> {
        let mut life = self.life(rank);
        if !life.dead() {
            return None;
        }
        // The rank that moved the word is still writing the reason, and needs only a moment, unless
        // it was killed. The engine reports a reason only once, so that moment is worth waiting
        // for.
        for _ in 0..WRITING {
            if life != Life::Failing {
                break;
            }
            std::thread::yield_now();
            life = self.life(rank);
        }
        let identity = &self.rank(rank).identity;
        let len = (identity.reason_len.load(Relaxed) as usize).min(layout::REASON);
        if life == Life::Failing || len == 0 {
            return Some("the rank failed; whoever noticed died before it could say why".into());
        }
        let bytes: Vec<u8> = identity.reason[..len]
            .iter()
            .map(|b| b.load(Relaxed))
            .collect();
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: `map` made the mapping with this length. Nothing that borrows from the segment is
        // left, because every borrower holds the segment in an `Arc` of its own.
        unsafe { libc::munmap(self.base.cast(), self.total) };
    }
}

/// How often `reason` yields the core while another rank writes the reason. The limit is needed
/// because a writer that was killed never finishes.
const WRITING: usize = 1000;

/// The longest beginning of `text` that fits into `limit` bytes and does not split a character.
fn cut(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests;
