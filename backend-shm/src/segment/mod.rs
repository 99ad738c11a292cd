//! The segment: one memory file per job and node, mapped by every rank.
//!
//! The file has no name, so nothing can be left behind; it is sparse, of fixed size and sealed, so
//! nobody can shrink it under a peer's feet; and every extent is allocated before its first use,
//! after a look at what memory is left, so that a shortage is an error with a text and never
//! SIGBUS.

mod create;
mod extent;
pub(crate) mod layout;
mod push;
mod turn;

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

use layout::{Head, Life, RankArea, data_start};

use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};

pub(crate) use create::{Geometry, memory_file};

/// A mapped segment.
#[derive(Debug)]
pub(crate) struct Segment {
    base: *mut u8,
    total: usize,
    ranks: u32,
    file: OwnedFd,
    /// See [`turn`].
    allocating: Mutex<()>,
}

// SAFETY: the mapping lives as long as the segment; what is shared in it are atomics and memory
// that the protocols of rings, inbox and heap give to one rank at a time.
unsafe impl Send for Segment {}
// SAFETY: as above; the methods take `&self` and change only atomics.
unsafe impl Sync for Segment {}

impl Segment {
    /// Number of ranks.
    pub(crate) fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The file, for handing it to others.
    pub(crate) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Size of the file, in bytes.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// The first page.
    #[inline(always)]
    pub(crate) fn head(&self) -> &Head {
        // SAFETY: the mapping begins with a `Head` (checked when it was made: `total` is larger),
        // and a `Head` is valid whatever bytes it has.
        unsafe { &*self.base.cast::<Head>() }
    }

    /// What belongs to `rank`.
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

    /// What has become of `rank`.
    pub(crate) fn life(&self, rank: u32) -> Life {
        // SYNC: pairs with the Release in `fail`, so that the reason is visible, and with that in
        // `Shm::close`.
        Life::from_word(self.rank(rank).identity.life.load(Acquire))
    }

    /// Notes that `rank` is dead and why, and wakes everyone. `false` if that was known, or if
    /// it has left in an orderly way.
    pub(crate) fn fail(&self, rank: u32, why: &str) -> bool {
        let identity = &self.rank(rank).identity;
        let living = [Life::Running, Life::Unborn, Life::Ending];
        let claimed = living.into_iter().any(|life| {
            // The one who moves the word writes the reason. A killed writer leaves `Failing`,
            // which counts as dead as well.
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
        // Release: whoever sees the new epoch sees the life as well.
        self.head().epoch.0.fetch_add(1, Release);
        for rank in 0..self.ranks {
            self.rank(rank).bell.ring();
        }
        true
    }

    /// Why `rank` is held to be dead, if it is.
    pub(crate) fn reason(&self, rank: u32) -> Option<String> {
        let mut life = self.life(rank);
        if !life.dead() {
            return None;
        }
        // Whoever moved the word is writing the reason. It is done in a moment, if it lives; what
        // is told here is told once, so that moment is worth waiting for.
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
        // SAFETY: the mapping was made by `map` with this length; nothing that borrows from the
        // segment is left, because everything that does holds it in an `Arc` of its own.
        unsafe { libc::munmap(self.base.cast(), self.total) };
    }
}

/// Times that the core is given away for a reason that is being written. A writer that was killed
/// at it never comes to an end.
const WRITING: usize = 1000;

/// The longest part of `text` that fits into `limit` bytes and ends between two characters.
fn cut(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests;
