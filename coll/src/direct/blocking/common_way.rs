//! The step in which ranks agree on the way of an operation.
//!
//! The judge says which way to take ([`choice`](crate::direct::blocking::choice)), every rank what
//! it can do. All see all cells, so all come to the same answer.

use portolan_core::device::Exposure;
use portolan_core::{Device, Result};

use crate::direct::blocking::steps::{Steps, Way};
use crate::direct::boards::board::{IN_CELL, Kind, Place};

/// What ranks have agreed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::direct) enum Agreed {
    /// To go on over boards.
    Boards,
    /// To send messages.
    Messages,
    /// To copy from what each has exposed in this step.
    Pulls,
}

/// What a rank can do.
#[derive(Clone, Copy, Debug)]
pub(in crate::direct) struct Able {
    /// Send messages.
    pub(in crate::direct) messages: bool,
    /// Copy from others' buffers.
    pub(in crate::direct) pulls: bool,
    /// What the others are to copy from.
    pub(in crate::direct) exposure: Option<Exposure>,
}

/// Offsets in a cell: of the way, in the judge's, after the length; in every rank's of the root,
/// of what the rank can do, and of its exposure.
const WAY: usize = size_of::<u64>();
const ROOT: usize = 2 * WAY;
const ABLE: usize = ROOT + size_of::<u32>();
const EXPOSURE: usize = ROOT + WAY;

const _: () = assert!(EXPOSURE + size_of::<Exposure>() <= IN_CELL);

/// Bits of what a rank can do.
const MESSAGES: u8 = 1;
const PULLS: u8 = 2;

/// What a rank has exposed in this step.
///
/// # Safety
/// The ranks have agreed on [`Agreed::Pulls`] in this step, `cell` is that rank's, and the rank is
/// one from which others copy.
pub(in crate::direct) unsafe fn exposed_in(cell: *mut u8) -> Exposure {
    // SAFETY: from the caller; an exposure is bytes.
    Exposure(unsafe { cell.add(EXPOSURE).cast::<[u8; 32]>().read_unaligned() })
}

/// Takes the step in which all ranks compare kind and length, and in which the judge says which way
/// to take. What one rank cannot do, none does. `data` is where this rank's data begins. The caller
/// does what follows, beginning with [`Steps::next`]. Returns [`Agreed::Messages`] if ranks do not
/// agree.
pub(in crate::direct) fn agree<D: Device>(
    steps: &mut Steps<'_, D>,
    (kind, len): (Kind, usize),
    data: *const u8,
    (judge, root): (u32, u32),
    able: Able,
) -> Result<Agreed> {
    steps.room(Place::Cell)?;
    let judges = steps.rank() == judge;
    let cell = steps.mine(Place::Cell);
    if judges {
        let device = steps.comm.device();
        let shared = device.shares(data, len);
        let choice = steps.choice();
        let way = choice.begin((kind, len), shared, || device.wtime());
        let over_boards = way == Way::Done;
        // SAFETY: the cell is this rank's, free, and long enough.
        unsafe { cell.add(WAY).write((!over_boards).into()) };
    }
    let mut bits = 0;
    if able.messages {
        bits |= MESSAGES;
    }
    if able.pulls {
        bits |= PULLS;
    }
    if let Some(Exposure(bytes)) = able.exposure {
        // SAFETY: as above.
        unsafe { cell.add(EXPOSURE).cast::<[u8; 32]>().write_unaligned(bytes) };
    }
    // SAFETY: as above.
    unsafe {
        named(cell, ROOT).write_unaligned(root);
        cell.add(ABLE).write(bits);
    }
    steps.post(kind, len);
    steps.expect_all(kind, len)?;
    if !steps.disagree() {
        for rank in steps.others() {
            // SAFETY: all ranks have posted their cells.
            if unsafe { named(steps.at(rank, Place::Cell), ROOT).read_unaligned() } != root {
                steps.note_root(rank);
            }
        }
    }
    if steps.disagree() {
        steps.choice().forget();
        return Ok(Agreed::Messages);
    }
    // SAFETY: the judge has posted it, as have all.
    if unsafe { steps.at(judge, Place::Cell).add(WAY).read() } == 0 {
        return Ok(Agreed::Boards);
    }
    // SAFETY: all ranks have posted their cells, and this rank's is its own.
    let bits_of = |rank| unsafe { steps.at(rank, Place::Cell).add(ABLE).read() };
    let all = (0..steps.size()).fold(MESSAGES | PULLS, |all, rank| all & bits_of(rank));
    if all & PULLS != 0 {
        steps.choice().pulls();
        return Ok(Agreed::Pulls);
    }
    if all & MESSAGES != 0 {
        return Ok(Agreed::Messages);
    }
    steps.choice().forget();
    Ok(Agreed::Boards)
}

/// The place of a rank number in a cell.
fn named(cell: *mut u8, at: usize) -> *mut u32 {
    cell.wrapping_add(at).cast()
}
