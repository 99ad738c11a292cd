//! Blocking calls of the shortest operations of two ranks that each have a processor.

use std::sync::atomic::Ordering;

use portolan_core::comm::{Communicator, NoUnwind};
use portolan_core::{Device, Result};

use super::Step;
use super::parts::{Awaits, Part, Visitor, part};
use crate::args::Operation;
use crate::counters::Counters;
use crate::direct::agree::sort::Sorts;
use crate::direct::blocking::steps::Steps;
use crate::direct::boards::board::{CELLS, CHUNKS};
use crate::direct::boards::view::Boards;
use crate::state::State;

/// How often a rank looks at the other before it leaves the rest to [`Steps`]: for about as long as
/// that rank needs to show its part if it arrives at the same time.
const LOOKS: u32 = 32;

/// Performs an operation; `None` if it is not one for this way. Then nothing has been done.
///
/// # Safety
/// As [`crate::run()`].
#[inline(always)]
pub(in crate::direct) unsafe fn run<D: Device>(
    comm: &Communicator<D>,
    state: &State,
    boards: &Boards,
    operation: &Operation<'_>,
) -> Option<Result<()>> {
    let call = Call {
        comm,
        state,
        boards,
    };
    // SAFETY: from the caller.
    unsafe { part(operation, boards.rank, call) }
}

struct Call<'a, D: Device> {
    comm: &'a Communicator<D>,
    state: &'a State,
    boards: &'a Boards,
}

impl<D: Device> Visitor for Call<'_, D> {
    type Outcome = Result<()>;

    #[inline(always)]
    unsafe fn shows<P: Part>(self, part: P) -> Option<Result<()>> {
        let step = match self.begin(&part)? {
            Ok(step) => step,
            Err(error) => return Some(Err(error)),
        };
        // SAFETY: from the caller; `begin` has found the cell free.
        unsafe { step.show(&part) };
        self.state.count(Counters::Signals, 1);
        self.end(&step, false);
        Some(Ok(()))
    }

    #[inline(always)]
    unsafe fn awaits<P: Awaits>(self, part: P) -> Option<Result<()>> {
        let step = match self.begin(&part)? {
            Ok(step) => step,
            Err(error) => return Some(Err(error)),
        };
        // SAFETY: from the caller; `begin` has found the cell free.
        unsafe { step.show(&part) };
        self.state.count(Counters::Signals, 1);
        if P::SETTLES {
            self.boards.settle(false);
        }
        if !(0..LOOKS).any(|_| step.sees(&part)) {
            // SAFETY: from the caller.
            return Some(unsafe { self.leave(&step, &part) });
        }
        // SAFETY: from the caller.
        unsafe { step.take(&part) };
        self.end(&step, true);
        Some(Ok(()))
    }
}

impl<'a, D: Device> Call<'a, D> {
    /// Enters the boards; `None` if this rank must wait before it may show anything, or if the
    /// ranks take turns on a processor.
    #[inline(always)]
    fn begin(&self, part: &impl Part) -> Option<Result<Step<'a, D>>> {
        let (boards, device) = (self.boards, self.comm.device());
        if device.processor().is_some() {
            return None;
        }
        if let Err(error) = self.comm.check_members() {
            return Some(Err(error));
        }
        // Another thread may just have finished an operation, so the step comes after this.
        if let Err(error) = boards.enter(self.comm) {
            return Some(Err(error));
        }
        let number = boards.step.load(Ordering::Relaxed);
        let proved = boards.proved.load(Ordering::Relaxed);
        if number.wrapping_sub(proved) >= CELLS {
            boards.leave();
            return None;
        }
        self.state.begin();
        Some(Ok(Step {
            device,
            boards,
            number,
            cell: boards.map.cell(number),
            next: boards.map.cell(number.wrapping_add(1)),
            sort: boards.sort_of(part.layout()),
        }))
    }

    /// Ends the operation. `looked` says whether it has seen the other rank's cell of this step.
    #[inline(always)]
    fn end(&self, step: &Step<'_, D>, looked: bool) {
        let (boards, state) = (self.boards, self.state);
        if looked {
            state.count(Counters::Looks, 1);
            boards.proved.store(step.number, Ordering::Relaxed);
        }
        let next = step.number.wrapping_add(1);
        boards.step.store(next, Ordering::Relaxed);
        boards.ahead.store(!looked, Ordering::Relaxed);
        if next.is_multiple_of(CHUNKS) {
            boards.publish(step.device, next);
        }
        boards.leave();
        state.count(Counters::Operations, 1);
    }

    /// Leaves the rest of the operation to the general way. This rank's part has been shown.
    ///
    /// # Safety
    /// The part's buffers are the operation's.
    #[cold]
    #[inline(never)]
    unsafe fn leave(&self, step: &Step<'_, D>, part: &impl Awaits) -> Result<()> {
        let sorts = Sorts {
            shown: step.sort,
            taken: step.sort,
        };
        let steps = Steps::new(self.comm, self.state, self.boards, sorts);
        // Progress inside the wait may run code of the program. If that panicked, the other rank
        // would be left waiting.
        let guard = NoUnwind::new("a collective operation");
        // SAFETY: from the caller.
        let outcome = unsafe { part.finish(steps) };
        guard.done();
        self.boards.leave();
        self.state.count(Counters::Operations, 1);
        outcome.map(drop)
    }
}
