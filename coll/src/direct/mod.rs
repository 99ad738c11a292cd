//! Collective operations through memory that all ranks of a communicator can load and store.
//!
//! Where the device has [`Caps::DIRECT`](portolan_core::device::Caps::DIRECT) and all members are
//! on one node, blocking operations send no messages. Each rank has a *board* ([`boards::board`])
//! on which it writes the data for the others; they poll the board until the data is there
//! ([`blocking::steps`]). Data that fits in a cache line costs the transfer of one line. Longer
//! data goes through chunks that stay in caches. From a certain length on ([`boards::limits`])
//! messages may be faster ([`blocking::choice`]); the ranks then agree on the board to use them.
//!
//! Nonblocking and persistent operations never match blocking ones (MPI-4 section 6.12). With up to
//! [`RADIX`] ranks, such an operation takes a step on a *track* of the boards ([`tracks::begun`]):
//! short data goes over the track, long data goes as messages beside it. With more ranks,
//! everything goes as messages.
//!
//! Ranks that disagree about lengths get an error
//! ([`InvalidCount`](portolan_core::ErrorKind::InvalidCount)) as far as they can see the
//! disagreement, and the boards stay in step ([`agree`]).

mod agree;
mod blocking;
mod boards;
mod data;
mod quick;
#[cfg(test)]
mod tests;
mod tracks;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use portolan_core::comm::{Communicator, NoUnwind};
use portolan_core::{Device, Result};

pub(crate) use agree::verdict::Refused;
pub(crate) use boards::board::NONBLOCKING;
pub(crate) use boards::setup::Pool;
pub(crate) use tracks::call::Call;
pub(crate) use tracks::hands::OfHook;
pub(crate) use tracks::kept::Kept;
pub(crate) use tracks::pending::Pending;

use crate::args::{Name, Operation};
use crate::check::check;
use crate::counters::Counters;
use crate::options::Options;
use crate::plan::Plan;
use crate::state::{Job, State};
use blocking::exchange::RADIX;
use blocking::steps::{Steps, Way};
use blocking::{bcast, beside, choice, exchange, moves, neighbours, reduce, rooted, scan};
use boards::board::TRACKS;
use boards::setup;
use boards::view::{Boards, two_at_once};
use data::{Items, Stream};
use tracks::begun::Begun;
use tracks::hands::OfCall;
use tracks::messages::Messages;

/// The boards of a communicator. The cell is empty until they are made, and holds `None` if the
/// communicator has none.
#[derive(Debug, Default)]
pub(crate) struct Direct {
    boards: OnceLock<Option<Arc<Boards>>>,
    /// Whether a thread is making them now.
    making: AtomicBool,
}

impl Boards {
    /// An empty record for this rank's part in an operation on a track.
    #[inline]
    fn call<'a>(&self, operation: &Operation<'_>) -> Call<'a> {
        Call::new((self.rank, self.size()), self.sorts_of(operation))
    }

    /// Fills in the record of this rank's part; `false` if the operation cannot be done on a track.
    #[inline]
    fn describe<'a>(
        &'a self,
        call: &mut Call<'a>,
        operation: &'a Operation<'a>,
        track: usize,
    ) -> bool {
        call.describe(operation, self.edges.as_ref(), track)
    }
}

impl Direct {
    /// The boards of a communicator. The first call makes them and is collective.
    #[inline]
    fn boards<D: Device>(
        &self,
        comm: &Communicator<D>,
        pool: &Arc<Pool>,
    ) -> Result<Option<&Arc<Boards>>> {
        match self.boards.get() {
            Some(boards) => Ok(boards.as_ref()),
            None => self.make(comm, pool),
        }
    }

    #[cold]
    fn make<D: Device>(
        &self,
        comm: &Communicator<D>,
        pool: &Arc<Pool>,
    ) -> Result<Option<&Arc<Boards>>> {
        // Two threads that exchanged keys with the other ranks at the same time could receive each
        // other's. Acquire: pairs with the Release store below, of another thread of this rank.
        if self.making.swap(true, Ordering::Acquire) {
            return Err(two_at_once(comm));
        }
        let made = match self.boards.get() {
            // Another thread made them between the check above and this thread's turn.
            Some(boards) => Ok(boards.as_ref()),
            None => setup::make(comm, pool)
                .map(|fresh| self.boards.get_or_init(|| fresh.map(Arc::new)).as_ref()),
        };
        // Release: pairs with the Acquire swap above.
        self.making.store(false, Ordering::Release);
        made
    }
}

/// What has become of an operation through shared memory.
pub(crate) enum Shared {
    /// It is over.
    Over(Result<()>),
    /// It does not go that way on this communicator. No other rank has heard of it.
    NotHere,
    /// The ranks have agreed to do it by messages, so the others count on this rank's.
    LeftToMessages,
}

/// Performs an operation if it is one of [the shortest](quick); `None` if it is not. Then
/// nothing has been done.
///
/// # Safety
/// As [`crate::run()`].
#[inline(always)]
pub(crate) unsafe fn run_quick<D: Device>(
    comm: &Communicator<D>,
    state: &State,
    operation: &Operation<'_>,
) -> Option<Result<()>> {
    match state.direct.boards.get() {
        // SAFETY: from the caller.
        Some(Some(boards)) if boards.is_quick => unsafe {
            quick::blocking::run(comm, state, boards, operation)
        },
        _ => None,
    }
}

/// Starts an operation on the track of nonblocking ones if it is one of [the shortest](quick);
/// `None` if it is not. Then nothing has been done.
///
/// # Errors
/// If a member has failed.
///
/// # Safety
/// As [`crate::start`].
#[inline(always)]
pub(crate) unsafe fn start_quick<D: Device>(
    comm: &Communicator<D>,
    state: &State,
    operation: &Operation<'_>,
) -> Option<Result<Start>> {
    match state.direct.boards.get() {
        // SAFETY: from the caller.
        Some(Some(boards)) if boards.is_quick => unsafe {
            quick::started::start(comm, state, boards, operation)
        },
        _ => None,
    }
}

/// Performs an operation through shared memory.
///
/// # Safety
/// As [`crate::run()`].
#[inline]
pub(crate) unsafe fn run<D: Device>(
    comm: &Communicator<D>,
    state: &State,
    job: &Job,
    operation: &Operation<'_>,
) -> Shared {
    if !applies(&job.options, operation, comm.size()) {
        return Shared::NotHere;
    }
    // The arguments are checked first, because making the boards is collective and a rank that
    // returns an error for a wrong argument does not take part in it.
    if let Err(error) = check(comm, operation) {
        return Shared::Over(Err(error));
    }
    let boards = match state.direct.boards(comm, &job.boards) {
        Ok(Some(boards)) => boards,
        Ok(None) => return Shared::NotHere,
        Err(error) => return Shared::Over(Err(error)),
    };
    // SAFETY: from the caller.
    match unsafe { run_on(boards, comm, state, operation) } {
        Ok(Way::Done) => Shared::Over(Ok(())),
        Ok(Way::Messages) => Shared::LeftToMessages,
        Err(error) => Shared::Over(Err(error)),
    }
}

/// An operation that [`run`] left to messages has finished; the choice of ways may have been timing
/// it.
#[inline]
pub(crate) fn over<D: Device>(comm: &Communicator<D>, state: &State) {
    if let Some(Some(boards)) = state.direct.boards.get() {
        choice::over(&boards.choice, comm.device());
    }
}

/// The boards of a communicator on which operations may take steps of tracks.
#[derive(Clone, Copy)]
pub(crate) struct Tracks<'a>(&'a Arc<Boards>);

/// An operation that is ready to take a step on a track.
#[derive(Clone, Copy)]
pub(crate) struct Ready<'a> {
    boards: &'a Arc<Boards>,
    call: &'a Call<'a>,
}

/// The state of an operation after its start.
pub(crate) enum Start {
    /// This rank's part has finished.
    Over(Result<()>),
    /// It continues inside progress.
    Pending(Pending),
}

/// The boards, if nonblocking operations on the communicator may use tracks. They may only once the
/// boards exist: making boards is collective, and the call of a nonblocking operation must not wait
/// for other ranks. Blocking and persistent operations make the boards, and all ranks call those in
/// the same order.
///
/// # Errors
/// As [`check`].
pub(crate) fn tracks<'a, D: Device>(
    comm: &Communicator<D>,
    state: &'a State,
    options: &Options,
    operation: &Operation<'_>,
) -> Result<Option<Tracks<'a>>> {
    let Some(Some(boards)) = state.direct.boards.get() else {
        return Ok(None);
    };
    if boards.size() > RADIX || !applies(options, operation, comm.size()) {
        return Ok(None);
    }
    check(comm, operation)?;
    Ok(Some(Tracks(boards)))
}

/// The track of a persistent operation, and its description for that track. Collective, because it
/// makes the boards.
///
/// # Errors
/// If a member has failed.
pub(crate) fn keep<D: Device>(
    comm: &Communicator<D>,
    state: &State,
    job: &Job,
    operation: &Operation<'_>,
    number: u32,
) -> Result<Option<(usize, Arc<Kept>)>> {
    if comm.size() > RADIX || !applies(&job.options, operation, comm.size()) {
        return Ok(None);
    }
    let track = (number as usize).saturating_add(1);
    let there = state.direct.boards(comm, &job.boards)?.is_some() && track < TRACKS;
    Ok(there.then(|| (track, Arc::new(Kept::of(operation)))))
}

/// The boards for a persistent operation that has been kept ([`Kept::operation`]).
pub(crate) fn tracks_of_kept(state: &State) -> Option<Tracks<'_>> {
    match state.direct.boards.get() {
        Some(Some(boards)) => Some(Tracks(boards)),
        _ => None,
    }
}

impl<'a> Tracks<'a> {
    /// Prepares an operation for a start on a track; `None` for one that cannot be done on a track.
    /// The description is large, so it stays in the caller's `call`.
    #[inline]
    pub(crate) fn ready<'c>(
        self,
        call: &'c mut Option<Call<'a>>,
        operation: &'a Operation<'a>,
        track: usize,
    ) -> Option<Ready<'c>>
    where
        'a: 'c,
    {
        let call = call.insert(self.0.call(operation));
        let boards = self.0;
        boards
            .describe(call, operation, track)
            .then_some(Ready { boards, call })
    }
}

impl Ready<'_> {
    /// Whether all of its data goes as messages.
    fn is_by_messages(&self) -> bool {
        self.call.place.is_none()
    }

    /// Whether any of its data goes as messages.
    pub(crate) fn has_messages(&self) -> bool {
        self.call.has_messages
    }

    /// The messages of an operation that otherwise goes over boards.
    pub(crate) fn messages(&self, name: Name) -> Option<Plan> {
        self.call.messages(name).map(Messages::plan)
    }

    /// Whether several threads may start operations at once, on this or another communicator.
    #[inline]
    pub(crate) fn has_many_threads(&self) -> bool {
        self.boards.many_threads
    }

    /// Starts an operation that has no messages, on a track. `kept` makes the owned description,
    /// which is only needed if the operation does not finish here.
    ///
    /// # Safety
    /// As [`crate::start`].
    #[inline(always)]
    pub(crate) unsafe fn start<D: Device>(
        &self,
        comm: &Communicator<D>,
        state: &State,
        track: usize,
        kept: impl FnOnce() -> Arc<Kept>,
    ) -> Start {
        let Self { boards, call } = *self;
        let hands = &mut OfCall(comm.device());
        let mut begun = self.begin(state, track);
        // SAFETY: from the caller.
        unsafe {
            if call.may_lend
                && let Some(device) = comm.device().exposing()
            {
                begun.lend(boards, call, device);
            }
            if begun.show(boards, call, hands) && call.is_short() {
                self.settle();
                if boards.hope.look(|| begun.look(boards, call, hands))
                    && let Some(outcome) = begun.take(boards, call, hands)
                {
                    return Start::Over(outcome);
                }
            }
        }
        Start::Pending(Pending::new(boards, kept(), begun, false))
    }

    /// Starts an operation that has messages; it continues inside progress.
    ///
    /// # Safety
    /// As [`crate::start`].
    pub(crate) unsafe fn watch<D: Device>(
        &self,
        comm: &Communicator<D>,
        state: &State,
        track: usize,
        kept: Arc<Kept>,
    ) -> Pending {
        let Self { boards, call } = *self;
        let mut begun = self.begin(state, track);
        // SAFETY: from the caller.
        unsafe { begun.show(boards, call, &mut OfCall(comm.device())) };
        Pending::new(boards, kept, begun, self.is_by_messages())
    }

    /// Pauses briefly in a barrier before this rank looks at the others, for the reason given at
    /// `Boards::settle`. (Two ranks on an EPYC of family 25: 115 ns with the pause and 120 without;
    /// 245 and 310 while the host places their cores apart. Operations with data take long enough
    /// that the pause gains nothing.)
    #[inline]
    fn settle(&self) {
        if !self.call.has_data() {
            std::hint::spin_loop();
        }
    }

    #[inline(always)]
    fn begin(&self, state: &State, track: usize) -> Begun {
        let Self { boards, call } = *self;
        state.count(Counters::Signals, 1);
        state.count(Counters::Looks, call.looks_at().into());
        // As in `run_on`, a guess for the next barrier, hence Relaxed.
        boards
            .waits_alone
            .store(call.waits_alone(), Ordering::Relaxed);
        Begun::new(boards, track, call)
    }
}

/// Whether an operation goes over boards where there are any. All ranks come to the same answer.
#[inline]
fn applies(options: &Options, operation: &Operation<'_>, ranks: u32) -> bool {
    if !options.direct || options.compare {
        return false;
    }
    let layout = match operation {
        Operation::Reduce { send, recv, .. } => send.or(*recv).map(|data| data.layout),
        Operation::Allreduce { recv, .. }
        | Operation::ReduceScatter { recv, .. }
        | Operation::ReduceScatterBlock { recv, .. }
        | Operation::Scan { recv, .. } => Some(recv.layout),
        _ => return true,
    };
    !options.reproducible && layout.is_some_and(|layout| Items::fit_boards(layout, ranks))
}

#[inline]
unsafe fn run_on<D: Device>(
    boards: &Boards,
    comm: &Communicator<D>,
    state: &State,
    operation: &Operation<'_>,
) -> Result<Way> {
    boards.enter(comm)?;
    let number = state.begin();
    // A panic in a user-defined operator would unwind and leave the other ranks waiting.
    let guard = NoUnwind::new("a collective operation");
    let steps = Steps::new(comm, state, boards, boards.sorts_of(operation));
    if steps.take_turns() && !matches!(operation, Operation::Barrier) {
        steps.waits_alone(beside::waits_alone(operation, boards.rank));
    }
    // SAFETY: from the caller.
    let outcome = unsafe { dispatch(steps, operation, number) };
    guard.done();
    boards.leave();
    // Part by part, as in `Steps::end`.
    match outcome {
        Ok(Way::Messages) => Ok(Way::Messages),
        Ok(Way::Done) => {
            state.count(Counters::Operations, 1);
            Ok(Way::Done)
        }
        Err(error) => {
            state.count(Counters::Operations, 1);
            Err(error)
        }
    }
}

#[inline(always)]
unsafe fn dispatch<D: Device>(
    steps: Steps<'_, D>,
    operation: &Operation<'_>,
    number: u32,
) -> Result<Way> {
    // SAFETY: from the caller, for all of them.
    unsafe {
        match *operation {
            Operation::Barrier => exchange::barrier(steps),
            Operation::Bcast { data, root } => bcast::bcast(steps, Stream::of(&data), root),
            Operation::Allreduce { send, recv, op } => {
                let from = send.map_or(recv.ptr, |send| send.ptr);
                let items = Items::new(op, recv.layout, recv.count);
                reduce::allreduce(steps, &items, from, recv.ptr)
            }
            Operation::Reduce {
                send,
                recv,
                op,
                root,
            } => {
                let recv = recv.filter(|_| steps.rank() == root);
                let Some(any) = send.or(recv) else {
                    unreachable!("`check` has seen a buffer");
                };
                let items = Items::new(op, any.layout, any.count);
                reduce::reduce(steps, &items, root, any.ptr, recv.map(|recv| recv.ptr))
            }
            Operation::ReduceScatter {
                send,
                recv,
                counts,
                op,
            } => {
                let items = Items::new(op, recv.layout, counts.iter().sum());
                let blocks = reduce::Blocks::Counts(counts);
                reduce::reduce_scatter(steps, &items, send.map(|send| send.ptr), recv.ptr, blocks)
            }
            Operation::ReduceScatterBlock { send, recv, op } => {
                let items = Items::new(op, recv.layout, recv.count * steps.size() as usize);
                let blocks = reduce::Blocks::Equal(recv.count);
                reduce::reduce_scatter(steps, &items, send.map(|send| send.ptr), recv.ptr, blocks)
            }
            Operation::Scan {
                send,
                recv,
                op,
                exclusive,
            } => {
                let from = send.map_or(recv.ptr, |send| send.ptr);
                let items = Items::new(op, recv.layout, recv.count);
                scan::scan(steps, &items, from, recv.ptr, exclusive)
            }
            Operation::Allgather { send, recv } => moves::allgather(steps, send.as_ref(), &recv),
            Operation::Alltoall { send, recv } => moves::alltoall(steps, send.as_ref(), &recv),
            Operation::Gather {
                send, recv, root, ..
            } => rooted::gather(steps, send.as_ref(), recv.as_ref(), root, number),
            Operation::Scatter {
                send, recv, root, ..
            } => rooted::scatter(steps, send.as_ref(), recv.as_ref(), root, number),
            Operation::NeighbourAllgather { send, recv } => {
                neighbours::allgather(steps, &send, &recv, number)
            }
            Operation::NeighbourAlltoall { send, recv } => {
                neighbours::alltoall(steps, &send, &recv, number)
            }
        }
    }
}
