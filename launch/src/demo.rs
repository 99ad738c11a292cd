//! `portolan demo`: four processes compute something that can be seen, and what they talk through
//! is measured.
//!
//! Three jobs of this command itself, one after the other: the heat equation, then the latency and
//! the bandwidth between two ranks. The first that fails ends the demo with its exit code.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use portolan::World;
use portolan_examples::heat::{self, HeatConfig};

use crate::again::{self, Again};
use crate::cli::DemoArgs;

/// Starts the jobs, or is a rank of the first.
pub(crate) fn main(args: &DemoArgs) -> ExitCode {
    if again::is_rank() {
        return portolan::run(|world| rank(args, &world));
    }
    let heat = Again {
        ranks: args.ranks,
        bind: None,
        transport: args.transport.clone(),
        // Says what was chosen, and why.
        variables: vec![("PORTOLAN_REPORT".to_owned(), "on".to_owned())],
        words: std::env::args_os().skip(1).collect(),
    };
    let bench = |words: &[&str]| Again {
        ranks: 2,
        variables: Vec::new(),
        words: words.iter().map(Into::into).collect(),
        ..heat.clone()
    };
    let latency = bench(&[
        "bench",
        "latency",
        "--seconds",
        "0.1",
        "--bytes",
        "8,1k,64k,1M",
    ]);
    let bandwidth = bench(&[
        "bench",
        "bandwidth",
        "--seconds",
        "0.1",
        "--bytes",
        "1k,64k,1M,4M",
    ]);
    let codes = [heat, latency, bandwidth].into_iter().map(Again::run);
    ExitCode::from(codes.into_iter().find(|&code| code != 0).unwrap_or(0))
}

/// Computes with the others; rank 0 draws and tells.
fn rank(args: &DemoArgs, world: &World) -> Result<(), Box<dyn Error + Send + Sync>> {
    let config = HeatConfig {
        size: args.size as usize,
        steps: args.steps,
    };
    // Nothing is drawn where the standard error is no terminal.
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
    let (down, across) = report.blocks;
    writeln!(
        io::stdout(),
        "# heat equation, {size} × {size} points, {steps} steps, {ranks} ranks in {down} × {across} \
         blocks\n{seconds:.2} s, {rate:.0} million points per second; largest error {error:.2e}, the \
         scheme's own is {bound:.2e}\npicture: {picture}",
        size = config.size,
        steps = config.steps,
        ranks = world.size(),
        seconds = report.seconds,
        rate = report.points_per_second() / 1e6,
        error = report.error,
        bound = report.error_bound,
        picture = picture.display(),
    )?;
    if report.is_right() {
        Ok(())
    } else {
        Err("the result is wrong: please report it".into())
    }
}
