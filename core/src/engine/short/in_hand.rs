//! A blocking receive in hand: its thread polls with the lock held, so it needs no request.
//!
//! It is the latest of all receives: it comes after all posted ones, without a slot and without a
//! place in the queue. Before the lock is released it becomes an ordinary receive.
//!
//! The program answers a message only after its receive has ended, so this is the shortest path
//! from a poll to a status. What is written while a message arrives is read back in the same parts,
//! because a processor stalls on a load that spans several stores. Copies of whole statuses, and of
//! options of them, are such loads.

use portolan_datatype::Signature;

use crate::buffer::{ContigBuf, MemoryKind};
use crate::device::Device;
use crate::engine::Engine;
use crate::engine::data::Data;
use crate::engine::entry::{Op, RecvOp, RecvStage};
use crate::engine::short::recv::{fits_plainly, place};
use crate::engine::short::unexpected::envelope;
use crate::engine::state::{Proto, State};
use crate::error::{ErrorKind, Result};
use crate::guard::NoUnwind;
use crate::level::{Level, StateLock};
use crate::matching::{Envelope, Wanted};
use crate::request::{Request, State as Stage};
use crate::status::Status;
use crate::transport::{Header, Payload, Transport};

/// The receive that a thread holds in hand, or its outcome.
pub(in crate::engine) struct InHand {
    held: Held,
    wanted: Wanted,
    /// Where the message goes, if that is contiguous memory.
    buf: ContigBuf,
    /// Where it goes otherwise.
    data: Option<Data>,
    /// Sender, tag and length of a message, if there is nothing else to report.
    source: u32,
    tag: u32,
    bytes: u64,
    /// The status of any other message.
    status: Status,
    /// The ordinary receive that this one has become.
    request: Request,
}

/// What has become of a receive in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// There is none.
    Nothing,
    /// It waits for its message.
    Open,
    /// Its message has come: `source`, `tag` and `bytes` are all there is to report.
    Plain,
    /// It is over, with a status.
    Over,
    /// It had to become an ordinary receive.
    Posted,
}

impl InHand {
    /// No receive.
    pub(in crate::engine) fn nothing() -> Self {
        let Data::Contig(buf) = Data::NONE else {
            unreachable!("no bytes are contiguous");
        };
        Self {
            held: Held::Nothing,
            wanted: Wanted::default(),
            buf,
            data: None,
            source: 0,
            tag: 0,
            bytes: 0,
            status: Status::EMPTY,
            request: Request::NULL,
        }
    }

    /// Whether it waits for its message.
    #[inline]
    fn is_open(&self) -> bool {
        self.held == Held::Open
    }

    /// Whether it waits for a message of this context.
    pub(in crate::engine) fn waits_in(&self, context: u32) -> bool {
        self.is_open() && self.wanted.pattern().context == context
    }

    /// Takes the description of where its message goes.
    fn take_data(&mut self) -> Data {
        let data = self.data.take();
        data.unwrap_or_else(|| Data::Contig(self.buf))
    }
}

impl<T: Transport, L: Level> Engine<T, L> {
    /// Receives into contiguous memory: with the receive in hand as long as the lock is held, then
    /// as an ordinary receive. The arguments are passed in registers, as in `start_recv_contig`.
    ///
    /// # Safety
    /// `wanted` must be legal, and the buffer writable for the length of the call.
    #[inline(always)]
    pub(in crate::engine) unsafe fn recv_contig_in_hand(
        &self,
        wanted: Wanted,
        ptr: *mut u8,
        len: usize,
        signature: Signature,
        memory: MemoryKind,
    ) -> Result<Status> {
        let buf = ContigBuf {
            ptr,
            len,
            signature,
            memory,
        };
        // As in `block_until`: the message goes into the caller's buffer.
        let guard = NoUnwind::new("a receive");
        let mut state = self.state.lock();
        let in_hand = state.may_take_in_hand();
        if in_hand {
            let hand = &mut state.proto.hand;
            (hand.wanted, hand.buf, hand.held) = (wanted, buf, Held::Open);
            self.poll_in_hand(&mut state);
            let hand = &mut state.proto.hand;
            if hand.held == Held::Plain {
                hand.held = Held::Nothing;
                let (source, tag, bytes) = (hand.source, hand.tag, hand.bytes);
                drop(state);
                guard.done();
                // On a path of its own, so that the parts of the status are written to where the
                // caller wants them, and not copied there together.
                return Ok(Status::received(source, tag, bytes));
            }
        }
        let rest = match in_hand {
            true => state.put_down(),
            // SAFETY: the caller's promise.
            false => unsafe { state.start_recv(&wanted.pattern(), Data::Contig(buf)) }.map(Err),
        };
        drop(state);
        let outcome = self.end(rest);
        guard.done();
        outcome
    }

    /// Waits for what a receive in hand has become, if that is an ordinary receive.
    fn end(&self, rest: Result<Result<Status, Request>>) -> Result<Status> {
        match rest? {
            Ok(status) => Ok(status),
            Err(request) => self.wait(request),
        }
    }

    /// The same for any other memory.
    ///
    /// # Safety
    /// As [`recv_contig_in_hand`](Self::recv_contig_in_hand).
    pub(in crate::engine) unsafe fn recv_data_in_hand(
        &self,
        wanted: Wanted,
        data: Data,
    ) -> Result<Status> {
        let guard = NoUnwind::new("a receive");
        // SAFETY: the caller's promise.
        let outcome = unsafe { self.recv_typed_in_hand(wanted, data) };
        guard.done();
        outcome
    }

    /// # Safety
    /// As above.
    unsafe fn recv_typed_in_hand(&self, wanted: Wanted, data: Data) -> Result<Status> {
        let request = {
            let mut state = self.state.lock();
            if state.may_take_in_hand() {
                let hand = &mut state.proto.hand;
                (hand.wanted, hand.data, hand.held) = (wanted, Some(data), Held::Open);
                self.poll_in_hand(&mut state);
                match state.put_down()? {
                    Ok(status) => return Ok(status),
                    Err(request) => request,
                }
            } else {
                // SAFETY: the caller's promise.
                unsafe { state.start_recv(&wanted.pattern(), data)? }
            }
        };
        self.wait(request)
    }
}

impl<T: Transport> State<T> {
    /// Whether no stored message and no failure can concern a receive that begins now.
    #[inline]
    fn may_take_in_hand(&self) -> bool {
        self.proto.unexpected.is_empty() && !self.proto.trouble
    }

    /// Whether the receive in hand is no longer waiting for its message.
    #[inline]
    pub(in crate::engine) fn hand_is_done(&self) -> bool {
        !self.proto.hand.is_open()
    }

    /// Puts the receive in hand down: returns its status, or the ordinary receive that it has
    /// become.
    #[inline(never)]
    fn put_down(&mut self) -> Result<Result<Status, Request>> {
        let hand = &mut self.proto.hand;
        let held = std::mem::replace(&mut hand.held, Held::Nothing);
        let (wanted, data) = (hand.wanted, hand.take_data());
        match held {
            Held::Plain => Ok(Ok(Status::received(hand.source, hand.tag, hand.bytes))),
            Held::Over => {
                let status = hand.status;
                match status.error {
                    None => Ok(Ok(status)),
                    Some(kind) => Err(self.proto.status_error(kind, status)),
                }
            }
            Held::Posted => Ok(Err(hand.request)),
            // SAFETY: the receiving thread keeps the buffer until its call returns.
            Held::Open => unsafe { self.start_recv(&wanted.pattern(), data).map(Err) },
            Held::Nothing => Ok(Ok(Status::EMPTY)),
        }
    }

    /// Turns the receive in hand into an ordinary one, because of an event that concerns posted
    /// receives.
    pub(in crate::engine) fn post_in_hand(&mut self) {
        let hand = &mut self.proto.hand;
        if !hand.is_open() {
            return;
        }
        hand.held = Held::Nothing;
        let (wanted, kept) = (hand.wanted, hand.data.clone());
        let data = hand.take_data();
        // SAFETY: as in `put_down`.
        let started = unsafe { self.start_recv(&wanted.pattern(), data) };
        let hand = &mut self.proto.hand;
        match started {
            Ok(request) => (hand.request, hand.held) = (request, Held::Posted),
            // Without a free slot it stays in hand; a later call tries again.
            Err(_) => (hand.data, hand.held) = (kept, Held::Open),
        }
    }
}

impl Proto {
    /// Delivers a message with all of its data to the receive in hand, if that matches.
    #[inline(always)]
    pub(in crate::engine) fn deliver_in_hand(
        &mut self,
        peer: u32,
        header: &Header,
        payload: Payload<'_>,
    ) -> bool {
        let hand = &mut self.hand;
        if !hand.is_open() || !hand.wanted.meets(&Wanted::from(&envelope(header))) {
            return false;
        }
        let sent = payload.len();
        let plain =
            hand.data.is_none() && fits_plainly(&hand.buf, header, sent, self.check_signature);
        if !plain {
            // A copy, so that the headers of other messages need not be written to memory for this
            // call.
            let header = *header;
            self.deliver_in_hand_with_care(peer, &header, payload);
            return true;
        }
        // SAFETY: the receiving thread keeps the buffer until its call returns, and the payload,
        // which is apart from it, fits.
        unsafe { payload.copy_to(hand.buf.ptr, sent) };
        (hand.source, hand.tag) = (header.source, header.tag);
        hand.bytes = sent as u64;
        hand.held = Held::Plain;
        self.delivered(peer, header, sent as u64);
        true
    }

    /// The same for the exceptions.
    #[inline(never)]
    fn deliver_in_hand_with_care(&mut self, peer: u32, header: &Header, payload: Payload<'_>) {
        let data = self.hand.take_data();
        let status = place(&data, header, payload, self.check_signature);
        (self.hand.status, self.hand.held) = (status, Held::Over);
        self.delivered(peer, header, status.bytes);
    }

    /// Where a message of `len` bytes that has not come yet goes: to the receive in hand, if that
    /// matches and takes all of it as it is. No posted receive may match.
    #[inline]
    pub(in crate::engine) fn room_in_hand(&self, header: &Header, len: usize) -> Option<*mut u8> {
        let hand = &self.hand;
        let takes = hand.is_open()
            && hand.data.is_none()
            && hand.wanted.meets(&Wanted::from(&envelope(header)))
            && fits_plainly(&hand.buf, header, len, self.check_signature);
        takes.then_some(hand.buf.ptr)
    }

    /// The message for which [`room_in_hand`](Self::room_in_hand) gave room is there.
    #[inline]
    pub(in crate::engine) fn arrived_in_hand(&mut self, header: &Header, len: usize) {
        let hand = &mut self.hand;
        (hand.source, hand.tag) = (header.source, header.tag);
        hand.bytes = len as u64;
        hand.held = Held::Plain;
    }

    /// Ends the receive in hand, which could not become an ordinary one for want of a slot, if it
    /// matches a message that only an ordinary receive can take. It must not receive a later
    /// message instead.
    #[cold]
    pub(in crate::engine) fn refuse_in_hand(&mut self, envelope: &Envelope) {
        let hand = &mut self.hand;
        if !hand.is_open() || !hand.wanted.meets(&Wanted::from(envelope)) {
            return;
        }
        hand.data = None;
        hand.held = Held::Over;
        hand.status = Status {
            error: Some(ErrorKind::Exhausted),
            ..Status::EMPTY
        };
    }

    /// Turns the receive in hand into an ordinary one if it matches a message whose first piece has
    /// arrived, because its call may release the lock before the rest has.
    pub(in crate::engine) fn put_down_for(&mut self, envelope: &Envelope) -> Option<u32> {
        let hand = &mut self.hand;
        if !hand.is_open() || !hand.wanted.meets(&Wanted::from(envelope)) {
            return None;
        }
        let request = self.table.claim(Stage::Active).ok()?;
        (hand.request, hand.held) = (request, Held::Posted);
        let op = RecvOp {
            wanted: hand.wanted,
            data: hand.take_data(),
            stage: RecvStage::Matched,
        };
        let index = request.index();
        self.table.entry(index).set_op(Op::Recv(op));
        Some(index)
    }
}
