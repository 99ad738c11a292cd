//! Gather and scatter, with equal and unequal blocks.

use portolan_coll::Operation;
use portolan_coll::inter::InterOperation;
use portolan_core::{Device, Result};

use super::blocks::{Blocks, Which};
use super::call::{Collective, Sealed, has_sides};
use super::data::IntoData;
use super::root::Root;
use super::sides::{RecvOnly, SendOnly, SendRecv, Sides};
use crate::Level;
use crate::comm::{Buffer, BufferMut, Comm, InterComm};

/// Gives the values of all ranks to one rank, in the order of the ranks (MPI-4 section 6.5,
/// `MPI_Gather`, `MPI_Gatherv`). Short forms: [`Comm::gather`], [`Comm::gatherv`],
/// [`Comm::gather_one`], [`Comm::gather_vecs`].
///
/// ```
/// use portolan::coll::Gather;
///
/// portolan::try_threads(3, |world| {
///     let comm = world.comm();
///     let mine = vec![comm.rank(); comm.rank() as usize + 1];
///     if comm.rank() == 0 {
///         // Rank 2's block first, then rank 1's, and two places that stay free.
///         let mut all = [9; 8];
///         comm.run(Gather::new(&mine, &mut all, 0).counts_at(&[1, 2, 3], &[7, 3, 0]))?;
///         assert_eq!(all, [2, 2, 2, 1, 1, 9, 9, 0]);
///     } else {
///         comm.run(Gather::contribute(&mine, 0).uneven())?;
///     }
///     Ok(())
/// })?;
/// # Ok::<(), portolan::Error>(())
/// ```
#[doc(alias("MPI_Gather", "MPI_Gatherv"))]
#[derive(Debug)]
#[must_use = "arguments do nothing by themselves: give them to Comm::run"]
pub struct Gather<B: Sides> {
    sides: B,
    root: Root,
    blocks: Blocks,
    uneven: bool,
}

impl<S: Buffer, R: BufferMut<Item = S::Item>> Gather<SendRecv<S, R>> {
    /// Every rank contributes `send`; rank `root` receives into `recv`, which has a block for every
    /// rank. The other ranks' `recv` is ignored, and may be empty.
    pub fn new(
        send: impl IntoData<Buffer = S>,
        recv: impl IntoData<Buffer = R>,
        root: impl Into<Root>,
    ) -> Self {
        let (send, recv) = (send.into_data(), recv.into_data());
        Self::of(SendRecv { send, recv }, root)
    }
}

impl<S: Buffer> Gather<SendOnly<S>> {
    /// The call of a rank that is not the root.
    pub fn contribute(send: impl IntoData<Buffer = S>, root: impl Into<Root>) -> Self {
        let send = send.into_data();
        Self::of(SendOnly { send }, root)
    }
}

impl<R: BufferMut> Gather<RecvOnly<R>> {
    /// The root's call when its own contribution is already in its block of `recv`
    /// (`MPI_IN_PLACE`).
    #[doc(alias = "MPI_IN_PLACE")]
    pub fn in_place(recv: impl IntoData<Buffer = R>, root: impl Into<Root>) -> Self {
        let recv = recv.into_data();
        Self::of(RecvOnly { recv }, root)
    }
}

impl<B: Sides> Gather<B> {
    fn of(sides: B, root: impl Into<Root>) -> Self {
        Self {
            sides,
            root: root.into(),
            blocks: Blocks::Equal,
            uneven: false,
        }
    }

    /// Lets contributions differ in length: rank `i` contributes `counts[i]` items, and the blocks
    /// are side by side (`MPI_Gatherv`). Only the root's counts are used; the other ranks may call
    /// [`uneven`](Self::uneven) instead.
    #[doc(alias = "MPI_Gatherv")]
    pub fn counts(self, counts: &[usize]) -> Self {
        self.blocks(Blocks::packed(counts))
    }

    /// As [`counts`](Self::counts), with rank `i`'s contribution at `displacements[i]`, in items
    /// from the beginning of the buffer. Blocks may not overlap; the gaps between them stay as they
    /// are.
    pub fn counts_at(self, counts: &[usize], displacements: &[usize]) -> Self {
        self.blocks(Blocks::at(counts, displacements))
    }

    /// Declares that contributions may differ in length, as the root's counts say. Either all ranks
    /// declare it, or none.
    pub fn uneven(self) -> Self {
        Self {
            uneven: true,
            ..self
        }
    }

    fn blocks(self, blocks: Blocks) -> Self {
        Self {
            blocks,
            uneven: true,
            ..self
        }
    }
}

impl<B: Sides> Sealed for Gather<B> {}

impl<B: Sides> Collective for Gather<B> {
    has_sides!(B);

    fn operation<L: Level, D: Device>(&self, comm: &Comm<L, D>) -> Result<Operation<'_>> {
        self.sides.check(comm)?;
        let root = self.root.rank(comm, "gather")?;
        let which = Which::by_rank(comm, "gather", "the receive buffer");
        let recv = self.sides.recv().filter(|_| comm.rank() == root);
        Ok(Operation::Gather {
            send: self.sides.send(),
            recv: recv.map(|all| self.blocks.of(which, all)).transpose()?,
            root,
            uneven: self.uneven,
        })
    }

    fn between<L: Level, D: Device>(&self, inter: &InterComm<L, D>) -> Result<InterOperation<'_>> {
        let comm = inter.remote();
        self.sides.check(comm)?;
        let which = Which::by_rank(comm, "gather", "the receive buffer");
        let recv = self.sides.recv().filter(|_| self.root == Root::Here);
        Ok(InterOperation::Gather {
            send: self.sides.send().filter(|_| self.root.is_remote()),
            recv: recv.map(|all| self.blocks.of(which, all)).transpose()?,
            root: self.root.between(),
        })
    }
}

/// Deals out the values of one rank to all ranks, in their order (MPI-4 section 6.6, `MPI_Scatter`,
/// `MPI_Scatterv`). Short forms: [`Comm::scatter`], [`Comm::scatterv`].
///
/// ```
/// use portolan::coll::Scatter;
///
/// portolan::try_threads(3, |world| {
///     let comm = world.comm();
///     let mut mine = [0; 2];
///     if comm.rank() == 2 {
///         let all = [0, 1, 10, 11, 20, 21];
///         comm.run(Scatter::new(&all, &mut mine, 2))?;
///     } else {
///         comm.run(Scatter::receive(&mut mine, 2))?;
///     }
///     assert_eq!(mine, [comm.rank() * 10, comm.rank() * 10 + 1]);
///     Ok(())
/// })?;
/// # Ok::<(), portolan::Error>(())
/// ```
#[doc(alias("MPI_Scatter", "MPI_Scatterv"))]
#[derive(Debug)]
#[must_use = "arguments do nothing by themselves: give them to Comm::run"]
pub struct Scatter<B: Sides> {
    sides: B,
    root: Root,
    blocks: Blocks,
    uneven: bool,
}

impl<S: Buffer, R: BufferMut<Item = S::Item>> Scatter<SendRecv<S, R>> {
    /// Rank `root` deals out `send`, which has a block for every rank; every rank receives its own
    /// block into `recv`. The other ranks' `send` is ignored, and may be empty.
    pub fn new(
        send: impl IntoData<Buffer = S>,
        recv: impl IntoData<Buffer = R>,
        root: impl Into<Root>,
    ) -> Self {
        let (send, recv) = (send.into_data(), recv.into_data());
        Self::of(SendRecv { send, recv }, root)
    }
}

impl<R: BufferMut> Scatter<RecvOnly<R>> {
    /// The call of a rank that is not the root.
    pub fn receive(recv: impl IntoData<Buffer = R>, root: impl Into<Root>) -> Self {
        let recv = recv.into_data();
        Self::of(RecvOnly { recv }, root)
    }
}

impl<S: Buffer> Scatter<SendOnly<S>> {
    /// The root's call when its own block stays where it is (`MPI_IN_PLACE`).
    #[doc(alias = "MPI_IN_PLACE")]
    pub fn in_place(send: impl IntoData<Buffer = S>, root: impl Into<Root>) -> Self {
        let send = send.into_data();
        Self::of(SendOnly { send }, root)
    }
}

impl<B: Sides> Scatter<B> {
    fn of(sides: B, root: impl Into<Root>) -> Self {
        Self {
            sides,
            root: root.into(),
            blocks: Blocks::Equal,
            uneven: false,
        }
    }

    /// Lets blocks differ in length: rank `i` gets `counts[i]` items, and the blocks are side by
    /// side (`MPI_Scatterv`). Only the root's counts are used; the other ranks may call
    /// [`uneven`](Self::uneven) instead.
    #[doc(alias = "MPI_Scatterv")]
    pub fn counts(self, counts: &[usize]) -> Self {
        self.blocks(Blocks::packed(counts))
    }

    /// As [`counts`](Self::counts), with rank `i`'s block at `displacements[i]`, in items from the
    /// beginning of the buffer. Blocks may overlap, because they are only read.
    pub fn counts_at(self, counts: &[usize], displacements: &[usize]) -> Self {
        self.blocks(Blocks::at(counts, displacements))
    }

    /// Declares that blocks may differ in length, as the root's counts say. Either all ranks
    /// declare it, or none.
    pub fn uneven(self) -> Self {
        Self {
            uneven: true,
            ..self
        }
    }

    fn blocks(self, blocks: Blocks) -> Self {
        Self {
            blocks,
            uneven: true,
            ..self
        }
    }
}

impl<B: Sides> Sealed for Scatter<B> {}

impl<B: Sides> Collective for Scatter<B> {
    has_sides!(B);

    fn operation<L: Level, D: Device>(&self, comm: &Comm<L, D>) -> Result<Operation<'_>> {
        self.sides.check(comm)?;
        let root = self.root.rank(comm, "scatter")?;
        let which = Which::by_rank(comm, "scatter", "the send buffer");
        let send = self.sides.send().filter(|_| comm.rank() == root);
        Ok(Operation::Scatter {
            send: send.map(|all| self.blocks.of(which, all)).transpose()?,
            recv: self.sides.recv(),
            root,
            uneven: self.uneven,
        })
    }

    fn between<L: Level, D: Device>(&self, inter: &InterComm<L, D>) -> Result<InterOperation<'_>> {
        let comm = inter.remote();
        self.sides.check(comm)?;
        let which = Which::by_rank(comm, "scatter", "the send buffer");
        let send = self.sides.send().filter(|_| self.root == Root::Here);
        Ok(InterOperation::Scatter {
            send: send.map(|all| self.blocks.of(which, all)).transpose()?,
            recv: self.sides.recv().filter(|_| self.root.is_remote()),
            root: self.root.between(),
        })
    }
}
