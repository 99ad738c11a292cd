//! The heat equation in two dimensions on GPUs: halo exchange from and to the GPUs' memory.
//!
//! Shows how Portolan and CUDA fit together. Each rank keeps its rows of the plate in the memory of
//! a GPU. A kernel computes a time step, and `sendrecv_device` exchanges the rows at the edges with
//! the neighbours: directly where the network can access the GPU's memory, else through the host.
//! At the end rank 0 receives all rows in its own memory, and compares them with the known
//! solution.
//!
//! `plate.rs` has all that deals with the GPU, by the crate `cudarc`. The kernels are in
//! `kernels.ptx`. Neither needs CUDA's toolkit: the driver compiles the kernels.
//!
//! ```text
//! portolan run -n 4 -- target/release/gpu_heat --size 4096 --steps 1000
//! ```

#![allow(clippy::print_stdout)]

mod plate;

use std::error::Error;
use std::f64::consts::PI;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use cudarc::driver::CudaContext;
use portolan::device_memory::Cuda;
use portolan::{Comm, Op, SplitBy, World};
use portolan_examples::share;

use plate::Plate;

/// Length of a time step, in squares of the distance of two points. The scheme is stable up to 1/4.
const RATIO: f64 = 0.2;
/// The tag of a rank's rows on their way to rank 0.
const ROWS: u32 = 2;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Solves the heat equation on a square plate with GPUs.
#[derive(Debug, Parser)]
struct Options {
    /// Inner points of the grid in each direction
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    size: u32,

    /// Time steps
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
}

fn main() -> ExitCode {
    let options = Options::parse();
    // Declared here because Portolan has streams in the context until the world ends.
    let mut context = None;
    portolan::run(|world| program(&world, &options, &mut context))
}

fn program(
    world: &World,
    &Options { size, steps }: &Options,
    context: &mut Option<Arc<CudaContext>>,
) -> Outcome<()> {
    let comm = world.comm();
    let (rank, ranks) = (comm.rank(), comm.size());
    if size < ranks {
        let remedy = "take a larger --size, or fewer ranks";
        return Err(format!("{size} rows cannot be shared by {ranks} ranks; {remedy}").into());
    }
    let context = context.insert(CudaContext::new(choose_gpu(&comm)?)?);
    let rows = share(size as usize, rank, ranks);
    let start = Exact::new(size, 0);
    let shape = [rows.len() as u32, size];
    let mut plate = Plate::new(context, shape, |row, column| {
        start.at(rows.start + row, column)
    })?;

    comm.barrier()?;
    let begun = comm.wtime();
    let change = cool(&comm, &mut plate, steps)?;
    let seconds = comm.wtime() - begun;

    // Rank 0 sends to itself, too: such a send copies the values, and does not wait for a receive.
    plate.send(&comm, 0, ROWS)?;
    if rank > 0 {
        return Ok(());
    }
    let points = f64::from(size) * f64::from(size) * f64::from(steps);
    println!(
        "{size} × {size} points, {steps} steps on {ranks} × {}: {:.1} million points per second",
        plate.gpu()?,
        points / seconds / 1e6
    );
    check(&comm, size, steps, change)
}

/// Does the time steps; returns the largest change of a value in the last one.
fn cool(comm: &Comm, plate: &mut Plate, steps: u32) -> Outcome<f64> {
    let often = (steps / 10).max(1);
    let mut change = 0.0;
    for step in 1..=steps {
        plate.exchange(comm)?;
        plate.step(RATIO)?;
        if step.is_multiple_of(often) || step == steps {
            // One number per rank: the maximum over all ranks is computed on the host.
            change = comm.allreduce_one(plate.change()?, &Op::MAX)?;
            if comm.rank() == 0 {
                println!("step {step}: no value has changed by more than {change:.3e}");
            }
        }
    }
    Ok(change)
}

/// The number of the GPU for this rank: the ranks of a host take its GPUs in turn.
fn choose_gpu(comm: &Comm) -> Outcome<usize> {
    // Without a driver `cudarc` would panic, so Portolan looks for it first.
    if Cuda::open().is_none() {
        let what = "there is no GPU: CUDA's driver (`libcuda.so.1`) is missing, or finds none";
        let remedy = "install NVIDIA's driver, or run `heat`, which needs no GPU";
        return Err(format!("{what}; {remedy}").into());
    }
    let gpus = CudaContext::device_count()?.max(1) as usize;
    Ok(comm.split_by(SplitBy::Node, 0)?.rank() as usize % gpus)
}

/// Receives the rows of all ranks, and compares them with the solution.
fn check(comm: &Comm, size: u32, steps: u32, change: f64) -> Outcome<()> {
    let (before, end) = (Exact::new(size, steps - 1), Exact::new(size, steps));
    let stride = size as usize + 2;
    let (mut error, mut expected) = (0.0, 0.0);
    for rank in 0..comm.size() {
        let rows = share(size as usize, rank, comm.size());
        let mut values = vec![0.0; rows.len() * stride];
        comm.recv_into(&mut values, rank, ROWS)?;
        for (row, values) in rows.zip(values.chunks_exact(stride)) {
            for (column, value) in values[1..].iter().take(size as usize).enumerate() {
                let exact = end.at(row, column);
                error = worse(error, (value - exact).abs());
                expected = worse(expected, (before.at(row, column) - exact).abs());
            }
        }
    }
    // Each step rounds, and no step makes earlier errors larger.
    let tolerance = 1e-12 + 1e-14 * f64::from(steps);
    println!("largest error {error:.3e}; rounding allows {tolerance:.3e}");
    println!("largest change {change:.6e}; expected {expected:.6e}");
    if error <= tolerance && (change - expected).abs() <= tolerance {
        Ok(())
    } else {
        Err("the result is wrong: please report it".into())
    }
}

/// The larger of two errors; unlike `f64::max`, a NaN if either is one.
fn worse(a: f64, b: f64) -> f64 {
    if a >= b || a.is_nan() { a } else { b }
}

/// Waves `(across, down, amplitude)`: `amplitude · sin(across·π·x) · sin(down·π·y)`.
const WAVES: [(f64, f64, f64); 2] = [(1.0, 1.0, 1.0), (3.0, 2.0, 0.6)];

/// What the scheme gives without rounding: each step multiplies each wave by a known factor.
#[derive(Debug)]
struct Exact {
    size: u32,
    /// The waves' amplitudes after the steps.
    heights: [f64; WAVES.len()],
}

impl Exact {
    fn new(size: u32, steps: u32) -> Self {
        let sine = |waves: f64| (waves * PI / (2.0 * (f64::from(size) + 1.0))).sin().powi(2);
        let heights = WAVES.map(|(across, down, amplitude)| {
            let factor = 1.0 - 4.0 * RATIO * (sine(across) + sine(down));
            amplitude * factor.powf(f64::from(steps))
        });
        Self { size, heights }
    }

    /// The value at a point, whose row and column are counted from 0.
    fn at(&self, row: usize, column: usize) -> f64 {
        let place = |index: usize| PI * (index as f64 + 1.0) / (f64::from(self.size) + 1.0);
        let (x, y) = (place(column), place(row));
        let waves = WAVES.iter().zip(self.heights);
        waves
            .map(|((across, down, _), height)| height * (across * x).sin() * (down * y).sin())
            .sum()
    }
}
