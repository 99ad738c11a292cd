//! What each step of a transfer costs. The machines that are known are in `preset.rs`.

use serde::{Deserialize, Serialize};

use super::time::Time;

/// What each step costs on one machine.
///
/// A put of `n` bytes over `h` hops without contention is visible after
/// `start + n / register_rate + inject + h · hop + eject`; a PE that polls for it goes on `poll`
/// later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Name of the preset.
    pub name: String,
    /// Software start of a put, a get or an atomic operation.
    pub start: Time,
    /// Rate at which words pass through the E-registers, in million bytes per second.
    pub register_rate: f64,
    /// The same for words that do not lie one after the other.
    pub strided_rate: f64,
    /// User E-registers of a PE: words that it may have in flight.
    pub registers: usize,
    /// From an E-register into the network.
    pub inject: Time,
    /// From a node's router to its neighbour's.
    pub hop: Time,
    /// Payload rate of one direction of a link, in million bytes per second.
    pub link_rate: f64,
    /// From the network into memory, or out of memory for a reply.
    pub eject: Time,
    /// One access to local memory that is not in the cache.
    pub access: Time,
    /// Rate of a copy from local memory to local memory, in million bytes per second.
    pub copy_rate: f64,
    /// From a word's change to the PE that polls it going on.
    pub poll: Time,
    /// One atomic operation at the memory; the next one there waits for it.
    pub atomic: Time,
    /// Entering and leaving the barrier network; the way through it is counted in hops.
    pub barrier: Time,
    /// Extra for a transfer with bytes that do not fill a word.
    pub partial_word: Time,
    /// Reading the clock.
    pub clock: Time,
    /// A call that the real machine does not have, so that a loop of them ends.
    pub emulation: Time,
}

/// Bytes of a cache line: what one access to local memory brings.
pub(crate) const LINE: usize = 64;

impl Costs {
    /// Copying `bytes` from local memory to local memory.
    #[must_use]
    pub fn copy(&self, bytes: usize) -> Time {
        self.access + Time::of_bytes(bytes, self.copy_rate)
    }

    /// Reading or writing `bytes` of local memory: one access, and a copy of what is longer than a
    /// line.
    #[must_use]
    pub fn touch(&self, bytes: usize) -> Time {
        match bytes {
            0..=LINE => self.access,
            _ => self.copy(bytes),
        }
    }

    /// Passing `bytes` through the E-registers.
    #[must_use]
    pub fn registers_take(&self, bytes: usize, strided: bool) -> Time {
        let rate = if strided {
            self.strided_rate
        } else {
            self.register_rate
        };
        Time::of_bytes(bytes, rate)
    }

    /// From one node's E-registers to another one's memory, `hops` away, when no link is busy.
    #[must_use]
    pub fn way(&self, hops: u32) -> Time {
        self.inject + self.hop * u64::from(hops) + self.eject
    }
}
