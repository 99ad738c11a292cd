//! What callers say: one description per operation, for every form of the call.
//!
//! The same [`Operation`] is run by a blocking call, started as a request, or kept by a persistent
//! one ([`crate::run`]). Buffers are described as everywhere below the facade ([`TypedBuf`]);
//! `None` where MPI has `MPI_IN_PLACE`, or where the rank has no such buffer.

use portolan_core::buffer::TypedBuf;
use portolan_datatype::{Layout, Op};

/// One block of items of one layout per rank, anywhere in a buffer (the v forms).
///
/// Both sides of a message give its length, and MPI demands that they agree. A block of no items is
/// not sent at all, so where one side gives none and the other some, that one waits for ever; the
/// debug mode (the setting `COLL_CHECK`) sends it, and the two hear of it.
#[derive(Clone, Copy, Debug)]
pub struct BlocksArg<'a> {
    /// Address that displacements count from.
    pub ptr: *mut u8,
    /// Items per rank.
    pub counts: &'a [usize],
    /// Where each rank's block begins, in extents of the layout.
    pub displacements: &'a [isize],
    /// What an item is.
    pub layout: &'a Layout,
}

/// One block per rank with a layout of its own (alltoallw).
#[derive(Clone, Copy, Debug)]
pub struct LayoutsArg<'a> {
    /// Address that displacements count from.
    pub ptr: *mut u8,
    /// Items per rank.
    pub counts: &'a [usize],
    /// Where each rank's block begins, in bytes.
    pub displacements: &'a [isize],
    /// What an item of each rank's block is.
    pub layouts: &'a [Layout],
}

/// Data of which there is one block per rank.
#[derive(Clone, Copy, Debug)]
pub enum Many<'a> {
    /// The same number of items for each rank, side by side: `count` of the buffer is that of one
    /// rank.
    Equal(TypedBuf<'a>),
    /// The v forms.
    Blocks(BlocksArg<'a>),
    /// The w forms.
    Layouts(LayoutsArg<'a>),
}

/// A collective operation with its arguments.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Operation<'a> {
    /// MPI-4 section 6.3.
    Barrier,
    /// MPI-4 section 6.4.
    Bcast {
        /// What the root has and the others get. At the root it is only read, by every algorithm.
        data: TypedBuf<'a>,
        /// Rank of the root.
        root: u32,
    },
    /// Gather and gatherv (MPI-4 section 6.5).
    Gather {
        /// The own contribution; `None` at the root: it is in its block already.
        send: Option<TypedBuf<'a>>,
        /// Where contributions go; looked at at the root only. [`Many::Layouts`] is not allowed.
        recv: Option<Many<'a>>,
        /// Rank of the root.
        root: u32,
        /// Whether contributions may differ in length (gatherv), so that only the root knows them
        /// all. The same on all ranks; [`Many::Blocks`] needs it.
        uneven: bool,
    },
    /// Scatter and scatterv (MPI-4 section 6.6).
    Scatter {
        /// The parts; looked at at the root only. [`Many::Layouts`] is not allowed.
        send: Option<Many<'a>>,
        /// Where the own part goes; `None` at the root: it stays in its block.
        recv: Option<TypedBuf<'a>>,
        /// Rank of the root.
        root: u32,
        /// Whether parts may differ in length (scatterv), so that only the root knows them all. The
        /// same on all ranks; [`Many::Blocks`] needs it.
        uneven: bool,
    },
    /// Allgather and allgatherv (MPI-4 section 6.7).
    Allgather {
        /// The own contribution; `None`: it is in its block already.
        send: Option<TypedBuf<'a>>,
        /// Where contributions go: of the same lengths on all ranks, each of which may give them in
        /// either form. [`Many::Layouts`] is not allowed.
        recv: Many<'a>,
    },
    /// Alltoall, alltoallv and alltoallw (MPI-4 section 6.8). All ranks give blocks of one length
    /// ([`Many::Equal`]), or none does.
    Alltoall {
        /// What goes to each rank, in the same form as `recv`; `None`: what is in `recv` is
        /// exchanged.
        send: Option<Many<'a>>,
        /// Where it goes that comes from each rank.
        recv: Many<'a>,
    },
    /// MPI-4 section 6.9.1.
    Reduce {
        /// The own contribution; `None` at the root: it is in `recv`.
        send: Option<TypedBuf<'a>>,
        /// Where the result goes; looked at at the root only.
        recv: Option<TypedBuf<'a>>,
        /// The operator.
        op: &'a Op,
        /// Rank of the root.
        root: u32,
    },
    /// MPI-4 section 6.9.6.
    Allreduce {
        /// The own contribution; `None`: it is in `recv`.
        send: Option<TypedBuf<'a>>,
        /// Where the result goes.
        recv: TypedBuf<'a>,
        /// The operator.
        op: &'a Op,
    },
    /// Reduce-scatter with a count per rank (MPI-4 section 6.10.2).
    ReduceScatter {
        /// The own contribution, the blocks side by side; `None`: it is in `recv`.
        send: Option<TypedBuf<'a>>,
        /// Where the own block of the result goes, and in place the contribution (`count` is then
        /// that of all blocks).
        recv: TypedBuf<'a>,
        /// Items of each rank's block.
        counts: &'a [usize],
        /// The operator.
        op: &'a Op,
    },
    /// Reduce-scatter with equal blocks (MPI-4 section 6.10.1). `send` has `count` items per rank.
    ReduceScatterBlock {
        /// The own contribution, the blocks side by side (`count` is that of one block); `None`: it
        /// is in `recv`.
        send: Option<TypedBuf<'a>>,
        /// Where the own block of the result goes (`count` is that of one block).
        recv: TypedBuf<'a>,
        /// The operator.
        op: &'a Op,
    },
    /// Scan, and exscan if `exclusive` (MPI-4 sections 6.11.1 and 6.11.2).
    Scan {
        /// The own contribution; `None`: it is in `recv`.
        send: Option<TypedBuf<'a>>,
        /// Where the result goes.
        recv: TypedBuf<'a>,
        /// The operator.
        op: &'a Op,
        /// Whether the own contribution is left out.
        exclusive: bool,
    },
    /// Neighbour allgather and allgatherv (MPI-4 sections 8.6.1): what every neighbour gets, and
    /// one block per source.
    NeighbourAllgather {
        /// The own contribution.
        send: TypedBuf<'a>,
        /// One block per source.
        recv: Many<'a>,
    },
    /// Neighbour alltoall, alltoallv and alltoallw (MPI-4 section 8.6.2).
    NeighbourAlltoall {
        /// One block per destination.
        send: Many<'a>,
        /// One block per source.
        recv: Many<'a>,
    },
}

/// Which operation, for tables, settings and messages to people. The v, w and block forms have
/// names of their own where their algorithms do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
#[allow(missing_docs, reason = "they are the names of the operations")]
pub enum Name {
    Barrier,
    Bcast,
    Gather,
    Scatter,
    Allgather,
    Alltoall,
    Reduce,
    Allreduce,
    ReduceScatter,
    Scan,
    Exscan,
    NeighbourAllgather,
    NeighbourAlltoall,
}

impl Name {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Barrier,
        Self::Bcast,
        Self::Gather,
        Self::Scatter,
        Self::Allgather,
        Self::Alltoall,
        Self::Reduce,
        Self::Allreduce,
        Self::ReduceScatter,
        Self::Scan,
        Self::Exscan,
        Self::NeighbourAllgather,
        Self::NeighbourAlltoall,
    ];

    /// As people write it.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Bcast => "bcast",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::Allgather => "allgather",
            Self::Alltoall => "alltoall",
            Self::Reduce => "reduce",
            Self::Allreduce => "allreduce",
            Self::ReduceScatter => "reduce-scatter",
            Self::Scan => "scan",
            Self::Exscan => "exscan",
            Self::NeighbourAllgather => "neighbour-allgather",
            Self::NeighbourAlltoall => "neighbour-alltoall",
        }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

impl Operation<'_> {
    /// Which operation it is.
    #[must_use]
    pub fn name(&self) -> Name {
        match self {
            Self::Barrier => Name::Barrier,
            Self::Bcast { .. } => Name::Bcast,
            Self::Gather { .. } => Name::Gather,
            Self::Scatter { .. } => Name::Scatter,
            Self::Allgather { .. } => Name::Allgather,
            Self::Alltoall { .. } => Name::Alltoall,
            Self::Reduce { .. } => Name::Reduce,
            Self::Allreduce { .. } => Name::Allreduce,
            Self::ReduceScatter { .. } | Self::ReduceScatterBlock { .. } => Name::ReduceScatter,
            Self::Scan { exclusive, .. } => {
                if *exclusive {
                    Name::Exscan
                } else {
                    Name::Scan
                }
            }
            Self::NeighbourAllgather { .. } => Name::NeighbourAllgather,
            Self::NeighbourAlltoall { .. } => Name::NeighbourAlltoall,
        }
    }
}
