//! Invalid input, from the command line to the program's calls. It must end with an error that
//! names the rank, the value and the remedy, with an exit code that is not 0, and with nothing left
//! behind.

// Ranks talk to the tests through their output.
#![allow(clippy::print_stderr, clippy::print_stdout)]

mod common;
#[path = "bad_input/over_ofi.rs"]
mod over_ofi;
#[path = "common/rank.rs"]
mod rank;

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

use common::Outcome;
use libtest_mimic::Trial;
use portolan::coll::Allreduce;
use portolan::{Op, Result, World};
use portolan_core::config::Settings;
use portolan_core::level::Single;
use portolan_core::matching::Pattern;
use portolan_core::transport::memory;
use portolan_core::{Adi, Engine};

fn main() -> ExitCode {
    rank::main(play, trials)
}

/// A setting or option, and what the error message must contain.
const SETTINGS: [(&str, &[&str], i32, &[&str]); 5] = [
    (
        "bad_size",
        &["--env", "PORTOLAN_EAGER_MAX=lots"],
        125,
        &["PORTOLAN_EAGER_MAX", "`lots`"],
    ),
    (
        "bad_switch",
        &["--env", "PORTOLAN_SHM_CMA=maybe"],
        125,
        &["PORTOLAN_SHM_CMA", "`maybe`"],
    ),
    (
        "bad_time",
        &["--env", "PORTOLAN_STUCK_AFTER=soon"],
        125,
        &["PORTOLAN_STUCK_AFTER", "`soon` is not a time in seconds"],
    ),
    (
        "bad_policy",
        &["--env", "PORTOLAN_ON_FAILURE=ignore"],
        125,
        &["PORTOLAN_ON_FAILURE", "`ignore`"],
    ),
    (
        "bad_option",
        &["--stuck-after", "soon"],
        2,
        &["--stuck-after", "not a time in seconds"],
    ),
];

/// An invalid call of rank 1, and what its error message must contain.
const CALLS: [(&str, &[&str]); 6] = [
    (
        "rank",
        &["error: rank 1 (shm): destination 7 ", "use ranks 0 to 1"],
    ),
    (
        "tag",
        &["error: rank 1 (shm): tag 4294967295 ", "use tags 0 to "],
    ),
    (
        "root",
        &["error: rank 1 (shm): bcast: root 9 ", "use ranks 0 to 1"],
    ),
    ("types", &["error: rank 1 (shm): ", "type"]),
    ("truncated", &["error: rank 1 (shm): ", "64", "16"]),
    ("foreign", &["error: rank 1: no input today"]),
];

/// Collective calls in which rank 1 of 3 differs from the others, in the debug mode of collectives,
/// and what the error message must contain.
const DIFFERENCES: [(&str, &str); 4] = [
    (
        "operation",
        "rank 1 calls a blocking barrier, rank 0 calls a blocking bcast",
    ),
    (
        "root",
        "rank 1 calls bcast with root 1, rank 0 calls bcast with root 0",
    ),
    (
        "count",
        "rank 1 calls bcast with 8 bytes, rank 0 calls bcast with 16 bytes",
    ),
    (
        "type",
        "rank 1 calls bcast with values of F32, rank 0 calls bcast with values of U32",
    ),
];

fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, says) in DIFFERENCES {
        trials.push(Trial::test(format!("compared_{name}"), move || {
            let options = ["--env", "PORTOLAN_COLL_CHECK=on"];
            let outcome = job(&options, 3, &format!("compared_{name}"));
            // The first rank that notices the error ends the job.
            outcome.expect_code(1).expect_err(&["error: rank ", says]);
            assert!(rank::shared_files().is_empty());
            Ok(())
        }));
    }
    trials.push(Trial::test("operator_that_panics_inside_progress", || {
        let outcome = job(&[], 2, "panicking");
        // SIGABRT.
        outcome.expect_code(134).expect_err(&[
            "this operator panics",
            "a panic came out of the device during an operator of a collective operation",
            "was killed by signal 6",
        ]);
        assert!(rank::shared_files().is_empty());
        Ok(())
    }));
    trials.push(Trial::test("report_that_panics_inside_a_receive", || {
        let outcome = job(&[], 2, "panicking_report");
        outcome.expect_code(134).expect_err(&[
            "this report panics",
            "a panic came out of the device during a ",
            "was killed by signal 6",
        ]);
        Ok(())
    }));
    for (name, options, code, says) in SETTINGS {
        trials.push(Trial::test(name, move || {
            let outcome = job(options, 2, "nothing");
            outcome.expect_code(code).expect_err(says);
            assert_eq!(outcome.out, "");
            Ok(())
        }));
    }
    for (name, says) in CALLS {
        trials.push(Trial::test(format!("call_{name}"), move || {
            let outcome = job(&[], 2, name);
            outcome.expect_code(1).expect_err(says);
            outcome.expect_err(&["rank 1 (pid ", "exited with code 1"]);
            assert!(rank::shared_files().is_empty());
            Ok(())
        }));
    }
    trials.push(Trial::test("unknown_transport", || {
        let outcome = job(&["--transport", "pigeons", "--label"], 3, "nothing");
        outcome.expect_code(1);
        let labelled = |rank: u32| {
            let label = format!("[{rank}] ");
            let lines = outcome
                .err
                .lines()
                .filter_map(|line| line.strip_prefix(&label));
            lines.collect::<Vec<_>>().join("\n")
        };
        // A rank that was ended because of the first failure prints nothing.
        let texts: Vec<_> = (0..3)
            .map(labelled)
            .filter(|text| !text.is_empty())
            .collect();
        assert!(!texts.is_empty(), "{outcome:#?}");
        for text in &texts {
            assert_eq!(text, &texts[0], "{outcome:#?}");
        }
        outcome.expect_err(&[
            "transport `pigeons` was requested (PORTOLAN_TRANSPORT=pigeons) but is not usable",
            // Other transports are not checked: which are compiled in depends on the features that
            // the workspace's tests enable.
            "compiled in: shm",
            "usable here: shm",
            "fix: ",
        ]);
        Ok(())
    }));
    trials.push(Trial::test(
        "misspelt_setting_warns_once_with_the_nearest",
        || {
            let outcome = job(&["--env", "PORTOLAN_EAGR_MAX=8K"], 3, "nothing");
            outcome.expect_code(0);
            outcome.expect_err(&["PORTOLAN_EAGR_MAX", "PORTOLAN_EAGER_MAX"]);
            assert_eq!(outcome.err.matches("warning").count(), 1, "{outcome:#?}");
            Ok(())
        },
    ));
    trials.push(Trial::test("better_transport_that_cannot_be_used", || {
        let wrapped = |options: &[&str]| {
            let options = [&["--timeout", "30"], options].concat();
            let plain = rank::command(&options, 2, "nothing");
            let mut limited = std::process::Command::new("sh");
            limited
                .args(["-c", "ulimit -f 1000 && exec \"$0\" \"$@\""])
                .arg(plain.get_program())
                .args(plain.get_args());
            common::outcome(common::of_ours(limited), b"")
        };
        let outcome = wrapped(&[]);
        if outcome.err.contains("no transport is usable") {
            println!("skipped: a transport in place of a better one: there is no other");
            return Ok(());
        }
        outcome.expect_code(0).expect_err(&[
            "portolan: warning: the transport is ofi, because a better one cannot be used: shm: ",
            "ulimit -f",
            "(PORTOLAN_TRANSPORT=ofi asks for it without this warning)",
        ]);
        assert_eq!(outcome.err.matches("warning: ").count(), 1, "{outcome:#?}");
        let asked = wrapped(&["--transport", "ofi"]);
        asked.expect_code(0);
        assert!(!asked.err.contains("warning"), "{asked:#?}");
        Ok(())
    }));
    trials.push(Trial::test("forked_child_that_drops_the_world", || {
        job(&[], 2, "forking").expect_code(0);
        Ok(())
    }));
    trials.push(Trial::test("job_larger_than_memory", || {
        // With 32 ranks, the memory that each pair of ranks shares exceeds that limit.
        let outcome = job(&["--env", "PORTOLAN_SHM_MAX=1M"], 32, "nothing");
        assert!(
            !matches!(outcome.code, Some(0 | 124) | None),
            "{outcome:#?}"
        );
        outcome.expect_err(&["too small for 32 ranks", "raise PORTOLAN_SHM_MAX"]);
        assert!(rank::shared_files().is_empty());
        Ok(())
    }));
    trials.extend(over_ofi::trials());
    trials
}

/// A job with a time-out: one that hangs ends with a code that no test expects.
fn job(options: &[&str], ranks: u32, role: &str) -> Outcome {
    rank::play(&[&["--timeout", "30"], options].concat(), ranks, role)
}

fn play(role: &str) -> ExitCode {
    match role {
        "foreign" => portolan::run(|world: World| match world.rank() {
            1 => Err("no input today".into()),
            _ => Ok::<(), Box<dyn std::error::Error + Send + Sync>>(()),
        }),
        "forking" => portolan::run(forking),
        _ => portolan::run(|world| act(role, &world)),
    }
}

/// Rank 1 makes the error; rank 0 does what rank 1's call needs.
/// Rank 0 starts a child that is not another program, and that drops what it has of the job.
fn forking(world: World) -> Result<()> {
    if world.rank() == 0 {
        // SAFETY: the child makes no call on a communicator, and ends without running anything
        // else of this process.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(world);
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: the child is this process's, and there is room for its status.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((waited, status), (child, 0));
    }
    // The rank that has the child goes on, and so does the other.
    let comm = world.comm();
    let sum = comm.allreduce_one(comm.rank() + 1, &Op::SUM)?;
    assert_eq!(sum, 3);
    let all = comm.allgather_vecs(&vec![comm.rank(); 100_000])?;
    assert_eq!(all[1][99_999], 1);
    Ok(())
}

fn act(role: &str, world: &World) -> Result<()> {
    let comm = world.comm();
    let wrong = comm.rank() == 1;
    let data = [7_u8; 64];
    match role {
        "rank" if wrong => comm.send(&data, 7, 0),
        "tag" if wrong => comm.send(&data, 0, u32::MAX),
        "root" if wrong => comm.bcast(&mut [0_u8; 4], 9),
        "types" if wrong => comm.recv_into(&mut [0_f64; 8], 0, 0).map(drop),
        "truncated" if wrong => comm.recv_into(&mut [0_u8; 16], 0, 0).map(drop),
        "compared_operation" if wrong => comm.barrier(),
        "compared_root" if wrong => comm.bcast(&mut [0_u32; 4], 1),
        "compared_count" if wrong => comm.bcast(&mut [0_u32; 2], 0),
        "compared_type" if wrong => comm.bcast(&mut [0_f32; 4], 0),
        "compared_operation" | "compared_root" | "compared_count" | "compared_type" => {
            comm.bcast(&mut [0_u32; 4], 0)
        }
        "panicking" => {
            let op = Op::new(true, |_: u8, _: u8| -> u8 {
                panic!("this operator panics")
            });
            let sum = Allreduce::new(vec![1_u8], vec![0_u8], op);
            comm.start_owned(sum)?.wait()?;
            Ok(())
        }
        "panicking_report" => {
            wait_for_ever();
            Ok(())
        }
        "types" => comm.send(&[7_u64; 8], 1, 0),
        "truncated" => comm.send(&data, 1, 0),
        _ => Ok(()),
    }
}

/// Waits, on a device of its own, for a message that never comes, into a buffer whose life would
/// end with a panic.
fn wait_for_ever() {
    let mut settings = Settings::default();
    settings.set("STUCK_AFTER", "0.01").expect("a time");
    let mut network = memory::network(2).into_iter();
    // The other one stays: a receive from a rank that has left ends at once.
    let (own, _other) = (network.next().expect("two ranks"), network.next());
    let device: Engine<_, Single> = Engine::new(own, &settings).expect("an engine");
    device.on_stuck(Box::new(|_| panic!("this report panics")));
    let pattern = Pattern {
        context: 0,
        source: Some(1),
        tag: None,
    };
    let receive = || device.recv_contig(&pattern, &mut [0; 8]).map(drop);
    let _ = std::panic::catch_unwind(AssertUnwindSafe(receive));
}
