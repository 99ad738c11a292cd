//! Receiving: `MP_ARecv`, preposting, and the headers that arrive in the `smsg` queues.

use portolan_core::matching::Pattern;

use super::header::{Form, IN_HEADER, Inbound, Outbound};
use super::lite::{Lite, Outcome, Packet, RecvOp, Stage, Waiting, envelope};
use super::queue::Position;
use super::send::{LOCAL, PIECE, pieces};
use super::steps::Step;
use super::wire::{Arrival, Buffer, Wire};

/// With more receives than this that are not preposted, no other receive is preposted, because it
/// would have to be compared with all of them.
const APART: usize = 64;

/// A message that waits for its receive.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    /// The message is in a queue.
    Queued { peer: u32, position: Position },
    /// The message has been moved out of its queue.
    Spilled(portolan_core::matching::UnexpectedId),
}

impl<B: Buffer> Lite<B> {
    /// `MP_ARecv`: takes a message that has arrived, or preposts the receive at its source. The
    /// pattern's source is a PE, or any. Returns the number of the operation, for
    /// [`cancel_receive`](Self::cancel_receive); the operation may already be over.
    pub fn arecv(&mut self, wire: &mut impl Wire, pattern: Pattern, buffer: B, token: u64) -> u32 {
        wire.step(Step::Call);
        let op = RecvOp {
            token,
            pattern,
            buffer,
            stage: Stage::Apart { age: self.age },
            doomed: None,
            posted: None,
        };
        let id = self.receives.insert(op);
        if let Some(peer) = pattern.source {
            self.hear_sender(wire, peer);
        }
        match self.find(wire, &pattern) {
            Some(found) => {
                if let Some(message) = self.take_found(wire, found) {
                    self.deliver(wire, id, message);
                }
            }
            None => self.post(wire, id, pattern),
        }
        id
    }

    /// Makes a receive wait for its message.
    fn post(&mut self, wire: &mut impl Wire, id: u32, pattern: Pattern) {
        let posted = self.posted.post(pattern, id);
        if let Some(op) = self.receives.get_mut(id) {
            op.posted = Some(posted);
        }
        if !self.prepost(wire, id, pattern) {
            self.apart.insert(self.age, id);
            self.age += 1;
        }
    }

    /// Preposts a receive at its source; `false` if it may not be, or if there is no room.
    ///
    /// A receive of at most 8 bytes is not preposted, because its message comes in its header,
    /// whatever the sender knows. A receive with an unknown source cannot be preposted. A receive
    /// that follows one which is not preposted and might match the same message must not be
    /// preposted, because the sender would not know of the earlier one (extension; the seed has no
    /// wildcards but the source).
    fn prepost(&mut self, wire: &mut impl Wire, id: u32, pattern: Pattern) -> bool {
        let (Some(peer), Some(op)) = (pattern.source, self.receives.get(id)) else {
            return false;
        };
        let room = op.buffer.len();
        let worth = room > IN_HEADER && self.preposting;
        let (Ok(wide), true) = (u32::try_from(room), worth) else {
            return false;
        };
        let mut older = self.apart.values().filter_map(|&id| self.receives.get(id));
        if self.apart.len() > APART || older.any(|op| op.pattern.overlaps(&pattern)) {
            return false;
        }
        let limit = self.places.queue / 2;
        let state = self.peer(peer);
        let crowded = state.preposts >= limit || state.to_rmsg.room(wire) == 0;
        if crowded || state.failed || !state.owed.is_empty() {
            return false;
        }
        let Some(at) = self.allocate_spare(room as u64) else {
            return false;
        };
        let state = self.peer(peer);
        state.preposts += 1;
        let header = Outbound::Prepost {
            context: pattern.context,
            tag: pattern.tag,
            at,
            room: wide,
            receive: id,
            seen: state.smsg.next as u16,
        };
        state.to_rmsg.post(wire, peer, header.words());
        self.stats.preposted += 1;
        if let Some(op) = self.receives.get_mut(id) {
            op.stage = Stage::Preposted { peer, at };
        }
        true
    }

    /// Reads the headers that sender `peer` has written. Messages go to the receives that wait for
    /// them, or stay in the queue; signals are carried out.
    pub(super) fn hear_sender(&mut self, wire: &mut impl Wire, peer: u32) {
        loop {
            if self.peer(peer).smsg.is_crowded() {
                self.spill(wire, peer);
            }
            let Some(words) = self.peer(peer).smsg.see(wire) else {
                break;
            };
            wire.step(Step::Look);
            let position = self.peer(peer).smsg.next.wrapping_sub(1);
            self.arrive(wire, peer, position, Inbound::parse(words));
        }
        self.tell(wire, peer);
    }

    fn arrive(
        &mut self,
        wire: &mut impl Wire,
        peer: u32,
        position: Position,
        header: Option<Inbound>,
    ) {
        let message = header.map(|header| Waiting { peer, header });
        match header {
            Some(
                Inbound::Small { label, .. }
                | Inbound::Buffered { label, .. }
                | Inbound::Announced { label, .. },
            ) => {
                let matched = self.posted.match_arrival(&envelope(peer, label));
                let (Some(id), Some(message)) = (matched, message) else {
                    return; // The message waits in its queue.
                };
                if let Some(op) = self.receives.get_mut(id) {
                    op.posted = None;
                }
                self.peer(peer).smsg.delete(wire, position);
                return self.deliver(wire, id, message);
            }
            Some(Inbound::SendDone {
                receive,
                tag,
                form,
                len,
            }) => self.put_here(wire, peer, receive, tag, form, len, None),
            Some(Inbound::SmallDone {
                receive,
                tag,
                form,
                data,
                len,
            }) => self.put_here(wire, peer, receive, tag, form, u64::from(len), Some(data)),
            Some(Inbound::Packet { at, len }) => {
                self.packets.push_back(Packet { peer, at, len });
            }
            Some(Inbound::Part { receive, len }) => self.part_here(wire, receive, len),
            Some(Inbound::Cancelled { receive }) => self.taken_back(wire, receive),
            None => {}
        }
        self.peer(peer).smsg.delete(wire, position);
    }

    /// Moves the oldest messages of a queue that is filling up into this PE's own memory, which is
    /// searched first (extension: the seed's queue overflows).
    fn spill(&mut self, wire: &mut impl Wire, peer: u32) {
        while self.peer(peer).smsg.is_crowded() {
            let state = self.peer(peer);
            let oldest = state.smsg.i;
            let words = state.smsg.at(wire, oldest);
            state.smsg.delete(wire, oldest);
            if let Some(header) = Inbound::parse(words)
                && let Some(label) = header.label()
            {
                self.stats.spilled += 1;
                let message = Waiting { peer, header };
                self.spilled.push(envelope(peer, label), message);
            }
        }
    }

    /// The earliest waiting message that a pattern matches. With an unknown source this searches
    /// the queues of all senders.
    pub(super) fn find(&self, wire: &mut impl Wire, pattern: &Pattern) -> Option<Found> {
        if let Some(id) = self.spilled.find(pattern) {
            wire.step(Step::Look);
            return Some(Found::Spilled(id));
        }
        let queues = match pattern.source {
            Some(peer) => self.peers.range(peer..=peer),
            None => {
                // Queues that were never written to are looked at, too, and cost a look each.
                let untouched = self.size - self.peers.len() as u32;
                (0..untouched).for_each(|_| wire.step(Step::Look));
                self.peers.range(..)
            }
        };
        for (&peer, state) in queues {
            for position in state.smsg.seen() {
                wire.step(Step::Look);
                let header = Inbound::parse(state.smsg.at(wire, position));
                if let Some(label) = header.and_then(|header| header.label())
                    && pattern.matches(&envelope(peer, label))
                {
                    return Some(Found::Queued { peer, position });
                }
            }
        }
        None
    }

    /// The message that `find` has found, without taking it.
    pub(super) fn look_at(&self, wire: &mut impl Wire, found: Found) -> Option<Waiting> {
        match found {
            Found::Queued { peer, position } => {
                let words = self.peers.get(&peer)?.smsg.at(wire, position);
                let header = Inbound::parse(words)?;
                Some(Waiting { peer, header })
            }
            Found::Spilled(id) => self.spilled.get(id).map(|(_, &message)| message),
        }
    }

    /// Takes the message that `find` has found out of its queue.
    pub(super) fn take_found(&mut self, wire: &mut impl Wire, found: Found) -> Option<Waiting> {
        let message = self.look_at(wire, found)?;
        match found {
            Found::Queued { peer, position } => {
                self.peer(peer).smsg.delete(wire, position);
                self.tell(wire, peer);
            }
            Found::Spilled(id) => {
                self.spilled.take(id);
            }
        }
        Some(message)
    }

    /// Gives a message to a receive: copies its data out of the header, or pulls it from the
    /// sender's buffer. Then tells the sender what it has to clean up.
    pub(super) fn deliver(&mut self, wire: &mut impl Wire, id: u32, message: Waiting) {
        if let Inbound::Announced {
            message: number, ..
        } = message.header
        {
            return self.take_announced(wire, id, &message, number);
        }
        let Some(mut op) = self.receives.remove(id) else {
            return;
        };
        let arrival = message.arrival();
        if op.buffer.accepts(&arrival) {
            pull(wire, &message, &arrival, &mut op.buffer);
        }
        let gap = self.retire(wire, id, &op);
        self.acknowledge(wire, &message, gap);
        self.finish(wire, op.token, Outcome::Received(arrival), op.buffer);
    }

    /// Tells a sender that its message was received: the `recv_done` signal. A message that came in
    /// its header needs none, unless a prepost has to be taken out.
    pub(super) fn acknowledge(
        &mut self,
        wire: &mut impl Wire,
        message: &Waiting,
        gap: Option<u32>,
    ) {
        let (at, len) = match message.header {
            Inbound::Buffered { at, len, .. } => (at, len),
            _ => (0, u64::from(gap.is_some())),
        };
        self.stats.gaps += u64::from(gap.is_some());
        self.stats.pulled += u64::from(at != 0);
        if at != 0 || gap.is_some() {
            let seen = 0;
            self.owe(
                wire,
                message.peer,
                Outbound::RecvDone { at, len, gap, seen },
            );
        }
    }

    /// Handles the signal that a message was put straight into a receive.
    #[expect(
        clippy::too_many_arguments,
        reason = "the fields of two kinds of header"
    )]
    fn put_here(
        &mut self,
        wire: &mut impl Wire,
        peer: u32,
        id: u32,
        tag: u32,
        form: Form,
        len: u64,
        data: Option<u64>,
    ) {
        let Some(mut op) = self.receives.remove(id) else {
            debug_assert!(
                false,
                "PE {peer} put into receive {id}, which does not wait"
            );
            return;
        };
        let arrival = Arrival {
            peer,
            context: op.pattern.context,
            tag,
            len,
            rep: form.rep,
            signature: form.signature,
        };
        let room = op
            .buffer
            .len()
            .min(usize::try_from(len).unwrap_or(usize::MAX));
        if let Stage::Preposted { at, .. } = op.stage
            && op.buffer.accepts(&arrival)
        {
            if let Some(data) = data {
                op.buffer.write(0, &data.to_le_bytes()[..room], form.rep);
            } else {
                pieces(room, LOCAL, |from, piece| {
                    wire.read(at + from as u64, piece);
                    op.buffer.write(from, piece, form.rep);
                });
            }
        }
        self.retire(wire, id, &op);
        self.finish(wire, op.token, Outcome::Received(arrival), op.buffer);
    }

    /// Frees the resources of a receive that is over. Returns its number if it is still preposted.
    pub(super) fn retire(&mut self, wire: &mut impl Wire, id: u32, op: &RecvOp<B>) -> Option<u32> {
        if let Some(posted) = op.posted {
            self.posted.cancel(posted);
        }
        match op.stage {
            Stage::Apart { age } => {
                self.apart.remove(&age);
                None
            }
            Stage::Preposted { peer, at } => {
                wire.step(Step::Allocate);
                self.pool.free(at);
                self.peer(peer).preposts -= 1;
                Some(id)
            }
            Stage::Taking(taking) => {
                if let Some(at) = taking.at {
                    wire.step(Step::Allocate);
                    self.pool.free(at);
                }
                None
            }
        }
    }
}

impl Waiting {
    /// The description of the message.
    pub(super) fn arrival(&self) -> Arrival {
        let (label, form, len) = match self.header {
            Inbound::Small {
                label, form, len, ..
            } => (label, form, u64::from(len)),
            Inbound::Buffered {
                label, form, len, ..
            }
            | Inbound::Announced {
                label, form, len, ..
            } => (label, form, len),
            _ => unreachable!("only messages wait for receives"),
        };
        Arrival {
            peer: self.peer,
            context: label.context,
            tag: label.tag,
            len,
            rep: form.rep,
            signature: form.signature,
        }
    }
}

/// Copies the data of a message into a buffer, as far as there is room.
fn pull(wire: &mut impl Wire, message: &Waiting, arrival: &Arrival, buffer: &mut impl Buffer) {
    let len = usize::try_from(arrival.len).unwrap_or(usize::MAX);
    let room = buffer.len().min(len);
    match message.header {
        Inbound::Small { data, .. } => {
            buffer.write(0, &data.to_le_bytes()[..room], arrival.rep);
        }
        Inbound::Buffered { at, .. } => {
            pieces(room, PIECE, |from, piece| {
                wire.step(Step::Piece);
                wire.get_bytes(message.peer, at + from as u64, piece);
                buffer.write(from, piece, arrival.rep);
            });
            if !buffer.is_contiguous() {
                wire.step(Step::Copy(room as u64));
            }
        }
        _ => {}
    }
}
