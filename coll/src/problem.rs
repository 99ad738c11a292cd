//! The input of an algorithm: an operation's data as spans, the same for every form of the call.
//!
//! "In place", counts per rank, displacements and layouts do not appear here (`lower.rs` has dealt
//! with them). This rank's contribution is a span like any other, and may be the very span to which
//! the result goes.

use crate::schedule::{Blocks, Lane, Span};

/// A barrier.
#[derive(Clone, Copy, Debug)]
pub struct Barrier;

/// A broadcast.
#[derive(Clone, Copy, Debug)]
pub struct Bcast {
    /// The data that the root has and the others get.
    pub data: Span,
    /// Place of the root.
    pub root: u32,
}

/// Gather and gatherv.
#[derive(Clone, Debug)]
pub struct Gather {
    /// This rank's contribution. At the root it may be the very span of its block.
    pub mine: Span,
    /// Where the contributions go, at the root.
    pub blocks: Option<Blocks>,
    /// Place of the root.
    pub root: u32,
    /// Bytes of each contribution, if all ranks know that all are equal.
    pub each: Option<usize>,
}

/// Scatter and scatterv.
#[derive(Clone, Debug)]
pub struct Scatter {
    /// Where this rank's part goes. At the root it may be the very span of its block.
    pub mine: Span,
    /// The parts, at the root.
    pub blocks: Option<Blocks>,
    /// Place of the root.
    pub root: u32,
    /// Bytes of each part, if all ranks know that all are equal.
    pub each: Option<usize>,
}

/// Allgather and allgatherv.
#[derive(Clone, Debug)]
pub struct Allgather {
    /// This rank's contribution, which may be the very span of its block.
    pub mine: Span,
    /// Where the contributions go; all ranks know all lengths.
    pub blocks: Blocks,
}

/// Alltoall, alltoallv and alltoallw. For the in-place form, the data has been copied to scratch
/// memory.
#[derive(Clone, Debug)]
pub struct Alltoall {
    /// The data for each rank.
    pub send: Blocks,
    /// Where the data from each rank goes.
    pub recv: Blocks,
}

/// Reduce.
#[derive(Clone, Copy, Debug)]
pub struct Reduce {
    /// This rank's contribution.
    pub input: Span,
    /// Where the result goes, at the root; it may be the very span of the contribution.
    pub output: Option<Span>,
    /// Place of the root.
    pub root: u32,
    /// Whether the operands' order may be changed.
    pub commutative: bool,
}

/// Allreduce.
#[derive(Clone, Copy, Debug)]
pub struct Allreduce {
    /// This rank's contribution.
    pub input: Span,
    /// Where the result goes; it may be the very span of the contribution.
    pub output: Span,
    /// Whether the operands' order may be changed.
    pub commutative: bool,
}

/// Reduce-scatter and its block form.
#[derive(Clone, Debug)]
pub struct ReduceScatter {
    /// This rank's contribution, one block per rank.
    pub input: Blocks,
    /// The same contribution as one span: the blocks lie side by side in the order of the ranks.
    pub whole: Span,
    /// Where this rank's block of the result goes; in place, at the beginning of `whole`.
    pub output: Span,
    /// Whether the operands' order may be changed.
    pub commutative: bool,
}

/// Scan and exscan.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    /// This rank's contribution.
    pub input: Span,
    /// Where the result goes; it may be the very span of the contribution. An exclusive scan does
    /// not write to it at rank 0.
    pub output: Span,
    /// Whether this rank's contribution is left out (exscan).
    pub exclusive: bool,
    /// Whether the operands' order may be changed.
    pub commutative: bool,
}

/// The neighbour collectives: messages to and from the neighbours of a topology.
#[derive(Clone, Debug, Default)]
pub struct Neighbour {
    /// The destination, the lane and the data of each message to send.
    pub sends: Vec<(u32, Lane, Span)>,
    /// The source, the lane and the place of each message to receive.
    pub recvs: Vec<(u32, Lane, Span)>,
}
