//! The sender's half of a ring.
//!
//! Budget: no system call, no locked instruction, one cache line written, or two; the receiver's
//! line is read when room runs out, and, by who starts over, at the end of each beginning.

use super::{BEGINNING, BULK, Cells, Ends, RESTARTING, control};
use crate::sync::Ordering::{Acquire, Release};

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

/// How many cells ahead of the one that is written a line is asked for. The receiver has read it a
/// lap ago, so fetching it takes as long as a message's way; it looks at the next cell only, so
/// that what is fetched so early is not taken away again.
const AHEAD: u64 = 8;

/// The sender's half of a ring.
#[derive(Debug)]
pub(crate) struct RingTx {
    cells: Cells,
    ends: *const Ends,
    /// Where the next message begins, in cells since the start.
    pos: u64,
    /// The first position that may not be written: what was consumed plus the size of the ring.
    limit: u64,
    /// The position at which this side looks how far the receiver is: the limit, or where it may
    /// start over.
    look_at: u64,
    /// What the receiver had published when this side looked last.
    read: u64,
    /// Whether this side starts over.
    restarts: bool,
}

// SAFETY: the pointers lead to memory that is shared between threads by design; there is one
// sender's half, and it may move to another thread.
unsafe impl Send for RingTx {}

impl RingTx {
    /// The sender's half of a fresh, zeroed ring.
    ///
    /// # Safety
    /// `ends` must be valid as long as the result is used, and belong to the ring of `cells`.
    pub(crate) unsafe fn new(cells: Cells, ends: *const Ends, restarts: bool) -> Self {
        let mut new = Self {
            cells,
            ends,
            pos: 0,
            limit: u64::from(cells.count()),
            look_at: 0,
            read: 0,
            restarts: restarts && cells.count() <= RESTARTING,
        };
        new.look_later();
        new
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
    /// `len` bytes at `data` are readable, and `len` is at most [`INLINE`](super::INLINE).
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

    /// Asks for the line of the next message.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn prefetch_next(&self) {
        if !self.restarts {
            self.cells.prefetch_for_write(self.cells.index(self.pos));
        }
    }

    /// Whether a message would find room now.
    #[inline(always)]
    pub(crate) fn room(&mut self) -> Pushed {
        if self.pos < self.look_at {
            Pushed::Done
        } else {
            self.refresh()
        }
    }

    /// Whether so many messages would find room now.
    pub(crate) fn fits(&mut self, messages: usize) -> bool {
        let messages = messages as u64;
        if self.pos + messages > self.limit && self.refresh() == Pushed::Broken {
            return false;
        }
        self.pos + messages <= self.limit
    }

    #[inline(always)]
    unsafe fn push_marked(
        &mut self,
        header: [u64; 3],
        data: *const u8,
        len: usize,
        bulk: u64,
    ) -> Pushed {
        match self.room() {
            Pushed::Done => {}
            other => return other,
        }
        let index = self.cells.index(self.pos);
        // SAFETY: what was in the cell one lap ago was consumed (`pos < limit`), so it is the
        // sender's, and the caller vouches for `data` and `len`.
        unsafe { self.cells.write(index, header, data, len) };
        // SYNC 1: makes the cell visible to the receiver's Acquire load in `RingRx::poll`.
        self.cells
            .control(index)
            .store(control(self.pos, len, bulk), Release);
        self.pos += 1;
        if !self.restarts {
            self.cells
                .prefetch_for_write(self.cells.index(self.pos + AHEAD));
        }
        Pushed::Done
    }

    /// Looks how far the receiver is, and starts over if it may.
    #[cold]
    #[inline(never)]
    fn refresh(&mut self) -> Pushed {
        // SYNC 2: the receiver's Release store in `RingRx::publish` came after its last read of
        // the cells before, and its last byte in them `consumed`, so they may be overwritten now.
        let consumed = self.ends().consumed.load(Acquire);
        if consumed < self.read || consumed > self.pos {
            return Pushed::Broken;
        }
        self.read = consumed;
        let cells = u64::from(self.cells.count());
        let beginning_over = self.pos.is_multiple_of(BEGINNING) && self.cells.index(self.pos) != 0;
        if self.restarts && beginning_over && consumed == self.pos {
            // All of the ring is empty, whatever is skipped of it; and here the receiver looks in
            // the first cell, too.
            self.pos = (self.pos | (cells - 1)) + 1;
            self.limit = self.pos + cells;
        }
        self.limit = self.limit.max(consumed + cells);
        self.look_later();
        if self.pos < self.limit {
            Pushed::Done
        } else {
            Pushed::Full
        }
    }

    /// Looks again at the limit, or at the end of this beginning.
    fn look_later(&mut self) {
        self.look_at = if self.restarts {
            self.limit.min((self.pos | (BEGINNING - 1)) + 1)
        } else {
            self.limit
        };
    }
}
