//! Reports memory out of reach that can be reached.

use super::hook::Hook;
use super::random::Random;

/// Answers [`Pulled::Stream`](crate::transport::Pulled::Stream) to pulls and pushes at random, and
/// so also in the middle of a message.
///
/// Long pulls and pushes always go through: a message that is pulled while its sender is busy
/// elsewhere could not be streamed.
#[derive(Clone, Debug)]
pub struct Unreach {
    random: Random,
    one_in: u64,
    below: usize,
}

impl Unreach {
    /// Refuses, on average, one in `one_in` of those that are shorter than `below` bytes.
    ///
    /// # Panics
    /// If `one_in` is zero.
    #[must_use]
    pub fn new(seed: u64, one_in: u32, below: usize) -> Self {
        assert!(one_in > 0, "one in 0 is no number");
        Self {
            random: Random::new(seed),
            one_in: u64::from(one_in),
            below,
        }
    }
}

impl Hook for Unreach {
    fn reaches(&mut self, _peer: u32, len: usize) -> bool {
        len >= self.below || !self.random.one_in(self.one_in)
    }
}
