//! Whether a goal is met.

use super::figure::{Figure, Run};
use super::list::{Command, Goal, Of};

/// A figure of a goal: what was measured, and what it is measured by.
#[derive(Debug)]
pub(super) struct Verdict {
    /// What was measured: the bench, or the command where several runs are of one.
    pub(super) row: String,
    pub(super) size: u64,
    /// In the bench's unit.
    pub(super) value: f64,
    /// What the goal is about: a ratio, or the value itself.
    pub(super) measure: Option<f64>,
    pub(super) peer: Option<String>,
    pub(super) met: bool,
}

/// The verdicts of a goal, given its runs in their order.
pub(super) fn of(goal: &Goal, runs: &[&Run]) -> Vec<Verdict> {
    // Each run with the one before it, with which it may be compared.
    let before = std::iter::once(None).chain(runs.iter().map(Some));
    let all = goal.commands().zip(runs).zip(before);
    // What others are compared with is no result of its own.
    let is_judged = |run: &Run| {
        let nonblocking = |figure: &Figure| figure.bench.starts_with('i');
        goal.of != Of::Blocking || run.figures.iter().any(nonblocking)
    };
    let judged = all.filter(|((_, run), _)| is_judged(run));
    judged
        .flat_map(|((command, run), before)| {
            // Peers have verdicts of their own only where each is compared with itself.
            let peers = match goal.of {
                Of::FirstSizeOfEach => &run.peers[..],
                _ => &[],
            };
            let concerned = run
                .figures
                .iter()
                .chain(peers)
                .filter(|figure| goal.concerns(figure.size));
            concerned.map(move |figure| {
                let measure = measure(goal, before.copied(), run, figure);
                Verdict {
                    row: row(goal, command, figure),
                    size: figure.size,
                    value: figure.value,
                    measure,
                    peer: figure.peer.clone(),
                    met: measure.is_some_and(|measure| goal.bound.holds(measure)),
                }
            })
        })
        .collect()
}

fn row(goal: &Goal, command: &Command, figure: &Figure) -> String {
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

fn measure(goal: &Goal, before: Option<&Run>, run: &Run, figure: &Figure) -> Option<f64> {
    match goal.of {
        Of::BestPeer => figure.ratio,
        Of::Itself => Some(figure.value),
        Of::FirstSize => {
            let same = run.figures.iter().find(|other| other.bench == figure.bench);
            same.map(|other| figure.value / other.value)
        }
        Of::FirstSizeOfEach => {
            let all = || run.figures.iter().chain(&run.peers);
            let same =
                |other: &&Figure| (&other.bench, &other.whose) == (&figure.bench, &figure.whose);
            all().find(same).map(|other| figure.value / other.value)
        }
        Of::Line => run.line.map(|line| figure.value * 1e3 / line),
        Of::TwoCopies => Some(figure.value / two_copies(run, figure)?),
        Of::Blocking => {
            let blocking = figure.bench.strip_prefix('i')?;
            let same = |other: &&Figure| other.bench == blocking && other.size == figure.size;
            let other = before?.figures.iter().find(same)?;
            Some(figure.value / other.value)
        }
    }
}

/// What a figure would be if messages cost nothing but two copies.
fn two_copies(run: &Run, figure: &Figure) -> Option<f64> {
    if figure.bench == "bibandwidth" {
        let same = |both: &&(u64, f64)| both.0 == figure.size;
        return run.relays_both.iter().find(same).map(|both| both.1);
    }
    let same = |relay: &&(u64, f64, f64)| relay.0 == figure.size;
    let &(_, stream, one_way) = run.relays.iter().find(same)?;
    Some(match figure.bench.as_str() {
        "latency" => one_way,
        _ => stream,
    })
}

#[cfg(test)]
mod tests {
    use super::super::figure::tests::LINES;
    use super::super::list::{Bound, Library};
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
        let met = |goal: &Goal| -> Vec<bool> { of(goal, &[&run]).iter().map(|v| v.met).collect() };
        assert_eq!(met(&goal(Of::BestPeer, Bound::AtMost(0.8))), [true, false]);
        assert_eq!(met(&goal(Of::BestPeer, Bound::AtLeast(0.9))), [false, true]);
        assert_eq!(met(&goal(Of::FirstSize, Bound::AtMost(1.1))), [true, false]);
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
        let verdicts = of(&goal(Of::FirstSizeOfEach, Bound::Shown), &[&run]);
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
        let verdicts = of(&goal(Of::TwoCopies, Bound::Shown), &[&run]);
        let measures: Vec<_> = verdicts.iter().map(|verdict| verdict.measure).collect();
        assert_eq!(measures, [None, Some(0.5)]);
    }

    #[test]
    fn the_nonblocking_form_is_compared_with_the_blocking_one() {
        let row = |bench: &str, value: f64| {
            format!(
                r#"{{"bench":"{bench}","transport":"shm","bytes":8,"value":{value},"samples":1}}"#
            )
        };
        let blocking = Run::read(&row("bcast", 2.0)).unwrap();
        let other = Run::read(&row("ibcast", 3.0)).unwrap();
        let verdicts = of(
            &goal(Of::Blocking, Bound::AtMost(1.3)),
            &[&blocking, &other],
        );
        assert_eq!(verdicts.len(), 1);
        assert_eq!(verdicts[0].measure, Some(1.5));
        assert!(!verdicts[0].met);
    }
}
