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

use portolan_core::comm::Communicator;
use portolan_core::device::{Check, HookId, Port, Turn, Upper};
use portolan_core::{Device, ErrorKind, Request, Result};

use crate::active::{Active, Prepared, Who};
use crate::args::Operation;
use crate::compare::Form;
use crate::counters::Counters;
use crate::options::Options;
use crate::plan::{Plan, plan};
use crate::schedule::Schedule;
use crate::state::{self, Job, OwnTags, SPARE_MAX, Scratch, State, lock};

/// What a rank's hook and its calls share.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    hook: OnceLock<HookId>,
    shared: Arc<Shared>,
}

/// What calls hand to the hook, and get back.
#[derive(Debug, Default)]
struct Shared {
    /// Operations that the hook has not seen yet.
    fresh: Mutex<Vec<Active>>,
    /// Memory of operations that are over, for the next: fresh memory costs a page fault per page.
    spare: Mutex<Vec<(Schedule, Scratch)>>,
}

/// Spare memories that are kept.
const SPARES: usize = 16;

impl Shared {
    fn take_spare(&self) -> (Schedule, Scratch) {
        lock(&self.spare).pop().unwrap_or_default()
    }

    /// Keeps the memory of an operation that is over, unless it is large or a persistent operation's.
    fn keep(&self, prepared: Arc<Prepared>) {
        let Some(Prepared {
            mut schedule,
            scratch,
            ..
        }) = Arc::into_inner(prepared)
        else {
            return;
        };
        // Not kept with the memory: it is the program's, and may hold whatever that has put into it.
        schedule.op = None;
        let mut spare = lock(&self.spare);
        if spare.len() < SPARES && scratch.len() <= SPARE_MAX {
            spare.push((schedule, scratch));
        }
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
    let plan = |options: &Options, old| plan(comm, options, operation, Form::Nonblocking, old);
    // SAFETY: from the caller.
    unsafe { start_planned(comm, plan) }
}

/// The same for what `plan` plans, in the memory of a schedule that is not used any more.
///
/// # Safety
/// As [`start`], for the operation that is planned.
pub(crate) unsafe fn start_planned<D: Device>(
    comm: &Communicator<D>,
    plan: impl FnOnce(&Options, Schedule) -> Result<Plan>,
) -> Result<Request> {
    let (state, job) = (state::of(comm), state::of_job(comm));
    let (schedule, scratch) = job.progress.shared.take_spare();
    let plan = plan(&job.options, schedule)?;
    let prepared = Prepared::new(plan.schedule, plan.bases, scratch);
    // Before the number: without a request there is no operation, and the next has this number.
    let request = comm.device().upper_request(Box::new(Collective))?;
    let tags = state.tags().started(state.begin());
    launch(comm, state, job, request, tags, Arc::new(prepared));
    Ok(request)
}

/// A collective operation that can be started again and again (MPI-4 section 6.13).
///
/// Made by all ranks in the same order; it may be started in another order than others.
#[derive(Debug)]
pub struct Persistent<D: Device> {
    comm: Communicator<D>,
    tags: OwnTags,
    prepared: Arc<Prepared>,
    /// The request of the last start.
    last: Request,
}

impl<D: Device> Persistent<D> {
    /// Plans an operation. Nothing is sent.
    ///
    /// # Errors
    /// As [`run`](crate::run()) for what is wrong with the arguments.
    pub fn new(comm: &Communicator<D>, operation: &Operation<'_>) -> Result<Self> {
        Self::planned(comm, |options, old| {
            plan(comm, options, operation, Form::Persistent, old)
        })
    }

    /// The same for what `plan` plans.
    pub(crate) fn planned(
        comm: &Communicator<D>,
        plan: impl FnOnce(&Options, Schedule) -> Result<Plan>,
    ) -> Result<Self> {
        let (state, job) = (state::of(comm), state::of_job(comm));
        let plan = plan(&job.options, Schedule::default())?;
        let prepared = Prepared::new(plan.schedule, plan.bases, Scratch::default());
        Ok(Self {
            comm: comm.clone(),
            tags: state.tags().reserved(state.reserve()),
            prepared: Arc::new(prepared),
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
        let prepared = Arc::clone(&self.prepared);
        self.last = self.comm.device().upper_request(Box::new(Collective))?;
        launch(&self.comm, state, job, self.last, self.tags, prepared);
        Ok(self.last)
    }
}

fn launch<D: Device>(
    comm: &Communicator<D>,
    state: &State,
    job: &Job,
    request: Request,
    tags: OwnTags,
    prepared: Arc<Prepared>,
) {
    let device = comm.device();
    let schedule = &prepared.schedule;
    state.count(Counters::Operations, 1);
    state.count(Counters::Messages, schedule.messages() as u64);
    state.count(Counters::Bytes, schedule.sent_bytes() as u64);
    state.count(Counters::Waits, schedule.waits() as u64);
    let who = Who {
        group: comm.group().clone(),
        rank: comm.rank(),
        world_rank: device.attributes().world_rank,
        context: comm.context() + 1,
        _lease: comm.lease(),
    };
    let Progress { hook, shared } = &job.progress;
    lock(&shared.fresh).push(Active::new(request, who, tags, prepared));
    let hook = hook.get_or_init(|| {
        let shared = Arc::clone(shared);
        let mut under_way = Vec::new();
        device.register_hook(Box::new(move |port| turn(&shared, &mut under_way, port)))
    });
    device.wake_hook(*hook);
    // The first messages leave now. What fails here fails the operation, too.
    let _ = device.device_check(Check::NonBlocking);
}

/// The hook: advances everything as far as it goes.
fn turn(shared: &Shared, under_way: &mut Vec<Active>, port: &mut dyn Port) -> Turn {
    under_way.append(&mut lock(&shared.fresh));
    for over in under_way.extract_if(.., |active| active.advance(port)) {
        shared.keep(over.into_prepared());
    }
    if under_way.is_empty() {
        Turn::Sleep
    } else {
        Turn::Idle
    }
}
