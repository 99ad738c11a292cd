//! What the engine keeps for each request slot.

use std::ops::Range;
use std::sync::Arc;

use portolan_datatype::MsgRep;

use crate::ahead::prefetch;
use crate::buffer::ContigBuf;
use crate::device::{Completion, Persistent, SendArgs, SendMode, Upper};
use crate::engine::data::Data;
use crate::engine::long::flows::Landing;
use crate::engine::one_sided::remote::RemoteOp;
use crate::engine::shared::Shared;
use crate::error::{Error, ErrorKind, Result};
use crate::matching::{PostedId, UnexpectedId, Wanted};
use crate::request::{Request, State};
use crate::status::Status;
use crate::transport::{Exposure, Header};

/// One request: two cache lines, so that indexing is a shift and not a multiplication.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Entry {
    pub(super) op: Op,
    /// The outcome; valid only once the operation is over. Before that, it is the status of an
    /// earlier operation that succeeded.
    pub(super) status: Status,
    /// State that few requests have. It is behind one pointer, so that the others pay a single test
    /// for all of it.
    pub(super) rare: Option<Box<Rare>>,
}

const _: () = assert!(size_of::<Entry>() == 128);

/// See [`Entry::rare`].
#[derive(Debug, Default)]
pub(super) struct Rare {
    /// World rank and reason of the peer whose failure ended the operation.
    pub(super) failure: Option<(u32, Box<str>)>,
    /// The error with which another crate ended its request.
    pub(super) error: Option<Error>,
    /// The handle was given up: the slot is freed when the operation is over.
    pub(super) abandoned: bool,
    /// A parked thread waits for the completion.
    pub(super) watched: bool,
    pub(super) persistent: Option<Persistent>,
    /// Objects kept until the operation is over. There is almost never more than one.
    pub(super) attached: Option<Completion>,
    pub(super) attached_too: Vec<Completion>,
}

/// What the request is for.
pub(super) enum Op {
    Idle,
    /// A short send that waits behind others. Most waiting sends are of this kind.
    Queued(Queued),
    /// Any other send that did not leave at once. Boxed, like a transfer below, so that a posted
    /// receive stays small.
    Send(Box<SendOp>),
    Recv(RecvOp),
    Upper(Box<dyn Upper>),
    Fetch(FetchOp),
    Remote(RemoteOp),
}

/// A short send of contiguous memory that goes with its envelope and that no call waits for. It is
/// in the peer's queue until the transport has room or until it leaves in a bundle. It allocates
/// nothing, because there may be as many of them as there are slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    pub(super) args: SendArgs,
    pub(super) buf: ContigBuf,
}

impl Queued {
    /// The same send as a `SendOp`, which may take any way.
    fn in_full(self) -> SendOp {
        SendOp {
            args: self.args,
            data: Data::Contig(self.buf),
            stage: SendStage::Queued,
            waited: false,
            shared: false,
            word: None,
            exposure: None,
        }
    }
}

/// A send that did not leave at once.
#[derive(Debug)]
pub(super) struct SendOp {
    pub(super) args: SendArgs,
    pub(super) data: Data,
    pub(super) stage: SendStage,
    /// The call that started the send returns only when it is over, so nobody can cancel it.
    pub(super) waited: bool,
    /// The data is announced from memory that peers load themselves
    /// ([`crate::engine::long::shared`]).
    pub(super) shared: bool,
    pub(super) word: Option<u32>,
    pub(super) exposure: Option<Exposure>,
}

/// How far a send has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendStage {
    /// Waits in the peer's queue.
    Queued,
    /// Leaves in pieces, without an offer ([`crate::engine::long::pieces`]). `left`: bytes that
    /// have left.
    Unasked { left: usize },
    /// Was announced; the receiver will take or pull it.
    Offered,
    /// The receiver asked for the data; a stream carries it.
    Streaming,
    /// The receiver pulls one half of the data and asked for the other, which this rank is pushing.
    /// `acknowledged`: whether the receiver has its half already.
    Pushing { acknowledged: bool },
    /// The pushed half has been written; the receiver still pulls the other.
    Pushed,
    /// The data has left; the receiver will say when it has matched (synchronous mode).
    Unmatched,
    /// Waits in this rank's own unexpected queue.
    Looped(UnexpectedId),
}

/// A receive.
#[derive(Debug)]
pub(super) struct RecvOp {
    pub(super) wanted: Wanted,
    pub(super) data: Data,
    pub(super) stage: RecvStage,
}

/// How far a receive has come.
#[derive(Debug)]
pub(super) enum RecvStage {
    /// Waits for a message.
    Posted(PostedId),
    /// Matched by the call that is still processing it.
    Matched,
    /// Matched with a message from `peer` that comes in pieces; `here` bytes have arrived.
    Arriving { peer: u32, here: usize },
    /// Matched with an offer whose data is on its way.
    Transfer(Box<Transfer>),
}

/// The data of an offer on its way.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) peer: u32,
    pub(super) header: Header,
    pub(super) rep: MsgRep,
    /// Representation in which the receiver gets the data.
    pub(super) delivered: MsgRep,
    /// Bytes of the message.
    pub(super) total: u64,
    /// Bytes that go into the buffer: less than `total` if the buffer is too small.
    pub(super) wanted: usize,
    /// Where the data is, if it can be pulled.
    pub(super) exposure: Option<Exposure>,
    /// The parts of the first `wanted` bytes that this rank has still to pull (`mine`), and that
    /// the sender has still to send (`theirs`).
    pub(super) mine: Range<usize>,
    pub(super) theirs: Range<usize>,
    /// Pulling has become impossible: `mine` is requested from the sender once `theirs` has
    /// arrived.
    pub(super) stranded: bool,
    /// The buffer's exposure to the sender, for pushing.
    pub(super) opened: Option<Exposure>,
    /// Whether this transfer counts in a measured period (`long/ways.rs`).
    pub(super) measured: bool,
    /// Whether the data is pulled because the sender was absent.
    pub(super) absent: bool,
    /// The sender's `looks` count at the time when it was found absent.
    pub(super) looks: u32,
    /// The sender's driver has failed: the requested data will not come.
    pub(super) broken: bool,
    /// Moves the data that has arrived to accelerator memory.
    pub(super) landing: Option<Box<Landing>>,
}

/// A one-sided operation that fetches something from a peer.
#[derive(Debug)]
pub(super) struct FetchOp {
    pub(super) peer: u32,
    /// Null if the caller does not want the answer.
    pub(super) target: *mut u8,
    pub(super) len: usize,
    pub(super) done: usize,
    /// It is a flush: it fetches only the news that what was sent before has come.
    pub(super) flushes: bool,
}

// SAFETY: `target` is a buffer that the caller of `Device::get` or `Device::atomic` has promised to
// leave to the device until the request completes.
unsafe impl Send for FetchOp {}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Idle => f.write_str("Idle"),
            Self::Queued(op) => op.fmt(f),
            Self::Send(op) => op.fmt(f),
            Self::Recv(op) => op.fmt(f),
            Self::Upper(_) => f.write_str("Upper"),
            Self::Fetch(op) => op.fmt(f),
            Self::Remote(op) => op.fmt(f),
        }
    }
}

impl Entry {
    fn new() -> Self {
        Self {
            op: Op::Idle,
            status: Status::EMPTY,
            rare: None,
        }
    }

    /// Replaces the operation. The usual operations own nothing, so nothing needs to be dropped.
    #[inline]
    pub(super) fn set_op(&mut self, op: Op) {
        if self.op.owns_nothing() {
            std::mem::forget(std::mem::replace(&mut self.op, op));
        } else {
            drop_op(std::mem::replace(&mut self.op, op));
        }
    }

    /// Gives an idle slot its operation.
    #[inline(always)]
    pub(super) fn begin(&mut self, op: Op) {
        debug_assert!(matches!(self.op, Op::Idle), "one operation at a time");
        std::mem::forget(std::mem::replace(&mut self.op, op));
    }

    /// Ends an operation that owns nothing, such as a receive into contiguous memory that has just
    /// been matched.
    #[inline]
    pub(super) fn end_plainly(&mut self) {
        debug_assert!(self.op.owns_nothing(), "nothing is forgotten");
        std::mem::forget(std::mem::replace(&mut self.op, Op::Idle));
    }

    /// Writes the status of a successful operation over that of an earlier successful one: only the
    /// fields that describe the message differ.
    #[inline(always)]
    fn end_well(&mut self, status: Status) {
        self.status.source = status.source;
        self.status.tag = status.tag;
        self.status.bytes = status.bytes;
        self.status.sent = status.sent;
        debug_assert_eq!(self.status, status, "the slot held a good status");
    }

    /// Whether the slot holds nothing but, possibly, a status.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.rare.is_none() && matches!(self.op, Op::Idle)
    }

    #[inline]
    pub(super) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Whether the handle was given up while the operation goes on.
    #[inline]
    pub(super) fn is_abandoned(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.abandoned)
    }

    /// What the request starts, if it is persistent.
    #[inline]
    pub(super) fn persistent(&self) -> Option<&Persistent> {
        self.rare.as_ref()?.persistent.as_ref()
    }

    /// A line about what the request waits for; `None` if it waits for nothing.
    pub(super) fn describe(&self) -> Option<String> {
        let any = |part: Option<u32>| part.map_or("any".to_owned(), |n| n.to_string());
        if let Some((args, len, stage)) = self.op.send() {
            return Some(format!(
                "{} to world rank {} (context {}, tag {}, {len} bytes): {}",
                match args.mode {
                    SendMode::Synchronous => "synchronous send",
                    _ => "send",
                },
                args.dest.index(),
                args.envelope.context,
                args.envelope.tag,
                match stage {
                    SendStage::Queued => "waits to leave, for room or for progress",
                    SendStage::Offered => "announced, waits for the receiver",
                    SendStage::Unasked { .. }
                    | SendStage::Streaming
                    | SendStage::Pushing { .. } => "its data is being sent",
                    SendStage::Pushed => "half of its data is being pulled",
                    SendStage::Unmatched => "arrived, not yet received",
                    SendStage::Looped(_) => "to this rank itself, not yet received",
                }
            ));
        }
        match &self.op {
            Op::Recv(RecvOp {
                wanted,
                data,
                stage: RecvStage::Posted(_),
            }) => {
                let pattern = wanted.pattern();
                Some(format!(
                    "receive of up to {} bytes from rank {} (context {}, tag {}): no message yet",
                    data.len(),
                    any(pattern.source),
                    pattern.context,
                    any(pattern.tag),
                ))
            }
            Op::Recv(RecvOp {
                stage: RecvStage::Transfer(transfer),
                ..
            }) => Some(format!(
                "receive from world rank {} (context {}, tag {}): {} of {} bytes are here",
                transfer.peer,
                transfer.header.context,
                transfer.header.tag,
                transfer.wanted - transfer.mine.len() - transfer.theirs.len(),
                transfer.wanted,
            )),
            Op::Recv(RecvOp {
                wanted,
                stage: RecvStage::Arriving { peer, here },
                ..
            }) => {
                let pattern = wanted.pattern();
                Some(format!(
                    "receive from world rank {peer} (context {}, tag {}): {here} bytes are here",
                    pattern.context,
                    any(pattern.tag),
                ))
            }
            Op::Fetch(op) => Some(format!(
                "one-sided fetch of {} bytes from world rank {}",
                op.len, op.peer
            )),
            Op::Remote(op) => Some(format!(
                "one-sided operation on {} bytes of world rank {}",
                op.len(),
                op.peer
            )),
            Op::Recv(_) | Op::Idle | Op::Upper(_) | Op::Queued(_) | Op::Send(_) => None,
        }
    }
}

impl Op {
    /// Arguments, length in bytes and stage of a send, if it is one.
    #[inline]
    pub(super) fn send(&self) -> Option<(&SendArgs, usize, SendStage)> {
        match self {
            Self::Queued(op) => Some((&op.args, op.buf.len, SendStage::Queued)),
            Self::Send(op) => Some((&op.args, op.data.len(), op.stage)),
            _ => None,
        }
    }

    /// Whether dropping the operation would do nothing.
    #[inline]
    fn owns_nothing(&self) -> bool {
        match self {
            Self::Idle | Self::Queued(_) | Self::Fetch(_) => true,
            Self::Remote(op) => !op.is_driven(),
            Self::Recv(op) => {
                matches!(op.data, Data::Contig(_)) && !matches!(op.stage, RecvStage::Transfer(_))
            }
            Self::Send(_) | Self::Upper(_) => false,
        }
    }
}

#[cold]
#[inline(never)]
fn drop_op(op: Op) {
    drop(op);
}

/// The slots of a channel.
#[derive(Debug)]
pub(super) struct Table {
    entries: Vec<Entry>,
    /// The free slots, the most recently used last. Its capacity is enough for all slots.
    free: Vec<u32>,
    /// Number of active operations whose handle was given up.
    pub(super) abandoned: usize,
    shared: Arc<Shared>,
}

impl Table {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            // Slot 0 belongs to `Request::DONE`.
            entries: vec![Entry::new()],
            free: Vec::new(),
            abandoned: 0,
            shared,
        }
    }

    /// A slot for a new request, idle until it is given an operation.
    #[inline]
    pub(super) fn claim(&mut self, state: State) -> Result<Request> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.grow()?,
        };
        let entry = &mut self.entries[index as usize];
        debug_assert!(matches!(entry.op, Op::Idle), "a free slot is idle");
        if state != State::Active {
            entry.status = Status::EMPTY;
        }
        let generation = self.shared.words.set_state(index, state);
        Ok(Request::new(0, index, generation))
    }

    /// A previously used slot, for an active request.
    #[inline(always)]
    pub(super) fn claim_free(&mut self) -> Option<(Request, &mut Entry)> {
        let index = self.free.pop()?;
        let entry = &mut self.entries[index as usize];
        debug_assert!(entry.is_plain(), "a free slot is idle");
        let generation = self.shared.words.set_state(index, State::Active);
        Some((Request::new(0, index, generation), entry))
    }

    /// A slot for a request whose operation is over already, with the empty status.
    #[inline]
    pub(super) fn claim_over(&mut self) -> Result<Request> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.grow()?,
        };
        let entry = &mut self.entries[index as usize];
        debug_assert!(entry.is_plain(), "a free slot is idle");
        entry.status = Status::EMPTY;
        let generation = self.shared.words.set_quiet(index);
        Ok(Request::new(0, index, generation))
    }

    /// Completes a successful operation that owns nothing. `false` if the slot holds other state
    /// that must be handled before the request is complete.
    #[inline(always)]
    pub(super) fn end_quietly(&mut self, index: u32, status: Status) -> bool {
        let entry = &mut self.entries[index as usize];
        entry.end_plainly();
        entry.end_well(status);
        if entry.rare.is_some() {
            return false;
        }
        self.shared.words.set_quiet(index);
        true
    }

    /// Whether a request is complete and its status is all there is to return, so that
    /// [`take_quiet`](Self::take_quiet) suffices. In a window of small messages almost every wait
    /// finds its request in this state.
    #[inline]
    pub(super) fn is_quiet(&self, request: Request) -> bool {
        self.shared.words.is_quiet(request)
    }

    /// Takes the status of a request that [`is_quiet`](Self::is_quiet), and frees its slot. It
    /// returns a plain status because one inside an option would be copied in parts.
    #[inline]
    pub(super) fn take_quiet(&mut self, request: Request) -> Status {
        debug_assert!(self.is_quiet(request));
        let index = request.index();
        self.release_plain(index);
        self.entries[index as usize].status
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> Result<u32> {
        let index = self.entries.len();
        if index >= Request::MAX_ACTIVE {
            return Err(Error::new(
                ErrorKind::Exhausted,
                format!(
                    "all {} requests of this rank are active",
                    Request::MAX_ACTIVE
                ),
            )
            .remedy("complete some before starting more")
            .on_rank(self.shared.rank));
        }
        self.shared.words.reserve(index as u32);
        self.entries.push(Entry::new());
        // Reserved here so that releasing a slot never allocates.
        self.free.reserve(self.entries.len());
        Ok(index as u32)
    }

    /// Frees a slot; its handles are stale from now on.
    #[inline]
    pub(super) fn release(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        if !entry.is_plain() {
            entry.set_op(Op::Idle);
            entry.rare = None;
        }
        entry.status = Status::EMPTY;
        self.release_plain(index);
    }

    /// The same for a slot that holds nothing to drop.
    #[inline]
    pub(super) fn release_plain(&mut self, index: u32) {
        let entry = &self.entries[index as usize];
        debug_assert!(entry.is_plain(), "nothing is forgotten");
        self.free.push(index);
        self.shared.words.free(index);
    }

    /// Whether [`claim`](Self::claim) would find a slot.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.entries.len() < Request::MAX_ACTIVE
    }

    /// The slot of a handle, and its state.
    #[inline]
    pub(super) fn resolve(&self, request: Request) -> Result<(u32, State)> {
        match self.shared.words.state_of(request) {
            // An operation that was given up continues under its handle, which peers may know, but
            // the program may no longer use that handle.
            Some(state) if !self.entries[request.index() as usize].is_abandoned() => {
                Ok((request.index(), state))
            }
            _ => Err(self.stale(request)),
        }
    }

    #[cold]
    #[inline(never)]
    fn stale(&self, request: Request) -> Error {
        Error::new(
            ErrorKind::InvalidRequest,
            format!("{request:?} is not an active request"),
        )
        .remedy("a request may be completed or freed once only")
        .on_rank(self.shared.rank)
    }

    /// The slot of a handle in its 32-bit form, as it comes back from a peer; `None` if it is
    /// stale.
    #[inline]
    pub(super) fn resolve_short(&self, short: u32) -> Option<u32> {
        let index = Request::short_index(short);
        let (generation, state) = self.shared.words.get(index);
        let live = state == State::Active
            && generation & 0xfff == Request::short_generation(short)
            && (index as usize) < self.entries.len();
        live.then_some(index)
    }

    /// The handle of a slot in use.
    #[inline]
    pub(super) fn handle(&self, index: u32) -> Request {
        Request::new(0, index, self.shared.words.get(index).0)
    }

    #[inline]
    pub(super) fn set_state(&self, index: u32, state: State) {
        self.shared.words.set_state(index, state);
    }

    #[inline]
    pub(super) fn state(&self, index: u32) -> State {
        self.shared.words.get(index).1
    }

    /// Prefetches a slot's two lines and its state word.
    pub(super) fn prefetch(&self, index: u32) {
        if let Some(entry) = self.entries.get(index as usize) {
            let first: *const Entry = entry;
            prefetch(first);
            prefetch(first.cast::<u8>().wrapping_add(64));
            prefetch(self.shared.words.address(index));
        }
    }

    #[inline]
    pub(super) fn entry(&mut self, index: u32) -> &mut Entry {
        &mut self.entries[index as usize]
    }

    /// The send of a slot, if it holds one, in its full form (`SendOp`).
    pub(super) fn send(&mut self, index: u32) -> Option<&mut SendOp> {
        let entry = &mut self.entries[index as usize];
        if let Op::Queued(op) = entry.op {
            entry.set_op(Op::Send(Box::new(op.in_full())));
        }
        match &mut entry.op {
            Op::Send(op) => Some(op),
            _ => None,
        }
    }

    /// The receive of a slot, if it holds one.
    pub(super) fn recv(&mut self, index: u32) -> Option<&mut RecvOp> {
        match &mut self.entries[index as usize].op {
            Op::Recv(op) => Some(op),
            _ => None,
        }
    }

    /// The buffer and the transfer of a slot, if it holds a receive whose data is on its way.
    pub(super) fn transfer(&mut self, index: u32) -> Option<(&Data, &mut Transfer)> {
        match &mut self.entries[index as usize].op {
            Op::Recv(RecvOp {
                data,
                stage: RecvStage::Transfer(transfer),
                ..
            }) => Some((data, transfer)),
            _ => None,
        }
    }

    /// The operation of a request, if the request is active.
    pub(super) fn active_op(&self, request: Request) -> Option<&Op> {
        let active = self.shared.words.state_of(request) == Some(State::Active);
        let entry = self.entries.get(request.index() as usize)?;
        active.then_some(&entry.op)
    }

    /// Makes the completion of this request wake parked threads.
    pub(super) fn watch(&mut self, request: Request) {
        if let Ok((index, State::Active)) = self.resolve(request) {
            self.entries[index as usize].rare().watched = true;
        }
    }

    /// The active slots.
    pub(super) fn active(&self) -> impl Iterator<Item = (u32, &Entry)> {
        self.entries
            .iter()
            .enumerate()
            .map(|(index, entry)| (index as u32, entry))
            .filter(|&(index, _)| self.state(index) == State::Active)
    }

    /// The largest number of slots in use at once so far.
    pub(super) fn capacity(&self) -> usize {
        self.entries.len() - 1
    }
}
