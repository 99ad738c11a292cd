//! Two ranks take turns in collective operations, so that instructions can be counted.
//!
//! `step_collectives WHAT ROUNDS` does ROUNDS rounds of operations of 8 bytes over shared memory,
//! after as many to warm up. WHAT is the step to count, as in `step`. (It is a program of its own
//! because the compiler's choice of what to inline into a function depends on where else that code
//! is used.)
//!
//! Each rank has a thread of its own, because both ranks must take part when a board is made. Rank
//! 1 is counted, from the beginning of a call to its end. Rank 0 has shown its part before, so the
//! counted code never waits.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Barrier;

use portolan::coll::{self, Allreduce, Bcast, Collective, Gather};
use portolan::{Builder, Comm, Op, Result, World};

/// The steps that can be counted, each called once in a round: two blocking operations, in one of
/// which rank 1 receives and in the other contributes, and nonblocking ones, started in a scope and
/// waited for.
const STEPS: [&str; 6] = [
    "bcast",
    "gather",
    "ibcast",
    "igather",
    "ibarrier",
    "iallreduce",
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let parsed = match &words[..] {
        [what, rounds] if STEPS.contains(&what.as_str()) => rounds.parse().ok(),
        _ => None,
    };
    let Some(rounds) = parsed.filter(|&rounds: &u32| rounds > 0) else {
        complain(&format!(
            "usage: step_collectives {} ROUNDS",
            STEPS.join("|")
        ));
        return ExitCode::from(2);
    };
    match run(&words[0], rounds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "this is where it talks to its user")]
fn complain(text: &str) {
    eprintln!("step_collectives: {text}");
}

/// Runs the rounds; the second half of them counts.
fn run(what: &str, rounds: u32) -> Result<()> {
    let turn = Barrier::new(2);
    let body = |world: World| {
        let comm = world.comm();
        comm.barrier()?;
        for round in 0..2 * rounds {
            let value = u64::from(round);
            for step in STEPS {
                if comm.rank() == 0 {
                    show(&comm, step, value, &turn)?;
                    continue;
                }
                turn.wait();
                if round >= rounds && step == what {
                    measured(&comm, step, value)?;
                } else {
                    take(&comm, step, value)?;
                }
                turn.wait();
            }
        }
        Ok(())
    };
    Builder::new().transport("shm").try_threads(2, body)?;
    Ok(())
}

/// The part of rank 0: shows its contribution, lets rank 1 have its turn, and completes the
/// operation.
fn show(comm: &Comm, step: &str, value: u64, turn: &Barrier) -> Result<()> {
    let (mut mine, mut all, mut sum) = ([value], [0; 2], [0]);
    let theirs = || {
        turn.wait();
        turn.wait();
    };
    match step {
        "bcast" => {
            comm.bcast(&mut mine, 0)?;
            theirs();
        }
        "gather" => {
            // Rank 0 is the root here and would wait, so it comes last.
            theirs();
            comm.gather(&mine, &mut all, 0)?;
            assert_eq!(all, [value; 2]);
        }
        "ibcast" => around(comm, Bcast::new(&mut mine, 0), theirs)?,
        "igather" => {
            around(comm, Gather::new(&mine, &mut all, 0), theirs)?;
            assert_eq!(all, [value; 2]);
        }
        "ibarrier" => around(comm, coll::Barrier::new(), theirs)?,
        _ => {
            around(comm, Allreduce::new(&mine, &mut sum, Op::SUM), theirs)?;
            assert_eq!(sum, [2 * value]);
        }
    }
    Ok(())
}

/// Starts an operation, calls `other`, and waits for the operation.
fn around<C: Collective>(comm: &Comm, call: C, other: impl FnOnce()) -> Result<()> {
    comm.scope(|scope| {
        let started = scope.start(call)?;
        other();
        started.wait().map(drop)
    })
}

/// The part of rank 1 in a counted round.
fn measured(comm: &Comm, step: &str, value: u64) -> Result<()> {
    let measured = match step {
        "bcast" => measured_bcast,
        "gather" => measured_gather,
        "ibcast" => measured_ibcast,
        "igather" => measured_igather,
        "ibarrier" => measured_ibarrier,
        _ => measured_iallreduce,
    };
    measured(comm, black_box(value))
}

#[inline(never)]
fn measured_bcast(comm: &Comm, value: u64) -> Result<()> {
    take(comm, "bcast", value)
}

#[inline(never)]
fn measured_gather(comm: &Comm, value: u64) -> Result<()> {
    take(comm, "gather", value)
}

#[inline(never)]
fn measured_ibcast(comm: &Comm, value: u64) -> Result<()> {
    take(comm, "ibcast", value)
}

#[inline(never)]
fn measured_igather(comm: &Comm, value: u64) -> Result<()> {
    take(comm, "igather", value)
}

#[inline(never)]
fn measured_ibarrier(comm: &Comm, value: u64) -> Result<()> {
    take(comm, "ibarrier", value)
}

#[inline(never)]
fn measured_iallreduce(comm: &Comm, value: u64) -> Result<()> {
    take(comm, "iallreduce", value)
}

/// The part of rank 1.
#[inline(always)]
fn take(comm: &Comm, step: &str, value: u64) -> Result<()> {
    let (mine, mut theirs) = ([value], [0]);
    match step {
        "bcast" => comm.bcast(&mut theirs, 0)?,
        "gather" => return comm.gather(&mine, &mut [], 0),
        "ibcast" => at_once(comm, Bcast::new(&mut theirs, 0))?,
        "igather" => return at_once(comm, Gather::contribute(&mine, 0)),
        "ibarrier" => return at_once(comm, coll::Barrier::new()),
        _ => {
            at_once(comm, Allreduce::new(&mine, &mut theirs, Op::SUM))?;
            theirs[0] /= 2;
        }
    }
    assert_eq!(theirs, [value]);
    Ok(())
}

#[inline(always)]
fn at_once<C: Collective>(comm: &Comm, call: C) -> Result<()> {
    comm.scope(|scope| scope.start(call)?.wait().map(drop))
}
