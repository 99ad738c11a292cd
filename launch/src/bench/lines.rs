//! The output for programs: one JSON object per line.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::args::Settings;
use super::record::{Entry, Figure, Machine, Run, Taken};

/// A figure. The fields are in the order in which people read them.
#[derive(Serialize)]
struct Row<'a> {
    bench: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    transport: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<&'a str>,
    ranks: u32,
    bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<usize>,
    value: f64,
    unit: &'a str,
    /// Whether the time is that of an emulated machine, which is compared with nothing.
    #[serde(rename = "virtual", skip_serializing_if = "is_false")]
    in_virtual_time: bool,
    best: f64,
    low: f64,
    high: f64,
    samples: usize,
    dropped: usize,
    rounds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    buffers: Option<u32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    alloc: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cuda: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    scope: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pin: Option<&'a str>,
    #[serde(skip_serializing_if = "is_zero")]
    busy: u32,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    settings: &'a Settings,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<&'a str>,
    /// Time of a cache line from one core to the other in that phase. Two runs were measured in the
    /// same phase if these times are nearly the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    line_ns: Option<f64>,
    /// Whether other processes were at work during samples that count.
    #[serde(skip_serializing_if = "is_false")]
    disturbed: bool,
    /// What they used of the processors meanwhile, as a fraction of a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    others: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    best_peer: Option<&'a str>,
}

/// Any other line: the samples of one contender, a peer without figures, or the machine.
#[derive(Serialize)]
struct Remark<'a> {
    bench: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    transport: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    taken: Option<&'a [Taken]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<&'a Machine>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands out references"
)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands out references"
)]
fn is_false(yes: &bool) -> bool {
    !*yes
}

/// The lines for a run.
pub(super) fn of(run: &Run) -> String {
    let mut text = String::new();
    // Serialising cannot fail: the objects contain only numbers and names.
    let mut line = |json: serde_json::Result<String>| {
        let _ = writeln!(text, "{}", json.unwrap_or_default());
    };
    let nothing = || Remark {
        bench: &run.bench,
        transport: None,
        peer: None,
        taken: None,
        missing: None,
        failed: None,
        machine: None,
    };
    for entry in &run.entries {
        for figure in &entry.figures {
            line(serde_json::to_string(&row(run, entry, figure)));
        }
        if let Some(why) = &entry.failed {
            line(serde_json::to_string(&Remark {
                peer: Some(&entry.name),
                failed: Some(why),
                ..nothing()
            }));
        }
    }
    for of in &run.also {
        for entry in &of.entries {
            for figure in &entry.figures {
                line(serde_json::to_string(&row(of, entry, figure)));
            }
        }
    }
    // Without a machine record, nothing was measured before and after each sample.
    for entry in run.entries.iter().filter(|_| run.machine.is_some()) {
        line(serde_json::to_string(&Remark {
            transport: (!entry.peer).then_some(entry.name.as_str()),
            peer: entry.peer.then_some(entry.name.as_str()),
            taken: Some(&entry.taken),
            ..nothing()
        }));
    }
    for (name, why) in &run.missing {
        line(serde_json::to_string(&Remark {
            peer: Some(name),
            missing: Some(why),
            ..nothing()
        }));
    }
    if let Some(machine) = &run.machine {
        line(serde_json::to_string(&Remark {
            machine: Some(machine),
            ..nothing()
        }));
    }
    text
}

fn row<'a>(run: &'a Run, entry: &'a Entry, figure: &'a Figure) -> Row<'a> {
    let summary = &figure.summary;
    let ratio = run.ratio(entry, figure);
    let name = entry.name.as_str();
    Row {
        bench: &run.bench,
        transport: (!entry.peer).then_some(name),
        peer: entry.peer.then_some(name),
        ranks: run.ranks,
        bytes: if run.axis == "bytes" {
            figure.bytes
        } else {
            run.message_bytes
        },
        waiting: (run.axis == "waiting").then_some(figure.bytes),
        value: summary.median,
        unit: &run.unit,
        in_virtual_time: run.is_virtual(entry),
        best: if run.less_is_better {
            summary.least
        } else {
            summary.most
        },
        low: summary.low,
        high: summary.high,
        samples: figure.samples,
        dropped: figure.dropped,
        rounds: figure.rounds,
        window: run.window,
        buffers: run.buffers,
        alloc: run.alloc,
        cuda: run.cuda,
        scope: run.scope,
        threads: run.threads,
        pin: run.pin.as_deref(),
        busy: run.busy,
        settings: &run.settings,
        phase: run.phase.as_deref(),
        line_ns: run.line(),
        disturbed: entry.is_disturbed(),
        others: entry.burden().map(|burden| burden.others()),
        ratio: ratio.map(|(ratio, _)| ratio),
        best_peer: ratio.map(|(_, name)| name),
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{beside_the_emulator, run, run_in_two_phases};
    use super::*;

    #[test]
    fn virtual_time_is_a_field() {
        let text = of(&beside_the_emulator());
        let emulated = |line: &&str| line.contains(r#""transport":"t3e-sim","ranks""#);
        let line = text.lines().find(emulated).unwrap();
        assert!(line.contains(r#""unit":"us","virtual":true"#), "{line}");
        assert!(
            !line.contains("ratio") && !line.contains("best_peer"),
            "{line}"
        );
        assert_eq!(text.matches("virtual").count(), 1);
    }

    #[test]
    fn figures_of_every_phase_have_lines() {
        let text = of(&run_in_two_phases());
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let ours = lines.iter().filter(|line| line["transport"] == "shm");
        let values: Vec<_> = ours
            .filter(|line| line.get("value").is_some())
            .map(|line| {
                (
                    line["phase"].as_str().unwrap(),
                    line["line_ns"].as_f64().unwrap(),
                )
            })
            .collect();
        assert_eq!(values, [("near", 50.0), ("apart", 190.0)]);
        let machines = lines.iter().filter(|line| line.get("machine").is_some());
        assert_eq!(machines.count(), 1);
    }

    #[test]
    fn every_line_is_an_object_of_its_kind() {
        let text = of(&run());
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let count = |key: &str| lines.iter().filter(|line| line.get(key).is_some()).count();
        assert_eq!(lines.len(), 8);
        assert_eq!((count("value"), count("taken")), (3, 3));
        assert_eq!((count("missing"), count("machine")), (1, 1));
        assert_eq!(lines[0]["ratio"], 0.5);
        assert_eq!(lines[0]["best_peer"], "a-1");
        assert!(lines[1].get("ratio").is_none() && lines[1]["peer"] == "a-1");
        assert!(lines[0].get("settings").is_none());
        assert_eq!(lines[0]["line_ns"], 50.0);
        assert!(lines[0].get("disturbed").is_none());
        let mut busy = run();
        busy.entries[0].taken[0].disturbed = true;
        assert_eq!(of(&busy).matches(r#""disturbed":true,"others""#).count(), 1);
        let mut set = run();
        set.settings
            .insert("PORTOLAN_SHM_CMA".to_owned(), "off".to_owned());
        assert!(of(&set).contains(r#""settings":{"PORTOLAN_SHM_CMA":"off"}"#));
    }
}
