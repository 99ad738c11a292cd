//! What is waiting to leave: packets that the transport had no room for, and streams of long
//! messages.

use std::collections::VecDeque;

use portolan_datatype::MsgRep;

use crate::device::SendMode;
use crate::engine::entry::{Op, Queued, SendStage};
use crate::engine::long::flows::fault;
use crate::engine::long::loader::Loader;
use crate::engine::long::pieces::Form;
use crate::engine::one_sided::step;
use crate::engine::short::bundle::Bundled;
use crate::engine::state::{Proto, State};
use crate::transport::packet::flags;
use crate::transport::{Header, PacketKind, Sent, Transport};

/// What the engine knows of a peer. Small, because there is one per rank of the job.
#[derive(Debug, Default)]
pub(in crate::engine) struct Peer {
    /// Zero if messages to the peer leave straight away.
    pub(in crate::engine) flags: u8,
    /// Short nonblocking sends to it since this rank's last progress step, and this rank's poll
    /// count at that time: see [`crate::engine::short::bundle`].
    pub(in crate::engine) burst: u8,
    pub(in crate::engine) polls: u32,
    pub(in crate::engine) out: Option<Box<Outgoing>>,
}

impl Peer {
    /// Packets are waiting, for room or for the next progress step.
    pub(in crate::engine) const WAITING: u8 = 1;
    /// The peer has no memory for unexpected messages: every message must be announced.
    pub(in crate::engine) const HOLD: u8 = 2;
    /// The peer is dead, or has left while something was still wanted of it.
    pub(in crate::engine) const FAILED: u8 = 4;
    /// This rank has ended its use of the device.
    pub(in crate::engine) const ENDED: u8 = 8;
    /// With `FAILED`: the peer has left in good order.
    pub(in crate::engine) const LEFT: u8 = 16;
}

/// The queues of a peer to which something is waiting to leave.
#[derive(Debug, Default)]
pub(in crate::engine) struct Outgoing {
    /// Protocol packets, active messages and one-sided operations. They may overtake tagged
    /// messages, so that a full queue of tagged messages never holds up the packets that would
    /// empty it.
    control: VecDeque<(Header, Box<[u8]>)>,
    /// Sends, in the order in which they were started.
    tagged: VecDeque<u32>,
}

impl Outgoing {
    fn is_empty(&self) -> bool {
        self.control.is_empty() && self.tagged.is_empty()
    }
}

/// The data of a long message (or of a one-sided get) on its way out.
#[derive(Debug)]
pub(in crate::engine) struct Stream {
    pub(in crate::engine) peer: u32,
    pub(in crate::engine) header: Header,
    pub(in crate::engine) source: StreamSource,
    /// Bytes per piece.
    pub(in crate::engine) piece: usize,
    pub(in crate::engine) position: usize,
    pub(in crate::engine) end: usize,
    /// Copies the bytes from accelerator memory, if that is where they are.
    pub(in crate::engine) loader: Option<Box<Loader>>,
}

/// Where a stream's bytes come from.
#[derive(Debug)]
pub(in crate::engine) enum StreamSource {
    /// The buffer of this send.
    Send(u32),
    /// This region's bytes, beginning at `offset`.
    Region { region: u32, offset: usize },
}

/// Pieces of one stream that are handed over before it is the next stream's turn.
const TURN: usize = 8;

/// Streams from one accelerator to one peer that advance at a time. Each has three chunks, and
/// another can fetch while the first one's last bytes leave. If more of them shared a rank's
/// chunks, most would have none, and go without the overlap for which the chunks exist. (Those from
/// another accelerator do not wait: its copies do not wait for this one's work.)
const LOADED: usize = 2;

/// Queued sends to one peer that may leave in one progress step. If the peer takes them as fast as
/// they leave, the transport is never full. Without a limit this rank would then not hear that it
/// should hold before all of them had left.
const SENDS: usize = 64;

impl Proto {
    /// Queues a protocol packet; it leaves at the end of this progress step, or once there is room.
    pub(in crate::engine) fn queue_control(&mut self, peer: u32, header: Header, payload: &[u8]) {
        let state = &mut self.peers[peer as usize];
        if state.flags & Peer::FAILED != 0 {
            return;
        }
        let out = state.out.get_or_insert_default();
        out.control.push_back((header, payload.into()));
        self.mark_waiting(peer);
    }

    /// Queues a send behind the others to its peer.
    #[inline]
    pub(in crate::engine) fn queue_send(&mut self, peer: u32, index: u32) {
        let state = &mut self.peers[peer as usize];
        let out = state.out.get_or_insert_default();
        out.tagged.push_back(index);
        if state.flags & Peer::WAITING == 0 {
            self.mark_waiting(peer);
            self.leave_work();
        }
    }

    fn mark_waiting(&mut self, peer: u32) {
        self.work = true;
        let state = &mut self.peers[peer as usize];
        if state.flags & Peer::WAITING == 0 {
            state.flags |= Peer::WAITING;
            self.waiting_peers.push(peer);
        }
    }

    /// Whether nothing waits for a peer any more; if so, clears its flag.
    fn is_flushed(&mut self, peer: u32) -> bool {
        let state = &mut self.peers[peer as usize];
        let flushed = state.out.as_ref().is_none_or(|out| out.is_empty());
        if flushed {
            // The queues' memory is kept while the peer is in use; it is small.
            state.flags &= !Peer::WAITING;
        }
        flushed
    }

    /// Removes a queued send that was cancelled from its queue. `false` if it is not queued.
    pub(in crate::engine) fn unqueue_send(&mut self, peer: u32, index: u32) -> bool {
        let Some(out) = &mut self.peers[peer as usize].out else {
            return false;
        };
        let before = out.tagged.len();
        out.tagged.retain(|&queued| queued != index);
        out.tagged.len() != before
    }

    /// Ends a stream whose peer accepts no more packets. The answer to a get is simply over,
    /// because nobody waits for it.
    #[cold]
    pub(in crate::engine) fn breaks_off(&mut self, stream: &mut Stream) {
        match stream.source {
            StreamSource::Send(_) => self.note_gone(stream.peer),
            StreamSource::Region { .. } => stream.end = stream.position,
        }
    }

    /// Forgets what waits for a peer that has died.
    pub(in crate::engine) fn clear_outgoing(&mut self, peer: u32) {
        let state = &mut self.peers[peer as usize];
        state.out = None;
        state.flags &= !Peer::WAITING;
        self.waiting_peers.retain(|&waiting| waiting != peer);
        self.streams.retain(|stream| stream.peer != peer);
        self.pushes.retain(|push| push.peer != peer);
    }
}

/// Whether this rank waits for a reply to a packet.
fn asks(header: &Header) -> bool {
    match PacketKind::from_wire(header.kind) {
        Some(PacketKind::Take) => true,
        Some(PacketKind::Active) => header.flags & flags::REPLY == 0,
        Some(PacketKind::OneSided) => {
            let asking = [step::PUT, step::GET, step::ATOMIC, step::FLUSH, step::ASK];
            is_step(header, &asking)
        }
        _ => false,
    }
}

/// Whether this is a one-sided packet of one of these steps.
fn is_step(header: &Header, steps: &[u8]) -> bool {
    header.kind == PacketKind::OneSided as u8 && steps.contains(&header.flags)
}

impl<T: Transport> State<T> {
    /// Hands over everything that is waiting and fits.
    pub(in crate::engine) fn flush_outgoing(&mut self) -> usize {
        let mut sent = 0;
        let mut at = 0;
        while at < self.proto.waiting_peers.len() {
            let peer = self.proto.waiting_peers[at];
            sent += self.flush_peer(peer);
            if self.proto.is_flushed(peer) {
                self.proto.waiting_peers.swap_remove(at);
            } else {
                at += 1;
            }
        }
        sent + self.flush_streams()
    }

    /// Hands over to one peer what is waiting for it and fits. For use between progress steps, when
    /// only answers can be waiting.
    pub(in crate::engine) fn flush_answers(&mut self, peer: u32) {
        if self.proto.peers[peer as usize].flags & Peer::WAITING == 0 {
            return;
        }
        self.flush_peer(peer);
        if self.proto.is_flushed(peer) {
            self.proto.waiting_peers.retain(|&waiting| waiting != peer);
        }
    }

    pub(in crate::engine) fn flush_peer(&mut self, peer: u32) -> usize {
        let mut sent = 0;
        // The queues are taken out, because starting a send needs the rest of the state.
        let Some(mut out) = self.proto.peers[peer as usize].out.take() else {
            return 0;
        };
        while let Some((header, payload)) = out.control.front() {
            if self.hand_over(peer, header, payload) == Sent::Full {
                break;
            }
            out.control.pop_front();
            sent += 1;
        }
        if out.control.is_empty() {
            sent += self.flush_sends(peer, &mut out.tagged);
        }
        if self.proto.peers[peer as usize].flags & Peer::FAILED != 0 {
            return sent;
        }
        let replaced = self.proto.peers[peer as usize].out.replace(out);
        debug_assert!(replaced.is_none(), "launching a send queues nothing");
        sent
    }

    /// Hands over the sends that are waiting for a peer, until there is no more room.
    fn flush_sends(&mut self, peer: u32, queue: &mut VecDeque<u32>) -> usize {
        let mut sent = 0;
        while sent < SENDS
            && let Some(&index) = queue.front()
        {
            let left = match self.launch_bundle(peer, queue, SENDS - sent) {
                Bundled::Left(count) => count,
                Bundled::Alone if self.launch(index) => 1,
                Bundled::Alone | Bundled::Full => break,
            };
            queue.drain(..left);
            sent += left;
        }
        sent
    }

    /// Hands over a packet. The caller removes it from its queue unless there is no room. If the
    /// peer is gone, the operations that wait for an answer to the packet end.
    pub(in crate::engine) fn hand_over(
        &mut self,
        peer: u32,
        header: &Header,
        payload: &[u8],
    ) -> Sent {
        let sent = if payload.len() <= self.proto.limits.short {
            // SAFETY: the payload is a live slice of at most `short` bytes; packets to this rank
            // itself never reach the queues.
            unsafe {
                self.transport
                    .send_short(peer, header, payload.as_ptr(), payload.len())
            }
        } else {
            // SAFETY: no packet is longer than `bulk` (checked where they are made), and the copy
            // writes exactly the payload's length.
            unsafe {
                self.transport
                    .send_bulk(peer, header, payload.len(), |target| {
                        std::ptr::copy_nonoverlapping(payload.as_ptr(), target, payload.len());
                    })
            }
        };
        if sent == Sent::Gone {
            self.is_lost(peer, header, payload);
        }
        sent
    }

    /// Handles a packet that can no longer be handed over. If the packet is an answer to the peer,
    /// nothing needs to be done: neither the peer nor this rank has any use for it.
    #[cold]
    fn is_lost(&mut self, peer: u32, header: &Header, payload: &[u8]) {
        if asks(header) {
            self.proto.note_gone(peer);
        } else if is_step(header, &[step::WITHDRAWN]) && self.transport.has_left(peer) {
            // The peer can no longer reach anybody's memory.
            self.proto.is_forgotten(peer, payload);
        }
    }

    /// Advances every stream, in the order in which they were requested. If one finds no room,
    /// there is hardly any for the other streams to the same peer, of which a window of messages
    /// makes many, so they are not tried.
    fn flush_streams(&mut self) -> usize {
        if self.proto.streams.is_empty() {
            return 0;
        }
        let mut streams = std::mem::take(&mut self.proto.streams);
        let (mut sent, mut at) = (0, 0);
        self.proto.full_peers.clear();
        self.proto.loaded_ways.clear();
        while let Some(stream) = streams.get_mut(at) {
            // A driver should load the next chunks meanwhile, even if there is no room.
            if let Some(loader) = &stream.loader {
                let way = (stream.peer, loader.accelerator());
                let ways = &mut self.proto.loaded_ways;
                if ways.iter().filter(|&&other| other == way).count() < LOADED {
                    ways.push(way);
                    sent += self.advance_loaded(stream, TURN);
                }
            } else if !self.proto.full_peers.contains(&stream.peer) {
                sent += self.advance(stream);
            }
            if stream.position < stream.end {
                at += 1;
                continue;
            }
            let Some(Stream { source, loader, .. }) = streams.remove(at) else {
                break;
            };
            // Copies that a driver is still making for it must be over before its send is.
            drop(loader);
            if let StreamSource::Send(index) = source {
                self.stream_finished(index);
            }
        }
        streams.append(&mut self.proto.streams);
        self.proto.streams = streams;
        sent
    }

    /// Hands over some pieces of a stream, and notes its peer as full if there is no room.
    fn advance(&mut self, stream: &mut Stream) -> usize {
        let mut sent = 0;
        while stream.position < stream.end && sent < TURN {
            let len = (stream.end - stream.position).min(stream.piece);
            let Proto { table, regions, .. } = &mut self.proto;
            let position = stream.position;
            let fill = |target: *mut u8| match stream.source {
                StreamSource::Send(index) => {
                    if let Some(op) = table.send(index) {
                        // SAFETY: the sender leaves the buffer to the device until the request
                        // completes, which happens after the stream's end; `end` is at most the
                        // buffer's length.
                        unsafe { op.data.read(position, target, len, op.args.rep) };
                    }
                }
                StreamSource::Region { region, offset } => {
                    regions.read(region, offset + position, target, len);
                }
            };
            // SAFETY: `len` is at most `piece`, which is at most `bulk`; `fill` writes all of it: a
            // stream of a send lives no longer than the send's slot, and `Regions::read` zeroes
            // what is gone.
            let result = unsafe {
                self.transport
                    .send_bulk(stream.peer, &stream.header, len, fill)
            };
            if result != Sent::Done {
                self.proto.full_peers.push(stream.peer);
                if result == Sent::Gone {
                    self.proto.breaks_off(stream);
                }
                break;
            }
            stream.position += len;
            sent += 1;
        }
        sent
    }

    /// Tries to send a short message that has waited behind others. `None` if it is not one, or has
    /// to be announced now.
    #[inline]
    fn launch_short(&mut self, index: u32) -> Option<bool> {
        let Op::Queued(Queued { args, buf }) = &self.proto.table.entry(index).op else {
            return None;
        };
        let (peer, len) = (args.dest.index(), buf.len);
        let header =
            crate::engine::short::send::header(PacketKind::Eager, args, buf.signature.bits());
        let ptr = buf.ptr;
        let hold = self.proto.peers[peer as usize].flags & Peer::HOLD != 0;
        if hold || len > self.proto.limits.eager {
            return None;
        }
        // SAFETY: the sender leaves the buffer to the device until the request completes; that it
        // is short enough for the transport was checked when it was queued.
        match unsafe { self.transport.send_short(peer, &header, ptr, len) } {
            Sent::Full => Some(false),
            Sent::Gone => {
                self.proto.note_gone(peer);
                Some(true)
            }
            Sent::Done => {
                self.proto.counters.eager_sent += 1;
                self.proto.counters.bytes_sent += len as u64;
                self.proto.complete_send(index);
                Some(true)
            }
        }
    }

    /// Tries to send the message of a queued request, in whatever form. `false` if there is no room
    /// yet.
    pub(in crate::engine) fn launch(&mut self, index: u32) -> bool {
        if let Some(left) = self.launch_short(index) {
            return left;
        }
        let Some(op) = self.proto.table.send(index) else {
            return true;
        };
        let peer = op.args.dest.index();
        if let SendStage::Unasked { left } = op.stage
            && (left > 0 || self.proto.peers[peer as usize].flags & Peer::HOLD == 0)
        {
            // Its announcement may have been prepared while the peer was holding, and found no
            // room.
            if op.word.is_some() || op.exposure.is_some() {
                self.release_offer(index);
            }
            return self.launch_pieces(index);
        }
        let len = op.data.len();
        let waited = op.waited && op.data.contiguous().is_some();
        let was_to_be_announced = op.word.is_some() || op.exposure.is_some();
        let args = op.args;
        let lengths = &self.proto.lengths;
        op.shared = lengths.is_shared(&self.transport, &op.data, args.rep, op.waited);
        let shared = op.shared;
        // Memory that only a driver reaches is not copied before the receiver wants the data.
        let form = match op.data.driven() {
            Some(_) => Form::Offer,
            None if shared => Form::Offer,
            None => self.proto.form(&args, len, waited),
        };
        if form == Form::Offer {
            return self.send_offer(index);
        }
        if was_to_be_announced {
            // The announcement found no room, so the peer knows nothing of it: take it back.
            self.release_offer(index);
        }
        if form == Form::Pieces {
            return self.launch_pieces(index);
        }
        let Proto { table, .. } = &mut self.proto;
        let Some(op) = table.send(index) else {
            return true;
        };
        let synchronous = op.args.mode == SendMode::Synchronous;
        let mut header = crate::engine::short::send::header(
            PacketKind::Eager,
            &op.args,
            op.data.signature(len).bits(),
        );
        if synchronous {
            header.flags |= flags::SYNCHRONOUS;
            header.cookie = table.handle(index).to_short();
        }
        let Some(op) = self.proto.table.send(index) else {
            return true;
        };
        let rep: MsgRep = op.args.rep;
        let data = &op.data;
        // SAFETY: the sender leaves the buffer to the device until the request completes; `read` is
        // asked for all of it and `len` is at most `eager`, which is at most `bulk`.
        let sent = unsafe {
            self.transport
                .send_bulk(peer, &header, len, |target| data.read(0, target, len, rep))
        };
        match sent {
            Sent::Full => false,
            Sent::Gone => {
                self.proto.note_gone(peer);
                true
            }
            Sent::Done => {
                self.proto.counters.eager_sent += 1;
                if synchronous {
                    op.stage = SendStage::Unmatched;
                } else {
                    self.proto.counters.bytes_sent += len as u64;
                    self.proto.complete_send(index);
                }
                true
            }
        }
    }

    /// Ends a send, all of whose data has left.
    pub(in crate::engine) fn send_finished(&mut self, index: u32) {
        if let Op::Send(op) = &mut self.proto.table.entry(index).op {
            if let Some(word) = op.word.take() {
                self.transport.offer_close(word);
            }
            if let Some(exposure) = op.exposure.take() {
                self.proto.exposed -= 1;
                self.transport.withdraw(&exposure);
            }
            let (peer, len) = (op.args.dest.index(), op.data.len());
            // A message that left with its envelope did not use any of the ways of long messages.
            if op.stage != SendStage::Unmatched {
                self.proto.ways.given(peer, len);
            }
            self.proto.counters.bytes_sent += len as u64;
            if let Some(why) = fault(&op.data) {
                return self.proto.fail_driven(index, why);
            }
            self.proto.complete_send(index);
        }
    }
}
