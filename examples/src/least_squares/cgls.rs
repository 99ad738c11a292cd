//! CGLS: conjugate gradients for the normal equations, without forming them.
//!
//! Rows are distributed. A vector as long as a column is in blocks; one as long as a row is on
//! every rank. Each iteration needs two reductions: one of a number, and one of a vector as long as
//! a row.

use portolan::Level;
use portolan::{Comm, Device, Op, Result};

use super::Block;

/// How often the iteration restarts from a freshly computed residual.
const RESTARTS: u32 = 5;

/// The result of CGLS, the same on every rank.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Solution {
    /// The unknowns.
    pub x: Vec<f64>,
    /// Iterations taken.
    pub iterations: u32,
    /// `‖b − A·x‖`.
    pub residual: f64,
    /// `‖Aᵀ·(b − A·x)‖ / ‖Aᵀ·b‖`: 0 for the exact solution.
    pub optimality: f64,
}

impl Solution {
    /// `‖x‖`.
    #[must_use]
    pub fn norm(&self) -> f64 {
        square(&self.x).sqrt()
    }
}

/// Solves the problem of which `block` is this rank's part, until [`Solution::optimality`] is
/// `tolerance` or less, or `most` iterations are done. Collective.
///
/// # Errors
/// [`PeerFailed`](portolan::ErrorKind::PeerFailed).
pub fn solve<L: Level, D: Device>(
    comm: &Comm<L, D>,
    block: &Block,
    tolerance: f64,
    most: u32,
) -> Result<Solution> {
    let mut x = vec![0.0; block.columns()];
    let scale = gradient(comm, block, &block.rhs)?;
    let scale = square(&scale).sqrt();
    let mut iterations = 0;
    let mut restarts = 0;
    loop {
        // The residual that the iteration updates drifts away from the true one, which is computed
        // here.
        let product = block.times(&x);
        let residual: Vec<f64> = block.rhs.iter().zip(product).map(|(b, p)| b - p).collect();
        let slope = gradient(comm, block, &residual)?;
        let optimality = if scale == 0.0 {
            0.0
        } else {
            square(&slope).sqrt() / scale
        };
        // Not `>`: a NaN ends it, too.
        let goes_on = optimality > tolerance && iterations < most && restarts < RESTARTS;
        if !goes_on {
            let residual = total(comm, square(&residual))?.sqrt();
            return Ok(Solution {
                x,
                iterations,
                residual,
                optimality,
            });
        }
        restarts += 1;
        let target = (tolerance * scale / 2.0).powi(2);
        iterations += descend(
            comm,
            block,
            &mut x,
            residual,
            slope,
            target,
            most - iterations,
        )?;
    }
}

/// Iterates from `x` with its `residual` and gradient until the gradient's square is `target`.
/// Returns the number of iterations.
fn descend<L: Level, D: Device>(
    comm: &Comm<L, D>,
    block: &Block,
    x: &mut [f64],
    mut residual: Vec<f64>,
    mut slope: Vec<f64>,
    target: f64,
    most: u32,
) -> Result<u32> {
    let mut direction = slope.clone();
    let mut steepness = square(&slope);
    for iteration in 0..most {
        let product = block.times(&direction);
        let curvature = total(comm, square(&product))?;
        if steepness <= target || curvature == 0.0 {
            return Ok(iteration);
        }
        let step = steepness / curvature;
        add(x, step, &direction);
        add(&mut residual, -step, &product);
        slope = gradient(comm, block, &residual)?;
        let before = std::mem::replace(&mut steepness, square(&slope));
        for (d, s) in direction.iter_mut().zip(&slope) {
            *d = s + steepness / before * *d;
        }
    }
    Ok(most)
}

/// `Aᵀ·r`, on every rank, of an `r` in blocks.
fn gradient<L: Level, D: Device>(comm: &Comm<L, D>, block: &Block, r: &[f64]) -> Result<Vec<f64>> {
    let mut sum = block.transposed_times(r);
    comm.allreduce_in_place(&mut sum, &Op::SUM)?;
    Ok(sum)
}

/// The sum of one number per rank.
fn total<L: Level, D: Device>(comm: &Comm<L, D>, part: f64) -> Result<f64> {
    comm.allreduce_one(part, &Op::SUM)
}

fn square(values: &[f64]) -> f64 {
    values.iter().map(|v| v * v).sum()
}

/// `y += a·x`.
fn add(y: &mut [f64], a: f64, x: &[f64]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x);
}
