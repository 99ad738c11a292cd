//! Messages on offer for which a receive is in hand: their receiver pulls them at once.
//!
//! ```text
//! sender                       receiver
//!   Offer ───────────────────▶ match, pull into the buffer of the receive in hand
//!   complete ◀──────────────── Done
//! ```
//!
//! These are offers like others ([`rendezvous`](crate::engine::long::rendezvous)), of messages for
//! which one pull is known to be the way. Such a receive never becomes a request, and its sender
//! hears of the end before anything else is done: each of its steps delays the program's answer.

use crate::engine::long::shared::is_in_halves;
use crate::engine::long::transfer::{SPLIT, TURN};
use crate::engine::long::ways::Way;
use crate::engine::short::outgoing::Peer;
use crate::engine::short::unexpected::{OfferBody, envelope};
use crate::engine::state::State;
use crate::transport::packet::flags;
use crate::transport::{
    Exposure, Header, PacketKind, Pulled, Pulls, Sent, Transport, TransportCaps,
};

/// How a message is pulled into the receive in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pull {
    /// It is loaded from where it is ([`shared`](crate::engine::long::shared)).
    Loaded,
    /// Nothing is measured, so it is pulled.
    Given,
    /// Measurements ([`ways`](crate::engine::long::ways)) have found this way, and are told of it.
    /// `both`: this rank's own messages are being taken as well.
    Found { both: bool },
}

impl<T: Transport> State<T> {
    /// Pulls the message of an offer straight into the receive in hand, if that is where it goes
    /// and one pull is the way. The offer must be one that nobody can cancel: then no word is to be
    /// taken first.
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
        let Some(pull) = self.pull_for_hand(peer, header, exposure, target, len) else {
            return false;
        };
        if pull != Pull::Loaded {
            self.proto.unasked.comes(peer);
            self.proto.has_pulled = true;
        }
        if let Pull::Found { both } = pull {
            let way = self.proto.ways.begin(peer, len, both, u32::MAX, |_| true);
            debug_assert_eq!(way, Some(Way::Pull), "it has just been said so");
        }
        // SAFETY: the receiving thread keeps the buffer until its call returns, and the message
        // fits.
        let pulled = unsafe { self.transport.pull(peer, exposure, 0, target, len) };
        if let Pull::Found { .. } = pull {
            self.proto.begins.extend(self.proto.ways.end(peer));
        }
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

    /// Whether one pull is the way of a message for the receive in hand.
    #[inline]
    fn pull_for_hand(
        &self,
        peer: u32,
        header: &Header,
        exposure: &Exposure,
        target: *mut u8,
        len: usize,
    ) -> Option<Pull> {
        let waited = header.flags & flags::WAITED != 0;
        match self.transport.pulls(peer, exposure, len, true) {
            Pulls::Whole => Some(Pull::Loaded),
            Pulls::Shared => (!is_in_halves(&self.transport, target, len)).then_some(Pull::Loaded),
            // Of a sender that may not be in a call, the usual path finds out whether it is.
            _ if !waited || self.proto.has_pulled || !self.proto.pulls.is_empty() => None,
            Pulls::Always => (len < SPLIT).then_some(Pull::Given),
            Pulls::Measured => {
                let both = self.proto.exposed > 0;
                let pulls = self.proto.ways.go_on_pulling(peer, len, both);
                pulls.then_some(Pull::Found { both })
            }
            _ => None,
        }
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
