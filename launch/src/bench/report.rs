//! The results: a table for people, or one JSON object per line.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use portolan_benches::Pattern;
use serde::Serialize;

use super::args::BenchArgs;
use super::machine::Machine;
use super::suite::{Entry, Figure, Name, Results};
use crate::run::Bind;

/// What was measured, and how.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) bench: &'static str,
    pub(super) unit: &'static str,
    pub(super) less_is_better: bool,
    pattern: Option<Pattern>,
    ranks: u32,
    /// Messages in a window, if there are windows.
    window: Option<u32>,
    /// Where the ranks were put; `None` if that was not this command's doing.
    pin: Option<Bind>,
    json: bool,
}

/// A row for programs, its fields in the order in which people read them.
#[derive(Serialize)]
struct Row<'a> {
    bench: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    transport: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<&'a str>,
    ranks: u32,
    bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<usize>,
    value: f64,
    unit: &'static str,
    best: f64,
    low: f64,
    high: f64,
    samples: usize,
    dropped: usize,
    rounds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    best_peer: Option<&'a str>,
}

/// Something else for programs: a peer without figures, or the machine.
#[derive(Serialize)]
struct Remark<'a> {
    bench: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<&'a Machine>,
}

impl Head {
    pub(super) fn new(args: &BenchArgs, pattern: Pattern, ranks: u32, pin: Option<Bind>) -> Self {
        let windows = !matches!(
            pattern,
            Pattern::Latency | Pattern::Barrier | Pattern::Depth
        );
        Self {
            bench: pattern.name(),
            unit: pattern.unit(),
            less_is_better: pattern.less_is_better(),
            pattern: Some(pattern),
            ranks,
            window: windows.then_some(args.window),
            pin,
            json: args.json,
        }
    }

    /// Of what is no pattern: milliseconds until a failure is noticed.
    pub(super) fn of_failure(args: &BenchArgs, ranks: u32, pin: Bind) -> Self {
        Self {
            bench: "failure",
            unit: "ms",
            less_is_better: true,
            pattern: None,
            ranks,
            window: None,
            pin: Some(pin),
            json: args.json,
        }
    }
}

/// Writes the results to the standard output.
pub(super) fn write(results: &Results, head: &Head) {
    let text = if head.json {
        lines(results, head)
    } else {
        table(results, head)
    };
    // That nobody reads them to their end is no failure of the measurement.
    let _ = io::stdout().lock().write_all(text.as_bytes());
}

/// Says what went wrong.
#[expect(
    clippy::print_stderr,
    reason = "this is where the command talks to its user"
)]
pub(super) fn complain(text: &str) {
    eprintln!("portolan bench: {}", text.trim_end());
}

fn lines(results: &Results, head: &Head) -> String {
    let mut text = String::new();
    // Numbers and names: nothing that JSON could not say.
    let mut line = |json: serde_json::Result<String>| {
        let _ = writeln!(text, "{}", json.unwrap_or_default());
    };
    let nothing = || Remark {
        bench: head.bench,
        peer: None,
        missing: None,
        failed: None,
        machine: None,
    };
    for entry in &results.entries {
        match &entry.figures {
            Ok(figures) => figures
                .iter()
                .for_each(|figure| line(serde_json::to_string(&row(results, head, entry, figure)))),
            Err(why) => line(serde_json::to_string(&Remark {
                peer: Some(entry.name.text()),
                failed: Some(why),
                ..nothing()
            })),
        }
    }
    for (name, why) in &results.missing {
        line(serde_json::to_string(&Remark {
            peer: Some(name),
            missing: Some(why),
            ..nothing()
        }));
    }
    if let Some(machine) = &results.machine {
        line(serde_json::to_string(&Remark {
            machine: Some(machine),
            ..nothing()
        }));
    }
    text
}

fn row<'a>(results: &'a Results, head: &Head, entry: &'a Entry, figure: &Figure) -> Row<'a> {
    let ours = matches!(entry.name, Name::Transport(_));
    let name = entry.name.text();
    let summary = figure.summary;
    let peer = results
        .best_peer(figure.bytes, head.less_is_better)
        .filter(|_| ours);
    Row {
        bench: head.bench,
        transport: ours.then_some(name),
        peer: (!ours).then_some(name),
        ranks: head.ranks,
        bytes: head
            .pattern
            .map_or(0, |pattern| pattern.message_bytes(figure.bytes)),
        waiting: (head.pattern == Some(Pattern::Depth)).then_some(figure.bytes),
        value: summary.median,
        unit: head.unit,
        best: if head.less_is_better {
            summary.least
        } else {
            summary.most
        },
        low: summary.low,
        high: summary.high,
        samples: figure.samples,
        dropped: figure.dropped,
        rounds: figure.rounds,
        window: head.window,
        pin: head.pin.as_ref().map(ToString::to_string),
        phase: results.phase.map(|phase| phase.name()),
        ratio: peer.map(|(value, _)| summary.median / value),
        best_peer: peer.map(|(_, name)| name),
    }
}

fn table(results: &Results, head: &Head) -> String {
    let mut text = title(results, head);
    let shown: Vec<(&str, &[Figure], bool)> = results
        .entries
        .iter()
        .filter_map(|entry| {
            let ours = matches!(entry.name, Name::Transport(_));
            Some((entry.name.text(), &entry.figures.as_ref().ok()?[..], ours))
        })
        .collect();
    let width = |name: &str| (name.len() + 2).max(20);
    let what = match head.pattern {
        Some(Pattern::Depth) => "waiting",
        _ => "bytes",
    };
    let _ = write!(text, "{what:>10}");
    for (name, _, _) in &shown {
        let _ = write!(text, "{name:>0$}", width(name));
    }
    let compared = shown.iter().any(|(_, _, ours)| !ours);
    text.push_str(if compared {
        "   to the best peer\n"
    } else {
        "\n"
    });
    let sizes = shown.first().map_or(&[][..], |(_, figures, _)| figures);
    for (at, size) in sizes.iter().enumerate() {
        let _ = write!(text, "{:>10}", size.bytes);
        let mut ratios = String::new();
        for (name, figures, ours) in &shown {
            let cell = figures.get(at).map_or_else(String::new, cell);
            let _ = write!(text, "{cell:>0$}", width(name));
            let peer = results.best_peer(size.bytes, head.less_is_better);
            if let (true, Some(figure), Some((best, peer))) = (*ours, figures.get(at), peer) {
                let _ = write!(ratios, "   {:.2} {peer}", figure.summary.median / best);
            }
        }
        let _ = writeln!(text, "{ratios}");
    }
    notes(&mut text, results, compared.then_some(head));
    text
}

fn title(results: &Results, head: &Head) -> String {
    let mut text = format!("# {}", head.bench);
    let ours: Vec<_> = results
        .entries
        .iter()
        .filter(|entry| matches!(entry.name, Name::Transport(_)))
        .map(|entry| entry.name.text())
        .collect();
    let _ = write!(text, " over {}, {} ranks", ours.join(" and "), head.ranks);
    let figure = results.entries.iter().find_map(|entry| {
        let figures = entry.figures.as_ref().ok()?;
        figures.first()
    });
    let pinned = match &head.pin {
        None => String::new(),
        Some(Bind::None) => ", not pinned".to_owned(),
        Some(Bind::Core) => ", each on a core".to_owned(),
        Some(list) => format!(", on processors {list}"),
    };
    let window = head
        .window
        .map_or_else(String::new, |window| format!(", windows of {window}"));
    let samples = figure.map_or(0, |figure| figure.samples);
    let _ = writeln!(
        text,
        "\n# {unit}: median of {samples} samples ± half the distance of the quartiles{window}{pinned}",
        unit = head.unit,
    );
    text
}

/// `12.3 ±1%`
fn cell(figure: &Figure) -> String {
    let value = number(figure.summary.median);
    format!("{value} ±{:>2.0}%", figure.summary.spread() * 100.0)
}

/// Four digits at least, and no more behind the point than have a meaning.
fn number(value: f64) -> String {
    match value {
        v if v < 10.0 => format!("{v:.3}"),
        v if v < 100.0 => format!("{v:.2}"),
        v if v < 1000.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

/// What stands below the table; `compared` if there were peers.
fn notes(text: &mut String, results: &Results, compared: Option<&Head>) {
    if let Some(head) = compared {
        let better = if head.less_is_better {
            "below"
        } else {
            "above"
        };
        let _ = writeln!(text, "# a ratio {better} 1 is in favour of portolan");
    }
    for entry in &results.entries {
        if let Err(why) = &entry.figures {
            let why = why.replace('\n', "\n#   ");
            let _ = writeln!(text, "# {} failed: {why}", entry.name.text());
        }
    }
    for (name, why) in &results.missing {
        let why = why.trim_end().replace('\n', "\n#   ");
        let _ = writeln!(text, "# {name} is missing: {why}");
    }
    let Some(machine) = &results.machine else {
        return;
    };
    let _ = write!(text, "# machine: {} cores", machine.cores);
    if let (Some(before), Some(after)) = (machine.load_before, machine.load_after) {
        let _ = write!(text, ", load {before} before and {after} after");
    }
    let figures = results.entries.iter().find_map(|e| e.figures.as_ref().ok());
    let dropped = figures
        .and_then(|figures| figures.first())
        .map_or(0, |f| f.dropped);
    match results.phase {
        Some(phase) => {
            let _ = write!(text, ", phase {}", phase.name());
        }
        None if machine.load_store_ns.is_some() => {
            text.push_str(", no phase in common: the figures cannot be compared");
        }
        None if machine.cores == 1 => {
            text.push_str(", one core: its limits cannot be measured");
        }
        None => {}
    }
    if dropped > 0 {
        let _ = write!(text, " ({dropped} samples of other phases left out)");
    }
    text.push('\n');
    if let (Some(line), Some(swap)) = (machine.load_store_ns, machine.compare_and_swap_ns) {
        let _ = write!(
            text,
            "# its limits: a cache line one way {line:.0} ns (load/store), {swap:.0} ns \
             (compare-and-swap); copy of memory just written by another core"
        );
        for (bytes, rate) in &machine.copies {
            let _ = write!(text, " {:.1} GB/s ({} KiB)", rate / 1e3, bytes >> 10);
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_mean_something() {
        let shown = [0.1234, 12.345, 123.45, 12345.6].map(number);
        assert_eq!(shown, ["0.123", "12.35", "123.5", "12346"]);
    }
}
