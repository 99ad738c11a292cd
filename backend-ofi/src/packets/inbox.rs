//! Receive buffers, and the packets that lie in them until they are delivered.
//!
//! A buffer takes many messages where the provider supports that, and one otherwise. It is posted
//! again when the provider has released it and the last message in it has been delivered. A packet
//! waits here if an earlier one from the same peer has not arrived yet, or if the engine does not
//! accept it now. If waiting packets keep the provider from its last buffer, they are copied out.
//! If messages that are still landing keep it from all of them, because their senders compute,
//! other buffers take their place after a while.

mod in_turn;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use libfabric_sys::{
    FI_ADDR_UNSPEC, FI_MULTI_RECV, FI_RECV, fi_cq_tagged_entry, fi_msg, fi_recv, fi_recvmsg, fid_ep,
};
use portolan_core::transport::{Payload, Sink};

use crate::caps;
use crate::config::Config;
use crate::endpoint::Domain;
use crate::endpoint::objects::Fid;
use crate::endpoint::op::{Kind, Ops};
use crate::endpoint::slab::Slab;
use crate::packets::arrival::Arrival;
use crate::packets::headerless;
use crate::packets::parts::Parts;
use crate::packets::wire::Wire;
use crate::peer::{Peers, TELL, WINDOW};

pub(crate) use in_turn::Own;

/// First key for the regions of buffers that are added later, for providers that do not choose keys
/// themselves.
const SPARES: u64 = 1 << 62;

/// How long all buffers may be filled by messages that are still landing, before other buffers take
/// their place.
const PATIENCE: Duration = Duration::from_millis(250);

/// The receive buffers, and the packets in them.
#[derive(Debug)]
pub(crate) struct Inbox {
    ops: Ops,
    slab: Slab,
    multi: bool,
    hasty: bool,
    buffers: Vec<Buffer>,
    /// Buffers to post.
    unposted: Vec<u32>,
    /// Buffers that the provider may put messages into.
    open: usize,
    /// Since when no buffer is open, and none is there to post.
    shut_since: Option<Instant>,
    /// Whether a connection has ever broken.
    broken: bool,
    /// Buffers that replace those which may never be complete again.
    spares: Vec<Spare>,
    /// Packets that have arrived and not been delivered, in the order of arrival.
    held: VecDeque<Arrival>,
    /// Packets in parts, some of which have not arrived yet.
    parts: Parts,
    /// A peer that has sent something that no correct peer sends, and what that was.
    liar: Option<(u32, &'static str)>,
}

/// A buffer that was added later. Its number follows those of the others.
#[derive(Debug)]
struct Spare {
    ops: Ops,
    slab: Slab,
}

#[derive(Clone, Copy, Debug, Default)]
struct Buffer {
    /// Messages in it that have not been delivered.
    unread: u32,
    /// The provider says that it has released it.
    over: bool,
    /// Total bytes of the messages that have completed in it, and where the last of them ends.
    bytes: u32,
    reach: u32,
    /// A message in it may have been cut off: nothing will tell when the buffer may be used again.
    doubtful: bool,
}

/// Provider layers that release a buffer once they have found a place for its last message,
/// although earlier messages may still be landing in it (seen with libfabric 1.17: each connection
/// of the TCP provider writes at its own pace). They leave no space between messages, so the buffer
/// is complete when the messages that have completed fill it up to the end of the last one.
const HASTY: &[&str] = &["tcp", "net", "ofi_rxm"];

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Delivered,
    Held,
}

impl Inbox {
    /// Makes buffers for messages of at most `largest` bytes, and for packets of at most `bulk`,
    /// which may take several messages. None is posted yet.
    pub(crate) fn new(
        domain: &Domain,
        config: &Config,
        largest: usize,
        bulk: usize,
    ) -> Result<Self, String> {
        let (count, bytes) = caps::buffers(config, &domain.info, largest);
        Ok(Self {
            ops: Ops::new(Kind::Receive, count),
            slab: Slab::new(domain, count, bytes, Kind::Receive as u64)?,
            multi: domain.multi,
            hasty: domain.multi
                && domain
                    .info
                    .provider()
                    .split(';')
                    .any(|layer| HASTY.contains(&layer)),
            buffers: vec![Buffer::default(); count],
            open: 0,
            shut_since: None,
            broken: false,
            spares: Vec::new(),
            unposted: (0..count as u32).collect(),
            held: VecDeque::with_capacity(256),
            parts: Parts::new(bulk),
            liar: None,
        })
    }

    /// Bytes of the buffers.
    pub(crate) fn memory(&self) -> usize {
        let spares = self.spares.iter().map(|spare| spare.slab.len());
        self.slab.len() + spares.sum::<usize>()
    }

    /// Ends the registrations of the buffers.
    pub(crate) fn unregister(&mut self) {
        self.slab.unregister();
        for spare in &mut self.spares {
            spare.slab.unregister();
        }
    }

    /// The operations and the slab of a buffer, and its index there.
    fn locate(&self, index: usize) -> (&Ops, &Slab, usize) {
        let first = self.buffers.len() - self.spares.len();
        match index.checked_sub(first) {
            None => (&self.ops, &self.slab, index),
            Some(spare) => (&self.spares[spare].ops, &self.spares[spare].slab, 0),
        }
    }

    /// Posts buffers. Returns whether any are left to post.
    pub(crate) fn post(&mut self, ep: &Fid<fid_ep>) -> Result<bool, isize> {
        while let Some(&index) = self.unposted.last() {
            let (ops, slab, part) = self.locate(index as usize);
            let context = ops.context(part);
            let (place, len) = (slab.part(part), slab.part_len());
            let mut desc = slab.desc();
            // SAFETY: an open endpoint; memory that is there until it is closed, and that nothing
            // else uses until the provider releases it.
            let result = unsafe {
                if self.multi {
                    let iov = libc::iovec {
                        iov_base: place.cast(),
                        iov_len: len,
                    };
                    let msg = fi_msg {
                        msg_iov: &raw const iov,
                        desc: &raw mut desc,
                        iov_count: 1,
                        addr: FI_ADDR_UNSPEC,
                        context,
                        data: 0,
                    };
                    fi_recvmsg(ep.get(), &raw const msg, FI_MULTI_RECV)
                } else {
                    fi_recv(ep.get(), place.cast(), len, desc, FI_ADDR_UNSPEC, context)
                }
            };
            if result == -(libfabric_sys::FI_EAGAIN as isize) {
                return Ok(true);
            }
            if result != 0 {
                return Err(result);
            }
            self.buffers[index as usize] = Buffer::default();
            self.open += 1;
            self.shut_since = None;
            self.unposted.pop();
        }
        Ok(false)
    }

    /// Whether buffers wait to be posted.
    pub(crate) fn has_unposted(&self) -> bool {
        !self.unposted.is_empty()
    }

    /// Handles a completed receive. Returns the packet, unless there is none or it cannot be one of
    /// this crate's.
    pub(crate) fn arrived(&mut self, index: usize, entry: &fi_cq_tagged_entry) -> Option<Arrival> {
        if !self.multi || entry.flags & FI_MULTI_RECV != 0 {
            self.close(index);
        }
        let (_, slab, part) = self.locate(index);
        let (start, room) = (slab.part(part).cast_const(), slab.part_len());
        let place = if self.multi {
            entry.buf.cast_const().cast()
        } else {
            start
        };
        let inside = (place as usize).checked_sub(start as usize);
        let inside = inside.filter(|offset| offset + entry.len <= room);
        let Some(offset) = inside.filter(|_| entry.flags & FI_RECV != 0) else {
            // The buffer was released without a message.
            self.reuse(index);
            return None;
        };
        // Whatever the message is, it has landed.
        let buffer = &mut self.buffers[index];
        buffer.bytes += entry.len as u32;
        buffer.reach = buffer.reach.max((offset + entry.len) as u32);
        if entry.len < Arrival::least(entry) {
            // Too short for a packet of this crate.
            self.reuse(index);
            return None;
        }
        buffer.unread += 1;
        // SAFETY: as many bytes have arrived there, inside the buffer, as was just checked. Nothing
        // writes there any more: the provider has finished, and peers have no access.
        Some(unsafe { Arrival::new(entry, place, index as u32) })
    }

    /// Handles a failed receive.
    pub(crate) fn failed(&mut self, index: usize, flags: u64) {
        if !self.multi || flags & FI_MULTI_RECV != 0 {
            self.close(index);
            self.reuse(index);
        }
        self.broken = true;
    }

    /// Notes that the provider has released a buffer.
    fn close(&mut self, index: usize) {
        if !std::mem::replace(&mut self.buffers[index].over, true) {
            self.open -= 1;
        }
    }

    /// Notes that a connection may have broken in the middle of a message.
    pub(crate) fn broke(&mut self) {
        self.broken = true;
    }

    /// Whether the provider soon has no room for messages, and something can be done about it.
    #[inline]
    pub(crate) fn is_low(&self) -> bool {
        let may_help = || self.broken || !self.held.is_empty() || !self.parts.is_empty();
        self.open < 2 && (may_help() || self.is_shut())
    }

    /// Whether the provider has no buffer, and gets none before a message has landed.
    pub(crate) fn is_shut(&self) -> bool {
        self.open == 0 && self.unposted.is_empty()
    }

    /// Takes the peer that has sent something no correct peer sends, and what that was, if there is
    /// one.
    #[inline]
    pub(crate) fn liar(&mut self) -> Option<(u32, &'static str)> {
        self.liar.take()
    }

    /// Makes room for messages.
    #[cold]
    pub(crate) fn relieve(&mut self, domain: &Domain) -> Result<(), String> {
        self.copy_held();
        let since = match self.is_shut() {
            true => Some(*self.shut_since.get_or_insert_with(Instant::now)),
            false => None,
        };
        if self.broken || since.is_some_and(|since| since.elapsed() >= PATIENCE) {
            self.replace(domain)?;
        }
        Ok(())
    }

    /// Replaces buffers that wait for the rest of a message, which may never come once a connection
    /// has broken, and may take long if the sender computes. Nothing tells whether the provider
    /// still writes there, so other buffers take their place.
    fn replace(&mut self, domain: &Domain) -> Result<(), String> {
        for buffer in &mut self.buffers {
            buffer.doubtful |= self.hasty && buffer.over && buffer.bytes < buffer.reach;
        }
        let good = |buffers: &[Buffer]| buffers.iter().filter(|buffer| !buffer.doubtful).count();
        let count = self.buffers.len() - self.spares.len();
        while good(&self.buffers) < count {
            let number = self.buffers.len();
            let key = SPARES + self.spares.len() as u64;
            self.spares.push(Spare {
                ops: Ops::one(Kind::Receive, number),
                slab: Slab::new(domain, 1, self.slab.part_len(), key)?,
            });
            self.buffers.push(Buffer::default());
            self.unposted.push(number as u32);
        }
        Ok(())
    }

    /// Copies held packets out of the buffers. The peers' windows bound how much that is.
    fn copy_held(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        let mut parts = std::mem::take(self.parts.open());
        for arrival in held.iter_mut().chain(&mut parts) {
            if let Some(buffer) = arrival.lies_in() {
                arrival.own(0);
                self.unread(buffer as usize);
            }
        }
        self.held = held;
        *self.parts.open() = parts;
    }

    /// Delivers a packet, or holds it if its turn has not come. Adds the sender to `to_tell` if it
    /// is to hear of the delivery.
    pub(crate) fn deliver<S: Sink>(
        &mut self,
        mut arrival: Arrival,
        peers: &mut Peers,
        to_tell: &mut VecDeque<u32>,
        sink: &mut S,
    ) -> Fate {
        let from = arrival.wire.from;
        let peer = &mut peers[from as usize];
        if peer.expected.wrapping_sub(arrival.wire.seq).wrapping_sub(1) < WINDOW {
            // A duplicate.
            self.read(&arrival);
            return Fate::Delivered;
        }
        if arrival.wire.seq != peer.expected || !sink.accepts(from) {
            self.held.push_back(arrival);
            return Fate::Held;
        }
        peer.expected = peer.expected.wrapping_add(1);
        if peer.expected.wrapping_sub(peer.told) == TELL {
            to_tell.push_back(from);
        }
        if arrival.form.bare {
            let Some(header) = peers.came_with(from) else {
                self.liar = Some((from, "a packet without a header, and none before it"));
                self.read(&arrival);
                return Fate::Delivered;
            };
            arrival.wire.header = *header;
        }
        if self.parts.concern(&arrival) {
            self.join(arrival, peers, sink);
        } else {
            if !arrival.form.bare && arrival.len as usize >= headerless::LEAST {
                peers.has_come_with(from, &arrival.wire.header);
            }
            self.hand_up(&arrival, sink);
        }
        Fate::Delivered
    }

    /// Takes a part of a packet, and delivers the packet once it is complete.
    fn join<S: Sink>(&mut self, part: Arrival, peers: &mut Peers, sink: &mut S) {
        let from = part.wire.from;
        let joined = self.parts.join(part);
        for buffer in joined.spent.into_iter().flatten() {
            self.unread(buffer as usize);
        }
        if joined.too_long {
            self.liar = Some((from, "a packet in parts that is longer than any"));
        }
        if let Some(whole) = joined.whole {
            peers.has_come_with(from, &whole.wire.header);
            self.hand_up(&whole, sink);
        }
    }

    /// Delivers the held packets that may be delivered now. Returns how many.
    pub(crate) fn deliver_held<S: Sink>(
        &mut self,
        peers: &mut Peers,
        to_tell: &mut VecDeque<u32>,
        sink: &mut S,
    ) -> usize {
        let mut delivered = 0;
        let mut again = true;
        // A packet may be the one that another, which arrived before it, waits for.
        while again && !self.held.is_empty() {
            again = false;
            for _ in 0..self.held.len() {
                let Some(arrival) = self.held.pop_front() else {
                    break;
                };
                if self.deliver(arrival, peers, to_tell, sink) == Fate::Delivered {
                    delivered += 1;
                    again = true;
                }
            }
        }
        delivered
    }

    /// Whether this packet is held.
    pub(crate) fn holds(&self, (from, number): (u32, u32)) -> bool {
        let it = |held: &Arrival| (held.wire.from, held.wire.seq) == (from, number);
        self.held.iter().any(it)
    }

    /// Whether packets are held.
    pub(crate) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// A missing packet, which has not arrived although a later one has: its sender and number.
    pub(crate) fn missing(&self, peers: &Peers) -> Option<(u32, u32)> {
        let behind = |arrival: &&Arrival| {
            let Wire { from, seq, .. } = arrival.wire;
            let expected = peers[from as usize].expected;
            let it = |other: &Arrival| other.wire.from == from && other.wire.seq == expected;
            seq != expected && !self.held.iter().any(it)
        };
        let from = self.held.iter().find(behind)?.wire.from;
        Some((from, peers[from as usize].expected))
    }

    /// Whether no packet is held, and none waits for its other parts.
    #[cfg(test)]
    pub(crate) fn all_whole(&mut self) -> bool {
        self.held.is_empty() && self.parts.is_empty()
    }

    /// Discards packets of dead peers.
    pub(crate) fn forget(&mut self, dead: impl Fn(u32) -> bool) {
        let parts = std::mem::take(self.parts.open());
        let (gone, open) = parts.into_iter().partition(|part| dead(part.wire.from));
        *self.parts.open() = open;
        self.held.extend::<Vec<_>>(gone);
        for _ in 0..self.held.len() {
            if let Some(arrival) = self.held.pop_front() {
                if dead(arrival.wire.from) {
                    self.read(&arrival);
                } else {
                    self.held.push_back(arrival);
                }
            }
        }
    }

    fn hand_up<S: Sink>(&mut self, arrival: &Arrival, sink: &mut S) {
        let len = arrival.len as usize;
        // SAFETY: the bytes lie in a buffer that is not posted again before `read`, or in the copy.
        let payload = unsafe { Payload::new(arrival.data, len) };
        sink.packet(arrival.wire.from, &arrival.wire.header, payload);
        self.read(arrival);
    }

    /// Notes that a packet is not needed any more.
    pub(crate) fn read(&mut self, arrival: &Arrival) {
        if let Some(buffer) = arrival.lies_in() {
            self.unread(buffer as usize);
        }
    }

    /// Notes that one message less lies in a buffer.
    fn unread(&mut self, index: usize) {
        self.buffers[index].unread -= 1;
        self.reuse(index);
    }

    fn reuse(&mut self, index: usize) {
        let buffer = &mut self.buffers[index];
        let landing = self.hasty && buffer.bytes < buffer.reach;
        if buffer.over && buffer.unread == 0 && !landing {
            buffer.over = false;
            buffer.doubtful = false;
            self.unposted.push(index as u32);
        }
    }
}

#[cfg(test)]
mod tests;
