//! How long collective operations take that follow each other at once, and how long each rank is in
//! one that follows a barrier.
//!
//! `portolan run -n 2 --bind core -- in_a_row WHAT` measures `barrier`, `bcast` or `allreduce` of 8
//! bytes. `portolan bench` puts a barrier before each operation, as the OSU suite does, and shows
//! the mean of the ranks. What can overlap, such as the broadcasts of a root that runs ahead, and
//! who waits for whom is seen here.

use std::process::ExitCode;

use portolan::{Comm, Op, Result};

/// Operations in a row, rows or single operations in a sample, and samples.
const ROW: u32 = 16;
const ROUNDS: u32 = 50_000;
const SAMPLES: usize = 15;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let known = ["barrier", "bcast", "allreduce"];
    let what = words.first().filter(|what| known.contains(&&***what));
    let Some(what) = what.filter(|_| words.len() == 1) else {
        complain(&format!("usage: in_a_row {}", known.join("|")));
        return ExitCode::from(2);
    };
    match portolan::init().and_then(|world| measure(&world.comm(), what)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "this is where it talks to its user")]
fn complain(text: &str) {
    eprintln!("in_a_row: {text}");
}

/// Prints the medians of this rank.
#[expect(clippy::print_stdout, reason = "this is what it is for")]
fn measure(comm: &Comm, what: &str) -> Result<()> {
    let row = median(comm, what, ROW)?;
    let alone = median(comm, what, 1)?;
    let clock = median(comm, what, 0)?;
    println!(
        "rank {}: {what}: {:.0} ns in a row of {ROW}, {:.0} ns behind a barrier (without the clock's {clock:.0})",
        comm.rank(),
        (row - clock) / f64::from(ROW),
        alone - clock,
    );
    Ok(())
}

fn median(comm: &Comm, what: &str, row: u32) -> Result<f64> {
    let samples = (0..SAMPLES).map(|_| sample(comm, what, row));
    let mut samples = samples.collect::<Result<Vec<f64>>>()?;
    samples.sort_unstable_by(f64::total_cmp);
    Ok(samples[SAMPLES / 2])
}

/// Nanoseconds that this rank is in a row of so many operations, with the clock: the mean of many
/// rows, before each of which there is a barrier.
fn sample(comm: &Comm, what: &str, row: u32) -> Result<f64> {
    let (send, mut recv) = ([1.0_f32, 2.0], [0.0_f32; 2]);
    let mut seconds = 0.0;
    for _ in 0..ROUNDS {
        comm.barrier()?;
        let begun = comm.wtime();
        for _ in 0..row {
            match what {
                "barrier" => comm.barrier()?,
                "bcast" => comm.bcast(&mut recv, 0)?,
                _ => comm.allreduce(&send, &mut recv, &Op::SUM)?,
            }
        }
        seconds += comm.wtime() - begun;
    }
    Ok(seconds / f64::from(ROUNDS) * 1e9)
}
