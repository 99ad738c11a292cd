//! Sets of the ids of one kind.

use super::WORDS;

/// A bit for each id of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mask(pub(super) [u64; WORDS]);

impl Default for Mask {
    fn default() -> Self {
        Self([0; WORDS])
    }
}

impl Mask {
    pub(super) fn has(&self, at: u32) -> bool {
        self.0[at as usize / 64] >> (at % 64) & 1 != 0
    }

    pub(super) fn set(&mut self, at: u32) {
        self.0[at as usize / 64] |= 1 << (at % 64);
    }

    pub(super) fn clear(&mut self, at: u32) {
        self.0[at as usize / 64] &= !(1 << (at % 64));
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The bits that are set, in ascending order.
    pub(super) fn bits(self) -> impl Iterator<Item = u32> {
        let words = (0..).zip(self.0).filter(|(_, word)| *word != 0);
        words.flat_map(|(at, word)| {
            let set = (0..64).filter(move |bit| word >> bit & 1 != 0);
            set.map(move |bit| at * 64 + bit)
        })
    }

    pub(super) fn add(&mut self, other: Self) {
        let words = self.0.iter_mut().zip(other.0);
        words.for_each(|(word, other)| *word |= other);
    }

    pub(super) fn remove(&mut self, other: Self) {
        let words = self.0.iter_mut().zip(other.0);
        words.for_each(|(word, other)| *word &= !other);
    }
}

/// The index of the lowest bit that is set.
pub(in crate::comm) fn lowest(mask: &[u64]) -> Option<u32> {
    let word = mask.iter().position(|&word| word != 0)?;
    Some(word as u32 * 64 + mask[word].trailing_zeros())
}
