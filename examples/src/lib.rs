//! The parts of the larger example programs, which are also meant to be copied from.
//!
//! **What it is.** The heat equation ([`heat`]), least squares ([`least_squares`], with a reader of
//! Matrix Market files), Poisson's equation ([`poisson`]), sorting ([`sample_sort`]) and a Fourier
//! transform ([`spectrum`]) as functions of a communicator, so that a program, a test with threads
//! as ranks and `portolan demo` run the same code. The programs are in `src/bin/`, and `README.md`
//! lists them.
//!
//! **What it is not.** A library of solvers: these are the simplest methods that are still honest,
//! and the interface is not stable.
//!
//! **Who calls it.** The programs, the tests, and the command `portolan` for its `demo`.
//!
//! **Invariants.** Every result is checked against one that is known by other means. The fields of
//! [`heat`] are the same, bit for bit, on any number of ranks.

#![forbid(unsafe_code)]

pub mod heat;
pub mod least_squares;
pub mod poisson;
pub mod sample_sort;
mod share;
pub mod spectrum;
mod tolerance;

pub use share::share;
pub use tolerance::tolerance;
