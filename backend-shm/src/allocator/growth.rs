//! Where the arena's memory comes from: extents of the segment, and what the arena gave back.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dlmalloc::Allocator;

use super::arena::HELD;
use crate::pieces::Pieces;
use crate::segment::{PAGE, Segment};
use crate::sync::Ordering::Relaxed;

/// Least length of a new extent: each costs system calls, and a check of how much memory is left.
const LEAST: u64 = 1 << 20;

/// What the arena gives back keeps its memory up to so many bytes. A program that allocates and
/// frees long vectors in turn would otherwise pay for new pages each time.
const KEPT: u64 = 64 << 20; // Whole pages, as all pieces are.

/// After a refusal the segment is asked for as much again only after so long, since that check
/// reads files.
const PATIENCE: Duration = Duration::from_millis(100);

pub(super) struct Growth {
    segment: Arc<Segment>,
    /// Given back, with their memory; and how many bytes of it there are.
    full: RefCell<Pieces>,
    kept: Cell<u64>,
    /// Given back, without memory.
    empty: RefCell<Pieces>,
    /// The last refusal, and how many bytes it was about.
    refused: Cell<Option<(Instant, u64)>>,
}

impl Growth {
    pub(super) fn new(segment: Arc<Segment>) -> Self {
        Self {
            segment,
            full: RefCell::new(Pieces::new()),
            kept: Cell::new(0),
            empty: RefCell::new(Pieces::new()),
            refused: Cell::new(None),
        }
    }

    /// Space of `len` bytes with memory, or more: its offset and length.
    fn take(&self, len: u64) -> Option<(u64, u64)> {
        if let Some(offset) = self.full.borrow_mut().take(len) {
            self.kept.set(self.kept.get() - len);
            return Some((offset, len));
        }
        let vain = |(since, most): (Instant, u64)| len >= most && since.elapsed() < PATIENCE;
        if self.refused.get().is_some_and(vain) {
            return None;
        }
        let taken = self.take_new(len).or_else(|| {
            // What is kept may be what is missing.
            self.empty_all();
            self.take_new(len)
        });
        if taken.is_none() {
            self.refused.set(Some((Instant::now(), len)));
        }
        taken
    }

    /// Space with new memory: in a place that was given back, or in a new extent. It is the longer
    /// the more there is (1 to 64 MiB), so that not each vector costs system calls.
    fn take_new(&self, len: u64) -> Option<(u64, u64)> {
        const WHAT: &str = "memory of the program's allocator";
        let more = (HELD.load(Relaxed) / 16).next_multiple_of(LEAST);
        let more = more.clamp(LEAST, KEPT);
        let take = |len| Some((self.empty.borrow_mut().take(len)?, len));
        let emptied = take(len.max(more)).or_else(|| take(len));
        let (offset, len) = match emptied {
            Some((offset, len)) => match self.segment.restore(offset, len, WHAT) {
                Ok(()) => (offset, len),
                Err(_) => {
                    self.put_away(offset, len);
                    return None;
                }
            },
            None => {
                let extend = |len| self.segment.extend_for_vectors(len, WHAT).ok();
                extend(len.max(more)).or_else(|| extend(len))?
            }
        };
        // Of the segment, only what is the program's own belongs into a core dump.
        self.segment.dump(offset, len, true);
        HELD.fetch_add(len, Relaxed);
        Some((offset, len))
    }

    /// Gives the memory of a piece to the system.
    fn put_away(&self, offset: u64, len: u64) {
        // If that fails, the memory is there, and stays.
        let _ = self.segment.punch(offset, len);
        self.segment.dump(offset, len, false);
        self.empty.borrow_mut().give(offset, len);
    }

    /// Gives all memory that is kept to the system.
    pub(super) fn empty_all(&self) {
        let full = std::mem::take(&mut *self.full.borrow_mut());
        for (offset, len) in full {
            self.kept.set(self.kept.get() - len);
            HELD.fetch_sub(len, Relaxed);
            self.put_away(offset, len);
        }
    }

    fn give(&self, offset: u64, len: u64) {
        let keep = len.min(KEPT - self.kept.get());
        if keep > 0 {
            self.kept.set(self.kept.get() + keep);
            self.full.borrow_mut().give(offset, keep);
        }
        let (offset, len) = (offset + keep, len - keep);
        if len > 0 {
            HELD.fetch_sub(len, Relaxed);
            self.put_away(offset, len);
        }
    }
}

// SAFETY: `alloc` returns memory that nobody else has: an extent is allocated once, and a piece is
// in one of the lists until it is taken.
unsafe impl Allocator for Growth {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let len = (size as u64).checked_next_multiple_of(PAGE);
        let taken = len.and_then(|len| self.take(len));
        let memory = taken.and_then(|(offset, len)| {
            let len = usize::try_from(len).ok()?;
            Some((self.segment.at(offset, len)?, len))
        });
        memory.map_or((std::ptr::null_mut(), 0, 0), |(ptr, len)| (ptr, len, 0))
    }

    /// Never: only its mappings of single long blocks would use it, and it makes none of those.
    fn remap(&self, _ptr: *mut u8, _old: usize, _new: usize, _can_move: bool) -> *mut u8 {
        std::ptr::null_mut()
    }

    fn free_part(&self, ptr: *mut u8, old: usize, new: usize) -> bool {
        let Some(offset) = self.segment.offset_of(ptr) else {
            return false;
        };
        let whole = (new as u64).is_multiple_of(PAGE);
        if whole {
            self.give(offset + new as u64, (old - new) as u64);
        }
        whole
    }

    fn free(&self, ptr: *mut u8, size: usize) -> bool {
        self.free_part(ptr, size, 0)
    }

    fn can_release_part(&self, _flags: u32) -> bool {
        true
    }

    /// What is taken again is not cleared.
    fn allocates_zeros(&self) -> bool {
        false
    }

    fn page_size(&self) -> usize {
        PAGE as usize
    }
}
