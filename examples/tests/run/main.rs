//! Every example under `portolan run`, at several numbers of ranks, with its output checked; and
//! what they do with input that is wrong.

// What cannot be tested here is said.
#![allow(clippy::print_stderr)]

mod bad_input;
mod command;
#[path = "../networks/mod.rs"]
mod networks;
mod programs;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = programs::trials();
    trials.extend(bad_input::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}
