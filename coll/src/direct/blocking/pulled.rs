//! Copying from other ranks' buffers.
//!
//! Over boards each byte is copied twice. Where a rank may read another's memory, it can copy its
//! part itself, once. So each rank exposes its buffer and shows the exposure in the step in which
//! ranks agree on the way ([`common_way`](crate::direct::blocking::common_way)); all then copy, and
//! tell each other in a second step that they have. Only that ends the operation, because the
//! buffers belong to their callers again.
//!
//! The system may forbid such copies. That is found out by trying: a rank that could not copy says
//! so in the second step. All ranks then do the operation over boards. On this communicator they do
//! not try again; the other way is messages from then on.

use portolan_core::device::{Exposing, Exposure};
use portolan_core::{Device, Result};

use crate::direct::blocking::choice;
use crate::direct::blocking::common_way::exposed_in;
use crate::direct::blocking::steps::Steps;
use crate::direct::boards::board::{Kind, Place};
use crate::direct::data::Stream;

/// Memory of this rank from which the others may copy, until this is dropped.
pub(in crate::direct) struct Exposed<'a> {
    device: &'a dyn Exposing,
    exposure: Exposure,
}

impl<'a> Exposed<'a> {
    /// Exposes data that lies in one piece; `None` if it does not, or if others could not copy it.
    ///
    /// # Safety
    /// The data is readable, and this is dropped before anybody writes there.
    pub(in crate::direct) unsafe fn new<D: Device>(
        steps: &Steps<'a, D>,
        data: &Stream<'_>,
    ) -> Option<Self> {
        if !steps.may_pull() || !data.is_contiguous() {
            return None;
        }
        let device = steps.comm.device().exposing()?;
        // SAFETY: from the caller.
        let exposure = unsafe { device.expose(data.address(), data.len())? };
        Some(Self { device, exposure })
    }

    pub(in crate::direct) fn exposure(&self) -> Exposure {
        self.exposure
    }
}

impl Drop for Exposed<'_> {
    fn drop(&mut self) {
        self.device.withdraw(&self.exposure);
    }
}

/// As [`pull`]. Also tells the choice of ways. Returns whether the operation is over; if not, it is
/// still to be done over boards.
///
/// # Safety
/// As [`pull`].
pub(in crate::direct) unsafe fn pulled<D: Device>(
    steps: &mut Steps<'_, D>,
    (kind, len): (Kind, usize),
    part: impl Fn(u32) -> Option<(u64, *mut u8)>,
) -> Result<bool> {
    // SAFETY: from the caller.
    let copied = unsafe { pull(steps, (kind, len), part)? };
    match copied {
        true => choice::over(steps.choice(), steps.comm.device()),
        false => steps.choice().forget(),
    }
    Ok(copied || steps.disagree())
}

/// Copies `len` bytes from the memory of other ranks: `part` says from which offset, and to where;
/// `None` for a rank from which nothing is copied. Takes the rest of the step in which the ranks
/// have agreed to do so, and one more. Returns whether all ranks have copied everything; it is the
/// same on all ranks.
///
/// # Safety
/// The ranks have just agreed on it, and this rank's memory stays exposed. `len` bytes are writable
/// wherever `part` says.
unsafe fn pull<D: Device>(
    steps: &mut Steps<'_, D>,
    (kind, len): (Kind, usize),
    part: impl Fn(u32) -> Option<(u64, *mut u8)>,
) -> Result<bool> {
    let device = steps.comm.device().exposing();
    let mut copied = device.is_some();
    for rank in steps.others() {
        let Some((offset, to)) = part(rank) else {
            continue;
        };
        // SAFETY: from the caller; all ranks have been seen in this step.
        let exposure = unsafe { exposed_in(steps.at(rank, Place::Cell)) };
        copied = copied
            && is_allowed()
            // SAFETY: from the caller.
            && device.is_some_and(|device| unsafe {
                device.pull(steps.process(rank), &exposure, offset, to, len)
            });
    }
    // A rank that waits in the second step ends with an error as soon as anybody has died, and its
    // buffer is its caller's again, though this rank may have been copying from there. That rank
    // was told of the death before it left, so this one hears of it now at the latest. (The
    // operation then ends over boards, with the same error.)
    copied = copied
        && steps
            .comm
            .device()
            .dead_member(steps.comm.group())
            .is_none();
    steps.next();
    steps.room(Place::Cell)?;
    // SAFETY: the cell is this rank's, and free. The length may be at its beginning.
    unsafe { steps.mine(Place::Cell).add(COPIED).write(copied.into()) };
    steps.post(kind, len);
    steps.expect_all(kind, len)?;
    // Who does something else has not copied.
    let all = copied
        && !steps.disagree()
        // SAFETY: all ranks have posted their cells.
        && steps.others().all(|rank| unsafe { steps.at(rank, Place::Cell).add(COPIED).read() } != 0);
    steps.next();
    if !all && !steps.disagree() {
        steps.pull_no_more();
    }
    Ok(all)
}

/// Where a rank says whether it has copied everything, in its cell of the second step.
const COPIED: usize = size_of::<u64>();

/// Whether this rank may copy: always, but for tests.
#[cfg(not(test))]
pub(in crate::direct) fn is_allowed() -> bool {
    true
}

#[cfg(test)]
pub(in crate::direct) use refused::{forbid, is_allowed};

/// For tests: makes copies fail for single ranks, which are threads in tests.
#[cfg(test)]
mod refused {
    use std::cell::Cell;

    thread_local! {
        static ALLOWED: Cell<bool> = const { Cell::new(true) };
    }

    pub(in crate::direct) fn is_allowed() -> bool {
        ALLOWED.get()
    }

    /// From now on, this rank cannot copy.
    pub(in crate::direct) fn forbid() {
        ALLOWED.set(false);
    }
}
