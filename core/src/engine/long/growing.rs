//! Packets that arrive while their senders still write them.
//!
//! A transport that lets both processors copy one packet at the same time
//! ([`Limits::grows`](crate::transport::Limits::grows)) asks what shall become of such a packet
//! when it has begun to arrive:
//!
//! - The receive in hand takes it directly. The transport copies it to the buffer, and the receive
//!   is over when all of it is there. If the sender stops in the middle, which happens if the
//!   system takes its processor away, the receive becomes an ordinary one that a message has begun
//!   to fill.
//! - Any other receive of a long message takes it in parts, like a message that [comes in
//!   pieces](super::pieces).
//! - All else waits until it is there as a whole: short messages, for which binding a receive takes
//!   longer than waiting, and packets that are no messages.

use crate::engine::entry::RecvStage;
use crate::engine::long::pieces::Arrival;
use crate::engine::short::outgoing::Peer;
use crate::engine::short::unexpected::envelope;
use crate::engine::state::Proto;
use crate::transport::{Destination, Header, PacketKind, Payload, Room};

impl Proto {
    /// Whether the receiver of a message that a blocking call sends is likely to wait for it in a
    /// call. If this rank has receives of its own under way, both ranks may send at the same time:
    /// then each copies its own message, and finds the other's when that is there.
    #[inline]
    pub(in crate::engine) fn is_waited_for(&self) -> bool {
        self.posted.is_empty()
    }

    /// Where a packet of `len` bytes goes that has begun to arrive.
    pub(in crate::engine) fn destination_of(
        &mut self,
        peer: u32,
        header: &Header,
        len: usize,
    ) -> Destination {
        // What the dead have sent is delivered as far as it is whole; a packet that stays
        // incomplete binds no receive.
        let failed = self.peers[peer as usize].flags & Peer::FAILED != 0;
        // Nor does one that comes amid the pieces of another: no correct peer sends it.
        if header.kind != PacketKind::Eager as u8 || failed || self.arrivals.has(peer) {
            return Destination::Whole;
        }
        // A receive that has to be put down needs a slot.
        if self.table.has_room()
            && self.posted.peek_arrival(&envelope(header)).is_none()
            && let Some(to) = self.room_in_hand(header, len)
        {
            // SAFETY: the receiving thread keeps the buffer, in which the packet fits, until its
            // call returns, which is in this poll.
            return Destination::Here(unsafe { Room::new(to) });
        }
        match len > self.limits.eager {
            true => Destination::Parts,
            false => Destination::Whole,
        }
    }

    /// The first `here` bytes of a packet of `len` bytes are in the buffer of the receive in hand.
    pub(in crate::engine) fn on_placed(
        &mut self,
        peer: u32,
        header: &Header,
        len: usize,
        here: usize,
    ) {
        if here < len {
            return self.bind_in_hand(peer, header, len, here);
        }
        if len > self.limits.eager {
            self.unasked.comes(peer);
        }
        self.arrived_in_hand(header, len);
        self.delivered(peer, header, len as u64);
    }

    /// Turns the receive in hand into an ordinary one, of which `here` bytes have arrived.
    #[cold]
    #[inline(never)]
    fn bind_in_hand(&mut self, peer: u32, header: &Header, len: usize, here: usize) {
        let Some(index) = self.put_down_for(&envelope(header)) else {
            debug_assert!(
                false,
                "it was there, and a slot for it, when the packet was placed"
            );
            return;
        };
        if let Some(op) = self.table.recv(index) {
            op.stage = RecvStage::Arriving { peer, here };
        }
        self.begin_arrival(peer, Arrival::in_receive(*header, len, here, index));
    }

    /// Takes in a part of a packet, from position `at` on.
    #[inline(never)]
    pub(in crate::engine) fn on_part(
        &mut self,
        peer: u32,
        header: &Header,
        len: usize,
        at: usize,
        payload: Payload<'_>,
    ) {
        match (at == 0, self.arrivals.has(peer)) {
            (true, true) => return self.misbehaves(peer, "began a message amid another one"),
            (true, false) => self.begin_message(peer, header, len),
            (false, _) => {}
        }
        self.on_next(peer, payload);
    }
}
