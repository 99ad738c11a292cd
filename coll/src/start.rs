//! Nonblocking and persistent forms: schedules that run inside progress.
//!
//! One hook per rank of a job advances all operations that are under way, on all communicators. A call hands
//! its operation to the hook through a short list, wakes it, and lets the device make progress once; the
//! operation completes a request in the device's one table, so that it can be waited for with any
//! others. While nothing is under way the hook sleeps and costs nothing.
//!
//! The hook runs under the device's lock: it starts and tests messages through the [`Port`] only. Operators run
//! there too, so an operator of the program must not communicate.

use std::sync::{Arc, Mutex, OnceLock};

use portolan_core::buffer::{MemoryKind, TypedBuf};
use portolan_core::comm::Communicator;
use portolan_core::device::{Check, HookId, Port, Turn, Upper};
use portolan_core::matching::Pattern;
use portolan_core::{Device, Error, ErrorKind, Group, Request, Result, SendArgs, Status};

use crate::args::Operation;
use crate::compare::Form;
use crate::counters::Counters;
use crate::memory::Memory;
use crate::plan::plan;
use crate::run::{Started, wrong_length};
use crate::schedule::{Lane, Schedule, Span, Step};
use crate::state::{self, Job, OwnTags, Scratch, State, lock};

/// What a rank's hook and its calls share.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    hook: OnceLock<HookId>,
    /// Operations that the hook has not seen yet.
    fresh: Arc<Mutex<Vec<Active>>>,
}

/// An operation under way.
struct Active {
    /// What completes at its end.
    request: Request,
    who: Who,
    tags: OwnTags,
    schedule: Arc<Schedule>,
    memory: Memory,
    /// What `memory` points to, until the operation is over.
    _scratch: Arc<Scratch>,
    /// The next step.
    next: usize,
    /// What was started since the last wait.
    pending: Vec<Started>,
    /// The first thing that went wrong.
    error: Option<Error>,
    /// Whether the rest of the schedule is not taken.
    ending: bool,
}

/// The rank as its messages name it.
#[derive(Clone, Debug)]
struct Who {
    group: Group,
    rank: u32,
    world_rank: u32,
    /// Context of collective messages.
    context: u32,
}

impl std::fmt::Debug for Active {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Active")
            .field("request", &self.request)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

/// The collective's side of its request.
struct Collective;

/// No query of its own; it cannot be cancelled (MPI-4 section 3.8.4).
impl Upper for Collective {}

/// Starts a collective operation; the request completes when this rank's part in it is over.
///
/// # Errors
/// As [`run`](crate::run()) for what is wrong with the arguments; what goes wrong later comes out of the call that
/// completes the request. [`Exhausted`](ErrorKind::Exhausted) when there are no more request slots.
///
/// # Safety
/// As [`run`](crate::run()), until the request completes. Arrays of counts, displacements and layouts are used
/// only during the call.
pub unsafe fn start<D: Device>(
    comm: &Communicator<D>,
    operation: &Operation<'_>,
) -> Result<Request> {
    let (state, job) = (state::of(comm), state::of_job(comm));
    let plan = plan(
        comm,
        &job.options,
        operation,
        Form::Nonblocking,
        Schedule::default(),
    )?;
    let mut scratch = Scratch::default();
    let memory = Memory::new(plan.bases, scratch.at_least(plan.schedule.scratch()));
    let tags = state.tags().started(state.begin());
    let schedule = Arc::new(plan.schedule);
    let scratch = Arc::new(scratch);
    launch(comm, state, job, tags, schedule, memory, scratch)
}

/// A collective operation that can be started again and again (MPI-4 section 6.13).
///
/// Made by all ranks in the same order; it may be started in another order than others.
#[derive(Debug)]
pub struct Persistent<D: Device> {
    comm: Communicator<D>,
    tags: OwnTags,
    schedule: Arc<Schedule>,
    memory: Memory,
    scratch: Arc<Scratch>,
    /// The request of the last start.
    last: Request,
}

impl<D: Device> Persistent<D> {
    /// Plans an operation. Nothing is sent.
    ///
    /// # Errors
    /// As [`run`](crate::run()) for what is wrong with the arguments.
    pub fn new(comm: &Communicator<D>, operation: &Operation<'_>) -> Result<Self> {
        let (state, job) = (state::of(comm), state::of_job(comm));
        let plan = plan(
            comm,
            &job.options,
            operation,
            Form::Persistent,
            Schedule::default(),
        )?;
        let mut scratch = Scratch::default();
        let memory = Memory::new(plan.bases, scratch.at_least(plan.schedule.scratch()));
        Ok(Self {
            comm: comm.clone(),
            tags: state.tags().reserved(state.reserve()),
            schedule: Arc::new(plan.schedule),
            memory,
            scratch: Arc::new(scratch),
            last: Request::NULL,
        })
    }

    /// Starts it (`MPI_Start`).
    ///
    /// # Errors
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) if the request of the last start has not been waited for;
    /// [`Exhausted`](ErrorKind::Exhausted) when there are no more request slots;
    /// [`PeerFailed`](ErrorKind::PeerFailed).
    ///
    /// # Safety
    /// As [`start`], with the buffers that the operation was made with.
    pub unsafe fn start(&mut self) -> Result<Request> {
        // A request that has been completed by a wait or test is stale now.
        if self.last != Request::NULL && self.comm.device().peek(self.last).is_ok() {
            return Err(self.comm.error(
                ErrorKind::InvalidRequest,
                "a persistent collective operation is started again before it was completed"
                    .to_owned(),
                "wait for the request of the last start first",
            ));
        }
        self.comm.check_members()?;
        let (state, job) = (state::of(&self.comm), state::of_job(&self.comm));
        let (schedule, scratch) = (Arc::clone(&self.schedule), Arc::clone(&self.scratch));
        self.last = launch(
            &self.comm,
            state,
            job,
            self.tags,
            schedule,
            self.memory,
            scratch,
        )?;
        Ok(self.last)
    }
}

fn launch<D: Device>(
    comm: &Communicator<D>,
    state: &State,
    job: &Job,
    tags: OwnTags,
    schedule: Arc<Schedule>,
    memory: Memory,
    scratch: Arc<Scratch>,
) -> Result<Request> {
    let device = comm.device();
    let request = device.upper_request(Box::new(Collective))?;
    state.count(Counters::Operations, 1);
    state.count(Counters::Messages, schedule.messages() as u64);
    state.count(Counters::Bytes, schedule.sent_bytes() as u64);
    state.count(Counters::Waits, schedule.waits() as u64);
    let active = Active {
        request,
        who: Who {
            group: comm.group().clone(),
            rank: comm.rank(),
            world_rank: device.attributes().world_rank,
            context: comm.context() + 1,
        },
        tags,
        schedule,
        memory,
        _scratch: scratch,
        next: 0,
        pending: Vec::new(),
        error: None,
        ending: false,
    };
    lock(&job.progress.fresh).push(active);
    let hook = job.progress.hook.get_or_init(|| {
        let fresh = Arc::clone(&job.progress.fresh);
        let mut under_way = Vec::new();
        device.register_hook(Box::new(move |port| turn(&fresh, &mut under_way, port)))
    });
    device.wake_hook(*hook);
    // The first messages leave now. What fails here fails the operation, too.
    let _ = device.device_check(Check::NonBlocking);
    Ok(request)
}

/// The hook: advances everything as far as it goes.
fn turn(fresh: &Mutex<Vec<Active>>, under_way: &mut Vec<Active>, port: &mut dyn Port) -> Turn {
    under_way.append(&mut lock(fresh));
    under_way.retain_mut(|active| !active.advance(port));
    if under_way.is_empty() {
        Turn::Sleep
    } else {
        Turn::Idle
    }
}

impl Active {
    /// Takes all steps that can be taken; says whether the operation is over.
    fn advance(&mut self, port: &mut dyn Port) -> bool {
        loop {
            if !self.settle(port) {
                return false;
            }
            if self.ending || self.next == self.schedule.steps().len() {
                self.complete(port);
                return true;
            }
            self.round(port);
        }
    }

    /// Completes what has come to its end; says whether nothing is pending any more.
    fn settle(&mut self, port: &mut dyn Port) -> bool {
        while let Some(&(request, expected)) = self.pending.last() {
            if !port.is_complete(request) {
                return false;
            }
            let outcome = match port.test(request) {
                Ok(None) => return false,
                Ok(Some(status)) => self.check_len(&status, expected),
                Err(error) => Err(error),
            };
            self.pending.pop();
            if let Err(error) = outcome {
                self.note(error, port);
            }
        }
        true
    }

    fn check_len(&self, status: &Status, expected: Option<usize>) -> Result<()> {
        match expected {
            Some(expected) if status.bytes != expected as u64 && !status.cancelled => {
                Err(wrong_length(status, expected).on_rank(self.who.world_rank))
            }
            _ => Ok(()),
        }
    }

    /// Keeps the first error. After a death nothing more is started, and what can be cancelled is.
    fn note(&mut self, error: Error, port: &mut dyn Port) {
        if matches!(error.kind(), ErrorKind::PeerFailed | ErrorKind::Aborted) && !self.ending {
            self.ending = true;
            for &(request, _) in &self.pending {
                // It may be over already, or not to be cancelled.
                let _ = port.cancel(request);
            }
        }
        self.error.get_or_insert(error);
    }

    /// Takes the steps up to and with the next wait.
    fn round(&mut self, port: &mut dyn Port) {
        let schedule = Arc::clone(&self.schedule);
        while let Some(step) = schedule.steps().get(self.next) {
            self.next += 1;
            let done = match *step {
                Step::Wait => return,
                Step::Copy { from, to } => {
                    // SAFETY: whoever started the operation promised the buffers until its request is
                    // complete; the schedule keeps what it copies apart from what is under way.
                    unsafe { self.memory.copy(&schedule, from, to) };
                    Ok(())
                }
                // SAFETY: as above.
                Step::Combine { left, right } => unsafe {
                    self.memory.combine(&schedule, left, right)
                },
                // SAFETY: as above.
                Step::Convert { how, from, to } => unsafe {
                    self.memory.convert(&schedule, how, from, to);
                    Ok(())
                },
                Step::Compare(step) => {
                    // SAFETY: as above; the prelude's memory is scratch memory of this operation.
                    let agreed = unsafe { self.memory.compare(&schedule, step) };
                    self.ending |= agreed.is_err();
                    agreed
                }
                Step::Send { to, lane, data } => self.send(port, &schedule, to, lane, data),
                Step::Recv { from, lane, data } => self.recv(port, &schedule, from, lane, data),
            };
            if let Err(error) = done {
                self.note(error.on_rank(self.who.world_rank), port);
            }
            if self.ending {
                return;
            }
        }
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
        // SAFETY: the rank, the tag and the context are the communicator's; the buffer stays as it is until the
        // request is over, which the operation waits for.
        let request = unsafe { port.isend(&args, self.buffer(schedule, data)) }?;
        self.pending.push((request, None));
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
        self.pending.push((request, Some(data.len())));
        Ok(())
    }

    fn buffer<'a>(&self, schedule: &'a Schedule, data: Span) -> TypedBuf<'a> {
        TypedBuf {
            ptr: self.memory.at(data),
            count: data.count,
            layout: schedule.layout(data.layout),
            memory: MemoryKind::Host,
        }
    }

    fn complete(&mut self, port: &mut dyn Port) {
        let ended = match self.error.take() {
            None => port.complete(self.request, Status::EMPTY),
            Some(error) => port.fail_with(self.request, error),
        };
        debug_assert!(ended.is_ok(), "the request is this operation's: {ended:?}");
    }
}

#[cold]
fn no_such_rank(rank: u32) -> Error {
    let what = format!("a schedule names rank {rank}, which is not in its communicator");
    Error::new(ErrorKind::Internal, what).remedy("please report it")
}
