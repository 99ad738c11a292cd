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
pub(in crate::direct) struct Wrong {
    /// What the other tells of a block, and what this rank has.
    pub(in crate::direct) theirs: u64,
    pub(in crate::direct) mine: u64,
    /// Whether the other awaits the block.
    pub(in crate::direct) awaits: bool,
}

/// What a rank thinks of another's part.
#[derive(Debug, Default)]
pub(in crate::direct) struct Verdict {
    /// The first thing that is wrong. With two equal lengths it is something else than those.
    pub(in crate::direct) wrong: Option<Wrong>,
    pub(in crate::direct) refused: Vec<Refused>,
}

impl Verdict {
    /// A block from there has another length.
    pub(in crate::direct) fn comes(&mut self, theirs: u64, mine: u64) {
        self.wrong.get_or_insert(Wrong {
            theirs,
            mine,
            awaits: false,
        });
    }

    /// A block is awaited there with another length.
    pub(in crate::direct) fn awaits(&mut self, theirs: u64, mine: u64) {
        self.wrong.get_or_insert(Wrong {
            theirs,
            mine,
            awaits: true,
        });
    }

    /// A message to a rank, or from it, is left away.
    pub(in crate::direct) fn refuse(&mut self, peer: u32, lane: Lane, sends: bool) {
        self.refused.push(Refused { peer, lane, sends });
    }
}
