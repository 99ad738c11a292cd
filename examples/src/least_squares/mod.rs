//! Linear least squares, solved by all ranks together: each has a block of rows.
//!
//! ```
//! use portolan_examples::least_squares::{Problem, solve};
//!
//! let found = portolan::try_threads(3, |world| {
//!     let comm = world.comm();
//!     let problem = (comm.rank() == 0).then(|| Problem::generate(50).0);
//!     let block = Problem::distribute(&comm, problem)?;
//!     solve(&comm, &block, 1e-12, 500)
//! })?;
//! let (_, expected) = Problem::generate(50);
//! for (x, e) in found[2].x.iter().zip(expected) {
//!     assert!((x - e).abs() < 1e-9);
//! }
//! # Ok::<(), portolan::Error>(())
//! ```

mod cgls;
mod matrix_market;
mod problem;

pub use cgls::{Solution, solve};
pub use matrix_market::{FileError, Matrix, read_matrix, read_vector};
pub use problem::{Block, Entry, Problem};
