//! Blocking calls.

use std::ptr::NonNull;

use portolan_core::comm::Communicator;
use portolan_core::{Device, Result};

use crate::args::Operation;
use crate::compare::Form;
use crate::counters::Counters;
use crate::direct::{self, Shared};
use crate::memory::Memory;
use crate::options::Options;
use crate::plan::{Plan, plan};
use crate::run::Run;
use crate::schedule::Schedule;
use crate::state::{self, State};
use crate::units;

/// Performs a collective operation and returns when this rank's part in it is over.
///
/// # Errors
/// Those of [`check`](crate::check()), before any message is sent;
/// [`PeerFailed`](portolan_core::ErrorKind::PeerFailed); and, if ranks do not agree about lengths
/// or types, [`InvalidCount`](portolan_core::ErrorKind::InvalidCount),
/// [`Truncated`](portolan_core::ErrorKind::Truncated) or
/// [`TypeMismatch`](portolan_core::ErrorKind::TypeMismatch).
///
/// # Safety
/// During the call, the memory that the operation sends is initialised and readable; the memory
/// into which it receives is writable and used by nothing else; and the two do not overlap. Values
/// that are reduced are valid for the operator, on all ranks.
pub unsafe fn run<D: Device>(comm: &Communicator<D>, operation: &Operation<'_>) -> Result<()> {
    let state = state::of(comm);
    // SAFETY: from the caller.
    if let Some(outcome) = unsafe { direct::run_quick(comm, state, operation) } {
        return outcome;
    }
    if units::are_in(operation) {
        // SAFETY: from the caller.
        return unsafe { run_units(comm, operation) };
    }
    // SAFETY: from the caller.
    let shared = unsafe { direct::run(comm, state, state::of_job(comm), operation) };
    let awaited = match shared {
        Shared::Over(outcome) => return outcome,
        Shared::NotHere => false,
        Shared::LeftToMessages => true,
    };
    let plan = |options: &Options, old| plan(comm, options, operation, Form::Blocking, old);
    // SAFETY: from the caller.
    let outcome = unsafe { run_awaited(comm, plan, awaited) };
    direct::over(comm, state);
    outcome
}

/// As [`run`], for an operation whose items are taken apart into smaller ones first.
///
/// # Safety
/// As [`run`].
#[cold]
unsafe fn run_units<D: Device>(comm: &Communicator<D>, operation: &Operation<'_>) -> Result<()> {
    let mut counts = Vec::new();
    let operation = units::of(comm, operation, &mut counts)?;
    // SAFETY: from the caller; the operation moves the same values.
    unsafe { run(comm, &operation) }
}

/// Runs the operation that `plan` plans, in the memory of a schedule that is not used any more.
///
/// # Safety
/// As [`run`], for the operation that is planned.
pub(crate) unsafe fn run_planned<D: Device>(
    comm: &Communicator<D>,
    plan: impl FnOnce(&Options, Schedule) -> Result<Plan>,
) -> Result<()> {
    // SAFETY: from the caller.
    unsafe { run_awaited(comm, plan, false) }
}

/// The same. If the operation is `awaited`, the ranks have agreed to do it now.
///
/// # Safety
/// As [`run_planned`].
#[inline]
unsafe fn run_awaited<D: Device>(
    comm: &Communicator<D>,
    plan: impl FnOnce(&Options, Schedule) -> Result<Plan>,
    awaited: bool,
) -> Result<()> {
    let (state, job) = (state::of(comm), state::of_job(comm));
    let mut spare = state.take_spare();
    let plan = plan(&job.options, std::mem::take(&mut spare.schedule))?;
    // The memory comes before the number. Without memory there is no operation, and the next
    // operation gets this number, unless other ranks wait for this one.
    let len = plan.schedule.scratch();
    job.scratches.lend(&mut spare.scratch, len);
    let scratch = match spare.scratch.at_least(len) {
        Ok(scratch) => scratch,
        Err(error) => {
            if awaited {
                excuse(comm, state, plan.schedule);
            }
            return Err(error);
        }
    };
    let tags = state.tags().started(state.upcoming());
    state.await_tags(comm.device(), tags)?;
    state.begin();
    state.count(Counters::Operations, 1);
    let run = Run {
        comm,
        state,
        tags,
        schedule: &plan.schedule,
        memory: Memory::new(plan.bases, scratch),
    };
    // SAFETY: the spans lie within the operation's buffers, for which the caller vouches, or within
    // scratch memory, which is as long as the schedule requires.
    let outcome = unsafe { run.steps(&mut spare.requests) };
    spare.schedule = plan.schedule;
    // The operator is the program's and may own data, so it is dropped now and not kept with the
    // memory.
    spare.schedule.op = None;
    state.keep_spare(&job.scratches, spare);
    outcome
}

/// Takes this rank's part in an operation for which it has no memory, although the others wait for
/// its messages. It sends them without data, so that the ranks that receive them get an error, and
/// drops the data that it receives. It takes the same number as the others, so that the tags of
/// later operations stay in step.
///
/// A rank that receives from other ranks only would get wrong data, and no error. No operation that
/// is left to messages has such ranks: alltoalls exchange data between every two ranks, and the
/// others have only two. (An alltoall in place is not left to messages, because it needs memory for
/// all blocks. An alltoall that forwards blocks, and needs memory for them, comes only from a table
/// of the program's that asks for it where blocks are long.)
#[cold]
fn excuse<D: Device>(comm: &Communicator<D>, state: &State, mut schedule: Schedule) {
    let tags = state.tags().started(state.upcoming());
    let free = state.await_tags(comm.device(), tags);
    state.begin();
    state.count(Counters::Operations, 1);
    if free.is_err() {
        // The job ends.
        return;
    }
    schedule.take_data_out();
    let nothing = NonNull::dangling().as_ptr();
    let run = Run {
        comm,
        state,
        tags,
        schedule: &schedule,
        memory: Memory::new([nothing; 2], nothing),
    };
    // The caller returns that there is no memory, which is the reason for errors here.
    // SAFETY: the schedule was built for this communicator, and all of its spans are empty.
    let _ = unsafe { run.steps(&mut Vec::new()) };
}
