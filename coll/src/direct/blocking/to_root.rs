//! Reductions over boards to a root, and how ranks see that there is one.
//!
//! The root shows that it awaits data ([`Kind::ReduceAwaited`]). Otherwise two ranks that each take
//! themselves for the root would both take the lines of contributions that the other combines. In
//! steps in which all ranks look at all others, they also see that no rank is the root, or that
//! another rank is than the one they name.

use portolan_core::{Device, Result};

use crate::direct::blocking::exchange::{self, or_own, shown_at};
use crate::direct::blocking::reduce::takes;
use crate::direct::blocking::steps::{Steps, Way};
use crate::direct::boards::board::{CHUNK, CHUNKS, Kind, Place};
use crate::direct::data::Items;

/// Which ranks want the result of a reduction.
#[derive(Clone, Copy, Debug)]
pub(in crate::direct) enum Goal {
    /// All of them, in an operation of this kind.
    All(Kind),
    Root(u32),
}

impl Goal {
    /// The kind that a rank shows.
    #[inline]
    pub(in crate::direct) fn kind(self, rank: u32) -> Kind {
        match self {
            Self::All(kind) => kind,
            Self::Root(root) if root == rank => Kind::ReduceAwaited,
            Self::Root(_) => Kind::Reduce,
        }
    }

    /// The kind of the operation as a whole.
    pub(in crate::direct) fn operation(self) -> Kind {
        match self {
            Self::All(kind) => kind,
            Self::Root(_) => Kind::Reduce,
        }
    }

    /// Waits for the cells of all others, which do the same operation for the same root.
    ///
    /// All ranks see the same roots, and so agree about what follows. With no root, or several,
    /// nothing more is done. With one root all ranks go on: a rank that names another root reports
    /// the error at the end, because the root and the ranks that agree with it may not have seen
    /// it.
    pub(in crate::direct) fn expect_all<D: Device>(
        self,
        steps: &mut Steps<'_, D>,
        len: usize,
    ) -> Result<()> {
        let root = match self {
            Self::All(kind) => return steps.expect_all(kind, len),
            Self::Root(root) => root,
        };
        steps.settle();
        let mut roots = u32::from(steps.rank() == root);
        let mut odd = None;
        for rank in steps.others() {
            let header = steps.header_of(rank)?;
            let (wanted, other) = match rank == root {
                true => (Kind::ReduceAwaited, Kind::Reduce),
                false => (Kind::Reduce, Kind::ReduceAwaited),
            };
            if steps.does(rank, header, wanted, len) {
                roots += u32::from(rank == root);
            } else if steps.does(rank, header, other, len) {
                roots += u32::from(rank != root);
                odd = odd.or(Some(rank));
            } else {
                steps.note(rank, header);
            }
        }
        match odd {
            Some(rank) if roots == 1 => steps.see_root(rank),
            Some(rank) => steps.note_root(rank),
            None => {}
        }
        steps.seen_all();
        Ok(())
    }
}

/// Whether a rank shows its contribution. The root does so only if the result would overwrite it.
/// Nobody else reads what the root shows.
fn shows(from: *mut u8, to: Option<*mut u8>) -> bool {
    to.is_none_or(|to| std::ptr::eq(from, to))
}

/// All ranks show the root their contributions.
///
/// # Safety
/// As [`allreduce`](crate::direct::blocking::reduce::allreduce).
pub(in crate::direct) unsafe fn at_once<D: Device>(
    mut steps: Steps<'_, D>,
    items: &Items<'_>,
    root: u32,
    from: *mut u8,
    to: Option<*mut u8>,
) -> Result<Way> {
    let (goal, len) = (Goal::Root(root), items.shown_len());
    let place = Place::of(items.room());
    steps.room(place)?;
    if shows(from, to) {
        // SAFETY: from the caller; the place is this rank's, and free.
        unsafe { items.copy(from, items.on_board(steps.mine(place))) };
    }
    steps.post(goal.kind(steps.rank()), len);
    if let Some(to) = to {
        for rank in steps.others() {
            steps.expect(rank, Kind::Reduce, len)?;
        }
        if !steps.disagree() {
            let shown = or_own(steps.rank(), from, to, shown_at(&steps, items, place));
            let takes = takes(&steps);
            // SAFETY: all have posted the same number of items, which this rank alone reads; `to`
            // is the caller's.
            unsafe {
                exchange::combine_and_take(0..steps.size(), items, shown, takes, to)?;
            };
        }
    }
    match place {
        Place::Cell => steps.next(),
        Place::Chunk => steps.next_published(),
    }
    steps.end(Kind::Reduce, len)
}

/// All ranks show the root one chunk after another, and the root combines them. The others may be
/// some chunks ahead. So if all chunks together hold the data, the others need not wait for the
/// root at all, and the root never waits for the whole of their data.
///
/// # Safety
/// As [`allreduce`](crate::direct::blocking::reduce::allreduce).
pub(in crate::direct) unsafe fn in_chunks<D: Device>(
    mut steps: Steps<'_, D>,
    items: &Items<'_>,
    root: u32,
    from: *mut u8,
    to: Option<*mut u8>,
) -> Result<Way> {
    let (goal, len) = (Goal::Root(root), items.shown_len());
    let even = (items.len() / CHUNKS as usize).next_multiple_of(4096);
    let each = items.per(even.clamp(CHUNK, steps.chunk()));
    for first in (0..items.count).step_by(each) {
        let round = items.with(each.min(items.count - first));
        steps.room(Place::Chunk)?;
        if shows(from, to) {
            let chunk = round.on_board(steps.mine(Place::Chunk));
            // SAFETY: from the caller; the chunk is this rank's, free, and has room for the round.
            unsafe { round.copy(items.nth(from, first), chunk) };
        }
        steps.post(goal.kind(steps.rank()), len);
        if first == 0 {
            // All ranks look at all others here, because a rank with another length takes other
            // steps.
            goal.expect_all(&mut steps, len)?;
        } else if to.is_some() {
            for rank in steps.others() {
                steps.expect(rank, Kind::Reduce, len)?;
            }
        }
        if steps.disagree() {
            steps.next_published();
            break;
        }
        if let Some(to) = to {
            let target = items.nth(to, first);
            let shown = shown_at(&steps, &round, Place::Chunk);
            let shown = or_own(steps.rank(), items.nth(from, first), target, shown);
            let takes = takes(&steps);
            // SAFETY: all have posted the same number of items, which this rank alone reads; `to`
            // is the caller's.
            unsafe {
                exchange::combine_and_take(0..steps.size(), &round, shown, takes, target)?;
            }
        }
        steps.next_published();
    }
    steps.end(Kind::Reduce, len)
}
