//! An operation under way: its schedule inside progress.
//!
//! The hook takes steps as far as possible, and looks at pending messages again when something has
//! completed. As in blocking calls, an error in one message does not stop the rest, but the death
//! of a member does.

use std::sync::Arc;

use portolan_core::buffer::{MemoryKind, TypedBuf};
use portolan_core::comm::Lease;
use portolan_core::device::Port;
use portolan_core::matching::Pattern;
use portolan_core::{Error, ErrorKind, Group, ProcId, Request, Result, SendArgs, Status};

use crate::direct::{OfHook, Pending, Refused};
use crate::memory::Memory;
use crate::run::{PATIENCE, judge};
use crate::schedule::{Lane, Schedule, Span, Step};
use crate::scratch::Scratch;
use crate::state::{Held, OwnTags};

/// Bytes that the call that starts an operation copies or combines at once.
const AT_ONCE: usize = 8 << 10;

/// A schedule with the memory on which it runs.
pub(crate) struct Prepared {
    pub(crate) schedule: Schedule,
    pub(crate) memory: Memory,
    /// The memory that `memory` refers to, apart from the caller's buffers.
    pub(crate) scratch: Scratch,
    /// The most requests that it has under way at once: its messages and its own request.
    pub(crate) requests: usize,
    /// The tags of a persistent operation, which is over when this is.
    pub(crate) held: Option<Held>,
}

impl Prepared {
    /// Prepares a schedule for the caller's buffers. The scratch memory grows if it is too short.
    ///
    /// # Errors
    /// [`Exhausted`](portolan_core::ErrorKind::Exhausted) if there is no memory.
    pub(crate) fn new(
        schedule: Schedule,
        bases: [*mut u8; 2],
        mut scratch: Scratch,
    ) -> Result<Self> {
        let memory = Memory::new(bases, scratch.at_least(schedule.scratch())?);
        Ok(Self {
            requests: schedule.width() + 1,
            schedule,
            memory,
            scratch,
            held: None,
        })
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared")
            .field("schedule", &self.schedule)
            .finish_non_exhaustive()
    }
}

/// An operation under way, by messages or on boards.
#[derive(Debug)]
pub(crate) enum Task {
    /// By messages.
    Messages(Active),
    /// On boards.
    Board(OnBoard),
}

/// How far an operation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Went {
    /// It is over.
    Over,
    /// It waits for a message, or for another rank's store.
    Waits,
    /// It has left work to the next poll.
    Pauses,
}

impl Task {
    /// Takes the operation as far as it goes now.
    pub(crate) fn advance(&mut self, port: &mut dyn Port) -> Went {
        match self {
            Self::Messages(active) => active.advance(port),
            Self::Board(board) => board.advance(port),
        }
    }
}

/// An operation under way on boards.
#[derive(Debug)]
pub(crate) struct OnBoard {
    pub(crate) request: Request,
    pub(crate) who: Who,
    pub(crate) pending: Pending,
}

impl OnBoard {
    fn advance(&mut self, port: &mut dyn Port) -> Went {
        // SAFETY: the caller that started the operation promised the buffers until its request
        // completes.
        let mut outcome = unsafe { self.pending.advance(&mut OfHook(port)) };
        if outcome.is_none()
            && let Some(dead) = port.dead_member(&self.who.group)
        {
            // Stores that the dead rank made before its death still count.
            // SAFETY: as above.
            outcome = unsafe { self.pending.advance(&mut OfHook(port)) };
            if outcome.is_none() {
                self.pending.give_up(&mut OfHook(port));
                let ended = port.fail(self.request, dead);
                debug_assert!(ended.is_ok(), "the request is this operation's: {ended:?}");
                return Went::Over;
            }
        }
        let ended = match outcome {
            None => return Went::Waits,
            Some(Ok(())) => port.complete(self.request, Status::EMPTY),
            Some(Err(error)) => port.fail_with(self.request, error.on_rank(self.who.world_rank)),
        };
        debug_assert!(ended.is_ok(), "the request is this operation's: {ended:?}");
        Went::Over
    }
}

/// A message that has been started.
#[derive(Clone, Copy, Debug)]
struct Message {
    request: Request,
    peer: u32,
    lane: Lane,
    /// Bytes that a receive expects; `None` for a send.
    expected: Option<usize>,
}

impl Message {
    /// Whether `refused` is this message.
    fn is(&self, refused: &Refused) -> bool {
        let sends = self.expected.is_none();
        (self.peer, self.lane, sends) == (refused.peer, refused.lane, refused.sends)
    }
}

/// An operation under way by messages.
pub(crate) struct Active {
    /// The request that completes when the operation is over.
    request: Request,
    who: Who,
    tags: OwnTags,
    /// Keeps the tags from other operations, unless they are a persistent operation's.
    held: Option<Held>,
    prepared: Arc<Prepared>,
    /// The index of the next step.
    next: usize,
    /// Messages started since the last wait.
    pending: Vec<Message>,
    /// The first error.
    error: Option<Error>,
    /// Whether the rest of the schedule is skipped.
    ending: bool,
    /// Whether this is its first turn, in the call that starts it.
    starting: bool,
    /// Whether the last turn ended in the middle of a round, and left the rest of it to the next
    /// turn.
    paused: bool,
    /// Whether it did so because there was no room for a request.
    full: bool,
    /// Unsuccessful attempts to get a request while none of its own messages was under way.
    tries: u32,
    /// Its step on a board. There it sees ranks that do not agree, and some of its data may go that
    /// way.
    watch: Option<Pending>,
    /// Messages that are not started, or are cancelled, because they would have no counterpart.
    refused: Vec<Refused>,
    /// A member that has died while the others, or this rank, still needed its part on the board.
    dead: Option<ProcId>,
}

/// This rank, as its messages name it.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    pub(crate) group: Group,
    pub(crate) rank: u32,
    pub(crate) world_rank: u32,
    /// The context id of collective messages.
    pub(crate) context: u32,
    /// Keeps the context ids reserved, because the communicator may be dropped while the operation
    /// runs.
    pub(crate) _lease: Lease,
}

impl std::fmt::Debug for Active {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Active")
            .field("request", &self.request)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl Active {
    /// A new operation, no step of which has been taken.
    pub(crate) fn new(
        request: Request,
        who: Who,
        tags: OwnTags,
        prepared: Arc<Prepared>,
        watch: Option<Pending>,
    ) -> Self {
        Self {
            request,
            who,
            tags,
            held: None,
            prepared,
            next: 0,
            pending: Vec::new(),
            error: None,
            ending: false,
            starting: true,
            paused: false,
            full: false,
            tries: 0,
            watch,
            refused: Vec::new(),
            dead: None,
        }
    }

    /// A new operation that holds its tags until it is over.
    pub(crate) fn holding(
        request: Request,
        who: Who,
        held: Held,
        prepared: Arc<Prepared>,
        watch: Option<Pending>,
    ) -> Self {
        let mut new = Self::new(request, who, held.tags, prepared, watch);
        new.held = Some(held);
        new
    }

    /// The schedule whose steps it takes.
    pub(crate) fn schedule(&self) -> &Schedule {
        &self.prepared.schedule
    }

    /// The schedule and memory on which it ran.
    pub(crate) fn into_prepared(self) -> Arc<Prepared> {
        self.prepared
    }

    /// Takes all steps that can be taken now. The call that starts an operation must return at
    /// once, so it leaves long copies and combinations to the next poll.
    pub(crate) fn advance(&mut self, port: &mut dyn Port) -> Went {
        let went = self.go(port);
        self.starting = false;
        went
    }

    fn go(&mut self, port: &mut dyn Port) -> Went {
        loop {
            self.watch(port);
            let goes_on = std::mem::take(&mut self.paused) && !self.ending;
            if !goes_on && !self.settle(port) {
                return Went::Waits;
            }
            if self.ending || self.next == self.prepared.schedule.steps().len() {
                // A rank whose message has come since the last look had posted its cell before it
                // sent the message.
                self.watch(port);
                if !self.leave_board(port) {
                    return Went::Waits;
                }
                self.complete(port);
                return Went::Over;
            }
            if !self.may_send(port) {
                return Went::Waits;
            }
            self.round(port);
            if self.paused {
                let waits = std::mem::take(&mut self.full) && !self.pending.is_empty();
                return if waits { Went::Waits } else { Went::Pauses };
            }
        }
    }

    /// Looks at what the other ranks show: whether any does not agree about the operation, in which
    /// case its messages will not come; and data that goes over boards beside the messages.
    fn watch(&mut self, port: &mut dyn Port) {
        let Some(watch) = &mut self.watch else {
            return;
        };
        // SAFETY: the caller that started the operation promised the buffers until its request
        // completes.
        let seen = unsafe { watch.watch(&mut OfHook(port)) };
        if seen.ends {
            self.end_early(port);
        }
        for refused in seen.refused {
            let under_way = self.pending.iter().filter(|message| message.is(&refused));
            // The message may be over already, or may not be cancellable.
            under_way.for_each(|message| drop(port.cancel(message.request)));
            self.refused.push(refused);
        }
        if let Err(error) = seen.outcome {
            self.error.get_or_insert(error.on_rank(self.who.world_rank));
        }
    }

    /// Whether the others can see that this rank goes by messages. Without that they could not tell
    /// earlier messages from those of a rank that agrees. This waits only for operations that
    /// started before, for which the end of this one waits as well. After a death the step may
    /// never become visible, so there is no wait.
    fn may_send(&self, port: &mut dyn Port) -> bool {
        let shown = self.watch.as_ref().is_none_or(Pending::is_shown);
        shown || port.dead_member(&self.who.group).is_some()
    }

    /// Ends the step on the board; `false` while this rank still has to show its part there, or to
    /// see others.
    fn leave_board(&mut self, port: &mut dyn Port) -> bool {
        let Some(watch) = &mut self.watch else {
            return true;
        };
        if !watch.may_end() {
            let Some(dead) = port.dead_member(&self.who.group) else {
                return false;
            };
            // Stores that the dead rank made before its death still count.
            self.watch(port);
            let missing = self.watch.as_ref().is_some_and(|watch| !watch.may_end());
            self.dead = Some(dead).filter(|_| missing);
        }
        if let Some(mut watch) = self.watch.take() {
            watch.give_up(&mut OfHook(port));
        }
        true
    }

    /// Completes pending messages that are over; returns whether none is left.
    fn settle(&mut self, port: &mut dyn Port) -> bool {
        while let Some(&message) = self.pending.last() {
            if !port.is_complete(message.request) {
                return false;
            }
            let outcome = match port.test(message.request) {
                Ok(None) => return false,
                Ok(Some(status)) => Ok(status),
                Err(error) => Err(error),
            };
            self.pending.pop();
            if let Err(error) = self.judge(outcome, message.expected) {
                self.note(error, port);
            }
        }
        true
    }

    fn judge(&self, outcome: Result<Status>, expected: Option<usize>) -> Result<()> {
        let judged = judge(self.schedule(), outcome, expected);
        judged.map_err(|wrong| wrong.on_rank(self.who.world_rank))
    }

    /// Keeps the first error. After a death no message is started any more, and pending ones are
    /// cancelled where possible.
    fn note(&mut self, error: Error, port: &mut dyn Port) {
        if matches!(error.kind(), ErrorKind::PeerFailed | ErrorKind::Aborted) {
            self.end_early(port);
        }
        self.error.get_or_insert(error);
    }

    /// Takes no more steps, and cancels what is pending.
    fn end_early(&mut self, port: &mut dyn Port) {
        if self.ending {
            return;
        }
        self.ending = true;
        for message in &self.pending {
            // The message may be over already, or may not be cancellable.
            let _ = port.cancel(message.request);
        }
    }

    /// Takes the steps up to and including the next wait; in the first turn, up to the first step
    /// that takes long. If the device has no room for another request, the next turn continues.
    fn round(&mut self, port: &mut dyn Port) {
        let prepared = Arc::clone(&self.prepared);
        while let Some(step) = prepared.schedule.steps().get(self.next) {
            if self.starting && step.work() > AT_ONCE {
                self.paused = true;
                return;
            }
            if matches!(step, Step::Wait) {
                self.next += 1;
                return;
            }
            let done = self.step(port, &prepared, *step);
            if matches!(&done, Err(error) if error.kind() == ErrorKind::Exhausted)
                && (self.tries < PATIENCE || !self.pending.is_empty())
            {
                // Messages of its own free requests when they complete, however late that is, so
                // only attempts without any are counted.
                self.tries += u32::from(self.pending.is_empty());
                self.paused = !self.make_room(port);
                self.full = self.paused;
                if self.paused || self.ending {
                    return;
                }
                continue;
            }
            (self.next, self.tries) = (self.next + 1, 0);
            if let Err(error) = done {
                self.note(error.on_rank(self.who.world_rank), port);
            }
            if self.ending {
                return;
            }
        }
    }

    /// Takes a step.
    fn step(&mut self, port: &mut dyn Port, prepared: &Prepared, step: Step) -> Result<()> {
        let (schedule, memory) = (&prepared.schedule, prepared.memory);
        match step {
            Step::Wait => Ok(()),
            Step::Copy { from, to } => {
                // SAFETY: the caller that started the operation promised the buffers until its
                // request completes; the schedule does not copy to or from memory of messages under
                // way.
                unsafe { memory.copy(schedule, from, to) };
                Ok(())
            }
            // SAFETY: as above.
            Step::Combine { left, right } => unsafe { memory.combine(schedule, left, right) },
            // SAFETY: as above.
            Step::Convert { how, from, to } => unsafe {
                memory.convert(schedule, how, from, to);
                Ok(())
            },
            Step::Compare(step) => {
                // SAFETY: as above; the prelude's memory is scratch memory of this operation.
                let agreed = unsafe { memory.compare(schedule, step) };
                self.ending |= agreed.is_err();
                agreed
            }
            Step::Send { to, lane, .. } if self.refuses(to, lane, true) => Ok(()),
            Step::Recv { from, lane, .. } if self.refuses(from, lane, false) => Ok(()),
            Step::Send { to, lane, data } => self.send(port, schedule, to, lane, data),
            Step::Recv { from, lane, data } => self.recv(port, schedule, from, lane, data),
        }
    }

    /// Whether a message is not to be started.
    fn refuses(&self, peer: u32, lane: Lane, sends: bool) -> bool {
        self.refused.contains(&Refused { peer, lane, sends })
    }

    /// Completes those of this round's messages that are over; returns whether there were any.
    #[cold]
    fn make_room(&mut self, port: &mut dyn Port) -> bool {
        let before = self.pending.len();
        let over = |message: &Message| port.is_complete(message.request);
        let over: Vec<Message> = self
            .pending
            .extract_if(.., |started| over(started))
            .collect();
        for message in over {
            match port.test(message.request) {
                Ok(None) => self.pending.push(message),
                outcome => {
                    // The messages without a status have been handled above.
                    let outcome = outcome.map(|status| status.unwrap_or(Status::EMPTY));
                    if let Err(error) = self.judge(outcome, message.expected) {
                        self.note(error, port);
                    }
                }
            }
        }
        self.pending.len() < before
    }

    fn send(
        &mut self,
        port: &mut dyn Port,
        schedule: &Schedule,
        to: u32,
        lane: Lane,
        data: Span,
    ) -> Result<()> {
        let Some(dest) = self.who.group.process(to) else {
            return Err(no_such_rank(to));
        };
        let (context, tag) = (self.who.context, self.tags.lane(lane).0);
        let args = SendArgs::new(dest, context, self.who.rank, tag);
        // SAFETY: the rank, the tag and the context are the communicator's; the buffer does not
        // change until the request is over, for which the operation waits.
        let request = unsafe { port.isend(&args, self.buffer(schedule, data)) }?;
        let message = Message {
            request,
            peer: to,
            lane,
            expected: None,
        };
        self.pending.push(message);
        Ok(())
    }

    fn recv(
        &mut self,
        port: &mut dyn Port,
        schedule: &Schedule,
        from: u32,
        lane: Lane,
        data: Span,
    ) -> Result<()> {
        let pattern = Pattern {
            context: self.who.context,
            source: Some(from),
            tag: Some(self.tags.lane(lane).0),
        };
        // SAFETY: as for sends; nothing else uses the buffer until then.
        let request = unsafe { port.irecv(&pattern, self.buffer(schedule, data)) }?;
        let message = Message {
            request,
            peer: from,
            lane,
            expected: Some(data.len()),
        };
        self.pending.push(message);
        Ok(())
    }

    fn buffer<'a>(&self, schedule: &'a Schedule, data: Span) -> TypedBuf<'a> {
        TypedBuf {
            ptr: self.prepared.memory.at(data),
            count: data.count,
            layout: schedule.layout(data.layout),
            memory: MemoryKind::Host,
        }
    }

    fn complete(&mut self, port: &mut dyn Port) {
        // Before the request completes: a blocking operation may wait for the tags
        // (`State::await_tags`).
        self.held = None;
        let ended = match (self.error.take(), self.dead) {
            (Some(error), _) => port.fail_with(self.request, error),
            (None, Some(dead)) => port.fail(self.request, dead),
            (None, None) => port.complete(self.request, Status::EMPTY),
        };
        debug_assert!(ended.is_ok(), "the request is this operation's: {ended:?}");
    }
}

#[cold]
fn no_such_rank(rank: u32) -> Error {
    let what = format!("a schedule names rank {rank}, which is not in its communicator");
    Error::new(ErrorKind::Internal, what).remedy("please report it")
}
