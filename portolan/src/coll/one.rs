//! Collective operations on one value per rank.

use portolan_core::{Device, Result};
use portolan_datatype::{Datatype, Op};

use super::room::Room;
use super::{Allgather, Allreduce, Bcast, Exscan, Gather, Reduce, Scan, Scatter};
use crate::Level;
use crate::comm::Comm;

/// # Collective operations on one value per rank
impl<L: Level, D: Device> Comm<L, D> {
    /// Returns the value of rank `root` on every rank (MPI-4 section 6.4, `MPI_Bcast`).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[doc(alias = "MPI_Bcast")]
    pub fn bcast_one<T: Datatype>(&self, value: T, root: u32) -> Result<T> {
        let mut data = [value];
        self.lend(&mut Bcast::new(&mut data, root))?;
        Ok(data[0])
    }

    /// Combines the ranks' values and returns the result on every rank (MPI-4 section 6.9.6,
    /// `MPI_Allreduce`).
    ///
    /// ```
    /// use portolan::Op;
    ///
    /// let sums = portolan::try_threads(5, |world| {
    ///     world.comm().allreduce_one(world.rank(), &Op::SUM)
    /// })?;
    /// assert_eq!(sums, [10; 5]);
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[doc(alias = "MPI_Allreduce")]
    pub fn allreduce_one<T: Datatype>(&self, value: T, op: impl Into<Op>) -> Result<T> {
        let mut data = [value];
        self.lend(&mut Allreduce::in_place(&mut data, op))?;
        Ok(data[0])
    }

    /// Combines the ranks' values and returns the result on rank `root`; `None` elsewhere (MPI-4
    /// section 6.9.1, `MPI_Reduce`).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[doc(alias = "MPI_Reduce")]
    pub fn reduce_one<T: Datatype>(
        &self,
        value: T,
        op: impl Into<Op>,
        root: u32,
    ) -> Result<Option<T>> {
        let mut data = [value];
        self.lend(&mut Reduce::in_place(&mut data, op, root))?;
        Ok((self.rank() == root).then_some(data[0]))
    }

    /// Combines the values of ranks 0 to this one (MPI-4 section 6.11.1, `MPI_Scan`).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[doc(alias = "MPI_Scan")]
    pub fn scan_one<T: Datatype>(&self, value: T, op: impl Into<Op>) -> Result<T> {
        let mut data = [value];
        self.lend(&mut Scan::in_place(&mut data, op))?;
        Ok(data[0])
    }

    /// Combines the values of the ranks before this one; `None` on rank 0 (MPI-4 section 6.11.2,
    /// `MPI_Exscan`).
    ///
    /// ```
    /// use portolan::Op;
    ///
    /// // Where each rank's part of a file begins.
    /// let starts = portolan::try_threads(3, |world| {
    ///     let length = 100 + world.rank();
    ///     let before = world.comm().exscan_one(length, &Op::SUM)?;
    ///     Ok(before.unwrap_or(0))
    /// })?;
    /// assert_eq!(starts, [0, 100, 201]);
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[doc(alias = "MPI_Exscan")]
    pub fn exscan_one<T: Datatype>(&self, value: T, op: impl Into<Op>) -> Result<Option<T>> {
        let mut data = [value];
        self.lend(&mut Exscan::in_place(&mut data, op))?;
        Ok((self.rank() != 0).then_some(data[0]))
    }

    /// Returns the ranks' values, in the order of the ranks, on rank `root`; `None` elsewhere
    /// (MPI-4 section 6.5, `MPI_Gather`).
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`Exhausted`](crate::ErrorKind::Exhausted) if there is no memory
    /// for the values.
    #[doc(alias = "MPI_Gather")]
    pub fn gather_one<T: Datatype>(&self, value: T, root: u32) -> Result<Option<Vec<T>>> {
        if self.rank() != root {
            self.lend(&mut Gather::contribute(&[value], root))?;
            return Ok(None);
        }
        let all = self.raise(Room::new(self, self.size() as usize))?;
        let (_, all) = self.run(Gather::new(&[value], all, root))?;
        // SAFETY: one value has come from every rank.
        Ok(Some(unsafe { all.filled() }))
    }

    /// Returns the ranks' values, in the order of the ranks, on every rank (MPI-4 section 6.7,
    /// `MPI_Allgather`).
    ///
    /// ```
    /// let all = portolan::try_threads(3, |world| world.comm().allgather_one(world.rank() * 2))?;
    /// assert_eq!(all, [[0, 2, 4]; 3]);
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`gather_one`](Self::gather_one).
    #[doc(alias = "MPI_Allgather")]
    pub fn allgather_one<T: Datatype>(&self, value: T) -> Result<Vec<T>> {
        let all = self.raise(Room::new(self, self.size() as usize))?;
        let (_, all) = self.run(Allgather::new(&[value], all))?;
        // SAFETY: one value has come from every rank.
        Ok(unsafe { all.filled() })
    }

    /// Rank `i` receives `values[i]` of rank `root`, which has one for every rank; the other ranks'
    /// `values` is ignored (MPI-4 section 6.6, `MPI_Scatter`).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[doc(alias = "MPI_Scatter")]
    pub fn scatter_one<T: Datatype>(&self, values: &[T], root: u32) -> Result<T> {
        let one = self.raise(Room::new(self, 1))?;
        let (_, one) = self.run(Scatter::new(values, one, root))?;
        // SAFETY: the value has come from the root.
        Ok(unsafe { one.filled() }[0])
    }
}
