//! The heat equation in two dimensions: halo exchange of blocks, and a picture of the result.
//!
//! Shows borrowed buffers in nonblocking operations (a scope), a derived column type, and
//! computation while messages are under way; the solver is in `src/heat/`. The result is checked
//! against the analytic solution.
//!
//! ```text
//! portolan run -n 4 -- target/release/heat --size 512 --steps 1000 --output heat.png
//! ```

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use portolan::World;
use portolan_examples::heat::{self, HeatConfig};

/// Solves the heat equation on a square plate and draws the plate before and after.
#[derive(Debug, Parser)]
struct Options {
    /// Inner points of the grid in each direction
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    size: u32,

    /// Time steps
    #[arg(long, default_value_t = 1000)]
    steps: u32,

    /// The picture
    #[arg(long, default_value = "heat.png")]
    output: PathBuf,
}

fn main() -> ExitCode {
    let options = Options::parse();
    portolan::run(|world| program(&world, &options))
}

fn program(world: &World, options: &Options) -> Result<(), Box<dyn Error + Send + Sync>> {
    let output = options.output.display();
    if world.rank() == 0 {
        // Opened before the work, which would be lost if the picture could not be written.
        let mut file = OpenOptions::new();
        file.write(true).create(true).truncate(false);
        file.open(&options.output)
            .map_err(|e| format!("cannot write `{output}`: {e}; give another --output"))?;
    }
    let config = HeatConfig {
        size: options.size as usize,
        steps: options.steps,
    };
    let report = heat::run(&world.comm(), &config, |_| {})?;
    let Some(field) = &report.field else {
        return Ok(());
    };
    field.write_png(&options.output)?;
    let (down, across) = report.blocks;
    println!(
        "{0} × {0} points, {1} steps, {down} × {across} blocks: {2:.1} million points per second",
        config.size,
        config.steps,
        report.points_per_second() / 1e6
    );
    println!(
        "largest error {:.3e}; the numerical scheme's own is {:.3e}",
        report.error, report.error_bound
    );
    println!("picture: {output}");
    if report.is_right() {
        Ok(())
    } else {
        Err("the result is wrong: please report it".into())
    }
}
