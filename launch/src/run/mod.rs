//! `portolan run`: starts the ranks of a job, serves them, and ends them together.
//!
//! ```text
//! plan ─▶ start ─▶ event_loop ─▶ exit code
//!                   │ signals: children that ended, signals to pass on
//!                   │ pmi:     the ranks' requests (server.rs answers)
//!                   │ output:  lines of the ranks, with their labels
//!                   │ stdin:   the terminal, for rank 0
//!                   │ stuck:   who waits for whom, of ranks that have waited for long
//!                   └ verdict: who failed first, and what is said about it
//! ```
//!
//! **Invariant:** one thread, no locks, no asynchronous runtime. The only call that blocks is
//! `poll`, so the launcher reacts to signals and deadlines at once, whatever the ranks do.
//!
//! Several mechanisms keep processes from being left behind:
//!
//! - The ranks are in one process group led by a [`Guard`](crate::os::Guard), and die with the
//!   launcher (`PR_SET_PDEATHSIG`).
//! - When the launcher ends, however it ends, the guard kills the rest of the group and processes
//!   elsewhere that have joined the job as ranks. It also removes the files that foreign libraries
//!   of the ranks have left.
//! - Processes that have left the group are adopted by the launcher when their parents die, and
//!   killed when the job is over. Descendants of children that this process already had are left
//!   alone (`strangers.rs`).

mod bind;
mod event_loop;
pub(crate) mod leftovers;
mod output;
mod pmi;
mod rank;
mod shm;
mod start;
mod stdin;
mod strangers;
mod stuck;
mod verdict;

pub(crate) use bind::{Bind, cores, siblings};
pub(crate) use verdict::say;

use std::process::ExitCode;

use crate::cli::RunArgs;

/// Runs the job that `args` describe.
pub(crate) fn main(args: &RunArgs) -> ExitCode {
    ExitCode::from(run(args))
}

/// Runs a job to its end and returns its exit code. Can be called again for the next job.
pub(crate) fn run(args: &RunArgs) -> u8 {
    match start::start(args) {
        Ok(job) => event_loop::run(job),
        Err(failure) => {
            say(&failure.text);
            failure.code
        }
    }
}
