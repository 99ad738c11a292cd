//! Blocking calls of the most common collective operations, on slices.

use portolan_core::{Device, Result};
use portolan_datatype::{Datatype, Op};

use super::{
    Allgather, Allreduce, Alltoall, Barrier, Bcast, Exscan, Gather, NeighbourAllgather,
    NeighbourAlltoall, Reduce, ReduceScatter, ReduceScatterBlock, Scan, Scatter,
};
use crate::Level;
use crate::comm::Comm;

/// # Collective operations
/// Short forms for slices. For the full operations, with all arguments and in all forms, see
/// [`coll`](crate::coll). Errors are those of [`run`](Self::run).
impl<L: Level, D: Device> Comm<L, D> {
    /// Returns when every rank has called it (MPI-4 section 6.3, `MPI_Barrier`).
    ///
    /// # Errors
    /// [`PeerFailed`](crate::ErrorKind::PeerFailed).
    #[doc(alias = "MPI_Barrier")]
    pub fn barrier(&self) -> Result<()> {
        self.run(Barrier::new())
    }

    /// Copies the values of rank `root` to every rank (MPI-4 section 6.4, `MPI_Bcast`). Every rank
    /// gives a buffer of the same length. In full: [`Bcast`].
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[doc(alias = "MPI_Bcast")]
    pub fn bcast<T: Datatype>(&self, data: &mut [T], root: u32) -> Result<()> {
        self.lend(&mut Bcast::new(data, root))
    }

    /// Gives rank `root` the values of all ranks, in the order of the ranks (MPI-4 section 6.5,
    /// `MPI_Gather`). Every rank sends equally many; at the root `recv` has room for all of them,
    /// and elsewhere it may be empty. In full: [`Gather`].
    ///
    /// ```
    /// portolan::try_threads(3, |world| {
    ///     let comm = world.comm();
    ///     let mut all = vec![0; if comm.rank() == 0 { 6 } else { 0 }];
    ///     comm.gather(&[comm.rank(), 7], &mut all, 0)?;
    ///     if comm.rank() == 0 {
    ///         assert_eq!(all, [0, 7, 1, 7, 2, 7]);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[doc(alias = "MPI_Gather")]
    pub fn gather<T: Datatype>(&self, send: &[T], recv: &mut [T], root: u32) -> Result<()> {
        self.lend(&mut Gather::new(send, recv, root))
    }

    /// Gives rank `root` the values of all ranks, `counts[i]` from rank `i`, in the order of the
    /// ranks (MPI-4 section 6.5, `MPI_Gatherv`). `recv` and `counts` are used at the root only. In
    /// full: [`Gather::counts`]; for counts that the root does not know:
    /// [`gather_vecs`](Self::gather_vecs).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[doc(alias = "MPI_Gatherv")]
    pub fn gatherv<T: Datatype>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
        root: u32,
    ) -> Result<()> {
        self.lend(&mut Gather::new(send, recv, root).counts(counts))
    }

    /// Deals out the values of rank `root` to the ranks in their order, equally many to each (MPI-4
    /// section 6.6, `MPI_Scatter`). `send` is used at the root only. In full: [`Scatter`].
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[doc(alias = "MPI_Scatter")]
    pub fn scatter<T: Datatype>(&self, send: &[T], recv: &mut [T], root: u32) -> Result<()> {
        self.lend(&mut Scatter::new(send, recv, root))
    }

    /// Deals out the values of rank `root` to the ranks in their order, `counts[i]` to rank `i`
    /// (MPI-4 section 6.6, `MPI_Scatterv`). `send` and `counts` are used at the root only. In full:
    /// [`Scatter::counts`].
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[doc(alias = "MPI_Scatterv")]
    pub fn scatterv<T: Datatype>(
        &self,
        send: &[T],
        counts: &[usize],
        recv: &mut [T],
        root: u32,
    ) -> Result<()> {
        self.lend(&mut Scatter::new(send, recv, root).counts(counts))
    }

    /// Gives every rank the values of all ranks, in the order of the ranks (MPI-4 section 6.7,
    /// `MPI_Allgather`). Every rank sends equally many; `recv` has room for all of them. In full:
    /// [`Allgather`].
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[doc(alias = "MPI_Allgather")]
    pub fn allgather<T: Datatype>(&self, send: &[T], recv: &mut [T]) -> Result<()> {
        self.lend(&mut Allgather::new(send, recv))
    }

    /// Gives every rank the values of all ranks, `counts[i]` from rank `i`, in the order of the
    /// ranks (MPI-4 section 6.7, `MPI_Allgatherv`). In full: [`Allgather::counts`]; for counts that
    /// are not known: [`allgather_vecs`](Self::allgather_vecs).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[doc(alias = "MPI_Allgatherv")]
    pub fn allgatherv<T: Datatype>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
    ) -> Result<()> {
        self.lend(&mut Allgather::new(send, recv).counts(counts))
    }

    /// Every rank sends equally many values to every rank (MPI-4 section 6.8, `MPI_Alltoall`): the
    /// `i`-th part of `send` goes to rank `i`, and the `i`-th part of `recv` comes from it. In
    /// full: [`Alltoall`].
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[doc(alias = "MPI_Alltoall")]
    pub fn alltoall<T: Datatype>(&self, send: &[T], recv: &mut [T]) -> Result<()> {
        self.lend(&mut Alltoall::new(send, recv))
    }

    /// Every rank sends `send_counts[i]` values to rank `i` and receives `recv_counts[i]` from it;
    /// the blocks are side by side (MPI-4 section 6.8, `MPI_Alltoallv`). In full:
    /// [`Alltoall::send_counts`].
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[doc(alias = "MPI_Alltoallv")]
    pub fn alltoallv<T: Datatype>(
        &self,
        send: &[T],
        send_counts: &[usize],
        recv: &mut [T],
        recv_counts: &[usize],
    ) -> Result<()> {
        let call = Alltoall::new(send, recv).send_counts(send_counts);
        self.lend(&mut call.recv_counts(recv_counts))
    }

    /// Combines the ranks' values item by item and gives the result to rank `root` (MPI-4 section
    /// 6.9.1, `MPI_Reduce`). `recv` is used at the root only, and may be empty elsewhere. In full:
    /// [`Reduce`].
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[doc(alias = "MPI_Reduce")]
    pub fn reduce<T: Datatype>(
        &self,
        send: &[T],
        recv: &mut [T],
        op: impl Into<Op>,
        root: u32,
    ) -> Result<()> {
        self.lend(&mut Reduce::new(send, recv, op, root))
    }

    /// Combines the ranks' values item by item and gives the result to every rank (MPI-4 section
    /// 6.9.6, `MPI_Allreduce`). In full: [`Allreduce`], which describes the order of the operands.
    ///
    /// ```
    /// use portolan::Op;
    ///
    /// portolan::try_threads(5, |world| {
    ///     let comm = world.comm();
    ///     let (mine, mut sum) = ([comm.rank(), 1], [0; 2]);
    ///     comm.allreduce(&mine, &mut sum, &Op::SUM)?;
    ///     assert_eq!(sum, [10, 5]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[doc(alias = "MPI_Allreduce")]
    pub fn allreduce<T: Datatype>(
        &self,
        send: &[T],
        recv: &mut [T],
        op: impl Into<Op>,
    ) -> Result<()> {
        self.lend(&mut Allreduce::new(send, recv, op))
    }

    /// As [`allreduce`](Self::allreduce), with the result in place of the contribution.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn allreduce_in_place<T: Datatype>(&self, data: &mut [T], op: impl Into<Op>) -> Result<()> {
        self.lend(&mut Allreduce::in_place(data, op))
    }

    /// Combines the ranks' values item by item and deals out the result, `counts[i]` items to rank
    /// `i` (MPI-4 section 6.10.2, `MPI_Reduce_scatter`). In full: [`ReduceScatter`].
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[doc(alias = "MPI_Reduce_scatter")]
    pub fn reduce_scatter<T: Datatype>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
        op: impl Into<Op>,
    ) -> Result<()> {
        self.lend(&mut ReduceScatter::new(send, recv, counts, op))
    }

    /// Combines the ranks' values item by item and deals out the result in equal parts (MPI-4
    /// section 6.10.1, `MPI_Reduce_scatter_block`). In full: [`ReduceScatterBlock`].
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[doc(alias = "MPI_Reduce_scatter_block")]
    pub fn reduce_scatter_block<T: Datatype>(
        &self,
        send: &[T],
        recv: &mut [T],
        op: impl Into<Op>,
    ) -> Result<()> {
        self.lend(&mut ReduceScatterBlock::new(send, recv, op))
    }

    /// Gives rank `i` the combination of the values of ranks 0 to `i` (MPI-4 section 6.11.1,
    /// `MPI_Scan`). In full: [`Scan`].
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[doc(alias = "MPI_Scan")]
    pub fn scan<T: Datatype>(&self, send: &[T], recv: &mut [T], op: impl Into<Op>) -> Result<()> {
        self.lend(&mut Scan::new(send, recv, op))
    }

    /// Gives rank `i` the combination of the values of ranks 0 to `i` − 1; rank 0's `recv` stays as
    /// it is (MPI-4 section 6.11.2, `MPI_Exscan`). In full: [`Exscan`].
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[doc(alias = "MPI_Exscan")]
    pub fn exscan<T: Datatype>(&self, send: &[T], recv: &mut [T], op: impl Into<Op>) -> Result<()> {
        self.lend(&mut Exscan::new(send, recv, op))
    }

    /// Gives every rank the values of its sources in the topology, equally many from each (MPI-4
    /// section 8.6.1, `MPI_Neighbor_allgather`). In full: [`NeighbourAllgather`].
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`InvalidCommunicator`](crate::ErrorKind::InvalidCommunicator) if
    /// there is no topology.
    #[doc(alias("MPI_Neighbor_allgather", "neighbor_allgather"))]
    pub fn neighbour_allgather<T: Datatype>(&self, send: &[T], recv: &mut [T]) -> Result<()> {
        self.lend(&mut NeighbourAllgather::new(send, recv))
    }

    /// Sends the `i`-th part of `send` to destination `i` in the topology, and receives the `i`-th
    /// part of `recv` from source `i` (MPI-4 section 8.6.2, `MPI_Neighbor_alltoall`). In full:
    /// [`NeighbourAlltoall`].
    ///
    /// # Errors
    /// As [`neighbour_allgather`](Self::neighbour_allgather).
    #[doc(alias("MPI_Neighbor_alltoall", "neighbor_alltoall"))]
    pub fn neighbour_alltoall<T: Datatype>(&self, send: &[T], recv: &mut [T]) -> Result<()> {
        self.lend(&mut NeighbourAlltoall::new(send, recv))
    }
}
