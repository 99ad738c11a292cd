//! `portolan bench`: measures between ranks, side by side with other implementations.
//!
//! Every sample is a job of its own, started as a user would start it: by `portolan run`, or by a
//! peer's `mpiexec`. The samples of all contenders take turns, and the machine's state is measured
//! in between. If a launcher, Portolan's or another, has started this command, the command is a
//! rank of that job and measures within it: `mpiexec -n 2 portolan bench latency` measures under
//! Hydra.
//!
//! - [`args`]: the command line. [`options`]: which options a kind has. [`place`]: the processors
//!   of ranks and of other work.
//! - [`job`]: one sample. [`output`]: what its job says. [`rank`]: the ranks of Portolan's
//!   samples. [`peers`]: other implementations.
//! - [`planned`]: what is going to be measured. [`suite`]: takes samples in turn and evaluates
//!   them. [`stats`]: medians.
//! - [`machine`]: the machine's limits and state. [`phases`]: which samples are compared.
//!   [`memory`]: whether there is enough memory.
//! - [`compare`]: which figures may be compared, and when a ratio decides something.
//! - [`record`]: the result of a run; shown as a [`table`], as [`lines`] of JSON, as a [`page`].
//! - [`tune`]: the fastest algorithms of collective operations. [`failure`]: how long a death goes
//!   unnoticed.

mod args;
mod compare;
mod failure;
mod forced;
mod job;
mod lines;
mod machine;
mod memory;
mod options;
mod output;
mod page;
mod peers;
mod phases;
mod place;
mod planned;
mod rank;
mod record;
mod stats;
mod suite;
mod table;
mod tune;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::SystemTime;

use indicatif::{ProgressBar, ProgressStyle};
use portolan_benches::machine::Phase;
use portolan_benches::{Axis, Pattern};

use args::BenchKind;
pub(crate) use args::{BenchArgs, BenchRankArgs};
pub(crate) use place::spin;
pub(crate) use rank::{builder, main as rank_main};

use crate::again;
use crate::run::Bind;
use machine::Probe;
use memory::Ranks;
use place::Spinners;
use planned::Planned;
use record::{Entry, Gpu, Machine, Run};

/// Runs the measurement, or one rank of it.
pub(crate) fn main(args: &BenchArgs) -> ExitCode {
    if again::is_rank() {
        return rank::in_a_job(args);
    }
    let fits = |ranks| {
        if args.launcher.is_some() {
            // The ranks may be elsewhere.
            return Ok(ranks);
        }
        memory::check_processes(ranks)?;
        memory::check(args, Ranks::all_here(ranks)).map(|()| ranks)
    };
    let ranks = match args.ranks().and_then(fits) {
        Ok(ranks) => ranks,
        Err(why) => {
            table::complain(&why);
            return ExitCode::from(2);
        }
    };
    if let Err(why) = planned::check_names(&args.transport) {
        table::complain(&why);
        return ExitCode::from(2);
    }
    if args.dry_run {
        return ended(planned::texts(args, ranks).map(|text| show(&text)));
    }
    if let Some(Err(why)) = args.report.as_deref().map(page::prepare) {
        table::complain(&why);
        return ExitCode::FAILURE;
    }
    let reported = match args.kind {
        BenchKind::Failure => failure::measure(args, ranks).and_then(|run| report(args, &run)),
        BenchKind::Tune => tune::measure(args, ranks).map(|table| show(&table)),
        kind => kind.patterns().into_iter().try_for_each(|pattern| {
            measure(args, pattern, ranks).and_then(|run| report(args, &run))
        }),
    };
    ended(reported)
}

/// The exit code, and the reason of a failure as a message.
fn ended(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            table::complain(&why);
            ExitCode::FAILURE
        }
    }
}

/// Shows a run, and keeps it if a report was asked for.
fn report(args: &BenchArgs, run: &Run) -> Result<(), String> {
    write(run, args.json);
    match args.report.as_deref() {
        Some(folder) => page::add(folder, run),
        None => Ok(()),
    }
}

fn measure(args: &BenchArgs, pattern: Pattern, ranks: u32) -> Result<Run, String> {
    let planned = Planned::new(args, pattern, ranks)?;
    let figures = planned.figures();
    let Planned {
        job,
        contenders,
        missing,
        repeat,
    } = planned;
    let pin = job.pin.clone();
    let bar = bar(pattern, figures);
    let mut step = || {
        if bar.length() == Some(bar.position()) {
            // The sample is an additional one: it replaces one that does not count.
            bar.inc_length(job.plans.len() as u64);
        }
        bar.inc(1);
    };
    let mut run = Run::about(args, Some(pattern), ranks, Some(&pin));
    let probe = Probe::new().between(&pin, ranks, pattern.is_paired());
    let probe = probe.beside(Spinners::start(args.busy)?);
    let conducted = suite::conduct(&job, &contenders, repeat, probe, &mut step);
    bar.finish_and_clear();
    let conducted = conducted?;
    if !conducted.remarks.is_empty() {
        table::complain(&conducted.remarks);
    }
    run.entries = conducted.entries;
    run.missing = missing;
    run.machine = Some(Machine {
        gpu: args.cuda.then(gpu).flatten(),
        ..conducted.machine
    });
    run.phase = conducted.phase.map(|phase| phase.name().to_owned());
    let about = run.clone();
    let in_phase = |(entries, machine): (Vec<Entry>, Machine)| Run {
        phase: machine
            .load_store_ns
            .map(|line| Phase::of(line).name().to_owned()),
        entries,
        machine: Some(machine),
        ..about.clone()
    };
    run.also = conducted.also.into_iter().map(in_phase).collect();
    Ok(run)
}

/// The limits of the first GPU. That they cannot be measured is no reason to lose the figures.
fn gpu() -> Option<Gpu> {
    match portolan_benches::gpu::copies() {
        Ok(copies) => Some(Gpu::of(copies)),
        Err(why) => {
            table::complain(&why.to_string());
            None
        }
    }
}

impl Run {
    /// A run without figures: the description of what is measured, and how.
    fn about(args: &BenchArgs, pattern: Option<Pattern>, ranks: u32, pin: Option<&Bind>) -> Self {
        let axis = pattern.map_or(Axis::None, Pattern::axis);
        let threaded = pattern == Some(Pattern::Multithread);
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            bench: pattern.map_or(args.kind.name(), Pattern::name).to_owned(),
            unit: pattern.map_or("ms", Pattern::unit).to_owned(),
            less_is_better: pattern.is_none_or(Pattern::less_is_better),
            axis: match axis {
                Axis::Bytes => "bytes",
                Axis::Waiting => "waiting",
                Axis::None => "",
            }
            .to_owned(),
            message_bytes: if axis == Axis::Waiting { 8 } else { 0 },
            ranks,
            window: pattern.filter(|p| p.has_windows()).map(|_| args.window()),
            buffers: Some(args.buffers()).filter(|&buffers| buffers > 1),
            alloc: args.alloc,
            cuda: args.cuda,
            scope: args.scope,
            threads: threaded.then_some(args.threads()),
            pin: pin.map(ToString::to_string),
            map: args.map.map(|map| map.name().to_owned()),
            busy: args.busy,
            settings: args::settings(),
            command: BenchArgs::typed(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            began: since.map_or(0, |since| since.as_secs()),
            entries: Vec::new(),
            missing: Vec::new(),
            machine: None,
            phase: None,
            also: Vec::new(),
        }
    }
}

/// Writes a run to the standard output.
fn write(run: &Run, json: bool) {
    show(&if json { lines::of(run) } else { table::of(run) });
}

fn show(text: &str) {
    // A reader that closes the output early does not make the measurement fail.
    let _ = io::stdout().lock().write_all(text.as_bytes());
}

/// The progress bar, shown if the standard error is a terminal.
fn bar(pattern: Pattern, figures: usize) -> ProgressBar {
    let bar = ProgressBar::new(figures as u64).with_message(pattern.name());
    match ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
