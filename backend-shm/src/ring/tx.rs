//! The sender's half of a ring.
//!
//! Budget of a message that fits one cell: no system call, no locked instruction, one cache line
//! written; the receiver's line is read once in a quarter of the ring.

use super::{BULK, Cells, Ends, cells_for, control};
use crate::sync::Ordering::{Acquire, Relaxed, Release};

/// What became of a message that was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// Published.
    Done,
    /// No room.
    Full,
    /// The receiver's position makes no sense: the receiver has overwritten it with garbage.
    Broken,
}

/// The sender's half of a ring.
#[derive(Debug)]
pub(crate) struct RingTx {
    cells: Cells,
    ends: *const Ends,
    /// Where the next message begins, in cells since the start.
    pos: u64,
    /// The first position that may not be written: what was consumed plus the size of the ring.
    limit: u64,
    /// One bit per cell: its control word holds payload.
    dirty: Box<[u64]>,
}

// SAFETY: the pointers lead to memory that is shared between threads by design; there is one
// sender's half, and it may move to another thread.
unsafe impl Send for RingTx {}

impl RingTx {
    /// The sender's half of a fresh, zeroed ring.
    ///
    /// # Safety
    /// `ends` must be valid as long as the result is used, and belong to the ring of `cells`.
    pub(crate) unsafe fn new(cells: Cells, ends: *const Ends) -> Self {
        let words = (cells.count() as usize).div_ceil(64);
        Self {
            cells,
            ends,
            pos: 0,
            limit: u64::from(cells.count()),
            dirty: vec![0; words].into(),
        }
    }

    /// The words that both sides share.
    #[inline(always)]
    pub(crate) fn ends(&self) -> &Ends {
        // SAFETY: `new` promised that they are valid.
        unsafe { &*self.ends }
    }

    /// Hands a message over.
    ///
    /// # Safety
    /// `len` bytes at `data` are readable, and `len` is at most what the spare cells allow.
    #[inline(always)]
    pub(crate) unsafe fn push(&mut self, header: [u64; 3], data: *const u8, len: usize) -> Pushed {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.push_marked(header, data, len, 0) }
    }

    /// Hands over the description of a packet that lies in the bulk area.
    ///
    /// # Safety
    /// As for [`push`](Self::push).
    #[inline(always)]
    pub(crate) unsafe fn push_bulk(
        &mut self,
        header: [u64; 3],
        data: *const u8,
        len: usize,
    ) -> Pushed {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.push_marked(header, data, len, BULK) }
    }

    /// Where the next message begins, in cells since the start.
    #[cfg(test)]
    pub(crate) fn position(&self) -> u64 {
        self.pos
    }

    /// Whether a message with `len` bytes of payload would find room now.
    #[inline(always)]
    pub(crate) fn room(&mut self, len: usize) -> Pushed {
        if self.end(len) < self.limit {
            Pushed::Done
        } else {
            self.refresh(self.end(len))
        }
    }

    #[inline(always)]
    unsafe fn push_marked(
        &mut self,
        header: [u64; 3],
        data: *const u8,
        len: usize,
        bulk: u64,
    ) -> Pushed {
        let end = self.end(len);
        // One cell more than the message takes: the cell that follows may have to be cleared.
        if end >= self.limit {
            match self.refresh(end) {
                Pushed::Done => {}
                other => return other,
            }
        }
        let index = self.cells.index(self.pos);
        // SAFETY: the cells up to `end` were consumed (`end < limit`), so they are the sender's,
        // and the caller vouches for `data` and `len`.
        unsafe { self.cells.write(index, header, data, len) };
        if len > super::INLINE {
            self.mark_dirty(index, cells_for(len));
        }
        self.clear_next(self.cells.index(end));
        // SYNC 1: makes the cells, and the cleared control word of the cell that follows, visible
        // to the receiver's Acquire load in `RingRx::poll`.
        self.cells
            .control(index)
            .store(control(self.pos, len, bulk), Release);
        self.pos = end;
        Pushed::Done
    }

    /// Where a message with `len` bytes that begins at `pos` ends.
    #[inline(always)]
    fn end(&self, len: usize) -> u64 {
        let left = self.cells.count() - self.cells.index(self.pos);
        self.pos + u64::from(cells_for(len).min(left))
    }

    /// Clears the control word of the cell after a message, if payload lies there.
    #[inline(always)]
    fn clear_next(&mut self, index: u32) {
        let (word, bit) = (index as usize / 64, 1_u64 << (index % 64));
        if self.dirty[word] & bit != 0 {
            self.dirty[word] &= !bit;
            self.cells.control(index).store(0, Relaxed);
        }
    }

    /// Remembers that the cells of a long message, but the first, hold payload.
    #[inline(always)]
    fn mark_dirty(&mut self, index: u32, cells: u32) {
        for at in index + 1..(index + cells).min(self.cells.count()) {
            self.dirty[at as usize / 64] |= 1 << (at % 64);
        }
    }

    /// Looks how far the receiver is.
    #[cold]
    #[inline(never)]
    fn refresh(&mut self, end: u64) -> Pushed {
        // SYNC 2: the receiver's Release store in `RingRx::publish` came after its last read of
        // the cells before `consumed`, so they may be overwritten now.
        let consumed = self.ends().consumed.load(Acquire);
        let limit = consumed.wrapping_add(u64::from(self.cells.count()));
        if limit < self.limit || consumed > self.pos {
            return Pushed::Broken;
        }
        self.limit = limit;
        if end < limit {
            Pushed::Done
        } else {
            Pushed::Full
        }
    }
}
