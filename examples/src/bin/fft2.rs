//! The two-dimensional Fourier transform of a picture.
//!
//! Shows a transpose by an alltoall with counts, and gathering to rank 0; the steps are in
//! `src/spectrum/`. The result is checked by Parseval's identity and by the inverse transform.
//!
//! ```text
//! portolan run -n 4 -- target/release/fft2 --size 512 --output spectrum.png
//! ```

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use portolan::World;
use portolan_examples::spectrum;

/// Transforms a pattern and draws it with its spectrum.
#[derive(Debug, Parser)]
struct Options {
    /// Points in each direction
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    size: u32,

    /// The picture
    #[arg(long, default_value = "spectrum.png")]
    output: PathBuf,
}

fn main() -> ExitCode {
    let options = Options::parse();
    portolan::run(|world| program(&world, &options))
}

fn program(world: &World, options: &Options) -> Result<(), Box<dyn Error + Send + Sync>> {
    let report = spectrum::run(&world.comm(), options.size as usize)?;
    if world.rank() == 0 {
        let size = report.size;
        println!("{size} x {size} points");
        println!("Parseval's identity holds to {:.1e}", report.parseval);
        println!("back again to {:.1e}", report.back);
        report.write_png(&options.output)?;
        println!("picture: {}", options.output.display());
    }
    if report.is_right() {
        return Ok(());
    }
    Err("the result is not as exact as it should be: please report it".into())
}
