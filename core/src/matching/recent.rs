//! The newest entries of a queue, kept in a ring and compared one by one, oldest first.
//!
//! Most queues are short, or are emptied in the order in which they were filled. One of the first
//! few comparisons then succeeds, which is cheaper than hashing, and removing an entry from the
//! front moves no other entry. Entries go to the index only when the ring is full, or when a search
//! has gone past [`NEAR`] entries. The oldest [`NEAR`] entries are then moved there, so that if
//! searches keep missing, the ring is soon short. Therefore everything indexed is older than
//! everything recent: a search for the earliest match asks the index first and this ring second.
//!
//! Budget: one comparison if the oldest entry matches; at most [`RECENT`] comparisons in adjacent
//! memory, and only a few after several searches past [`NEAR`]. No allocation, no hash.

use super::envelope::Wanted;
use super::steps::Steps;

/// Capacity of the ring.
pub(super) const RECENT: usize = 64;
/// Number of comparisons up to which a search leaves the ring as it is, and number of entries that
/// are filed at once.
pub(super) const NEAR: usize = 8;

/// The newest entries' envelopes or patterns, oldest first, and their slots.
#[derive(Clone)]
pub(super) struct Recent {
    /// Position of the oldest entry in the arrays.
    head: usize,
    len: usize,
    wanted: [Wanted; RECENT],
    slots: [u32; RECENT],
    steps: Steps,
}

impl Default for Recent {
    fn default() -> Self {
        Self {
            head: 0,
            len: 0,
            wanted: [Wanted::default(); RECENT],
            slots: [0; RECENT],
            steps: Steps::default(),
        }
    }
}

impl Recent {
    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) const fn is_full(&self) -> bool {
        self.len == RECENT
    }

    /// The position in the arrays of the `at`-th oldest entry.
    #[inline]
    const fn place(&self, at: usize) -> usize {
        (self.head + at) % RECENT
    }

    /// Adds the newest entry. The ring must not be full.
    #[inline]
    pub(super) fn push(&mut self, wanted: Wanted, slot: u32) {
        let place = self.place(self.len);
        self.wanted[place] = wanted;
        self.slots[place] = slot;
        self.len += 1;
    }

    /// The position of the oldest entry that meets `what`; [`len`](Self::len) if there is none.
    #[inline]
    pub(super) fn first(&self, what: &Wanted) -> usize {
        let mut at = 0;
        while at < self.len {
            self.steps.take();
            if self.wanted[self.place(at)].meets(what) {
                break;
            }
            at += 1;
        }
        at
    }

    /// Removes the oldest entry if it meets `what`, and returns its slot. The ring must not be
    /// empty.
    #[inline(always)]
    pub(super) fn take_oldest(&mut self, what: &Wanted) -> Option<u32> {
        debug_assert!(self.len > 0, "an entry that is not indexed is recent");
        self.steps.take();
        let place = self.head % RECENT;
        if !self.wanted[place].meets(what) {
            return None;
        }
        self.head = self.place(1);
        self.len -= 1;
        Some(self.slots[place])
    }

    /// The position of an entry that is known to be in the ring.
    #[inline]
    pub(super) fn position(&self, slot: u32) -> usize {
        (0..self.len)
            .find(|&at| self.slot(at) == slot)
            .expect("an entry that is not indexed is recent")
    }

    /// The slot of the entry at a position.
    #[inline]
    pub(super) fn slot(&self, at: usize) -> u32 {
        self.slots[self.place(at)]
    }

    /// The envelope or pattern at a position.
    #[inline]
    pub(super) fn wanted(&self, at: usize) -> Wanted {
        self.wanted[self.place(at)]
    }

    /// Removes the entry at a position and returns its slot. The older entries close the gap.
    #[inline]
    pub(super) fn remove(&mut self, at: usize) -> u32 {
        let slot = self.slot(at);
        for older in (0..at).rev() {
            let (from, to) = (self.place(older), self.place(older + 1));
            self.wanted[to] = self.wanted[from];
            self.slots[to] = self.slots[from];
        }
        self.head = self.place(1);
        self.len -= 1;
        slot
    }

    /// Removes the oldest entry and returns its slot.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<u32> {
        (self.len > 0).then(|| self.remove(0))
    }

    /// Comparisons made so far, for tests.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        self.steps.taken()
    }
}
