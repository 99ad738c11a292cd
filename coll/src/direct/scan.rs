//! Scans over boards.
//!
//! Short ones: each rank shows its items, and combines what those before it show, from the last to the first. Long ones
//! go along the chain of all ranks, and so from the first to the last.

use portolan_core::{Device, Result};

use super::board::{Kind, Place};
use super::data::Items;
use super::exchange::{self, shown_at};
use super::steps::{Steps, Way};

/// A scan, or an exscan if `exclusive`.
///
/// # Safety
/// The items are readable at `from`, which may be `to`, writable at `to`, and valid for the operator.
pub(super) unsafe fn scan<D: Device>(
    mut steps: Steps<'_, D>,
    items: &Items<'_>,
    from: *mut u8,
    to: *mut u8,
    exclusive: bool,
) -> Result<Way> {
    let kind = if exclusive { Kind::Exscan } else { Kind::Scan };
    let (me, len) = (steps.rank(), items.len());
    if items.count > items.per(steps.chunk()) {
        // All of them look: whoever has another length takes other steps.
        steps.announce(kind, len)?;
        if !steps.disagree() {
            // SAFETY: from the caller.
            unsafe { along(&mut steps, items, kind, from, to)? };
        }
        return steps.end(kind, len);
    }
    let end = if exclusive { me } else { me + 1 };
    let place = Place::of(items.room());
    steps.room(place)?;
    // SAFETY: from the caller; the place is this rank's, free, and has room for the items.
    unsafe { items.copy(from, items.on_board(steps.mine(place))) };
    steps.post(kind, len);
    for rank in 0..me {
        steps.expect(rank, kind, len)?;
    }
    if steps.disagree() {
        steps.next_published();
        return steps.end(kind, len);
    }
    // SAFETY: the ranks before have posted as many items; `to` is the caller's.
    unsafe { exchange::combine(0..end, items, shown_at(&steps, items, place), to)? };
    match place {
        Place::Cell => steps.next(),
        Place::Chunk => steps.next_published(),
    }
    steps.end(kind, len)
}

/// Chunk after chunk goes along the chain of all ranks: each shows the next what the one before it has shown, combined
/// with its own, and may be some chunks ahead. (If all showed their own, the last would combine as many vectors as there
/// are ranks.)
unsafe fn along<D: Device>(
    steps: &mut Steps<'_, D>,
    items: &Items<'_>,
    kind: Kind,
    from: *mut u8,
    to: *mut u8,
) -> Result<()> {
    let (me, size, len) = (steps.rank(), steps.size(), items.len());
    let each = items.per(steps.chunk());
    for first in (0..items.count).step_by(each) {
        let round = items.with(each.min(items.count - first));
        let (source, target) = (items.nth(from, first), items.nth(to, first));
        steps.room(Place::Chunk)?;
        // Nobody looks at what the last one shows, and in an exscan it has no use for its own.
        let last = me + 1 == size;
        let sum = match last {
            true => target,
            false => round.on_board(steps.mine(Place::Chunk)),
        };
        let sums = !last || kind == Kind::Scan;
        if sums && sum != source {
            // SAFETY: from the caller; the chunk is this rank's, free, and has room for the round.
            unsafe { round.copy(source, sum) };
        }
        let mut result = (kind == Kind::Scan && !last).then_some(sum);
        if me > 0 {
            steps.expect(me - 1, kind, len)?;
            let shown = round.on_board(steps.at(me - 1, Place::Chunk));
            if sums {
                // SAFETY: it has been posted, of the same length, as all have announced; the values are valid.
                unsafe { round.combine(shown, sum)? };
            }
            if kind == Kind::Exscan {
                result = Some(shown);
            }
        }
        steps.post_for_few(kind, len);
        if !last {
            steps.wake(me + 1);
        }
        if let Some(result) = result {
            // SAFETY: `to` is the caller's; what is in place there has been copied before, if anybody needs it.
            unsafe { round.copy(result, target) };
        }
        steps.next_published();
    }
    Ok(())
}
