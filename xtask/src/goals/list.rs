//! The goals.

mod coll;
mod ofi;
mod ranks;
mod shm;

/// Goals about one subject.
#[derive(Debug)]
pub(super) struct Group {
    /// The name on the command line.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// The number of samples of each side that a verdict needs.
    pub(super) least: u64,
    pub(super) goals: &'static [Goal],
}

/// The usual minimum of samples: the median of fewer is a mean.
pub(super) const FEW: u64 = 3;
/// The minimum for ranks that share processors, where a single sample says little.
pub(super) const MANY: u64 = 9;

/// One goal.
#[derive(Debug)]
pub(super) struct Goal {
    pub(super) what: &'static str,
    pub(super) bound: Bound,
    pub(super) of: Of,
    /// The smallest and largest size that it is about; `None` for all that are measured.
    pub(super) sizes: Option<(u64, u64)>,
    pub(super) runs: &'static [Command],
}

/// A run of `portolan bench`.
#[derive(Debug)]
pub(super) struct Command {
    /// Its arguments.
    pub(super) words: &'static str,
    /// Environment variables.
    pub(super) settings: &'static [(&'static str, &'static str)],
    /// The libfabric under Portolan and under the loops that are measured alongside it.
    pub(super) library: Library,
}

/// Which libfabric is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Library {
    /// The system's.
    Systems,
    /// The one in MPICH's wheel, so that all contenders have the same.
    OfTheWheel,
}

/// The bound of a goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// No bound: the figure is only shown.
    Shown,
}

/// What a figure is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// Its ratio to the best peer's figure.
    BestPeer,
    /// The figure itself.
    Itself,
    /// Its ratio to the figure of the first size.
    FirstSize,
    /// The same, for Portolan and for each peer by itself.
    FirstSizeOfEach,
    /// Its ratio to the time of a cache line from core to core.
    Line,
    /// Its ratio to the time, or the rate, of two copies by two cores.
    TwoCopies,
    /// The ratio of the nonblocking forms, in the second run, to the blocking forms in the first.
    Blocking,
}

impl Goal {
    pub(super) fn commands(&self) -> impl Iterator<Item = &'static Command> {
        self.runs.iter()
    }

    /// Whether the goal is about messages of this size.
    pub(super) fn concerns(&self, size: u64) -> bool {
        self.sizes
            .is_none_or(|(from, to)| (from..=to).contains(&size))
    }
}

impl Bound {
    pub(super) fn holds(self, measure: f64) -> bool {
        match self {
            Self::AtMost(limit) => measure <= limit,
            Self::AtLeast(limit) => measure >= limit,
            Self::Shown => true,
        }
    }
}

/// The names of the groups, for the command line.
pub(super) fn groups() -> Vec<&'static str> {
    GROUPS.iter().map(|group| group.name).collect()
}

const fn run(words: &'static str) -> Command {
    Command {
        words,
        settings: &[],
        library: Library::Systems,
    }
}

/// A run over one provider of libfabric.
const fn over(
    words: &'static str,
    settings: &'static [(&'static str, &'static str)],
    library: Library,
) -> Command {
    Command {
        words,
        settings,
        library,
    }
}

/// A goal about all sizes that its runs measure.
const fn goal(what: &'static str, bound: Bound, of: Of, runs: &'static [Command]) -> Goal {
    Goal {
        what,
        bound,
        of,
        sizes: None,
        runs,
    }
}

/// A goal about some of the sizes.
const fn part(
    what: &'static str,
    bound: Bound,
    of: Of,
    sizes: (u64, u64),
    runs: &'static [Command],
) -> Goal {
    Goal {
        what,
        bound,
        of,
        sizes: Some(sizes),
        runs,
    }
}

/// Every goal.
pub(super) const GROUPS: &[Group] = &[
    shm::ANY_BUFFERS,
    shm::ALLOCATED,
    shm::MATCHING,
    ranks::RANKS,
    coll::TWO_RANKS,
    coll::FOUR_AND_EIGHT,
    coll::NONBLOCKING,
    ofi::LIBFABRIC,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_decided_has_enough_samples() {
        for group in GROUPS {
            let decided = group.goals.iter().filter(|goal| goal.bound != Bound::Shown);
            for command in decided.flat_map(Goal::commands) {
                let words: Vec<_> = command.words.split(' ').collect();
                let at = words.iter().position(|word| *word == "--repeat");
                let own = at.map(|at| words[at + 1].parse::<u64>().unwrap());
                let samples = own.unwrap_or(super::super::REPEAT.into());
                assert!(samples >= group.least, "{}", command.words);
            }
        }
    }

    #[test]
    fn starts_are_beside_both_peers_whatever_is_chosen() {
        let ranks = GROUPS.iter().find(|group| group.name == "ranks").unwrap();
        let all = || ranks.goals.iter().flat_map(Goal::commands);
        let start = all().find(|command| command.words.starts_with("startup"));
        assert!(start.unwrap().words.contains(" --only openmpi,mpich"));
    }
}
