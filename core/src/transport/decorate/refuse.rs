//! Reports a full transport where there is room.

use super::hook::Hook;
use super::random::Random;
use crate::transport::{Header, Sent};

/// Answers [`Sent::Full`] at random.
#[derive(Clone, Debug)]
pub struct Refuse {
    random: Random,
    one_in: u64,
    refused: bool,
}

impl Refuse {
    /// Refuses one packet in `one_in`, on average.
    ///
    /// # Panics
    /// If `one_in` is less than 2: nothing would ever be sent.
    #[must_use]
    pub fn new(seed: u64, one_in: u32) -> Self {
        assert!(one_in >= 2, "refusing one packet in {one_in} leaves none");
        Self {
            random: Random::new(seed),
            one_in: u64::from(one_in),
            refused: false,
        }
    }
}

impl Hook for Refuse {
    fn sending(&mut self, _peer: u32, _header: &Header, _len: usize) -> Option<Sent> {
        if self.random.one_in(self.one_in) {
            self.refused = true;
            return Some(Sent::Full);
        }
        None
    }

    fn holds_back(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }
}
