//! A barrier, a broadcast and their like, simple ones: good enough for programs to start with.
//! Collectives with a choice of algorithms will come in a crate of their own.

use portolan_core::comm::{Binomial, Tag};
use portolan_core::level::Level;
use portolan_core::{Device, ErrorKind, Result, Status};
use portolan_datatype::Datatype;

use super::Comm;

/// Tags on the collective context, apart from those of `core`'s own collectives.
const BROADCAST: Tag = Tag(0x200);
const REDUCE: Tag = Tag(0x201);
const GATHER: Tag = Tag(0x202);

impl<L: Level, D: Device> Comm<L, D> {
    /// Returns when every rank has called it (MPI-4 section 6.3, `MPI_Barrier`).
    ///
    /// # Errors
    /// [`PeerFailed`](ErrorKind::PeerFailed).
    pub fn barrier(&self) -> Result<()> {
        self.raise(self.inner.barrier())
    }

    /// The values of rank `root` go to every rank, along a binomial tree (MPI-4 section 6.4,
    /// `MPI_Bcast`). Every rank gives a buffer of the same length.
    ///
    /// # Errors
    /// [`InvalidRank`](ErrorKind::InvalidRank), [`InvalidCount`](ErrorKind::InvalidCount) or
    /// [`Truncated`](ErrorKind::Truncated) if lengths differ,
    /// [`TypeMismatch`](ErrorKind::TypeMismatch), [`InvalidValue`](ErrorKind::InvalidValue),
    /// [`PeerFailed`](ErrorKind::PeerFailed).
    pub fn broadcast<T: Datatype>(&self, data: &mut [T], root: u32) -> Result<()> {
        self.raise(self.inner.check_rank("root", root))?;
        self.raise(self.inner.check_members())?;
        self.raise(self.down(data, root))
    }

    /// Combines the ranks' values element by element, and gives every rank the result (MPI-4 section
    /// 6.9.6, `MPI_Allreduce`). Every rank gives a buffer of the same length.
    ///
    /// `combine` must be associative. It is applied in the order of the ranks, always with the same
    /// brackets: results do not change from run to run, and are the same on all ranks.
    ///
    /// This is a simple one: a reduction along a binomial tree to rank 0, then a broadcast.
    ///
    /// ```
    /// let sums = portolan::try_threads(5, |world| {
    ///     let comm = world.comm();
    ///     let mut sum = [comm.rank()];
    ///     comm.allreduce(&mut sum, |a, b| a + b)?;
    ///     Ok(sum[0])
    /// })?;
    /// assert_eq!(sums, [10; 5]);
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast).
    pub fn allreduce<T: Datatype>(
        &self,
        data: &mut [T],
        combine: impl Fn(T, T) -> T,
    ) -> Result<()> {
        self.raise(self.inner.check_members())?;
        self.raise(self.up(data, combine).and_then(|()| self.down(data, 0)))
    }

    /// The ranks' values go to rank `root`, which gets one vector per rank; others get `None`
    /// (MPI-4 section 6.5, `MPI_Gatherv`). Lengths may differ.
    ///
    /// This is a simple one: every rank sends to the root.
    ///
    /// # Errors
    /// [`InvalidRank`](ErrorKind::InvalidRank), [`TypeMismatch`](ErrorKind::TypeMismatch),
    /// [`InvalidValue`](ErrorKind::InvalidValue), [`PeerFailed`](ErrorKind::PeerFailed).
    pub fn gather<T: Datatype>(&self, data: &[T], root: u32) -> Result<Option<Vec<Vec<T>>>> {
        self.raise(self.inner.check_rank("root", root))?;
        self.raise(self.inner.check_members())?;
        if self.rank() != root {
            let args = self.raise(self.inner.collective_args(root, GATHER))?;
            // SAFETY: the arguments are this communicator's.
            self.raise(unsafe { self.send_values(&args, data) })?;
            return Ok(None);
        }
        let from = |rank| {
            if rank == root {
                return Ok(data.to_vec());
            }
            let pattern = self.inner.collective_pattern(rank, GATHER);
            let taken = pattern.and_then(|pattern| self.hosted().mprobe_unchecked(&pattern));
            let (handle, status) = self.raise(taken)?;
            Ok(super::Message::new(self, handle, status).recv()?.0)
        };
        (0..self.size()).map(from).collect::<Result<_>>().map(Some)
    }

    /// From the parent to the children.
    fn down<T: Datatype>(&self, data: &mut [T], root: u32) -> Result<()> {
        let tree = Binomial::new(self.rank(), self.size(), root);
        if let Some(parent) = tree.parent() {
            let pattern = self.inner.collective_pattern(parent, BROADCAST)?;
            let status = self.recv_checked(&pattern, data)?;
            self.expect_count::<T>(&status, data.len())?;
        }
        for child in tree.children() {
            let args = self.inner.collective_args(child, BROADCAST)?;
            // SAFETY: the arguments are this communicator's.
            unsafe { self.send_values(&args, data)? };
        }
        Ok(())
    }

    /// From the children, in the order of the ranks, to the parent.
    fn up<T: Datatype>(&self, data: &mut [T], combine: impl Fn(T, T) -> T) -> Result<()> {
        let tree = Binomial::new(self.rank(), self.size(), 0);
        let mut theirs = Vec::new();
        for child in tree.children().rev() {
            theirs.clear();
            theirs.extend_from_slice(data);
            let pattern = self.inner.collective_pattern(child, REDUCE)?;
            let status = self.recv_checked(&pattern, &mut theirs)?;
            self.expect_count::<T>(&status, data.len())?;
            data.iter_mut()
                .zip(&theirs)
                .for_each(|(a, b)| *a = combine(*a, *b));
        }
        if let Some(parent) = tree.parent() {
            let args = self.inner.collective_args(parent, REDUCE)?;
            // SAFETY: the arguments are this communicator's.
            unsafe { self.send_values(&args, data)? };
        }
        Ok(())
    }

    fn expect_count<T: Datatype>(&self, status: &Status, expected: usize) -> Result<()> {
        // A type without data has any number of values in an empty message.
        if status.count::<T>() == Some(expected) || T::layout().size() == 0 {
            return Ok(());
        }
        let (source, bytes) = (status.source, status.bytes);
        Err(self.inner.error(
            ErrorKind::InvalidCount,
            format!("rank {source} took part with {bytes} bytes, this rank with {expected} values"),
            "call collectives with equal lengths on every rank, in the same order",
        ))
    }
}
