//! An operation under way: its schedule inside progress.
//!
//! Steps are taken as far as they go; what is pending is looked at again when something has
//! completed. As in blocking calls, an error in one message does not stop the rest, and a dead
//! member does.

use std::sync::Arc;

use portolan_core::buffer::{MemoryKind, TypedBuf};
use portolan_core::comm::Lease;
use portolan_core::device::Port;
use portolan_core::matching::Pattern;
use portolan_core::{Error, ErrorKind, Group, ProcId, Request, Result, SendArgs, Status};

use crate::direct::{Pending, Refused};
use crate::memory::Memory;
use crate::run::{PATIENCE, judge};
use crate::schedule::{Lane, Schedule, Span, Step};
use crate::state::{OwnTags, Scratch};

/// Bytes that the call that starts an operation copies or combines at once.
const AT_ONCE: usize = 8 << 10;

/// A schedule with the memory that it runs on.
pub(crate) struct Prepared {
    pub(crate) schedule: Schedule,
    pub(crate) memory: Memory,
    /// What `memory` points to beside the caller's buffers.
    pub(crate) scratch: Scratch,
    /// Requests that it has under way at once, at most: its messages and its own.
    pub(crate) requests: usize,
}

impl Prepared {
    /// For a schedule and the caller's buffers. The scratch memory grows if it is too short.
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

/// An operation under way, in whichever way.
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
    /// To its end.
    Over,
    /// It waits for a message, or for another rank's store.
    Waits,
    /// It has work left for the next poll.
    Pauses,
}

impl Task {
    /// Takes it as far as it goes.
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
        // SAFETY: whoever started the operation promised the buffers until its request is complete.
        let mut outcome = unsafe { self.pending.advance(&mut |peer| port.notify(peer)) };
        if outcome.is_none()
            && let Some(dead) = port.dead_member(&self.who.group)
        {
            // What the dead have stored before counts.
            // SAFETY: as above.
            outcome = unsafe { self.pending.advance(&mut |peer| port.notify(peer)) };
            if outcome.is_none() {
                self.pending.give_up(&mut |peer| port.notify(peer));
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

/// A message that was started.
#[derive(Clone, Copy, Debug)]
struct Message {
    request: Request,
    peer: u32,
    lane: Lane,
    /// How many bytes a receive expects.
    expected: Option<usize>,
}

impl Message {
    /// Whether that is this one.
    fn is(&self, refused: &Refused) -> bool {
        let sends = self.expected.is_none();
        (self.peer, self.lane, sends) == (refused.peer, refused.lane, refused.sends)
    }
}

/// An operation under way by messages.
pub(crate) struct Active {
    /// What completes at its end.
    request: Request,
    who: Who,
    tags: OwnTags,
    prepared: Arc<Prepared>,
    /// The next step.
    next: usize,
    /// What was started since the last wait.
    pending: Vec<Message>,
    /// The first thing that went wrong.
    error: Option<Error>,
    /// Whether the rest of the schedule is not taken.
    ending: bool,
    /// Whether this is its first turn, in the call that starts it.
    starting: bool,
    /// Whether a turn has left something to the next, in the middle of a round.
    paused: bool,
    /// Whether it did so because there was no room for a request.
    full: bool,
    /// Looks for room for a request, without success, while none of its own was under way.
    tries: u32,
    /// Its step on a board, where ranks that do not agree are seen, and some of its data may be.
    watch: Option<Pending>,
    /// Messages that are left away: they would meet none.
    refused: Vec<Refused>,
    /// A member that has died, and for which the others, or this rank, have waited on the board.
    dead: Option<ProcId>,
}

/// The rank as its messages name it.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    pub(crate) group: Group,
    pub(crate) rank: u32,
    pub(crate) world_rank: u32,
    /// Context of collective messages.
    pub(crate) context: u32,
    /// The communicator may go meanwhile; its contexts may not.
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
    /// An operation of which no step was taken.
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

    /// The steps that it takes.
    pub(crate) fn schedule(&self) -> &Schedule {
        &self.prepared.schedule
    }

    /// What it ran on.
    pub(crate) fn into_prepared(self) -> Arc<Prepared> {
        self.prepared
    }

    /// Takes all steps that can be taken. The call that starts an operation is to return at once:
    /// it leaves long copies and combinations to the next poll.
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
                // Whoever sent what has come since the last look had shown its cell before.
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

    /// Looks at what others show: at ranks that do not agree about the operation, whose part in the
    /// messages is not to come, and at data beside messages.
    fn watch(&mut self, port: &mut dyn Port) {
        let Some(watch) = &mut self.watch else {
            return;
        };
        // SAFETY: whoever started the operation promised the buffers until its request is complete.
        let seen = unsafe { watch.watch(&mut |peer| port.notify(peer)) };
        if seen.ends {
            self.end_early(port);
        }
        for refused in seen.refused {
            let under_way = self.pending.iter().filter(|message| message.is(&refused));
            // It may be over already, or not to be cancelled.
            under_way.for_each(|message| drop(port.cancel(message.request)));
            self.refused.push(refused);
        }
        if let Err(error) = seen.outcome {
            self.error.get_or_insert(error.on_rank(self.who.world_rank));
        }
    }

    /// Whether the others can see that this rank goes by messages: what came before that, they
    /// could not tell from messages of a rank that agrees. It waits only for operations that
    /// started before, as its end would. After a death nobody may come to see it.
    fn may_send(&self, port: &mut dyn Port) -> bool {
        let shown = self.watch.as_ref().is_none_or(Pending::is_shown);
        shown || port.dead_member(&self.who.group).is_some()
    }

    /// Ends the step on the board; `false` as long as it has yet to be shown, or to be seen, there.
    fn leave_board(&mut self, port: &mut dyn Port) -> bool {
        let Some(watch) = &mut self.watch else {
            return true;
        };
        if !watch.may_end() {
            let Some(dead) = port.dead_member(&self.who.group) else {
                return false;
            };
            // What the dead have stored before counts.
            self.watch(port);
            let missing = self.watch.as_ref().is_some_and(|watch| !watch.may_end());
            self.dead = Some(dead).filter(|_| missing);
        }
        if let Some(mut watch) = self.watch.take() {
            watch.give_up(&mut |peer| port.notify(peer));
        }
        true
    }

    /// Completes what has come to its end; says whether nothing is pending any more.
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

    /// Keeps the first error. After a death nothing more is started, and what can be cancelled is.
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
            // It may be over already, or not to be cancelled.
            let _ = port.cancel(message.request);
        }
    }

    /// Takes the steps up to and with the next wait; in the first turn up to work that takes long.
    /// Where the device has no room for another request the next turn goes on.
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
                // Messages of its own make room when they are over, however late that is.
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

    /// Takes a step that is no wait.
    fn step(&mut self, port: &mut dyn Port, prepared: &Prepared, step: Step) -> Result<()> {
        let (schedule, memory) = (&prepared.schedule, prepared.memory);
        match step {
            Step::Wait => Ok(()),
            Step::Copy { from, to } => {
                // SAFETY: whoever started the operation promised the buffers until its request is
                // complete; the schedule keeps what it copies apart from what is under way.
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

    /// Whether a message is left away.
    fn refuses(&self, peer: u32, lane: Lane, sends: bool) -> bool {
        self.refused.contains(&Refused { peer, lane, sends })
    }

    /// Completes those of this round's messages that are over; says whether there were any.
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
                    // What is not there was looked at above.
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
        // SAFETY: the rank, the tag and the context are the communicator's; the buffer stays as it
        // is until the request is over, which the operation waits for.
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
        // SAFETY: as for sends; nobody else uses the buffer until then.
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
