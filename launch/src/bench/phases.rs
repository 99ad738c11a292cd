//! Which samples are compared: those taken in one phase of the machine while nothing else was at
//! work.
//!
//! The words, as the records, `--json` and `cargo xtask goals` use them, too:
//!
//! - The **hand-over time**, or *line*, is how long a cache line takes from core to core, one way,
//!   in nanoseconds. It is measured before and after every sample. A sample has a line of its own
//!   ([`Taken::line`]) only if the two are of one phase.
//! - A **phase** is a state of the machine. Two moments are of one phase if neither's hand-over
//!   time is more than a quarter longer than the other's ([`same_phase`]). The names of phases
//!   (`near`, `far`) are words for people and decide nothing.
//! - A **band** is the phase whose samples are compared: all hand-over times from one to a quarter
//!   more.
//! - A sample is **disturbed** if others used too much of the processors meanwhile (`machine.rs`
//!   has the limits). A figure is, if a sample that counts is.
//! - A sample **counts** if its value is part of the figure: it is in the band, and undisturbed, or
//!   no contender would have a figure without disturbed ones. The others are *dropped*.
//! - **Also** there may be further bands in which every contender has at least three undisturbed
//!   samples. Each is a run of its own, with its own figures and ratios.
//!
//! If no band has samples of every contender, the run has no phase: all samples count, and nothing
//! is compared.

use portolan_benches::machine::same_phase;

use super::record::Taken;

/// The hand-over times of one phase: from `from`, in nanoseconds, to a quarter more.
///
/// The bounds follow the samples, because a machine's hand-over time may be anywhere. With fixed
/// bounds two samples a nanosecond apart could be in different phases, and two samples in one phase
/// although one takes twice as long as the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Band {
    from: f64,
}

/// Selects the samples that count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Choice {
    /// Only samples of this phase; `None` for samples of any phase.
    pub(super) band: Option<Band>,
    /// Whether samples during which others were at work count as well.
    pub(super) disturbed: bool,
}

/// How many samples each contender must have in a further phase for that phase to be shown as well.
/// The median of fewer is a mean.
const FEW: usize = 3;

impl Band {
    fn holds(self, line: f64) -> bool {
        self.from <= line && same_phase(self.from, line)
    }

    /// Whether no hand-over time belongs to both phases.
    fn is_apart(self, other: Self) -> bool {
        !same_phase(self.from, other.from)
    }
}

impl Choice {
    /// All samples.
    pub(super) const ALL: Self = Self {
        band: None,
        disturbed: true,
    };

    pub(super) fn counts(&self, taken: &Taken) -> bool {
        let in_phase = |band: Band| taken.line().is_some_and(|line| band.holds(line));
        (self.disturbed || !taken.disturbed) && self.band.is_none_or(in_phase)
    }

    /// How many samples count: of the contender that has the fewest, and in total.
    fn worth(&self, all: &[Vec<&Taken>]) -> (usize, usize) {
        let count = |of: &Vec<&Taken>| of.iter().filter(|taken| self.counts(taken)).count();
        let counts = || all.iter().map(count);
        (counts().min().unwrap_or(0), counts().sum())
    }
}

/// Whether each contender in `all` has `repeat` samples that can be compared.
pub(super) fn enough(all: &[Vec<&Taken>], repeat: usize) -> bool {
    let has = |choice: Choice| choice.worth(all).0 >= repeat;
    choices(all, false).any(has)
}

/// Chooses the samples that count. The best phase is the one in which the contender with the fewest
/// samples has the most; among equals the one with the most samples in total; among equals the one
/// with the shortest hand-over. Samples during which others were at work count only if otherwise
/// some contender would have none. If no phase has samples of every contender, all samples count.
pub(super) fn choose(all: &[Vec<&Taken>]) -> Choice {
    best(all, false)
        .or_else(|| best(all, true))
        .unwrap_or(Choice::ALL)
}

/// What else can be compared, each by itself: other phases in which every contender has some
/// undisturbed samples, those with the most samples first.
pub(super) fn also(all: &[Vec<&Taken>], first: &Choice) -> Vec<Choice> {
    let mut taken: Vec<Band> = first.band.into_iter().collect();
    let mut found = Vec::new();
    loop {
        let apart = |choice: &Choice| {
            let apart = |band: Band| taken.iter().all(|&other| band.is_apart(other));
            !taken.is_empty() && choice.band.is_some_and(apart)
        };
        let next = most(all, FEW, choices(all, false).filter(apart));
        let Some(choice) = next else { return found };
        taken.extend(choice.band);
        found.push(choice);
    }
}

fn best(all: &[Vec<&Taken>], disturbed: bool) -> Option<Choice> {
    most(all, 1, choices(all, disturbed))
}

/// The choice that is worth most and in which every contender has at least `least` samples; the
/// first among equals.
fn most(
    all: &[Vec<&Taken>],
    least: usize,
    choices: impl Iterator<Item = Choice>,
) -> Option<Choice> {
    let mut best = None;
    for choice in choices {
        let worth = choice.worth(all);
        if worth.0 >= least && best.is_none_or(|(most, _)| worth > most) {
            best = Some((worth, choice));
        }
    }
    best.map(|(_, choice)| choice)
}

/// The possible choices, the phase with the shortest hand-over first. If no sample has a hand-over
/// time, there is one choice: all phases.
fn choices(all: &[Vec<&Taken>], disturbed: bool) -> impl Iterator<Item = Choice> {
    let taken = || all.iter().flatten();
    let blind = taken().all(|taken| taken.before_ns.is_none());
    let mut lines: Vec<f64> = taken().filter_map(|taken| taken.line()).collect();
    lines.sort_by(f64::total_cmp);
    let bands = lines.into_iter().map(|from| Some(Band { from }));
    let bands = bands.chain(blind.then_some(None));
    bands.map(move |band| Choice { band, disturbed })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A sample with these hand-over times before and after it.
    pub(in crate::bench) fn at(before: f64, after: f64) -> Taken {
        Taken {
            before_ns: Some(before),
            after_ns: Some(after),
            ..Taken::default()
        }
    }

    fn steady(lines: &[f64]) -> Vec<Taken> {
        lines.iter().map(|&line| at(line, line)).collect()
    }

    fn borrowed(all: &[Vec<Taken>]) -> Vec<Vec<&Taken>> {
        all.iter().map(|of| of.iter().collect()).collect()
    }

    fn counting(choice: Choice, of: &[Taken]) -> Vec<bool> {
        of.iter().map(|taken| choice.counts(taken)).collect()
    }

    #[test]
    fn samples_about_a_round_number_are_of_one_phase() {
        let all = [steady(&[88.0, 91.0, 89.0]), steady(&[92.0, 88.0, 90.5])];
        assert!(enough(&borrowed(&all), 3));
        let choice = choose(&borrowed(&all));
        assert_eq!(counting(choice, &all[0]), [true; 3]);
        assert_eq!(counting(choice, &all[1]), [true; 3]);
        // The same holds for the two hand-over times of one sample.
        assert!(
            at(89.0, 91.0)
                .line()
                .is_some_and(|line| (line - 90.0).abs() < 0.1)
        );
    }

    #[test]
    fn what_takes_much_longer_is_another_phase_however_long_all_take() {
        assert_eq!(at(190.0, 300.0).line(), None);
        let all = [
            steady(&[190.0, 300.0, 195.0]),
            steady(&[305.0, 200.0, 310.0]),
        ];
        assert!(enough(&borrowed(&all), 1) && !enough(&borrowed(&all), 2));
        let choice = choose(&borrowed(&all));
        assert_eq!(counting(choice, &all[0]), [true, false, true]);
        assert_eq!(counting(choice, &all[1]), [false, true, false]);
        let apart = [steady(&[190.0]), steady(&[300.0])];
        assert_eq!(choose(&borrowed(&apart)), Choice::ALL);
        assert!(!enough(&borrowed(&apart), 1));
    }

    #[test]
    fn the_phase_counts_in_which_who_has_the_fewest_has_most() {
        let all = [steady(&[50.0, 50.0, 150.0]), steady(&[50.0, 150.0])];
        let near = counting(choose(&borrowed(&all)), &all[0]);
        assert_eq!(near, [true, true, false], "most in total");
        let even = [steady(&[150.0, 50.0]), steady(&[50.0, 150.0])];
        let near = counting(choose(&borrowed(&even)), &even[0]);
        assert_eq!(near, [false, true], "the nearest of equals");
    }

    #[test]
    fn a_second_phase_is_shown_if_everybody_has_some_samples_in_it() {
        let mut all = [
            steady(&[50.0, 190.0, 51.0, 200.0, 52.0, 195.0, 50.0, 61.0]),
            steady(&[190.0, 50.0, 200.0, 51.0, 195.0, 52.0, 50.0, 64.0]),
        ];
        let first = choose(&borrowed(&all));
        let [second] = also(&borrowed(&all), &first)[..] else {
            panic!("there is one more");
        };
        let expected = [false, true, false, true, false, true, false, false];
        assert_eq!(counting(second, &all[0]), expected);
        assert!(
            all[0]
                .iter()
                .all(|taken| !(first.counts(taken) && second.counts(taken)))
        );
        all[0][1].disturbed = true;
        assert!(also(&borrowed(&all), &first).is_empty(), "two are quiet");
        assert!(also(&borrowed(&all), &Choice::ALL).is_empty());
    }

    #[test]
    fn a_sample_beside_others_work_is_taken_again_and_counts_only_for_want_of_another() {
        let mut all = [steady(&[50.0, 50.0, 50.0]), steady(&[50.0, 50.0])];
        all[0][1].disturbed = true;
        assert!(enough(&borrowed(&all), 2) && !enough(&borrowed(&all), 3));
        let choice = choose(&borrowed(&all));
        assert_eq!(counting(choice, &all[0]), [true, false, true]);
        all[1].iter_mut().for_each(|taken| taken.disturbed = true);
        assert!(!enough(&borrowed(&all), 1));
        let choice = choose(&borrowed(&all));
        assert!(choice.disturbed);
        assert_eq!(counting(choice, &all[0]), [true; 3]);
    }

    #[test]
    fn where_nobody_can_look_there_is_nothing_to_wait_for_but_others_work() {
        let mut all = [vec![Taken::default()], vec![Taken::default()]];
        assert!(enough(&borrowed(&all), 1));
        assert!(!choose(&borrowed(&all)).disturbed);
        all[0][0].disturbed = true;
        assert!(!enough(&borrowed(&all), 1));
        // If hand-over times are known, a sample in which the phase changed does not count.
        assert!(!enough(&borrowed(&[vec![at(50.0, 150.0)]]), 1));
    }
}
