//! The default table.

use super::{Place, Rule};
use crate::args::Name;

/// Any number.
const ANY: usize = usize::MAX;

/// Operation, most ranks, most bytes, algorithm.
///
/// (With few ranks, one short message after another is better than one that waits for another. Four
/// processes on two cores, at 8 bytes, 2 KiB and 8 KiB: broadcast 1.3, 1.5, 1.8 µs, against 1.6,
/// 2.0, 2.3 down a tree (in one run of two; no difference in the other); reduction 0.4 to 1.6, 0.5
/// to 1.9, 0.7 to 2.2 µs, against 2.0, 2.1 to 2.7, 2.3 to 3.5.)
const RULES: &[(Name, usize, usize, &str)] = &[
    (Name::Barrier, ANY, ANY, "dissemination"),
    (Name::Bcast, 4, 8 << 10, "linear"),
    (Name::Bcast, ANY, 32 << 10, "binomial"),
    (Name::Bcast, 2, ANY, "binomial"),
    (Name::Bcast, ANY, ANY, "chain"),
    (Name::Gather, 4, ANY, "linear"),
    (Name::Gather, ANY, 2 << 10, "binomial"),
    (Name::Gather, ANY, ANY, "linear"),
    (Name::Scatter, 4, ANY, "linear"),
    (Name::Scatter, ANY, 2 << 10, "binomial"),
    (Name::Scatter, ANY, ANY, "linear"),
    (Name::Allgather, 2, ANY, "linear"),
    (Name::Allgather, ANY, 4 << 10, "recursive-doubling"),
    (Name::Allgather, ANY, 4 << 10, "bruck"),
    (Name::Allgather, ANY, ANY, "neighbour-exchange"),
    (Name::Allgather, ANY, ANY, "ring"),
    (Name::Alltoall, 4, ANY, "linear"),
    (Name::Alltoall, ANY, 256, "bruck"),
    (Name::Alltoall, ANY, 32 << 10, "linear"),
    (Name::Alltoall, ANY, ANY, "pairwise"),
    (Name::Reduce, 4, 8 << 10, "linear"),
    (Name::Reduce, ANY, 16 << 10, "binomial"),
    (Name::Reduce, 2, ANY, "binomial"),
    (Name::Reduce, ANY, ANY, "rabenseifner"),
    (Name::Reduce, ANY, ANY, "chain"),
    (Name::Allreduce, 2, 128 << 10, "recursive-doubling"),
    (Name::Allreduce, 2, ANY, "ring"),
    (Name::Allreduce, ANY, 8 << 10, "recursive-doubling"),
    (Name::Allreduce, ANY, ANY, "rabenseifner"),
    (Name::Allreduce, ANY, ANY, "recursive-doubling"),
    (Name::ReduceScatter, 2, ANY, "recursive-halving"),
    (Name::ReduceScatter, ANY, 64 << 10, "recursive-halving"),
    (Name::ReduceScatter, ANY, 512, "reduce-scatter"),
    (Name::ReduceScatter, ANY, ANY, "pairwise"),
    (Name::Scan, ANY, 8 << 10, "recursive-doubling"),
    (Name::Scan, ANY, ANY, "chain"),
    (Name::Exscan, ANY, 8 << 10, "recursive-doubling"),
    (Name::Exscan, ANY, ANY, "chain"),
];

/// The rules that come first if ranks are on several nodes and some share one: operation, most
/// bytes, algorithm.
const LEVELS: &[(Name, usize, &str)] = &[
    (Name::Barrier, ANY, "two-level"),
    (Name::Bcast, 64 << 10, "two-level"),
    (Name::Bcast, ANY, "node-chain"),
    (Name::Gather, 2 << 10, "two-level"),
    (Name::Scatter, 2 << 10, "two-level"),
    (Name::Allgather, 4 << 10, "two-level"),
    (Name::Allgather, ANY, "node-ring"),
    (Name::Alltoall, 256, "two-level"),
    (Name::Reduce, ANY, "two-level"),
    (Name::Allreduce, 256 << 10, "two-level"),
    (Name::Allreduce, ANY, "node-ring"),
    (Name::Allreduce, ANY, "two-level"),
    (Name::ReduceScatter, 8 << 10, "two-level"),
    (Name::ReduceScatter, ANY, "node-ring"),
    (Name::ReduceScatter, ANY, "two-level"),
    (Name::Scan, 8 << 10, "two-level"),
    (Name::Exscan, 8 << 10, "two-level"),
];

pub(super) fn rules() -> Vec<Rule> {
    let rule = |&(operation, ranks, bytes, algorithm): &(Name, usize, usize, &str)| Rule {
        ranks: u32::try_from(ranks).unwrap_or(u32::MAX),
        bytes,
        ..Rule::always(operation, algorithm)
    };
    let level = |&(operation, bytes, algorithm): &(Name, usize, &str)| Rule {
        place: Place::Levels,
        ..rule(&(operation, ANY, bytes, algorithm))
    };
    LEVELS
        .iter()
        .map(level)
        .chain(RULES.iter().map(rule))
        .collect()
}
