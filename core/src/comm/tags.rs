//! Assigns the tags of messages on the collective context (`context.rs` lists the contexts). No two
//! operations share one: creations run in the background (`later.rs`), so messages of different
//! operations can be under way between the same two ranks.

use super::Tag;

/// The first tag on the collective context that this crate leaves free. From here on the tags
/// belong to `coll`.
pub const FIRST_FREE_TAG: u32 = 0x400;

/// The first tag that this crate uses.
const FIRST: u32 = 0x100;

/// Tags per operation: one for each round. The distance between the two ranks doubles from round to
/// round.
const ROUNDS: u32 = u32::BITS;

/// The operations of this crate that send messages on the collective context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Barrier,
    And,
    Bcast,
    Gather,
    /// The lengths of the messages routed to the ends of edges.
    RouteLength,
    Route,
    /// Duplicates in the background. Must stay the last variant.
    Later,
}

const _: () = {
    // A job has at most as many ranks as a `u32` has values.
    assert!(1_u64 << ROUNDS > u32::MAX as u64);
    assert!(FIRST + (Of::Later as u32 + 1) * ROUNDS <= FIRST_FREE_TAG);
};

impl Of {
    /// The tag of the operation in one of its rounds.
    pub(super) const fn in_round(self, round: u32) -> Tag {
        debug_assert!(round < ROUNDS);
        Tag(FIRST + self as u32 * ROUNDS + round)
    }

    /// The tag of an operation that has no rounds.
    pub(super) const fn tag(self) -> Tag {
        self.in_round(0)
    }
}
