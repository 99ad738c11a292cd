//! Reductions over boards.
//!
//! Short vectors are combined by every rank that wants the result, and so are long ones of
//! [two ranks](crate::direct::blocking::pair) and those for a [root](to_root) of few. Other long
//! ones are processed in rounds of what fits in a chunk. In each round every rank is responsible
//! for a part: all others show it their contributions to the part, and it combines them and shows
//! the result. In every case the operands are combined in the order of the ranks, from the last to
//! the first.

use portolan_core::{Device, Result};

use crate::direct::agree::counts;
use crate::direct::blocking::exchange::{self, ASIDE, RADIX};
use crate::direct::blocking::pair;
use crate::direct::blocking::steps::{Steps, Way};
use crate::direct::blocking::to_root::{self, Goal};
use crate::direct::boards::board::{CHUNK, IN_CELL, Kind, Place};
use crate::direct::data::Items;
use crate::schedule::part;

/// The most bytes that a rank reads from others if all ranks combine the same vector. That saves
/// one wait out of two.
const TOGETHER: usize = 64 << 10;

/// The shortest vector, in bytes, of which each of two ranks combines one half: if the operator is
/// the program's, which may take long, and if the ranks take turns on a processor, where all work
/// counts. (On one core of a Zen 5, combining everything takes 0.65, 0.43, 1.09 and 1.30 of the
/// time at 16, 64 and 256 KiB and 1 MiB.)
const HALVED: usize = 16 << 10;
const HALVED_IN_TURNS: usize = 192 << 10;

/// Whether each of two ranks combines one half. All ranks of a communicator have chunks of one
/// length, a long one where they take turns; of the operator they may have different views, which
/// is why this makes another [`Kind`].
fn is_halved<D: Device>(steps: &Steps<'_, D>, items: &Items<'_>) -> bool {
    let room = items.room();
    let in_turns = steps.chunk() > CHUNK && room >= HALVED_IN_TURNS;
    in_turns || room >= HALVED && items.op().predefined().is_none()
}

/// The largest number of ranks with which the root of a long reduction combines everything: the
/// others then only write, and no rank waits for partial results. (Two pinned processes take 9 µs
/// instead of 14 to 27 at 256 KiB, and 57 instead of 60 at 1 MiB; four on two cores 20 to 26
/// instead of 34 to 64, and 138 to 168 instead of 148 to 266.)
const FEW: u32 = 4;

/// Whether every rank combines everything.
fn is_short(items: &Items<'_>, size: u32) -> bool {
    let room = items.room();
    if size > RADIX {
        // (An item may overlap itself, and so have more data than room.)
        return room.max(items.len()) <= ASIDE;
    }
    room * (size as usize - 1) <= TOGETHER
}

/// An allreduce.
///
/// # Safety
/// The items are readable at `from`, which may be `to`, writable at `to`, and valid for the
/// operator.
#[inline]
pub(in crate::direct) unsafe fn allreduce<D: Device>(
    steps: Steps<'_, D>,
    items: &Items<'_>,
    from: *mut u8,
    to: *mut u8,
) -> Result<Way> {
    let is_pair = steps.size() == 2 && items.room() > IN_CELL;
    // SAFETY: from the caller.
    unsafe {
        if is_pair && is_halved(&steps, items) {
            in_parts(
                steps,
                items,
                Goal::All(Kind::AllreduceHalved),
                from,
                Some(to),
            )
        } else if is_pair {
            pair::allreduce(steps, items, from, to)
        } else if is_short(items, steps.size()) {
            exchange::allreduce(steps, items, Kind::Allreduce, from, to)
        } else {
            in_parts(steps, items, Goal::All(Kind::Allreduce), from, Some(to))
        }
    }
}

/// A reduction to `root`, which is the only rank with a `to`.
///
/// # Safety
/// As [`allreduce`].
pub(in crate::direct) unsafe fn reduce<D: Device>(
    steps: Steps<'_, D>,
    items: &Items<'_>,
    root: u32,
    from: *mut u8,
    to: Option<*mut u8>,
) -> Result<Way> {
    let size = steps.size();
    // SAFETY: from the caller.
    unsafe {
        match is_short(items, size) {
            true if size > RADIX => exchange::reduce(steps, items, root, from, to),
            true => to_root::at_once(steps, items, root, from, to),
            false if size <= FEW => to_root::in_chunks(steps, items, root, from, to),
            false => in_parts(steps, items, Goal::Root(root), from, to),
        }
    }
}

/// Whose lines this rank takes in an operation in which no other rank reads the data that it reads:
/// those of all others.
pub(in crate::direct) fn takes<D: Device>(steps: &Steps<'_, D>) -> impl Fn(u32) -> bool + use<D> {
    let (me, takes) = (steps.rank(), steps.takes());
    move |rank| takes && rank != me
}

/// Each rank combines a part of every chunk; a rank with a `to` collects all parts.
unsafe fn in_parts<D: Device>(
    mut steps: Steps<'_, D>,
    items: &Items<'_>,
    goal: Goal,
    from: *mut u8,
    to: Option<*mut u8>,
) -> Result<Way> {
    let (kind, len) = (goal.kind(steps.rank()), items.shown_len());
    let (me, ranks) = (steps.rank() as usize, steps.size() as usize);
    let each = items.per(steps.chunk());
    for first in (0..items.count).step_by(each) {
        let round = items.with(each.min(items.count - first));
        let part = |rank: usize| part(round.count, rank, ranks);
        let source = items.nth(from, first);
        steps.room(Place::Chunk)?;
        let shown = round.on_board(steps.mine(Place::Chunk));
        for rank in (0..ranks).filter(|&rank| rank != me) {
            let part = part(rank);
            let (from, to) = (items.nth(source, part.start), items.nth(shown, part.start));
            // SAFETY: from the caller; the chunk is this rank's, free, and has room for the round.
            unsafe { items.with(part.len()).copy(from, to) };
        }
        steps.post(kind, len);
        goal.expect_all(&mut steps, len)?;
        if steps.disagree() {
            steps.next();
            break;
        }
        let result = items.nth(round.on_board(steps.ahead(Place::Chunk)), part(me).start);
        let operand = |rank: usize| match rank {
            _ if rank == me => items.nth(source, part(me).start),
            _ => {
                let chunk = round.on_board(steps.at(rank as u32, Place::Chunk));
                items.nth(chunk, part(me).start)
            }
        };
        let mine = items.with(part(me).len());
        let takes = takes(&steps);
        for rank in (0..ranks).rev() {
            // SAFETY: all ranks have posted this part with the same number of items, valid for the
            // operator, for this rank alone; this rank's next chunk is free.
            unsafe {
                if rank + 1 == ranks {
                    mine.copy_shown(operand(rank), result, takes(rank as u32));
                } else {
                    mine.combine_shown(operand(rank), result, takes(rank as u32))?;
                }
            }
        }
        if let Some(to) = to {
            let to = items.nth(to, first + part(me).start);
            // SAFETY: `to` is the caller's; the contribution to this round that was there has been
            // shown, or combined.
            unsafe { mine.copy(result, to) };
        }
        steps.next();
        steps.post(kind, len);
        if let Some(to) = to {
            goal.expect_all(&mut steps, len)?;
            let (target, takes) = (items.nth(to, first), steps.takes_from_all());
            for rank in (0..ranks).filter(|&rank| rank != me) {
                let part = part(rank);
                let chunk = round.on_board(steps.at(rank as u32, Place::Chunk));
                let (from, to) = (items.nth(chunk, part.start), items.nth(target, part.start));
                // SAFETY: the results have been posted; `to` is the caller's.
                unsafe { items.with(part.len()).copy_shown(from, to, takes) };
            }
        }
        match (goal, to) {
            // The other ranks have only written in this step, and may need their chunks again
            // before the root calls its next operation.
            (Goal::Root(_), Some(_)) => steps.next_published(),
            _ => steps.next(),
        }
    }
    steps.end(goal.operation(), len)
}

/// The blocks of a reduce-scatter, in items.
#[derive(Clone, Copy, Debug)]
pub(in crate::direct) enum Blocks<'a> {
    /// All blocks have this length.
    Equal(usize),
    /// The lengths, indexed by rank.
    Counts(&'a [usize]),
}

impl Blocks<'_> {
    fn of(&self, rank: usize) -> usize {
        match self {
            Self::Equal(count) => *count,
            Self::Counts(counts) => counts[rank],
        }
    }

    /// What ranks compare besides the longest block: whether the lengths are equal, and a checksum
    /// if they are not.
    fn kind(&self) -> (Kind, Option<u64>) {
        match self {
            Self::Equal(_) => (Kind::ReduceScatter, None),
            Self::Counts(counts) => counts::kind(counts),
        }
    }

    fn longest(&self) -> usize {
        match self {
            Self::Equal(count) => *count,
            Self::Counts(counts) => counts.iter().copied().max().unwrap_or(0),
        }
    }
}

/// A reduce-scatter of `items`, which are the blocks of all ranks; in place without `send`.
///
/// The number of steps depends only on the longest block. That is what ranks compare, along with a
/// checksum of all counts if those are not equal. If it takes one step, a rank whose own block is
/// empty shows what the others need and waits for none of them.
///
/// # Safety
/// The items are readable at `send`, or in place at `recv`, and valid for the operator; this rank's
/// block is writable at `recv`.
pub(in crate::direct) unsafe fn reduce_scatter<D: Device>(
    mut steps: Steps<'_, D>,
    items: &Items<'_>,
    send: Option<*mut u8>,
    recv: *mut u8,
    blocks: Blocks<'_>,
) -> Result<Way> {
    let (kind, sum) = blocks.kind();
    let (me, ranks) = (steps.rank() as usize, steps.size() as usize);
    let longest = items.with(blocks.longest());
    let len = longest.shown_len();
    let taken = sum.map_or(0, |_| counts::TAKEN);
    let shares = longest.room().saturating_mul(ranks).saturating_add(taken);
    let (place, each, share, skip) = if shares <= IN_CELL {
        (Place::Cell, longest.count.max(1), longest.room(), taken)
    } else {
        let share = (steps.chunk() / ranks) & !63;
        (Place::Chunk, items.per(share), share, 0)
    };
    let from = send.unwrap_or(recv);
    // If all blocks are empty, ranks wait all the same, so that they at least see whether they
    // agree.
    let in_one_step = longest.count <= each && longest.count > 0;
    let waits = |rank| !in_one_step || blocks.of(rank) > 0;
    let all_wait = (0..ranks).all(waits);
    let next = |steps: &mut Steps<'_, D>| match place {
        Place::Chunk if !all_wait => steps.next_published(),
        _ => steps.next(),
    };
    // In place, the result would overwrite contributions that later rounds have yet to show.
    let whole = items.with(blocks.of(me));
    let mut aside = vec![0u8; if send.is_none() { whole.room() } else { 0 }];
    let result = match send {
        Some(_) => recv,
        None => whole.on_board(aside.as_mut_ptr()),
    };
    for first in (0..longest.count.max(1)).step_by(each) {
        let now = |rank: usize| items.with(blocks.of(rank).saturating_sub(first).min(each));
        steps.room(place)?;
        let shown = steps.mine(place).wrapping_add(skip);
        let (mut begin, mut own) = (0, from);
        for rank in 0..ranks {
            let source = items.nth(from, begin + first);
            begin += blocks.of(rank);
            if rank == me {
                // Nobody else reads it.
                own = source;
                continue;
            }
            let to = now(rank).on_board(shown.wrapping_add(rank * share));
            // SAFETY: from the caller; the place is this rank's, free, and has room for a share per
            // rank.
            unsafe { now(rank).copy(source, to) };
        }
        if let Some(sum) = sum {
            // SAFETY: the cell is free; its data begins after the checksum.
            unsafe { steps.write_checksum(sum) };
        }
        steps.post(kind, len);
        if waits(me) {
            steps.expect_all(kind, len)?;
            if let Some(sum) = sum.filter(|_| !steps.disagree()) {
                steps.expect_checksum(sum, kind, len);
            }
        }
        if steps.disagree() || !waits(me) {
            next(&mut steps);
            break;
        }
        let (mine, to) = (now(me), items.nth(result, first));
        let at = |rank: usize| match rank == me {
            true => own,
            false => {
                let place = steps.at(rank as u32, place);
                mine.on_board(place.wrapping_add(skip + me * share))
            }
        };
        let takes = takes(&steps);
        // SAFETY: all ranks have posted shares of the same length for this rank alone, valid for
        // the operator; the result is the caller's, or put aside.
        unsafe {
            exchange::combine_and_take(
                0..ranks as u32,
                &mine,
                |rank| at(rank as usize),
                takes,
                to,
            )?;
        }
        next(&mut steps);
    }
    if send.is_none() && !steps.disagree() {
        // SAFETY: from the caller; all of this rank's contributions have been shown.
        unsafe { whole.copy(result, recv) };
    }
    steps.end(kind, len)
}
