//! Sums of floating-point numbers without rounding, whatever the number of ranks and their
//! placement.
//!
//! A rounded sum depends on the order of its terms. [`Comm::exact_sum`](crate::Comm::exact_sum)
//! adds the numbers of all ranks' slices exactly and rounds once, so the result has the same bits
//! however the numbers are spread over ranks. [`Sum`] is such a sum as a value: it can be sent, and
//! reduced with [`Sum::op`]. With the setting `REPRODUCIBLE`, every reduction of floating-point
//! numbers by [`Op::SUM`](crate::Op::SUM) works this way.

use portolan_core::{Device, Result};

pub use portolan_coll::exact::{Real, Sum};

use crate::Level;
use crate::comm::Comm;

impl<L: Level, D: Device> Comm<L, D> {
    /// The sum of all numbers in all ranks' slices, added exactly and rounded once, on every rank.
    /// The slices may differ in length. Collective.
    ///
    /// The result depends on the numbers alone. [`Sum`](crate::coll::exact::Sum) describes the
    /// treatment of infinities, NaN and zeros.
    ///
    /// ```
    /// // Added from left to right, these give 0.
    /// let numbers = [1e100, 1.0, -1e100, 1e-20];
    /// for ranks in 1..=4 {
    ///     let sums = portolan::try_threads(ranks, |world| {
    ///         let comm = world.comm();
    ///         let mine: Vec<f64> = numbers.iter().copied().skip(comm.rank() as usize)
    ///             .step_by(ranks as usize).collect();
    ///         comm.exact_sum(&mine)
    ///     })?;
    ///     assert!(sums.iter().all(|&sum| sum == 1.0));
    /// }
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// To combine such sums in another way, reduce them as values:
    ///
    /// ```
    /// use portolan::coll::exact::Sum;
    ///
    /// portolan::try_threads(3, |world| {
    ///     let comm = world.comm();
    ///     let mine: Sum<f32> = [1e-9, 4.0].into_iter().collect();
    ///     if let Some(all) = comm.reduce_one(mine, &Sum::<f32>::op(), 0)? {
    ///         assert_eq!(all.value(), 12.0);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn exact_sum<T: Real>(&self, mine: &[T]) -> Result<T> {
        self.raise(portolan_coll::exact::sum(&self.inner, mine))
    }
}
