//! Receiving: the hot path.
//!
//! Budget of a small message that finds its receive posted, from the transport's poll to the user's
//! buffer: 0 allocations, 0 system calls, 0 locked instructions at level `Single`; one look-up, one
//! comparison of signatures, one copy straight from where the message arrived.

use portolan_datatype::{MsgRep, Signature};

use super::data::Data;
use super::entry::{Op, RecvOp, RecvStage};
use super::state::{Proto, State};
use super::unexpected::{Arrived, envelope};
use crate::error::{ErrorKind, Result};
use crate::matching::{Envelope, Pattern};
use crate::request::{Request, State as Stage};
use crate::status::Status;
use crate::transport::packet::flags;
use crate::transport::{Header, PacketKind, Payload, Transport};

impl<T: Transport> State<T> {
    /// Starts a receive.
    ///
    /// # Safety
    /// `pattern` must be legal; the buffer must stay writable until the request completes.
    #[inline]
    pub(super) unsafe fn start_recv(&mut self, pattern: &Pattern, data: Data) -> Result<Request> {
        let request = self.proto.table.claim(Op::Idle, Stage::Active)?;
        // SAFETY: the caller's promise.
        unsafe { self.start_recv_in(request.index(), pattern, data) };
        Ok(request)
    }

    /// Starts a receive in a slot that is active already.
    ///
    /// # Safety
    /// As [`start_recv`](Self::start_recv).
    #[inline]
    pub(super) unsafe fn start_recv_in(&mut self, index: u32, pattern: &Pattern, data: Data) {
        if !self.proto.unexpected.is_empty()
            && let Some((envelope, arrived)) = self.take_unexpected(pattern)
        {
            return self.receive_arrived(index, &envelope, arrived, data);
        }
        if !self.proto.failed.is_empty()
            && let Some(peer) = self.proto.failure_for(pattern)
        {
            return self.proto.fail_request(index, peer);
        }
        let posted = self.proto.posted.post(*pattern, index);
        self.proto.table.entry(index).op = Op::Recv(RecvOp {
            pattern: *pattern,
            data,
            stage: RecvStage::Posted(posted),
        });
    }

    /// Takes the earliest stored message that matches. An offer is taken from its sender too, so
    /// that what comes out exists; offers that were cancelled meanwhile are dropped.
    #[cold]
    #[inline(never)]
    pub(super) fn take_unexpected(&mut self, pattern: &Pattern) -> Option<(Envelope, Arrived)> {
        loop {
            let (envelope, mut arrived) = self.proto.unexpected.take_match(pattern)?;
            self.proto.unstore(&arrived);
            if let Arrived::Offer {
                peer, body, taken, ..
            } = &mut arrived
                && !*taken
            {
                if body
                    .word
                    .is_some_and(|word| !self.transport.offer_take(*peer, word))
                {
                    continue;
                }
                *taken = true;
            }
            return Some((envelope, arrived));
        }
    }

    /// Receives a message that had arrived before.
    pub(super) fn receive_arrived(
        &mut self,
        index: u32,
        envelope: &Envelope,
        arrived: Arrived,
        data: Data,
    ) {
        let pattern = Pattern::exact(envelope);
        match arrived {
            Arrived::Eager {
                peer,
                header,
                data: stored,
            } => {
                let op = RecvOp {
                    pattern,
                    data,
                    stage: RecvStage::Matched,
                };
                self.proto.table.entry(index).op = Op::Recv(op);
                self.proto
                    .deliver(index, peer, &header, Payload::from_slice(stored.bytes()));
            }
            Arrived::Offer {
                peer, header, body, ..
            } => {
                let op = RecvOp {
                    pattern,
                    data,
                    stage: RecvStage::Matched,
                };
                self.proto.table.entry(index).op = Op::Recv(op);
                self.start_transfer(index, peer, &header, &body);
            }
            Arrived::Looped { send, header, .. } => {
                let op = RecvOp {
                    pattern,
                    data,
                    stage: RecvStage::Matched,
                };
                self.proto.table.entry(index).op = Op::Recv(op);
                self.proto.finish_loop(send, index, &header);
            }
        }
    }
}

impl Proto {
    /// An eager message has arrived.
    #[inline]
    pub(super) fn on_eager(&mut self, peer: u32, header: &Header, payload: Payload<'_>) {
        match self.posted.match_arrival(&envelope(header)) {
            Some(index) => self.deliver(index, peer, header, payload),
            None => self.store(peer, header, payload),
        }
    }

    /// Gives a message with all of its data to the receive that it matched.
    #[inline]
    pub(super) fn deliver(&mut self, index: u32, peer: u32, header: &Header, payload: Payload<'_>) {
        let check = self.check_signature;
        let Op::Recv(op) = &self.table.entry(index).op else {
            debug_assert!(false, "posted receives are receives");
            return;
        };
        let room = op.data.len();
        let len = payload.len().min(room);
        let mut status = Status {
            source: header.source,
            tag: header.tag,
            error: None,
            bytes: len as u64,
            sent: payload.len() as u64,
            cancelled: false,
        };
        if check && !signatures_match(header.signature, &op.data, payload.len()) {
            status.error = Some(ErrorKind::TypeMismatch);
            status.bytes = 0;
        } else {
            match MsgRep::from_code(header.rep) {
                // SAFETY: a posted receive's buffer is the device's until the request completes;
                // `len` is at most its length and the payload's; the payload is in the transport's
                // or the heap's memory, apart from it.
                Some(rep) => unsafe { op.data.write(0, payload.as_ptr(), len, rep) },
                None => {
                    status.error = Some(ErrorKind::PeerMisbehaved);
                    status.bytes = 0;
                }
            }
            if payload.len() > room && status.error.is_none() {
                status.error = Some(ErrorKind::Truncated);
            }
        }
        if header.flags & flags::SYNCHRONOUS != 0 {
            self.acknowledge(peer, header.cookie);
        }
        self.counters.eager_received += 1;
        self.counters.bytes_received += status.bytes;
        self.complete(index, status);
    }

    /// Tells a sender that its message was matched, or that its offer has been pulled.
    #[cold]
    #[inline(never)]
    pub(super) fn acknowledge(&mut self, peer: u32, cookie: u32) {
        let header = Header {
            kind: PacketKind::Done as u8,
            cookie,
            ..Header::default()
        };
        self.queue_control(peer, header, &[]);
    }
}

/// Whether a message of `sent` bytes with this signature may be received into `data`.
#[inline]
pub(super) fn signatures_match(sent_signature: u32, data: &Data, sent: usize) -> bool {
    let sent_signature = Signature::from_bits(sent_signature);
    if sent_signature == Signature::ANY || sent == 0 {
        return true;
    }
    // What does not fit is not compared: the receive ends as truncated.
    data.len() < sent || sent_signature.matches(data.signature(sent))
}
