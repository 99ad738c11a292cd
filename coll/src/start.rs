//! Nonblocking and persistent forms: schedules that run inside progress.
//!
//! Each rank of a job has one hook, which advances all operations that are under way, on all
//! communicators. A call hands its operation to the hook through a short list, wakes it, and lets
//! the device make progress once. The operation completes a request in the device's one table, so a
//! program can wait for it together with any other requests. While nothing is under way the hook
//! sleeps and costs nothing.
//!
//! Where ranks share memory, short operations go through that memory ([`crate::direct`]). An
//! operation that is over in the call that starts it never reaches the hook.
//!
//! The hook runs under the device's lock: it starts and tests messages through the [`Port`] only.
//! Operators run there too, so a user-defined operator must not communicate.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use portolan_core::comm::Communicator;
use portolan_core::device::{Check, HookId, Port, Turn, Upper};
use portolan_core::{Device, Error, ErrorKind, Request, Result, Status};

use crate::active::{Active, OnBoard, Prepared, Task, Went, Who};
use crate::args::Operation;
use crate::check::check;
use crate::compare::{Form, Stamp, agree};
use crate::counters::Counters;
use crate::direct::{self, Kept, NONBLOCKING, Pending, Ready, Start};
use crate::options::Options;
use crate::plan::{Plan, plan, plan_checked};
use crate::schedule::Schedule;
use crate::scratch::{Scratch, Scratches};
use crate::state::{self, Held, Job, OwnTags, State, lock};
use crate::units;

/// State that a rank's hook and its calls share.
#[derive(Debug)]
pub(crate) struct Progress {
    hook: OnceLock<HookId>,
    shared: Arc<Shared>,
}

impl Progress {
    pub(crate) fn new(scratches: Arc<Scratches>) -> Self {
        Self {
            hook: OnceLock::new(),
            shared: Arc::new(Shared {
                scratches,
                ..Shared::default()
            }),
        }
    }
}

/// What calls hand to the hook, and what the hook hands back.
#[derive(Debug, Default)]
struct Shared {
    /// Operations that the hook has not seen yet.
    fresh: Mutex<Vec<Task>>,
    /// Memory of finished operations, for reuse; long memory is among that of the rank.
    spare: Mutex<Vec<(Schedule, Scratch)>>,
    scratches: Arc<Scratches>,
    /// Requests that the operations under way by messages may need in all.
    requests: AtomicUsize,
}

/// How many spare memories are kept.
const SPARES: usize = 16;

impl Shared {
    /// Admits an operation that needs at most `requests` requests, if all operations together then
    /// need no more than `most`, or if no other is under way. Returns whether the operation may
    /// begin.
    fn admit(&self, requests: usize, most: usize) -> bool {
        // Relaxed, here and in `dismiss`: only the number matters. It never exceeds what was
        // admitted, so an operation that is refused does not keep out another.
        let more = |others: usize| {
            let all = others.saturating_add(requests);
            (others == 0 || all <= most).then_some(all)
        };
        let may = self
            .requests
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        may.is_ok()
    }

    /// An admitted operation is over, or was not begun.
    fn dismiss(&self, requests: usize) {
        self.requests.fetch_sub(requests, Ordering::Relaxed);
    }

    fn take_spare(&self) -> (Schedule, Scratch) {
        lock(&self.spare).pop().unwrap_or_default()
    }

    /// Keeps the memory of a finished operation for reuse, unless it belongs to a persistent
    /// operation.
    fn keep(&self, prepared: Arc<Prepared>) {
        let Some(Prepared {
            mut schedule,
            mut scratch,
            ..
        }) = Arc::into_inner(prepared)
        else {
            return;
        };
        // The operator is the program's and may own data, so it is dropped now and not kept with
        // the memory.
        schedule.op = None;
        self.scratches.keep(&mut scratch);
        let mut spare = lock(&self.spare);
        if spare.len() < SPARES {
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
/// Operators run inside progress, in whatever call makes it, and are dropped there: neither their
/// function nor the destructor of what it has captured may call the device.
///
/// # Errors
/// As [`run`](crate::run()) for wrong arguments; later errors come out of the call that completes
/// the request. [`Exhausted`](ErrorKind::Exhausted) if there are no more request slots, if there is
/// no memory for the operation, if the operations under way may need all requests that are set
/// aside for them ([`Options::requests`]), or if an operation is still under way that was started
/// as many operations ago as the device has tags for (at least 128, on most devices millions). The
/// operation may be started again later, before others on this communicator.
///
/// # Safety
/// As [`run`](crate::run()), until the request completes. Arrays of counts, displacements and
/// layouts are used only during the call.
pub unsafe fn start<D: Device>(
    comm: &Communicator<D>,
    operation: &Operation<'_>,
) -> Result<Request> {
    let state = state::of(comm);
    // SAFETY: from the caller.
    if let Some(start) = unsafe { direct::start_quick(comm, state, operation) } {
        let request = || comm.device().upper_request(Box::new(Collective));
        return started(comm, start?, request);
    }
    if units::are_in(operation) {
        // SAFETY: from the caller.
        return unsafe { start_units(comm, operation) };
    }
    let job = state::of_job(comm);
    let tracks = direct::tracks(comm, state, &job.options, operation)?;
    let mut call = None;
    let ready = tracks.and_then(|tracks| tracks.ready(&mut call, operation, NONBLOCKING));
    let kept = || Arc::new(Kept::of(operation));
    if let Some(ready) = ready.filter(|ready| !ready.has_messages()) {
        // SAFETY: from the caller.
        return unsafe { start_on_track(comm, state, ready, NONBLOCKING, kept) };
    }
    let some = ready.and_then(|ready| ready.messages(operation.name()));
    let plan = |options: &Options, old| match some {
        Some(plan) => Ok(plan),
        None => plan(comm, options, operation, Form::Nonblocking, old),
    };
    let watch = || {
        // SAFETY: from the caller.
        ready.map(|ready| unsafe { ready.watch(comm, state, NONBLOCKING, kept()) })
    };
    // SAFETY: from the caller.
    unsafe { start_watched(comm, plan, watch) }
}

/// As [`start`], for an operation whose items are taken apart into smaller ones first.
///
/// # Safety
/// As [`start`].
#[cold]
unsafe fn start_units<D: Device>(
    comm: &Communicator<D>,
    operation: &Operation<'_>,
) -> Result<Request> {
    let mut counts = Vec::new();
    let operation = units::of(comm, operation, &mut counts)?;
    // SAFETY: from the caller; the operation moves the same values. Counts are used in the call
    // only.
    unsafe { start(comm, &operation) }
}

/// Starts an operation on a track of the boards. An operation that is over in this call takes no
/// request slot.
///
/// # Safety
/// As [`start`].
#[inline]
unsafe fn start_on_track<D: Device>(
    comm: &Communicator<D>,
    state: &State,
    ready: Ready<'_>,
    track: usize,
    kept: impl FnOnce() -> Arc<Kept>,
) -> Result<Request> {
    let device = comm.device();
    // Whether the operation needs a request is known only when the other ranks can see it already,
    // and then a request must be available. If another thread may take the last one, this one is
    // taken before.
    if ready.has_many_threads() || !device.has_request_room() {
        let request = device.upper_request(Box::new(Collective))?;
        // SAFETY: from the caller.
        return unsafe { start_with(comm, state, ready, track, kept, request) };
    }
    let request = || device.upper_request(Box::new(Collective));
    // SAFETY: from the caller.
    unsafe { start_ready(comm, state, ready, track, kept, request) }
}

/// Starts an operation on a track of the boards that has its request already.
///
/// # Safety
/// As [`start`].
#[inline(never)]
unsafe fn start_with<D: Device>(
    comm: &Communicator<D>,
    state: &State,
    ready: Ready<'_>,
    track: usize,
    kept: impl FnOnce() -> Arc<Kept>,
    request: Request,
) -> Result<Request> {
    // SAFETY: from the caller.
    if unsafe { start_ready(comm, state, ready, track, kept, || Ok(request)) }? == Request::DONE {
        comm.device().complete_upper(request, Status::EMPTY)?;
    }
    Ok(request)
}

/// Starts an operation on a track of the boards. If it is not over at once, `request` makes its
/// request; otherwise returns [`Request::DONE`].
///
/// # Safety
/// As [`start`].
#[inline]
unsafe fn start_ready<D: Device>(
    comm: &Communicator<D>,
    state: &State,
    ready: Ready<'_>,
    track: usize,
    kept: impl FnOnce() -> Arc<Kept>,
    request: impl FnOnce() -> Result<Request>,
) -> Result<Request> {
    // Other ranks may do this operation by messages, and it must have the same number there.
    // (Persistent operations have numbers of their own.)
    if track == NONBLOCKING {
        state.begin();
    }
    state.count(Counters::Operations, 1);
    // SAFETY: from the caller.
    let start = unsafe { ready.start(comm, state, track, kept) };
    started(comm, start, request)
}

/// The request of an operation on a track that has started, which `request` makes if it is not over
/// at once; otherwise [`Request::DONE`].
#[inline]
fn started<D: Device>(
    comm: &Communicator<D>,
    start: Start,
    request: impl FnOnce() -> Result<Request>,
) -> Result<Request> {
    match start {
        Start::Over(Ok(())) => Ok(Request::DONE),
        Start::Over(Err(error)) => failed(comm, request()?, error),
        Start::Pending(pending) => {
            let (request, who) = (request()?, who(comm));
            let board = OnBoard {
                request,
                who,
                pending,
            };
            hand_over(comm, state::of_job(comm), Task::Board(board));
            Ok(request)
        }
    }
}

#[cold]
fn failed<D: Device>(comm: &Communicator<D>, request: Request, error: Error) -> Result<Request> {
    let device = comm.device();
    device.fail_upper(request, error.on_rank(device.attributes().world_rank))?;
    Ok(request)
}

/// Starts the operation that `plan` plans, in the memory of a schedule that is not used any more.
///
/// # Safety
/// As [`start`], for the operation that is planned.
pub(crate) unsafe fn start_planned<D: Device>(
    comm: &Communicator<D>,
    plan: impl FnOnce(&Options, Schedule) -> Result<Plan>,
) -> Result<Request> {
    // SAFETY: from the caller.
    unsafe { start_watched(comm, plan, || None) }
}

/// The same. `watch` makes the part on a track; it is called once the operation is certain to
/// start.
///
/// # Safety
/// As [`start_planned`].
unsafe fn start_watched<D: Device>(
    comm: &Communicator<D>,
    plan: impl FnOnce(&Options, Schedule) -> Result<Plan>,
    watch: impl FnOnce() -> Option<Pending>,
) -> Result<Request> {
    let (state, job) = (state::of(comm), state::of_job(comm));
    let (schedule, mut scratch) = job.progress.shared.take_spare();
    let plan = plan(&job.options, schedule)?;
    job.scratches.lend(&mut scratch, plan.schedule.scratch());
    let prepared = Prepared::new(plan.schedule, plan.bases, scratch);
    let prepared = prepared.map_err(|error| placed(comm, error))?;
    // The tags and the request come before the number. Without them there is no operation, and the
    // next operation gets this number.
    let held = state.hold_started();
    let held = held.ok_or_else(|| no_tags(comm, "under way", "complete it"))?;
    let request = begin(comm, job, &prepared)?;
    state.begin();
    let task = Active::holding(request, who(comm), held, Arc::new(prepared), watch());
    launch(comm, state, job, task);
    Ok(request)
}

/// Another operation, which is in the state `how`, holds the tags of this one.
#[cold]
fn no_tags<D: Device>(comm: &Communicator<D>, how: &str, first: &str) -> Error {
    let distinct = state::of(comm).tags().distinct();
    comm.error(
        ErrorKind::Exhausted,
        format!(
            "the device has tags for {distinct} collective operations of a communicator, and the one {distinct} before this one is still {how}"
        ),
        &format!("{first} first, or use a duplicate of the communicator"),
    )
}

/// Adds this rank to an error.
#[cold]
fn placed<D: Device>(comm: &Communicator<D>, error: Error) -> Error {
    let attributes = comm.device().attributes();
    error
        .on_rank(attributes.world_rank)
        .on_device(attributes.name)
}

/// The request of an operation by messages, if there is room for all requests that it may need.
fn begin<D: Device>(comm: &Communicator<D>, job: &Job, prepared: &Prepared) -> Result<Request> {
    let shared = &job.progress.shared;
    if !shared.admit(prepared.requests, job.options.requests) {
        return Err(comm.error(
            ErrorKind::Exhausted,
            format!(
                "collective operations under way may have {} requests together, and this one would be too many",
                job.options.requests
            ),
            "complete some before starting more",
        ));
    }
    let request = comm.device().upper_request(Box::new(Collective));
    request.inspect_err(|_| shared.dismiss(prepared.requests))
}

/// A collective operation that can be started again and again (MPI-4 section 6.13).
///
/// All ranks make their persistent operations in the same order, but may start them in a different
/// one.
#[derive(Debug)]
pub struct Persistent<D: Device> {
    comm: Communicator<D>,
    tags: OwnTags,
    /// Keeps the tags from other operations, if `prepared` does not.
    _held: Option<Held>,
    /// The part that is done by messages; `None` if all of it goes over a board.
    prepared: Option<Arc<Prepared>>,
    /// The track of the boards, and the operation that is done there.
    track: Option<(usize, Arc<Kept>)>,
    /// The request of the last start.
    last: Request,
}

impl<D: Device> Persistent<D> {
    /// Plans an operation. Collective. Like a blocking operation, the first one on a communicator
    /// may wait for the other ranks (MPI-4 section 6.13: such calls are non-local). In the debug
    /// mode each one waits for all other ranks.
    ///
    /// # Errors
    /// As [`run`](crate::run()) for wrong arguments;
    /// [`InvalidArgument`](ErrorKind::InvalidArgument), in the debug mode, if ranks make different
    /// operations; [`Exhausted`](ErrorKind::Exhausted) if there is no memory, or if an operation is
    /// still alive that was made as long ago as the device has tags for: at least 128 operations of
    /// the communicator, on most devices millions; [`PeerFailed`](ErrorKind::PeerFailed).
    pub fn new(comm: &Communicator<D>, operation: &Operation<'_>) -> Result<Self> {
        // The check comes before the number: an operation that is refused here takes no number, so
        // the next one has the same number on all ranks.
        check(comm, operation)?;
        let mut counts = Vec::new();
        let units = units::are_in(operation)
            .then(|| units::of(comm, operation, &mut counts))
            .transpose()?;
        let operation = units.as_ref().unwrap_or(operation);
        let held = Self::hold(comm)?;
        let (state, job) = (state::of(comm), state::of_job(comm));
        let number = state.reserve();
        let track =
            direct::keep(comm, state, job, operation, number).inspect_err(|_| state.unreserve())?;
        let mut call = None;
        let ready = direct::tracks_of_kept(state).zip(track.as_ref());
        let ready =
            ready.and_then(|(tracks, (track, _))| tracks.ready(&mut call, operation, *track));
        let over_boards = ready.is_some_and(|ready| !ready.has_messages());
        let some = ready.and_then(|ready| ready.messages(operation.name()));
        let plan = (!over_boards).then(|| {
            let (options, schedule) = (&job.options, Schedule::default());
            let all = || plan_checked(comm, options, operation, Form::Persistent, schedule);
            some.unwrap_or_else(all)
        });
        let stamp = || Stamp::new(operation, (comm.rank(), comm.size()), Form::Persistent);
        let made = Self::made(comm, plan, held, track).and_then(|made| made.compared(stamp));
        // Without memory, or if the ranks do not agree, there is no operation, and the next one
        // gets this number. So it does if the boards could not be made, above.
        made.inspect_err(|_| state.unreserve())
    }

    /// The tags of the operation that is made next.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) if an operation that is still alive holds them.
    fn hold(comm: &Communicator<D>) -> Result<Held> {
        let held = state::of(comm).hold_reserved();
        held.ok_or_else(|| no_tags(comm, "alive", "drop it"))
    }

    /// Makes the operation that `plan` plans and that `stamp` describes.
    pub(crate) fn planned(
        comm: &Communicator<D>,
        plan: impl FnOnce(&Options, Schedule) -> Result<Plan>,
        stamp: impl FnOnce() -> Stamp,
    ) -> Result<Self> {
        let (state, held) = (state::of(comm), Self::hold(comm)?);
        let plan = plan(&state::of_job(comm).options, Schedule::default())?;
        state.reserve();
        let made = Self::made(comm, Some(plan), held, None).and_then(|made| made.compared(stamp));
        made.inspect_err(|_| state.unreserve())
    }

    /// Compares, in the debug mode, what the ranks make. This comes last: a rank that fails before
    /// it, for want of memory or of tags, fails alone and tries again by itself.
    fn compared(self, stamp: impl FnOnce() -> Stamp) -> Result<Self> {
        agree(&self.comm, stamp).map(|()| self)
    }

    fn made(
        comm: &Communicator<D>,
        plan: Option<Plan>,
        held: Held,
        track: Option<(usize, Arc<Kept>)>,
    ) -> Result<Self> {
        let prepare = |plan: Plan| Prepared::new(plan.schedule, plan.bases, Scratch::default());
        let prepared = plan.map(prepare).transpose();
        let mut prepared = prepared.map_err(|error| placed(comm, error))?;
        let (tags, mut held) = (held.tags, Some(held));
        if let Some(prepared) = &mut prepared {
            // An operation under way may outlive this one.
            prepared.held = held.take();
        }
        Ok(Self {
            comm: comm.clone(),
            tags,
            _held: held,
            prepared: prepared.map(Arc::new),
            track,
            last: Request::NULL,
        })
    }

    /// Starts the operation (`MPI_Start`).
    ///
    /// # Errors
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) if the request of the last start has not been
    /// waited for, unless the operation was over at once; [`Exhausted`](ErrorKind::Exhausted) if
    /// there are no more request slots, or if the operations under way may need all of them
    /// ([`Options::requests`](crate::Options::requests)); [`PeerFailed`](ErrorKind::PeerFailed).
    ///
    /// # Safety
    /// As [`start`], with the buffers that the operation was made with.
    pub unsafe fn start(&mut self) -> Result<Request> {
        // A request that was completed by a wait or test is stale by now.
        if self.last != Request::NULL && self.comm.device().peek(self.last).is_ok() {
            return Err(self.comm.error(
                ErrorKind::InvalidRequest,
                "a persistent collective operation is started again before it was completed"
                    .to_owned(),
                "wait for the request of the last start first",
            ));
        }
        self.comm.check_members()?;
        let comm = &self.comm;
        let (state, job) = (state::of(comm), state::of_job(comm));
        let track = self.track.as_ref();
        let track = track.map(|(track, kept)| (*track, kept, kept.operation()));
        let mut call = None;
        let ready = direct::tracks_of_kept(state).zip(track.as_ref());
        let ready = ready
            .and_then(|(tracks, (track, _, operation))| tracks.ready(&mut call, operation, *track));
        let ready = ready.zip(track.as_ref());
        let Some(prepared) = &self.prepared else {
            let Some((ready, &(track, kept, _))) = ready else {
                unreachable!("it is done over a board or by messages");
            };
            let kept = || Arc::clone(kept);
            // SAFETY: from the caller.
            let request = unsafe { start_on_track(comm, state, ready, track, kept) }?;
            // An operation that is over already may be started again, whether it was waited for or
            // not.
            self.last = match request {
                Request::DONE => Request::NULL,
                under_way => under_way,
            };
            return Ok(request);
        };
        self.last = begin(comm, job, prepared)?;
        let watch = ready.map(|(ready, &(track, kept, _))| {
            // SAFETY: from the caller.
            unsafe { ready.watch(comm, state, track, Arc::clone(kept)) }
        });
        let prepared = Arc::clone(prepared);
        let task = Active::new(self.last, who(comm), self.tags, prepared, watch);
        launch(comm, state, job, task);
        Ok(self.last)
    }
}

/// This rank, as the hook needs to know it.
fn who<D: Device>(comm: &Communicator<D>) -> Who {
    Who {
        group: comm.group().clone(),
        rank: comm.rank(),
        world_rank: comm.device().attributes().world_rank,
        context: comm.context() + 1,
        _lease: comm.lease(),
    }
}

fn launch<D: Device>(comm: &Communicator<D>, state: &State, job: &Job, task: Active) {
    let schedule = task.schedule();
    state.count(Counters::Operations, 1);
    state.count(Counters::Messages, schedule.messages() as u64);
    state.count(Counters::Bytes, schedule.sent_bytes() as u64);
    state.count(Counters::Waits, schedule.waits() as u64);
    hand_over(comm, job, Task::Messages(task));
    // Lets the first messages leave now. An error here also fails the operation, which reports it.
    let _ = comm.device().device_check(Check::NonBlocking);
}

/// Leaves an operation to the hook.
fn hand_over<D: Device>(comm: &Communicator<D>, job: &Job, task: Task) {
    let device = comm.device();
    let Progress { hook, shared } = &job.progress;
    lock(&shared.fresh).push(task);
    let hook = hook.get_or_init(|| {
        let shared = Arc::clone(shared);
        let mut under_way = Vec::new();
        device.register_hook(Box::new(move |port| turn(&shared, &mut under_way, port)))
    });
    device.wake_hook(*hook);
}

/// The hook: advances every operation as far as possible.
fn turn(shared: &Shared, under_way: &mut Vec<Task>, port: &mut dyn Port) -> Turn {
    under_way.append(&mut lock(&shared.fresh));
    let mut pauses = false;
    let advance = |task: &mut Task| {
        let went = task.advance(port);
        pauses |= went == Went::Pauses;
        went == Went::Over
    };
    for over in under_way.extract_if(.., advance) {
        if let Task::Messages(active) = over {
            let prepared = active.into_prepared();
            shared.dismiss(prepared.requests);
            shared.keep(prepared);
        }
    }
    if under_way.is_empty() {
        Turn::Sleep
    } else if pauses {
        Turn::Busy
    } else {
        Turn::Idle
    }
}
