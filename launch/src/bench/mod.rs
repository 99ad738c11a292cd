//! `portolan bench`: measures between ranks, side by side with other implementations.
//!
//! Every sample is a job of its own, started as a user would start it: by `portolan run`, or by a
//! peer's `mpiexec`. The samples of all contenders take turns, and the machine is looked at in between.
//! Started by a launcher, ours or another, the command is a rank of that job and measures there: so
//! `mpiexec -n 2 portolan bench latency` measures under Hydra.
//!
//! - [`args`]: the command line.
//! - [`job`]: one sample, and what it says. [`rank`]: its ranks, if they are ours. [`peers`]: if not.
//! - [`suite`]: samples in turn, and what they come to. [`stats`]: medians.
//! - [`machine`]: its limits and its state. [`report`]: table and JSON.
//! - [`failure`]: how long a death goes unnoticed.

mod args;
mod failure;
mod job;
mod machine;
mod peers;
mod rank;
mod report;
mod stats;
mod suite;

use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};

pub(crate) use args::{BenchArgs, BenchRankArgs};
pub(crate) use rank::main as rank_main;

use crate::again;
use crate::run::Bind;
use job::{Contender, Job};
use machine::Probe;
use peers::Found;
use portolan_benches::Pattern;

/// Measures, or is a rank that measures.
pub(crate) fn main(args: &BenchArgs) -> ExitCode {
    if again::is_rank() {
        return rank::in_a_job(args);
    }
    let ranks = match args.ranks().and_then(|ranks| check_memory(args, ranks)) {
        Ok(ranks) => ranks,
        Err(why) => {
            report::complain(&why);
            return ExitCode::from(2);
        }
    };
    let Some(pattern) = args.kind.pattern() else {
        return failure::main(args, ranks);
    };
    match measure(args, pattern, ranks) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            report::complain(&why);
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &BenchArgs, pattern: Pattern, ranks: u32) -> Result<(), String> {
    let probe = Probe::new();
    let crowded = ranks as usize > probe.cores();
    let pin = args
        .pin
        .clone()
        .unwrap_or(if crowded { Bind::None } else { Bind::Core });
    let job = Job {
        pattern,
        ranks,
        window: args.window,
        limit: args.seconds,
        plans: args.plans(pattern),
        pin: pin.clone(),
        crowded,
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
        peers::find(pattern, &args.peer_dir, args.tuned)
    } else {
        Found::default()
    };
    contenders.extend(found.peers.into_iter().map(Contender::Peer));

    let repeat = args.repeat as usize;
    let bar = bar(pattern, repeat * contenders.len() * job.plans.len());
    let mut step = || {
        if bar.length() == Some(bar.position()) {
            // A sample is being taken again.
            bar.inc_length(job.plans.len() as u64);
        }
        bar.inc(1);
    };
    let results = suite::conduct(&job, &contenders, repeat, probe, &mut step);
    bar.finish_and_clear();
    let mut results = results?;
    results.missing = found.missing;
    if !results.remarks.is_empty() {
        report::complain(&results.remarks);
    }
    report::write(
        &results,
        &report::Head::new(args, pattern, ranks, Some(pin)),
    );
    Ok(())
}

/// Shown where the standard error is a terminal.
fn bar(pattern: Pattern, figures: usize) -> ProgressBar {
    let bar = ProgressBar::new(figures as u64).with_message(pattern.name());
    match ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Refuses messages for which there is no memory; otherwise the number of ranks again.
fn check_memory(args: &BenchArgs, ranks: u32) -> Result<u32, String> {
    let Some(&largest) = args.sizes.iter().max() else {
        return Ok(ranks);
    };
    // Every rank has a buffer to send from and one to receive into.
    let need = largest as u128 * 2 * u128::from(ranks);
    match machine::memory_left() {
        Some(left) if need > u128::from(left) => Err(format!(
            "messages of {largest} bytes need {} MiB in {ranks} ranks, and {} MiB are left here: use \
             smaller --sizes",
            need >> 20,
            left >> 20
        )),
        _ => Ok(ranks),
    }
}
