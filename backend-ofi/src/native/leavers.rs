//! Ranks that have left in good order: the operations that wait for them end.
//!
//! The engine finds out who has left ([`Beside`]), in waits that may take long. Probes
//! that wait ask as well. The engine asks the endpoint ([`Ofi::has_left`](crate::ofi::Ofi)) until
//! everything that the rank had sent has arrived. Then no message that a receive here waits for can
//! come any more, and no report that a message from here was matched.
//!
//! Of ranks of its own node a rank knows that by the clock, and by the provider's descriptor, which
//! tells that there is nothing to read. Ranks of other nodes say how many packets they have sent,
//! so each of them sends a packet behind its last message.

use std::sync::Arc;
use std::time::Instant;

use libfabric_sys::FI_ADDR_NOTAVAIL;
use portolan_core::Request;
use portolan_core::device::HandlerId;
use portolan_core::engine::Beside;
use portolan_core::transport::packet::flags;
use portolan_core::transport::{Header, PacketKind, Sent, Transport};

use super::packets::{Core, Shared};
use super::slots::{Slot, What};
use super::tags::Tags;
use crate::ofi::{FAREWELL, Nobody, Ofi};
use crate::shared::Contacts;

/// Handler of the last packets, which say nothing.
pub(super) const LAST: HandlerId = HandlerId(u32::MAX - 3);

/// Tells the engine of the operations that the provider matches.
pub(super) struct Matching(pub(super) Arc<Shared>);

impl Beside for Matching {
    fn needed(&self, request: Option<Request>) -> Vec<u32> {
        self.0.lock().tags.needed(request)
    }

    fn has_left(&self, peer: u32) {
        let Core { ofi, tags } = &mut *self.0.lock();
        tags.fail_leaver(ofi, peer);
    }
}

impl Tags {
    /// The ranks that operations wait for: that of this request, or all, if it is of none.
    fn needed(&self, request: Option<Request>) -> Vec<u32> {
        let number = request.and_then(|request| self.numbers.get(&request.to_bits()));
        let (skip, take) = number.map_or((0, usize::MAX), |&number| (number as usize, 1));
        let slots = self.slots.iter().skip(skip).take(take);
        slots.filter_map(|slot| self.needed_by(slot)).collect()
    }

    /// The rank that an operation waits for, if it is exactly one.
    fn needed_by(&self, slot: &Slot) -> Option<u32> {
        match &slot.what {
            What::Send(send) => Some(send.peer),
            What::Receive(receive) => {
                let from = receive.from;
                self.contexts.process(from.context, from.source?)
            }
            What::Free | What::Look(_) | What::Taken(_) | What::Lost(_) => None,
        }
    }

    /// Ends what waits for a rank that has left, and from which nothing comes any more.
    fn fail_leaver(&mut self, ofi: &mut Ofi, peer: u32) {
        if self.contexts.is_dead(peer) {
            return;
        }
        self.contexts.left(peer);
        self.end_what_needs(ofi, peer);
        // The look under way may have missed the last message.
        self.takings += 1;
    }

    /// The process that has left (or died) because of which a receive has to end that has waited in
    /// the device.
    pub(super) fn doom_of_unposted(&mut self, number: u32) -> Option<u32> {
        let What::Receive(receive) = &self.slots.at(number).what else {
            return None;
        };
        let from = receive.from;
        // Receives from any source were told, except of collective operations, which all end.
        if from.source.is_none() && self.contexts.dead_in(from.context).is_none() {
            return None;
        }
        self.contexts.doom(&from)
    }
}

impl Core {
    /// Sends a packet behind all messages to each rank of another node. That rank knows how many
    /// packets have been sent to it, but not how many messages. The provider keeps both in order,
    /// so when the packet has arrived, all messages have; and so have the provider's own answers to
    /// messages that this rank has received, which complete long sends there.
    pub(super) fn send_last_packets(&mut self, start: Instant) {
        let ofi = &mut self.ofi;
        let header = Header {
            kind: PacketKind::Active as u8,
            flags: flags::REPLY,
            context: LAST.0,
            ..Header::default()
        };
        for peer in 0..ofi.size {
            let sent = ofi.peers[peer as usize].addr != FI_ADDR_NOTAVAIL;
            let heard = ofi.shared.contacts.with(peer) & Contacts::ARRIVED != 0;
            if ofi.is_near(peer) || !(sent || heard) {
                continue; // Nothing of this rank is on its way there.
            }
            // SAFETY: another rank of the job; no bytes are read.
            while unsafe { ofi.send_short(peer, &header, std::ptr::null(), 0) } == Sent::Full {
                if start.elapsed() > FAREWELL {
                    // It counts all the same: that rank is not to think that all is there.
                    let sent = &mut ofi.peers[peer as usize].sent;
                    *sent = sent.wrapping_add(1);
                    break;
                }
                ofi.poll(&mut Nobody);
            }
        }
    }
}
