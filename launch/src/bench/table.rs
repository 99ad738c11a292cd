//! The output for people: a table, and what the reader must know to interpret it.

use std::fmt::Write;

use portolan_benches::Pattern;

use super::args::quoted;
use super::record::{Entry, Figure, Gpu, Machine, Run};
use super::stats::Summary;

/// The number of contenders that fit side by side.
const ABREAST: usize = 5;

/// Prints what went wrong.
#[expect(
    clippy::print_stderr,
    reason = "this is where the command talks to its user"
)]
pub(super) fn complain(text: &str) {
    eprintln!("portolan bench: {}", text.trim_end());
}

/// The table of a run.
pub(super) fn of(run: &Run) -> String {
    let mut text = title(run);
    figures(&mut text, run);
    for also in &run.also {
        let phase = also.phase.as_deref().unwrap_or("another");
        let line = also.line().map(|line| format!(" (a line {line:.0} ns)"));
        let _ = writeln!(
            text,
            "# the same in phase {phase}{}, median of {}:",
            line.unwrap_or_default(),
            samples_of(also)
        );
        figures(&mut text, also);
    }
    notes(&mut text, run);
    text
}

/// The figures of all contenders, and Portolan's ratios.
fn figures(text: &mut String, run: &Run) {
    let shown: Vec<&Entry> = run
        .entries
        .iter()
        .filter(|entry| entry.failed.is_none())
        .collect();
    let (ours, peers): (Vec<&Entry>, Vec<&Entry>) = shown.iter().partition(|entry| !entry.peer);
    let compared = run.has_ratios();
    // A few contenders fit side by side. If there are more, the peers follow below Portolan's
    // columns, some at a time.
    if shown.len() <= ABREAST {
        rows(text, run, &shown, compared);
    } else {
        rows(text, run, &ours, compared);
        for some in peers.chunks(ABREAST) {
            rows(text, run, some, false);
        }
    }
    if compared {
        let better = if run.less_is_better { "below" } else { "above" };
        let _ = writeln!(text, "# a ratio {better} 1 is in favour of portolan");
    }
}

/// A row for each size, with a column for each of `shown`.
fn rows(text: &mut String, run: &Run, shown: &[&Entry], compared: bool) {
    let width = |entry: &Entry| (run.label(entry).len() + 2).max(17);
    let _ = write!(text, "{:>10}", run.axis);
    for entry in shown {
        let _ = write!(text, "{:>1$}", run.label(entry), width(entry));
    }
    text.push_str(if compared {
        "   to the best peer\n"
    } else {
        "\n"
    });
    for bytes in run.sizes() {
        let named = if run.axis.is_empty() {
            String::new()
        } else {
            bytes.to_string()
        };
        let _ = write!(text, "{named:>10}");
        let mut ratios = String::new();
        for entry in shown {
            let figure = Run::figure(entry, bytes);
            let cell = figure.map_or_else(String::new, cell);
            let _ = write!(text, "{cell:>0$}", width(entry));
            if let Some((ratio, peer)) = figure.and_then(|figure| run.ratio(entry, figure)) {
                let _ = write!(ratios, "   {ratio:.2} {peer}");
            }
        }
        let _ = writeln!(text, "{ratios}");
    }
}

/// The number of ranks, and a remark if one of them has no partner.
pub(super) fn crew(run: &Run) -> String {
    let mut text = format!("{} ranks", run.ranks);
    let paired = |pattern: &Pattern| pattern.name() == run.bench && pattern.is_paired();
    if run.ranks % 2 == 1 && Pattern::ALL.iter().any(paired) {
        text.push_str(", one of which has no partner and rests");
    }
    text
}

/// A number of samples, in words.
pub(super) fn samples(count: usize) -> String {
    match count {
        1 => "1 sample".to_owned(),
        count => format!("{count} samples"),
    }
}

/// The number of samples behind the figures of a run: exact, or "at least".
pub(super) fn samples_of(run: &Run) -> String {
    let (fewest, most) = run.samples();
    let more = if fewest < most { " or more" } else { "" };
    format!("{}{more}", samples(fewest))
}

/// How the run was measured, in half a sentence.
pub(super) fn manner(run: &Run) -> String {
    let mut text = match (&run.map, run.pin.as_deref()) {
        (Some(map), _) => format!(", {map}"),
        (None, None) => String::new(),
        (None, Some("none")) => ", not pinned".to_owned(),
        (None, Some("core")) => ", each on a core".to_owned(),
        (None, Some(list)) => format!(", on processors {list}"),
    };
    if let Some(window) = run.window {
        let _ = write!(text, ", windows of {window}");
    }
    if let Some(buffers) = run.buffers {
        let _ = write!(text, " in {buffers} buffers");
    }
    if run.scope {
        text.push_str(", each in a scope");
    }
    if run.alloc {
        text.push_str(", buffers of the library");
    }
    if run.cuda {
        text.push_str(", buffers on GPUs");
    }
    if let Some(threads) = run.threads {
        let _ = write!(text, ", {threads} threads each");
    }
    if run.busy > 0 {
        let _ = write!(text, ", {} spinning loops beside", run.busy);
    }
    for (name, value) in &run.settings {
        let _ = write!(text, ", {name}={}", quoted(value));
    }
    text
}

fn title(run: &Run) -> String {
    let ours = run.entries.iter().filter(|entry| !entry.peer);
    let names: Vec<_> = ours.map(|entry| entry.name.as_str()).collect();
    format!(
        "# {} over {}, {}{}\n# {}: median of {} ± half the distance of the quartiles\n",
        run.bench,
        names.join(" and "),
        crew(run),
        manner(run),
        run.unit,
        samples_of(run),
    )
}

/// `12.3 ±1%`
fn cell(figure: &Figure) -> String {
    let value = number(figure.summary.median);
    format!("{value} ±{:>3}", spread(&figure.summary, 1.0))
}

/// Half the distance of the quartiles: as a part of the median, or as a number of units, each
/// `scale` of the run's, if the median is 0.
pub(super) fn spread(summary: &Summary, scale: f64) -> String {
    match summary.spread() {
        Some(part) => format!("{:.0}%", part * 100.0),
        None => number(summary.half() / scale),
    }
}

/// At least four digits, and no decimals without meaning.
pub(super) fn number(value: f64) -> String {
    match value {
        v if v < 10.0 => format!("{v:.3}"),
        v if v < 100.0 => format!("{v:.2}"),
        v if v < 1000.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

/// The notes below the table.
fn notes(text: &mut String, run: &Run) {
    for entry in &run.entries {
        if let Some(why) = &entry.failed {
            let why = why.trim_end().replace('\n', "\n#   ");
            let _ = writeln!(text, "# {} failed: {why}", entry.name);
        }
    }
    for (name, why) in &run.missing {
        let why = why.trim_end().replace('\n', "\n#   ");
        let _ = writeln!(text, "# {name} is missing: {why}");
    }
    if let Some(note) = run.virtual_note() {
        let _ = writeln!(text, "# {note}");
    }
    if let Some(machine) = &run.machine {
        let _ = writeln!(text, "# machine: {}", state(run, machine, run.left_out()));
        if let Some(limits) = limits(machine) {
            let _ = writeln!(text, "# its limits{}: {limits}", ends(run, machine));
        }
        if let Some(gpu) = &machine.gpu {
            let _ = writeln!(text, "# {}", copies(gpu));
        }
    }
}

/// What the machine was doing. `left_out` is the number of samples that are part of no table.
pub(super) fn state(run: &Run, machine: &Machine, left_out: usize) -> String {
    let mut text = format!("{} cores", machine.cores);
    if let (Some(before), Some(after)) = (machine.load_before, machine.load_after) {
        let _ = write!(text, ", load {before} before and {after} after");
    }
    let (others, stolen) = run.disturbance();
    if let Some(others) = others {
        let _ = write!(text, ", others used {:.0} % of a core", others * 100.0);
    }
    if let Some(stolen) = stolen.filter(|&stolen| stolen >= 0.005) {
        let _ = write!(text, ", the host took up to {:.0} %", stolen * 100.0);
    }
    match &run.phase {
        Some(phase) => {
            let _ = write!(text, ", phase {phase}");
        }
        None if !run.is_comparable() => {
            let _ = write!(
                text,
                ", no phase in common: the figures cannot be compared ({}); run this again with a larger --repeat",
                run.phases_seen()
            );
        }
        None => {}
    }
    if left_out > 0 && run.is_comparable() {
        let _ = write!(
            text,
            " ({} of other phases, or beside others' work, left out)",
            samples(left_out)
        );
    }
    match run.disturbed() {
        0 => {}
        count => {
            let _ = write!(
                text,
                "; others were at work during {} that count, for want of quiet ones: the figures decide nothing",
                samples(count)
            );
        }
    }
    text
}

/// The processors between which the machine was measured.
pub(super) fn ends(run: &Run, machine: &Machine) -> String {
    match machine.processors {
        None => String::new(),
        Some((one, other)) if one == other => format!(" (on processor {one})"),
        Some((one, other)) => {
            let unbound = run.pin.as_deref() == Some("none") && run.map.is_none();
            let maybe = if unbound {
                ", where ranks may be or not"
            } else {
                ""
            };
            format!(" (between processors {one} and {other}{maybe})")
        }
    }
}

/// Replaces the figures for copies where there are none.
pub(super) const ELSEWHERE: &str =
    "copies were not measured: behind the samples the machine was in another phase than in them";

/// How fast a GPU's driver copies.
pub(super) fn copies(gpu: &Gpu) -> String {
    format!(
        "GPU {}: copies from it and to it, through locked memory of the host: {:.1} and {:.1} µs \
         (8 bytes), {:.1} and {:.1} GB/s ({} KiB)",
        gpu.name,
        gpu.from_us,
        gpu.to_us,
        gpu.from_mb_s / 1e3,
        gpu.to_mb_s / 1e3,
        gpu.bytes >> 10
    )
}

/// The machine's limits, if they were measured.
pub(super) fn limits(machine: &Machine) -> Option<String> {
    if machine.load_store_ns.is_none() {
        // The limit for ranks that share one processor, and only for these.
        let (one, other) = machine.processors?;
        let ns = machine.yield_ns.filter(|_| one == other)?;
        return Some(format!(
            "the processor from one rank to the other by sched_yield {:.2} µs",
            ns / 1e3
        ));
    }
    let mut text = format!(
        "a cache line one way {:.0} ns (load/store; {:.0} ns on one line, {:.0} ns by \
         compare-and-swap)",
        machine.load_store_ns?, machine.one_line_ns?, machine.compare_and_swap_ns?
    );
    if let Some(ns) = machine.yield_ns {
        let _ = write!(text, ", a core by sched_yield {:.2} µs", ns / 1e3);
    }
    let rates = |pairs: &[(usize, f64)], least: usize| -> String {
        let large = pairs.iter().filter(|(bytes, _)| *bytes >= least);
        large
            .map(|(bytes, rate)| format!(" {:.1} GB/s ({} KiB)", rate / 1e3, bytes >> 10))
            .collect()
    };
    if !machine.has_copies() {
        let _ = write!(text, "\n#   {ELSEWHERE}");
    }
    if !machine.copies.is_empty() {
        let _ = write!(
            text,
            "\n#   copy of what another core has just written:{}",
            rates(&machine.copies, 4096)
        );
    }
    if !machine.relays.is_empty() {
        text.push_str("\n#   copied in by one core and out by another, nothing else:");
    }
    for (bytes, rate, one_way) in &machine.relays {
        let _ = write!(
            text,
            " {:.1} GB/s, {one_way:.2} µs ({} KiB)",
            rate / 1e3,
            bytes >> 10
        );
    }
    if !machine.relays_both.is_empty() {
        let _ = write!(
            text,
            "\n#   the same both ways at a time:{}",
            rates(&machine.relays_both, 0)
        );
    }
    if !machine.pulls.is_empty() {
        let _ = write!(
            text,
            "\n#   copy by process_vm_readv:{}",
            rates(&machine.pulls, 4096)
        );
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{beside_the_emulator, run, run_in_two_phases};
    use super::*;

    #[test]
    fn a_second_phase_has_a_table_of_its_own() {
        let text = of(&run_in_two_phases());
        let (first, second) = text
            .split_once("# the same in phase apart (a line 190 ns), median of 1 sample:\n")
            .unwrap();
        assert!(
            first.contains("0.500 ±") && second.contains("1.500 ±"),
            "{text}"
        );
        assert!(second.contains("   0.50 a-1\n"), "{text}");
        assert_eq!(text.matches("# machine:").count(), 1);
    }

    #[test]
    fn a_table_has_the_ratio_and_what_is_missing() {
        let text = of(&run());
        assert!(
            text.starts_with("# latency over shm, 2 ranks, each on a core\n"),
            "{text}"
        );
        for part in [
            "   0.50 a-1\n",
            "# c is missing: it is not here\n",
            "others used 1 % of a core",
            "phase near (3 samples",
            "nothing else: 10.0 GB/s, 0.30 µs (4 KiB)\n#   the same both ways at a time: 12.3 GB/s (4 KiB)\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn limits_of_another_phase_are_not_shown_as_those_of_this_one() {
        let mut run = run();
        assert!(!of(&run).contains("were not measured"));
        if let Some(machine) = &mut run.machine {
            machine.copies = Vec::new();
        }
        let text = of(&run);
        assert!(text.contains("GB/s") && !text.contains(ELSEWHERE), "{text}");
        if let Some(machine) = &mut run.machine {
            machine.relays = Vec::new();
            machine.relays_both = Vec::new();
            machine.pulls = Vec::new();
        }
        let text = of(&run);
        assert!(text.ends_with(&format!("\n#   {ELSEWHERE}\n")), "{text}");
        assert!(!text.contains("GB/s"), "{text}");
    }

    #[test]
    fn buffers_on_gpus_are_told_and_so_are_the_copies_of_their_driver() {
        let mut run = run();
        assert!(!of(&run).contains("GPU"));
        run.cuda = true;
        if let Some(machine) = &mut run.machine {
            machine.gpu = Some(super::super::record::tests::gpu());
        }
        let text = of(&run);
        assert!(
            text.starts_with("# latency over shm, 2 ranks, each on a core, buffers on GPUs\n"),
            "{text}"
        );
        let expected = "# GPU Abacus 2: copies from it and to it, through locked memory of the host: \
                        8.0 and 7.5 µs (8 bytes), 21.0 and 26.2 GB/s (4096 KiB)\n";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn it_is_told_between_which_processors_the_limits_are() {
        let mut run = run();
        assert!(of(&run).contains("# its limits (between processors 0 and 1): a cache line"));
        run.pin = Some("none".to_owned());
        assert!(of(&run).contains("(between processors 0 and 1, where ranks may be or not): "));
        run.pin = Some("3,3".to_owned());
        let shared = Machine {
            processors: Some((3, 3)),
            load_store_ns: None,
            copies: Vec::new(),
            ..super::super::record::tests::machine()
        };
        run.machine = Some(shared);
        let text = of(&run);
        let expected = "# its limits (on processor 3): the processor from one rank to the other by sched_yield 1.20 µs\n";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn between_different_processors_a_yield_is_no_limit() {
        // The deaths of ranks are measured without looks at the machine.
        let mut run = run();
        if let Some(machine) = &mut run.machine {
            machine.load_store_ns = None;
        }
        assert!(!of(&run).contains("its limits"), "{}", of(&run));
    }

    #[test]
    fn samples_of_a_second_table_are_not_left_out() {
        let text = of(&run());
        assert!(text.contains("(3 samples of other phases"), "{text}");
        let text = of(&run_in_two_phases());
        assert!(!text.contains("left out"), "{text}");
    }

    #[test]
    fn virtual_time_has_its_name_and_no_ratio() {
        let text = of(&beside_the_emulator());
        assert!(text.contains("  t3e-sim (virtual time)"), "{text}");
        assert!(text.contains("   0.50 a-1\n"), "{text}");
        assert!(!text.contains("9.95 a-1"), "{text}");
        assert_eq!(
            text.matches("virtual time of the machine that it emulates")
                .count(),
            1
        );
        let mut alone = beside_the_emulator();
        alone.entries.remove(0);
        let text = of(&alone);
        assert!(
            !text.contains("ratio") && !text.contains("best peer"),
            "{text}"
        );
    }

    #[test]
    fn a_median_of_0_has_its_quartiles_in_units() {
        let mut run = run();
        let summary = Summary::of(vec![0.0, 0.0, 0.0, 1.0, 1.0]).unwrap();
        run.entries[0].figures[0].summary = summary;
        let text = of(&run);
        assert!(text.contains("0.000 ±0.500"), "{text}");
        assert!(!text.contains("inf"), "{text}");
    }

    #[test]
    fn samples_that_others_disturbed_are_told() {
        let mut run = run();
        assert!(!of(&run).contains("others were at work"));
        for entry in &mut run.entries {
            entry.taken[0].disturbed = true;
        }
        let text = of(&run);
        assert!(
            text.contains("; others were at work during 3 samples that count"),
            "{text}"
        );
    }

    #[test]
    fn an_odd_rank_of_pairs_is_said_to_rest() {
        let heading = |bench: &str, ranks: u32| {
            let mut run = run();
            (run.bench, run.ranks) = (bench.to_owned(), ranks);
            of(&run).lines().next().unwrap_or_default().to_owned()
        };
        let rests = "over shm, 3 ranks, one of which has no partner and rests, each on a core";
        assert_eq!(heading("latency", 3), format!("# latency {rests}"));
        assert_eq!(heading("rate", 3), format!("# rate {rests}"));
        for (bench, ranks) in [("latency", 4), ("barrier", 3), ("bcast", 3), ("failure", 5)] {
            assert!(!heading(bench, ranks).contains("rests"), "{bench}");
        }
    }

    #[test]
    fn one_sample_is_not_called_samples() {
        assert!(of(&run()).contains("median of 1 sample ±"));
        assert_eq!([samples(0), samples(2)], ["0 samples", "2 samples"]);
    }

    #[test]
    fn the_fewest_samples_of_anybody_are_told() {
        let mut run = run();
        run.entries[0].figures[0].samples = 5;
        run.entries[1].figures[0].samples = 4;
        assert!(of(&run).contains("median of 1 sample or more ±"));
        run.entries[2].figures[0].samples = 4;
        assert!(of(&run).contains("median of 4 samples or more ±"));
    }

    #[test]
    fn what_cannot_be_compared_has_no_ratio_and_the_reason() {
        let mut run = run();
        run.phase = None;
        for entry in &mut run.entries {
            entry.taken.truncate(1);
            let phase = if entry.peer { "far" } else { "near" };
            entry.taken[0].phase = Some(phase.to_owned());
        }
        let text = of(&run);
        assert!(
            !text.contains("best peer") && !text.contains("ratio"),
            "{text}"
        );
        let why = "no phase in common: the figures cannot be compared (shm: 1 near; a-1: 1 far; b-2: 1 far); run this \
                   again with a larger --repeat";
        assert!(text.contains(why), "{text}");
    }

    #[test]
    fn numbers_have_the_digits_that_mean_something() {
        let shown = [0.1234, 12.345, 123.45, 12345.6].map(number);
        assert_eq!(shown, ["0.123", "12.35", "123.5", "12346"]);
    }
}
