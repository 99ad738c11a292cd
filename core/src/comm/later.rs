//! Duplicates whose context is agreed on in the background (`MPI_Comm_idup`).
//!
//! The agreement is that of `context.rs`, advanced step by step by a hook. Agreements of one
//! communicator run one after the other, in the order of the calls, which is the same on every
//! rank. Agreements of different communicators, and blocking creations, run alongside. Blocking
//! creations never wait for one in the background, which makes no progress while some rank makes no
//! calls; it has ids of its own for that reason. Background agreements do wait for each other's
//! masks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};

use super::attributes::Attributes;
use super::context::{COLLECTIVE, Claim, Key, Kind, Offer, Pool, WORDS, Whom, no_id_left};
use super::gate::Gate;
use super::tags::Of;
use super::{Communicator, Errors, Lease, Tag, lock};
use crate::buffer::{MemoryKind, TypedBuf};
use crate::device::{Check, Device, HookId, Port, SendArgs, Turn, Upper};
use crate::error::{Error, ErrorKind, Result};
use crate::group::Group;
use crate::matching::Pattern;
use crate::request::Request;
use crate::status::Status;
use portolan_datatype::Layout;

/// One tag serves all rounds, because at most one message per intersection goes from any rank to
/// any other.
const TAG: Tag = Of::Later.tag();
/// Bytes per message.
const LEN: usize = size_of::<Offer>();

/// State that a rank's hook shares with its calls.
#[derive(Debug, Default)]
pub(super) struct Later {
    hook: OnceLock<HookId>,
    /// Agreements that the hook has not picked up yet.
    fresh: Arc<Mutex<VecDeque<Agreement>>>,
}

/// The state of an agreement, shared by the hook and the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Pending,
    /// Agreed on this context, which has been taken on this rank.
    Agreed(u32),
    /// The context has been handed out, or is no longer wanted, or there is none.
    Over,
}

/// The caller's side of its request. It cannot be cancelled, because the other ranks take part.
struct Duplicate;

impl Upper for Duplicate {}

/// A duplicate that is being made ([`Communicator::idup`]).
///
/// Dropping it gives up the duplicate. The agreement still runs to its end, because the other ranks
/// take part in it.
#[must_use = "dropping it gives the duplicate up"]
pub struct PendingDup<D: Device> {
    parent: Communicator<D>,
    request: Request,
    outcome: Arc<Mutex<Outcome>>,
    // As they were at the time of the call.
    attributes: Attributes,
    errors: Errors,
}

impl<D: Device> Communicator<D> {
    /// Starts to make a communicator with the same group and contexts of its own (`MPI_Comm_idup`);
    /// [`PendingDup::wait`] returns it. It inherits attributes and error mode as they are now.
    ///
    /// Collective: all ranks call it in the same order relative to their creations and collective
    /// operations on this communicator. Any number may be under way at once. Blocking creations may
    /// run meanwhile and do not wait for them. An `idup` of another communicator, however, may have
    /// to wait until this one is done if the two have a rank in common.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) when no request slot is left;
    /// [`PeerFailed`](ErrorKind::PeerFailed); that of a copy hook. If it returns an
    /// error on one rank, it has had no effect there, and the other ranks wait until that rank
    /// calls it again.
    pub fn idup(&self) -> Result<PendingDup<D>> {
        self.idup_after(|| Ok(None))
    }

    /// Like [`idup`](Self::idup), but sends its first message only when a request has completed
    /// that `first` returns, if it returns one. The duplicate owns that request, which is one of
    /// this rank. If the request ends with an error, so does the duplicate, without sending a
    /// message.
    ///
    /// `first` is called when nothing else can fail on this rank any more. So it may start
    /// something that cannot be taken back, such as an operation of all ranks.
    ///
    /// # Errors
    /// As [`idup`](Self::idup), before `first` is called; those of `first`.
    pub fn idup_after(
        &self,
        first: impl FnOnce() -> Result<Option<Request>>,
    ) -> Result<PendingDup<D>> {
        let ready = self.ready_to_dup()?;
        Ok(ready.begin(first()?.map(Gate::new)))
    }

    /// Does the part of [`idup`](Self::idup) that may fail on this rank alone. No other rank learns
    /// of it.
    pub(super) fn ready_to_dup(&self) -> Result<Ready<'_, D>> {
        self.check_members()?;
        // First, because the copy hooks belong to the program and may fail or panic: nothing has
        // begun yet that could be left behind.
        let attributes = self.copied_attributes()?;
        // Here, because the agreement itself runs inside progress, where no message can be looked
        // for.
        self.sweep(self.kind_of_later(), false);
        let request = self.device().upper_request(Box::new(Duplicate))?;
        Ok(Ready {
            parent: self,
            request,
            attributes,
        })
    }

    fn kind_of_later(&self) -> Kind {
        match self.size() {
            1 => Kind::OfOne,
            _ => Kind::Later,
        }
    }
}

/// A duplicate for which this rank has everything that it may lack, and of which no other rank
/// knows yet. Dropping it leaves nothing behind.
pub(super) struct Ready<'a, D: Device> {
    parent: &'a Communicator<D>,
    request: Request,
    attributes: Attributes,
}

impl<D: Device> Ready<'_, D> {
    /// Begins the agreement, behind a gate if there is one. From here on other ranks take part, so
    /// nothing may fail on this rank alone.
    pub(super) fn begin(mut self, gate: Option<Arc<Gate>>) -> PendingDup<D> {
        let parent = self.parent;
        let request = std::mem::replace(&mut self.request, Request::NULL);
        let (device, job) = (parent.device(), &parent.0.job);
        let outcome = Arc::new(Mutex::new(Outcome::Pending));
        let agreement = Agreement {
            request,
            outcome: Arc::clone(&outcome),
            group: parent.group().clone(),
            rank: parent.rank(),
            world_rank: device.attributes().world_rank,
            context: parent.context(),
            pool: Arc::clone(&job.pool),
            gate,
            claim: None,
            offers_all: false,
            distance: 0,
            words: [0; WORDS + 1],
            sent: vec![0; LEN],
            received: vec![0; LEN],
            layout: Layout::byte(),
            pending: [None; 2],
            error: None,
            ended: false,
            _lease: parent.lease(),
        };
        let Later { hook, fresh } = &job.later;
        lock(fresh).push_back(agreement);
        let hook = hook.get_or_init(|| {
            let fresh = Arc::clone(fresh);
            let mut under_way = Vec::new();
            device.register_hook(Box::new(move |port| turn(&fresh, &mut under_way, port)))
        });
        device.wake_hook(*hook);
        // Sends the first messages now. An error here fails the agreement as well.
        let _ = device.device_check(Check::NonBlocking);
        PendingDup {
            parent: parent.clone(),
            request,
            outcome,
            attributes: std::mem::take(&mut self.attributes),
            errors: parent.errors(),
        }
    }
}

impl<D: Device> Drop for Ready<'_, D> {
    fn drop(&mut self) {
        if self.request != Request::NULL {
            let device = self.parent.device();
            // A request that is freed keeps its slot until it is over. An error means that the
            // device has been ended.
            let _ = device.complete_upper(self.request, Status::EMPTY);
            let _ = device.free(self.request);
        }
    }
}

impl<D: Device> PendingDup<D> {
    /// The request, for testing or waiting along with others. Only [`wait`](Self::wait) may
    /// complete or free it.
    #[must_use]
    pub fn request(&self) -> Request {
        self.request
    }

    /// The communicator that is being duplicated.
    #[must_use]
    pub fn parent(&self) -> &Communicator<D> {
        &self.parent
    }

    /// Whether [`wait`](Self::wait) would return at once. Makes progress.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        // An error counts as complete too: the next call returns it.
        !matches!(self.parent.device().peek(self.request), Ok(None))
    }

    /// Waits until the duplicate is made, and returns it.
    ///
    /// # Errors
    /// As [`Communicator::dup`].
    pub fn wait(mut self) -> Result<Communicator<D>> {
        let context = self.context()?;
        let (group, topology) = (self.parent.group().clone(), self.parent.0.topology.clone());
        let new = self
            .parent
            .derive(group, self.parent.rank(), context, topology)?;
        new.set_errors(self.errors);
        new.set_attributes(std::mem::take(&mut self.attributes));
        Ok(new)
    }

    /// Waits for the context only. The caller owns it afterwards.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub(super) fn wait_for_context(mut self) -> Result<u32> {
        self.context()
    }

    fn context(&mut self) -> Result<u32> {
        let request = std::mem::replace(&mut self.request, Request::NULL);
        self.parent.device().wait(request)?;
        let outcome = std::mem::replace(&mut *lock(&self.outcome), Outcome::Over);
        match outcome {
            Outcome::Agreed(context) => Ok(context),
            _ => Err(self.parent.error(
                ErrorKind::Internal,
                "an agreement has ended without a context".to_owned(),
                "please report it",
            )),
        }
    }
}

impl<D: Device> std::fmt::Debug for PendingDup<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingDup")
            .field("context", &self.parent.context())
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

impl<D: Device> Drop for PendingDup<D> {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut *lock(&self.outcome), Outcome::Over);
        if let Outcome::Agreed(context) = outcome {
            // Other ranks may have sent already.
            self.parent.0.job.pool.release_unswept(context);
        }
        if self.request != Request::NULL {
            // The request may be over already.
            let _ = self.parent.device().free(self.request);
        }
    }
}

/// The hook: advances every agreement as far as possible.
fn turn(
    fresh: &Mutex<VecDeque<Agreement>>,
    under_way: &mut Vec<Agreement>,
    port: &mut dyn Port,
) -> Turn {
    under_way.extend(lock(fresh).drain(..));
    let mut again = false;
    let mut at = 0;
    while at < under_way.len() {
        let (before, rest) = under_way.split_at_mut(at);
        let agreement = &mut rest[0];
        let first = |other: &Agreement| other.context != agreement.context || other.ended;
        if !before.iter().all(first) {
            at += 1;
            continue;
        }
        match agreement.advance(port) {
            Going::Over => drop(under_way.remove(at)),
            going => {
                again |= going == Going::Again;
                at += 1;
            }
        }
    }
    match (again, under_way.is_empty()) {
        (true, _) => Turn::Busy,
        (false, false) => Turn::Idle,
        (false, true) => Turn::Sleep,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Going {
    /// Waits for messages.
    Waits,
    /// Nothing was decided, because another creation holds the mask on this or another rank; try
    /// again at the next poll.
    Again,
    Over,
}

/// An agreement in progress.
struct Agreement {
    request: Request,
    outcome: Arc<Mutex<Outcome>>,
    group: Group,
    rank: u32,
    world_rank: u32,
    /// The parent's context id.
    context: u32,
    pool: Arc<Pool>,
    /// Nothing is sent until it is open.
    gate: Option<Arc<Gate>>,
    /// `None` until every rank has arrived.
    claim: Option<Claim>,
    /// The ids freed lately are offered, too, because the ranks had no other id in common.
    offers_all: bool,
    /// Distance between the ranks of the current exchange; 0 before the first exchange of an
    /// intersection.
    distance: u32,
    words: Offer,
    sent: Vec<u8>,
    received: Vec<u8>,
    layout: Layout,
    /// Requests that use the buffers: the send, the receive.
    pending: [Option<Request>; 2],
    error: Option<Error>,
    /// The caller's request is over, though some of `pending` may not be.
    ended: bool,
    /// The parent may be dropped meanwhile; its contexts must not be used again.
    _lease: Lease,
}

impl std::fmt::Debug for Agreement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agreement")
            .field("context", &self.context)
            .field("distance", &self.distance)
            .finish_non_exhaustive()
    }
}

impl Agreement {
    fn advance(&mut self, port: &mut dyn Port) -> Going {
        loop {
            let settled = self.settle(port) && self.is_let_in(port);
            if let Some(error) = self.error.take() {
                self.end(port, Err(error));
            }
            match (settled, self.ended) {
                (true, true) => return Going::Over,
                (true, false) => {}
                (false, _) => return Going::Waits,
            }
            self.merge();
            if self.distance < self.group.size() {
                if let Err(error) = self.exchange(port) {
                    self.error = Some(error);
                }
                continue;
            }
            self.distance = 0;
            if let Some(claim) = &self.claim
                && self.words[WORDS] == 0
            {
                claim.give_back();
                self.words = claim.offer(self.offers_all);
                return Going::Again;
            }
            if self.group.size() == 1 {
                let sweeping = self.pool.is_sweeping(Kind::OfOne);
                let taken = self.pool.take_of_one();
                if taken.is_none() && sweeping {
                    return Going::Again;
                }
                let agreed = taken.ok_or_else(|| no_id_left(1, self.pool.live()));
                self.end(port, agreed);
                continue;
            }
            let Some(claim) = &self.claim else {
                // Every rank has arrived.
                let whom = Whom::AllLater;
                let context = self.context;
                let claim = self.pool.claim(Key { context, whom });
                self.words = claim.offer(false);
                self.claim = Some(claim);
                continue;
            };
            let agreed = claim.take(&self.words);
            if agreed.is_none() && !self.offers_all {
                self.offers_all = true;
                self.words = claim.offer(true);
                continue;
            }
            let agreed = agreed.ok_or_else(|| no_id_left(self.group.size(), self.pool.live()));
            self.claim = None;
            self.end(port, agreed);
        }
    }

    /// Whether the gate, if there is one, is open. If its request failed, the agreement fails too.
    fn is_let_in(&mut self, port: &mut dyn Port) -> bool {
        let Some(gate) = self.gate.take_if(|_| !self.ended) else {
            return true;
        };
        match gate.is_open(port) {
            Ok(true) => true,
            Ok(false) => {
                self.gate = Some(gate);
                false
            }
            Err(error) => {
                self.error = Some(error);
                true
            }
        }
    }

    /// Intersects the received words with this rank's and moves on to the next exchange.
    fn merge(&mut self) {
        if self.distance == 0 {
            self.distance = 1;
            return;
        }
        let (theirs, _) = self.received.as_chunks::<8>();
        for (word, theirs) in self.words.iter_mut().zip(theirs) {
            *word &= u64::from_le_bytes(*theirs);
        }
        self.distance = self.distance.saturating_mul(2);
    }

    /// Starts a send to one rank and a receive from another.
    fn exchange(&mut self, port: &mut dyn Port) -> Result<()> {
        let (rank, size) = (u64::from(self.rank), u64::from(self.group.size()));
        let distance = u64::from(self.distance);
        let (to, from) = ((rank + distance) % size, (rank + size - distance) % size);
        for (bytes, word) in self.sent.as_chunks_mut::<8>().0.iter_mut().zip(self.words) {
            *bytes = word.to_le_bytes();
        }
        let Some(process) = self.group.process(to as u32) else {
            return Err(Error::new(
                ErrorKind::Internal,
                format!("there is no rank {to}"),
            ));
        };
        let context = self.context + COLLECTIVE;
        let args = SendArgs::new(process, context, self.rank, TAG.0);
        let pattern = Pattern {
            context,
            source: Some(from as u32),
            tag: Some(TAG.0),
        };
        let buf = |bytes: &mut Vec<u8>| TypedBuf {
            ptr: bytes.as_mut_ptr(),
            count: LEN,
            layout: &self.layout,
            memory: MemoryKind::Host,
        };
        // SAFETY: ranks, tag and context are the communicator's. The buffers belong to this
        // agreement. They are not touched before both requests are over, and the agreement is only
        // dropped after that.
        unsafe {
            self.pending[1] = Some(port.irecv(&pattern, buf(&mut self.received))?);
            self.pending[0] = Some(port.isend(&args, buf(&mut self.sent))?);
        }
        Ok(())
    }

    /// Completes the requests that are over; returns whether none is pending any more.
    fn settle(&mut self, port: &mut dyn Port) -> bool {
        for at in 0..self.pending.len() {
            let Some(request) = self.pending[at] else {
                continue;
            };
            let outcome = match port.test(request) {
                Ok(None) => continue,
                Ok(Some(status)) if at == 1 && !status.cancelled && status.bytes != LEN as u64 => {
                    Err(Error::new(
                        ErrorKind::InvalidCount,
                        format!(
                            "rank {} took part with {} bytes",
                            status.source, status.bytes
                        ),
                    )
                    .remedy("create communicators in the same order on every rank"))
                }
                Ok(Some(_)) => Ok(()),
                Err(error) => Err(error),
            };
            self.pending[at] = None;
            if let Err(error) = outcome
                && !self.ended
            {
                self.error.get_or_insert(error);
            }
        }
        self.pending.iter().all(Option::is_none)
    }

    /// Ends the caller's request, and cancels the pending messages where possible.
    fn end(&mut self, port: &mut dyn Port, agreed: Result<u32>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.claim = None;
        for request in self.pending.into_iter().flatten() {
            // The other rank may never take or send the message. Or the request is over already.
            let _ = port.cancel(request);
        }
        // An error here means that the caller has given the request up.
        let _ = match agreed {
            Ok(context) => {
                let mut outcome = lock(&self.outcome);
                match *outcome {
                    Outcome::Pending => *outcome = Outcome::Agreed(context),
                    // Other ranks may have sent already.
                    _ => self.pool.release_unswept(context),
                }
                drop(outcome);
                port.complete(self.request, Status::EMPTY)
            }
            Err(error) => port.fail_with(self.request, error.on_rank(self.world_rank)),
        };
    }
}
