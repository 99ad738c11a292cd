//! The sender's half of a ring.
//!
//! Budget of a message: no system call, no locked instruction, and one cache line written, or two.
//! The sender reads the receiver's line when room runs out; a sender that starts over also reads it
//! at the end of each beginning.

use bytemuck::Zeroable;

use super::{BEGINNING, BULK, Cells, Ends, RESTARTING, control};
use crate::optional::Present;
use crate::sync::Ordering::{Acquire, Release};

/// The outcome of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// Published.
    Done,
    /// The ring has no room.
    Full,
    /// The receiver's position makes no sense: the receiver has overwritten it with garbage.
    Broken,
}

/// How many messages ahead of the one being written the sender prefetches. The receiver read that
/// line a lap ago, so fetching it takes as long as a message takes to travel. The receiver looks at
/// its next cell only, so it does not take a line back that was fetched this early.
const AHEAD: u64 = 8;

/// The sender's half of a ring.
#[derive(Debug, Zeroable)]
pub(crate) struct RingTx {
    cells: Cells,
    ends: *const Ends,
    /// Where the next message begins, in cells since the start.
    pos: u64,
    /// The first position that may not be written: the consumed position plus the size of the ring.
    limit: u64,
    /// The position at which this side looks how far the receiver is: the limit, or an earlier one
    /// at which it may start over.
    look_at: u64,
    /// The receiver's published position when this side last looked.
    read: u64,
    /// Whether this side starts over.
    restarts: bool,
}

// SAFETY: the pointers lead to memory that is shared between threads by design. There is only one
// sender's half, and it may move to another thread.
unsafe impl Send for RingTx {}

impl Present for RingTx {
    #[inline(always)]
    fn is_present(&self) -> bool {
        self.cells.exist()
    }
}

impl RingTx {
    /// Makes the sender's half of a fresh, zeroed ring.
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
        // SAFETY: `new` promised that they are valid; zeros stay in an `Optional`.
        unsafe { &*self.ends }
    }

    /// The longest payload of a message.
    #[inline(always)]
    pub(crate) fn inline(&self) -> usize {
        self.cells.inline()
    }

    /// Sends a message whose payload fits its cells.
    ///
    /// # Safety
    /// `len` bytes at `data` are readable, and `len` is at most [`inline`](Self::inline).
    #[inline(always)]
    pub(crate) unsafe fn push(&mut self, header: [u64; 3], data: *const u8, len: usize) -> Pushed {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.push_marked(header, data, len, 0) }
    }

    /// Sends the descriptor of a packet that lies in the bulk area.
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

    /// Prefetches the line of the next message.
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

    /// Whether `messages` messages would find room now.
    pub(crate) fn fits(&mut self, messages: usize) -> bool {
        let cells = messages as u64 * self.cells.step();
        if self.pos + cells > self.limit && self.refresh() == Pushed::Broken {
            return false;
        }
        self.pos + cells <= self.limit
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
        // SAFETY: the message in this cell one lap ago was consumed (`pos < limit`), so the cell
        // belongs to the sender; the caller vouches for `data` and `len`.
        unsafe { self.cells.write(index, header, data, len) };
        // SYNC 1: makes the cell visible to the receiver's Acquire load in `RingRx::poll`.
        self.cells
            .control(index)
            .store(control(self.pos, len, bulk), Release);
        self.pos += self.cells.step();
        if !self.restarts {
            self.cells
                .prefetch_for_write(self.cells.index(self.pos + AHEAD * self.cells.step()));
        }
        Pushed::Done
    }

    /// Looks how far the receiver is, and starts over if it may.
    #[cold]
    #[inline(never)]
    fn refresh(&mut self) -> Pushed {
        // SYNC 2: pairs with the receiver's Release store in `RingRx::publish`, which came after
        // its last access to the cells before `consumed`; they may be overwritten now.
        let consumed = self.ends().consumed.load(Acquire);
        if consumed < self.read || consumed > self.pos {
            return Pushed::Broken;
        }
        self.read = consumed;
        let cells = u64::from(self.cells.count());
        let beginning_over = self.pos.is_multiple_of(BEGINNING) && self.cells.index(self.pos) != 0;
        if self.restarts && beginning_over && consumed == self.pos {
            // The whole ring is empty, so whatever is skipped of it holds nothing; and at this
            // position the receiver looks at the first cell, too.
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

    /// Sets the position of the next look: the limit, or the end of this beginning.
    fn look_later(&mut self) {
        self.look_at = if self.restarts {
            self.limit.min((self.pos | (BEGINNING - 1)) + 1)
        } else {
            self.limit
        };
    }
}
