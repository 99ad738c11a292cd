//! The arguments of collective operations: one description per operation, for every form of the
//! call.
//!
//! The same [`Operation`] is run by a blocking call, started as a request, or kept by a persistent
//! one ([`crate::run`]). Buffers are described as everywhere below the facade ([`TypedBuf`]). A
//! buffer is `None` where MPI has `MPI_IN_PLACE`, or where the rank has no such buffer.

use portolan_core::buffer::TypedBuf;
use portolan_datatype::{Layout, Op};

/// One block per rank, anywhere in a buffer, of items of one layout (the v forms).
///
/// Both sides of a message state its length, and MPI demands that they agree. A block without items
/// is not sent at all. So if one side states zero items and the other does not, the other waits for
/// ever. In the debug mode (the setting `COLL_CHECK`) the empty block is sent, and both ranks get
/// an error.
#[derive(Clone, Copy, Debug)]
pub struct BlocksArg<'a> {
    /// Address to which displacements are relative.
    pub ptr: *mut u8,
    /// Items per rank.
    pub counts: &'a [usize],
    /// Where each rank's block begins, in extents of the layout.
    pub displacements: &'a [isize],
    /// Layout of an item.
    pub layout: &'a Layout,
}

/// One block per rank with a layout of its own (alltoallw).
#[derive(Clone, Copy, Debug)]
pub struct LayoutsArg<'a> {
    /// Address to which displacements are relative.
    pub ptr: *mut u8,
    /// Items per rank.
    pub counts: &'a [usize],
    /// Where each rank's block begins, in bytes.
    pub displacements: &'a [isize],
    /// Layout of an item in each rank's block.
    pub layouts: &'a [Layout],
}

/// Data with one block per rank.
#[derive(Clone, Copy, Debug)]
pub enum Many<'a> {
    /// The same number of items for each rank, side by side: the buffer's `count` is that of one
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
        /// The data that the root has and the others receive. No algorithm writes to it at the
        /// root.
        data: TypedBuf<'a>,
        /// Rank of the root.
        root: u32,
    },
    /// Gather and gatherv (MPI-4 section 6.5).
    Gather {
        /// This rank's contribution; `None` at the root if it is already in its block.
        send: Option<TypedBuf<'a>>,
        /// Where the contributions go; only used at the root. [`Many::Layouts`] is not allowed.
        recv: Option<Many<'a>>,
        /// Rank of the root.
        root: u32,
        /// Whether contributions may differ in length (gatherv), so that only the root knows all
        /// lengths. It has the same value on all ranks, and must be set for [`Many::Blocks`].
        uneven: bool,
    },
    /// Scatter and scatterv (MPI-4 section 6.6).
    Scatter {
        /// The parts; only used at the root. [`Many::Layouts`] is not allowed.
        send: Option<Many<'a>>,
        /// Where this rank's part goes; `None` at the root if it stays in its block.
        recv: Option<TypedBuf<'a>>,
        /// Rank of the root.
        root: u32,
        /// Whether parts may differ in length (scatterv), so that only the root knows all lengths.
        /// It has the same value on all ranks, and must be set for [`Many::Blocks`].
        uneven: bool,
    },
    /// Allgather and allgatherv (MPI-4 section 6.7).
    Allgather {
        /// This rank's contribution; `None` if it is already in its block.
        send: Option<TypedBuf<'a>>,
        /// Where the contributions go. The lengths are the same on all ranks, each of which may use
        /// either form. [`Many::Layouts`] is not allowed.
        recv: Many<'a>,
    },
    /// Alltoall, alltoallv and alltoallw (MPI-4 section 6.8). Either all ranks pass blocks of one
    /// length ([`Many::Equal`]), or none does.
    Alltoall {
        /// The data for each rank, in the same form as `recv`; `None` to exchange the contents of
        /// `recv`.
        send: Option<Many<'a>>,
        /// Where the data from each rank goes.
        recv: Many<'a>,
    },
    /// MPI-4 section 6.9.1.
    Reduce {
        /// This rank's contribution; `None` at the root if it is in `recv`.
        send: Option<TypedBuf<'a>>,
        /// Where the result goes; only used at the root.
        recv: Option<TypedBuf<'a>>,
        /// The operator.
        op: &'a Op,
        /// Rank of the root.
        root: u32,
    },
    /// MPI-4 section 6.9.6.
    Allreduce {
        /// This rank's contribution; `None` if it is in `recv`.
        send: Option<TypedBuf<'a>>,
        /// Where the result goes.
        recv: TypedBuf<'a>,
        /// The operator.
        op: &'a Op,
    },
    /// Reduce-scatter with a count per rank (MPI-4 section 6.10.2).
    ReduceScatter {
        /// This rank's contribution, with its blocks side by side; `None` if it is in `recv`.
        send: Option<TypedBuf<'a>>,
        /// Where this rank's block of the result goes. In place it also holds the contribution, and
        /// `count` is that of all blocks.
        recv: TypedBuf<'a>,
        /// Items of each rank's block.
        counts: &'a [usize],
        /// The operator.
        op: &'a Op,
    },
    /// Reduce-scatter with equal blocks (MPI-4 section 6.10.1). `send` has `count` items per rank.
    ReduceScatterBlock {
        /// This rank's contribution, with its blocks side by side (`count` is that of one block);
        /// `None` if it is in `recv`.
        send: Option<TypedBuf<'a>>,
        /// Where this rank's block of the result goes (`count` is that of one block).
        recv: TypedBuf<'a>,
        /// The operator.
        op: &'a Op,
    },
    /// Scan, and exscan if `exclusive` (MPI-4 sections 6.11.1 and 6.11.2).
    Scan {
        /// This rank's contribution; `None` if it is in `recv`.
        send: Option<TypedBuf<'a>>,
        /// Where the result goes.
        recv: TypedBuf<'a>,
        /// The operator.
        op: &'a Op,
        /// Whether this rank's contribution is left out.
        exclusive: bool,
    },
    /// Neighbour allgather and allgatherv (MPI-4 sections 8.6.1): every neighbour gets the same
    /// data, and there is one block per source.
    NeighbourAllgather {
        /// This rank's contribution.
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

/// The name of an operation, for tables, settings and messages to people. The v, w and block forms
/// have names of their own if they have algorithms of their own.
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
    /// All names.
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

    /// The name as people write it.
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
    /// The operation's name.
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
