//! The page: all runs of a folder with their charts, in one file that needs no other.
//!
//! A folder has one JSON file for each kind of run, and the page is generated from all of them each
//! time. So `latency`, `bandwidth` and `rate` can be measured one after the other into one page.
//!
//! - [`head`]: when and where the runs were measured, and the machine's limits.
//! - [`section`]: one run. [`chart`] and [`bars`]: its charts. [`scale`]: their axes.

mod bars;
mod chart;
mod head;
mod scale;
mod section;

use std::fmt::Write;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use super::args::USUAL_WINDOW;
use super::compare::Doubt;
use super::record::{Entry, Run};
use section::Colours;

/// Benches in the order in which the page shows them.
const ORDER: [&str; 17] = [
    "latency",
    "bandwidth",
    "bibandwidth",
    "rate",
    "multithread",
    "overlap",
    "depth",
    "depth-wildcard",
    "depth-unexpected",
    "drain-reverse",
    "drain-random",
    "barrier",
    "startup",
    "idle",
    "memory-ring",
    "memory-all",
    "failure",
];

/// Creates the folder for reports and checks that it can be written, before anything is measured.
///
/// # Errors
/// If the folder cannot be written.
pub(super) fn prepare(folder: &Path) -> Result<(), String> {
    let page = folder.join("index.html");
    let attempt = || {
        fs::create_dir_all(folder)?;
        if page.exists() {
            fs::OpenOptions::new().append(true).open(&page)?;
        }
        // The run is kept in a file beside the page. A trial file shows whether it can be created.
        let trial = folder.join(format!(".portolan-{}", std::process::id()));
        fs::write(&trial, "")?;
        fs::remove_file(&trial)
    };
    attempt().map_err(|error| {
        format!(
            "cannot write the report in {}: {error}; nothing was measured: name a folder with --report in which \
             you may write files",
            folder.display()
        )
    })
}

/// Saves a run in a folder, replacing an earlier run of the same measurement, and generates the
/// folder's page.
///
/// # Errors
/// If the folder cannot be read and written.
pub(super) fn add(folder: &Path, run: &Run) -> Result<(), String> {
    let say = |error: &dyn std::fmt::Display| {
        format!("cannot write the report in {}: {error}", folder.display())
    };
    fs::create_dir_all(folder).map_err(|error| say(&error))?;
    let text = serde_json::to_string_pretty(run).map_err(|error| say(&error))?;
    let file = folder.join(format!("{}.json", id(run)));
    replace(&file, &text).map_err(|error| say(&error))?;
    let runs = kept(folder).map_err(|error| say(&error))?;
    fs::write(folder.join("index.html"), page(&runs)).map_err(|error| say(&error))
}

/// Writes a file under another name first, so that it is the earlier one or the new one and never a
/// part, even if this command is ended meanwhile or the disk is full.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    // The extension is not that of a run, so nothing reads a draft that is left behind.
    let draft = file.with_extension(format!("draft-{}", std::process::id()));
    let done = fs::write(&draft, text).and_then(|()| fs::rename(&draft, file));
    if done.is_err() {
        // The first error is the one that matters.
        let _ = fs::remove_file(&draft);
    }
    done
}

/// The identifier of a run among those in a folder: runs that differ in it are kept side by side.
fn id(run: &Run) -> String {
    let mut id = format!("{}-{}", run.bench, run.ranks);
    if let Some(map) = &run.map {
        let together = map.contains("one core");
        id.push_str(if together { "-together" } else { "-apart" });
    } else if let Some(pin) = unusual_pin(run) {
        let _ = write!(id, "-{pin}");
    }
    if let Some(window) = run.window.filter(|&window| window != USUAL_WINDOW) {
        let _ = write!(id, "-window{window}");
    }
    if run.busy > 0 {
        let _ = write!(id, "-busy{}", run.busy);
    }
    if let Some(buffers) = run.buffers {
        let _ = write!(id, "-buffers{buffers}");
    }
    if run.alloc {
        id.push_str("-alloc");
    }
    if run.cuda {
        id.push_str("-cuda");
    }
    if run.scope {
        id.push_str("-scope");
    }
    if let Some(threads) = run.threads {
        let _ = write!(id, "-threads{threads}");
    }
    if !run.settings.is_empty() {
        let _ = write!(id, "-set{:08x}", hash(&run.settings) as u32);
    }
    id
}

/// Where the ranks were put, unless it is the default placement. Short enough for a file name.
fn unusual_pin(run: &Run) -> Option<String> {
    /// File names are limited to 255 bytes.
    const LONGEST: usize = 60;
    let pin = run.pin.as_deref()?;
    let cores = run.machine.as_ref()?.cores;
    let alone = run.ranks as usize <= cores && run.threads.is_none();
    let usual = if alone { "core" } else { "none" };
    match pin {
        _ if pin == usual => None,
        "none" => Some("unpinned".to_owned()),
        "core" => Some("core".to_owned()),
        list if list.len() <= LONGEST => Some(format!("on-{list}")),
        list => Some(format!("on-{:016x}", hash(list))),
    }
}

/// A number in place of a text that is too long for a file name.
fn hash(what: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// The runs in a folder, in the order of the page.
fn kept(folder: &Path) -> std::io::Result<Vec<Run>> {
    let mut runs = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        // Anything else of that name is ignored: other JSON, a folder, a file that is not readable.
        // The figures of hours of measurement must not be lost because of it.
        let run = fs::read(&path).ok();
        let run = run.and_then(|text| serde_json::from_slice::<Run>(&text).ok());
        runs.extend(run);
    }
    let place = |run: &Run| ORDER.iter().position(|name| *name == run.bench);
    runs.sort_by_key(|run| (place(run).unwrap_or(ORDER.len()), id(run)));
    Ok(runs)
}

/// The page for some runs.
fn page(runs: &[Run]) -> String {
    let colours = Colours::of(runs);
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Portolan: measured</title>\n<style>\n{}</style></head><body>\n\
         <h1>Portolan: measured</h1>\n",
        include_str!("style.css")
    );
    html.push_str(&head::of(runs));
    html.push_str(&overview(runs));
    for run in runs {
        html.push_str(&section::of(run, &id(run), &colours));
        for also in &run.also {
            let phase = also.phase.as_deref().unwrap_or("another");
            let line = also.line().unwrap_or(0.0);
            let id = format!("{}-{phase}{line:.0}", id(run));
            html.push_str(&section::of_phase(also, run, &id, &colours));
        }
    }
    html.push_str("</body></html>\n");
    html
}

/// One line for each run and transport: its ratio to the best peer.
fn overview(runs: &[Run]) -> String {
    let lines = runs.iter().flat_map(|run| {
        let ours = run.entries.iter().filter(|entry| !entry.peer);
        ours.filter_map(move |entry| standing(run, entry))
    });
    let lines: String = lines.collect();
    if lines.is_empty() {
        return lines;
    }
    let legend = if lines.contains(MARK) { LEGEND } else { "" };
    format!(
        "<div class=\"wide\"><table><tr><th>bench</th><th>transport</th><th>sizes</th><th>ratio to the best peer, \
         geometric mean</th><th>best</th><th>worst</th></tr>\n{lines}</table></div>\n{legend}"
    )
}

/// Stands behind a ratio that decides nothing, here and in docs/figures.md.
const MARK: &str = "(?)";
/// What the mark means.
const LEGEND: &str = "<p class=\"soft\">Green is in favour of Portolan, red of the best peer. Grey with a (?) \
    decides nothing: others were at work meanwhile, or somebody has fewer than 3 samples, or a peer failed or has \
    no figure.</p>\n";

/// A ratio, coloured by whom it favours, or grey and marked if it decides nothing.
fn verdict(run: &Run, ratio: f64, doubt: Option<Doubt>) -> String {
    let class = match doubt {
        Some(doubt) => {
            return format!(
                "<span class=\"open\" title=\"{}\">{ratio:.2} {MARK}</span>",
                doubt.reason()
            );
        }
        None if (ratio <= 1.0) == run.less_is_better => "good",
        None => "bad",
    };
    format!("<span class=\"{class}\">{ratio:.2}</span>")
}

/// The line of the overview for one entry; `None` without a peer.
fn standing(run: &Run, entry: &Entry) -> Option<String> {
    let ratios = entry.figures.iter().filter_map(|figure| {
        let (ratio, _) = run.ratio(entry, figure)?;
        (ratio > 0.0).then(|| (ratio, run.doubt(figure.bytes)))
    });
    let mut ratios: Vec<(f64, Option<Doubt>)> = ratios.collect();
    ratios.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (&least, &most) = (ratios.first()?, ratios.last()?);
    let logarithms = ratios.iter().map(|(ratio, _)| ratio.ln());
    let mean = (logarithms.sum::<f64>() / ratios.len() as f64).exp();
    // A mean decides nothing if one of its ratios does not.
    let doubt = ratios.iter().filter_map(|(_, doubt)| *doubt).min();
    let (best, worst) = if run.less_is_better {
        (least, most)
    } else {
        (most, least)
    };
    let cell = |(ratio, doubt)| format!("<td>{}</td>", verdict(run, ratio, doubt));
    Some(format!(
        "<tr><td><a href=\"#{}\">{}</a></td><td>{}</td><td>{}</td>{}{}{}</tr>\n",
        id(run),
        escape(&section::heading(run)),
        escape(&entry.name),
        ratios.len(),
        cell((mean, doubt)),
        cell(best),
        cell(worst)
    ))
}

/// Escapes a text for HTML.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{beside_the_emulator, decided, run, run_in_two_phases};
    use super::*;

    #[test]
    fn a_second_phase_has_a_section_of_its_own() {
        let html = page(&[run_in_two_phases()]);
        assert!(html.contains("<section id=\"latency-2\">"), "{html}");
        assert!(
            html.contains("<section id=\"latency-2-apart190\">"),
            "{html}"
        );
        assert!(
            html.contains("in turn, phase apart (a line 190 ns).</p>"),
            "{html}"
        );
        assert!(html.contains("Limits in phase apart (a line 190 ns)"));
        assert_eq!(html.matches("<tr><td><a href").count(), 1, "one line above");
    }

    #[test]
    fn a_folder_keeps_what_was_measured_before() {
        let folder = std::env::temp_dir().join(format!("portolan-page-{}", std::process::id()));
        let mut other = run();
        other.bench = "barrier".to_owned();
        other.axis = String::new();
        add(&folder, &other).unwrap();
        add(&folder, &run()).unwrap();
        add(&folder, &run()).unwrap();
        let kept = kept(&folder).unwrap();
        let benches: Vec<_> = kept.iter().map(|run| run.bench.as_str()).collect();
        assert_eq!(benches, ["latency", "barrier"]);
        let html = fs::read_to_string(folder.join("index.html")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert!(html.contains("c is missing: it is not here"));
        assert!(html.contains("portolan bench latency --peers"));
        assert!(html.contains("<td>10.0</td><td>0.30</td><td>12.3</td>"));
        assert_eq!(html.matches("<section").count(), 2);
        // The page loads nothing from elsewhere.
        assert!(!html.contains("http") && !html.contains("src="), "{html}");
    }

    #[test]
    fn what_is_no_run_is_left_out_of_the_page() {
        let folder = std::env::temp_dir().join(format!("portolan-other-{}", std::process::id()));
        fs::create_dir_all(folder.join("folder.json")).unwrap();
        fs::write(folder.join("other.json"), "{}").unwrap();
        fs::write(folder.join("bytes.json"), [0xff, 0xfe]).unwrap();
        std::os::unix::fs::symlink("/no/such/file", folder.join("gone.json")).unwrap();
        let added = add(&folder, &run());
        let kept = kept(&folder).map(|runs| runs.len());
        let drafts = fs::read_dir(&folder).unwrap().flatten();
        let drafts = drafts.filter(|entry| entry.file_name().to_string_lossy().contains("draft"));
        let drafts = drafts.count();
        // A run that cannot be written leaves no draft behind either.
        let refused = replace(&folder.join("folder.json"), "{}");
        let after = fs::read_dir(&folder).unwrap().count();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((added, kept.unwrap(), drafts), (Ok(()), 1, 0));
        assert!(refused.is_err());
        assert_eq!(after, 6, "four that are no runs, the run, and the page");
    }

    #[test]
    fn what_was_measured_elsewhere_or_otherwise_is_kept_beside() {
        let id_of = |pin: &str, ranks, window, threads| {
            let mut run = run();
            (run.pin, run.ranks) = (Some(pin.to_owned()), ranks);
            (run.window, run.threads) = (window, threads);
            id(&run)
        };
        assert_eq!(id_of("core", 2, None, None), "latency-2");
        assert_eq!(id_of("none", 4, None, None), "latency-4");
        assert_eq!(id_of("none", 2, None, Some(2)), "latency-2-threads2");
        assert_eq!(id_of("none", 2, None, None), "latency-2-unpinned");
        assert_eq!(id_of("0,0", 2, Some(64), None), "latency-2-on-0,0");
        assert_eq!(id_of("core", 2, Some(7), None), "latency-2-window7");
        let id_set = |value: &str| {
            let mut run = run();
            let name = "PORTOLAN_SHM_CMA".to_owned();
            run.settings.insert(name, value.to_owned());
            id(&run)
        };
        assert!(id_set("off").starts_with("latency-2-set"));
        assert_ne!(id_set("off"), id_set("on"));
        let many = vec!["0"; 1000].join(",");
        assert!(id_of(&many, 1000, None, None).len() < 60);
    }

    #[test]
    fn a_page_that_cannot_be_written_is_noticed_before() {
        let folder = std::env::temp_dir().join(format!("portolan-prepare-{}", std::process::id()));
        prepare(&folder).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing is left");
        // A page that can be written does not help if no run can be kept beside it.
        let (page, trial) = ("index.html", format!(".portolan-{}", std::process::id()));
        fs::write(folder.join(page), "").unwrap();
        prepare(&folder).unwrap();
        fs::create_dir(folder.join(&trial)).unwrap();
        let error = prepare(&folder).unwrap_err();
        assert!(error.contains("nothing was measured"), "{error}");
        fs::remove_dir(folder.join(&trial)).unwrap();
        fs::remove_file(folder.join(page)).unwrap();
        // A folder cannot be overwritten as a file, not even by root.
        fs::create_dir(folder.join("index.html")).unwrap();
        let error = prepare(&folder).unwrap_err();
        fs::remove_dir_all(&folder).unwrap();
        assert!(error.contains("--report"), "{error}");
    }

    #[test]
    fn each_transport_stands_for_itself() {
        let mut both = decided();
        let mut other = both.entries[0].clone();
        other.name = "ofi".to_owned();
        other.figures[0].summary.median *= 4.0;
        both.entries.push(other);
        let html = overview(&[both]);
        assert_eq!(html.matches("<tr>").count(), 3, "{html}");
        let line = |name: &str, class: &str, ratio: &str| {
            let cell = format!("<td><span class=\"{class}\">{ratio}</span></td>");
            format!("<td>{name}</td><td>1</td>{}", cell.repeat(3))
        };
        assert!(html.contains(&line("shm", "good", "0.50")), "{html}");
        assert!(html.contains(&line("ofi", "bad", "2.00")), "{html}");
        assert!(!html.contains(MARK), "{html}");
        let mut alone = run();
        alone.entries.retain(|entry| !entry.peer);
        assert_eq!(overview(&[alone]), "");
    }

    #[test]
    fn what_decides_nothing_is_grey_and_marked_and_explained() {
        let mut disturbed = decided();
        disturbed.entries[1].taken[0].disturbed = true;
        for (run, why) in [(disturbed, Doubt::Disturbed), (run(), Doubt::Few)] {
            let html = page(&[run]);
            let mark = format!(
                "<span class=\"open\" title=\"{}\">0.50 (?)</span>",
                why.reason()
            );
            // Three in the overview, one in the table of figures.
            assert_eq!(html.matches(&mark).count(), 4, "{html}");
            assert!(!html.contains("class=\"good\"") && !html.contains("class=\"bad\""));
            assert_eq!(html.matches(LEGEND).count(), 1, "{html}");
        }
        let html = page(&[decided()]);
        assert!(html.contains("class=\"good\"") && !html.contains(LEGEND));
    }

    #[test]
    fn virtual_time_is_no_line_of_the_overview() {
        let html = page(&[beside_the_emulator()]);
        assert_eq!(html.matches("<tr><td><a href").count(), 1, "{html}");
        assert!(html.contains("<th>t3e-sim (virtual time)</th>"), "{html}");
        assert!(!html.contains("9.95</span>"), "{html}");
    }

    #[test]
    fn paper_shows_wide_tables_whole() {
        let (_, print) = include_str!("style.css")
            .split_once("@media print")
            .unwrap();
        assert!(print.contains(".wide { overflow: visible }"), "{print}");
    }

    /// The contrast between two colours as WCAG defines it.
    fn contrast(one: &str, other: &str) -> f64 {
        let luminance = |colour: &str| {
            let digits = colour.trim_start_matches('#');
            let long: String = match digits.len() {
                3 => digits.chars().flat_map(|c| [c, c]).collect(),
                _ => digits.to_owned(),
            };
            let part = |at: usize| {
                let share = f64::from(u8::from_str_radix(&long[at..at + 2], 16).unwrap()) / 255.0;
                match share {
                    s if s <= 0.03928 => s / 12.92,
                    s => ((s + 0.055) / 1.055).powf(2.4),
                }
            };
            0.2126 * part(0) + 0.7152 * part(2) + 0.0722 * part(4)
        };
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn everything_that_is_written_can_be_read() {
        /// Colours in which no text is written.
        const LINES: [&str; 3] = ["paper", "line", "axis"];
        let themes = include_str!("style.css").split(":root {").skip(1);
        let mut seen = 0;
        for theme in themes {
            let declared = theme.split('}').next().unwrap().split(';');
            let colours: Vec<_> = declared
                .filter_map(|part| part.trim().strip_prefix("--")?.split_once(": "))
                .collect();
            let paper = colours.iter().find(|(name, _)| *name == "paper").unwrap().1;
            for (name, colour) in colours.iter().filter(|(name, _)| !LINES.contains(name)) {
                assert!(
                    contrast(paper, colour) >= 4.5,
                    "{name}: {colour} on {paper}"
                );
                seen += 1;
            }
        }
        assert_eq!(seen, 2 * 16);
    }

    #[test]
    fn names_cannot_break_the_page() {
        let mut run = run();
        run.entries[1].name = "<b>&\"".to_owned();
        let html = page(&[run]);
        assert!(!html.contains("<b>") && html.contains("&lt;b&gt;&amp;&quot;"));
    }
}
