//! Waiting ranks: how they wait if they share cores, and how the launcher combines their reports if
//! they wait for each other.

// Ranks talk to the tests through their output.
#![allow(clippy::print_stderr, clippy::print_stdout)]

mod common;
#[path = "common/rank.rs"]
mod rank;

use std::process::ExitCode;

use libtest_mimic::Trial;
use portolan::{Result, World};

/// Options: a time limit, and reports as early as possible without reports of idle waits.
const OPTIONS: [&str; 4] = ["--timeout", "4", "--stuck-after", "0.2"];

fn main() -> ExitCode {
    rank::main(play, || {
        vec![
            Trial::test("two_ranks_that_receive_from_each_other_are_a_cycle", || {
                let outcome = rank::play(&OPTIONS, 2, "embrace");
                outcome.expect_code(124).expect_err(&[
                    "portolan: rank 0 has waited for 0.2 s:\n",
                    "who waits for whom: 2 of 2 ranks have waited for long\n",
                    "\n  rank 0 waits for: receive from rank 1 (context ",
                    "\n  rank 1 waits for: receive from rank 0 (context ",
                    ", tag 7, up to 8 bytes)\n",
                    "\n  cycle: rank 0 → 1 → 0\n",
                    "the job did not end within 4 s",
                ]);
                Ok(())
            }),
            Trial::test("ranks_that_do_not_wait_are_told_apart", || {
                let outcome = rank::play(&OPTIONS, 4, "partial");
                outcome.expect_code(124).expect_err(&[
                    "who waits for whom: 3 of 4 ranks have waited for long\n",
                    "\n  rank 0 waits for: receive from any rank (context ",
                    ", any tag, up to 1 bytes)\n",
                    // The message is too long to be sent eagerly, and no rank receives it.
                    "\n  rank 1 waits for: send to rank 0 (context ",
                    ", tag 3, 8000000 bytes)\n",
                    // A receive that does not know the message's length.
                    "\n  rank 2 waits for: message from rank 3 (context ",
                    "\n  rank 3: not reported: computing, or not waiting for long\n",
                ]);
                assert!(!outcome.err.contains("cycle"), "{outcome:#?}");
                Ok(())
            }),
            Trial::test("ranks_that_share_a_core_give_it_away_at_once", || {
                let allowed = rank::play(&[], 1, "allowed").out;
                let allowed: Vec<&str> = allowed.split_whitespace().collect();
                let first = allowed[0];
                let shared = rank::play(&["--bind", &format!("{first},{first}")], 2, "manner");
                shared.expect_code(0);
                assert_eq!(shared.out.matches("waiting: poll 0 times").count(), 2);
                let Some(second) = allowed.get(1) else {
                    println!("skipped: ranks with cores of their own: there is one core");
                    return Ok(());
                };
                // The second processor may be a hardware thread of the same core. It is a different
                // processor all the same.
                let apart = rank::play(&["--bind", &format!("{first},{second}")], 2, "manner");
                apart.expect_code(0);
                assert_eq!(apart.out.matches("waiting: poll ").count(), 2);
                assert!(!apart.out.contains("poll 0 times"), "{apart:#?}");
                Ok(())
            }),
            Trial::test("who_has_not_come_to_the_start_is_named", || {
                // Long enough that all that come have come.
                let options = ["--timeout", "6", "--stuck-after", "3"];
                for options in [&options[..], &options[..2]] {
                    let outcome = rank::play(options, 3, "absent");
                    outcome.expect_code(124).expect_err(&[
                        "who waits for whom: 2 of 3 ranks have waited for long\n",
                        "\n  rank 1: not there yet: computing, ",
                        "\n  ranks 0, 2: at the start of the job, waiting for the others\n",
                    ]);
                    assert_eq!(outcome.err.matches("who waits").count(), 1, "{outcome:#?}");
                }
                Ok(())
            }),
            Trial::test("nothing_is_said_unless_it_is_asked_for", || {
                let outcome = rank::play(&["--timeout", "2"], 2, "embrace");
                outcome.expect_code(124);
                assert!(!outcome.err.contains("waits for"), "{outcome:#?}");
                Ok(())
            }),
        ]
    })
}

fn play(role: &str) -> ExitCode {
    match role {
        "embrace" => portolan::run(embrace),
        "manner" => portolan::run(manner),
        "absent" if std::env::var("PMI_RANK").as_deref() == Ok("1") => loop {
            std::thread::park();
        },
        "absent" => portolan::run(|_world| -> Result<()> { Ok(()) }),
        "allowed" => {
            for processor in portolan_benches::allowed_processors() {
                println!("{processor}");
            }
            ExitCode::SUCCESS
        }
        _ => portolan::run(partial),
    }
}

fn embrace(world: World) -> Result<()> {
    let comm = world.comm();
    comm.recv_one::<u64>(1 - comm.rank(), 7).map(drop)
}

/// Prints how this rank waits.
fn manner(world: World) -> Result<()> {
    let state = world.describe_state().into_iter();
    for line in state.filter(|line| line.starts_with("waiting: ")) {
        println!("{line}");
    }
    Ok(())
}

fn partial(world: World) -> Result<()> {
    let comm = world.comm();
    match comm.rank() {
        0 => {
            // On a communicator of its own, so that rank 1's message does not match.
            let apart = comm.dup()?;
            let mut byte = [0_u8];
            apart.recv_into(&mut byte, portolan::Source::Any, portolan::Tags::Any)?;
        }
        1 => {
            let _apart = comm.dup()?;
            comm.ssend(&vec![0_u8; 8_000_000], 0, 3)?;
        }
        2 => {
            let apart = comm.dup()?;
            apart.recv::<u8>(3, 9)?;
        }
        _ => {
            let _apart = comm.dup()?;
            loop {
                std::thread::park();
            }
        }
    }
    Ok(())
}
