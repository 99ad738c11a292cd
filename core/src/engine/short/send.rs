//! Sending: the hot path.
//!
//! Budget of a small message, from the device's entry point to the transport: 0 allocations, 0
//! system calls, 0 locked instructions at level `Single`; one test each of the peer's flags, the
//! length and the mode.

use std::mem::MaybeUninit;

use portolan_datatype::{MsgRep, Signature};

use crate::buffer::{ContigBuf, TypedBuf};
use crate::device::{Persistent, SendArgs, SendMode};
use crate::engine::data::Data;
use crate::engine::entry::{Op, Queued, SendOp, SendStage};
use crate::engine::short::outgoing::Peer;
use crate::engine::short::unexpected::OfferBody;
use crate::engine::state::{Proto, State};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::NoUnwind;
use crate::request::{Request, State as Stage};
use crate::transport::packet::flags;
use crate::transport::{Header, PacketKind, Sent, Transport};

/// The header of a tagged message.
#[inline]
pub(in crate::engine) fn header(kind: PacketKind, args: &SendArgs, signature: u32) -> Header {
    Header {
        kind: kind as u8,
        flags: if args.mode == SendMode::Ready {
            flags::READY
        } else {
            0
        },
        rep: args.rep.code(),
        channel: 0,
        context: args.envelope.context,
        source: args.envelope.source,
        tag: args.envelope.tag,
        signature,
        cookie: 0,
    }
}

/// Largest packed data of a layout that travels in the packet of its envelope. Such data is packed
/// on the stack first, so that it goes there like contiguous data. Longer data is packed into the
/// transport's memory.
const IN_ENVELOPE: usize = 192;

/// The activity that [`NoUnwind`] names while an operation begins. The buffer is lent to the device
/// as soon as the slot refers to it, but the lender has no handle before the call returns. If a
/// panic of a driver, or of a subscriber of `tracing`, unwound through the call, the buffer would
/// be freed.
pub(in crate::engine) const START: &str = "the start of an operation";

/// Eager messages in a row after which the sender polls for what its peers have sent.
pub(in crate::engine) const UNPOLLED: u32 = 64;

/// Whether a message has left.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Launched {
    Yes,
    /// A part of it has; the rest follows when there is room.
    Begun(Request),
    /// It has not: it has to wait, or to go another way.
    No,
}

impl<T: Transport> State<T> {
    /// Sends a contiguous message eagerly, if nothing prevents that. `waited`: a blocking call
    /// sends it.
    ///
    /// # Safety
    /// `args` must be legal and `buf` readable.
    #[inline]
    pub(in crate::engine) unsafe fn try_eager_contig(
        &mut self,
        args: &SendArgs,
        buf: &ContigBuf,
        waited: bool,
    ) -> Launched {
        let peer = args.dest.index();
        debug_assert!((peer as usize) < self.proto.peers.len());
        let limits = &self.proto.limits;
        if buf.len > limits.eager
            || args.mode == SendMode::Synchronous
            || peer == self.proto.me
            || self.proto.peers[peer as usize].flags != 0
        {
            return Launched::No;
        }
        let header = header(PacketKind::Eager, args, buf.signature.bits());
        let sent = if buf.len <= limits.short {
            // SAFETY: the caller vouches for the buffer and the peer; the length was checked.
            unsafe { self.transport.send_short(peer, &header, buf.ptr, buf.len) }
        } else if waited && self.proto.is_waited_for() {
            // SAFETY: as above; `eager` is at most `bulk`.
            unsafe { self.transport.send_growing(peer, &header, buf.ptr, buf.len) }
        } else {
            // SAFETY: as above.
            unsafe {
                self.transport
                    .send_bulk_from(peer, &header, buf.ptr, buf.len)
            }
        };
        if sent == Sent::Done {
            self.count_eager(buf.len);
            return Launched::Yes;
        }
        Launched::No
    }

    /// The same for items of a layout, packed straight into the transport's memory.
    ///
    /// # Safety
    /// `args` must be legal and every byte that the layout covers readable.
    #[inline]
    pub(in crate::engine) unsafe fn try_eager_typed(
        &mut self,
        args: &SendArgs,
        buf: &TypedBuf<'_>,
        bytes: usize,
        signature: Signature,
    ) -> Launched {
        let peer = args.dest.index();
        if bytes > self.proto.limits.eager
            || args.mode == SendMode::Synchronous
            || peer == self.proto.me
            || self.proto.peers[peer as usize].flags != 0
        {
            return Launched::No;
        }
        let header = header(PacketKind::Eager, args, signature.bits());
        // SAFETY: the caller vouches for the buffer; `bytes` is the packed size, all of which is
        // written.
        let pack = |target: *mut u8| unsafe {
            buf.layout
                .pack_range(buf.ptr, buf.count, 0, target, bytes, args.rep);
        };
        let sent = if bytes <= self.proto.limits.short.min(IN_ENVELOPE) {
            let mut packed = [const { MaybeUninit::<u8>::uninit() }; IN_ENVELOPE];
            pack(packed.as_mut_ptr().cast());
            // SAFETY: the caller vouches for the peer; `pack` wrote the first `bytes` of `packed`,
            // and they are no more than `short`.
            unsafe {
                self.transport
                    .send_short(peer, &header, packed.as_ptr().cast(), bytes)
            }
        } else {
            // SAFETY: the caller vouches for the peer; `eager` is at most `bulk`, and `pack` writes
            // all of it.
            unsafe { self.transport.send_bulk(peer, &header, bytes, pack) }
        };
        if sent == Sent::Done {
            self.count_eager(bytes);
            return Launched::Yes;
        }
        Launched::No
    }

    /// Counts a message that has left eagerly.
    #[inline]
    pub(in crate::engine) fn count_eager(&mut self, bytes: usize) {
        self.proto.counters.eager_sent += 1;
        self.proto.counters.bytes_sent += bytes as u64;
        self.proto.unpolled += 1;
    }

    /// Makes progress after [`UNPOLLED`] messages have left. A rank that only sends would otherwise
    /// never hear that a peer has no more memory for its messages. Called only once the message has
    /// its request, because a hook may take the last slot.
    #[inline]
    pub(in crate::engine) fn poll_if_due(&mut self) {
        if self.proto.unpolled >= UNPOLLED {
            self.progress();
        }
    }

    /// The request of a send whose message has already left. The caller has checked that a slot is
    /// free.
    #[inline]
    pub(in crate::engine) fn launched(&mut self) -> Result<Request> {
        let request = self.proto.table.claim_over();
        self.poll_if_due();
        request
    }

    /// Starts a send that could not leave at once.
    ///
    /// # Safety
    /// `args` must be legal; the buffer must stay readable until the request completes.
    #[cold]
    #[inline(never)]
    pub(in crate::engine) unsafe fn start_send(
        &mut self,
        args: &SendArgs,
        data: Data,
    ) -> Result<Request> {
        self.proto.check_live()?;
        let request = self.proto.table.claim(Stage::Active)?;
        NoUnwind::during(START, || {
            // SAFETY: the caller's promise.
            unsafe { self.start_send_in(request.index(), args, data, false) };
        });
        Ok(request)
    }

    /// The same for contiguous data, which may leave in pieces.
    ///
    /// # Safety
    /// As [`start_send`](Self::start_send).
    #[cold]
    #[inline(never)]
    pub(in crate::engine) unsafe fn start_contig(
        &mut self,
        args: &SendArgs,
        buf: ContigBuf,
    ) -> Result<Request> {
        let data = Data::Contig(buf);
        if buf.len > self.proto.limits.eager {
            // SAFETY: the caller's promise.
            let tried = NoUnwind::during(START, || unsafe { self.try_unasked(args, &data, false) });
            match tried {
                Launched::Yes => return self.launched(),
                Launched::Begun(request) => return Ok(request),
                Launched::No => {}
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.start_send(args, data) }
    }

    /// The same for a blocking call, which returns when the send is over.
    ///
    /// # Safety
    /// As [`start_send`](Self::start_send).
    pub(in crate::engine) unsafe fn start_waited_send(
        &mut self,
        args: &SendArgs,
        data: Data,
    ) -> Result<Request> {
        self.proto.check_live()?;
        let request = self.proto.table.claim(Stage::Active)?;
        // SAFETY: the caller's promise.
        unsafe { self.start_send_in(request.index(), args, data, true) };
        Ok(request)
    }

    /// Starts a send in a slot that is already active (a new one, or a persistent request's).
    ///
    /// # Safety
    /// As [`start_send`](Self::start_send).
    pub(in crate::engine) unsafe fn start_send_in(
        &mut self,
        index: u32,
        args: &SendArgs,
        data: Data,
        waited: bool,
    ) {
        let peer = args.dest.index();
        let state = &self.proto.peers[peer as usize];
        if state.flags == Peer::WAITING
            && let Data::Contig(buf) = data
            && buf.len <= self.proto.limits.short
            && !waited
            && args.mode != SendMode::Synchronous
            && !self.proto.trouble
        {
            let op = Queued { args: *args, buf };
            self.proto.table.entry(index).set_op(Op::Queued(op));
            return self.proto.queue_send(peer, index);
        }
        let op = SendOp {
            args: *args,
            data,
            stage: SendStage::Queued,
            waited,
            shared: false,
            word: None,
            exposure: None,
        };
        self.proto.table.entry(index).set_op(Op::Send(Box::new(op)));
        if peer == self.proto.me {
            return self.loop_send(index);
        }
        let state = &self.proto.peers[peer as usize];
        if state.flags & Peer::FAILED != 0 {
            return self.proto.fail_request(index, peer);
        }
        if self.proto.trouble
            && let Some(dead) = self.proto.failure_in(args.envelope.context)
        {
            return self.proto.fail_request(index, dead);
        }
        if state.flags & Peer::WAITING != 0 || !self.launch(index) {
            self.proto.queue_send(peer, index);
        }
    }

    /// Announces a message whose data stays here until the message is matched. `false` if there is
    /// no room.
    pub(in crate::engine) fn send_offer(&mut self, index: u32) -> bool {
        let cookie = self.proto.table.handle(index).to_short();
        let context = self
            .proto
            .table
            .send(index)
            .map(|op| op.args.envelope.context);
        let lone = context.is_some_and(|context| !self.proto.is_collective(context));
        let Some(op) = self.proto.table.send(index) else {
            return true;
        };
        let len = op.data.len();
        // A send needs no word if nobody can cancel it and no failure of a third rank can end it.
        // Without a word the receiver need not fetch its cache line.
        if op.word.is_none() && !(op.waited && lone) {
            op.word = self.transport.offer_open();
        }
        // If the message is sent in another representation, memory does not hold what is to be
        // sent.
        let plain = matches!(op.data, Data::Contig(_)) || op.args.rep == MsgRep::Native;
        if op.exposure.is_none()
            && plain
            && let Some((ptr, len)) = op.data.contiguous()
        {
            // SAFETY: the sender leaves the buffer to the device until the request completes, and
            // the exposure is withdrawn before that.
            op.exposure = unsafe { self.transport.expose(ptr, len) };
            self.proto.exposed += u32::from(op.exposure.is_some());
        } else if op.exposure.is_none()
            && let Some(data) = op.data.driven()
            && self.transport.serves(data.at(0), data.kind())
        {
            // SAFETY: as above, for memory that the transport reads like the host's.
            op.exposure = unsafe { self.transport.expose(data.at(0), len) };
            self.proto.exposed += u32::from(op.exposure.is_some());
        }
        let mut header = header(PacketKind::Offer, &op.args, op.data.signature(len).bits());
        header.cookie = cookie;
        if op.exposure.is_some() {
            header.flags |= flags::EXPOSED;
        }
        if op.waited {
            header.flags |= flags::WAITED;
        }
        let body = OfferBody {
            total: len as u64,
            word: op.word,
            exposure: op.exposure,
        };
        let (bytes, len) = body.to_bytes();
        let peer = op.args.dest.index();
        // SAFETY: an offer's body is shorter than any transport's `short`.
        match unsafe {
            self.transport
                .send_short(peer, &header, bytes.as_ptr(), len)
        } {
            Sent::Full => false,
            Sent::Gone => {
                self.proto.note_gone(peer);
                true
            }
            Sent::Done => {
                op.stage = SendStage::Offered;
                self.proto.counters.offers_sent += 1;
                true
            }
        }
    }

    /// Makes a request that can be started again and again.
    pub(in crate::engine) fn make_persistent(&mut self, persistent: Persistent) -> Result<Request> {
        let request = self.proto.table.claim(Stage::Inactive)?;
        self.proto.table.entry(request.index()).rare().persistent = Some(persistent);
        Ok(request)
    }

    /// Starts a persistent request again.
    pub(in crate::engine) fn start_persistent(&mut self, request: Request) -> Result<()> {
        self.proto.check_live()?;
        let (index, stage) = self.proto.table.resolve(request)?;
        let entry = self.proto.table.entry(index);
        let Some(persistent) = entry.persistent() else {
            return Err(self.proto.error(
                ErrorKind::InvalidRequest,
                format!("{request:?} is not persistent"),
                "start only requests that send_init or recv_init made",
            ));
        };
        if stage != Stage::Inactive {
            return Err(self.proto.error(
                ErrorKind::InvalidRequest,
                format!("{request:?} is active already"),
                "complete it before starting it again",
            ));
        }
        let persistent = Persistent::clone(persistent);
        entry.status = crate::status::Status::EMPTY;
        entry.rare().failure = None;
        self.proto.table.set_state(index, Stage::Active);
        NoUnwind::during(START, || match persistent {
            Persistent::Send(args, Data::Contig(buf))
                if self.proto.is_to_be_bundled(&args, buf.len) =>
            {
                self.queue_for_bundle(index, &args, buf);
            }
            // SAFETY: the maker of the persistent request promised the buffer from each start until
            // the completion.
            Persistent::Send(args, data) => unsafe {
                self.start_send_in(index, &args, data, false);
            },
            // SAFETY: as above.
            Persistent::Recv(pattern, data) => unsafe {
                self.start_recv_in(index, &pattern, data);
            },
        });
        Ok(())
    }
}

impl Proto {
    /// Completes a send.
    #[inline]
    pub(in crate::engine) fn complete_send(&mut self, index: u32) {
        self.complete(index, crate::status::Status::EMPTY);
    }

    /// An error of this rank.
    #[cold]
    pub(in crate::engine) fn error(&self, kind: ErrorKind, what: String, remedy: &str) -> Error {
        Error::new(kind, what).remedy(remedy).on_rank(self.me)
    }
}

/// The error of a buffered send that finds no room.
#[cold]
pub(in crate::engine) fn may_block(args: &SendArgs, len: usize) -> Error {
    Error::new(
        ErrorKind::MayBlock,
        format!(
            "a buffered send of {len} bytes to world rank {} would have to wait",
            args.dest.index()
        ),
    )
    .remedy("copy the message and send the copy nonblocking")
}
