//! The newest entries of a queue, kept in a ring and compared one by one, oldest first.
//!
//! Most queues are short, or are used in the order in which they were filled: then one of the first
//! few comparisons hits, which is cheaper than any hashing, and an entry that leaves from the front
//! moves no other. An entry is filed in the index only when the ring is full, or when a search has
//! gone past more than [`NEAR`] entries: then the oldest [`NEAR`] go there, so that searches that
//! keep missing soon find a short ring. Everything indexed is therefore older than everything
//! recent: whoever looks for the earliest match asks the index first and then this ring.
//!
//! Budget: one comparison if the oldest entry is the one, at most [`RECENT`] in adjacent memory and
//! a few once [`NEAR`] have been passed a few times; no allocation, no hash.

use super::envelope::Wanted;
use super::steps::Steps;

/// Most entries of the ring.
pub(super) const RECENT: usize = 64;
/// Comparisons in a search that need no mending, and entries filed at once.
pub(super) const NEAR: usize = 8;

/// The newest entries' envelopes or patterns, oldest first, and their slots.
#[derive(Clone)]
pub(super) struct Recent {
    /// Where in the ring the oldest entry is.
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

    /// The place of the `at`-th entry in the ring.
    #[inline]
    const fn place(&self, at: usize) -> usize {
        (self.head + at) % RECENT
    }

    /// Adds the newest entry. There must be room.
    #[inline]
    pub(super) fn push(&mut self, wanted: Wanted, slot: u32) {
        let place = self.place(self.len);
        self.wanted[place] = wanted;
        self.slots[place] = slot;
        self.len += 1;
    }

    /// Where the oldest entry that meets `what` stands; [`len`](Self::len) if none does.
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

    /// Takes the oldest entry out if it meets `what`; its slot. There must be one.
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

    /// Where an entry stands that is known to be here.
    #[inline]
    pub(super) fn position(&self, slot: u32) -> usize {
        (0..self.len)
            .find(|&at| self.slot(at) == slot)
            .expect("an entry that is not indexed is recent")
    }

    /// The slot of the entry that stands at a position.
    #[inline]
    pub(super) fn slot(&self, at: usize) -> u32 {
        self.slots[self.place(at)]
    }

    /// The envelope or pattern that stands at a position.
    #[inline]
    pub(super) fn wanted(&self, at: usize) -> Wanted {
        self.wanted[self.place(at)]
    }

    /// Removes the entry at a position; the older ones close up.
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

    /// Takes the oldest entry out; its slot.
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
