//! The heat equation on a square, solved by all ranks together.
//!
//! A plate whose rim is kept cold starts with a pattern of warm and cold places, which fades. The
//! grid is cut into blocks, one per rank. After every step, neighbours exchange the edges of their
//! blocks (*halo exchange*). The scheme is the simplest one: explicit, with five points, in time
//! steps of a fifth of the square of the points' distance.
//!
//! ```
//! use portolan_examples::heat::{self, HeatConfig};
//!
//! let config = HeatConfig { size: 64, steps: 50 };
//! let reports = portolan::try_threads(4, |world| heat::run(&world.comm(), &config, |_| {}))?;
//! assert!(reports[0].is_right());
//! assert!(reports[0].field.is_some(), "rank 0 has the picture");
//! # Ok::<(), portolan::Error>(())
//! ```

mod blocks;
mod modes;
mod patch;
mod picture;

use portolan::Level;
use portolan::{Comm, Device, Error, ErrorKind, Op, Result};

use blocks::Blocks;
use modes::Analytic;
use patch::{Patch, zeros};
pub use picture::{Field, PictureError};

/// Length of a time step, in squares of the distance of two points. The scheme is stable up to 1/4.
const RATIO: f64 = 0.2;

/// The problem to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeatConfig {
    /// Inner points of the grid in each direction: at least 1, and enough for every rank to have
    /// some.
    pub size: usize,
    /// Time steps.
    pub steps: u32,
}

/// The result, the same on every rank except for [`field`](Self::field).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HeatReport {
    /// The problem that was computed.
    pub config: HeatConfig,
    /// How many blocks the grid was cut into: down, across.
    pub blocks: (u32, u32),
    /// Largest difference from the analytic solution, over all points.
    pub error: f64,
    /// The largest difference to expect: that of the numerical scheme itself, which does not depend
    /// on the number of ranks.
    pub error_bound: f64,
    /// Rank 0's time for the time steps, in seconds.
    pub seconds: f64,
    /// The plate before and after. On rank 0 only.
    pub field: Option<Field>,
}

impl HeatReport {
    /// Whether the difference from the analytic solution is within that of the scheme (and of
    /// rounding).
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.error <= self.error_bound * (1.0 + 1e-6) + 1e-11
    }

    /// Points computed per second, by all ranks together.
    #[must_use]
    pub fn points_per_second(&self) -> f64 {
        let HeatConfig { size, steps } = self.config;
        (size * size) as f64 * f64::from(steps) / self.seconds
    }
}

/// Computes on all ranks of `comm`. Collective; all ranks give the same `config`. `progress` is
/// called about a hundred times, with the number of steps that are done.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument) if the grid has no point for some rank,
/// [`Exhausted`](ErrorKind::Exhausted) if there is no memory for it,
/// [`PeerFailed`](ErrorKind::PeerFailed).
pub fn run<L: Level, D: Device>(
    comm: &Comm<L, D>,
    config: &HeatConfig,
    mut progress: impl FnMut(u32),
) -> Result<HeatReport> {
    let HeatConfig { size, steps } = *config;
    let blocks = Blocks::new(comm.size());
    check(comm, size, blocks)?;
    let block = blocks.block(comm.rank(), size);
    let start = Analytic::new(size, 0, RATIO);
    let mut patch = Patch::new(blocks, comm.rank(), &block, &start)?;

    comm.barrier()?;
    let begun = comm.wtime();
    let often = (steps / 100).max(1);
    for step in 1..=steps {
        patch.step(comm, RATIO)?;
        if step.is_multiple_of(often) || step == steps {
            progress(step);
        }
    }
    // Rank 0's time, on every rank.
    let seconds = comm.bcast_one(comm.wtime() - begun, 0)?;

    let end = Analytic::new(size, steps, RATIO);
    let mut error = 0.0;
    for (at, row) in block.rows.clone().enumerate() {
        for (value, exact) in patch
            .row(at)
            .iter()
            .zip(end.row(row, block.columns.clone()))
        {
            error = worse(error, (value - exact).abs());
        }
    }
    let error = comm.allreduce_one(error, &Op::MAX)?;
    Ok(HeatReport {
        config: *config,
        blocks: (blocks.down, blocks.across),
        error,
        error_bound: end.bound,
        seconds,
        field: gather(comm, size, blocks, &patch)?,
    })
}

/// The larger of two errors; unlike `f64::max`, a NaN if either is one.
fn worse(a: f64, b: f64) -> f64 {
    if a >= b || a.is_nan() { a } else { b }
}

fn check<L: Level, D: Device>(comm: &Comm<L, D>, size: usize, blocks: Blocks) -> Result<()> {
    let least = blocks.across as usize;
    if size >= least {
        return Ok(());
    }
    let what = format!(
        "a grid of {size} × {size} points cannot be cut into {} × {} blocks, one per rank",
        blocks.down, blocks.across
    );
    let remedy = format!("choose a size of {least} or more, or fewer ranks");
    Err(Error::new(ErrorKind::InvalidArgument, what)
        .remedy(remedy)
        .on_rank(comm.rank()))
}

/// Puts the blocks together on rank 0.
fn gather<L: Level, D: Device>(
    comm: &Comm<L, D>,
    size: usize,
    blocks: Blocks,
    patch: &Patch,
) -> Result<Option<Field>> {
    let mine: Vec<f64> = (0..patch.rows())
        .flat_map(|row| patch.row(row))
        .copied()
        .collect();
    let Some(parts) = comm.gather_vecs(&mine, 0)? else {
        return Ok(None);
    };
    let mut end = zeros(size, size)?;
    for (rank, part) in (0..).zip(&parts) {
        let block = blocks.block(rank, size);
        for (row, values) in block.rows.zip(part.chunks_exact(block.columns.len())) {
            end[row * size..][block.columns.clone()].copy_from_slice(values);
        }
    }
    let start = Analytic::new(size, 0, RATIO);
    let start = (0..size).flat_map(|row| start.row(row, 0..size)).collect();
    Ok(Some(Field { size, start, end }))
}
