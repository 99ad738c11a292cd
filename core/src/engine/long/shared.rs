//! Messages from memory that peers load themselves: announced, and copied once.
//!
//! ```text
//! sender                       receiver
//!   Offer ───────────────────▶ match, copy from the sender's memory into the receive's
//!   complete ◀──────────────── Done
//! ```
//!
//! They are offers like others ([`rendezvous`](crate::engine::long::rendezvous)), but there is
//! nothing to choose: a single copy by load and store is the fastest way, whether the sender is in
//! a call or not. So they are announced where others would be copied into the transport's memory,
//! and [`ways`](crate::engine::long::ways) and [`unasked`](crate::engine::long::unasked) learn from
//! them neither what a way costs nor which way a peer prefers. There they count only as traffic in
//! their direction, because other messages that go the opposite way compete with them for memory:
//! as messages on offer and as bytes given at their sender, and as long messages that have come at
//! their receiver (other than those that a receive in hand has copied).

use portolan_datatype::MsgRep;

use crate::buffer::ContigBuf;
use crate::engine::data::Data;
use crate::engine::long::pieces::Lengths;
use crate::engine::long::transfer::TURN;
use crate::engine::short::outgoing::Peer;
use crate::engine::short::unexpected::{OfferBody, envelope};
use crate::engine::state::State;
use crate::transport::{Header, PacketKind, Pulled, Pulls, Sent, Transport, TransportCaps};

/// Longest message of a blocking call that leaves at once even from such memory, because two copies
/// take less time than an answer. Of other messages those that are short enough to be sent eagerly
/// do: several answers of a window would have to wait for each other.
pub(in crate::engine) const AT_ONCE: usize = 4 << 10;

/// Shortest message of which the sender copies a half, if it is in a call and the receive's buffer
/// is such memory, too.
pub(in crate::engine) const HALVES: usize = 256 << 10;

impl Lengths {
    /// Whether a message is only announced, because its receiver copies it from where it is.
    /// `waited`: a blocking call sends it.
    #[inline]
    pub(in crate::engine) fn is_shared(
        &self,
        transport: &impl Transport,
        data: &Data,
        rep: MsgRep,
        waited: bool,
    ) -> bool {
        let at_once = if waited { self.at_once } else { self.eager };
        data.len() > at_once
            && (rep == MsgRep::Native || matches!(data, Data::Contig(_)))
            && data
                .contiguous()
                .is_some_and(|(start, len)| transport.shares(start, len))
    }
}

impl<T: Transport> State<T> {
    /// Whether a blocking call sends a message in one packet, whoever the receiver is.
    #[inline(always)]
    pub(in crate::engine) fn leaves_whole(&self, buf: &ContigBuf) -> bool {
        let lengths = &self.proto.lengths;
        buf.len <= lengths.at_once
            || buf.len <= lengths.whole && !self.transport.shares(buf.ptr, buf.len)
    }

    /// Copies the message of an offer straight to the receive in hand, if that is where it goes and
    /// a single copy is the way. The offer must be one that nobody can cancel: then no word is to
    /// be taken first.
    #[inline]
    pub(in crate::engine) fn pull_in_hand(
        &mut self,
        peer: u32,
        header: &Header,
        body: &OfferBody,
    ) -> bool {
        let (None, Some(exposure)) = (body.word, &body.exposure) else {
            return false;
        };
        let proto = &self.proto;
        // Longer messages move in turns.
        if body.total > TURN as u64
            || proto.trouble
            || proto.caps.contains(TransportCaps::PULL_FAR)
            || proto.posted.peek_arrival(&envelope(header)).is_some()
        {
            return false;
        }
        let len = body.total as usize;
        let Some(target) = proto.room_in_hand(header, len) else {
            return false;
        };
        let whole = match self.transport.pulls(peer, exposure, len, true) {
            Pulls::Whole => true,
            Pulls::Shared => !is_in_halves(&self.transport, target, len),
            _ => false,
        };
        if !whole {
            return false;
        }
        // SAFETY: the receiving thread keeps the buffer until its call returns, and the message
        // fits.
        let pulled = unsafe { self.transport.pull(peer, exposure, 0, target, len) };
        if pulled != Pulled::Done {
            return false; // It goes the usual way, which finds out why.
        }
        self.proto.arrived_in_hand(header, len);
        let counters = &mut self.proto.counters;
        counters.rendezvous_received += 1;
        counters.bytes_received += len as u64;
        counters.bytes_pulled += len as u64;
        self.say_done(peer, header.cookie);
        true
    }

    /// Tells a sender at once that its message has been copied.
    fn say_done(&mut self, peer: u32, cookie: u32) {
        let header = Header {
            kind: PacketKind::Done as u8,
            cookie,
            ..Header::default()
        };
        let free = self.proto.peers[peer as usize].flags & Peer::WAITING == 0;
        if !free || self.hand_over(peer, &header, &[]) == Sent::Full {
            self.proto.queue_control(peer, header, &[]);
        }
    }
}

/// Whether the sender of a message in such memory, which is in a call, copies a half of it to
/// `target`.
pub(in crate::engine) fn is_in_halves(
    transport: &impl Transport,
    target: *const u8,
    len: usize,
) -> bool {
    len >= HALVES && transport.shares(target, len)
}
