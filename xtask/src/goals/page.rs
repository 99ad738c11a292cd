//! The page that says which goals are met.

use std::fmt::Write;

use super::figure::{Absent, Phase, Run};
use super::list::{Bound, Command, Goal, Group, Of};
use super::verdict::{self, Judgement, Verdict};

/// The beginning of the page.
const HEAD: &str = "# Figures\n\n\
    Made by `cargo xtask goals --write`, a group at a time; [benchmarks.md](benchmarks.md) says how it is measured, [limits.md](limits.md) what limits it.\n\
    A cell has what was measured and, behind the point, what the goal is about; what misses it is **bold**. A (?) is behind what decides nothing, \
    because somebody has fewer than 3 samples (9 in the group of more ranks than cores), or not all are of one phase of the machine, or others were at work meanwhile, or a peer has no figure of that size, or failed, which is then named. Figures of different groups are of different runs.\n";

/// The part of the page about a group.
///
/// `how` is the command that measures the group, `when` says when and with which build that was,
/// and `typed` returns the command of one of its runs as it was measured. `run` returns a run, or
/// why there is none.
pub(super) fn group<'a>(
    group: &Group,
    how: &str,
    when: &str,
    typed: impl Fn(&Command) -> String,
    run: impl Fn(&Command) -> Result<&'a Run, String>,
) -> String {
    let mut text = format!("## {}\n\n`{how}`\n\n{when}\n\n", group.title);
    for goal in group.goals {
        let runs: Result<Vec<&Run>, String> = goal.commands().map(&run).collect();
        let part = match runs {
            Ok(runs) => section(goal, group.least, &typed, &runs),
            Err(why) => format!(
                "### {}: {}\n\nNot measured: {}.\n",
                goal.what,
                bound(goal),
                why.trim_end_matches('.')
            ),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{part}");
    }
    text
}

/// The page with one group's part replaced.
pub(super) fn with(page: &str, name: &str, part: &str) -> String {
    let (begin, end) = (
        format!("<!-- {name} -->\n"),
        format!("<!-- end of {name} -->\n"),
    );
    let part = format!("{begin}{}\n{end}", part.trim_end());
    let page = with_head(page);
    match (page.find(&begin), page.find(&end)) {
        (Some(from), Some(to)) => format!("{}{part}{}", &page[..from], &page[to + end.len()..]),
        _ => format!("{page}\n{part}"),
    }
}

/// The page with the present beginning, unless the page has a beginning of its own.
fn with_head(page: &str) -> String {
    let title = HEAD.lines().next().unwrap_or_default();
    let parts = page.find("\n<!-- ").unwrap_or(page.len());
    if page.is_empty() || page.lines().next() == Some(title) {
        format!("{HEAD}{}", &page[parts..])
    } else {
        page.to_owned()
    }
}

fn section(goal: &Goal, least: u64, typed: impl Fn(&Command) -> String, runs: &[&Run]) -> String {
    let verdicts = verdict::of(goal, least, runs);
    let count = |judgement| {
        let same = verdicts.iter().filter(|v| v.judgement == judgement);
        same.count()
    };
    let (met, undecided) = (count(Judgement::Met), count(Judgement::Undecided));
    // The first size has nothing to meet.
    let all = verdicts.len() - count(Judgement::First);
    let mut text = format!("### {}: {}\n\n", goal.what, bound(goal));
    if goal.bound != Bound::Shown {
        let _ = write!(text, "Met by {met} of {all}");
        if undecided > 0 {
            let _ = write!(text, ", {undecided} undecided");
        }
        text.push_str(". ");
    }
    let _ = writeln!(text, "{}.\n", circumstances(goal, runs));
    text.push_str(&table(goal, &verdicts));
    if matches!(goal.of, Of::BestPeer | Of::FirstSizeOfEach) {
        text.push_str(&absent(runs));
    }
    text.push_str("\n```\n");
    for command in goal.commands() {
        let _ = writeln!(text, "{}", typed(command));
    }
    text.push_str("```\n");
    text
}

fn bound(goal: &Goal) -> String {
    let by = match goal.of {
        Of::BestPeer => " × the best peer",
        Of::Itself => "",
        Of::FirstSize | Of::FirstSizeOfEach => " × the first",
        Of::Line => " × a cache line's way",
        Of::TwoCopies => " × two copies",
        Of::Blocking => " × the blocking form",
    };
    match goal.bound {
        Bound::AtMost(limit) => format!("at most {limit}{by}"),
        Bound::AtLeast(limit) => format!("at least {limit}{by}"),
        Bound::Shown => "shown".to_owned(),
    }
}

fn circumstances(goal: &Goal, runs: &[&Run]) -> String {
    let all = || runs.iter().flat_map(|run| run.all());
    let figures = || all().filter(|figure| goal.concerns(figure.size));
    let mut phases: Vec<&str> = Vec::new();
    for figure in figures() {
        let phase = match &figure.phase {
            Phase::One(phase) => phase,
            Phase::None => "none in common",
            Phase::Unknown => "unknown",
        };
        if !phases.contains(&phase) {
            phases.push(phase);
        }
    }
    let others = runs.iter().map(|run| run.others).fold(0.0, f64::max);
    let samples = figures().map(|figure| figure.samples).min().unwrap_or(0);
    let machine = runs.iter().find_map(|run| run.machine.as_deref());
    format!(
        "{}; phase {}; {samples} sample{} or more; others used {:.0} % of a core",
        machine.unwrap_or("machine not looked at"),
        phases.join(", "),
        if samples == 1 { "" } else { "s" },
        others * 100.0,
    )
}

/// The table of a goal: sizes across, benches down.
fn table(goal: &Goal, verdicts: &[Verdict]) -> String {
    let mut sizes: Vec<u64> = verdicts.iter().map(|verdict| verdict.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut rows: Vec<&str> = verdicts
        .iter()
        .map(|verdict| verdict.row.as_str())
        .collect();
    rows.dedup();
    let mut text = String::from("| |");
    for &size in &sizes {
        let _ = write!(text, " {} |", short(size));
    }
    text.push_str("\n| --- |");
    text.push_str(&" --: |".repeat(sizes.len()));
    text.push('\n');
    for row in rows {
        let _ = write!(text, "| {row} |");
        for &size in &sizes {
            let cell = verdicts
                .iter()
                .find(|verdict| verdict.row == row && verdict.size == size);
            let _ = write!(
                text,
                " {} |",
                cell.map_or(String::new(), |verdict| said(goal, verdict))
            );
        }
        text.push('\n');
    }
    let mut peers: Vec<&str> = verdicts
        .iter()
        .filter_map(|verdict| verdict.peer.as_deref())
        .collect();
    peers.sort_unstable();
    peers.dedup();
    if goal.of == Of::BestPeer && !peers.is_empty() {
        let _ = writeln!(text, "\nThe best: {}.", peers.join(", "));
    }
    text
}

/// Names the peers that have no figures, each once: a reader of "the best" has to know which peers
/// that leaves out.
fn absent(runs: &[&Run]) -> String {
    let failed = named(runs.iter().flat_map(|run| &run.failed), |absent| {
        // The output of the peer follows the first line.
        let why = absent.why.lines().next().unwrap_or_default();
        format!("{} ({})", absent.peer, why.replace('`', "'"))
    });
    let missing = named(runs.iter().flat_map(|run| &run.missing), |absent| {
        absent.peer.clone()
    });
    let mut text = String::new();
    for (what, who) in [("Failed", failed), ("Not measured", missing)] {
        if !who.is_empty() {
            let _ = writeln!(text, "\n{what}: {}.", who.join(", "));
        }
    }
    text
}

fn named<'a>(
    absent: impl Iterator<Item = &'a Absent>,
    name: impl Fn(&Absent) -> String,
) -> Vec<String> {
    let mut names: Vec<String> = absent.map(name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn said(goal: &Goal, verdict: &Verdict) -> String {
    let value = digits(verdict.value);
    let text = match verdict.measure {
        Some(_) if goal.of == Of::Itself => value,
        Some(measure) => format!("{value} · {measure:.2}"),
        None => format!("{value} · ?"),
    };
    match verdict.judgement {
        _ if goal.bound == Bound::Shown => text,
        Judgement::Met | Judgement::First => text,
        Judgement::Missed => format!("**{text}**"),
        Judgement::Undecided => format!("{text} (?)"),
    }
}

/// Three significant digits; thousands are written in full.
fn digits(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 1.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

/// A size as people write it.
fn short(size: u64) -> String {
    match size {
        s if s >= 1 << 20 && s % (1 << 20) == 0 => format!("{} Mi", s >> 20),
        s if s >= 1 << 10 && s % (1 << 10) == 0 => format!("{} Ki", s >> 10),
        s => s.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::list::{FEW, GROUPS, Library, MANY};
    use super::*;

    #[test]
    fn what_could_not_be_measured_stays_on_the_page() {
        let coll = GROUPS.iter().find(|group| group.name == "coll").unwrap();
        let failed = |_: &Command| Err("exit status: 2.".to_owned());
        let text = group(coll, "how", "When.", |_| String::new(), failed);
        assert!(text.contains("\n\n`how`\n\nWhen.\n\n### "), "{text}");
        let parts = text.matches("\n\nNot measured: exit status: 2.\n").count();
        assert_eq!(parts, coll.goals.len(), "{text}");
        assert!(text.contains("### Short ones, µs: at most 0.7 × the best peer"));
    }

    #[test]
    fn a_group_is_replaced_and_the_others_stay() {
        let page = with("", "a", "one\n");
        let page = with(&page, "b", "two\n");
        let page = with(&page, "a", "three\n");
        assert!(page.starts_with("# Figures"));
        assert!(page.contains("three") && page.contains("two") && !page.contains("one\n<"));
        assert!(page.find("three") < page.find("two"));
        // The beginning is replaced by the present one, unless the page has its own.
        let earlier = page.replace("Made by", "Written by");
        assert_eq!(with(&earlier, "a", "three\n"), page);
        let other = page.replace("# Figures\n", "# Figures of another\n");
        assert_eq!(with(&other, "a", "three\n"), other);
    }

    #[test]
    fn the_beginning_says_how_many_samples_decide() {
        let said =
            format!("fewer than {FEW} samples ({MANY} in the group of more ranks than cores)");
        assert!(HEAD.contains(&said));
    }

    #[test]
    fn what_misses_the_goal_is_bold() {
        let goal = Goal {
            what: "Latency",
            bound: Bound::AtMost(0.8),
            of: Of::BestPeer,
            sizes: None,
            runs: &[Command {
                words: "latency --peers",
                settings: &[("A", "b")],
                library: Library::OfTheWheel,
            }],
        };
        let run = Run::read(super::super::figure::tests::LINES).unwrap();
        let typed = |command: &Command| format!("A=b portolan bench {} --repeat 3", command.words);
        let section = |goal: &Goal, runs: &[&Run]| section(goal, FEW, typed, runs);
        let text = section(&goal, &[&run]);
        assert!(text.contains("Met by 1 of 2"), "{text}");
        assert!(
            text.contains("| latency | 0.080 · 0.80 | **0.100 · 0.95** |"),
            "{text}"
        );
        assert!(
            text.contains("\nA=b portolan bench latency --peers --repeat 3\n"),
            "{text}"
        );
        assert!(text.contains("The best: a-1."), "{text}");
        assert!(text.contains("; 3 samples or more;"), "{text}");
        let one = super::super::figure::tests::LINES.replace("\"samples\":3", "\"samples\":1");
        let text = section(&goal, &[&Run::read(&one).unwrap()]);
        assert!(text.contains("; 1 sample or more;"), "{text}");
        assert!(text.contains("Met by 0 of 2, 2 undecided. "), "{text}");
        assert!(
            text.contains("| latency | 0.080 · 0.80 (?) | 0.100 · 0.95 (?) |"),
            "{text}"
        );
        // The peer has fewer samples.
        let peers = super::super::figure::tests::LINES.replace(
            "\"samples\":3,\"phase\":\"near\"}",
            "\"samples\":2,\"phase\":\"near\"}",
        );
        let text = section(&goal, &[&Run::read(&peers).unwrap()]);
        assert!(text.contains("; 2 samples or more;"), "{text}");
        let none = super::super::figure::tests::LINES.replace("\"phase\":\"near\"", "\"x\":0");
        let text = section(&goal, &[&Run::read(&none).unwrap()]);
        assert!(text.contains("; phase none in common; "), "{text}");
        assert!(text.contains("Met by 0 of 2, 2 undecided. "), "{text}");
    }

    #[test]
    fn the_first_size_is_shown_and_not_counted() {
        let goal = Goal {
            what: "Latency",
            bound: Bound::AtMost(1.1),
            of: Of::FirstSize,
            sizes: None,
            runs: &[Command {
                words: "latency",
                settings: &[],
                library: Library::Systems,
            }],
        };
        let run = Run::read(super::super::figure::tests::LINES).unwrap();
        let text = section(&goal, FEW, |_| String::new(), &[&run]);
        assert!(text.contains("Met by 0 of 1. "), "{text}");
        let row = "| latency | 0.080 · 1.00 | **0.100 · 1.25** |";
        assert!(text.contains(row), "{text}");
    }

    #[test]
    fn peers_without_figures_are_named_where_peers_are_compared() {
        use super::super::figure::tests::{ABSENT, LINES};
        let mut goal = Goal {
            what: "Latency",
            bound: Bound::AtMost(0.8),
            of: Of::BestPeer,
            sizes: None,
            runs: &[Command {
                words: "latency --peers",
                settings: &[],
                library: Library::Systems,
            }],
        };
        let run = Run::read(&format!("{LINES}{ABSENT}")).unwrap();
        let of = |goal: &Goal| section(goal, FEW, |_| String::new(), &[&run]);
        let text = of(&goal);
        assert!(text.contains("Met by 0 of 2, 2 undecided. "), "{text}");
        let said = "\nFailed: b-2 (it had not ended after 630s).\n\nNot measured: c.\n";
        assert!(text.contains(said), "{text}");
        goal.of = Of::Line;
        let text = of(&goal);
        assert!(
            !text.contains("Failed") && !text.contains("Not measured"),
            "{text}"
        );
    }

    #[test]
    fn sizes_and_figures_are_short() {
        assert_eq!(
            [short(8), short(1024), short(4 << 20)],
            ["8", "1 Ki", "4 Mi"]
        );
        assert_eq!(
            [digits(0.0801), digits(1.234), digits(45957.0)],
            ["0.080", "1.23", "45957"]
        );
    }
}
