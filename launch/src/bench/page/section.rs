//! One run, as a section of the page.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::bars::{self, Bar};
use super::chart::{Chart, Curve, Point};
use super::scale::{short, space};
use super::{escape, head, verdict};
use crate::bench::record::{Entry, Figure, Run};
use crate::bench::table;

/// The style classes in which contenders are drawn, the same in every chart: a colour for each
/// implementation, and dashes for its settings.
#[derive(Debug, Default)]
pub(super) struct Colours(BTreeMap<String, String>);

impl Colours {
    /// The classes for all contenders of these runs.
    pub(super) fn of(runs: &[Run]) -> Self {
        /// The number of colours and of dash patterns.
        const OURS: usize = 2;
        const PEERS: usize = 10;
        const DASHES: usize = 5;
        let entries = runs.iter().flat_map(|run| &run.entries);
        let mut families: BTreeMap<(bool, &str), BTreeSet<&str>> = BTreeMap::new();
        for entry in entries {
            let family = entry.name.split('+').next().unwrap_or_default();
            families
                .entry((entry.peer, family))
                .or_default()
                .insert(&entry.name);
        }
        let mut colours = Self::default();
        let (mut ours, mut peers) = (0, 0);
        for ((peer, _), names) in families {
            let colour = if peer {
                peers += 1;
                format!("p{}", (peers - 1) % PEERS)
            } else {
                ours += 1;
                format!("c{}", (ours - 1) % OURS)
            };
            for (at, name) in names.into_iter().enumerate() {
                let class = format!("{colour} d{}", at.min(DASHES - 1));
                colours.0.insert(name.to_owned(), class);
            }
        }
        colours
    }

    fn class(&self, name: &str) -> String {
        self.0.get(name).cloned().unwrap_or_else(|| "p9".to_owned())
    }
}

/// The unit of the page, and how many of the run's units it is: the largest in which the smallest
/// figure is not mere zeros.
fn unit(run: &Run) -> (&str, f64) {
    let units: &[(&str, f64)] = match run.unit.as_str() {
        "us" => &[("µs", 1.0)],
        "MB/s" => &[("GB/s", 1e3), ("MB/s", 1.0)],
        "messages/s" => &[
            ("million messages/s", 1e6),
            ("thousand messages/s", 1e3),
            ("messages/s", 1.0),
        ],
        "KiB/rank" => &[("MiB per rank", 1024.0), ("KiB per rank", 1.0)],
        other => return (other, 1.0),
    };
    let figures = run.entries.iter().flat_map(|entry| &entry.figures);
    let medians = figures.map(|figure| figure.summary.median);
    let least = medians.fold(f64::INFINITY, f64::min);
    let fits = |unit: &&(&str, f64)| least >= 0.01 * unit.1;
    *units.iter().find(fits).unwrap_or(&units[units.len() - 1])
}

/// The heading that says what was measured.
pub(super) fn heading(run: &Run) -> String {
    let what = match run.bench.as_str() {
        "latency" => "Latency: half a round trip",
        "bandwidth" => "Bandwidth, one way",
        "bibandwidth" => "Bandwidth, both ways at a time",
        "rate" => "Message rate",
        "multithread" => "Latency while several threads talk",
        "overlap" => "Overlap: how much of a send hides behind computation",
        "barrier" => "Barrier",
        "depth" => "Latency of 8 bytes past receives that do not match",
        "depth-wildcard" => "Latency of 8 bytes past receives from any source",
        "depth-unexpected" => "Latency of 8 bytes past messages that nobody receives",
        "drain-reverse" => "Matching many receives in the opposite order",
        "drain-random" => "Matching many receives in a random order",
        "startup" => "From the start of a job until every rank has had a message",
        "idle" => "Processor time of a rank that waits",
        "memory-ring" => "Memory of a rank that has talked to its neighbours",
        "memory-all" => "Memory of a rank that has talked to every other",
        "failure" => "From the death of a rank until the others know",
        other => other,
    };
    format!("{what}, {}{}", table::crew(run), table::manner(run))
}

/// The whole section.
pub(super) fn of(run: &Run, id: &str, colours: &Colours) -> String {
    of_phase(run, run, id, colours)
}

/// The section of one of the phases of `whole`, which is a run by itself.
pub(super) fn of_phase(run: &Run, whole: &Run, id: &str, colours: &Colours) -> String {
    let mut html = format!(
        "<section id=\"{id}\">\n<h2>{}</h2>\n",
        escape(&heading(run))
    );
    let phase = head::phase(run).map_or_else(String::new, |phase| format!(", {phase}"));
    // Deaths are measured of one transport after the other.
    let turns = match run.bench.as_str() {
        "failure" => "",
        _ => ", all contenders in turn",
    };
    let _ = writeln!(
        html,
        "<p class=\"soft\">Medians of {} with quartiles; every sample is a job{turns}{phase}.</p>",
        table::samples_of(run),
        phase = escape(&phase)
    );
    html.push_str("<div class=\"pictures\">\n");
    html.push_str(&match run.sizes()[..] {
        [] => String::new(),
        [size] => bar_picture(run, size, colours),
        _ => pictures(run, colours),
    });
    html.push_str("</div>\n");
    html.push_str(&numbers(run));
    html.push_str(&notes(run, whole.left_out()));
    html.push_str("</section>\n");
    html
}

fn figure(class: &str, svg: &str, caption: &str) -> String {
    if svg.is_empty() {
        return String::new();
    }
    format!(
        "<figure class=\"{class}\">{svg}<figcaption>{}</figcaption></figure>\n",
        escape(caption)
    )
}

/// The suffix of a caption that names the size of a run with a single size; empty without sizes.
fn of_size(run: &Run, size: usize) -> String {
    let one = size == 1;
    let size = short(size as f64, run.axis == "bytes");
    match run.axis.as_str() {
        "bytes" if one => ", 1 byte".to_owned(),
        // `64 KiB`, and `8 bytes`.
        "bytes" if size.ends_with('i') => format!(", {size}B"),
        "bytes" => format!(", {size} bytes"),
        "waiting" => format!(", {size} waiting"),
        _ => String::new(),
    }
}

fn bar_picture(run: &Run, size: usize, colours: &Colours) -> String {
    let (unit, scale) = unit(run);
    let bars = run.entries.iter().filter_map(|entry| {
        let summary = Run::figure(entry, size)?.summary;
        Some(Bar {
            name: escape(&run.label(entry)),
            class: colours.class(&entry.name),
            value: summary.median / scale,
            low: summary.low / scale,
            high: summary.high / scale,
            text: table::number(summary.median / scale),
        })
    });
    let bars: Vec<_> = bars.collect();
    let better = if run.less_is_better { "less" } else { "more" };
    let size = of_size(run, size);
    let title = format!("{}{size}, {unit}", heading(run));
    figure(
        "",
        &bars::svg(&escape(&title), unit, &bars),
        &format!("{unit}{size}; {better} is better"),
    )
}

/// Width of a chart without the names on its right, and of these if none is long.
const WIDTH: f64 = 470.0;
const NAMES: f64 = 190.0;

fn pictures(run: &Run, colours: &Colours) -> String {
    let (unit, scale) = unit(run);
    let curve = |entry: &&Entry| {
        let points = entry.figures.iter().map(|figure| point(figure, scale));
        let class = colours.class(&entry.name);
        Curve::new(escape(&run.label(entry)), class, points.collect())
    };
    let (emulated, real): (Vec<&Entry>, Vec<_>) =
        run.entries.iter().partition(|entry| run.is_virtual(entry));
    let mut curves: Vec<_> = real.iter().map(curve).collect();
    let limit = limit(run, scale);
    let relative = limit
        .as_ref()
        .map(|(limit, what)| (over(&curves, limit), *what));
    curves.extend(emulated.iter().map(curve));
    // Portolan's curves are drawn last, on top of the others.
    curves.sort_by_key(|curve| curve.class.starts_with('c'));
    let relative = relative.map(|(mut curves, what)| {
        curves.sort_by_key(|curve| curve.class.starts_with('c'));
        (curves, what)
    });
    curves.extend(limit.map(|(limit, _)| limit));
    let binary = run.axis == "bytes";
    let heading = escape(&heading(run));
    let titles =
        [unit, "over the limit", "ratio to the best peer"].map(|what| format!("{heading}, {what}"));
    let names = space(curves.iter().map(|curve| curve.name.as_str()), NAMES);
    let chart = Chart {
        title: &titles[0],
        x_name: if binary { "bytes" } else { "entries that wait" },
        y_name: unit,
        binary,
        curves: &curves,
        width: WIDTH + names,
        names,
        line: None,
    };
    let better = if run.less_is_better { "below" } else { "above" };
    let mut caption = format!("{unit}, logarithmic; bars are quartiles");
    if let Some((_, what)) = &relative {
        let _ = write!(caption, "; dashed: {what}");
    }
    let mut html = figure("", &chart.svg(), &caption);
    if let Some((curves, what)) = relative {
        let chart = Chart {
            title: &titles[1],
            y_name: "over the limit",
            curves: &curves,
            line: Some(1.0),
            ..chart.clone()
        };
        let caption = format!("the same, over {what}");
        html.push_str(&figure("", &chart.svg(), &caption));
    }
    let ratios: Vec<_> = run
        .entries
        .iter()
        .filter_map(|entry| ratio(run, entry, colours))
        .collect();
    let chart = Chart {
        title: &titles[2],
        y_name: "ratio to the best peer",
        curves: &ratios,
        names: space(ratios.iter().map(|curve| curve.name.as_str()), 60.0),
        line: Some(1.0),
        ..chart
    };
    let mut caption =
        format!("over the best peer at each size; {better} 1 is in favour of Portolan");
    let doubts = run.sizes().into_iter().filter_map(|size| run.doubt(size));
    if let Some(doubt) = doubts.min() {
        let _ = write!(caption, "; undecided where {}", doubt.reason());
    }
    html.push_str(&figure("", &chart.svg(), &caption));
    html
}

/// The curves as fractions of another curve.
fn over(curves: &[Curve], limit: &Curve) -> Vec<Curve> {
    let part = |point: &Point| {
        let of = limit.points.iter().find(|of| of.x == point.x)?;
        Some(Point {
            x: point.x,
            y: point.y / of.y,
            low: point.low / of.y,
            high: point.high / of.y,
        })
    };
    let relative = |curve: &Curve| Curve {
        points: curve.points.iter().filter_map(part).collect(),
        ..curve.clone()
    };
    curves.iter().map(relative).collect()
}

fn point(figure: &Figure, scale: f64) -> Point {
    let summary = figure.summary;
    Point {
        x: figure.bytes as f64,
        y: summary.median / scale,
        low: summary.low / scale,
        high: summary.high / scale,
    }
}

/// The limit that the machine sets at the measured sizes, and its description.
fn limit(run: &Run, scale: f64) -> Option<(Curve, &'static str)> {
    // The limits belong to one phase, so the samples must be of one phase as well. They are those
    // of copies from core to core, so they say nothing about buffers on GPUs.
    // And they are those of this machine, not of an emulated one.
    let here = run.entries.iter().any(|entry| !run.is_virtual(entry));
    let comparable = run.is_comparable() && !run.cuda && here;
    let machine = run.machine.as_ref().filter(|_| comparable)?;
    let latency = run.bench == "latency";
    let value = |bytes: usize| match run.bench.as_str() {
        "latency" => machine.least_latency(bytes),
        "bandwidth" if bytes >= 64 => machine.copy_rate(bytes as f64),
        _ => None,
    };
    let points: Vec<_> = run
        .sizes()
        .into_iter()
        .filter_map(|bytes| {
            let y = value(bytes)? / scale;
            let x = bytes as f64;
            Some(Point {
                x,
                y,
                low: y,
                high: y,
            })
        })
        .collect();
    let (name, what) = if latency {
        (
            "line or copy",
            "a cache line's way or, where that takes longer, one copy of fresh data",
        )
    } else {
        (
            "one fresh copy",
            "one copy of data that another core has just written",
        )
    };
    let curve = |points| Curve::new(name.to_owned(), "limit".to_owned(), points);
    (points.len() > 1).then(|| (curve(points), what))
}

fn ratio(run: &Run, entry: &Entry, colours: &Colours) -> Option<Curve> {
    let of = |figure: &Figure| {
        let (y, _) = run.ratio(entry, figure)?;
        let x = figure.bytes as f64;
        Some(Point {
            x,
            y,
            low: y,
            high: y,
        })
    };
    let points: Vec<_> = entry.figures.iter().filter_map(of).collect();
    let class = colours.class(&entry.name);
    (points.len() > 1).then(|| Curve::new(escape(&entry.name), class, points))
}

/// The table of figures: Portolan's, their ratios, and the peers'.
fn numbers(run: &Run) -> String {
    let (unit, scale) = unit(run);
    let shown = run.entries.iter().filter(|entry| !entry.figures.is_empty());
    let (peers, ours): (Vec<_>, Vec<_>) = shown.partition(|entry| entry.peer);
    if ours.is_empty() && peers.is_empty() {
        return String::new();
    }
    let compared = run.has_ratios();
    let mut html = format!(
        "<details open><summary>Figures in {unit}</summary><div class=\"wide\"><table><tr><th>{}</th>",
        run.axis
    );
    let heads = |html: &mut String, entries: &[&Entry]| {
        for entry in entries {
            let _ = write!(html, "<th>{}</th>", escape(&run.label(entry)));
        }
    };
    heads(&mut html, &ours);
    if compared {
        html.push_str("<th>ratio</th><th>best peer</th>");
    }
    heads(&mut html, &peers);
    html.push_str("</tr>\n");
    let cells = |html: &mut String, entries: &[&Entry], size: usize| {
        for entry in entries {
            let cell = Run::figure(entry, size).map(|figure| {
                let spread = table::spread(&figure.summary, scale);
                let value = table::number(figure.summary.median / scale);
                format!("{value} <small>±{spread}</small>")
            });
            let _ = write!(html, "<td>{}</td>", cell.unwrap_or_default());
        }
    };
    for size in run.sizes() {
        let named = if run.axis.is_empty() {
            String::new()
        } else {
            short(size as f64, run.axis == "bytes")
        };
        let _ = write!(html, "<tr><td>{named}</td>");
        cells(&mut html, &ours, size);
        if compared {
            html.push_str(&ratio_cells(run, &ours, size));
        }
        cells(&mut html, &peers, size);
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div></details>\n");
    html
}

fn ratio_cells(run: &Run, shown: &[&Entry], size: usize) -> String {
    let ratios = shown.iter().filter_map(|entry| {
        let figure = Run::figure(entry, size)?;
        run.ratio(entry, figure)
    });
    let mut cells = Vec::new();
    let mut best = "";
    for (ratio, peer) in ratios {
        cells.push(verdict(run, ratio, run.doubt(size)));
        best = peer;
    }
    format!("<td>{}</td><td>{}</td>", cells.join(" "), escape(best))
}

/// What the reader must know to interpret the figures, and how to reproduce them. `left_out` is the
/// number of samples that are part of no section.
fn notes(run: &Run, left_out: usize) -> String {
    let mut html = String::new();
    let mut note = |text: &str| {
        let _ = writeln!(html, "<p class=\"soft\">{}</p>", escape(text));
    };
    for entry in &run.entries {
        if let Some(why) = &entry.failed {
            note(&format!("{} failed: {}", entry.name, why.trim_end()));
        }
    }
    for (name, why) in &run.missing {
        note(&format!("{name} is missing: {}", why.trim_end()));
    }
    if let Some(about) = run.virtual_note() {
        note(&format!("{about}."));
    }
    if let Some(machine) = &run.machine {
        let state = table::state(run, machine, left_out);
        note(&format!("Machine: {state}."));
        if let Some(gpu) = &machine.gpu {
            note(&format!("{}.", table::copies(gpu)));
        }
        // The limit of these patterns is a copy, so their curves have none, or only its beginning.
        let here = run.entries.iter().any(|entry| !run.is_virtual(entry));
        let limited = matches!(&*run.bench, "latency" | "bandwidth") && !run.cuda && here;
        if limited && run.line().is_some() && machine.copies.is_empty() {
            note(&format!(
                "The limit of long messages is missing: {}.",
                table::ELSEWHERE
            ));
        }
    }
    let _ = writeln!(
        html,
        "<code class=\"command\">{}</code>",
        escape(&run.command)
    );
    html
}

#[cfg(test)]
mod tests {
    use super::super::super::record::tests::{beside_the_emulator, run, run_in_two_phases};
    use super::*;

    /// A run with two sizes.
    fn curves(bench: &str) -> String {
        let mut run = run();
        run.bench = bench.to_owned();
        for entry in &mut run.entries {
            let mut larger = entry.figures[0];
            larger.bytes = 4096;
            entry.figures.push(Figure {
                bytes: 1024,
                ..larger
            });
            entry.figures.push(larger);
        }
        of(&run, "x", &Colours::default())
    }

    #[test]
    fn virtual_time_is_drawn_by_name_and_over_no_limit() {
        let mut run = beside_the_emulator();
        for entry in &mut run.entries {
            let mut larger = entry.figures[0];
            larger.bytes = 4096;
            entry.figures.push(larger);
        }
        let html = of(&run, "x", &Colours::default());
        // The curve's name in the chart of times, and the head of the column; none over the limit,
        // and none among the ratios.
        assert_eq!(html.matches("t3e-sim (virtual time)<").count(), 2, "{html}");
        assert!(html.contains("over the limit"), "{html}");
        run.entries.retain(|entry| entry.name == "t3e-sim");
        let html = of(&run, "x", &Colours::default());
        assert!(
            !html.contains("over the limit") && !html.contains("dashed"),
            "{html}"
        );
    }

    #[test]
    fn captions_say_what_the_limit_is() {
        let (latency, bandwidth) = (curves("latency"), curves("bandwidth"));
        let line = "a cache line's way";
        assert_eq!(latency.matches(line).count(), 2, "{latency}");
        assert_eq!(bandwidth.matches(line).count(), 0, "{bandwidth}");
        let copy = "one copy of data that another core has just written";
        assert_eq!(bandwidth.matches(copy).count(), 2, "{bandwidth}");
        assert!(!curves("rate").contains("dashed"));
    }

    #[test]
    fn a_picture_says_to_all_what_it_shows() {
        let html = curves("latency");
        let heading = "Latency: half a round trip, 2 ranks, each on a core";
        for what in ["µs", "over the limit", "ratio to the best peer"] {
            let label = format!("aria-label=\"{heading}, {what}\"");
            assert!(html.contains(&label), "{label}: {html}");
        }
    }

    #[test]
    fn the_one_size_of_a_run_is_named() {
        let of_one = |axis: &str, bytes: usize| {
            let mut run = run();
            run.axis = axis.to_owned();
            for entry in &mut run.entries {
                entry.figures[0].bytes = bytes;
            }
            of(&run, "x", &Colours::default())
        };
        for (axis, bytes, named) in [
            ("bytes", 1, ", 1 byte"),
            ("bytes", 8, ", 8 bytes"),
            ("bytes", 64 << 10, ", 64 KiB"),
            ("waiting", 100_000, ", 100 k waiting"),
            ("", 0, ""),
        ] {
            let html = of_one(axis, bytes);
            let caption = format!("<figcaption>µs{named}; less is better</figcaption>");
            assert!(html.contains(&caption), "{caption}: {html}");
            assert!(
                html.contains(&format!("each on a core{named}, µs\"")),
                "{html}"
            );
        }
    }

    #[test]
    fn a_tool_with_fewer_sizes_has_its_place_among_curves() {
        let mut run = run();
        let mut larger = run.entries[0].figures[0];
        larger.bytes = 1024;
        run.entries[0].figures.push(larger);
        run.entries[1].figures.push(larger);
        let html = of(&run, "x", &Colours::default());
        assert!(
            html.contains("class=\"curve") && !html.contains("<rect"),
            "{html}"
        );
        assert!(html.contains("<tr><td>1 Ki</td>"), "{html}");
    }

    #[test]
    fn curves_go_from_left_to_right_in_whatever_order_sizes_were_named() {
        let picture = |sizes: [usize; 2]| {
            let mut run = run();
            for entry in &mut run.entries {
                let of = |bytes| {
                    let mut figure = entry.figures[0];
                    figure.bytes = bytes;
                    figure.summary.median *= 1.0 + bytes as f64 / 1e3;
                    figure
                };
                entry.figures = sizes.map(of).to_vec();
            }
            let html = of(&run, "x", &Colours::default());
            let (pictures, _) = html.split_once("<details").unwrap();
            pictures.to_owned()
        };
        assert_eq!(picture([4096, 8]), picture([8, 4096]));
    }

    #[test]
    fn small_figures_are_not_shown_as_zeros() {
        let shown = |unit_of_run: &str, median: f64| {
            let mut run = run();
            run.unit = unit_of_run.to_owned();
            run.entries[2].figures[0].summary.median = median;
            for entry in &mut run.entries[..2] {
                entry.figures[0].summary.median = 2e6;
            }
            unit(&run).0.to_owned()
        };
        assert_eq!(shown("messages/s", 1e6), "million messages/s");
        assert_eq!(shown("messages/s", 400.0), "thousand messages/s");
        assert_eq!(shown("messages/s", 4.0), "messages/s");
        assert_eq!(shown("MB/s", 40.0), "GB/s");
        assert_eq!(shown("MB/s", 0.4), "MB/s");
        assert_eq!(shown("KiB/rank", 0.0), "KiB per rank");
        assert_eq!(shown("us", 0.0), "µs");
    }

    #[test]
    fn samples_of_another_section_are_not_left_out() {
        let both = run_in_two_phases();
        let html = of_phase(&both.also[0], &both, "x", &Colours::default());
        assert!(!html.contains("left out"), "{html}");
        assert!(of(&run(), "x", &Colours::default()).contains("(3 samples of other"));
    }

    #[test]
    fn transports_whose_ranks_die_take_no_turns() {
        let html = |bench: &str| {
            let mut run = run();
            run.bench = bench.to_owned();
            of(&run, "x", &Colours::default())
        };
        let turns = "all contenders in turn";
        assert!(html("latency").contains(turns) && !html("failure").contains(turns));
    }

    #[test]
    fn a_phase_without_figures_for_copies_says_why_its_limit_ends() {
        let both = run_in_two_phases();
        let html = |run: &Run| of(run, "x", &Colours::default());
        assert!(!html(&both).contains(table::ELSEWHERE));
        let mut apart = both.also[0].clone();
        assert!(html(&apart).contains(table::ELSEWHERE));
        assert!(html(&apart).contains("phase apart (a line 190 ns).</p>"));
        apart.bench = "barrier".to_owned();
        assert!(!html(&apart).contains(table::ELSEWHERE), "no limit");
    }

    #[test]
    fn between_gpus_the_limit_is_the_drivers() {
        let mut run = run();
        run.cuda = true;
        let figure = run.entries[0].figures[0];
        run.entries[0].figures.push(Figure {
            bytes: 4096,
            ..figure
        });
        let machine = run.machine.as_mut().unwrap();
        machine.gpu = Some(super::super::super::record::tests::gpu());
        let html = of(&run, "x", &Colours::default());
        assert!(html.contains("buffers on GPUs"), "{html}");
        assert!(html.contains("GPU Abacus 2: copies"), "{html}");
        assert!(!html.contains("over the limit"), "{html}");
    }

    #[test]
    fn what_cannot_be_compared_has_neither_ratios_nor_a_limit() {
        let mut run = run();
        run.phase = None;
        let html = of(&run, "x", &Colours::default());
        assert!(
            !html.contains("best peer") && !html.contains("limit"),
            "{html}"
        );
        assert!(
            html.contains("run this again with a larger --repeat"),
            "{html}"
        );
    }
}
