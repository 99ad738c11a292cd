//! Cases, and the list of them.

use portolan_core::Device;

use crate::rank::Rank;

/// Why a case does not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip(pub String);

/// What became of a case; a failure is a panic.
pub type Verdict = Result<(), Skip>;

/// A case: runs on every rank of a job at once.
pub struct Case<D> {
    /// Subject and name.
    pub name: &'static str,
    /// Least number of ranks.
    pub min_ranks: u32,
    /// The test. It skips on every rank or on none.
    pub run: fn(&Rank<'_, D>) -> Verdict,
}

impl<D> std::fmt::Debug for Case<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Case({}, {} ranks or more)", self.name, self.min_ranks)
    }
}

/// Every case, in the order of the suite.
#[must_use]
pub fn cases<D: Device>() -> Vec<Case<D>> {
    crate::with_cases!(registry { D })
}
