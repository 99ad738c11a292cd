//! Collectives over intercommunicators (MPI-4 section 6.2.2): each group receives the other's data.
//!
//! A schedule is written over the communicator of both groups, most of it in the team of one group,
//! so that the algorithms are those of ordinary collectives. Data between the groups goes through
//! their first ranks. If every rank needs different data, it goes straight from rank to rank.

mod lower;
mod plan;
#[cfg(test)]
mod tests;

pub use plan::{persistent, run, start};

pub(crate) use lower::{Groups, write};

use portolan_core::buffer::TypedBuf;
use portolan_datatype::Op;

use crate::args::{Many, Name};

/// The root of an operation between two groups, as one rank sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Root {
    /// This rank is the root (`MPI_ROOT`).
    Here,
    /// Another rank of the caller's group is the root (`MPI_PROC_NULL`): this rank has nothing to
    /// do.
    Beside,
    /// That rank of the other group is the root.
    Remote(u32),
}

/// A collective operation between two groups with its arguments.
///
/// "The others" are the ranks of the other group. There is no form in place.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum InterOperation<'a> {
    /// No rank leaves before all ranks of both groups have come (MPI-4 section 6.3 asks for less).
    Barrier,
    /// From the root to all ranks of the other group (MPI-4 section 6.4).
    Bcast {
        /// The data that the root has and the others receive; `None` beside the root.
        data: Option<TypedBuf<'a>>,
        /// Where the root is.
        root: Root,
    },
    /// Gather and gatherv: from all ranks of the other group to the root (MPI-4 section 6.5).
    Gather {
        /// This rank's contribution, if the root is remote.
        send: Option<TypedBuf<'a>>,
        /// At the root: one block for each of the others. [`Many::Layouts`] is not allowed.
        recv: Option<Many<'a>>,
        /// Where the root is.
        root: Root,
    },
    /// Scatter and scatterv: from the root to all ranks of the other group (MPI-4 section 6.6).
    Scatter {
        /// At the root: one block for each of the others. [`Many::Layouts`] is not allowed.
        send: Option<Many<'a>>,
        /// Where this rank's part goes, if the root is remote.
        recv: Option<TypedBuf<'a>>,
        /// Where the root is.
        root: Root,
    },
    /// Allgather and allgatherv: all ranks get what the others contribute (MPI-4 section 6.7).
    Allgather {
        /// The data for all of the others.
        send: TypedBuf<'a>,
        /// One block for each of the others. [`Many::Layouts`] is not allowed.
        recv: Many<'a>,
    },
    /// Alltoall, alltoallv and alltoallw (MPI-4 section 6.8).
    Alltoall {
        /// The data for each of the others.
        send: Many<'a>,
        /// Where the data from each of the others goes.
        recv: Many<'a>,
    },
    /// The root gets the reduction over the other group's ranks (MPI-4 section 6.9.1).
    Reduce {
        /// This rank's contribution, if the root is remote.
        send: Option<TypedBuf<'a>>,
        /// Where the result goes, at the root.
        recv: Option<TypedBuf<'a>>,
        /// The operator.
        op: &'a Op,
        /// Where the root is.
        root: Root,
    },
    /// All ranks get the reduction over the other group's ranks (MPI-4 section 6.9.6).
    Allreduce {
        /// This rank's contribution.
        send: TypedBuf<'a>,
        /// Where the result goes.
        recv: TypedBuf<'a>,
        /// The operator.
        op: &'a Op,
    },
    /// The reduction over the other group's ranks is scattered over the caller's group (MPI-4
    /// section 6.10.2).
    ReduceScatter {
        /// This rank's contribution: as many items as the sum of all `counts`, which is the same
        /// number in both groups.
        send: TypedBuf<'a>,
        /// Where this rank's block of the result goes.
        recv: TypedBuf<'a>,
        /// Number of items in the block of each rank of the caller's group.
        counts: &'a [usize],
        /// The operator.
        op: &'a Op,
    },
    /// The same with equal blocks (MPI-4 section 6.10.1).
    ReduceScatterBlock {
        /// This rank's contribution; `count` is that of one block, and there is one block for each
        /// rank of the caller's group. The total number of items is the same in both groups.
        send: TypedBuf<'a>,
        /// Where this rank's block of the result goes.
        recv: TypedBuf<'a>,
        /// The operator.
        op: &'a Op,
    },
}

impl InterOperation<'_> {
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
        }
    }
}
