//! The tags of messages on the collective context: who has which. Messages of different operations
//! can be under way between two ranks at once, because creations go on in the background
//! (`later.rs`), so no two share one.

use super::Tag;

/// The first tag on the collective context that this crate leaves alone: they are `coll`'s from
/// there on.
pub const FIRST_FREE_TAG: u32 = 0x400;

/// The first tag of this crate.
const FIRST: u32 = 0x100;

/// Tags of each operation: one per round, in each of which the distance between two ranks doubles.
const ROUNDS: u32 = u32::BITS;

/// The operations of this crate that have messages there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Barrier,
    And,
    Bcast,
    Gather,
    /// How much is routed to the ends of edges.
    RouteLength,
    Route,
    /// Duplicates in the background. It is the last one.
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
