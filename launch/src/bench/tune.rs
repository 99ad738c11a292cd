//! `portolan bench tune`: which algorithm of each collective operation is the fastest here.
//!
//! Every algorithm is forced in turn, by a rule for its operation; the samples of all algorithms
//! take turns, as those of peers do. The result is a table that `PORTOLAN_COLL_TABLE=@FILE` reads,
//! with the figures as comments. Figures that cannot be compared make no rules.
//!
//! The rules hold where they were measured: over the same device, and on several nodes only if the
//! ranks were on several nodes. Another launcher can start the jobs there.

use std::fmt::Write as _;

use portolan_benches::{Collective, Form, Pattern};
use portolan_coll::select::Rule;
use portolan_coll::{Name, algorithms};

use super::args::BenchArgs;
use super::forced::{Forced, Surroundings};
use super::job::{Contender, Job};
use super::machine::Probe;
use super::record::Entry;
use super::suite::{self, Conducted};
use super::table;
use crate::run::Bind;

/// Default sizes of blocks or messages.
pub(super) const SIZES: [usize; 8] = [
    8,
    256,
    2 << 10,
    8 << 10,
    32 << 10,
    128 << 10,
    512 << 10,
    2 << 20,
];

/// Radices of trees that are tried; the larger ones only with more ranks.
const RADICES: [u32; 3] = [4, 8, 16];

/// Measures everything and returns the table.
pub(super) fn measure(args: &BenchArgs, ranks: u32) -> Result<String, String> {
    let forced = forced(args, Name::Barrier, "dissemination");
    let (job, _) = job(args, ranks, Pattern::Barrier);
    let patience = forced.limit(job.patience());
    let about = forced.surroundings(&job, patience)?;
    let mut text = format!(
        "# Algorithms of collective operations, measured by `{}`\n",
        BenchArgs::typed()
    );
    for operation in Name::ALL {
        if let Some(pattern) = pattern(operation) {
            text.push_str(&tune(args, ranks, operation, pattern, &about)?);
        }
    }
    Ok(text)
}

/// Jobs in which an algorithm is forced.
fn forced(args: &BenchArgs, operation: Name, algorithm: &str) -> Forced {
    Forced {
        transport: args.transport.first().cloned(),
        launcher: args.launcher(),
        table: format!("{operation} {algorithm}"),
        algorithm: algorithm.to_owned(),
    }
}

/// The patterns of all operations that are measured.
pub(super) fn patterns() -> Vec<Pattern> {
    Name::ALL.into_iter().filter_map(pattern).collect()
}

/// The pattern that measures an operation; `None` if the operation has no choice of algorithms.
fn pattern(operation: Name) -> Option<Pattern> {
    let collective = match operation {
        Name::Barrier => return Some(Pattern::Barrier),
        Name::Bcast => Collective::Bcast,
        Name::Gather => Collective::Gather,
        Name::Scatter => Collective::Scatter,
        Name::Allgather => Collective::Allgather,
        Name::Alltoall => Collective::Alltoall,
        Name::Reduce => Collective::Reduce,
        Name::Allreduce => Collective::Allreduce,
        Name::ReduceScatter => Collective::ReduceScatter,
        Name::Scan => Collective::Scan,
        Name::Exscan => Collective::Exscan,
        _ => return None,
    };
    Some(Pattern::Collective(collective, Form::Blocking))
}

fn tune(
    args: &BenchArgs,
    ranks: u32,
    operation: Name,
    pattern: Pattern,
    about: &Surroundings,
) -> Result<String, String> {
    let contender = |algorithm: String| Contender::Forced(forced(args, operation, &algorithm));
    let contenders: Vec<_> = candidates(operation, ranks).map(contender).collect();
    let (job, probe) = job(args, ranks, pattern);
    let repeat = args.repeat as usize;
    let bar = super::bar(pattern, repeat * contenders.len() * job.plans.len());
    let mut step = || bar.inc(1);
    let conducted = suite::conduct(&job, &contenders, repeat, probe, &mut step);
    bar.finish_and_clear();
    let conducted = conducted?;
    if !conducted.remarks.is_empty() {
        table::complain(&conducted.remarks);
    }
    let doubt = doubt(&conducted);
    Ok(section(operation, ranks, &conducted.entries, about, doubt))
}

/// The jobs that measure a pattern, and what measures the machine between them.
fn job(args: &BenchArgs, ranks: u32, pattern: Pattern) -> (Job, Probe) {
    let probe = Probe::new();
    let crowded = ranks as usize > probe.cores();
    let elsewhere = args.launcher.is_some();
    let usual = if crowded || elsewhere {
        Bind::None
    } else {
        Bind::Core
    };
    let job = Job {
        pattern,
        ranks,
        window: args.window(),
        buffers: args.buffers(),
        alloc: false,
        cuda: false,
        scope: false,
        threads: args.threads(),
        limit: args.seconds(),
        plans: args.plans_of(pattern, &SIZES),
        pin: args.pin.clone().unwrap_or(usual),
        crowded,
        busy: 0,
    };
    let probe = match elsewhere {
        // How fast a cache line travels here says nothing about ranks that may be elsewhere.
        true => probe.without_lines(),
        false => probe.between(&job.pin, ranks, pattern.is_paired()),
    };
    (job, probe)
}

/// Why the figures say nothing about which algorithm is the fastest; `None` if they do.
fn doubt(conducted: &Conducted) -> Option<&'static str> {
    let looked_at = conducted.machine.load_store_ns.is_some();
    if looked_at && conducted.phase.is_none() {
        let why = "no phase of the machine has samples of every algorithm, and a larger --repeat \
                   may find one";
        return Some(why);
    }
    let disturbed = conducted.entries.iter().any(Entry::is_disturbed);
    disturbed.then_some("others were at work during samples that count")
}

/// The algorithms of an operation as a rule names them; trees once for each radix that is worth
/// trying.
fn candidates(operation: Name, ranks: u32) -> impl Iterator<Item = String> {
    let radices = RADICES
        .iter()
        .filter(move |&&radix| radix == RADICES[0] || radix < ranks);
    let names = algorithms::names(operation).into_iter();
    names.flat_map(move |name| {
        let plain = (!algorithms::has_radix(name)).then(|| name.to_owned());
        let trees = radices.clone().filter(move |_| algorithms::has_radix(name));
        plain
            .into_iter()
            .chain(trees.map(move |radix| format!("{name} radix={radix}")))
    })
}

/// The rules for one operation, and the figures on which they are based. If these are in doubt,
/// there is the reason in place of rules.
fn section(
    operation: Name,
    ranks: u32,
    entries: &[Entry],
    about: &Surroundings,
    doubt: Option<&str>,
) -> String {
    let mut text = String::new();
    let sizes = entries.first().map_or(0, |entry| entry.figures.len());
    let figure = |entry: &Entry, at: usize| entry.figures.get(at).copied();
    let mut best: Vec<(usize, String)> = Vec::new();
    for at in 0..sizes {
        let mut line = String::new();
        let mut fastest: Option<(f64, &str)> = None;
        let mut bytes = 0;
        for entry in entries {
            let Some(figure) = figure(entry, at) else {
                continue;
            };
            bytes = figure.bytes;
            let time = figure.summary.median;
            let _ = write!(line, "  {} {time:.2}", entry.name);
            if fastest.is_none_or(|(least, _)| time < least) {
                fastest = Some((time, &entry.name));
            }
        }
        let asked = asked(operation, ranks, bytes);
        let block = match asked == bytes {
            true => String::new(),
            false => format!(" (a block: {asked})"),
        };
        let _ = writeln!(
            text,
            "# {operation}, {ranks} ranks, {bytes} bytes{block}, us:{line}"
        );
        if let Some((_, name)) = fastest {
            best.push((asked, name.to_owned()));
        }
    }
    if let Some(why) = doubt {
        let _ = writeln!(text, "# {operation}, no rules: {why}");
        return text;
    }
    for rule in rules(operation, ranks, &best, about) {
        let _ = writeln!(text, "{rule}");
    }
    text
}

/// The bytes that the table compares ([`portolan_coll::algorithms::Ask::bytes`]) where `bytes` are
/// measured. A reduce-scatter is measured by its whole vector and chosen by one block.
fn asked(operation: Name, ranks: u32, bytes: usize) -> usize {
    match operation {
        Name::ReduceScatter => bytes / ranks.max(1) as usize,
        _ => bytes,
    }
}

/// Rules that choose the best algorithm for each size. Between two measured sizes the larger one
/// decides; above the largest, the largest one does.
fn rules(operation: Name, ranks: u32, best: &[(usize, String)], about: &Surroundings) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for (index, (bytes, candidate)) in best.iter().enumerate() {
        let last = index + 1 == best.len();
        let bytes = if last { usize::MAX } else { *bytes };
        let (algorithm, radix) = match candidate.split_once(" radix=") {
            Some((name, radix)) => (name, radix.parse().ok()),
            None => (candidate.as_str(), None),
        };
        match rules.last_mut() {
            Some(rule) if (&*rule.algorithm, rule.radix) == (algorithm, radix) => {
                rule.bytes = bytes;
            }
            _ => rules.push(Rule {
                ranks,
                bytes,
                place: about.place,
                device: Some(about.transport.clone()),
                radix,
                ..Rule::always(operation, algorithm)
            }),
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use portolan_benches::machine::Phase;
    use portolan_coll::select::{Place, parse};

    use super::*;
    use crate::bench::record::tests::machine;
    use crate::bench::record::{Figure, Machine, Taken};
    use crate::bench::stats::Summary;

    fn over_shm() -> Surroundings {
        Surroundings {
            transport: "shm".to_owned(),
            place: Place::Flat,
        }
    }

    #[test]
    fn the_table_says_the_best_of_each_size_and_can_be_read() {
        let best = [
            (8, "binomial"),
            (256, "binomial"),
            (4096, "knomial radix=8"),
            (8192, "knomial radix=4"),
            (65_536, "linear"),
        ];
        let best = best.map(|(bytes, name)| (bytes, name.to_owned()));
        let rules = rules(Name::Bcast, 4, &best, &over_shm());
        let told: Vec<_> = rules
            .iter()
            .map(|rule| (rule.bytes, &*rule.algorithm, rule.radix))
            .collect();
        let expected = [
            (256, "binomial", None),
            (4096, "knomial", Some(8)),
            (8192, "knomial", Some(4)),
            (usize::MAX, "linear", None),
        ];
        assert_eq!(told, expected);
        let text: String = rules.iter().map(|rule| format!("{rule}\n")).collect();
        assert_eq!(parse(&text), Ok(rules));
    }

    /// An algorithm's figures of 4 and 64 KiB.
    fn entry(name: &str, times: [f64; 2]) -> Entry {
        let figure = |bytes, median| Figure {
            bytes,
            summary: Summary::of(vec![median]).expect("there is one sample"),
            samples: 1,
            dropped: 0,
            rounds: 1,
        };
        Entry {
            name: name.to_owned(),
            peer: false,
            figures: vec![figure(4096, times[0]), figure(65_536, times[1])],
            failed: None,
            taken: Vec::new(),
        }
    }

    /// The rule has to decide for the size at which its algorithm was measured.
    #[test]
    fn a_reduce_scatter_is_measured_by_its_vector_and_chosen_by_a_block() {
        let entries = [entry("pairwise", [1.0, 2.0]), entry("ring", [2.0, 1.0])];
        let text = section(Name::ReduceScatter, 4, &entries, &over_shm(), None);
        assert!(text.contains("bytes<=1k"), "{text}");
        let text = section(Name::Allreduce, 4, &entries, &over_shm(), None);
        assert!(text.contains("bytes<=4k"), "{text}");
    }

    /// A job elsewhere keeps the default rules.
    #[test]
    fn the_rules_hold_where_they_were_measured() {
        let entries = [entry("ring", [1.0, 2.0])];
        for (place, condition) in [(Place::Flat, " flat "), (Place::Levels, " levels ")] {
            let place = Surroundings {
                transport: "ofi".to_owned(),
                place,
            };
            let text = section(Name::Allreduce, 4, &entries, &place, None);
            assert!(
                text.contains(" on=ofi ") && text.contains(condition),
                "{text}"
            );
        }
    }

    #[test]
    fn what_cannot_be_compared_makes_no_rules() {
        let conducted = |phase, load_store_ns, disturbed| {
            let mut entry = entry("linear", [1.0, 2.0]);
            entry.taken = vec![Taken {
                counts: true,
                disturbed,
                ..Taken::default()
            }];
            Conducted {
                entries: vec![entry],
                machine: Machine {
                    load_store_ns,
                    ..machine()
                },
                phase,
                also: Vec::new(),
                remarks: String::new(),
            }
        };
        let near = Some(Phase::of(50.0));
        for (conducted, rules) in [
            (conducted(near, Some(50.0), false), 1),
            // Ranks of one core have no line between them, and no phases.
            (conducted(None, None, false), 1),
            (conducted(None, Some(50.0), false), 0),
            (conducted(near, Some(50.0), true), 0),
        ] {
            let doubt = doubt(&conducted);
            let text = section(Name::Bcast, 4, &conducted.entries, &over_shm(), doubt);
            assert_eq!(parse(&text).map(|rules| rules.len()), Ok(rules), "{text}");
            let said = text.contains("# bcast, no rules: ");
            assert_eq!(said, rules == 0, "{text}");
        }
    }

    #[test]
    fn every_operation_with_a_choice_is_measured() {
        for operation in Name::ALL {
            let chosen = algorithms::names(operation).len() > 1;
            assert!(pattern(operation).is_some() || !chosen, "{operation}");
            // The same with every algorithm that exists.
            let tried: Vec<_> = candidates(operation, 17).collect();
            for name in algorithms::names(operation) {
                let radix = if algorithms::has_radix(name) {
                    " radix=16"
                } else {
                    ""
                };
                assert!(
                    tried.contains(&format!("{name}{radix}")),
                    "{operation} {name}"
                );
            }
        }
    }
}
