//! The reproducible mode: reductions of floating-point numbers that give the same bits every time.
//!
//! Floating-point addition rounds, so a sum depends on the order of its operands: on the algorithm,
//! on the number of ranks, and on which rank has which values. With
//! [`Options::reproducible`](crate::Options::reproducible) (`PORTOLAN_REPRODUCIBLE=on`) it does
//! not:
//!
//! - [`SUM`](portolan_datatype::Op::SUM) of floating-point and complex numbers is exact ([`Sum`]):
//!   operands are widened before they travel, and the result is rounded once.
//! - `PROD` and user-defined operators keep the order of the ranks and always use the same
//!   bracketing. The result is independent of placement and settings, and the same from run to run,
//!   but not the same for another number of ranks: nothing is known about the rounding of such an
//!   operator.
//! - All other operators are exact anyway, including the extremes: whether those give +0 or -0, and
//!   the bits of a NaN, depend on the data only.
//!
//! [`treatment`] tells which of these applies to an operation. A program can have exact sums
//! without this mode: [`sum`] adds all elements of all ranks, and [`Sum`] is a datatype with an
//! operator ([`Sum::op`]).
//!
//! **Cost.** A `Sum<f64>` has 280 bytes, a `Sum<f32>` 48, so correspondingly more data travels.
//! Long vectors go in parts, so that scratch memory stays bounded.

mod convert;
mod real;
mod sum;
mod whole;
mod write;

pub use convert::{Convert, Kind};
pub use real::Real;
pub use sum::Sum;
pub use whole::sum;
pub use write::{Treatment, treatment};

pub(crate) use convert::convert;
pub(crate) use write::{reduction, write};

#[cfg(test)]
mod tests;
