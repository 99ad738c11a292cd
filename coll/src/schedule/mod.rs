//! Schedules: what one rank does in one collective operation.
//!
//! An algorithm does not communicate. It writes down, for one rank, the steps that the rank is to
//! take ([`Builder`]); the same schedule then runs inside a blocking call, inside progress, or as
//! often as a persistent operation is started, and a test can run the schedules of all ranks
//! without any device (`simulate.rs`).
//!
//! **Meaning.** Steps are taken in order. [`Step::Send`] and [`Step::Recv`] start, [`Step::Wait`]
//! waits for everything that was started before it, and the end of the schedule does too. From its
//! start to the next `Wait` the memory of a receive belongs to it, and that of a send must not be
//! written. [`Step::Copy`] and [`Step::Combine`] happen where they stand.
//!
//! **Matching.** Between two ranks, the messages of one operation in one lane match in the order in
//! which both start them. Every algorithm has to start them in the same order on both sides.

mod builder;
mod span;

pub(crate) use builder::ALIGN;
pub use builder::Builder;
pub use span::{Base, Blocks, LayoutId, Span, part};

use portolan_datatype::{Layout, Op};

use crate::args::Name;
use crate::exact::Convert;

pub use crate::compare::Compare;

/// Tells messages apart that the order of starting does not: the two directions between the same
/// two ranks on a ring of two, say. Below [`LANES`].
pub type Lane = u8;

/// Number of lanes.
pub const LANES: u32 = 64;

/// One step. Ranks are those of the communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Starts a send.
    Send {
        /// Receiver.
        to: u32,
        /// Lane.
        lane: Lane,
        /// What is sent.
        data: Span,
    },
    /// Starts a receive of exactly as many bytes.
    Recv {
        /// Sender.
        from: u32,
        /// Lane.
        lane: Lane,
        /// Where it goes.
        data: Span,
    },
    /// Waits for everything that was started.
    Wait,
    /// Copies. The two do not overlap, or are the same.
    Copy {
        /// What is copied.
        from: Span,
        /// Where to; as many bytes of data.
        to: Span,
    },
    /// `right = left op right`, item by item.
    Combine {
        /// The operands that come first, in the order of the ranks.
        left: Span,
        /// Those that come after, and the result.
        right: Span,
    },
    /// Converts numbers to exact sums, or back. The two do not overlap.
    Convert {
        /// Which way.
        how: Convert,
        /// What is converted.
        from: Span,
        /// Where to; as many items.
        to: Span,
    },
    /// A step of the debug mode's comparison.
    Compare(Compare),
}

impl Step {
    /// Bytes that this rank itself copies, combines or converts.
    pub(crate) fn work(&self) -> usize {
        match self {
            Self::Copy { to, .. } | Self::Convert { to, .. } => to.len(),
            Self::Combine { right, .. } => right.len(),
            Self::Send { .. } | Self::Recv { .. } | Self::Wait | Self::Compare(_) => 0,
        }
    }
}

/// What one rank does in one collective operation. See the [module](self).
#[derive(Clone, Default)]
pub struct Schedule {
    pub(crate) steps: Vec<Step>,
    /// By [`LayoutId`]; the first is bytes.
    pub(crate) layouts: Vec<Layout>,
    /// Bytes of scratch memory.
    pub(crate) scratch: usize,
    /// The operator of all [`Step::Combine`].
    pub(crate) op: Option<Op>,
    /// What it does: for errors.
    pub(crate) name: Option<Name>,
    /// What the rank says that it does, if ranks compare.
    pub(crate) stamp: Option<[u8; 64]>,
}

impl Schedule {
    /// The steps.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Bytes of scratch memory that it needs.
    #[must_use]
    pub fn scratch(&self) -> usize {
        self.scratch
    }

    /// Messages that this rank sends.
    #[must_use]
    pub fn messages(&self) -> usize {
        let sends = self.steps.iter();
        sends.filter(|s| matches!(s, Step::Send { .. })).count()
    }

    /// Bytes of data in them.
    #[must_use]
    pub fn sent_bytes(&self) -> usize {
        let sent = |step: &Step| match step {
            Step::Send { data, .. } => data.len(),
            _ => 0,
        };
        self.steps.iter().map(sent).sum()
    }

    /// Times that this rank waits for others.
    #[must_use]
    pub fn waits(&self) -> usize {
        let waits = self.steps.iter();
        waits.filter(|s| matches!(s, Step::Wait)).count()
    }

    /// Messages that this rank has under way at once, at most.
    pub(crate) fn width(&self) -> usize {
        let (mut most, mut now) = (0, 0);
        for step in &self.steps {
            now = match step {
                Step::Send { .. } | Step::Recv { .. } => now + 1,
                Step::Wait => 0,
                _ => now,
            };
            most = most.max(now);
        }
        most
    }

    #[inline]
    pub(crate) fn layout(&self, id: LayoutId) -> &Layout {
        &self.layouts[id.0 as usize]
    }
}

impl std::fmt::Debug for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schedule")
            .field("steps", &self.steps)
            .field("scratch", &self.scratch)
            .finish_non_exhaustive()
    }
}
