//! Heat conduction along a rod, whose ends are kept cold.
//!
//! Shows a grid of one dimension and an exchange with the neighbours on it, which needs no code of
//! its own at the ends.
//!
//! ```text
//! portolan run -n 4 -- target/release/rod
//! ```

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::f64::consts::PI;
use std::process::ExitCode;

use portolan::topology::Dimension;
use portolan::{Error, ErrorKind, Op, Result, World};

/// Points of each rank.
const POINTS: usize = 16;
const STEPS: i32 = 20;
/// Part of the difference between neighbouring points that a step makes up for.
const RATE: f64 = 0.25;
const TAG: u32 = 7;

fn main() -> ExitCode {
    portolan::run(rod)
}

pub(crate) fn rod(world: World) -> Result<()> {
    let n = world.comm().size();
    let line = world.comm().cart_create(&[Dimension::open(n)], false)?;
    let line =
        line.ok_or_else(|| Error::new(ErrorKind::Internal, "a rod of all ranks leaves one out"))?;
    // The first wave that fits the rod: it keeps its shape and fades by the same factor in each
    // step.
    let all = POINTS * n as usize;
    let angle = PI / (all + 1) as f64;
    let begin = POINTS * line.rank() as usize;
    let wave = |point: usize| ((begin + point) as f64 * angle).sin();
    // This rank's points are 1 to `POINTS`; those before and after belong to the neighbours. At the
    // ends of the rod no neighbour writes them, and they stay cold.
    let mut heat: Vec<f64> = (0..POINTS + 2).map(wave).collect();
    for end in [0, POINTS + 1] {
        heat[end] = 0.0;
    }
    let right = line.shift(0, 1)?;
    for _ in 0..STEPS {
        let (first, last) = (heat[1], heat[POINTS]);
        line.exchange(right, &[last], &mut heat[..1], TAG)?;
        line.exchange(right.reversed(), &[first], &mut heat[POINTS + 1..], TAG)?;
        let bend = |at: &[f64]| at[0] - 2.0 * at[1] + at[2];
        let next: Vec<f64> = heat.windows(3).map(|at| at[1] + RATE * bend(at)).collect();
        heat[1..=POINTS].copy_from_slice(&next);
    }
    let fade = (1.0 - 4.0 * RATE * (angle / 2.0).sin().powi(2)).powi(STEPS);
    let differences = (1..=POINTS).map(|point| (heat[point] - fade * wave(point)).abs());
    let error = line.allreduce_one(differences.fold(0.0, f64::max), &Op::MAX)?;
    assert!(error < 1e-12, "the solution is {error:e} away");
    if line.rank() == 0 {
        println!("a rod of {all} points on {n} ranks cools as it should");
    }
    Ok(())
}
