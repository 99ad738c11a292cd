//! Decides whether a goal is met.

use super::figure::{Figure, Phase, Run, same_phase};
use super::list::{Command, Goal, Of};

/// The verdict on one figure of a goal.
#[derive(Debug)]
pub(super) struct Verdict {
    /// What was measured: the bench, or the command if several runs are of one bench.
    pub(super) row: String,
    pub(super) size: u64,
    /// In the bench's unit.
    pub(super) value: f64,
    /// The quantity that the goal bounds: a ratio, or the value itself.
    pub(super) measure: Option<f64>,
    pub(super) peer: Option<String>,
    pub(super) judgement: Judgement,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    Met,
    Missed,
    /// It is the figure of the first size, with which those of the others are compared.
    First,
    /// There is nothing to compare with, or the other figure was measured in another phase of the
    /// machine or alongside other work, or there are too few samples, or the best peer may be one
    /// that failed or has no figure.
    Undecided,
}

/// The result of a comparison, and how reliable it is.
struct Measure {
    value: f64,
    /// Samples of whoever has the fewest among those that are compared.
    samples: u64,
    /// Whether all are of one phase, so that they may be compared.
    one_phase: bool,
    /// Whether others were at work during the samples.
    disturbed: bool,
    /// Whether everything that belongs to the comparison has figures.
    complete: bool,
    /// Whether a figure is compared with itself.
    with_itself: bool,
}

impl Measure {
    /// Whether the comparison decides anything if each side needs `least` samples.
    fn decides(&self, least: u64) -> bool {
        self.one_phase && !self.disturbed && self.complete && self.samples >= least
    }
}

/// The verdicts of a goal, given its runs in their order. Each side needs `least` samples.
pub(super) fn of(goal: &Goal, least: u64, runs: &[&Run]) -> Vec<Verdict> {
    // Pairs each run with the one before it, with which it may be compared.
    let before = std::iter::once(None).chain(runs.iter().map(Some));
    let all = goal.commands().zip(runs).zip(before);
    // A run that only serves as the comparison for others has no verdicts of its own.
    let is_judged = |run: &Run| {
        let nonblocking = |figure: &Figure| figure.bench.starts_with('i');
        goal.of != Of::Blocking || run.figures.iter().any(nonblocking)
    };
    let judged = all.filter(|((_, run), _)| is_judged(run));
    judged
        .flat_map(|((command, run), before)| {
            // Peers have verdicts of their own only if each is compared with itself.
            let peers = match goal.of {
                Of::FirstSizeOfEach => &run.peers[..],
                _ => &[],
            };
            let concerned = run
                .figures
                .iter()
                .chain(peers)
                .filter(|figure| goal.concerns(figure.size))
                // The machine's limits belong to one of the phases.
                .filter(|figure| goal.of != Of::TwoCopies || is_of_the_limits(run, figure));
            concerned.map(move |figure| {
                let measure = measure(goal, before.copied(), run, figure);
                Verdict {
                    row: row(goal, command, run, figure),
                    size: figure.size,
                    value: figure.value,
                    judgement: judge(goal, least, measure.as_ref()),
                    measure: measure.map(|measure| measure.value),
                    peer: figure.peer.clone(),
                }
            })
        })
        .collect()
}

/// The name of a figure's row, with the phase if the run has figures in several phases.
fn row(goal: &Goal, command: &Command, run: &Run, figure: &Figure) -> String {
    let name = name(goal, command, figure);
    let same = |other: &Figure| other.bench == figure.bench;
    let mut all = run.figures.iter().filter(|other| same(other));
    match &figure.phase {
        Phase::One(phase) if all.any(|other| !other.is_beside(figure)) => {
            let line = figure.line.map(|line| format!(", a line {line:.0} ns"));
            format!("{name} ({phase}{})", line.unwrap_or_default())
        }
        _ => name,
    }
}

fn name(goal: &Goal, command: &Command, figure: &Figure) -> String {
    if goal.of == Of::FirstSizeOfEach {
        return format!("{}, {}", figure.bench, figure.whose);
    }
    let same = |other: &&Command| other.words.split(' ').next() == command.words.split(' ').next();
    if goal.commands().filter(same).count() < 2 {
        return figure.bench.clone();
    }
    let words = command.words.split(" --peers").next();
    words.unwrap_or(command.words).to_owned()
}

/// Whether a figure is of the phase in which the machine's limits were measured.
fn is_of_the_limits(run: &Run, figure: &Figure) -> bool {
    match (run.line, figure.line) {
        (Some(limits), Some(line)) => same_phase(limits, line),
        _ => true,
    }
}

fn judge(goal: &Goal, least: u64, measure: Option<&Measure>) -> Judgement {
    match measure {
        Some(measure) if measure.with_itself => Judgement::First,
        Some(measure) if measure.decides(least) => {
            if goal.bound.holds(measure.value) {
                Judgement::Met
            } else {
                Judgement::Missed
            }
        }
        _ => Judgement::Undecided,
    }
}

fn measure(goal: &Goal, before: Option<&Run>, run: &Run, figure: &Figure) -> Option<Measure> {
    let alone = |value| Measure {
        value,
        samples: figure.samples,
        one_phase: figure.phase != Phase::None,
        disturbed: figure.disturbed,
        complete: true,
        with_itself: false,
    };
    let beside = |value, other: &Figure| Measure {
        value,
        samples: figure.samples.min(other.samples),
        one_phase: figure.is_beside(other),
        disturbed: figure.disturbed || other.disturbed,
        complete: true,
        with_itself: std::ptr::eq(figure, other),
    };
    match goal.of {
        Of::BestPeer => {
            let best = |other: &&Figure| {
                (&other.bench, other.size) == (&figure.bench, figure.size)
                    && Some(&other.whose) == figure.peer.as_ref()
            };
            let best = beside_it(figure, run.peers.iter().filter(best))?;
            let measure = beside(figure.ratio?, best);
            // A peer that seems slower may be the best of all but for its few or disturbed samples.
            let peers = || run.peers_beside(figure);
            let fewest = peers().map(|peer| peer.samples).min();
            Some(Measure {
                samples: fewest.map_or(measure.samples, |fewest| fewest.min(measure.samples)),
                disturbed: measure.disturbed || peers().any(|peer| peer.disturbed),
                complete: !run.lacks_a_peer(figure),
                ..measure
            })
        }
        // Compared with nothing, so the phase does not matter.
        Of::Itself => Some(Measure {
            one_phase: true,
            ..alone(figure.value)
        }),
        Of::FirstSize | Of::FirstSizeOfEach => {
            let same =
                |other: &&Figure| (&other.bench, &other.whose) == (&figure.bench, &figure.whose);
            let first = beside_it(figure, run.all().filter(same))?;
            Some(beside(figure.value / first.value, first))
        }
        Of::Line => {
            let line = figure.line.or(run.line)?;
            Some(alone(figure.value * 1e3 / line))
        }
        Of::TwoCopies => Some(alone(figure.value / two_copies(run, figure)?)),
        Of::Blocking => {
            let blocking = match figure.bench.as_str() {
                // `barrier` is timed in another way.
                "ibarrier" => "barrier-alone",
                other => other.strip_prefix('i')?,
            };
            let same = |other: &&Figure| other.bench == blocking && other.size == figure.size;
            let other = beside_it(figure, before?.figures.iter().filter(same))?;
            Some(beside(figure.value / other.value, other))
        }
    }
}

/// Among figures in several phases, the one in the same phase as `figure`, or else the first.
fn beside_it<'a>(figure: &Figure, all: impl Iterator<Item = &'a Figure>) -> Option<&'a Figure> {
    let mut all = all.peekable();
    let first = all.peek().copied();
    all.find(|other| figure.is_beside(other)).or(first)
}

/// The figure if messages cost nothing but two copies.
fn two_copies(run: &Run, figure: &Figure) -> Option<f64> {
    let size = figure.size;
    let rates = |of: fn(&(u64, f64, f64)) -> f64| -> Vec<(u64, f64)> {
        let relays = run.relays.iter();
        relays.map(|relay| (relay.0, of(relay))).collect()
    };
    match figure.bench.as_str() {
        "bibandwidth" => between(&run.relays_both, size),
        "latency" => {
            let speeds = rates(|&(bytes, _, one_way)| bytes as f64 / one_way);
            Some(size as f64 / between(&speeds, size)?)
        }
        _ => between(&rates(|relay| relay.1), size),
    }
}

/// The rate at a size: interpolated linearly over the logarithm between two measured sizes, and
/// `None` beyond them.
fn between(rates: &[(u64, f64)], size: u64) -> Option<f64> {
    let at = rates.iter().position(|rate| rate.0 >= size)?;
    let (bytes, above) = rates[at];
    if bytes == size {
        return Some(above);
    }
    let (before, below) = rates[at.checked_sub(1)?];
    let log = |bytes: u64| (bytes as f64).ln();
    let share = (log(size) - log(before)) / (log(bytes) - log(before));
    Some(below + share * (above - below))
}

#[cfg(test)]
mod tests {
    use super::super::figure::tests::{ABSENT, LINES};
    use super::super::list::{Bound, FEW, Library, MANY};
    use super::*;

    const RUN: Command = Command {
        words: "latency",
        settings: &[],
        library: Library::Systems,
    };

    fn goal(of: Of, bound: Bound) -> Goal {
        Goal {
            what: "x",
            bound,
            of,
            sizes: None,
            runs: &[RUN, RUN],
        }
    }

    #[test]
    fn each_size_is_judged_by_itself() {
        let run = Run::read(LINES).unwrap();
        let met = |goal: &Goal| -> Vec<bool> {
            let verdicts = of(goal, FEW, &[&run]);
            let met = verdicts.iter().map(|v| v.judgement == Judgement::Met);
            met.collect()
        };
        assert_eq!(met(&goal(Of::BestPeer, Bound::AtMost(0.8))), [true, false]);
        assert_eq!(met(&goal(Of::BestPeer, Bound::AtLeast(0.9))), [false, true]);
        let by_first = |most| met(&goal(Of::FirstSize, Bound::AtMost(most)));
        assert_eq!(by_first(1.1), [false, false], "the first is no merit");
        assert_eq!(by_first(1.3), [false, true]);
        assert_eq!(met(&goal(Of::Line, Bound::AtMost(1.5))), [true, false]);
        assert_eq!(
            met(&goal(Of::TwoCopies, Bound::AtMost(1.99))),
            [false, false]
        );
        assert_eq!(met(&goal(Of::TwoCopies, Bound::AtMost(2.01))), [true, true]);
        let mut small = goal(Of::BestPeer, Bound::AtMost(0.8));
        small.sizes = Some((0, 8));
        assert_eq!(met(&small), [true]);
    }

    fn judged(of_what: Of, text: &str) -> Vec<Judgement> {
        let run = Run::read(text).unwrap();
        let verdicts = of(&goal(of_what, Bound::AtMost(0.8)), FEW, &[&run]);
        verdicts.iter().map(|verdict| verdict.judgement).collect()
    }

    #[test]
    fn few_samples_of_either_side_decide_nothing() {
        use Judgement::{Met, Missed, Undecided};
        assert_eq!(judged(Of::BestPeer, LINES), [Met, Missed]);
        for of_whom in ["\"transport\":\"shm\"", "\"peer\":\"a-1\""] {
            let less = |line: &str| {
                if line.contains(of_whom) && line.contains("\"bytes\":8,") {
                    line.replace("\"samples\":3", "\"samples\":2")
                } else {
                    line.to_owned()
                }
            };
            let lines: Vec<_> = LINES.lines().map(less).collect();
            let found = judged(Of::BestPeer, &lines.join("\n"));
            assert_eq!(found, [Undecided, Missed], "{of_whom}");
        }
    }

    #[test]
    fn the_best_of_the_other_peers_decides_nothing_if_one_has_failed() {
        use Judgement::{Met, Missed, Undecided};
        let failed = format!("{LINES}{ABSENT}");
        assert_eq!(judged(Of::BestPeer, &failed), [Undecided; 2]);
        // No peer is part of this comparison.
        assert_eq!(judged(Of::FirstSize, &failed), judged(Of::FirstSize, LINES));
        // The failure concerns its own bench only, and a peer that is not installed is not waited
        // for.
        for other in [
            failed.replace(r#""latency","peer":"b-2""#, r#""rate","peer":"b-2""#),
            failed.replace("failed", "missing"),
        ] {
            assert_eq!(judged(Of::BestPeer, &other), [Met, Missed]);
        }
    }

    /// A peer that is slower than the best, with figures of these two sizes.
    fn slower(small: &str, large: &str) -> String {
        let line = |bytes: u64, rest: &str| {
            format!(
                r#"{{"bench":"latency","peer":"c","bytes":{bytes},"value":0.2,{rest},"phase":"near"}}"#
            )
        };
        format!("{LINES}\n{}\n{}", line(8, small), line(64, large))
    }

    #[test]
    fn figures_of_any_peer_that_are_not_good_enough_decide_nothing() {
        use Judgement::{Met, Missed, Undecided};
        let good = r#""samples":3"#;
        assert_eq!(judged(Of::BestPeer, &slower(good, good)), [Met, Missed]);
        for bad in [
            r#""samples":3,"disturbed":true"#,
            r#""samples":2"#,
            r#""samples":1"#,
        ] {
            let found = judged(Of::BestPeer, &slower(bad, good));
            assert_eq!(found, [Undecided, Missed], "{bad}");
        }
        // Two samples of it are all that it has.
        let two = r#""samples":2"#;
        assert_eq!(judged(Of::BestPeer, &slower(two, two)), [Undecided; 2]);
    }

    #[test]
    fn a_peer_that_was_passed_over_may_be_the_best() {
        use Judgement::{Met, Missed, Undecided};
        // Everybody has five samples, and this peer only four figures of 8 bytes.
        let five = |text: String| text.replace(r#""samples":3"#, r#""samples":5"#);
        let passed_over = five(slower(r#""samples":4"#, r#""samples":5"#));
        assert_eq!(judged(Of::BestPeer, &passed_over), [Undecided, Missed]);
        // With four samples in all it is one of those that are compared.
        let compared = five(slower(r#""samples":4"#, r#""samples":4"#));
        assert_eq!(judged(Of::BestPeer, &compared), [Met, Missed]);
        let all = slower(r#""samples":3"#, r#""samples":3"#);
        let without = |text: &str, what: &str| -> String {
            let lines = text.lines().filter(|line| !line.contains(what));
            lines.collect::<Vec<_>>().join("\n")
        };
        let none = without(&all, r#""peer":"c","bytes":8,"#);
        assert_eq!(judged(Of::BestPeer, &none), [Undecided, Missed]);
        // Tools send no empty messages.
        let empty = none.replace(r#""bytes":8,"#, r#""bytes":0,"#);
        assert_eq!(judged(Of::BestPeer, &empty), [Met, Missed]);
    }

    #[test]
    fn where_ranks_take_turns_more_samples_are_wanted() {
        let run = Run::read(LINES).unwrap();
        let goal = goal(Of::BestPeer, Bound::AtMost(0.8));
        let judged = |least| of(&goal, least, &[&run])[0].judgement;
        assert_eq!(judged(FEW), Judgement::Met);
        assert_eq!(judged(MANY), Judgement::Undecided);
    }

    #[test]
    fn what_was_measured_beside_others_work_decides_nothing() {
        use Judgement::{Met, Missed, Undecided};
        for of_whom in ["\"transport\":\"shm\"", "\"peer\":\"a-1\""] {
            let busy = |line: &str| {
                if line.contains(of_whom) && line.contains("\"bytes\":8,") {
                    line.replace("\"samples\":3", "\"samples\":3,\"disturbed\":true")
                } else {
                    line.to_owned()
                }
            };
            let lines: Vec<_> = LINES.lines().map(busy).collect();
            let found = judged(Of::BestPeer, &lines.join("\n"));
            assert_eq!(found, [Undecided, Missed], "{of_whom}");
        }
        assert_eq!(judged(Of::BestPeer, LINES), [Met, Missed]);
    }

    #[test]
    fn each_phase_of_a_run_is_beside_its_own() {
        let rows = |phase: &str, line: f64, ours: f64, peers: f64| {
            let ratio = ours / peers;
            let rest = format!(r#""bytes":8,"samples":3,"phase":"{phase}","line_ns":{line}"#);
            format!(
                r#"{{"bench":"latency","transport":"shm","value":{ours},{rest},"ratio":{ratio},"best_peer":"a"}}
{{"bench":"latency","peer":"a","value":{peers},{rest}}}
"#
            )
        };
        let machine = r#"{"bench":"latency","machine":{"model":"X","cores":2,"load_store_ns":50.0,"relays":[[8,50.0,0.04]]}}"#;
        let text = rows("near", 50.0, 0.06, 0.1) + &rows("apart", 200.0, 0.3, 0.3) + machine;
        let run = Run::read(&text).unwrap();
        let verdicts = |of_what| of(&goal(of_what, Bound::AtMost(0.8)), FEW, &[&run]);
        let found: Vec<_> = verdicts(Of::BestPeer)
            .into_iter()
            .map(|verdict| (verdict.row, verdict.judgement))
            .collect();
        let expected = [
            ("latency (near, a line 50 ns)".to_owned(), Judgement::Met),
            (
                "latency (apart, a line 200 ns)".to_owned(),
                Judgement::Missed,
            ),
        ];
        assert_eq!(found, expected);
        let by_line: Vec<_> = verdicts(Of::Line)
            .iter()
            .map(|v| v.measure.unwrap())
            .collect();
        assert!((by_line[0] - 1.2).abs() < 1e-9 && (by_line[1] - 1.5).abs() < 1e-9);
        assert_eq!(
            verdicts(Of::TwoCopies).len(),
            1,
            "of the phase of the limits"
        );
    }

    #[test]
    fn what_is_of_no_phase_or_of_another_one_decides_nothing() {
        use Judgement::{First, Missed, Undecided};
        let none = LINES.replace("\"phase\":\"near\"", "\"dropped\":0");
        for of_what in [Of::BestPeer, Of::Line, Of::TwoCopies] {
            assert_eq!(judged(of_what, &none), [Undecided; 2], "{of_what:?}");
        }
        assert_eq!(judged(Of::FirstSize, &none), [First, Undecided]);
        // If the machine cannot be measured, there are no phases.
        let unknown = none.replace("load_store_ns", "x");
        assert!(judged(Of::BestPeer, &unknown).contains(&Missed));
        // A figure that is judged by itself is not compared, so the phase does not matter.
        assert!(!judged(Of::Itself, &none).contains(&Undecided));
        let run = |bench: &str, phase: &str| {
            let row = format!(
                r#"{{"bench":"{bench}","transport":"shm","bytes":8,"value":1,"samples":5,"phase":"{phase}"}}"#
            );
            Run::read(&row).unwrap()
        };
        let blocking = goal(Of::Blocking, Bound::AtMost(1.3));
        for (phase, judgement) in [("near", Judgement::Met), ("far", Undecided)] {
            let verdicts = of(
                &blocking,
                FEW,
                &[&run("bcast", "near"), &run("ibcast", phase)],
            );
            assert_eq!(verdicts[0].judgement, judgement, "{phase}");
        }
    }

    #[test]
    fn rates_between_those_that_were_measured_are_on_a_line() {
        let rates = [(1 << 10, 100.0), (4 << 10, 300.0)];
        let rate = |size| between(&rates, size).map(f64::round);
        let at = [512, 1 << 10, 2 << 10, 4 << 10, 8 << 10].map(rate);
        assert_eq!(at, [None, Some(100.0), Some(200.0), Some(300.0), None]);
    }

    #[test]
    fn each_contender_is_measured_by_its_own_first_size() {
        let line = |whose: &str, waiting: u64, value: f64| {
            format!(
                r#"{{"bench":"depth",{whose},"waiting":{waiting},"bytes":8,"value":{value},"samples":1}}"#
            )
        };
        let lines = [
            line(r#""transport":"shm""#, 10, 2.0),
            line(r#""transport":"shm""#, 1000, 2.0),
            line(r#""peer":"a""#, 10, 1.0),
            line(r#""peer":"a""#, 1000, 30.0),
        ];
        let run = Run::read(&lines.join("\n")).unwrap();
        let verdicts = of(&goal(Of::FirstSizeOfEach, Bound::Shown), FEW, &[&run]);
        let shown: Vec<_> = verdicts
            .iter()
            .map(|v| (v.row.as_str(), v.size, v.measure))
            .collect();
        let expected = [
            ("depth, shm", 10, Some(1.0)),
            ("depth, shm", 1000, Some(1.0)),
            ("depth, a", 10, Some(1.0)),
            ("depth, a", 1000, Some(30.0)),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn windows_both_ways_are_measured_by_copies_both_ways() {
        let lines = LINES.replace("latency", "bibandwidth");
        let run = Run::read(&lines.replace("0.1,", "250.0,")).unwrap();
        let verdicts = of(&goal(Of::TwoCopies, Bound::Shown), FEW, &[&run]);
        let measures: Vec<_> = verdicts.iter().map(|verdict| verdict.measure).collect();
        assert_eq!(measures, [None, Some(0.5)]);
    }

    #[test]
    fn the_nonblocking_form_is_compared_with_the_blocking_one() {
        let row = |bench: &str, value: f64| {
            format!(
                r#"{{"bench":"{bench}","transport":"shm","bytes":8,"value":{value},"samples":3}}"#
            )
        };
        let blocking = Run::read(&row("bcast", 2.0)).unwrap();
        let other = Run::read(&row("ibcast", 3.0)).unwrap();
        let verdicts = of(
            &goal(Of::Blocking, Bound::AtMost(1.3)),
            FEW,
            &[&blocking, &other],
        );
        assert_eq!(verdicts.len(), 1);
        assert_eq!(verdicts[0].measure, Some(1.5));
        assert_eq!(verdicts[0].judgement, Judgement::Missed);
    }
}
