//! The start of the shortest nonblocking operations of two ranks, on the first track.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use portolan_core::comm::Communicator;
use portolan_core::{Device, Result};

use super::Step;
use super::parts::{Awaits, Part, Visitor, part};
use crate::args::Operation;
use crate::counters::Counters;
use crate::direct::Start;
use crate::direct::boards::board::{NONBLOCKING, Place};
use crate::direct::boards::view::Boards;
use crate::direct::tracks::begun::Begun;
use crate::direct::tracks::kept::Kept;
use crate::direct::tracks::pending::Pending;
use crate::state::State;

/// Starts an operation; `None` if it is not one for this way. Then nothing has been done.
///
/// # Errors
/// As [`Communicator::check_members`].
///
/// # Safety
/// As [`crate::start`].
#[inline(always)]
pub(in crate::direct) unsafe fn start<D: Device>(
    comm: &Communicator<D>,
    state: &State,
    boards: &Arc<Boards>,
    operation: &Operation<'_>,
) -> Option<Result<Start>> {
    let call = Call {
        comm,
        state,
        boards,
        operation,
    };
    // SAFETY: from the caller.
    unsafe { part(operation, boards.rank, call) }
}

struct Call<'a, D: Device> {
    comm: &'a Communicator<D>,
    state: &'a State,
    boards: &'a Arc<Boards>,
    operation: &'a Operation<'a>,
}

impl<D: Device> Visitor for Call<'_, D> {
    type Outcome = Result<Start>;

    #[inline(always)]
    unsafe fn shows<P: Part>(self, part: P) -> Option<Result<Start>> {
        let step = match self.begin(&part, false)? {
            Ok(step) => step,
            Err(error) => return Some(Err(error)),
        };
        // SAFETY: from the caller; `begin` has found the cell free.
        unsafe { step.show(&part) };
        self.end(&step);
        Some(Ok(Start::Over(Ok(()))))
    }

    #[inline(always)]
    unsafe fn awaits<P: Awaits>(self, part: P) -> Option<Result<Start>> {
        let step = match self.begin(&part, true)? {
            Ok(step) => step,
            Err(error) => return Some(Err(error)),
        };
        // SAFETY: from the caller; `begin` has found the cell free.
        unsafe { step.show(&part) };
        if P::SETTLES {
            // (A pause is right here as in a blocking operation; see `Boards::settle`.)
            std::hint::spin_loop();
        }
        if !self.boards.hope.look(|| step.sees(&part)) {
            return Some(Ok(Start::Pending(self.pending(&step))));
        }
        // SAFETY: from the caller.
        unsafe { step.take(&part) };
        self.end(&step);
        Some(Ok(Start::Over(Ok(()))))
    }
}

impl<'a, D: Device> Call<'a, D> {
    /// Takes the next step of the track; `None` if its cell is not known to be free, if there may
    /// be no request for an operation that is not over at once, or if several threads start
    /// operations.
    #[inline(always)]
    fn begin<P: Part>(&self, part: &P, looks: bool) -> Option<Result<Step<'a, D>>> {
        let boards: &'a Boards = self.boards;
        let (device, state) = (self.comm.device(), self.state);
        let turns = &boards.tracks[NONBLOCKING];
        let is_free = || turns.has_room(turns.upcoming(), Place::Cell, || None);
        if boards.many_threads || !is_free() || !device.has_request_room() {
            return None;
        }
        if let Err(error) = self.comm.check_members() {
            return Some(Err(error));
        }
        state.begin();
        state.count(Counters::Operations, 1);
        state.count(Counters::Signals, 1);
        state.count(Counters::Looks, looks.into());
        // A guess for the next barrier, hence Relaxed.
        boards
            .waits_alone
            .store(looks && !P::WAKES, Ordering::Relaxed);
        let number = turns.take();
        Some(Ok(Step {
            device,
            boards,
            number,
            cell: turns.map.cell(number),
            next: turns.map.cell(number.wrapping_add(1)),
            sort: boards.sort_of(part.layout()),
        }))
    }

    #[inline(always)]
    fn end(&self, step: &Step<'_, D>) {
        if self.boards.end_on_track(NONBLOCKING, step.number) {
            self.boards.wake_all(step.device);
        }
    }

    /// Leaves the rest of the operation to progress. This rank's part has been shown.
    #[cold]
    #[inline(never)]
    fn pending(&self, step: &Step<'_, D>) -> Pending {
        let begun = Begun::of_shown(self.boards, step.number, 1 << step.other());
        let kept = Arc::new(Kept::of(self.operation));
        Pending::new(self.boards, kept, begun, false)
    }
}
