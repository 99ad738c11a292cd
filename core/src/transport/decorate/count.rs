//! Counts packets and bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::hook::{Arrival, Hook};
use crate::transport::{Header, PacketKind, Sent};

/// How many packets and bytes have passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets handed over.
    pub sent: u64,
    /// Bytes in them.
    pub sent_bytes: u64,
    /// Packets delivered.
    pub arrived: u64,
    /// Bytes in them.
    pub arrived_bytes: u64,
    /// Attempts that found the transport full.
    pub full: u64,
}

/// Counters of one kind of packet. Statistics only: nothing is ordered by them, so Relaxed.
#[derive(Debug, Default)]
struct Counters([AtomicU64; 5]);

impl Counters {
    fn add(&self, counter: usize, n: u64) {
        self.0[counter].fetch_add(n, Ordering::Relaxed);
    }

    fn tally(&self) -> Tally {
        let [sent, sent_bytes, arrived, arrived_bytes, full] =
            std::array::from_fn(|n| self.0[n].load(Ordering::Relaxed));
        Tally {
            sent,
            sent_bytes,
            arrived,
            arrived_bytes,
            full,
        }
    }
}

/// Counts packets and bytes by kind. Clones share the counters.
#[derive(Clone, Debug)]
pub struct Count(Arc<[Counters; KINDS]>);

/// The numbers of the kinds, and 0 for everything else that a header may contain.
const KINDS: usize = PacketKind::Bundle as usize + 1;

impl Default for Count {
    fn default() -> Self {
        Self::new()
    }
}

impl Count {
    /// Counters at zero.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(std::array::from_fn(|_| Counters::default())))
    }

    /// How many packets of one kind passed.
    #[must_use]
    pub fn of(&self, kind: PacketKind) -> Tally {
        self.0[kind as usize].tally()
    }

    /// How many packets passed, of all kinds.
    #[must_use]
    pub fn total(&self) -> Tally {
        self.0
            .iter()
            .map(Counters::tally)
            .fold(Tally::default(), |sum, kind| Tally {
                sent: sum.sent + kind.sent,
                sent_bytes: sum.sent_bytes + kind.sent_bytes,
                arrived: sum.arrived + kind.arrived,
                arrived_bytes: sum.arrived_bytes + kind.arrived_bytes,
                full: sum.full + kind.full,
            })
    }

    fn counters(&self, header: &Header) -> &Counters {
        &self.0[PacketKind::from_wire(header.kind).map_or(0, |kind| kind as usize)]
    }
}

impl Hook for Count {
    fn sent(&mut self, _peer: u32, header: &Header, len: usize, outcome: Sent) {
        let counters = self.counters(header);
        match outcome {
            Sent::Done => {
                counters.add(0, 1);
                counters.add(1, len as u64);
            }
            Sent::Full => counters.add(4, 1),
            Sent::Gone => {}
        }
    }

    fn arrived(&mut self, arrival: Arrival<'_>) {
        let counters = self.counters(arrival.header);
        counters.add(2, 1);
        counters.add(3, arrival.len as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_counted_and_what_is_none_together() {
        let mut count = Count::new();
        for kind in 0..=u8::MAX {
            let header = Header {
                kind,
                ..Header::default()
            };
            count.sent(0, &header, 10, Sent::Done);
            if let Some(known) = PacketKind::from_wire(kind) {
                let tally = count.of(known);
                assert_eq!((tally.sent, tally.sent_bytes), (1, 10), "{known:?}");
            }
        }
        assert_eq!(count.total().sent, 256);
    }
}
