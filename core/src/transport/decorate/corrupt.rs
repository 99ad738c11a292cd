//! Flips bits of packets.

use super::hook::{Arrival, Hook};
use super::random::Random;
use crate::transport::Header;

/// Changes packets that arrive: bits of the header, bits of the payload, or its length.
///
/// Such packets are what a peer with broken memory, another version or bad intentions would send.
/// The engine must survive all of them: it may declare the peer failed, or deliver wrong bytes or
/// an error, but nothing worse.
#[derive(Clone, Debug)]
pub struct Corrupt {
    random: Random,
    one_in: u64,
    /// Packets that pass unharmed at first.
    spared: u64,
}

impl Corrupt {
    /// Changes one packet in `one_in`, on average, after the first `spared`.
    ///
    /// # Panics
    /// If `one_in` is zero.
    #[must_use]
    pub fn new(seed: u64, one_in: u32, spared: u64) -> Self {
        assert!(one_in > 0, "one packet in 0 is not a share");
        Self {
            random: Random::new(seed),
            one_in: u64::from(one_in),
            spared,
        }
    }

    fn flip(&mut self, bytes: &mut [u8]) {
        for _ in 0..=self.random.below(4) {
            let bit = self.random.below(bytes.len() as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

impl Hook for Corrupt {
    const READS_PAYLOADS: bool = true;

    fn arrived(&mut self, arrival: Arrival<'_>) {
        if self.spared > 0 {
            self.spared -= 1;
            return;
        }
        if !self.random.one_in(self.one_in) {
            return;
        }
        let Arrival {
            header, payload, ..
        } = arrival;
        match self.random.below(3) {
            0 if !payload.is_empty() => self.flip(payload),
            1 if !payload.is_empty() => {
                // One byte may be added: packets may grow as well as shrink.
                let len = self.random.below(payload.len() as u64 + 2) as usize;
                payload.resize(len, 0xa5);
            }
            _ => {
                let mut bytes = header.to_words().map(u64::to_ne_bytes);
                self.flip(bytes.as_flattened_mut());
                *header = Header::from_words(bytes.map(u64::from_ne_bytes));
            }
        }
    }
}
