//! Poisson's equation on a square by conjugate gradients.
//!
//! Shows a Cartesian communicator, a neighbour collective for halos, and sums over all ranks; the
//! solver is in `src/poisson.rs`. The result is compared with the known solution.
//!
//! ```text
//! portolan run -n 4 -- target/release/poisson --size 255
//! ```

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use portolan::World;
use portolan_examples::{poisson, tolerance};

/// Solves −Δu = f on the unit square.
#[derive(Debug, Parser)]
struct Options {
    /// Inner points of the grid in each direction
    #[arg(long, default_value_t = 255, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    size: u32,

    /// How much smaller the residual has to become
    #[arg(long, default_value_t = 1e-10, value_parser = tolerance, allow_hyphen_values = true)]
    tolerance: f64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    portolan::run(|world| program(&world, &options))
}

fn program(world: &World, options: &Options) -> Result<(), Box<dyn Error + Send + Sync>> {
    let report = poisson::solve(&world.comm(), options.size as usize, options.tolerance)?;
    if world.rank() == 0 {
        println!("{report}");
    }
    if report.is_right() {
        return Ok(());
    }
    Err(
        "the error is larger than that of the scheme: lower --tolerance, else please report it"
            .into(),
    )
}
