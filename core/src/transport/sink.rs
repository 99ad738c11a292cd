//! The engine's side of a poll: what becomes of packets that arrive.

use super::{Header, Payload};
#[cfg(doc)]
use super::{Limits, Transport};

/// Where the bytes of a packet go that has begun to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To this room, as they come: a call waits for just this packet. The transport may wait for
    /// them, too, for some microseconds.
    Here(Room),
    /// To the sink, [part](Sink::part) by part as they come.
    Parts,
    /// To the sink as a [whole](Sink::packet), once all of them are there.
    Whole,
}

/// Memory for all bytes of a packet that has begun to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room(*mut u8);

impl Room {
    /// The room at this address.
    ///
    /// # Safety
    /// As many bytes as the packet has must be writable there, apart from the packet, and used by
    /// nobody else, until [`Sink::placed`] has been called.
    #[must_use]
    pub unsafe fn new(at: *mut u8) -> Self {
        Self(at)
    }

    /// Where it begins.
    #[must_use]
    pub fn as_ptr(self) -> *mut u8 {
        self.0
    }
}

/// The engine's side of a poll.
pub trait Sink {
    /// Whether a packet of `peer` may be delivered now. Packets that may not be delivered stay
    /// where they are, in order, and are offered again by a later poll. Asked before each packet.
    fn accepts(&mut self, peer: u32) -> bool;

    /// A packet has arrived. The payload is only valid until this returns.
    fn packet(&mut self, peer: u32, header: &Header, payload: Payload<'_>);

    /// A packet of `len` bytes, which is next from `peer`, has begun to arrive, while its sender
    /// may still be writing it: what shall become of it? Asked after [`accepts`](Self::accepts), in
    /// each poll that finds it so, until the answer is not [`Destination::Whole`].
    fn grows(&mut self, peer: u32, header: &Header, len: usize) -> Destination {
        let _ = (peer, header, len);
        Destination::Whole
    }

    /// The first `here` bytes of the packet that was to go [`Destination::Here`] have been copied
    /// there. If those are not all of its `len` bytes, the rest did not come soon, and is delivered
    /// in [parts](Self::part).
    fn placed(&mut self, peer: u32, header: &Header, len: usize, here: usize) {
        let _ = (peer, header, len, here);
        debug_assert!(false, "only a sink that gives a place is told of it");
    }

    /// The bytes from position `at` of a packet of `len` bytes, up to its end or to where its
    /// sender is. Parts come in order, none is empty, and no other packet of `peer` comes before
    /// the last one.
    fn part(&mut self, peer: u32, header: &Header, len: usize, at: usize, payload: Payload<'_>) {
        let _ = (peer, header, len, at, payload);
        debug_assert!(false, "only a sink that asks for parts gets any");
    }

    /// How many packets behind the next one to be delivered [`ahead`](Self::ahead) wants to hear
    /// of; 0 for none.
    fn looks_ahead(&self) -> usize {
        0
    }

    /// A hint: a packet with this header has arrived, `places` places behind the next one to be
    /// delivered, so what its delivery will touch may be prefetched. Called with each delivery, for
    /// every second packet, the farthest first.
    fn ahead(&mut self, header: &Header, places: usize) {
        let _ = (header, places);
    }

    /// The operation that [`Transport::begin_remote`] began under this number is over. `outcome` is
    /// the former value if the operation was atomic, or `None` if the operation failed. What it
    /// changed is now in the peer's memory.
    fn finished(&mut self, id: u32, outcome: Option<u64>) {
        let _ = (id, outcome);
    }
}
