//! The beginning of the page: when and where the runs were measured, and the limits of the machine.

use std::cmp::Reverse;
use std::fmt::Write;

use portolan_benches::machine::same_phase;

use super::{escape, scale};
use crate::bench::record::{Machine, Run};
use crate::bench::table::ELSEWHERE;

/// The versions, days and machines of the runs, and the machine's limits in each phase in which
/// samples were taken.
pub(super) fn of(runs: &[Run]) -> String {
    let mut html = String::new();
    let began = || runs.iter().map(|run| run.began);
    let (Some(first), Some(last)) = (began().min(), began().max()) else {
        return html;
    };
    let mut days = vec![day(first), day(last)];
    days.dedup();
    let versions = distinct(runs.iter().map(|run| run.version.clone()));
    let machines = distinct(
        runs.iter()
            .filter_map(|run| Some(name(run.machine.as_ref()?))),
    );
    let _ = writeln!(
        html,
        "<p class=\"soft\">Portolan {}, {}.</p>",
        escape(&versions.join(" and ")),
        days.join(" to ")
    );
    for machine in &machines {
        let _ = writeln!(html, "<p class=\"soft\">{}.</p>", escape(machine));
    }
    for (run, limits) in by_phase(runs) {
        let phase = phase(run).map_or_else(
            || "Limits, of no phase".to_owned(),
            |phase| format!("Limits in {phase}"),
        );
        let between = limits.processors.map_or_else(String::new, |(one, other)| {
            format!(", between processors {one} and {other}")
        });
        let on = match &machines[..] {
            [_] => String::new(),
            _ => format!(" on {}", name(limits)),
        };
        let _ = writeln!(
            html,
            "<details open><summary>{}</summary>",
            escape(&format!(
                "{phase}{on}{between}, measured behind {} on {}",
                run.bench,
                day(run.began)
            ))
        );
        html.push_str(&tables(limits));
        html.push_str("</details>\n");
    }
    html
}

/// Removes duplicates; the order stays.
fn distinct(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut all = Vec::new();
    for text in texts {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
}

/// Processor, system and number of cores.
fn name(machine: &Machine) -> String {
    let parts = [&machine.model, &machine.system].into_iter().flatten();
    let parts: String = parts.map(|part| format!("{part}; ")).collect();
    format!("{parts}{} cores", machine.cores)
}

/// The phase of a run with the time of a cache line, which distinguishes two phases of one name:
/// `phase apart (a line 190 ns)`. `None` without a phase.
pub(super) fn phase(run: &Run) -> Option<String> {
    let phase = run.phase.as_ref()?;
    let line = run.line().map(|line| format!(" (a line {line:.0} ns)"));
    Some(format!("phase {phase}{}", line.unwrap_or_default()))
}

/// For each machine, pair of processors and phase, the last run that has its limits. A run with
/// figures for copies takes precedence over one without. A run's figures in a second phase are as
/// good as those of a run of its own. The name of a phase decides nothing: lines of 190 and of 300
/// ns are both `apart`.
fn by_phase(runs: &[Run]) -> Vec<(&Run, &Machine)> {
    let all = runs
        .iter()
        .flat_map(|run| std::iter::once(run).chain(&run.also));
    let mut measured: Vec<_> = all
        // The limits of a run whose samples have no phase in common belong to no phase.
        .filter(|run| run.is_comparable())
        .filter_map(|run| Some((run, run.machine.as_ref()?)))
        .filter(|(_, machine)| machine.load_store_ns.is_some() || !machine.copies.is_empty())
        .collect();
    // The best of each phase comes first, so that it is the one that is kept.
    measured.sort_by_key(|(run, machine)| (machine.copies.is_empty(), Reverse(run.began)));
    let mut kept: Vec<(&Run, &Machine)> = Vec::new();
    for (run, machine) in measured {
        if !kept.iter().any(|(_, known)| is_one_place(known, machine)) {
            kept.push((run, machine));
        }
    }
    let place = |machine: &Machine| (name(machine), machine.processors);
    kept.sort_by(|(_, one), (_, other)| {
        let line = |machine: &Machine| machine.load_store_ns.unwrap_or(0.0);
        let by_line = line(one).total_cmp(&line(other));
        place(one).cmp(&place(other)).then(by_line)
    });
    kept
}

/// Whether two records are of one machine in one phase, measured between the same processors.
fn is_one_place(one: &Machine, other: &Machine) -> bool {
    let in_one_phase = match (one.load_store_ns, other.load_store_ns) {
        (Some(one), Some(other)) => same_phase(one, other),
        (one, other) => one == other,
    };
    in_one_phase && one.processors == other.processors && name(one) == name(other)
}

/// Tables of the machine's limits.
fn tables(machine: &Machine) -> String {
    let mut html = String::new();
    let line = [
        ("load and store", machine.load_store_ns),
        ("the same on one line", machine.one_line_ns),
        ("compare-and-swap", machine.compare_and_swap_ns),
        ("sched_yield on one core", machine.yield_ns),
    ];
    let mut rows = String::new();
    for (what, ns) in line {
        if let Some(ns) = ns {
            let _ = write!(rows, "<tr><td>{what}</td><td>{ns:.0}</td></tr>");
        }
    }
    html.push_str("<div class=\"pictures\">");
    html.push_str(&table("<th>hand-over, one way</th><th>ns</th>", &rows));
    rows.clear();
    for &(bytes, rate) in &machine.copies {
        let pulled = machine.pulls.iter().find(|pull| pull.0 == bytes);
        let pulled = pulled.map_or_else(String::new, |pull| format!("{:.1}", pull.1 / 1e3));
        let size = scale::short(bytes as f64, true);
        let _ = write!(
            rows,
            "<tr><td>{size}B</td><td>{:.1}</td><td>{pulled}</td></tr>",
            rate / 1e3
        );
    }
    html.push_str(&table(
        "<th>what another core has just written</th><th>copy, GB/s</th><th>process_vm_readv, GB/s</th>",
        &rows,
    ));
    rows.clear();
    for &(bytes, rate, one_way) in &machine.relays {
        let both = machine.relays_both.iter().find(|both| both.0 == bytes);
        let both = both.map_or_else(String::new, |both| format!("{:.1}", both.1 / 1e3));
        let size = scale::short(bytes as f64, true);
        let _ = write!(
            rows,
            "<tr><td>{size}B</td><td>{:.1}</td><td>{one_way:.2}</td><td>{both}</td></tr>",
            rate / 1e3
        );
    }
    html.push_str(&table(
        "<th>copied in by one core, out by another</th><th>stream, GB/s</th><th>one way, µs</th>\
         <th>streams both ways, GB/s</th>",
        &rows,
    ));
    html.push_str("</div>\n");
    if !machine.has_copies() {
        let _ = writeln!(html, "<p class=\"soft\">Here {ELSEWHERE}.</p>");
    }
    html
}

/// A table; empty if it has no rows.
fn table(head: &str, rows: &str) -> String {
    if rows.is_empty() {
        return String::new();
    }
    format!("<table><tr>{head}</tr>{rows}</table>\n")
}

/// The day of a moment in seconds since 1970, in UTC.
fn day(seconds: u64) -> String {
    // The years of this calculation begin in March, so that a leap day is the last day of a year.
    let days = seconds / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!("{:04}-{month:02}-{day:02}", year + 400 * era + next)
}

#[cfg(test)]
mod tests {
    use super::super::super::record::tests::{run, run_in_two_phases};
    use super::*;

    /// A run in `phase` that began `days` days after 1 January 1970 and measured `line` ns for a
    /// cache line.
    fn of_a_day(phase: Option<&str>, days: u64, line: f64) -> Run {
        let mut run = run();
        run.phase = phase.map(str::to_owned);
        run.began = days * 86_400;
        if let Some(machine) = &mut run.machine {
            machine.load_store_ns = Some(line);
        }
        run
    }

    #[test]
    fn limits_are_those_of_their_phase_and_of_the_last_run_in_it() {
        let runs = [
            of_a_day(Some("near"), 9, 51.0),
            of_a_day(Some("far"), 4, 152.0),
            of_a_day(Some("near"), 1, 53.0),
            of_a_day(None, 20, 254.0),
        ];
        let html = of(&runs);
        let limits = |phase: &str, day: &str, line: &str| {
            let (_, rest) = html
                .split_once(&format!(
                    "Limits in phase {phase} ns), between processors 0 and 1, "
                ))
                .unwrap();
            assert!(
                rest.starts_with(&format!("measured behind latency on 1970-01-{day}<")),
                "{rest}"
            );
            assert!(
                rest.split("</details>").next().unwrap().contains(line),
                "{rest}"
            );
        };
        limits("near (a line 51", "10", "<td>51</td>");
        limits("far (a line 152", "05", "<td>152</td>");
        assert_eq!(html.matches("<summary>").count(), 2, "{html}");
        // Limits between other processors are listed separately.
        let mut far = of_a_day(Some("near"), 30, 77.0);
        if let Some(machine) = &mut far.machine {
            machine.processors = Some((0, 32));
        }
        let both = of(&[runs[0].clone(), far]);
        assert!(both.contains("<td>51</td>") && both.contains("<td>77</td>"));
        assert!(
            html.contains("Portolan 0.1.0, 1970-01-02 to 1970-01-21."),
            "{html}"
        );
    }

    #[test]
    fn a_second_phase_has_limits_whatever_its_name_is() {
        let mut both = run_in_two_phases();
        let mut third = both.also[0].clone();
        if let Some(machine) = &mut third.machine {
            machine.load_store_ns = Some(300.0);
        }
        both.also.push(third);
        let html = of(&[both]);
        for phase in [
            "near (a line 50 ns)",
            "apart (a line 190 ns)",
            "apart (a line 300 ns)",
        ] {
            assert!(
                html.contains(&format!("Limits in phase {phase},")),
                "{html}"
            );
        }
        assert_eq!(html.matches("<summary>").count(), 3, "{html}");
        assert_eq!(html.matches(ELSEWHERE).count(), 2, "{html}");
    }

    #[test]
    fn a_phase_on_both_sides_of_a_bound_between_names_has_limits_once() {
        let runs = [
            of_a_day(Some("near"), 3, 88.0),
            of_a_day(Some("far"), 4, 92.0),
        ];
        let html = of(&runs);
        assert_eq!(html.matches("<summary>").count(), 1, "{html}");
        assert!(
            html.contains("Limits in phase far (a line 92 ns)"),
            "{html}"
        );
    }

    #[test]
    fn copies_that_were_not_measured_have_a_reason_instead_of_a_table() {
        let mut without = of_a_day(Some("near"), 9, 50.0);
        if let Some(machine) = &mut without.machine {
            (machine.copies, machine.pulls) = (Vec::new(), Vec::new());
            (machine.relays, machine.relays_both) = (Vec::new(), Vec::new());
        }
        let html = of(std::slice::from_ref(&without));
        assert!(
            html.contains(ELSEWHERE) && html.contains("<td>50</td>"),
            "{html}"
        );
        assert_eq!(html.matches("<table>").count(), 1, "{html}");
        // An earlier run in that phase takes precedence if it has figures for copies.
        let html = of(&[without, of_a_day(Some("near"), 2, 50.0)]);
        assert!(
            !html.contains(ELSEWHERE) && html.contains("on 1970-01-03"),
            "{html}"
        );
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_709_251_199, "2024-02-29"),
            (1_735_689_599, "2024-12-31"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(day(seconds), expected);
        }
    }
}
