//! Kills a peer.

use super::hook::{Arrival, Hook};

/// Declares a peer dead after a number of its packets, as if its process had been killed there.
#[derive(Clone, Debug)]
pub struct DropPeer {
    victim: u32,
    left: u64,
    condemned: bool,
}

impl DropPeer {
    /// `victim` dies once `after` of its packets have been delivered here.
    #[must_use]
    pub fn new(victim: u32, after: u64) -> Self {
        Self {
            victim,
            left: after,
            condemned: false,
        }
    }
}

impl Hook for DropPeer {
    fn accepts(&mut self, peer: u32) -> bool {
        peer != self.victim || self.left > 0
    }

    fn arrived(&mut self, arrival: Arrival<'_>) {
        if arrival.peer == self.victim {
            self.left = self.left.saturating_sub(1);
        }
    }

    fn holds_back(&mut self) -> bool {
        // The rank must poll once more, so that the verdict takes effect.
        self.left == 0 && !self.condemned
    }

    fn condemns(&mut self) -> Option<(u32, String)> {
        if self.left > 0 || std::mem::replace(&mut self.condemned, true) {
            return None;
        }
        Some((
            self.victim,
            format!("rank {} was killed by the test", self.victim),
        ))
    }
}
