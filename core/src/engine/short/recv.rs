//! Receiving: the hot path.
//!
//! Budget of a small message whose receive is posted, from the transport's poll to the user's
//! buffer: 0 allocations, 0 system calls, 0 locked instructions at level `Single`; one look-up, one
//! comparison of signatures, one copy straight from where the message arrived.

use portolan_datatype::{MsgRep, Signature};

use crate::buffer::{ContigBuf, MemoryKind};
use crate::engine::Engine;
use crate::engine::data::Data;
use crate::engine::entry::{Op, RecvOp, RecvStage};
use crate::engine::short::send::START;
use crate::engine::short::unexpected::{Arrived, Stored, envelope};
use crate::engine::state::{Proto, State};
use crate::error::{ErrorKind, Result};
use crate::guard::NoUnwind;
use crate::level::{Level, StateLock};
use crate::matching::{Envelope, Pattern, Wanted};
use crate::request::{Request, State as Stage};
use crate::status::Status;
use crate::transport::packet::flags;
use crate::transport::{Header, PacketKind, Payload, Transport};

impl<T: Transport, L: Level> Engine<T, L> {
    /// Starts a receive into contiguous memory.
    ///
    /// The arguments are passed in registers. Passed in memory, they would be read back in larger
    /// parts than they were written in, and the processor stalls on such loads.
    ///
    /// # Safety
    /// As [`State::start_recv`].
    #[inline(never)]
    pub(in crate::engine) unsafe fn start_recv_contig(
        &self,
        wanted: Wanted,
        ptr: *mut u8,
        len: usize,
        signature: Signature,
        memory: MemoryKind,
    ) -> Result<Request> {
        let buf = ContigBuf {
            ptr,
            len,
            signature,
            memory,
        };
        let mut state = self.state.lock();
        // SAFETY: the caller's promise.
        match unsafe { state.post_plainly(wanted, buf) } {
            Some(request) => Ok(request),
            // SAFETY: the caller's promise.
            None => unsafe { state.start_recv(&wanted.pattern(), Data::Contig(buf)) },
        }
    }
}

impl<T: Transport> State<T> {
    /// Starts a receive into contiguous memory, if all it takes is to post it.
    ///
    /// # Safety
    /// As [`start_recv`](Self::start_recv).
    #[inline(always)]
    unsafe fn post_plainly(&mut self, wanted: Wanted, buf: ContigBuf) -> Option<Request> {
        let proto = &mut self.proto;
        if proto.trouble || !proto.unexpected.is_empty() {
            return None;
        }
        let (request, entry) = proto.table.claim_free()?;
        let posted = proto.posted.post_wanted(wanted, request.index());
        entry.begin(Op::Recv(RecvOp {
            wanted,
            data: Data::Contig(buf),
            stage: RecvStage::Posted(posted),
        }));
        Some(request)
    }

    /// Starts a receive.
    ///
    /// # Safety
    /// `pattern` must be legal; the buffer must stay writable until the request completes.
    #[inline(never)]
    pub(in crate::engine) unsafe fn start_recv(
        &mut self,
        pattern: &Pattern,
        data: Data,
    ) -> Result<Request> {
        if self.proto.trouble {
            self.proto.check_live()?;
        }
        let request = self.proto.table.claim(Stage::Active)?;
        NoUnwind::during(START, || {
            // SAFETY: the caller's promise.
            unsafe { self.start_recv_in(request.index(), pattern, data) };
        });
        Ok(request)
    }

    /// Starts a receive in a slot that is already active.
    ///
    /// # Safety
    /// As [`start_recv`](Self::start_recv).
    #[inline]
    pub(in crate::engine) unsafe fn start_recv_in(
        &mut self,
        index: u32,
        pattern: &Pattern,
        data: Data,
    ) {
        if !self.proto.unexpected.is_empty()
            && let Some((envelope, arrived)) = self.take_unexpected(pattern)
        {
            return self.receive_arrived(index, &envelope, arrived, data);
        }
        if self.proto.trouble
            && let Some(peer) = self.proto.failure_for(pattern)
        {
            return self.proto.fail_request(index, peer);
        }
        let wanted = Wanted::from(pattern);
        let posted = self.proto.posted.post_wanted(wanted, index);
        self.proto.table.entry(index).begin(Op::Recv(RecvOp {
            wanted,
            data,
            stage: RecvStage::Posted(posted),
        }));
    }

    /// Takes the earliest stored message that matches. An offer is also taken from its sender, so
    /// that the message that is returned exists for certain; offers cancelled in the meantime are
    /// dropped.
    #[cold]
    #[inline(never)]
    pub(in crate::engine) fn take_unexpected(
        &mut self,
        pattern: &Pattern,
    ) -> Option<(Envelope, Arrived)> {
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

    /// Receives a message that had arrived before its receive.
    pub(in crate::engine) fn receive_arrived(
        &mut self,
        index: u32,
        envelope: &Envelope,
        arrived: Arrived,
        data: Data,
    ) {
        let wanted = Wanted::from(&Pattern::exact(envelope));
        match arrived {
            Arrived::Eager {
                peer,
                header,
                data: stored,
            } => {
                let op = RecvOp {
                    wanted,
                    data,
                    stage: RecvStage::Matched,
                };
                self.proto.table.entry(index).set_op(Op::Recv(op));
                self.proto
                    .deliver(index, peer, &header, Payload::from_slice(stored.bytes()));
            }
            Arrived::Offer {
                peer, header, body, ..
            } => {
                let op = RecvOp {
                    wanted,
                    data,
                    stage: RecvStage::Matched,
                };
                self.proto.table.entry(index).set_op(Op::Recv(op));
                self.start_transfer(index, peer, &header, &body);
            }
            Arrived::Looped { send, header, .. } => {
                let op = RecvOp {
                    wanted,
                    data,
                    stage: RecvStage::Matched,
                };
                self.proto.table.entry(index).set_op(Op::Recv(op));
                self.proto.finish_loop(send, index, &header);
            }
        }
        // Send an acknowledgement now: this rank may not poll again for long, and the sender waits
        // for it.
        if self.proto.has_outgoing() {
            self.flush_outgoing();
            if self.proto.has_outgoing() {
                self.proto.leave_work();
            }
        }
        // Unless this is a progress step, the next receive's copy need not wait for one either.
        // (Nor do a window's receives copy all of it: the caller may be about to send a window,
        // too.)
        if !self.proto.hooks.running() {
            self.proto.has_pulled &= self.proto.counters.bytes_pulled >= self.proto.pulls_until;
            if self.proto.has_pulled {
                self.proto.leave_work();
            }
        }
    }
}

impl Proto {
    /// Handles an eager message that has arrived.
    #[inline(always)]
    pub(in crate::engine) fn on_eager(&mut self, peer: u32, header: &Header, payload: Payload<'_>) {
        if !self.deliver_to_match(peer, header, payload) {
            // A copy, here and below: a header that only this call reads need not be written to
            // memory for messages that do not need the call.
            let header = *header;
            self.store(peer, &header, Stored::new(payload));
        }
    }

    /// Gives a message with all of its data to the earliest receive that it matches, if there is
    /// one.
    #[inline(always)]
    pub(in crate::engine) fn deliver_to_match(
        &mut self,
        peer: u32,
        header: &Header,
        payload: Payload<'_>,
    ) -> bool {
        if let Some(index) = self.posted.match_arrival(&envelope(header)) {
            self.deliver(index, peer, header, payload);
            return true;
        }
        // The receive in hand is the latest: it comes after all posted ones.
        self.deliver_in_hand(peer, header, payload)
    }

    /// Gives a message with all of its data to the receive that it matched.
    #[inline(always)]
    pub(in crate::engine) fn deliver(
        &mut self,
        index: u32,
        peer: u32,
        header: &Header,
        payload: Payload<'_>,
    ) {
        let (check, bytes) = (self.check_signature, payload.len() as u64);
        // Everything that needs care gets a copy of the header, as in `on_eager`.
        let Op::Recv(RecvOp {
            data: Data::Contig(buf),
            ..
        }) = &self.table.entry(index).op
        else {
            return self.deliver_with_care(index, peer, &{ *header }, payload);
        };
        if !fits_plainly(buf, header, payload.len(), check) {
            return self.deliver_with_care(index, peer, &{ *header }, payload);
        }
        // SAFETY: the buffer of a receive is the device's until it is over, and the payload, which
        // is apart from it, fits.
        unsafe { payload.copy_to(buf.ptr, payload.len()) };
        let status = Status::received(header.source, header.tag, bytes);
        let complete = self.table.end_quietly(index, status);
        self.delivered(peer, header, bytes);
        self.trace("complete", header.source, header.tag, bytes as usize);
        if complete {
            self.shared.advance_epoch();
        } else {
            self.complete_rare(index);
        }
    }

    /// The same for the exceptions: layouts, accelerator memory, other representations, messages
    /// that do not fit the buffer or its type.
    #[inline(never)]
    fn deliver_with_care(&mut self, index: u32, peer: u32, header: &Header, payload: Payload<'_>) {
        let Op::Recv(op) = &self.table.entry(index).op else {
            debug_assert!(false, "posted receives are receives");
            return;
        };
        let driven = matches!(op.data, Data::Driven(_));
        let mut status = place(&op.data, header, payload, self.check_signature);
        if driven {
            self.blame_receive(index, &mut status);
        }
        self.delivered(peer, header, status.bytes);
        self.complete(index, status);
    }

    #[inline]
    pub(in crate::engine) fn delivered(&mut self, peer: u32, header: &Header, bytes: u64) {
        if header.flags & flags::SYNCHRONOUS != 0 {
            self.acknowledge(peer, header.cookie);
        }
        self.counters.eager_received += 1;
        self.counters.bytes_received += bytes;
    }

    /// Tells a sender that its message was matched, or that its offer has been pulled.
    #[cold]
    #[inline(never)]
    pub(in crate::engine) fn acknowledge(&mut self, peer: u32, cookie: u32) {
        let header = Header {
            kind: PacketKind::Done as u8,
            cookie,
            ..Header::default()
        };
        self.queue_control(peer, header, &[]);
    }
}

/// Whether a message can be copied whole into the buffer, with nothing to report but its envelope.
#[inline(always)]
pub(in crate::engine) fn fits_plainly(
    buf: &ContigBuf,
    header: &Header,
    sent: usize,
    check: bool,
) -> bool {
    sent <= buf.len
        && header.rep == MsgRep::Native.code()
        && (!check
            || sent == 0
            || buf
                .signature
                .matches(Signature::from_bits(header.signature)))
}

/// Copies a message that is here to a receive's buffer and returns the resulting status.
#[inline]
pub(in crate::engine) fn place(
    data: &Data,
    header: &Header,
    payload: Payload<'_>,
    check: bool,
) -> Status {
    let (status, rep) = verdict(data, header, payload.len(), check);
    // SAFETY: the buffer of a receive is the device's until it is over; `bytes` is at most its
    // length and the payload's; the payload is in the transport's or the heap's memory, apart from
    // it.
    unsafe { data.unload(0, payload, status.bytes as usize, rep) };
    status
}

/// The status that a receive will have once a message of `sent` bytes with this header is there,
/// and the message's representation. The status also says how many bytes to copy.
#[inline(always)]
pub(in crate::engine) fn verdict(
    data: &Data,
    header: &Header,
    sent: usize,
    check: bool,
) -> (Status, MsgRep) {
    let room = data.len();
    let mut status = Status {
        source: header.source,
        tag: header.tag,
        error: None,
        bytes: sent.min(room) as u64,
        sent: sent as u64,
        cancelled: false,
        rep: MsgRep::Native,
    };
    if check && !signatures_match(header.signature, data, sent) {
        (status.error, status.bytes) = (Some(ErrorKind::TypeMismatch), 0);
        return (status, MsgRep::Native);
    }
    let Some(rep) = MsgRep::from_code(header.rep) else {
        (status.error, status.bytes) = (Some(ErrorKind::PeerMisbehaved), 0);
        return (status, MsgRep::Native);
    };
    status.rep = data.delivers(rep);
    if sent > room {
        status.error = Some(ErrorKind::Truncated);
    }
    (status, rep)
}

/// Whether a message of `sent` bytes with this signature may be received into `data`.
#[inline]
pub(in crate::engine) fn signatures_match(sent_signature: u32, data: &Data, sent: usize) -> bool {
    data.accepts(sent_signature, sent)
}
