//! What a rank thinks of another's part where both ends of a block tell its length.

use crate::schedule::Lane;

/// A message that meets none: the other end has told something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) peer: u32,
    pub(crate) lane: Lane,
    /// Whether this rank sends it.
    pub(crate) sends: bool,
}

/// What is wrong with a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    /// What the other tells of a block, and what this rank has.
    pub(super) theirs: u64,
    pub(super) mine: u64,
    /// Whether the other awaits the block.
    pub(super) awaits: bool,
}

/// What a rank thinks of another's part.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// The first thing that is wrong. With two equal lengths it is something else than those.
    pub(super) wrong: Option<Wrong>,
    pub(super) refused: Vec<Refused>,
}

impl Verdict {
    /// A block from there has another length.
    pub(super) fn comes(&mut self, theirs: u64, mine: u64) {
        self.wrong.get_or_insert(Wrong {
            theirs,
            mine,
            awaits: false,
        });
    }

    /// A block is awaited there with another length.
    pub(super) fn awaits(&mut self, theirs: u64, mine: u64) {
        self.wrong.get_or_insert(Wrong {
            theirs,
            mine,
            awaits: true,
        });
    }

    /// A message to a rank, or from it, is left away.
    pub(super) fn refuse(&mut self, peer: u32, lane: Lane, sends: bool) {
        self.refused.push(Refused { peer, lane, sends });
    }
}
