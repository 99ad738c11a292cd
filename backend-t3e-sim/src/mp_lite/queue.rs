//! The two ends of a circular queue: the reader's end, in whose memory the queue lies, and the
//! writer's.
//!
//! The reader's active region runs from `i` to `next`. The reader deletes from the middle by
//! condensing: the headers before the gap move forward by one, and `i` with them. The writer keeps
//! `p`, the next element to write, and never reads the queue. Instead, after every quarter of a
//! queue, the reader puts into the writer's memory how many headers it has deleted.

use super::header::{HEADER, Words};
use super::steps::Step;
use super::wire::Wire;

/// A count of headers since the start. It wraps around, so only differences mean anything.
pub(super) type Position = u32;

/// The reader's end of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reader {
    base: u64,
    queue: u32,
    /// The oldest header that is still here.
    pub(super) i: Position,
    /// The first header that has not been seen.
    pub(super) next: Position,
    told: Position,
}

impl Reader {
    pub(super) fn new(base: u64, queue: u32) -> Self {
        Self {
            base,
            queue,
            i: 0,
            next: 0,
            told: 0,
        }
    }

    fn slot(&self, position: Position) -> u64 {
        self.base + u64::from(position % self.queue) * HEADER
    }

    /// Returns the next header if it has become visible, and counts it as seen.
    pub(super) fn see(&mut self, wire: &mut impl Wire) -> Option<Words> {
        if self.len() == self.queue {
            return None; // The queue is full: the next slot holds the oldest header.
        }
        let slot = self.slot(self.next);
        // Load the last word first, because it becomes visible last.
        let last = wire.load(slot + 16);
        if last == 0 {
            return None;
        }
        self.next = self.next.wrapping_add(1);
        Some([wire.load(slot), wire.load(slot + 8), last])
    }

    /// The words of a header that has been seen.
    pub(super) fn at(&self, wire: &mut impl Wire, position: Position) -> Words {
        let slot = self.slot(position);
        [wire.load(slot), wire.load(slot + 8), wire.load(slot + 16)]
    }

    /// The headers that have been seen and not deleted, oldest first.
    pub(super) fn seen(&self) -> impl DoubleEndedIterator<Item = Position> + use<> {
        let first = self.i;
        (0..self.len()).map(move |n| first.wrapping_add(n))
    }

    /// The number of headers that have been seen and not deleted.
    pub(super) fn len(&self) -> u32 {
        self.next.wrapping_sub(self.i)
    }

    /// Deletes a header and condenses the queue forward to close the gap.
    pub(super) fn delete(&mut self, wire: &mut impl Wire, position: Position) {
        let mut gap = position;
        while gap != self.i {
            let before = gap.wrapping_sub(1);
            let words = self.at(wire, before);
            let slot = self.slot(gap);
            for (n, word) in (0..).zip(words) {
                wire.store(slot + 8 * n, word);
            }
            gap = before;
        }
        wire.step(Step::Condense(position.wrapping_sub(self.i)));
        // Clearing the last word is enough: it alone says that there is a header.
        wire.store(self.slot(self.i) + 16, 0);
        self.i = self.i.wrapping_add(1);
    }

    /// Whether it is time to tell the writer how many headers were deleted.
    pub(super) fn is_due(&self) -> bool {
        self.i.wrapping_sub(self.told) >= self.queue / 4
    }

    /// Returns the count for the writer, and notes that the writer has been told.
    pub(super) fn tell(&mut self) -> Position {
        self.told = self.i;
        self.i
    }

    /// Whether so many headers wait here that the writer may run out of room: more than half of the
    /// queue.
    pub(super) fn is_crowded(&self) -> bool {
        self.len() > self.queue / 2
    }
}

/// The writer's end of a queue in a peer's memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Writer {
    base: u64,
    queue: u32,
    /// The next element to write.
    pub(super) p: Position,
    /// The word in this PE's memory in which the reader tells how many headers it has deleted.
    told_at: u64,
}

impl Writer {
    pub(super) fn new(base: u64, queue: u32, told_at: u64) -> Self {
        Self {
            base,
            queue,
            p: 0,
            told_at,
        }
    }

    /// How many headers the reader has deleted, as far as it has told.
    pub(super) fn told(&self, wire: &mut impl Wire) -> Position {
        wire.load(self.told_at) as Position
    }

    /// The number of headers for which there is room.
    pub(super) fn room(&self, wire: &mut impl Wire) -> u32 {
        self.queue - self.p.wrapping_sub(self.told(wire))
    }

    /// Writes a header, for which there must be room. Everything that was put before becomes
    /// visible before it.
    pub(super) fn post(&mut self, wire: &mut impl Wire, pe: u32, words: Words) {
        let slot = self.base + u64::from(self.p % self.queue) * HEADER;
        wire.step(Step::Post);
        wire.post(pe, slot, words);
        self.p = self.p.wrapping_add(1);
    }
}
