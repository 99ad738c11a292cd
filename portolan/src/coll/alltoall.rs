//! Operations in which every rank receives from every rank: allgather and alltoall.

use portolan_coll::Operation;
use portolan_coll::inter::InterOperation;
use portolan_core::{Device, Result};

use super::blocks::{Blocks, Which, not_in_place};
use super::call::{Collective, Sealed, has_sides};
use super::data::IntoData;
use super::sides::{Receives, RecvOnly, SendRecv};
use crate::Level;
use crate::comm::{Buffer, BufferMut, Comm, InterComm};

/// Gives every rank the values of all ranks, in the order of the ranks (MPI-4 section 6.7,
/// `MPI_Allgather`, `MPI_Allgatherv`). Short forms: [`Comm::allgather`], [`Comm::allgatherv`],
/// [`Comm::allgather_one`], [`Comm::allgather_vecs`].
///
/// ```
/// use portolan::coll::Allgather;
///
/// portolan::try_threads(3, |world| {
///     let comm = world.comm();
///     let mine = vec![comm.rank(); comm.rank() as usize];
///     let mut all = [9; 3];
///     comm.run(Allgather::new(&mine, &mut all).counts(&[0, 1, 2]))?;
///     assert_eq!(all, [1, 2, 2]);
///     Ok(())
/// })?;
/// # Ok::<(), portolan::Error>(())
/// ```
#[doc(alias("MPI_Allgather", "MPI_Allgatherv"))]
#[derive(Debug)]
#[must_use = "arguments do nothing by themselves: give them to Comm::run"]
pub struct Allgather<B: Receives> {
    sides: B,
    blocks: Blocks,
}

impl<S: Buffer, R: BufferMut<Item = S::Item>> Allgather<SendRecv<S, R>> {
    /// Every rank contributes `send` and receives into `recv`, which has a block for every rank.
    pub fn new(send: impl IntoData<Buffer = S>, recv: impl IntoData<Buffer = R>) -> Self {
        let (send, recv) = (send.into_data(), recv.into_data());
        Self {
            sides: SendRecv { send, recv },
            blocks: Blocks::Equal,
        }
    }
}

impl<R: BufferMut> Allgather<RecvOnly<R>> {
    /// This rank's contribution is already in its block of `recv` (`MPI_IN_PLACE`).
    #[doc(alias = "MPI_IN_PLACE")]
    pub fn in_place(recv: impl IntoData<Buffer = R>) -> Self {
        let recv = recv.into_data();
        Self {
            sides: RecvOnly { recv },
            blocks: Blocks::Equal,
        }
    }
}

impl<B: Receives> Allgather<B> {
    /// Lets contributions differ in length: rank `i` contributes `counts[i]` items, and the blocks
    /// are side by side (`MPI_Allgatherv`). All ranks give the same counts.
    #[doc(alias = "MPI_Allgatherv")]
    pub fn counts(self, counts: &[usize]) -> Self {
        let blocks = Blocks::packed(counts);
        Self { blocks, ..self }
    }

    /// As [`counts`](Self::counts), with rank `i`'s contribution at `displacements[i]`, in items
    /// from the beginning of the buffer. Blocks may not overlap; the gaps between them stay as they
    /// are.
    pub fn counts_at(self, counts: &[usize], displacements: &[usize]) -> Self {
        let blocks = Blocks::at(counts, displacements);
        Self { blocks, ..self }
    }
}

impl<B: Receives> Sealed for Allgather<B> {}

impl<B: Receives> Collective for Allgather<B> {
    has_sides!(B);

    fn operation<L: Level, D: Device>(&self, comm: &Comm<L, D>) -> Result<Operation<'_>> {
        self.sides.check(comm)?;
        let which = Which::by_rank(comm, "allgather", "the receive buffer");
        Ok(Operation::Allgather {
            send: self.sides.send(),
            recv: self.blocks.of(which, self.sides.target())?,
        })
    }

    fn between<L: Level, D: Device>(&self, inter: &InterComm<L, D>) -> Result<InterOperation<'_>> {
        let comm = inter.remote();
        self.sides.check(comm)?;
        let which = Which::by_rank(comm, "allgather", "the receive buffer");
        Ok(InterOperation::Allgather {
            send: not_in_place(comm, "allgather", self.sides.send())?,
            recv: self.blocks.of(which, self.sides.target())?,
        })
    }
}

/// Every rank sends a block to every rank (MPI-4 section 6.8, `MPI_Alltoall`, `MPI_Alltoallv`).
/// Short forms: [`Comm::alltoall`], [`Comm::alltoallv`]. [`Alltoallw`](super::Alltoallw) gives each
/// block a layout of its own.
///
/// ```
/// use portolan::coll::Alltoall;
///
/// portolan::try_threads(3, |world| {
///     let comm = world.comm();
///     let me = comm.rank();
///     let (mine, mut theirs) = ([me * 10, me * 10 + 1, me * 10 + 2], [0; 3]);
///     comm.run(Alltoall::new(&mine, &mut theirs))?;
///     assert_eq!(theirs, [me, 10 + me, 20 + me]);
///
///     // Every rank sends as many items as its number says, to every rank.
///     let mine = vec![me; 3 * me as usize];
///     let mut theirs = [0; 3];
///     let call = Alltoall::new(&mine, &mut theirs);
///     comm.run(call.send_counts(&[me as usize; 3]).recv_counts(&[0, 1, 2]))?;
///     assert_eq!(theirs, [1, 2, 2]);
///     Ok(())
/// })?;
/// # Ok::<(), portolan::Error>(())
/// ```
#[doc(alias("MPI_Alltoall", "MPI_Alltoallv"))]
#[derive(Debug)]
#[must_use = "arguments do nothing by themselves: give them to Comm::run"]
pub struct Alltoall<B: Receives> {
    sides: B,
    send: Blocks,
    recv: Blocks,
}

impl<S: Buffer, R: BufferMut<Item = S::Item>> Alltoall<SendRecv<S, R>> {
    /// Block `i` of `send` goes to rank `i`; block `i` of `recv` comes from there.
    pub fn new(send: impl IntoData<Buffer = S>, recv: impl IntoData<Buffer = R>) -> Self {
        let (send, recv) = (send.into_data(), recv.into_data());
        Self {
            sides: SendRecv { send, recv },
            send: Blocks::Equal,
            recv: Blocks::Equal,
        }
    }

    /// Lets sent blocks differ in length: `counts[i]` items go to rank `i`, and the blocks are side
    /// by side (`MPI_Alltoallv`). Used together with [`recv_counts`](Self::recv_counts).
    #[doc(alias = "MPI_Alltoallv")]
    pub fn send_counts(self, counts: &[usize]) -> Self {
        let send = Blocks::packed(counts);
        Self { send, ..self }
    }

    /// As [`send_counts`](Self::send_counts), with the block for rank `i` at `displacements[i]`, in
    /// items from the beginning of the buffer.
    pub fn send_counts_at(self, counts: &[usize], displacements: &[usize]) -> Self {
        let send = Blocks::at(counts, displacements);
        Self { send, ..self }
    }
}

impl<R: BufferMut> Alltoall<RecvOnly<R>> {
    /// Exchanges block `i` of `data` for the block that rank `i` has for this rank
    /// (`MPI_IN_PLACE`).
    #[doc(alias = "MPI_IN_PLACE")]
    pub fn in_place(data: impl IntoData<Buffer = R>) -> Self {
        let recv = data.into_data();
        Self {
            sides: RecvOnly { recv },
            send: Blocks::Equal,
            recv: Blocks::Equal,
        }
    }
}

impl<B: Receives> Alltoall<B> {
    /// Lets received blocks differ in length: `counts[i]` items come from rank `i`, and the blocks
    /// are side by side (`MPI_Alltoallv`). In place, as many items go to rank `i`.
    #[doc(alias = "MPI_Alltoallv")]
    pub fn recv_counts(self, counts: &[usize]) -> Self {
        let recv = Blocks::packed(counts);
        Self { recv, ..self }
    }

    /// As [`recv_counts`](Self::recv_counts), with the block of rank `i` at `displacements[i]`, in
    /// items from the beginning of the buffer. Blocks may not overlap; the gaps between them stay
    /// as they are.
    pub fn recv_counts_at(self, counts: &[usize], displacements: &[usize]) -> Self {
        let recv = Blocks::at(counts, displacements);
        Self { recv, ..self }
    }
}

impl<B: Receives> Sealed for Alltoall<B> {}

impl<B: Receives> Collective for Alltoall<B> {
    has_sides!(B);

    fn operation<L: Level, D: Device>(&self, comm: &Comm<L, D>) -> Result<Operation<'_>> {
        self.sides.check(comm)?;
        let send = self.sides.send().map(|all| {
            let which = Which::by_rank(comm, "alltoall", "the send buffer");
            self.send.of(which, all)
        });
        let which = Which::by_rank(comm, "alltoall", "the receive buffer");
        Ok(Operation::Alltoall {
            send: send.transpose()?,
            recv: self.recv.of(which, self.sides.target())?,
        })
    }

    fn between<L: Level, D: Device>(&self, inter: &InterComm<L, D>) -> Result<InterOperation<'_>> {
        let comm = inter.remote();
        self.sides.check(comm)?;
        let to = Which::by_rank(comm, "alltoall", "the send buffer");
        let from = Which::by_rank(comm, "alltoall", "the receive buffer");
        let send = not_in_place(comm, "alltoall", self.sides.send())?;
        Ok(InterOperation::Alltoall {
            send: self.send.of(to, send)?,
            recv: self.recv.of(from, self.sides.target())?,
        })
    }
}
