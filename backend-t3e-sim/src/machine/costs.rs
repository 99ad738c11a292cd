//! The cost of each step of a transfer. The known machines are in `preset.rs`.

use serde::{Deserialize, Serialize};

use super::time::Time;

/// The cost of each step on one machine.
///
/// A put of `n` bytes over `h` hops without contention is visible after `start + n / register_rate
/// + inject + h · hop + eject`; a PE that polls for it continues `poll` later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Name of the preset.
    pub name: String,
    /// Software start of a put, a get or an atomic operation.
    pub start: Time,
    /// Rate at which words pass through the E-registers, in million bytes per second.
    pub register_rate: f64,
    /// The same for words that are not contiguous.
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
    /// From the change of a word until the PE that polls it continues.
    pub poll: Time,
    /// One atomic operation at the memory, during which the next one there waits.
    pub atomic: Time,
    /// Entering and leaving the barrier network; the way through it is counted in hops.
    pub barrier: Time,
    /// Extra cost of a transfer with bytes that do not fill a word.
    pub partial_word: Time,
    /// Reading the clock.
    pub clock: Time,
    /// A call that the real machine does not have. It costs something so that a loop of such calls
    /// ends.
    pub emulation: Time,
}

/// Bytes of a cache line, which is what one access to local memory fetches.
pub(crate) const LINE: usize = 64;

impl Costs {
    /// Copying `bytes` from local memory to local memory.
    #[must_use]
    pub fn copy(&self, bytes: usize) -> Time {
        self.access + Time::of_bytes(bytes, self.copy_rate)
    }

    /// Reading or writing `bytes` of local memory: one access, and a copy if they are longer than a
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
