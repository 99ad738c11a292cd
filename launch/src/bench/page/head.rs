//! The beginning of the page: when and where the runs were measured, and the limits of the machine.

use std::collections::BTreeMap;
use std::fmt::Write;

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
    for (((machine, phase), processors), (run, limits)) in by_phase(runs) {
        let phase = phase.map_or_else(
            || "Limits, of no phase".to_owned(),
            |phase| format!("Limits in phase {phase}"),
        );
        let between = processors.map_or_else(String::new, |(one, other)| {
            format!(", between processors {one} and {other}")
        });
        let on = match &machines[..] {
            [_] => String::new(),
            _ => format!(" on {machine}"),
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

/// A machine, a phase, and the pair of processors between which it was measured.
type Place<'a> = ((String, Option<&'a str>), Option<(usize, usize)>);

/// For each place the last run that has its limits. A run with figures for copies takes precedence
/// over one without.
fn by_phase(runs: &[Run]) -> BTreeMap<Place<'_>, (&Run, &Machine)> {
    let mut limits = BTreeMap::new();
    // The limits of a run whose samples have no phase in common belong to no phase.
    for run in runs.iter().filter(|run| run.is_comparable()) {
        let Some(machine) = &run.machine else {
            continue;
        };
        if machine.load_store_ns.is_none() && machine.copies.is_empty() {
            continue;
        }
        let place = (name(machine), run.phase.as_deref());
        let place = limits.entry((place, machine.processors));
        let rank = |run: &Run, machine: &Machine| (!machine.copies.is_empty(), run.began);
        place
            .and_modify(|known: &mut (&Run, &Machine)| {
                if rank(run, machine) > rank(known.0, known.1) {
                    *known = (run, machine);
                }
            })
            .or_insert((run, machine));
    }
    limits
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
    if machine.copies.is_empty() {
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
    use super::super::super::record::tests::run;
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
                    "Limits in phase {phase}, between processors 0 and 1, "
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
        limits("near", "10", "<td>51</td>");
        limits("far", "05", "<td>152</td>");
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
