//! Linear least squares by CGLS: each rank has a block of rows of a sparse matrix.
//!
//! Shows a derived datatype for a struct, messages of unknown length, reductions, and how rank 0
//! reads files for all; the reader and the solver are in `src/least_squares/`. Without files the
//! program generates a problem with a known solution.
//!
//! ```text
//! portolan run -n 4 -- target/release/least_squares --matrix A.mtx --rhs b.mtx
//! ```

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use portolan::World;
use portolan_examples::least_squares::{Problem, read_matrix, read_vector, solve};
use portolan_examples::tolerance;

/// Finds the x for which ‖b − A·x‖ is smallest.
#[derive(Debug, Parser)]
struct Options {
    /// Matrix A: a Matrix Market file, `coordinate real general`
    #[arg(long, value_name = "FILE", requires = "rhs")]
    matrix: Option<PathBuf>,

    /// Right-hand side b: a Matrix Market file, `array real general`
    #[arg(long, value_name = "FILE", requires = "matrix")]
    rhs: Option<PathBuf>,

    /// Unknowns of the problem that is made without files
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    size: u32,

    /// How small ‖Aᵀr‖/‖Aᵀb‖ has to become
    #[arg(long, default_value_t = 1e-12, value_parser = tolerance, allow_hyphen_values = true)]
    tolerance: f64,
}

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    let options = Options::parse();
    portolan::run(|world| program(&world, &options))
}

fn program(world: &World, options: &Options) -> Outcome<()> {
    let comm = world.comm();
    let (problem, known) = match world.rank() {
        // If this fails, the other ranks learn of it while they wait for their blocks.
        0 => problem(options).map(|(problem, known)| (Some(problem), known))?,
        _ => (None, None),
    };
    let block = Problem::distribute(&comm, problem)?;
    let most = u32::try_from(10 * block.columns() + 100).unwrap_or(u32::MAX);
    let found = solve(&comm, &block, options.tolerance, most)?;
    if world.rank() != 0 {
        return Ok(());
    }
    println!(
        "unknowns {}, iterations {}",
        block.columns(),
        found.iterations
    );
    println!("residual norm {:.12e}", found.residual);
    println!("solution norm {:.12e}", found.norm());
    println!("optimality {:.3e}", found.optimality);
    // False, too, if the numbers were too large to compute with and the result is NaN.
    let reached = found.optimality <= options.tolerance;
    if !reached {
        let (reached, wanted) = (found.optimality, options.tolerance);
        return Err(
            format!("stopped at {reached:.3e}, above {wanted:.3e}; raise --tolerance").into(),
        );
    }
    if let Some(known) = known {
        let differences = found.x.iter().zip(known).map(|(x, k)| (x - k).abs());
        let error = differences.fold(0.0, f64::max);
        println!("largest error {error:.3e}");
        if error > 1e-6 {
            return Err("the result is wrong: please report it".into());
        }
    }
    Ok(())
}

/// The problem in the files, or a generated one with its solution.
fn problem(options: &Options) -> Outcome<(Problem, Option<Vec<f64>>)> {
    let (Some(matrix), Some(rhs)) = (&options.matrix, &options.rhs) else {
        let (problem, solution) = Problem::generate(options.size);
        return Ok((problem, Some(solution)));
    };
    let problem = Problem::new(read_matrix(matrix)?, read_vector(rhs)?)?;
    Ok((problem, None))
}
