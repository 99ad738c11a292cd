//! Which algorithm does an operation: a table of rules, the first that matches and fits decides.

mod defaults;
mod text;

pub use text::parse;

use crate::algorithms::{Algorithm, Ask};
use crate::args::Name;

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// For which operation.
    pub operation: Name,
    /// For at most so many ranks.
    pub ranks: u32,
    /// For at most so many bytes ([`Ask::bytes`]).
    pub bytes: usize,
    /// Only where ranks are on several nodes, and some share one.
    pub levels: bool,
    /// The algorithm's name.
    pub algorithm: String,
}

/// The rules, in the order in which they are tried.
#[derive(Clone, Debug)]
pub struct Table {
    rules: Vec<Rule>,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            rules: defaults::rules(),
        }
    }
}

impl Table {
    /// The rules in order.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// A table in which some rules come before those that are there by default.
    #[must_use]
    pub fn with(mut rules: Vec<Rule>) -> Self {
        rules.extend(defaults::rules());
        Self { rules }
    }

    /// The algorithm for a problem. Where no rule is for it, the first of the list that fits.
    ///
    /// All ranks come to the same answer, because they have the same table and ask the same.
    pub(crate) fn choose<P>(
        &self,
        operation: Name,
        list: &'static [Algorithm<P>],
        problem: &P,
        ask: &Ask,
        levels: bool,
    ) -> &'static Algorithm<P> {
        let fits = |algorithm: &&Algorithm<P>| (algorithm.fits)(problem, ask);
        let rules = self.rules.iter().filter(|rule| {
            let place = levels || !rule.levels;
            let size = ask.ranks <= rule.ranks && ask.bytes <= rule.bytes;
            rule.operation == operation && place && size
        });
        let named = |rule: &Rule| list.iter().find(|known| known.name == rule.algorithm);
        let ruled = rules.filter_map(named).find(fits);
        let chosen = ruled.or_else(|| list.iter().find(fits));
        // Every list has an algorithm that fits everything.
        chosen.unwrap_or(&list[0])
    }
}
