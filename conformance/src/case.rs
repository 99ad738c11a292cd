//! Cases, and the list of them.

use crate::erased::Erased;
use crate::rank::Rank;

/// Why a case does not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip(pub String);

/// The outcome of a case; a failure is a panic.
pub type Verdict = Result<(), Skip>;

/// The test of a case.
pub type CaseFn = fn(&Rank<'_, Erased<'_>>) -> Verdict;

/// A case. It runs on every rank of a job at once.
pub struct Case {
    /// Subject and name.
    pub name: &'static str,
    /// Least number of ranks.
    pub min_ranks: u32,
    /// The test. It skips on every rank or on none.
    pub run: CaseFn,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Case({}, {} ranks or more)", self.name, self.min_ranks)
    }
}

/// Every case, in the order of the suite.
#[must_use]
pub fn cases() -> Vec<Case> {
    crate::with_cases!(registry {})
}

/// The test of the case of this name.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn case(name: &str) -> CaseFn {
    let cases = cases();
    let found = cases.iter().find(|case| case.name == name);
    found.expect("a case of the suite").run
}
