//! What an algorithm is given: an operation's data as spans, with every form of the call made
//! equal.
//!
//! "In place", counts per rank, displacements and layouts are gone here (`lower.rs` has seen to
//! them): the own contribution is a span like any other, and may be the very span that the result
//! goes to.

use crate::schedule::{Blocks, Lane, Span};

/// A barrier.
#[derive(Clone, Copy, Debug)]
pub struct Barrier;

/// A broadcast.
#[derive(Clone, Copy, Debug)]
pub struct Bcast {
    /// What the root has and the others get.
    pub data: Span,
    /// Place of the root.
    pub root: u32,
}

/// Gather and gatherv.
#[derive(Clone, Debug)]
pub struct Gather {
    /// The own contribution. At the root perhaps the very span of its block.
    pub mine: Span,
    /// Where the contributions go, at the root.
    pub blocks: Option<Blocks>,
    /// Place of the root.
    pub root: u32,
    /// Bytes of each contribution, where all know that all are equal.
    pub each: Option<usize>,
}

/// Scatter and scatterv.
#[derive(Clone, Debug)]
pub struct Scatter {
    /// Where the own part goes. At the root perhaps the very span of its block.
    pub mine: Span,
    /// The parts, at the root.
    pub blocks: Option<Blocks>,
    /// Place of the root.
    pub root: u32,
    /// Bytes of each part, where all know that all are equal.
    pub each: Option<usize>,
}

/// Allgather and allgatherv.
#[derive(Clone, Debug)]
pub struct Allgather {
    /// The own contribution, perhaps the very span of its block.
    pub mine: Span,
    /// Where the contributions go; all ranks know all lengths.
    pub blocks: Blocks,
}

/// Alltoall, alltoallv and alltoallw. In place is a copy to scratch memory before.
#[derive(Clone, Debug)]
pub struct Alltoall {
    /// What goes to each rank.
    pub send: Blocks,
    /// Where it goes that comes from each rank.
    pub recv: Blocks,
}

/// Reduce.
#[derive(Clone, Copy, Debug)]
pub struct Reduce {
    /// The own contribution.
    pub input: Span,
    /// Where the result goes, at the root; perhaps the very span of the contribution.
    pub output: Option<Span>,
    /// Place of the root.
    pub root: u32,
    /// Whether the operands' order may be changed.
    pub commutative: bool,
}

/// Allreduce.
#[derive(Clone, Copy, Debug)]
pub struct Allreduce {
    /// The own contribution.
    pub input: Span,
    /// Where the result goes; perhaps the very span of the contribution.
    pub output: Span,
    /// Whether the operands' order may be changed.
    pub commutative: bool,
}

/// Reduce-scatter and its block form.
#[derive(Clone, Debug)]
pub struct ReduceScatter {
    /// The own contribution, one block per rank.
    pub input: Blocks,
    /// The same as one span: the blocks lie side by side in the order of the ranks.
    pub whole: Span,
    /// Where the own block of the result goes; perhaps at the beginning of `whole` (in place).
    pub output: Span,
    /// Whether the operands' order may be changed.
    pub commutative: bool,
}

/// Scan and exscan.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    /// The own contribution.
    pub input: Span,
    /// Where the result goes; perhaps the very span of the contribution. Rank 0's is left alone by
    /// an exclusive one.
    pub output: Span,
    /// Whether the own contribution is left out (exscan).
    pub exclusive: bool,
    /// Whether the operands' order may be changed.
    pub commutative: bool,
}

/// The neighbour collectives: messages to and from the neighbours of a topology.
#[derive(Clone, Debug, Default)]
pub struct Neighbour {
    /// To whom, in which lane, what.
    pub sends: Vec<(u32, Lane, Span)>,
    /// From whom, in which lane, where to.
    pub recvs: Vec<(u32, Lane, Span)>,
}
