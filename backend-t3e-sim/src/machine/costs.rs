//! What things cost, and the machines that are known.

use serde::{Deserialize, Serialize};

use super::time::Time;

/// What each step of a transfer costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Name of the preset.
    pub name: String,
    /// Software start of a put, a get or an atomic operation.
    pub start: Time,
    /// Rate at which words pass through the E-registers, in million bytes per second.
    pub register_rate: f64,
    /// User E-registers of a PE: words that it may have in flight.
    pub registers: usize,
    /// From an E-register into the network.
    pub inject: Time,
    /// From a node's router to its neighbour's.
    pub hop: Time,
    /// Payload rate of one direction of a link, in million bytes per second.
    pub link_rate: f64,
    /// From the network into memory.
    pub eject: Time,
    /// One access to local memory that is not in the cache.
    pub access: Time,
    /// Rate of a copy from local memory to local memory, in million bytes per second.
    pub copy_rate: f64,
    /// From a word's change to the PE that polls it going on.
    pub poll: Time,
    /// One atomic operation at the memory.
    pub atomic: Time,
    /// Entering and leaving the barrier network.
    pub barrier: Time,
    /// Extra for a transfer with bytes that do not fill a word.
    pub partial_word: Time,
    /// Reading the clock.
    pub clock: Time,
}

impl Costs {
    /// Copying `bytes` from local memory to local memory.
    #[must_use]
    pub fn copy(&self, bytes: usize) -> Time {
        self.access + Time::of_bytes(bytes, self.copy_rate)
    }
}
