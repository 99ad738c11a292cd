//! The `portolan` command: starts jobs, measures, and shows what this machine offers.
//!
//! - [`bench`]: measures between ranks.
//! - [`run`]: starts the ranks of a job as processes, speaks PMI-1 to them, ends them together.
//! - [`demo`]: computes something visible, and measures.
//! - [`info`]: version, transports, settings with their origin, important limits.
//! - [`again`]: starts this command again as the ranks of a job, for `bench` and `demo`.
//! - [`os`]: the operating system's calls, behind safe functions.
//!
//! The launcher is one thread around one `poll`. It reads the host's clock for deadlines and
//! time-outs, which nothing above core may do in a rank.

mod again;
mod bench;
mod cli;
mod demo;
mod info;
mod os;
mod run;

use std::process::ExitCode;

use cli::{Cli, Command};

/// For `bench`, which can measure programs that have it.
#[cfg(feature = "shm")]
#[global_allocator]
static ALLOCATOR: portolan::SharedAllocator = portolan::SharedAllocator::new();

fn main() -> ExitCode {
    // Needed because this command waits for every process that it starts.
    os::hear_of_children();
    match Cli::of_this_process().command {
        Command::Bench(args) => bench::main(&args),
        Command::BenchRank(args) => bench::rank_main(&args),
        Command::BenchSpin { processor } => bench::spin(processor),
        Command::Demo(args) => demo::main(&args),
        Command::Info(args) => info::main(&args),
        Command::Run(args) => run::main(&args),
    }
}
