//! Schedules: the steps of one rank in one collective operation.
//!
//! An algorithm does not communicate. It writes down, for one rank, the steps that the rank is to
//! take ([`Builder`]). The same schedule can then run inside a blocking call, inside progress, or
//! each time a persistent operation is started. A test can run the schedules of all ranks without
//! any device (`simulate.rs`).
//!
//! **Meaning.** Steps are taken in order. [`Step::Send`] and [`Step::Recv`] start a message.
//! [`Step::Wait`] waits for everything that was started before it, and so does the end of the
//! schedule. From its start to the next `Wait` the memory of a receive belongs to the receive, and
//! that of a send must not be written. [`Step::Copy`] and [`Step::Combine`] take effect at their
//! place in the order.
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
use crate::compare::STAMP;
use crate::exact::Convert;

pub use crate::compare::Compare;

/// Tells apart messages that the order of starting does not, such as those in the two directions
/// between the two ranks of a ring of two. Below [`LANES`].
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
        /// The data to send.
        data: Span,
    },
    /// Starts a receive of exactly the number of bytes in `data`.
    Recv {
        /// Sender.
        from: u32,
        /// Lane.
        lane: Lane,
        /// Where the data goes.
        data: Span,
    },
    /// Waits for everything that was started.
    Wait,
    /// Copies. The two spans do not overlap, or are the same.
    Copy {
        /// The source.
        from: Span,
        /// The destination, with as many bytes of data.
        to: Span,
    },
    /// `right = left op right`, item by item.
    Combine {
        /// The operands that come first in the order of the ranks.
        left: Span,
        /// The operands that come after; the result is written here.
        right: Span,
    },
    /// Converts numbers to exact sums, or back. The two do not overlap.
    Convert {
        /// The direction, and the type of the numbers.
        how: Convert,
        /// The source.
        from: Span,
        /// The destination, with as many items.
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
    /// Indexed by [`LayoutId`]; the first is bytes.
    pub(crate) layouts: Vec<Layout>,
    /// Bytes of scratch memory.
    pub(crate) scratch: usize,
    /// The operator of all [`Step::Combine`] steps.
    pub(crate) op: Option<Op>,
    /// The operation, for errors.
    pub(crate) name: Option<Name>,
    /// The rank's description of its call, if ranks compare.
    pub(crate) stamp: Option<Box<[u8; STAMP]>>,
}

impl Schedule {
    /// The steps.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Bytes of scratch memory that the schedule needs.
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

    /// Bytes of data that this rank sends in messages.
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

    /// The most messages that this rank has under way at once.
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

    /// Leaves the messages only, and no data in them.
    pub(crate) fn take_data_out(&mut self) {
        let nothing = Span::bytes(Base::Recv, 0, 0);
        self.steps.retain_mut(|step| match step {
            Step::Send { data, .. } | Step::Recv { data, .. } => {
                *data = nothing;
                true
            }
            Step::Wait => true,
            _ => false,
        });
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
