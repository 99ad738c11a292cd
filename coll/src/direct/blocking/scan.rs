//! Scans over boards.
//!
//! In a short scan each rank shows its items, and combines those that the ranks before it show,
//! from the last to the first. A long scan goes along the chain of all ranks, and so combines from
//! the first to the last.

use portolan_core::{Device, Result};

use crate::direct::blocking::exchange::{self, shown_at};
use crate::direct::blocking::steps::{Steps, Way};
use crate::direct::boards::board::{Kind, Place};
use crate::direct::data::Items;

/// A scan, or an exscan if `exclusive`.
///
/// # Safety
/// The items are readable at `from`, which may be `to`, writable at `to`, and valid for the
/// operator.
pub(in crate::direct) unsafe fn scan<D: Device>(
    mut steps: Steps<'_, D>,
    items: &Items<'_>,
    from: *mut u8,
    to: *mut u8,
    exclusive: bool,
) -> Result<Way> {
    let kind = if exclusive { Kind::Exscan } else { Kind::Scan };
    let (me, len) = (steps.rank(), items.shown_len());
    if items.count > items.per(steps.chunk()) {
        // All ranks look here, because a rank with another length takes other steps.
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
    // SAFETY: the ranks before have posted the same number of items; `to` is the caller's.
    unsafe {
        let shown = shown_at(&steps, items, place);
        if place == Place::Chunk && steps.takes_from_all() {
            pair(me, items, from, shown(0), to, exclusive)?;
        } else {
            exchange::combine(0..end, items, shown, to)?;
        }
    }
    match place {
        Place::Cell => steps.next(),
        Place::Chunk => steps.next_published(),
    }
    steps.end(kind, len)
}

/// The part of one of two ranks, where the second takes the lines that the first shows. So the
/// first takes its own items from the program's buffer.
///
/// # Safety
/// As [`scan`]; the second rank has seen that the first, whose items are at `shown`, has as many.
pub(in crate::direct) unsafe fn pair(
    me: u32,
    items: &Items<'_>,
    from: *mut u8,
    shown: *mut u8,
    to: *mut u8,
    exclusive: bool,
) -> Result<()> {
    // SAFETY: from the caller.
    unsafe {
        if !exclusive && from != to {
            items.copy(from, to);
        }
        match (me, exclusive) {
            (0, _) => Ok(()),
            (_, false) => items.combine_shown(shown, to, true),
            (_, true) => {
                items.copy_shown(shown, to, true);
                Ok(())
            }
        }
    }
}

/// A scan that goes along the chain of all ranks, chunk after chunk. Each rank shows the next what
/// the rank before it has shown, combined with its own items; it may be some chunks ahead. (If all
/// ranks showed their own items, the last would combine as many vectors as there are ranks.)
unsafe fn along<D: Device>(
    steps: &mut Steps<'_, D>,
    items: &Items<'_>,
    kind: Kind,
    from: *mut u8,
    to: *mut u8,
) -> Result<()> {
    let (me, size, len) = (steps.rank(), steps.size(), items.shown_len());
    let each = items.per(steps.chunk());
    for first in (0..items.count).step_by(each) {
        let round = items.with(each.min(items.count - first));
        let (source, target) = (items.nth(from, first), items.nth(to, first));
        steps.room(Place::Chunk)?;
        // No rank looks at what the last one shows, and in an exscan the last one does not need its
        // own items.
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
            let again = kind == Kind::Exscan;
            if sums {
                // SAFETY: the items have been posted, with the same length, as all ranks have
                // announced; the values are valid, and no other rank reads them.
                unsafe { round.combine_shown(shown, sum, steps.takes() && !again)? };
            }
            if again {
                result = Some(shown);
            }
        }
        let takes = steps.takes();
        let keep = |result: *mut u8| {
            // SAFETY: `to` is the caller's; in place, its previous contents have been copied if any
            // rank needs them. The source is this rank's own sum, or data that it alone reads.
            unsafe { round.copy_shown(result, target, takes && result != sum) };
        };
        // This rank's sum must be copied before posting: the next rank takes its lines and
        // overwrites them.
        let early = result.filter(|&result| takes && result == sum);
        early.into_iter().for_each(keep);
        steps.post_for_few(kind, len);
        if !last {
            steps.wake(me + 1);
        }
        if early.is_none() {
            result.into_iter().for_each(keep);
        }
        steps.next_published();
    }
    Ok(())
}
