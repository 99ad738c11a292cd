//! A job in a control group that has less memory than the job requests. The job gets an error, and
//! is neither killed nor hit by a signal.
//!
//! The tests create a control group below their own and put the launcher into it. If they may not,
//! they are skipped, and say so.

// Ranks talk to the tests through their output, and tests of what they skip.
#![allow(clippy::print_stderr, clippy::print_stdout)]

mod common;
#[path = "common/group.rs"]
mod group;
#[path = "common/rank.rs"]
mod rank;

use std::process::ExitCode;

use common::{Outcome, outcome};
use group::MemoryGroup;
use libtest_mimic::{Failed, Trial};
use portolan::{Result, World};

/// The group's memory in bytes: enough for programs and libraries, and a little to share.
const LIMIT: u64 = 96 << 20;

fn main() -> ExitCode {
    rank::main(
        |_| portolan::run(|world| everybody_to_everybody(&world)),
        trials,
    )
}

fn trials() -> Vec<Trial> {
    vec![
        Trial::test("a_job_that_is_too_large_is_told_so", || {
            // Each of 56 pairs would share that much, and has nothing smaller to fall back on.
            in_group("too large", &["--env", "PORTOLAN_SHM_RING=4M"], |outcome| {
                assert!(
                    !matches!(outcome.code, Some(0 | 124) | None),
                    "{outcome:#?}"
                );
                outcome.expect_err(&["of shared memory, but", "the control group's limit"]);
                let struck = outcome.err.contains("killed by signal");
                assert!(!struck, "a rank was struck: {outcome:#?}");
            })
        }),
        Trial::test("a_job_that_fits_runs", || {
            in_group("that fits", &[], |outcome| {
                outcome.expect_code(0);
            })
        }),
    ]
}

/// Runs a job of eight ranks in a group, and checks whether the kernel killed a process.
fn in_group(
    what: &str,
    options: &[&str],
    judge: impl Fn(&Outcome),
) -> std::result::Result<(), Failed> {
    let group = match MemoryGroup::new(LIMIT) {
        Ok(group) => group,
        Err(why) => {
            eprintln!("skipped: a job {what} in a control group: {why}");
            return Ok(());
        }
    };
    let mut command = rank::command(&[&["--timeout", "60"], options].concat(), 8, "all");
    group.hold(&mut command);
    judge(&outcome(command, b""));
    assert_eq!(
        group.killed(),
        0,
        "processes were killed for want of memory"
    );
    assert!(rank::shared_files().is_empty());
    Ok(())
}

/// Every pair of ranks shares memory, and fills it.
fn everybody_to_everybody(world: &World) -> Result<()> {
    let comm = world.comm();
    let (rank, size) = (world.rank(), world.size());
    let sent = vec![rank; 1 << 18];
    let mut received = sent.clone();
    for distance in 1..size {
        let (to, from) = ((rank + distance) % size, (rank + size - distance) % size);
        comm.scope(|scope| {
            let sending = scope.send(&sent[..], to, 1)?;
            comm.recv_into(&mut received, from, 1)?;
            sending.wait()
        })?;
        assert!(received.iter().all(|&word| word == from));
    }
    Ok(())
}
