//! Selects the algorithm for an operation by a table of rules: the first rule that matches, and
//! whose algorithm fits, decides.

mod defaults;
mod text;

pub use text::parse;

use crate::algorithms::{Algorithm, Ask, knomial};
use crate::args::Name;

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The operation to which the rule applies.
    pub operation: Name,
    /// The largest number of ranks to which it applies.
    pub ranks: u32,
    /// The largest number of bytes ([`Ask::bytes`]) to which it applies.
    pub bytes: usize,
    /// Where ranks have to be.
    pub place: Place,
    /// The name of the only device to which it applies
    /// ([`Attributes::name`](portolan_core::device::Attributes::name)); `None` for all devices. It
    /// comes from those who write rules: nothing here knows what devices there are.
    pub device: Option<String>,
    /// The algorithm's name.
    pub algorithm: String,
    /// The radix of its tree, if it [has one](crate::algorithms::has_radix); `None` for the
    /// default.
    pub radix: Option<u32>,
}

impl Rule {
    /// A rule without conditions.
    #[must_use]
    pub fn always(operation: Name, algorithm: &str) -> Self {
        Self {
            operation,
            ranks: u32::MAX,
            bytes: usize::MAX,
            place: Place::Anywhere,
            device: None,
            algorithm: algorithm.to_owned(),
            radix: None,
        }
    }
}

/// Where the ranks of a communicator have to be for a rule to apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Anywhere.
    #[default]
    Anywhere,
    /// On several nodes, and some share one: where algorithms [for
    /// nodes](crate::Levels::are_useful) make a difference.
    Levels,
    /// On one node, or each on a node of its own.
    Flat,
}

impl Place {
    /// Whether a rule applies. `levels` says whether algorithms for nodes make a difference.
    fn holds(self, levels: bool) -> bool {
        match self {
            Self::Anywhere => true,
            Self::Levels => levels,
            Self::Flat => !levels,
        }
    }
}

/// The chosen algorithm.
pub(crate) struct Chosen<P: 'static> {
    pub(crate) algorithm: &'static Algorithm<P>,
    pub(crate) radix: u32,
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

    /// A table in which `rules` come before the default rules.
    #[must_use]
    pub fn with(mut rules: Vec<Rule>) -> Self {
        rules.extend(defaults::rules());
        Self { rules }
    }

    /// The table without the rules for other devices than the one of this name.
    pub(crate) fn on(mut self, device: &str) -> Self {
        let applies = |rule: &Rule| rule.device.as_deref().is_none_or(|name| name == device);
        self.rules.retain(applies);
        self
    }

    /// The algorithm for a problem. If no rule applies, the first of the list that fits.
    ///
    /// All ranks come to the same answer, because they have the same table and the same query.
    pub(crate) fn choose<P>(
        &self,
        operation: Name,
        list: &'static [Algorithm<P>],
        problem: &P,
        ask: &Ask,
        levels: bool,
    ) -> Chosen<P> {
        let fits = |algorithm: &&Algorithm<P>| (algorithm.fits)(problem, ask);
        let rules = self.rules.iter().filter(|rule| {
            let size = ask.ranks <= rule.ranks && ask.bytes <= rule.bytes;
            rule.operation == operation && rule.place.holds(levels) && size
        });
        let named = |rule: &Rule| {
            let algorithm = list.iter().find(|known| known.name == rule.algorithm)?;
            let radix = rule.radix.unwrap_or(knomial::RADIX);
            Some(Chosen { algorithm, radix })
        };
        let mut ruled = rules.filter_map(named);
        ruled
            .find(|chosen| fits(&chosen.algorithm))
            .unwrap_or_else(|| Chosen {
                // Every list contains an algorithm that fits everything.
                algorithm: list.iter().find(fits).unwrap_or(&list[0]),
                radix: knomial::RADIX,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::{ALLGATHER, ALLREDUCE, ALLTOALL, BCAST};
    use crate::problem::{Allgather, Allreduce, Alltoall, Bcast};
    use crate::schedule::{Base, Blocks, Span};

    fn ask(ranks: u32, bytes: usize) -> Ask {
        let items = bytes;
        Ask {
            ranks,
            bytes,
            items,
        }
    }

    /// The algorithms chosen for a broadcast, allreduce, allgather and alltoall of `bytes` bytes.
    fn chosen(table: &Table, ranks: u32, bytes: usize, levels: bool) -> [&'static str; 4] {
        let (data, ask) = (Span::bytes(Base::Recv, 0, bytes), ask(ranks, bytes));
        let whole = Span::bytes(Base::Recv, 0, bytes * ranks as usize);
        let blocks = Blocks::Equal { whole, ranks };
        let bcast = Bcast { data, root: 0 };
        let allreduce = Allreduce {
            input: data,
            output: data,
            commutative: true,
        };
        let allgather = Allgather {
            mine: data,
            blocks: blocks.clone(),
        };
        let alltoall = Alltoall {
            send: blocks.clone(),
            recv: blocks,
        };
        [
            table
                .choose(Name::Bcast, BCAST, &bcast, &ask, levels)
                .algorithm
                .name,
            table
                .choose(Name::Allreduce, ALLREDUCE, &allreduce, &ask, levels)
                .algorithm
                .name,
            table
                .choose(Name::Allgather, ALLGATHER, &allgather, &ask, levels)
                .algorithm
                .name,
            table
                .choose(Name::Alltoall, ALLTOALL, &alltoall, &ask, levels)
                .algorithm
                .name,
        ]
    }

    #[test]
    fn a_rule_says_the_radix() {
        let rules = parse("bcast bytes<=8 knomial; bcast radix=7 knomial").expect("legal rules");
        let table = Table::with(rules);
        let radix = |bytes| {
            let data = Span::bytes(Base::Recv, 0, bytes);
            let (bcast, ask) = (Bcast { data, root: 0 }, ask(9, bytes));
            table.choose(Name::Bcast, BCAST, &bcast, &ask, false).radix
        };
        assert_eq!((radix(8), radix(9)), (knomial::RADIX, 7));
    }

    #[test]
    fn the_forms_for_nodes_are_chosen_on_nodes_up_to_their_thresholds() {
        let table = Table::default();
        let on_nodes = |bytes| chosen(&table, 8, bytes, true);
        assert_eq!(on_nodes(256), ["two-level"; 4]);
        assert_eq!(on_nodes(257)[2..], ["two-level", "linear"]);
        assert_eq!(on_nodes(4 << 10)[2], "two-level");
        assert_eq!(on_nodes((4 << 10) + 1)[2], "node-ring");
        assert_eq!(on_nodes(64 << 10)[..2], ["two-level"; 2]);
        assert_eq!(on_nodes((64 << 10) + 1)[..2], ["node-chain", "two-level"]);
        assert_eq!(on_nodes(256 << 10)[1], "two-level");
        assert_eq!(on_nodes((256 << 10) + 1)[1], "node-ring");
        for bytes in [1, 257, 5 << 10, 1 << 20] {
            for name in chosen(&table, 8, bytes, false) {
                assert!(!name.contains("level") && !name.contains("node"), "{name}");
            }
        }
    }

    /// A table that was measured on one node leaves the algorithms for nodes alone, and the other
    /// way round.
    #[test]
    fn a_rule_for_one_node_does_not_hold_on_several() {
        let table = Table::with(parse("bcast flat linear; allreduce levels ring").expect("legal"));
        assert_eq!(
            chosen(&table, 8, 1 << 20, true)[..2],
            ["node-chain", "ring"]
        );
        assert_eq!(
            chosen(&table, 8, 1 << 20, false)[..2],
            ["linear", "rabenseifner"]
        );
    }

    #[test]
    fn rules_for_other_devices_are_left_out() {
        let rules = parse("bcast on=slow chain; bcast on=fast linear; allreduce ring");
        let table = Table::with(rules.expect("legal rules"));
        let on = |device| chosen(&table.clone().on(device), 8, 8, false);
        assert_eq!(on("slow")[..2], ["chain", "ring"]);
        assert_eq!(on("fast")[..2], ["linear", "ring"]);
        assert_eq!(on("another")[..2], ["binomial", "ring"]);
    }

    #[test]
    fn rules_of_a_program_come_first_and_those_that_do_not_fit_are_passed_over() {
        let rules = parse("allgather recursive-doubling; bcast ranks<=6 bytes<=1k linear");
        let table = Table::with(rules.expect("legal rules"));
        assert_eq!(chosen(&table, 8, 1 << 20, false)[2], "recursive-doubling");
        assert_ne!(chosen(&table, 7, 1 << 20, false)[2], "recursive-doubling");
        assert_eq!(chosen(&table, 6, 1 << 10, false)[0], "linear");
        assert_eq!(chosen(&table, 6, (1 << 10) + 1, false)[0], "binomial");
        assert_eq!(chosen(&table, 7, 1 << 10, false)[0], "binomial");
    }
}
