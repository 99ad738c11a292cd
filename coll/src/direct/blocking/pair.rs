//! Allreduces of two ranks whose items do not fit in a cell.
//!
//! Each rank shows the other its items, a chunk at a time, and both combine all of them. So a round
//! is one step. (If each rank combines one half and then shows the result, as more ranks do, just
//! as many lines go from one processor to the other, in two steps. Two ranks on Zen 5, near, take
//! 0.7 of the time of that way from 16 to 256 KiB, and 0.76 to 0.87 above; 64 to 128 KiB used to go
//! by messages, and take 0.73 to 0.82 of that time.)

use std::mem::MaybeUninit;

use portolan_core::{Device, Result};

use crate::direct::blocking::exchange::{ASIDE, Aside, shown_at};
use crate::direct::blocking::steps::{Steps, Way};
use crate::direct::boards::board::{Kind, Place};
use crate::direct::data::Items;

/// Reduces over two ranks. Both combine in the order of the ranks, and get the same bits.
///
/// # Safety
/// As [`exchange::allreduce`](crate::direct::blocking::exchange::allreduce), for items of any
/// length. There are two ranks.
pub(in crate::direct) unsafe fn allreduce<D: Device>(
    mut steps: Steps<'_, D>,
    items: &Items<'_>,
    from: *mut u8,
    to: *mut u8,
) -> Result<Way> {
    let (me, kind, len) = (steps.rank(), Kind::Allreduce, items.shown_len());
    let each = items.per(steps.chunk());
    for first in (0..items.count).step_by(each) {
        let round = items.with(each.min(items.count - first));
        let (from, to) = (items.nth(from, first), items.nth(to, first));
        steps.room(Place::Chunk)?;
        // SAFETY: from the caller; the chunk is this rank's, free, and has room for the round.
        unsafe { round.copy(from, round.on_board(steps.mine(Place::Chunk))) };
        steps.post(kind, len);
        steps.expect_all(kind, len)?;
        if steps.disagree() {
            steps.next();
            break;
        }
        let theirs = shown_at(&steps, &round, Place::Chunk)(1 - me);
        // SAFETY: from the caller; the other rank has posted as many items.
        unsafe { combine_pair(me, &round, from, (theirs, steps.takes_from_all()), to)? };
        steps.next();
    }
    steps.end(kind, len)
}

/// Combines the items of two ranks. A rank takes its own items from the program's buffer. `takes`
/// says that each takes the lines that the other shows, so that it must not read its own board.
///
/// # Safety
/// The items are readable at `from`, which may be `to`; the other rank's have been posted at
/// `theirs`; they are writable at `to`, and valid for the operator.
pub(in crate::direct) unsafe fn combine_pair(
    me: u32,
    items: &Items<'_>,
    from: *const u8,
    (theirs, takes): (*mut u8, bool),
    to: *mut u8,
) -> Result<()> {
    let in_place = std::ptr::eq(from, to);
    // SAFETY: from the caller; there is room aside.
    unsafe {
        if me == 1 {
            // This rank is the last, so its items are the right operand.
            if !in_place {
                items.copy(from, to);
            }
            return items.combine_shown(theirs, to, takes);
        }
        if !in_place {
            items.copy_shown(theirs, to, takes);
            return items.combine(from, to);
        }
        // The other rank's items must be the right operand, and so must end up where this rank's
        // own items are.
        let each = items.per(ASIDE);
        let room = items.with(each).room();
        let mut aside = Aside([MaybeUninit::<u8>::uninit(); ASIDE]);
        let mut long = vec![
            Aside([MaybeUninit::<u8>::uninit(); 64]);
            if room > ASIDE { room.div_ceil(64) } else { 0 }
        ];
        let aside = match long.as_mut_slice() {
            [] => aside.0.as_mut_ptr(),
            long => long.as_mut_ptr().cast(),
        };
        for first in (0..items.count).step_by(each) {
            let now = items.with(each.min(items.count - first));
            let (own, to) = (now.on_board(aside.cast()), items.nth(to, first));
            now.copy(to, own);
            now.copy_shown(items.nth(theirs, first), to, takes);
            now.combine(own, to)?;
        }
        Ok(())
    }
}
