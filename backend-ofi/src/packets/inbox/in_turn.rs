//! The fast path of a packet that arrives as most do: whole, in its turn, while no other waits.
//!
//! Every other packet is left to the general path ([`Inbox::arrived`], [`Inbox::deliver`]), which
//! checks everything again: nothing is recorded here before it is certain that the packet can be
//! delivered.

use std::collections::VecDeque;

use libfabric_sys::{FI_MULTI_RECV, FI_RECV, FI_REMOTE_CQ_DATA, fi_cq_tagged_entry};
use portolan_core::transport::{Payload, Sink};

use super::Inbox;
use crate::packets::headerless;
use crate::packets::wire::Wire;
use crate::peer::{Peers, TELL};

/// What a rank knows about its job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) job: u32,
    pub(crate) rank: u32,
}

impl Inbox {
    /// Delivers the packet of a completed receive, if it fits the fast path. Returns whether it
    /// does.
    #[inline]
    pub(crate) fn deliver_in_turn<S: Sink>(
        &mut self,
        (index, entry): (usize, &fi_cq_tagged_entry),
        own: Own,
        peers: &mut Peers,
        to_tell: &mut VecDeque<u32>,
        sink: &mut S,
    ) -> bool {
        let one_of_many = entry.flags & (FI_RECV | FI_MULTI_RECV) == FI_RECV;
        let waits = !self.held.is_empty() || !self.parts.is_empty();
        if !self.multi || !one_of_many || waits || !self.spares.is_empty() {
            return false;
        }
        let start = self.slab.part(index) as usize;
        let place = entry.buf.cast_const().cast::<u8>();
        let inside = (place as usize)
            .checked_sub(start)
            .is_some_and(|offset| offset + entry.len <= self.slab.part_len());
        let is_bare = entry.flags & FI_REMOTE_CQ_DATA != 0;
        if !inside || self.buffers[index].over || !is_bare && entry.len < Wire::LEN {
            return false;
        }
        let (mut wire, front) = match is_bare {
            true => (headerless::wire(entry.data), 0),
            // SAFETY: as many bytes have arrived there.
            false => (unsafe { Wire::read(place) }, Wire::LEN),
        };
        let Some(peer) = peers.get(wire.from as usize) else {
            return false; // Or `from` is marked: a control packet, or a part.
        };
        if is_bare {
            headerless::complete(&mut wire, own.job, peer);
        }
        let (from, len) = (wire.from, entry.len - front);
        // The first packet of a pair goes the general path, which notes that the network joins the
        // two ranks.
        let in_turn = wire.seq == peer.expected && wire.seq != 0;
        if wire.job != own.job || from == own.rank || !in_turn || !sink.accepts(from) {
            return false;
        }
        if is_bare {
            match peers.came_with(from) {
                Some(header) => wire.header = *header,
                None => return false,
            }
        }
        let peer = &mut peers[from as usize];
        if !peer.acknowledged(wire.ack) {
            return false;
        }
        peer.expected = peer.expected.wrapping_add(1);
        if peer.expected.wrapping_sub(peer.told) == TELL {
            to_tell.push_back(from);
        }
        if !is_bare && len >= headerless::LEAST {
            peers.has_come_with(from, &wire.header);
        }
        let buffer = &mut self.buffers[index];
        buffer.bytes += entry.len as u32;
        let end = place as usize - start + entry.len;
        buffer.reach = buffer.reach.max(end as u32);
        // SAFETY: the bytes lie in a buffer that the provider fills further on, and that is not
        // posted again before the provider has released it.
        let payload = unsafe { Payload::new(place.add(front), len) };
        sink.packet(from, &wire.header, payload);
        true
    }
}
