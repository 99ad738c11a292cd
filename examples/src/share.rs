//! How items are distributed over ranks: in blocks of nearly equal length.

use std::ops::Range;

/// The share of `rank` when `count` items are distributed over `ranks` ranks; if they do not divide
/// evenly, the earlier ranks have one more.
///
/// ```
/// use portolan_examples::share;
///
/// assert_eq!([0, 1, 2].map(|rank| share(7, rank, 3)), [0..3, 3..5, 5..7]);
/// ```
#[must_use]
pub fn share(count: usize, rank: u32, ranks: u32) -> Range<usize> {
    let (rank, ranks) = (rank as usize, ranks as usize);
    let (each, more) = (count / ranks, count % ranks);
    let begin = rank * each + rank.min(more);
    begin..begin + each + usize::from(rank < more)
}
