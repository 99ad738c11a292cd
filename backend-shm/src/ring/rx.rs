//! The receiver's half of a ring.

use super::{BEGINNING, BULK, Cells, Ends, LEN_MASK, LEN_SHIFT, is_at};
use crate::sync::Ordering::{Acquire, Release};

/// What the receiver finds at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Polled {
    /// Nothing yet.
    Empty,
    /// A message of `len` bytes in cell `index`.
    Message {
        /// Its cell.
        index: u32,
        /// Bytes of payload; at most [`Cells::inline`].
        len: usize,
        /// Whether the payload describes a packet in the bulk area.
        bulk: bool,
    },
    /// A control word that no correct sender writes.
    Broken,
}

/// How many messages ahead of its position the receiver prefetches.
const AHEAD: u64 = 4;

/// The receiver's half of a ring.
#[derive(Debug)]
pub(crate) struct RingRx {
    cells: Cells,
    ends: *const Ends,
    pos: u64,
    published: u64,
    /// Cells after which the position is published.
    period: u64,
    silent: bool,
}

// SAFETY: as for `RingTx`.
unsafe impl Send for RingRx {}

impl RingRx {
    /// Makes the receiver's half of a ring from which nothing has been taken yet.
    ///
    /// # Safety
    /// `ends` must be valid as long as the result is used, and belong to the ring of `cells`.
    pub(crate) unsafe fn new(cells: Cells, ends: *const Ends) -> Self {
        let period = u64::from(cells.count()).div_ceil(4).min(BEGINNING);
        Self {
            cells,
            ends,
            pos: 0,
            published: 0,
            period,
            silent: false,
        }
    }

    /// The words that both sides share.
    #[inline(always)]
    pub(crate) fn ends(&self) -> &Ends {
        // SAFETY: `new` promised that they are valid.
        unsafe { &*self.ends }
    }

    /// The cells of the ring, for reading the message that [`poll`](Self::poll) found.
    #[inline(always)]
    pub(crate) fn cells(&self) -> &Cells {
        &self.cells
    }

    /// Makes every later poll find nothing, because the sender writes nonsense.
    pub(crate) fn silence(&mut self) {
        self.silent = true;
    }

    /// Looks at the receiver's position.
    #[inline(always)]
    pub(crate) fn poll(&mut self) -> Polled {
        let mut control = self.control(self.pos);
        if !is_at(control, self.pos) {
            if !self.pos.is_multiple_of(BEGINNING) {
                return Polled::Empty;
            }
            control = self.look_again();
            if !is_at(control, self.pos) {
                return Polled::Empty;
            }
        }
        if self.silent {
            return Polled::Empty;
        }
        let len = ((control >> LEN_SHIFT) & LEN_MASK) as usize;
        if len > self.cells.inline() {
            return Polled::Broken;
        }
        Polled::Message {
            index: self.cells.index(self.pos),
            len,
            bulk: control & BULK != 0,
        }
    }

    /// Skips the rest of the lap if the sender has done so. Returns the control word at the
    /// position where this side is then.
    #[inline(always)]
    fn look_again(&mut self) -> u64 {
        let next = (self.pos | u64::from(self.cells.count() - 1)) + 1;
        let first = self.control(next);
        if !is_at(first, next) {
            return 0;
        }
        // The sender may have reached the first cell without skipping, since this side looked at
        // its own. What the sender wrote before is visible now.
        let control = self.control(self.pos);
        if is_at(control, self.pos) {
            return control;
        }
        // The next publication is a whole period from here, so the end of a beginning is always
        // published.
        (self.pos, self.published) = (next, next);
        first
    }

    /// The control word of the cell that belongs to a position.
    #[inline(always)]
    fn control(&self, pos: u64) -> u64 {
        // SYNC 1: pairs with the Release store in `RingTx::push_marked`.
        self.cells.control(self.cells.index(pos)).load(Acquire)
    }

    /// The position of the message that is `places` behind the next one.
    #[inline(always)]
    fn behind_by(&self, places: u64) -> u64 {
        self.pos + places * self.cells.step()
    }

    /// Prefetches the cell of the message that is `places` behind the next one.
    #[inline]
    pub(crate) fn ask_for(&self, places: usize) {
        self.cells
            .prefetch(self.cells.index(self.behind_by(places as u64)));
    }

    /// The cell of the message that is `places` behind the next one, if it has arrived.
    #[inline]
    pub(crate) fn behind(&self, places: usize) -> Option<u32> {
        let pos = self.behind_by(places as u64);
        (is_at(self.control(pos), pos) && !self.silent).then(|| self.cells.index(pos))
    }

    /// Prefetches a cell a little ahead. Only for messages that come in bursts: otherwise this
    /// would take the line of a cell that is not written yet away from the sender.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        self.cells.prefetch(self.cells.index(self.behind_by(AHEAD)));
    }

    /// Moves past a message that has been read. Returns whether the position, and so the room, was
    /// published to the sender.
    #[inline(always)]
    pub(crate) fn consume(&mut self) -> bool {
        self.pos += self.cells.step();
        self.pos - self.published >= self.period && self.publish()
    }

    #[cold]
    #[inline(never)]
    fn publish(&mut self) -> bool {
        self.published = self.pos;
        // SYNC 2: pairs with the Acquire load in `RingTx::refresh`: every cell before `pos` has
        // been read, and, where its line is taken, written.
        self.ends().consumed.store(self.pos, Release);
        true
    }
}
