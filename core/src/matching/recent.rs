//! The newest few entries of a queue, kept in an array and compared one by one.
//!
//! Most queues are short most of the time, and for a handful of entries comparing is cheaper than
//! hashing. So an entry is filed in the index only once [`RECENT`] newer ones have come after it.
//! Everything indexed is therefore older than everything recent: whoever looks for the earliest
//! match asks the index first and then this array, front to back.
//!
//! Budget: at most [`RECENT`] comparisons in adjacent memory; no allocation, no hash.

use super::envelope::Words;
use super::steps::Steps;

/// How many entries are compared rather than hashed.
pub(super) const RECENT: usize = 8;

/// The newest entries' envelopes or patterns, oldest first, and their slots.
#[derive(Default)]
pub(super) struct Recent {
    len: usize,
    words: [Words; RECENT],
    slots: [u32; RECENT],
    steps: Steps,
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

    /// Adds the newest entry. There must be room.
    #[inline]
    pub(super) fn push(&mut self, words: Words, slot: u32) {
        self.words[self.len] = words;
        self.slots[self.len] = slot;
        self.len += 1;
    }

    /// Where the oldest entry that meets `words` stands.
    #[inline]
    pub(super) fn first(&self, words: &Words) -> Option<usize> {
        self.words[..self.len].iter().position(|recent| {
            self.steps.take();
            recent.meets(words)
        })
    }

    /// Where an entry stands that is known to be here.
    #[inline]
    pub(super) fn position(&self, slot: u32) -> usize {
        self.slots[..self.len]
            .iter()
            .position(|&recent| recent == slot)
            .expect("an entry that is not indexed is recent")
    }

    /// The slot of the entry that stands at a position.
    #[inline]
    pub(super) fn slot(&self, at: usize) -> u32 {
        self.slots[at]
    }

    /// Removes the entry at a position; the newer ones close up.
    #[inline]
    pub(super) fn remove(&mut self, at: usize) -> u32 {
        let slot = self.slots[at];
        self.len -= 1;
        if at != self.len {
            self.close_up(at);
        }
        slot
    }

    fn close_up(&mut self, at: usize) {
        self.words.copy_within(at + 1..=self.len, at);
        self.slots.copy_within(at + 1..=self.len, at);
    }

    /// Comparisons made so far, for tests.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        self.steps.taken()
    }
}
