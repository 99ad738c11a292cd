//! The algorithms: each writes the schedule of one rank; one file per operation.
//!
//! Each file begins with its `ALL`, the list from which an algorithm is selected.

pub(crate) mod allgather;
pub(crate) mod allreduce;
pub(crate) mod alltoall;
mod around;
pub(crate) mod barrier;
pub(crate) mod bcast;
pub(crate) mod gather;
pub(crate) mod knomial;
#[cfg(test)]
pub(crate) mod moved;
#[cfg(test)]
pub(crate) mod moving;
mod neighbour;
mod partial;
pub(crate) mod reduce;
pub(crate) mod reduce_scatter;
#[cfg(test)]
pub(crate) mod reference;
pub(crate) mod scan;
pub(crate) mod scatter;

use crate::args::Name;
use crate::schedule::Builder;

/// What is known about an operation when its algorithm is chosen.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Number of ranks that take part.
    pub ranks: u32,
    /// Bytes of data: of the whole message if there is one (broadcast, reductions), of one block if
    /// there is one per rank (gather, scatter, allgather, alltoall, reduce-scatter).
    pub bytes: usize,
    /// Items in that data.
    pub items: usize,
}

/// One way to do an operation whose problem is a `P`.
pub struct Algorithm<P> {
    /// Its name, in tables and settings.
    pub name: &'static str,
    /// What it does and when it is good, in one line for users.
    pub summary: &'static str,
    /// Whether the algorithm can perform the operation at all. All ranks must come to the same
    /// answer.
    pub fits: fn(&P, &Ask) -> bool,
    /// Writes the schedule.
    pub build: fn(&mut Builder, &P),
}

impl<P> std::fmt::Debug for Algorithm<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Algorithm").field(&self.name).finish()
    }
}

/// Names of an operation's algorithms, as used in tables and settings.
#[must_use]
pub fn names(operation: Name) -> Vec<&'static str> {
    described(operation)
        .into_iter()
        .map(|(name, _)| name)
        .collect()
}

/// Whether a rule may set the radix of an algorithm.
#[must_use]
pub fn has_radix(algorithm: &str) -> bool {
    algorithm == knomial::NAME
}

/// An operation's algorithms: name and summary.
#[must_use]
pub fn described(operation: Name) -> Vec<(&'static str, &'static str)> {
    fn all<P>(list: &[Algorithm<P>]) -> Vec<(&'static str, &'static str)> {
        list.iter()
            .map(|known| (known.name, known.summary))
            .collect()
    }
    match operation {
        Name::Barrier => all(BARRIER),
        Name::Bcast => all(BCAST),
        Name::Gather => all(GATHER),
        Name::Scatter => all(SCATTER),
        Name::Allgather => all(ALLGATHER),
        Name::Alltoall => all(ALLTOALL),
        Name::NeighbourAllgather | Name::NeighbourAlltoall => all(NEIGHBOUR),
        Name::Reduce => all(REDUCE),
        Name::Allreduce => all(ALLREDUCE),
        Name::ReduceScatter => all(REDUCE_SCATTER),
        Name::Scan | Name::Exscan => all(SCAN),
    }
}

/// The place `distance` after `rank`, modulo `size`.
pub(crate) fn after(rank: u32, distance: u32, size: u32) -> u32 {
    ((u64::from(rank) + u64::from(distance)) % u64::from(size)) as u32
}

/// The place `distance` before `rank`, modulo `size`.
pub(crate) fn before(rank: u32, distance: u32, size: u32) -> u32 {
    after(rank, size - distance % size, size)
}

pub use allgather::ALL as ALLGATHER;
pub use allreduce::ALL as ALLREDUCE;
pub use alltoall::ALL as ALLTOALL;
pub use barrier::ALL as BARRIER;
pub use bcast::ALL as BCAST;
pub use gather::ALL as GATHER;
pub use neighbour::ALL as NEIGHBOUR;
pub use reduce::ALL as REDUCE;
pub use reduce_scatter::ALL as REDUCE_SCATTER;
pub use scan::ALL as SCAN;
pub use scatter::ALL as SCATTER;
