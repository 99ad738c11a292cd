//! Long messages: the receiver takes them when it has a buffer for them.
//!
//! ```text
//! sender                       receiver
//!   Offer ───────────────────▶ match, take the offer's word
//!                              sender outside of the library and data exposed:
//!                                pull ... pull
//!   complete ◀──────────────── Done
//!                              otherwise:
//!   stream  ◀───────────────── Take(request, position)
//!   Data ... Data ───────────▶ unpack where it arrives
//!   complete                   complete
//! ```
//!
//! The receiver decides, so nobody but this rank ever writes into a posted buffer, and a receive can
//! be cancelled until it is matched, inside the call.

use portolan_datatype::MsgRep;

use super::entry::{Op, RecvStage, SendStage, Transfer};
use super::outgoing::{Stream, StreamSource};
use super::recv::signatures_match;
use super::state::{Proto, State};
use super::unexpected::{Arrived, OfferBody, envelope};
use crate::error::ErrorKind;
use crate::status::Status;
use crate::transport::{Header, PacketKind, Payload, Pulled, Transport};

/// Bytes pulled for one receive before other work has its turn.
const PULL_TURN: usize = 1 << 20;
/// Size of the buffer through which data for scattered layouts is pulled.
const SCRATCH: usize = 128 << 10;

/// What a receiver says when it takes an offer.
struct TakeBody {
    /// The receive, to be named in every piece of data.
    receive: u32,
    /// Bytes that the receiver has already, and bytes that it wants in all.
    from: u64,
    until: u64,
}

impl TakeBody {
    const LEN: usize = 24;

    fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.receive.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.from.to_le_bytes());
        bytes[16..].copy_from_slice(&self.until.to_le_bytes());
        bytes
    }

    fn parse(payload: Payload<'_>) -> Option<Self> {
        let bytes: [u8; Self::LEN] = payload.first()?;
        Some(Self {
            receive: u32::from_le_bytes(bytes[..4].try_into().ok()?),
            from: u64::from_le_bytes(bytes[8..16].try_into().ok()?),
            until: u64::from_le_bytes(bytes[16..].try_into().ok()?),
        })
    }
}

impl<T: Transport> State<T> {
    /// Matches an offer that has arrived. Outside of the poll, because taking the offer's word needs
    /// the transport; nothing else is delivered before.
    pub(super) fn match_offer(&mut self, peer: u32, header: &Header, body: &OfferBody) {
        let envelope = envelope(header);
        self.post_in_hand();
        if self.proto.posted.peek_arrival(&envelope).is_none() {
            if self.proto.trouble && self.proto.failure_in(envelope.context).is_some() {
                return self.drop_offer(peer, header, body, false);
            }
            self.proto.counters.unexpected += 1;
            let arrived = Arrived::Offer {
                peer,
                header: *header,
                body: *body,
                taken: false,
            };
            self.proto.unexpected.push(envelope, arrived);
            return;
        }
        if body
            .word
            .is_some_and(|word| !self.transport.offer_take(peer, word))
        {
            return; // The sender has cancelled it: there is no such message.
        }
        if let Some(index) = self.proto.posted.match_arrival(&envelope) {
            self.start_transfer(index, peer, header, body);
        }
    }

    /// Starts to move the data of an offer that was taken for this receive.
    pub(super) fn start_transfer(
        &mut self,
        index: u32,
        peer: u32,
        header: &Header,
        body: &OfferBody,
    ) {
        let check = self.proto.check_signature;
        let Some(op) = self.proto.table.recv(index) else {
            return;
        };
        let sent = usize::try_from(body.total).unwrap_or(usize::MAX);
        let refused = check && !signatures_match(header.signature, &op.data, sent);
        let rep = MsgRep::from_code(header.rep);
        let (Some(rep), false) = (rep, refused) else {
            let error = if refused {
                ErrorKind::TypeMismatch
            } else {
                ErrorKind::PeerMisbehaved
            };
            let status = Status {
                error: Some(error),
                sent: body.total,
                bytes: 0,
                ..Status::received(header.source, header.tag, 0)
            };
            self.proto.acknowledge(peer, header.cookie);
            return self.proto.complete(index, status);
        };
        op.stage = RecvStage::Transfer(Box::new(Transfer {
            peer,
            header: *header,
            rep,
            delivered: op.data.delivers(rep),
            total: body.total,
            wanted: sent.min(op.data.len()),
            done: 0,
            exposure: body.exposure,
        }));
        if self.proto.peers[peer as usize].flags & super::outgoing::Peer::FAILED != 0 {
            return self.proto.fail_request(index, peer);
        }
        if !self.pull(index) {
            self.proto.pulls.push_back(index);
            self.proto.work = true;
        }
    }

    /// Pulls the next part of a transfer, or asks for a stream. Returns whether the transfer needs no
    /// more pulling.
    pub(super) fn pull(&mut self, index: u32) -> bool {
        let Some(op) = self.proto.table.recv(index) else {
            return true;
        };
        let RecvStage::Transfer(transfer) = &mut op.stage else {
            return true;
        };
        let turn = (transfer.done + PULL_TURN).min(transfer.wanted);
        while transfer.done < turn {
            let Some(exposure) = transfer.exposure else {
                break;
            };
            let offset = transfer.done as u64;
            let direct = op
                .data
                .contiguous()
                .filter(|_| transfer.rep == MsgRep::Native);
            let (pulled, len) = if let Some((target, _)) = direct {
                let len = turn - transfer.done;
                // SAFETY: the receive's buffer is the device's until the request completes, and
                // `wanted` is at most its length.
                let pulled = unsafe {
                    let target = target.add(transfer.done);
                    self.transport
                        .pull(transfer.peer, &exposure, offset, target, len)
                };
                (pulled, len)
            } else {
                let len = (turn - transfer.done).min(SCRATCH);
                self.proto.scratch.resize(SCRATCH, 0);
                let scratch = self.proto.scratch.as_mut_ptr();
                // SAFETY: `scratch` has `SCRATCH` bytes.
                let pulled = unsafe {
                    self.transport
                        .pull(transfer.peer, &exposure, offset, scratch, len)
                };
                if pulled == Pulled::Done {
                    // SAFETY: as above for the receive's buffer; the scratch has `len` bytes.
                    unsafe { op.data.write(transfer.done, scratch, len, transfer.rep) };
                }
                (pulled, len)
            };
            match pulled {
                Pulled::Done => {
                    transfer.done += len;
                    self.proto.counters.bytes_pulled += len as u64;
                }
                Pulled::Stream => break,
                Pulled::Gone => {
                    let peer = transfer.peer;
                    self.proto.fail_request(index, peer);
                    return true;
                }
            }
        }
        if transfer.done == transfer.wanted {
            let (peer, cookie) = (transfer.peer, transfer.header.cookie);
            let status = transfer.status();
            self.proto.acknowledge(peer, cookie);
            self.proto.finish_transfer(index, status);
            return true;
        }
        if transfer.done == turn {
            return false; // More to pull, in the next turn.
        }
        let (peer, header) = (transfer.peer, transfer.header);
        let body = TakeBody {
            receive: 0,
            from: transfer.done as u64,
            until: transfer.wanted as u64,
        };
        let receive = self.proto.table.handle(index).to_short();
        let take = Header {
            kind: PacketKind::Take as u8,
            cookie: header.cookie,
            ..header
        };
        self.proto
            .queue_control(peer, take, &TakeBody { receive, ..body }.to_bytes());
        true
    }

    /// A receiver has matched a synchronous message, or pulled an offer.
    pub(super) fn on_done(&mut self, peer: u32, header: &Header) {
        let Some(index) = self.proto.table.resolve_short(header.cookie) else {
            return self
                .proto
                .misbehaves(peer, "acknowledged a message that was not sent");
        };
        let legal = self.proto.table.send(index).is_some_and(|op| {
            op.args.dest.index() == peer
                && matches!(op.stage, SendStage::Offered | SendStage::Unmatched)
        });
        if !legal {
            return self
                .proto
                .misbehaves(peer, "acknowledged a message that was not sent to it");
        }
        self.send_finished(index);
    }
}

impl Proto {
    /// A receiver asks for the data of an offer.
    pub(super) fn on_take(&mut self, peer: u32, header: &Header, payload: Payload<'_>) {
        let index = self.table.resolve_short(header.cookie);
        let body = TakeBody::parse(payload);
        let (Some(index), Some(body)) = (index, body) else {
            return self.misbehaves(peer, "took an offer that was not made");
        };
        let legal = self.table.send(index).is_some_and(|op| {
            op.args.dest.index() == peer
                && op.stage == SendStage::Offered
                && body.until <= op.data.len() as u64
                && body.from < body.until
        });
        let Some(op) = self.table.send(index).filter(|_| legal) else {
            return self.misbehaves(peer, "took an offer that was not made to it");
        };
        op.stage = SendStage::Streaming;
        self.streams.push_back(Stream {
            peer,
            header: Header {
                kind: PacketKind::Data as u8,
                cookie: body.receive,
                ..*header
            },
            source: StreamSource::Send(index),
            position: body.from as usize,
            end: body.until as usize,
        });
        self.work = true;
    }

    /// A piece of data of an offer that this rank has taken.
    pub(super) fn on_data(&mut self, peer: u32, header: &Header, payload: Payload<'_>) {
        let Some(index) = self.table.resolve_short(header.cookie) else {
            return self.misbehaves(peer, "sent data that nobody asked for");
        };
        let Op::Recv(op) = &mut self.table.entry(index).op else {
            return self.misbehaves(peer, "sent data for a request that is no receive");
        };
        let RecvStage::Transfer(transfer) = &mut op.stage else {
            return self.misbehaves(peer, "sent data for a receive that is not matched");
        };
        let left = transfer.wanted - transfer.done;
        if transfer.peer != peer || payload.len() > left {
            return self.misbehaves(peer, "sent more data than it was asked for");
        }
        // SAFETY: the receive's buffer is the device's until the request completes; the piece lies in
        // it (just checked) and comes from the transport's memory.
        unsafe {
            op.data
                .write(transfer.done, payload.as_ptr(), payload.len(), transfer.rep);
        }
        transfer.done += payload.len();
        if transfer.done == transfer.wanted {
            let status = transfer.status();
            self.finish_transfer(index, status);
        }
    }

    fn finish_transfer(&mut self, index: u32, status: Status) {
        self.counters.rendezvous_received += 1;
        self.counters.bytes_received += status.bytes;
        self.complete(index, status);
    }
}

impl Transfer {
    fn status(&self) -> Status {
        let lost = self.total > self.wanted as u64;
        Status {
            source: self.header.source,
            tag: self.header.tag,
            error: lost.then_some(ErrorKind::Truncated),
            bytes: self.wanted as u64,
            sent: self.total,
            cancelled: false,
            rep: self.delivered,
        }
    }
}
