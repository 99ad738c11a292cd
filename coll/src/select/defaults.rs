//! The table that is used where nobody says otherwise.

use super::Rule;
use crate::args::Name;

/// Any number.
const ANY: usize = usize::MAX;

/// Operation, ranks at most, bytes at most, algorithm.
const RULES: &[(Name, usize, usize, &str)] = &[
    (Name::Barrier, ANY, ANY, "dissemination"),
    (Name::Bcast, ANY, 32 << 10, "binomial"),
    (Name::Bcast, 2, ANY, "binomial"),
    (Name::Bcast, ANY, ANY, "chain"),
];

pub(super) fn rules() -> Vec<Rule> {
    let rule = |&(operation, ranks, bytes, algorithm): &(Name, usize, usize, &str)| Rule {
        operation,
        ranks: u32::try_from(ranks).unwrap_or(u32::MAX),
        bytes,
        algorithm: algorithm.to_owned(),
    };
    RULES.iter().map(rule).collect()
}
