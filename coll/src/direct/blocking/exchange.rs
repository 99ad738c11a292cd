//! Exchanges: every rank learns from every other, in few rounds.
//!
//! Up to [`RADIX`] ranks look at all others at once. More ranks do so in rounds: first within
//! blocks of [`RADIX`] ranks; then between the blocks of a block of blocks, each rank with one rank
//! of every other block; and so on. What a rank shows in a round is the result of its block so far.

use std::mem::MaybeUninit;

use portolan_core::{Device, Result};

use crate::direct::blocking::steps::{Steps, Way};
use crate::direct::boards::board::{Header, Kind, Place};
use crate::direct::data::Items;

/// The largest number of ranks that look at each other in one round.
pub(in crate::direct) const RADIX: u32 = 8;

/// The ranks with which a rank exchanges in a round: one rank per block, in the order of the
/// blocks, and itself for its own block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Round {
    rank: u32,
    size: u32,
    /// Ranks per block.
    block: u32,
    /// First rank of the block of blocks.
    first: u32,
}

impl Round {
    /// The rounds of a rank.
    #[inline]
    fn all(rank: u32, size: u32) -> impl Iterator<Item = Self> {
        let next = |block: &u32| block.checked_mul(RADIX);
        std::iter::successors(Some(1u32), next)
            .take_while(move |&block| block < size)
            .map(move |block| Self {
                rank,
                size,
                block,
                first: rank - rank % block.saturating_mul(RADIX),
            })
    }

    /// The partner in the block with this number, if there is such a block.
    #[inline]
    fn partner(&self, number: u32) -> Option<u32> {
        let start = self.first.checked_add(number.checked_mul(self.block)?)?;
        if number >= RADIX || start >= self.size {
            return None;
        }
        let ranks = self.block.min(self.size - start);
        Some(start + (self.rank - self.first) % self.block % ranks)
    }

    /// The partners in the other blocks, in order.
    #[inline]
    fn partners(self) -> impl DoubleEndedIterator<Item = u32> {
        let me = self.rank;
        let all = (0..RADIX).filter_map(move |number| self.partner(number));
        all.filter(move |&rank| rank != me)
    }

    /// All blocks, in order: the rank for each.
    #[inline]
    fn blocks(self) -> impl DoubleEndedIterator<Item = u32> {
        (0..RADIX).filter_map(move |number| self.partner(number))
    }
}

/// Number of rounds.
pub(in crate::direct) fn rounds(size: u32) -> usize {
    Round::all(0, size).count()
}

/// A barrier.
#[inline]
pub(in crate::direct) fn barrier<D: Device>(mut steps: Steps<'_, D>) -> Result<Way> {
    if steps.size() <= RADIX {
        steps.room(Place::Cell)?;
        steps.post(Kind::Barrier, 0);
        return end_begun_barrier(steps);
    }
    let first = steps.number();
    for round in Round::all(steps.rank(), steps.size()) {
        post_and_see(&mut steps, round, Kind::Barrier, 0)?;
        steps.next();
    }
    // A cell shown by a rank in another operation proves nothing about the ranks that it has heard
    // of.
    if !steps.disagree() {
        steps.all_reached(first);
    }
    leave_barrier(steps)
}

/// The rest of a barrier of at most [`RADIX`] ranks once this rank has posted its cell.
#[inline]
pub(in crate::direct) fn end_begun_barrier<D: Device>(mut steps: Steps<'_, D>) -> Result<Way> {
    steps.expect_all(Kind::Barrier, 0)?;
    steps.next();
    leave_barrier(steps)
}

#[inline]
fn leave_barrier<D: Device>(mut steps: Steps<'_, D>) -> Result<Way> {
    steps.leave_barrier();
    steps.end(Kind::Barrier, 0)
}

/// Posts what this rank shows in this round, which the caller has already written to its place, and
/// waits for what its partners show.
#[inline]
fn post_and_see<D: Device>(
    steps: &mut Steps<'_, D>,
    round: Round,
    kind: Kind,
    len: usize,
) -> Result<()> {
    steps.room(Place::Cell)?;
    match steps.disagree() {
        true => steps.post(Kind::Disagree, steps.about_roots().into()),
        false => steps.post(kind, len),
    }
    for partner in round.partners() {
        let header = steps.header_of(partner)?;
        if !steps.does(partner, header, kind, len) {
            note_in_rounds(steps, partner, header, (kind, len));
        }
    }
    Ok(())
}

/// Records what a partner is doing that this rank, which shows `mine`, does not expect.
#[cold]
fn note_in_rounds<D: Device>(
    steps: &mut Steps<'_, D>,
    partner: u32,
    header: Header,
    mine: (Kind, usize),
) {
    let own = steps.expected(mine.0, mine.1);
    let reduces = |header: Header| header.kind() == Some(Kind::ReduceInRounds);
    if reduces(header) && reduces(own) && header.data_len() == own.data_len() {
        steps.note_root(partner);
    } else {
        steps.note(partner, header);
    }
}

/// The largest [`allreduce`] by more than [`RADIX`] ranks, in bytes: partial results have to be put
/// aside between rounds.
pub(in crate::direct) const ASIDE: usize = 2048;

/// Room for partial results.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Aside<const BYTES: usize>(pub(super) [MaybeUninit<u8>; BYTES]);

/// Reduces over all ranks data that fits in a cell or a chunk, or [`ASIDE`] bytes with more than
/// [`RADIX`] ranks. All ranks combine in the order of the ranks, and get the same bits. (Two ranks
/// have [a way of their own](crate::direct::blocking::pair) for what does not fit in a cell.)
///
/// # Safety
/// `items` are readable at `from`, writable at `to`, and hold valid values for the operator on all
/// ranks. (`from` and `to` may be the same.)
#[inline]
pub(in crate::direct) unsafe fn allreduce<D: Device>(
    mut steps: Steps<'_, D>,
    items: &Items<'_>,
    kind: Kind,
    from: *const u8,
    to: *mut u8,
) -> Result<Way> {
    if steps.size() > RADIX {
        // SAFETY: from the caller.
        return unsafe { in_rounds(steps, items, (kind, items.shown_len()), from, Some(to)) };
    }
    let (len, place) = (items.shown_len(), Place::of(items.room()));
    steps.room(place)?;
    // SAFETY: from the caller; the place is this rank's, and free.
    unsafe { items.copy(from, items.on_board(steps.mine(place))) };
    steps.post(kind, len);
    // SAFETY: from the caller.
    unsafe { end_begun(steps, items, kind, from, to) }
}

/// The rest of an [`allreduce`] by at most [`RADIX`] ranks once this rank has posted its part.
///
/// # Safety
/// As [`allreduce`].
#[inline]
pub(in crate::direct) unsafe fn end_begun<D: Device>(
    mut steps: Steps<'_, D>,
    items: &Items<'_>,
    kind: Kind,
    from: *const u8,
    to: *mut u8,
) -> Result<Way> {
    let (len, place) = (items.shown_len(), Place::of(items.room()));
    steps.expect_all(kind, len)?;
    // (Buffers without items may be null.)
    if !steps.disagree() && len > 0 {
        let shown = shown_at(&steps, items, place);
        // SAFETY: all have posted as many items, and the caller promises that they are valid.
        unsafe {
            let shown = or_own(steps.rank(), from.cast_mut(), to, shown);
            combine(0..steps.size(), items, shown, to)?;
        };
    }
    steps.next();
    steps.end(kind, len)
}

/// Reduces for `root` in the same rounds in which [`allreduce`] works with more than [`RADIX`]
/// ranks. `to` is the root's buffer.
///
/// # Safety
/// As [`allreduce`].
pub(in crate::direct) unsafe fn reduce<D: Device>(
    steps: Steps<'_, D>,
    items: &Items<'_>,
    root: u32,
    from: *const u8,
    to: Option<*mut u8>,
) -> Result<Way> {
    let what = (
        Kind::ReduceInRounds,
        Header::len_and_root(items.shown_len_beside_root(), root),
    );
    // SAFETY: from the caller.
    unsafe { in_rounds(steps, items, what, from, to) }
}

/// `to` is `None` at a rank that needs no result; `what` is what ranks show in their headers.
///
/// # Safety
/// As [`allreduce`].
unsafe fn in_rounds<D: Device>(
    mut steps: Steps<'_, D>,
    items: &Items<'_>,
    what: (Kind, usize),
    from: *const u8,
    to: Option<*mut u8>,
) -> Result<Way> {
    let ((kind, len), place) = (what, Place::of(items.room()));
    let first = steps.number();
    let mut rounds = Round::all(steps.rank(), steps.size()).peekable();
    let mut aside = Aside([MaybeUninit::<u8>::uninit(); ASIDE]);
    let aside = items.on_board(aside.0.as_mut_ptr().cast());
    let mut shown = from;
    while let Some(round) = rounds.next() {
        steps.room(place)?;
        if !steps.disagree() {
            // SAFETY: the items are the caller's in the first round, and later what the round
            // before has put aside; the place is this rank's, and free.
            unsafe { items.copy(shown, items.on_board(steps.mine(place))) };
        }
        post_and_see(&mut steps, round, kind, len)?;
        let more = rounds.peek().is_some();
        let target = if more { Some(aside) } else { to };
        // A rank that disagrees may show less data, so none of it is read.
        if let Some(target) = target.filter(|_| !steps.disagree()) {
            // SAFETY: the partners have posted as many bytes. No rank shows the target.
            unsafe {
                combine(
                    round.blocks(),
                    items,
                    shown_at(&steps, items, place),
                    target,
                )?;
            };
        }
        shown = aside;
        steps.next();
    }
    if !steps.disagree() {
        steps.all_reached(first);
    }
    steps.end(kind, items.shown_len())
}

/// Where ranks show items that lie at `place` in the current step.
#[inline]
pub(in crate::direct) fn shown_at<D: Device>(
    steps: &Steps<'_, D>,
    items: &Items<'_>,
    place: Place,
) -> impl Fn(u32) -> *mut u8 {
    move |rank| items.on_board(steps.at(rank, place))
}

/// Where the items of a rank are: on its board, as `shown` says, but this rank's own ones in the
/// program's buffer `from`, unless the result goes there. A chunk that was just written is not in
/// the first-level cache, and others may be reading it, so a copy from there takes longer than one
/// from the buffer. (For that reason an allreduce of two ranks of 8 KiB takes 0.65 of the time,
/// near on Zen 5.)
#[inline]
pub(in crate::direct) fn or_own(
    me: u32,
    from: *mut u8,
    to: *mut u8,
    shown: impl Fn(u32) -> *mut u8,
) -> impl Fn(u32) -> *mut u8 {
    let own = (!std::ptr::eq(from, to)).then_some(from);
    move |rank| match own {
        Some(own) if rank == me => own,
        _ => shown(rank),
    }
}

/// Combines what `ranks` show, in their order; `shown` says where.
///
/// # Safety
/// All of them have posted as many items as these, valid for the operator; the items are writable
/// at `target`.
#[inline]
pub(in crate::direct) unsafe fn combine(
    ranks: impl DoubleEndedIterator<Item = u32>,
    items: &Items<'_>,
    shown: impl Fn(u32) -> *mut u8,
    target: *mut u8,
) -> Result<()> {
    // SAFETY: from the caller.
    unsafe { combine_and_take(ranks, items, shown, |_| false, target) }
}

/// The same; `takes` says whether to take the lines that a rank shows.
///
/// # Safety
/// As [`combine`], and lines that are taken have no other reader.
#[inline]
pub(in crate::direct) unsafe fn combine_and_take(
    ranks: impl DoubleEndedIterator<Item = u32>,
    items: &Items<'_>,
    shown: impl Fn(u32) -> *mut u8,
    takes: impl Fn(u32) -> bool,
    target: *mut u8,
) -> Result<()> {
    let mut ranks = ranks.rev();
    if let Some(last) = ranks.next() {
        // SAFETY: from the caller.
        unsafe { items.copy_shown(shown(last), target, takes(last)) };
    }
    ranks.try_for_each(|rank| {
        // SAFETY: from the caller.
        unsafe { items.combine_shown(shown(rank), target, takes(rank)) }
    })
}

/// Takes the remaining steps of the rounds in an operation of more than [`RADIX`] ranks, without
/// waiting. So all operations take the same number of steps or a multiple of it, and ranks that
/// called different ones are in step again afterwards. `taken` is how many steps the operation has
/// taken, and `kind` what it is.
#[inline]
pub(in crate::direct) fn fill<D: Device>(
    steps: &mut Steps<'_, D>,
    kind: Kind,
    taken: u32,
) -> Result<()> {
    let rounds = rounds(steps.size()) as u32;
    let partners = |number: u32, steps: &Steps<'_, D>| {
        let round = Round::all(steps.rank(), steps.size()).nth((number % rounds) as usize);
        round.into_iter().flat_map(Round::partners)
    };
    // Ranks that have called an operation in rounds by mistake may sleep until they see this rank's
    // steps.
    let is_in_rounds = matches!(kind, Kind::Barrier | Kind::Allreduce | Kind::ReduceInRounds);
    if !is_in_rounds {
        for number in 0..taken.min(rounds) {
            partners(number, steps).for_each(|partner| steps.wake(partner));
        }
    }
    for number in taken..taken.next_multiple_of(rounds) {
        steps.room(Place::Cell)?;
        match steps.disagree() {
            true => steps.post_for_few(Kind::Disagree, steps.about_roots().into()),
            false => steps.post_for_few(kind, 0),
        }
        partners(number, steps).for_each(|partner| steps.wake(partner));
        steps.next();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tracks, round by round, which ranks each rank has heard of: in block order, without gaps.
    #[test]
    fn after_the_rounds_everybody_has_heard_of_everybody_once() {
        for size in 2..200 {
            let mut known: Vec<Vec<u32>> = (0..size).map(|rank| vec![rank]).collect();
            for number in 0..rounds(size) {
                let heard = |rank: u32| {
                    let round = Round::all(rank, size).nth(number).expect("a round");
                    let blocks = round.blocks();
                    blocks
                        .flat_map(|from| known[from as usize].clone())
                        .collect()
                };
                known = (0..size).map(heard).collect();
            }
            let all: Vec<u32> = (0..size).collect();
            assert!(known.iter().all(|known| *known == all), "{size} ranks");
        }
    }

    #[test]
    fn few_ranks_need_one_round() {
        assert_eq!([2, 8, 9, 64, 65].map(rounds), [1, 1, 2, 2, 3]);
    }
}
