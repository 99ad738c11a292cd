//! The operations that the provider knows of, each with the memory that it may use meanwhile.

use std::ffi::c_void;

use portolan_core::Request;
use portolan_core::engine::Data;
use portolan_core::matching::{Envelope, Pattern};

use super::bits::Label;
use super::buffers::Buffer;
use crate::endpoint::op::{Kind, Ops};

/// How many operations are allocated at a time.
const CHUNK: usize = 256;

/// A message that has arrived, as a look shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) envelope: Envelope,
    pub(crate) label: Label,
    /// Bytes.
    pub(crate) len: usize,
}

/// A message that is being sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) peer: u32,
    pub(super) context: u32,
    /// Tag and data word, as the provider carries them.
    pub(super) tag: u64,
    pub(super) label: u64,
    /// Length in bytes, and where they are; `None` if there are none.
    pub(super) len: usize,
    pub(super) bytes: Option<Buffer>,
    /// Its number among the messages of this rank.
    pub(super) turn: u64,
    /// The receiver has not yet reported that the message was matched.
    pub(super) awaited: bool,
    /// It has. The provider may still have to complete the send.
    pub(super) acknowledged: bool,
}

/// A receive.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) from: Pattern,
    /// Receives with lower numbers were started before.
    pub(super) turn: u64,
    /// The program's buffer, which only this device writes.
    pub(super) data: Data,
    /// Where the packed bytes arrive; `None` if the buffer has no room for any.
    pub(super) bytes: Option<Buffer>,
    /// The message, already taken out of matching, that it is to receive.
    pub(super) claimed: Option<Arrival>,
    /// A peer that has died, because of which the receive is to be taken back.
    pub(super) doom: Option<u32>,
    /// Its message was cut off; it ends when the death of the sender is adopted.
    pub(super) broken: bool,
    /// There was no memory for its message, which the provider already keeps for it: the message is
    /// dropped.
    pub(super) starved: bool,
    /// It is to end, as failed if there is a `doom` and otherwise as cancelled, unless the message
    /// that is being taken for it arrives.
    pub(super) cancelled: bool,
}

/// A look at what has arrived.
#[derive(Debug)]
pub(super) struct Look {
    /// Whether the message is to be taken out of matching.
    pub(super) claim: bool,
    /// `None` until the provider has answered.
    pub(super) answer: Option<Option<Arrival>>,
}

/// What an operation is.
#[derive(Debug, Default)]
pub(super) enum What {
    #[default]
    Free,
    Send(Outgoing),
    Receive(Incoming),
    Look(Look),
    /// A message that was taken out of matching, and is not being received yet.
    Taken(Arrival),
    /// The request is over, but the slot cannot be used again yet.
    Lost(Lost),
}

/// What is left of an operation whose request is over.
#[derive(Debug)]
pub(super) struct Lost {
    /// The memory that the provider may still use, until it has released the operation.
    pub(super) bytes: Option<Buffer>,
    /// The receiver of a synchronous message. It may still report that the message was matched,
    /// and names it by the number of this slot.
    pub(super) awaits: Option<u32>,
    /// The receiver, if it was a send.
    pub(super) to: Option<u32>,
}

impl What {
    /// The memory that the provider may have.
    pub(super) fn into_bytes(self) -> Option<Buffer> {
        match self {
            Self::Send(send) => send.bytes,
            Self::Receive(receive) => receive.bytes,
            Self::Lost(lost) => lost.bytes,
            Self::Free | Self::Look(_) | Self::Taken(_) => None,
        }
    }

    /// What is left when the request is over before the operation.
    pub(super) fn into_lost(self) -> Self {
        let (awaits, to) = match &self {
            Self::Send(send) => (send.awaited.then_some(send.peer), Some(send.peer)),
            Self::Lost(lost) => (lost.awaits, lost.to),
            Self::Receive(_) | Self::Free | Self::Look(_) | Self::Taken(_) => (None, None),
        };
        let bytes = self.into_bytes();
        Self::Lost(Lost { bytes, awaits, to })
    }
}

/// An operation.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) what: What,
    /// The request to complete when it is over.
    pub(super) request: Request,
    /// Distinguishes it from earlier operations in this slot.
    pub(super) serial: u64,
    /// The provider has it.
    pub(super) under_way: bool,
}

/// All operations.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
    ops: Vec<Ops>,
    /// Operations so far.
    count: u64,
}

impl Slots {
    /// Whether the next operation can have a number below `bound`. If so, it gets that number.
    pub(super) fn next_below(&mut self, bound: u32) -> bool {
        if self.free.is_empty() {
            self.grow();
        }
        self.free.last().is_some_and(|&next| next < bound) || self.lowest_next() < bound
    }

    /// Makes the lowest free number the next one, and returns it.
    #[cold]
    fn lowest_next(&mut self) -> u32 {
        let last = self.free.len() - 1;
        let lowest = (0..=last).min_by_key(|&at| self.free[at]).unwrap_or(last);
        self.free.swap(lowest, last);
        self.free[last]
    }

    /// Puts an operation into a slot.
    pub(super) fn add(&mut self, what: What, request: Request) -> u32 {
        if self.free.is_empty() {
            self.grow();
        }
        let number = self.free.pop().unwrap_or_default();
        let slot = &mut self.slots[number as usize];
        slot.what = what;
        slot.request = request;
        slot.under_way = false;
        self.count += 1;
        slot.serial = self.count;
        number
    }

    #[cold]
    fn grow(&mut self) {
        let first = self.slots.len();
        self.ops.push(Ops::from(Kind::Tagged, first, CHUNK));
        let slot = || Slot {
            what: What::Free,
            request: Request::NULL,
            serial: 0,
            under_way: false,
        };
        self.slots.resize_with(first + CHUNK, slot);
        self.free
            .extend((first as u32..(first + CHUNK) as u32).rev());
    }

    /// The operation of a number that [`add`](Self::add) gave.
    #[inline]
    pub(super) fn at(&mut self, number: u32) -> &mut Slot {
        &mut self.slots[number as usize]
    }

    /// The operation of a number that came from elsewhere, if there is one.
    pub(super) fn get(&mut self, number: u32) -> Option<&mut Slot> {
        self.slots.get_mut(number as usize)
    }

    /// Takes an operation, which the provider must not have, out of its slot and frees the slot.
    #[inline]
    pub(super) fn remove(&mut self, number: u32) -> What {
        let slot = &mut self.slots[number as usize];
        debug_assert!(!slot.under_way, "the provider has it");
        self.free.push(number);
        std::mem::take(&mut slot.what)
    }

    /// The operation's context for libfabric's functions.
    #[inline]
    pub(super) fn context(&self, number: u32) -> *mut c_void {
        let number = number as usize;
        self.ops[number / CHUNK].context(number % CHUNK)
    }

    /// The numbers of all slots, free ones included.
    pub(super) fn numbers(&self) -> std::ops::Range<u32> {
        0..self.slots.len() as u32
    }

    /// All slots, to describe them to users.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_number_is_found_below_a_high_one() {
        let mut slots = Slots::default();
        let numbers = (0..=CHUNK).map(|_| slots.add(What::Free, Request::NULL));
        let last = numbers.last().expect("there are some");
        assert_eq!(last, CHUNK as u32);
        // The high number is freed last, and would be the next one.
        for number in [7, 3, 5, last] {
            slots.remove(number);
        }
        assert!(!slots.next_below(3));
        for low in [3, 5, 7] {
            assert!(slots.next_below(last), "{low} is free");
            assert_eq!(slots.add(What::Free, Request::NULL), low);
        }
        assert!(!slots.next_below(last), "none is free");
        assert!(slots.next_below(last + 1));
    }
}
