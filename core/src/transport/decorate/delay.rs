//! Delivers packets later than they arrive.

use super::hook::Hook;
use super::random::Random;

/// Lets packets wait for a random number of polls. The packets of a pair stay in order, as the
/// contract demands. Packets of different pairs overtake each other much more than they otherwise
/// would.
#[derive(Clone, Debug)]
pub struct Delay {
    random: Random,
    longest: u64,
    /// For each peer, how often its next packet will still be turned away.
    waits: Vec<u64>,
    held: bool,
}

impl Delay {
    /// Each packet waits for up to `longest` polls.
    #[must_use]
    pub fn new(seed: u64, longest: u32) -> Self {
        let (random, longest) = (Random::new(seed), u64::from(longest));
        Self {
            random,
            longest,
            waits: Vec::new(),
            held: false,
        }
    }
}

impl Hook for Delay {
    fn accepts(&mut self, peer: u32) -> bool {
        let peer = peer as usize;
        if self.waits.len() <= peer {
            self.waits.resize(peer + 1, 0);
        }
        if self.waits[peer] == 0 {
            self.waits[peer] = self.random.below(self.longest + 1);
            return true;
        }
        self.waits[peer] -= 1;
        self.held = true;
        false
    }

    fn holds_back(&mut self) -> bool {
        std::mem::take(&mut self.held)
    }
}
