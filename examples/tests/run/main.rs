//! Every example under `portolan run`, at several numbers of ranks, with its output checked; and
//! the examples with wrong input.

// Tests print why they are skipped here.
#![allow(clippy::print_stderr)]

mod bad_input;
mod command;
#[cfg(feature = "cuda")]
mod gpu;
#[path = "../networks/mod.rs"]
mod networks;
mod programs;
mod spectrum;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = programs::trials();
    trials.extend(bad_input::trials());
    #[cfg(feature = "cuda")]
    trials.extend(gpu::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}
