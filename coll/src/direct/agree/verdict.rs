//! A rank's check of another's part where both ends of a block state its length.

use crate::schedule::Lane;

/// A message without a counterpart, because the other end has stated something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) peer: u32,
    pub(crate) lane: Lane,
    /// Whether this rank is the sender.
    pub(crate) sends: bool,
}

/// What is wrong with a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::direct) struct Wrong {
    /// The length that the other rank states for a block, and the length that this rank has.
    pub(in crate::direct) theirs: u64,
    pub(in crate::direct) mine: u64,
    /// Whether the other rank awaits the block.
    pub(in crate::direct) awaits: bool,
}

/// The result of a rank's check of another's part.
#[derive(Debug, Default)]
pub(in crate::direct) struct Verdict {
    /// The first thing that is wrong. If its two lengths are equal, something other than the length
    /// is wrong.
    pub(in crate::direct) wrong: Option<Wrong>,
    pub(in crate::direct) refused: Vec<Refused>,
}

impl Verdict {
    /// A block that the other rank gives has another length.
    pub(in crate::direct) fn comes(&mut self, theirs: u64, mine: u64) {
        self.wrong.get_or_insert(Wrong {
            theirs,
            mine,
            awaits: false,
        });
    }

    /// The other rank awaits a block with another length.
    pub(in crate::direct) fn awaits(&mut self, theirs: u64, mine: u64) {
        self.wrong.get_or_insert(Wrong {
            theirs,
            mine,
            awaits: true,
        });
    }

    /// Drops a message to or from a rank.
    pub(in crate::direct) fn refuse(&mut self, peer: u32, lane: Lane, sends: bool) {
        self.refused.push(Refused { peer, lane, sends });
    }
}
