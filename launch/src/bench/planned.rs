//! What a measurement will do, decided before anything is measured. `--dry-run` prints it.

use std::fmt::Write;

use portolan_benches::{Axis, Pattern, Plan};

use super::args::{BenchArgs, BenchKind};
use super::job::{Contender, Job};
use super::peers::{self, Found};
use crate::run::{Bind, cores};

/// One pattern, and who is measured with it.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) job: Job,
    pub(super) contenders: Vec<Contender>,
    /// Peers that are not here, and why.
    pub(super) missing: Vec<(String, String)>,
    /// Samples of each contender.
    pub(super) repeat: usize,
}

impl Planned {
    /// The measurement of `pattern` that the arguments ask for. Peers are looked for, and built.
    pub(super) fn new(args: &BenchArgs, pattern: Pattern, ranks: u32) -> Result<Self, String> {
        let cores = cores().unwrap_or_default().len();
        let crowded = ranks as usize > cores;
        // Threads of a rank that is bound to one core would take turns on it.
        let alone = !crowded && pattern != Pattern::Multithread;
        let usual = if alone { Bind::Core } else { Bind::None };
        let pin = match args.map {
            Some(map) => map
                .list(ranks)
                .ok_or("the system does not tell the cores: leave --map out")?,
            None => args.pin.clone().unwrap_or(usual),
        };
        let job = Job {
            pattern,
            ranks,
            window: args.window(),
            buffers: args.buffers(),
            alloc: args.alloc,
            cuda: args.cuda,
            scope: args.scope,
            threads: args.threads(),
            limit: args.seconds(),
            plans: args.plans(pattern),
            pin,
            crowded,
            busy: args.busy,
        };
        let mut contenders: Vec<_> = match &args.transport[..] {
            [] => vec![Contender::Ours(None)],
            list => list
                .iter()
                .cloned()
                .map(Some)
                .map(Contender::Ours)
                .collect(),
        };
        let found = if args.peers {
            peers::find(&job, args)
        } else {
            Found::default()
        };
        contenders.extend(found.contenders);
        Ok(Self {
            job,
            contenders,
            missing: found.missing,
            repeat: args.repeat as usize,
        })
    }

    /// The number of figures that are going to be measured.
    pub(super) fn figures(&self) -> usize {
        self.repeat * self.contenders.len() * self.job.plans.len()
    }

    /// The measurement in words.
    fn text(&self) -> String {
        let job = &self.job;
        let names: Vec<_> = self.contenders.iter().map(Contender::name).collect();
        let mut text = format!(
            "{}: {} ranks, --pin {}{}{}; {} each of {}",
            job.pattern.name(),
            job.ranks,
            job.pin,
            if job.cuda { ", buffers on GPUs" } else { "" },
            if job.scope { ", windows in scopes" } else { "" },
            self.repeat,
            names.join(", "),
        );
        for plan in &job.plans {
            let Plan {
                bytes,
                rounds,
                warm_up,
            } = plan;
            let rounds = format!("{rounds} rounds after {warm_up}");
            // Writing to a `String` cannot fail.
            let _ = match job.pattern.axis() {
                Axis::Bytes => write!(text, "\n  {bytes} bytes: {rounds}"),
                Axis::Waiting => write!(text, "\n  {bytes} waiting: {rounds}"),
                Axis::None => write!(text, "\n  {rounds}"),
            };
        }
        for (name, why) in &self.missing {
            let _ = write!(text, "\n# {name} is missing: {why}");
        }
        text.push('\n');
        text
    }
}

/// Refuses a name that is no transport of this program, or one whose ranks cannot be processes,
/// before a rank is started: otherwise each of them would say so. Whether a transport works here is
/// left to the samples, whose ranks say why it does not.
pub(super) fn check_names(transports: &[String]) -> Result<(), String> {
    let chosen = std::env::var("PORTOLAN_TRANSPORT").unwrap_or_default();
    let (option, wanted) = match transports {
        [] if chosen.is_empty() => return Ok(()),
        [] => ("PORTOLAN_TRANSPORT", std::slice::from_ref(&chosen)),
        list => ("--transport", list),
    };
    let again = |(at, name): &(usize, &String)| wanted[..*at].contains(name);
    if let Some((_, name)) = wanted.iter().enumerate().find(again) {
        return Err(format!("{option}: {name} is named twice"));
    }
    // The list of `portolan::transports` tries each transport, which takes most of a second. So it
    // is made only for a name that no feature of this crate stands for.
    let by_feature = [
        ("shm", cfg!(feature = "shm")),
        ("ofi", cfg!(feature = "ofi")),
        ("t3e-sim", cfg!(feature = "t3e-sim")),
    ];
    if wanted
        .iter()
        .all(|name| by_feature.contains(&(&**name, true)))
    {
        return Ok(());
    }
    let all: Vec<_> = portolan::transports()
        .iter()
        .map(|transport| transport.name)
        .collect();
    let Some(name) = wanted.iter().find(|name| !usable(&all).contains(&&***name)) else {
        return Ok(());
    };
    let known = by_feature.map(|(name, _)| name);
    let why = if all.contains(&&**name) {
        "joins threads only, and ranks of portolan bench are processes"
    } else if known.contains(&&**name) {
        "is not compiled into this program"
    } else {
        "is no transport"
    };
    let best = match transports {
        [] => "unset PORTOLAN_TRANSPORT",
        _ => "leave it out",
    };
    Err(format!(
        "{option}: {name} {why}; choose from {} with --transport, or {best} for the best of them",
        usable(&all).join(", ")
    ))
}

/// Those of some transports whose ranks can be processes.
fn usable<'a>(all: &[&'a str]) -> Vec<&'a str> {
    let of_processes = all.iter().filter(|name| **name != "memory");
    of_processes.copied().collect()
}

/// What `--dry-run` prints: every measurement that the arguments ask for.
pub(super) fn texts(args: &BenchArgs, ranks: u32) -> Result<String, String> {
    if matches!(args.kind, BenchKind::Failure | BenchKind::Tune) {
        return Ok(format!("{}: {ranks} ranks\n", args.kind.name()));
    }
    let patterns = args.kind.patterns().into_iter();
    patterns
        .map(|pattern| Ok(Planned::new(args, pattern, ranks)?.text()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_that_join_threads_only_are_not_offered() {
        assert_eq!(usable(&["shm", "memory", "t3e-sim"]), ["shm", "t3e-sim"]);
        let refused = check_names(&["memory".to_owned()]).unwrap_err();
        let (_, offered) = refused.split_once("choose from ").unwrap();
        assert!(!offered.contains("memory"), "{refused}");
    }
}
