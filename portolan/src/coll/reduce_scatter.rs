//! Reductions whose result is dealt out to the ranks, and the local reduction.

use std::borrow::Borrow;

use portolan_coll::Operation;
use portolan_coll::inter::InterOperation;
use portolan_core::{Device, Error, ErrorKind, Result, TypedBuf};
use portolan_datatype::{Datatype, Op};

use super::blocks::{Which, not_in_place};
use super::call::{Collective, Sealed, has_sides};
use super::data::IntoData;
use super::sides::{Receives, RecvOnly, SendRecv};
use crate::Level;
use crate::comm::{Buffer, BufferMut, Comm, InterComm};

const NAME: &str = "reduce-scatter";

/// Combines the ranks' values item by item and deals out the result in blocks of any lengths (MPI-4
/// section 6.10.2, `MPI_Reduce_scatter`). Short form: [`Comm::reduce_scatter`].
///
/// ```
/// use portolan::coll::ReduceScatter;
/// use portolan::Op;
///
/// portolan::try_threads(3, |world| {
///     let comm = world.comm();
///     let me = comm.rank() as usize;
///     let (mine, mut sum) = ([1, 2, 3, 4], vec![0; [2, 0, 2][me]]);
///     comm.run(ReduceScatter::new(&mine, &mut sum, &[2, 0, 2], Op::SUM))?;
///     assert_eq!(sum, [&[3, 6][..], &[], &[9, 12]][me]);
///     Ok(())
/// })?;
/// # Ok::<(), portolan::Error>(())
/// ```
#[doc(alias = "MPI_Reduce_scatter")]
#[derive(Debug)]
#[must_use = "arguments do nothing by themselves: give them to Comm::run"]
pub struct ReduceScatter<B: Receives> {
    sides: B,
    counts: Vec<usize>,
    op: Op,
}

impl<S: Buffer, R: BufferMut<Item = S::Item>> ReduceScatter<SendRecv<S, R>> {
    /// Every rank contributes `send`, whose number of items is the sum of `counts`. Rank `i`
    /// receives block `i` of the result, `counts[i]` items, at the beginning of `recv`. All ranks
    /// give the same counts.
    pub fn new(
        send: impl IntoData<Buffer = S>,
        recv: impl IntoData<Buffer = R>,
        counts: &[usize],
        op: impl Into<Op>,
    ) -> Self {
        let (send, recv) = (send.into_data(), recv.into_data());
        Self {
            sides: SendRecv { send, recv },
            counts: counts.to_vec(),
            op: op.into(),
        }
    }
}

impl<R: BufferMut> ReduceScatter<RecvOnly<R>> {
    /// Every rank contributes `data`. Afterwards its block of the result is at the beginning of
    /// `data` (`MPI_IN_PLACE`), and the rest is unspecified.
    #[doc(alias = "MPI_IN_PLACE")]
    pub fn in_place(data: impl IntoData<Buffer = R>, counts: &[usize], op: impl Into<Op>) -> Self {
        let recv = data.into_data();
        Self {
            sides: RecvOnly { recv },
            counts: counts.to_vec(),
            op: op.into(),
        }
    }
}

impl<B: Receives> Sealed for ReduceScatter<B> {}

impl<B: Receives> Collective for ReduceScatter<B> {
    has_sides!(B);

    fn operation<L: Level, D: Device>(&self, comm: &Comm<L, D>) -> Result<Operation<'_>> {
        self.sides.check(comm)?;
        Ok(Operation::ReduceScatter {
            send: self.sides.send(),
            recv: self.sides.target(),
            counts: &self.counts,
            op: &self.op,
        })
    }

    fn between<L: Level, D: Device>(&self, inter: &InterComm<L, D>) -> Result<InterOperation<'_>> {
        let comm = inter.remote();
        self.sides.check(comm)?;
        Ok(InterOperation::ReduceScatter {
            send: not_in_place(comm, NAME, self.sides.send())?,
            recv: self.sides.target(),
            counts: &self.counts,
            op: &self.op,
        })
    }
}

/// Combines the ranks' values item by item and deals out the result in equal blocks (MPI-4 section
/// 6.10.1, `MPI_Reduce_scatter_block`). Short form: [`Comm::reduce_scatter_block`].
///
/// ```
/// use portolan::coll::ReduceScatterBlock;
/// use portolan::Op;
///
/// let sums = portolan::try_threads(3, |world| {
///     let comm = world.comm();
///     let (mine, mut sum) = ([1, 2, 3], [0]);
///     comm.run(ReduceScatterBlock::new(&mine, &mut sum, Op::SUM))?;
///     Ok(sum[0])
/// })?;
/// assert_eq!(sums, [3, 6, 9]);
/// # Ok::<(), portolan::Error>(())
/// ```
#[doc(alias = "MPI_Reduce_scatter_block")]
#[derive(Debug)]
#[must_use = "arguments do nothing by themselves: give them to Comm::run"]
pub struct ReduceScatterBlock<B: Receives> {
    sides: B,
    op: Op,
}

impl<S: Buffer, R: BufferMut<Item = S::Item>> ReduceScatterBlock<SendRecv<S, R>> {
    /// Every rank contributes `send`, which has a block for every rank; rank `i` receives block `i`
    /// of the result into `recv`.
    pub fn new(
        send: impl IntoData<Buffer = S>,
        recv: impl IntoData<Buffer = R>,
        op: impl Into<Op>,
    ) -> Self {
        let (send, recv) = (send.into_data(), recv.into_data());
        let sides = SendRecv { send, recv };
        Self {
            sides,
            op: op.into(),
        }
    }
}

impl<R: BufferMut> ReduceScatterBlock<RecvOnly<R>> {
    /// Every rank contributes `data`. Afterwards its block of the result is at the beginning of
    /// `data` (`MPI_IN_PLACE`), and the rest is unspecified.
    #[doc(alias = "MPI_IN_PLACE")]
    pub fn in_place(data: impl IntoData<Buffer = R>, op: impl Into<Op>) -> Self {
        let recv = data.into_data();
        let sides = RecvOnly { recv };
        Self {
            sides,
            op: op.into(),
        }
    }
}

impl<B: Receives> Sealed for ReduceScatterBlock<B> {}

impl<B: Receives> Collective for ReduceScatterBlock<B> {
    has_sides!(B);

    fn operation<L: Level, D: Device>(&self, comm: &Comm<L, D>) -> Result<Operation<'_>> {
        self.sides.check(comm)?;
        let one = |buffer, all: TypedBuf<'_>| Which::by_rank(comm, NAME, buffer).each(&all);
        let (send, recv) = (self.sides.send(), self.sides.target());
        let (send, recv) = match send {
            Some(send) => {
                let count = one("the contribution", send)?;
                (Some(TypedBuf { count, ..send }), recv)
            }
            None => {
                let count = one("the contribution", recv)?;
                (None, TypedBuf { count, ..recv })
            }
        };
        Ok(Operation::ReduceScatterBlock {
            send,
            recv,
            op: &self.op,
        })
    }

    fn between<L: Level, D: Device>(&self, inter: &InterComm<L, D>) -> Result<InterOperation<'_>> {
        let comm = inter.remote();
        self.sides.check(comm)?;
        let send = not_in_place(comm, NAME, self.sides.send())?;
        let which = Which {
            comm,
            operation: NAME,
            buffer: "the contribution",
            blocks: (inter.size() as usize, "rank of this side"),
        };
        let count = which.each(&send)?;
        Ok(InterOperation::ReduceScatterBlock {
            send: TypedBuf { count, ..send },
            recv: self.sides.target(),
            op: &self.op,
        })
    }
}

/// Combines the values of two slices of one rank: `inout = input op inout`, item by item (MPI-4
/// section 6.9.7, `MPI_Reduce_local`).
///
/// ```
/// use portolan::Op;
///
/// let mut sum = [1, 2, 3];
/// portolan::coll::reduce_local(&[10, 20, 30], &mut sum, &Op::SUM)?;
/// assert_eq!(sum, [11, 22, 33]);
/// # Ok::<(), portolan::Error>(())
/// ```
///
/// # Errors
/// [`InvalidCount`](ErrorKind::InvalidCount) unless the slices are equally long,
/// [`InvalidLayout`](ErrorKind::InvalidLayout) for a type that the operator does not support,
/// [`InvalidArgument`](ErrorKind::InvalidArgument) for an operator of one-sided communication,
/// [`InvalidValue`](ErrorKind::InvalidValue) if the result is not a valid value of the type.
#[doc(alias = "MPI_Reduce_local")]
pub fn reduce_local<T: Datatype>(input: &[T], inout: &mut [T], op: impl Borrow<Op>) -> Result<()> {
    let op = op.borrow();
    if op.is_one_sided() {
        let what = format!("`{}` is for one-sided communication only", op.name());
        let error = Error::new(ErrorKind::InvalidArgument, what);
        let remedy = "use another operator, or one of your own (Op::new)";
        return Err(error.remedy(remedy).during("reduce_local"));
    }
    op.apply_slices(input, inout)
        .map_err(|error| Error::from(error).during("reduce_local"))
}
