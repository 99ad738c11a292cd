//! The key exchange between ranks and launchers, each side also against foreign ones.
//!
//! This program is both test and rank. If a launcher starts it with a first argument `role:NAME`,
//! it plays a rank (`roles.rs`); otherwise it runs the tests. Portolan's ranks run under `portolan
//! run` and under Hydra (MPICH's `mpiexec`); MPICH's ranks run under `portolan run`. Tests that
//! need MPICH are reported as ignored if it is not installed.

// Ranks talk to the tests through their output.
#![allow(clippy::print_stderr, clippy::print_stdout)]

mod common;
#[path = "pmi/mpich.rs"]
mod mpich;
#[path = "pmi/roles.rs"]
mod roles;

use std::process::{Command, ExitCode, Stdio};

use common::{Outcome, outcome, portolan};
use libtest_mimic::{Arguments, Failed, Trial};

/// Job sizes, as everywhere in this project.
const SIZES: [u32; 6] = [1, 2, 3, 4, 5, 8];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(role) = arguments.get(1).and_then(|word| word.strip_prefix("role:")) {
        return roles::play(role);
    }
    libtest_mimic::run(&Arguments::from_args(), trials()).exit_code()
}

fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial("abort_gives_its_code_and_reason", abort),
        trial(
            "culprit_is_the_rank_that_died_not_the_one_that_noticed",
            culprit,
        ),
        trial("duplicate_key_is_refused", || {
            expect_out("duplicate", 2, "rank 1: refused\n")
        }),
        trial("fence_without_a_rank_that_exited_is_an_error", early_exit),
        trial(
            "fence_without_a_rank_that_has_left_is_an_error",
            early_leave,
        ),
        trial("gone_rank_is_told_to_those_who_go_on", told),
        trial("joining_twice_is_refused", || {
            expect_out("twice", 1, "rank 0: refused\n")
        }),
        trial("noise_instead_of_pmi_is_named", noise),
        trial("nested_job_does_not_take_the_outer_ones_memory", nested),
    ];
    for ranks in SIZES {
        let name = format!("exchange_under_portolan_run_{ranks}");
        trials.push(Trial::test(name, move || {
            exchange(portolan(&["run"]), ranks, "portolan run")
        }));
    }
    trials.extend(mpich::trials());
    trials
}

fn trial(name: &str, test: fn() -> Result<(), Failed>) -> Trial {
    Trial::test(name, test)
}

/// `launcher -n RANKS (--) THIS role:ROLE`.
fn play(mut launcher: Command, ranks: u32, role: &str) -> Outcome {
    let me = std::env::current_exe().expect("a program knows its own file");
    launcher
        .args(["-n", &ranks.to_string()])
        .arg(me)
        .arg(format!("role:{role}"));
    launcher.stdout(Stdio::piped()).stderr(Stdio::piped());
    outcome(launcher, b"")
}

fn expect_out(role: &str, ranks: u32, out: &str) -> Result<(), Failed> {
    let outcome = play(portolan(&["run"]), ranks, role);
    outcome.expect_code(0);
    assert_eq!(outcome.out, out, "{outcome:#?}");
    Ok(())
}

/// Every rank gets what every other rank has put: short, empty, odd and long texts, in several
/// rounds.
fn exchange(launcher: Command, ranks: u32, kind: &str) -> Result<(), Failed> {
    let outcome = play(launcher, ranks, "exchange");
    outcome.expect_code(0);
    let expected: Vec<_> = (0..ranks)
        .map(|rank| format!("rank {rank} of {ranks} under pmi-1 ({kind}): exchanged"))
        .collect();
    assert_eq!(outcome.sorted(), expected, "{outcome:#?}");
    Ok(())
}

fn abort() -> Result<(), Failed> {
    let outcome = play(portolan(&["run"]), 3, "abort");
    outcome.expect_code(33);
    outcome.expect_err(&[
        "rank 1 (pid ",
        "aborted the job with code 33: no luck today",
    ]);
    outcome.expect_err(&["; ended the other 2 ranks"]);
    Ok(())
}

fn culprit() -> Result<(), Failed> {
    let outcome = play(portolan(&["run"]), 2, "notice");
    outcome
        .expect_code(137)
        .expect_err(&["rank 1 (pid ", "killed by signal 9"]);
    Ok(())
}

fn early_exit() -> Result<(), Failed> {
    let outcome = play(portolan(&["run"]), 3, "exit-early");
    outcome.expect_code(1);
    outcome.expect_err(&["rank 2 (pid ", "exited without leaving the job, and rank "]);
    Ok(())
}

fn early_leave() -> Result<(), Failed> {
    let outcome = play(portolan(&["run"]), 2, "leave-early");
    outcome.expect_code(1);
    outcome.expect_err(&[
        "rank 1 (pid ",
        "has left the job, and rank 0 waits for it in a fence",
    ]);
    Ok(())
}

fn told() -> Result<(), Failed> {
    let outcome = play(
        portolan(&["run", "--on-failure", "return"]),
        3,
        "exit-early",
    );
    outcome.expect_code(0);
    let error = "rank 2 ended before the fence that this rank waits in";
    assert_eq!(
        outcome.sorted(),
        [format!("rank 0: {error}"), format!("rank 1: {error}")]
    );
    Ok(())
}

fn noise() -> Result<(), Failed> {
    let outcome = play(portolan(&["run"]), 2, "noise");
    outcome.expect_code(1);
    outcome.expect_err(&["rank 0 (pid ", "does not speak PMI-1 on PMI_FD: ", "GET"]);
    Ok(())
}

/// A job inside a rank of another job. The outer job's variables are present, but not used.
fn nested() -> Result<(), Failed> {
    let me = std::env::current_exe().expect("a program knows its own file");
    let mut outer = portolan(&[
        "run",
        "-n",
        "1",
        env!("CARGO_BIN_EXE_portolan"),
        "run",
        "-n",
        "2",
    ]);
    outer.arg(me).arg("role:exchange");
    let outcome = outcome(outer, b"");
    outcome.expect_code(0);
    assert_eq!(outcome.out.lines().count(), 2, "{outcome:#?}");
    Ok(())
}
