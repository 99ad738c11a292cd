//! `portolan demo`: four processes compute something visible, and the connection between processes
//! is measured.
//!
//! Starts two kinds of jobs of this command itself, one after the other: first the heat equation,
//! then latency and bandwidth between two ranks ([`bench`](crate::bench)). The first job that fails
//! ends the demo with its exit code.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use portolan::World;
use portolan_examples::heat::{self, HeatConfig, HeatReport};

use crate::again::{self, Again};
use crate::bench;
use crate::cli::{Cli, Command, DemoArgs};

/// Prefix of the lines in a device's state that say what its transport has chosen.
const TRANSPORT: &str = "transport ";

/// Starts the jobs, or runs one rank of the first.
pub(crate) fn main(args: &DemoArgs) -> ExitCode {
    if again::is_rank() {
        return bench::builder().run(|world| rank(args, &world));
    }
    let heat = Again {
        ranks: args.ranks,
        bind: None,
        transport: args.transport.clone(),
        // Makes the job report what was chosen, and why.
        variables: vec![("PORTOLAN_REPORT".to_owned(), "on".to_owned())],
        words: std::env::args_os().skip(1).collect(),
    };
    match heat.run() {
        0 => {}
        code => return ExitCode::from(code),
    }
    for (bench, sizes) in [
        ("latency", "8,1k,8k,64k,1M"),
        ("bandwidth", "1k,8k,64k,1M,4M"),
    ] {
        let code = measure(args, bench, sizes);
        if code != ExitCode::SUCCESS {
            return code;
        }
    }
    ExitCode::SUCCESS
}

/// Runs a short `portolan bench`, as if it had been typed.
fn measure(args: &DemoArgs, bench: &str, sizes: &str) -> ExitCode {
    // It does not matter if the empty line cannot be written.
    let _ = writeln!(io::stdout());
    let words = ["portolan", "bench", bench, "--sizes", sizes];
    let limits = ["--repeat", "3", "--seconds", "0.2"];
    let transport = args.transport.iter().flat_map(|name| ["--transport", name]);
    match Cli::parse_from(words.into_iter().chain(limits).chain(transport)).command {
        Command::Bench(bench) => crate::bench::main(&bench),
        other => unreachable!("a bench was asked for, not {other:?}"),
    }
}

/// Computes with the other ranks. Rank 0 also draws the picture and reports.
fn rank(args: &DemoArgs, world: &World) -> Result<(), Box<dyn Error + Send + Sync>> {
    let config = HeatConfig {
        size: args.size as usize,
        steps: args.steps,
    };
    // The bar draws nothing if the standard error is not a terminal.
    let bar = if world.rank() == 0 {
        ProgressBar::new(args.steps.into())
    } else {
        ProgressBar::hidden()
    };
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} steps {eta}") {
        bar.set_style(style);
    }
    let report = heat::run(&world.comm(), &config, |step| bar.set_position(step.into()))?;
    bar.finish_and_clear();
    let Some(field) = &report.field else {
        return Ok(());
    };
    field.write_png(&args.output)?;
    let picture = std::path::absolute(&args.output)?;
    tell(world, &report)?;
    writeln!(io::stdout(), "picture: {}", picture.display())?;
    if report.is_right() {
        Ok(())
    } else {
        Err("the result is wrong: please report it".into())
    }
}

/// Reports what was chosen, what was computed, and how accurate it is.
fn tell(world: &World, report: &HeatReport) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let facts = world.describe_state().into_iter();
    for fact in facts.filter_map(|line| line.strip_prefix(TRANSPORT).map(str::to_owned)) {
        writeln!(out, "  {fact}")?;
    }
    let (down, across) = report.blocks;
    writeln!(
        out,
        "\n# heat equation, {size} × {size} points, {steps} steps, {ranks} ranks in {down} × {across} \
         blocks\n{seconds:.2} s, {rate:.0} million points per second\nlargest error against the analytic \
         solution {error:.2e}, the scheme's own is {bound:.2e}",
        size = report.config.size,
        steps = report.config.steps,
        ranks = world.size(),
        seconds = report.seconds,
        rate = report.points_per_second() / 1e6,
        error = report.error,
        bound = report.error_bound,
    )
}
