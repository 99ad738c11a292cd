//! What may be compared: Portolan's figures with those of the peers, and when a ratio decides
//! something.

use portolan_benches::Pattern;

use super::args::keeps_virtual_time;
use super::record::{Entry, Figure, Machine, Run};

/// The number of samples of each contender with which a ratio decides something.
const ENOUGH: usize = 3;

/// Why a ratio decides nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Doubt {
    /// Others were at work during samples that count.
    Disturbed,
    /// Somebody has fewer than [`ENOUGH`] samples.
    Few,
    /// A peer that might be the best has failed, or has no figure.
    Incomplete,
}

impl Doubt {
    /// The reason, for people.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Disturbed => "others were at work during samples that count",
            Self::Few => "somebody has fewer than 3 samples",
            Self::Incomplete => "a peer failed, or has no figure",
        }
    }
}

impl Run {
    /// The best peer's median for a size, and its name. A peer that has no figure in some samples
    /// counts only if it has as many figures as the contender with the fewest samples. Otherwise
    /// the best peer would be the luckiest one with one or two samples.
    pub(super) fn best_peer(&self, bytes: usize) -> Option<(f64, &str)> {
        let counting = |entry: &Entry| entry.taken.iter().filter(|taken| taken.counts).count();
        let least = self.alive().map(counting).min().unwrap_or(0);
        let peers = self.entries.iter().filter(|entry| entry.peer);
        let medians = peers.filter_map(|entry| {
            let figure = Self::figure(entry, bytes).filter(|figure| figure.samples >= least)?;
            Some((figure.summary.median, entry.name.as_str()))
        });
        let by_value = |a: &(f64, &str), b: &(f64, &str)| a.0.total_cmp(&b.0);
        if self.less_is_better {
            medians.min_by(by_value)
        } else {
            medians.max_by(by_value)
        }
    }

    /// Whether the figures of an entry are in the virtual time of an emulated machine. They say
    /// nothing about this machine, so they are compared with no peer and with none of its limits.
    pub(super) fn is_virtual(&self, entry: &Entry) -> bool {
        let named = |pattern: &&Pattern| pattern.name() == self.bench;
        let pattern = Pattern::ALL.iter().find(named);
        let timed = pattern.is_some_and(|pattern| pattern.is_timed_by_device());
        timed && !entry.peer && keeps_virtual_time(&entry.name)
    }

    /// The name of an entry where its figures stand beside those of others.
    pub(super) fn label(&self, entry: &Entry) -> String {
        let clock = if self.is_virtual(entry) {
            " (virtual time)"
        } else {
            ""
        };
        format!("{}{clock}", entry.name)
    }

    /// What has to be said about entries in virtual time; `None` if there are none.
    pub(super) fn virtual_note(&self) -> Option<String> {
        let mut entries = self.entries.iter();
        let entry = entries.find(|entry| self.is_virtual(entry))?;
        Some(format!(
            "{} measures the virtual time of the machine that it emulates, not that of this one: its figures are \
             compared with no peer and no limit",
            entry.name
        ))
    }

    /// Whether any figure has a ratio to the best peer.
    pub(super) fn has_ratios(&self) -> bool {
        let has = |entry: &Entry| {
            let mut figures = entry.figures.iter();
            figures.any(|figure| self.ratio(entry, figure).is_some())
        };
        self.entries.iter().any(has)
    }

    /// The ratio of this figure to that of the best peer, and the peer's name; `None` if the two
    /// cannot be compared.
    pub(super) fn ratio(&self, entry: &Entry, figure: &Figure) -> Option<(f64, &str)> {
        if entry.peer || !self.is_comparable() || self.is_virtual(entry) {
            return None;
        }
        let (best, name) = self.best_peer(figure.bytes)?;
        let ratio = figure.summary.median / best;
        ratio.is_finite().then_some((ratio, name))
    }

    /// Why the ratio of this size decides nothing, if it does not. `cargo xtask goals` judges in
    /// the same way (`xtask/src/goals/verdict.rs`).
    pub(super) fn doubt(&self, bytes: usize) -> Option<Doubt> {
        let judged = || self.alive().filter(|entry| !self.is_virtual(entry));
        let counts = || {
            let figures = judged().filter_map(|entry| Self::figure(entry, bytes));
            figures.map(|figure| figure.samples)
        };
        let lacks = |entry: &Entry| entry.peer && Self::figure(entry, bytes).is_none();
        // The programs of other tools send no empty messages.
        let incomplete = bytes > 0 && judged().any(lacks);
        if judged().any(Entry::is_disturbed) {
            Some(Doubt::Disturbed)
        } else if counts().any(|count| count < ENOUGH) {
            Some(Doubt::Few)
        } else if incomplete || self.entries.iter().any(|entry| entry.failed.is_some()) {
            Some(Doubt::Incomplete)
        } else {
            None
        }
    }

    /// Whether the figures can be compared. They cannot if hand-over times are known and no phase
    /// has samples of every contender.
    pub(super) fn is_comparable(&self) -> bool {
        let looked_at = |machine: &Machine| machine.load_store_ns.is_some();
        self.phase.is_some() || !self.machine.as_ref().is_some_and(looked_at)
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{beside_the_emulator, decided, run};
    use super::*;

    #[test]
    fn the_best_peer_has_the_least_latency_or_the_most_bandwidth() {
        let mut run = run();
        assert_eq!(run.best_peer(8), Some((1.0, "a-1")));
        assert_eq!(run.best_peer(9), None);
        let ours = &run.entries[0];
        assert_eq!(run.ratio(ours, &ours.figures[0]), Some((0.5, "a-1")));
        run.less_is_better = false;
        assert_eq!(run.best_peer(8), Some((2.0, "b-2")));
        let peer = &run.entries[1];
        assert_eq!(run.ratio(peer, &peer.figures[0]), None);
        assert_eq!(
            (run.dropped(), run.disturbance()),
            (3, (Some(0.01), Some(0.0)))
        );
    }

    #[test]
    fn virtual_time_is_compared_with_nothing() {
        let mut run = beside_the_emulator();
        let ratios: Vec<_> = run
            .entries
            .iter()
            .map(|entry| run.ratio(entry, &entry.figures[0]))
            .collect();
        assert_eq!(ratios, [Some((0.5, "a-1")), None, None, None]);
        let labels: Vec<_> = run.entries.iter().map(|entry| run.label(entry)).collect();
        assert_eq!(labels, ["shm", "t3e-sim (virtual time)", "a-1", "b-2"]);
        // What concerns only the emulator says nothing about the ratios of others.
        run.entries[1].taken[0].disturbed = true;
        assert_eq!(run.doubt(8), None);
        // The start of a job is timed by this machine's clock.
        run.bench = "startup".to_owned();
        assert_eq!(run.label(&run.entries[1]), "t3e-sim");
        assert!(
            run.ratio(&run.entries[1], &run.entries[1].figures[0])
                .is_some()
        );
        run.entries.remove(0);
        run.bench = "latency".to_owned();
        assert!(!run.has_ratios());
    }

    #[test]
    fn a_ratio_is_in_doubt_for_the_reasons_of_the_goals() {
        assert_eq!(decided().doubt(8), None);
        assert_eq!(run().doubt(8), Some(Doubt::Few));
        let mut few = decided();
        few.entries[2].figures[0].samples = ENOUGH - 1;
        assert_eq!(few.doubt(8), Some(Doubt::Few));
        let mut disturbed = decided();
        disturbed.entries[2].taken[0].disturbed = true;
        assert_eq!(disturbed.doubt(8), Some(Doubt::Disturbed));
        let mut failed = decided();
        failed.entries[2].failed = Some("it crashed".to_owned());
        assert_eq!(failed.doubt(8), Some(Doubt::Incomplete));
        let mut lacking = decided();
        lacking.entries[2].figures[0].bytes = 64;
        assert_eq!(lacking.doubt(8), Some(Doubt::Incomplete));
    }

    #[test]
    fn a_peer_with_a_figure_in_few_of_its_samples_is_not_the_best() {
        let mut run = run();
        for entry in &mut run.entries {
            entry.taken[1].counts = true;
            entry.figures[0].samples = 2;
        }
        assert_eq!(run.best_peer(8), Some((1.0, "a-1")));
        run.entries[1].figures[0].samples = 1;
        assert_eq!(run.best_peer(8), Some((2.0, "b-2")));
    }

    #[test]
    fn without_a_common_phase_there_is_no_ratio() {
        let mut run = run();
        run.phase = None;
        let ours = &run.entries[0];
        assert_eq!(run.ratio(ours, &ours.figures[0]), None);
        for (entry, phases) in run.entries.iter_mut().zip([
            [Some("near"), None],
            [Some("far"), Some("far")],
            [Some("near"), Some("far")],
        ]) {
            for (taken, phase) in entry.taken.iter_mut().zip(phases) {
                taken.phase = phase.map(str::to_owned);
            }
        }
        let seen = "shm: 1 near, 1 changing; a-1: 2 far; b-2: 1 near, 1 far";
        assert_eq!(run.phases_seen(), seen);
        for (taken, ns) in run.entries[1].taken.iter_mut().zip([100.0, 140.0]) {
            (taken.before_ns, taken.after_ns) = (Some(ns), Some(ns));
        }
        assert!(run.phases_seen().contains("a-1: 2 far (100 to 140);"));
        // If hand-over times are unknown, there are no phases to distinguish.
        if let Some(machine) = &mut run.machine {
            machine.load_store_ns = None;
        }
        let ours = &run.entries[0];
        assert_eq!(run.ratio(ours, &ours.figures[0]), Some((0.5, "a-1")));
    }
}
