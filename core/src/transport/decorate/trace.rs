//! Records packets.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::hook::{Arrival, Hook};
use crate::transport::{Header, Sent};

/// The direction of a packet, and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Handed over, with this result.
    Out(Sent),
    /// Delivered.
    In,
}

/// A recorded packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its direction.
    pub direction: Direction,
    /// The other rank.
    pub peer: u32,
    /// Its header.
    pub header: Header,
    /// Length of its payload in bytes.
    pub len: usize,
}

/// Records every packet. Clones share the record.
#[derive(Clone, Debug, Default)]
pub struct Trace(Arc<Mutex<Vec<Record>>>);

impl Trace {
    /// An empty record.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the packets recorded so far, in the order in which they passed.
    #[must_use]
    pub fn take(&self) -> Vec<Record> {
        std::mem::take(&mut *self.records())
    }

    fn records(&self) -> MutexGuard<'_, Vec<Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hook for Trace {
    fn sent(&mut self, peer: u32, header: &Header, len: usize, outcome: Sent) {
        let direction = Direction::Out(outcome);
        self.records().push(Record {
            direction,
            peer,
            header: *header,
            len,
        });
    }

    fn arrived(&mut self, arrival: Arrival<'_>) {
        let Arrival {
            peer, header, len, ..
        } = arrival;
        self.records().push(Record {
            direction: Direction::In,
            peer,
            header: *header,
            len,
        });
    }
}
