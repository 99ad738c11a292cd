//! The events that are going to happen, and their order.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use super::address::Addr;
use super::call::{Atomic, Stride};
use super::time::Time;

/// Something that happens to a PE.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Bytes reach its memory.
    Land {
        from: u32,
        addr: Addr,
        data: Piece,
        stride: Option<Stride>,
    },
    /// An atomic operation reaches its memory, and waits there for those before it.
    Queue { from: u32, addr: Addr, op: Atomic },
    /// An atomic operation changes its memory.
    Operate { from: u32, addr: Addr, op: Atomic },
    /// Its memory is read for a get of `from`, for the bytes from `offset` on of that get.
    Read {
        from: u32,
        addr: Addr,
        len: usize,
        stride: Option<Stride>,
        offset: usize,
    },
    /// Bytes of its get reach its E-registers.
    Arrive { offset: usize, data: Vec<u8> },
    /// The old value of an atomic operation reaches it.
    Answer { word: u64 },
    /// It can issue the next piece of its transfer.
    Issue,
    /// Its call starts.
    Start,
    /// The deadline of a sleep, which has an effect only if it is still in the same sleep.
    Deadline { sleep: u64 },
    /// Its call ends.
    Resume,
}

impl Kind {
    /// The order of events at one moment: first memory changes, then it is read, then PEs act.
    fn class(&self) -> u8 {
        match self {
            Self::Land { .. } | Self::Queue { .. } | Self::Operate { .. } => 0,
            Self::Read { .. } => 1,
            Self::Arrive { .. } | Self::Answer { .. } => 2,
            Self::Issue => 3,
            Self::Start => 4,
            Self::Deadline { .. } => 5,
            Self::Resume => 6,
        }
    }
}

/// A part of the bytes of a put.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) all: Arc<Vec<u8>>,
    pub(crate) range: Range<usize>,
}

impl Piece {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.all[self.range.clone()]
    }
}

/// An event with its moment.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) at: Time,
    pub(crate) pe: u32,
    pub(crate) kind: Kind,
    number: u64,
}

impl Event {
    fn key(&self) -> (Time, u8, u32, u64) {
        (self.at, self.kind.class(), self.pe, self.number)
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// All events that are going to happen: the earliest first; ties by kind, then by PE, then in the
/// order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct Events {
    heap: BinaryHeap<Reverse<Event>>,
    added: u64,
}

impl Events {
    pub(crate) fn add(&mut self, at: Time, pe: u32, kind: Kind) {
        self.added += 1;
        let number = self.added;
        self.heap.push(Reverse(Event {
            at,
            pe,
            kind,
            number,
        }));
    }

    pub(crate) fn next(&mut self) -> Option<Event> {
        self.heap.pop().map(|Reverse(event)| event)
    }

    /// The number of events ever added.
    pub(crate) fn added(&self) -> u64 {
        self.added
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_clock_comes_first_and_ties_go_by_kind_and_pe() {
        let mut events = Events::default();
        let at = Time::from_ns;
        events.add(at(2), 0, Kind::Start);
        events.add(at(1), 9, Kind::Start);
        events.add(at(1), 3, Kind::Start);
        events.add(at(1), 3, Kind::Resume);
        events.add(at(1), 9, Kind::Answer { word: 0 });
        let order: Vec<_> = std::iter::from_fn(|| events.next())
            .map(|event| (event.at, event.kind.class(), event.pe))
            .collect();
        assert_eq!(
            order,
            [
                (at(1), 2, 9),
                (at(1), 4, 3),
                (at(1), 4, 9),
                (at(1), 6, 3),
                (at(2), 4, 0)
            ]
        );
    }
}
