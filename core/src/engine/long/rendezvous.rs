//! Long messages: the receiver takes them once it has a buffer for them.
//!
//! ```text
//! sender                       receiver
//!   Offer ───────────────────▶ match, take the offer's word
//!                              data exposed, and pulling is the best way (`ways.rs`):
//!                                pull ... pull
//!   complete ◀──────────────── Done
//!                              otherwise (or half and half, see `transfer.rs`):
//!   stream  ◀───────────────── Take(request, position)
//!   Data ... Data ───────────▶ unpack where it arrives
//!   complete                   complete
//! ```
//!
//! The receiver decides. So nobody ever writes into a buffer whose receive is not matched, and
//! until then a receive can be cancelled inside the call. (A blocking receive that is polling may
//! pull without becoming a request: [`in_hand`](crate::engine::long::in_hand).)

use portolan_datatype::MsgRep;

use crate::engine::entry::{RecvStage, SendOp, SendStage, Transfer};
use crate::engine::long::transfer::Push;
use crate::engine::long::ways::Way;
use crate::engine::short::recv::signatures_match;
use crate::engine::short::unexpected::{Arrived, OfferBody, envelope};
use crate::engine::state::{Proto, State};
use crate::error::ErrorKind;
use crate::status::Status;
use crate::transport::packet::flags;
use crate::transport::{Exposure, Header, PacketKind, Payload, Transport};

/// The body of a `Take`, by which a receiver takes an offer.
pub(in crate::engine) struct TakeBody {
    /// The receive; every piece of data names it.
    pub(in crate::engine) receive: u32,
    /// The first byte that the receiver wants, and the one after the last.
    pub(in crate::engine) from: u64,
    pub(in crate::engine) until: u64,
    /// Where to push the bytes, if that is possible.
    pub(in crate::engine) buffer: Option<Exposure>,
}

impl TakeBody {
    const LEN: usize = 24;
    const LEN_OPENED: usize = 56;

    pub(in crate::engine) fn to_bytes(&self) -> ([u8; Self::LEN_OPENED], usize) {
        let mut bytes = [0; Self::LEN_OPENED];
        bytes[..4].copy_from_slice(&self.receive.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.from.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.until.to_le_bytes());
        let Some(Exposure(buffer)) = &self.buffer else {
            return (bytes, Self::LEN);
        };
        bytes[24..].copy_from_slice(buffer);
        (bytes, Self::LEN_OPENED)
    }

    fn parse(payload: Payload<'_>, opened: bool) -> Option<Self> {
        let mut bytes = [0; Self::LEN_OPENED];
        if opened {
            bytes = payload.first()?;
        } else {
            bytes[..Self::LEN].copy_from_slice(&payload.first::<{ Self::LEN }>()?);
        }
        Some(Self {
            receive: u32::from_le_bytes(bytes[..4].try_into().ok()?),
            from: u64::from_le_bytes(bytes[8..16].try_into().ok()?),
            until: u64::from_le_bytes(bytes[16..24].try_into().ok()?),
            buffer: match opened {
                true => Some(Exposure(bytes[24..].try_into().ok()?)),
                false => None,
            },
        })
    }
}

impl<T: Transport> State<T> {
    /// Matches an offer that has arrived. This happens outside of the poll, because taking the
    /// offer's word needs the transport; until it is done, nothing else is delivered.
    pub(in crate::engine) fn match_offer(&mut self, peer: u32, header: &Header, body: &OfferBody) {
        let envelope = envelope(header);
        if self.pull_in_hand(peer, header, body) {
            return;
        }
        self.post_in_hand();
        if self.proto.posted.peek_arrival(&envelope).is_none() {
            if self.proto.trouble && self.proto.failure_in(envelope.context).is_some() {
                return self.drop_offer(peer, header, body, false);
            }
            self.proto.refuse_in_hand(&envelope);
            self.proto.counters.unexpected += 1;
            // By the time that it is received, the sender may be asleep.
            let header = Header {
                flags: header.flags & !flags::WAITED,
                ..*header
            };
            let arrived = Arrived::Offer {
                peer,
                header,
                body: *body,
                taken: false,
            };
            self.proto.unexpected.push(envelope, arrived);
            self.proto.shared.tell();
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

    /// Starts to move the data of an offer that this receive has taken.
    pub(in crate::engine) fn start_transfer(
        &mut self,
        index: u32,
        peer: u32,
        header: &Header,
        body: &OfferBody,
    ) {
        let check = self.proto.check_signature;
        self.proto.unasked.comes(peer);
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
            exposure: body.exposure,
            mine: 0..0,
            theirs: 0..0,
            stranded: false,
            opened: None,
            measured: false,
            absent: false,
            looks: 0,
            broken: false,
            landing: None,
        }));
        if self.proto.peers[peer as usize].flags & crate::engine::short::outgoing::Peer::FAILED != 0
        {
            return self.proto.fail_request(index, peer);
        }
        if self.proto.hooks.running() && self.takes_long(index) {
            self.proto.begins.push_back(index);
            self.proto.leave_work();
            return;
        }
        self.begin_transfer(index);
    }

    /// Handles a `Done`: a receiver has matched a synchronous message, or has pulled an offer.
    pub(in crate::engine) fn on_done(&mut self, peer: u32, header: &Header) {
        let Some(index) = self.proto.table.resolve_short(header.cookie) else {
            return self
                .proto
                .misbehaves(peer, "acknowledged a message that was not sent");
        };
        let op = self.proto.table.send(index);
        match op.filter(|op| op.args.dest.index() == peer) {
            Some(SendOp {
                stage: SendStage::Pushing { acknowledged },
                ..
            }) if !*acknowledged => *acknowledged = true,
            Some(SendOp {
                stage: SendStage::Offered,
                waited,
                shared,
                data,
                ..
            }) => {
                let (len, waited) = (data.len(), *waited);
                if !*shared {
                    self.proto.offer_was_taken(peer, len, waited, false);
                    self.proto.goes(peer, Way::Pull);
                }
                self.send_finished(index);
            }
            Some(SendOp {
                stage: SendStage::Pushed | SendStage::Unmatched,
                ..
            }) => self.send_finished(index),
            _ => self
                .proto
                .misbehaves(peer, "acknowledged a message that was not sent to it"),
        }
    }
}

impl Proto {
    /// Handles a `Take`: a receiver asks for the data of an offer.
    pub(in crate::engine) fn on_take(&mut self, peer: u32, header: &Header, payload: Payload<'_>) {
        let index = self.table.resolve_short(header.cookie);
        let body = TakeBody::parse(payload, header.flags & flags::OPENED != 0);
        let (Some(index), Some(body)) = (index, body) else {
            return self.misbehaves(peer, "took an offer that was not made");
        };
        let legal = self.table.send(index).is_some_and(|op| {
            op.args.dest.index() == peer
                && matches!(op.stage, SendStage::Offered | SendStage::Pushed)
                && (body.buffer.is_none() || op.exposure.is_some())
                && body.until <= op.data.len() as u64
                && body.from < body.until
        });
        let Some(op) = self.table.send(index).filter(|_| legal) else {
            return self.misbehaves(peer, "took an offer that was not made to it");
        };
        let header = Header {
            kind: PacketKind::Data as u8,
            flags: 0,
            cookie: body.receive,
            ..*header
        };
        let asked = body.from as usize..body.until as usize;
        self.work = true;
        let buffer = body.buffer.filter(|_| op.stage == SendStage::Offered);
        let (len, waited, as_stream) = (op.data.len(), op.waited, buffer.is_none());
        let shared = op.shared;
        match buffer {
            Some(buffer) => {
                op.stage = SendStage::Pushing {
                    acknowledged: false,
                };
                self.pushes.push_back(Push {
                    peer,
                    header,
                    send: index,
                    buffer,
                    asked: asked.clone(),
                    left: asked,
                });
            }
            None => {
                op.stage = SendStage::Streaming;
                self.push_stream(peer, header, index, asked);
            }
        }
        if shared {
            return;
        }
        self.offer_was_taken(peer, len, waited, as_stream);
        self.goes(peer, if as_stream { Way::Stream } else { Way::Split });
    }

    /// Notes which way a peer takes this rank's messages.
    fn goes(&mut self, peer: u32, way: Way) {
        if peer < self.me {
            self.ways.led(peer, way);
        }
    }
}
