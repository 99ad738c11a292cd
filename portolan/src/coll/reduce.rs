//! Reductions to one rank, to all ranks, and over the ranks before each.

use portolan_coll::Operation;
use portolan_coll::inter::InterOperation;
use portolan_core::{Device, Result};
use portolan_datatype::Op;

use super::blocks::not_in_place;
use super::call::{Collective, Sealed, has_sides};
use super::data::IntoData;
use super::root::Root;
use super::sides::{Receives, RecvOnly, SendOnly, SendRecv, Sides};
use crate::Level;
use crate::comm::{Buffer, BufferMut, Comm, InterComm};

/// Combines the ranks' values item by item and gives the result to one rank (MPI-4 section 6.9.1,
/// `MPI_Reduce`). Short forms: [`Comm::reduce`], [`Comm::reduce_one`].
///
/// An operator that is not commutative is applied in the order of the ranks; the algorithm chooses
/// how to group the operands. Sums of floating-point numbers may therefore differ in the last bits
/// between numbers of ranks, placements and algorithms, but not from run to run.
/// `PORTOLAN_REPRODUCIBLE=on` makes them the same everywhere.
///
/// ```
/// use portolan::coll::Reduce;
/// use portolan::Op;
///
/// portolan::try_threads(3, |world| {
///     let comm = world.comm();
///     // Every rank its contribution; at the root the result takes its place.
///     let mut data = [u64::from(comm.rank()), 1];
///     comm.run(Reduce::in_place(&mut data, Op::SUM, 1))?;
///     if comm.rank() == 1 {
///         assert_eq!(data, [3, 3]);
///     }
///     Ok(())
/// })?;
/// # Ok::<(), portolan::Error>(())
/// ```
#[doc(alias = "MPI_Reduce")]
#[derive(Debug)]
#[must_use = "arguments do nothing by themselves: give them to Comm::run"]
pub struct Reduce<B: Sides> {
    sides: B,
    op: Op,
    root: Root,
}

impl<S: Buffer, R: BufferMut<Item = S::Item>> Reduce<SendRecv<S, R>> {
    /// Every rank contributes `send`; rank `root` receives the result into `recv`. The other ranks'
    /// `recv` is ignored, and may be empty.
    pub fn new(
        send: impl IntoData<Buffer = S>,
        recv: impl IntoData<Buffer = R>,
        op: impl Into<Op>,
        root: impl Into<Root>,
    ) -> Self {
        let (send, recv) = (send.into_data(), recv.into_data());
        let sides = SendRecv { send, recv };
        let root = root.into();
        Self {
            sides,
            op: op.into(),
            root,
        }
    }
}

impl<S: Buffer> Reduce<SendOnly<S>> {
    /// The call of a rank that is not the root.
    pub fn contribute(
        send: impl IntoData<Buffer = S>,
        op: impl Into<Op>,
        root: impl Into<Root>,
    ) -> Self {
        let send = send.into_data();
        let sides = SendOnly { send };
        let root = root.into();
        Self {
            sides,
            op: op.into(),
            root,
        }
    }
}

impl<R: BufferMut> Reduce<RecvOnly<R>> {
    /// Every rank contributes `data`. At rank `root` the result takes its place (`MPI_IN_PLACE`);
    /// elsewhere it stays as it is.
    #[doc(alias = "MPI_IN_PLACE")]
    pub fn in_place(
        data: impl IntoData<Buffer = R>,
        op: impl Into<Op>,
        root: impl Into<Root>,
    ) -> Self {
        let recv = data.into_data();
        let sides = RecvOnly { recv };
        let root = root.into();
        Self {
            sides,
            op: op.into(),
            root,
        }
    }
}

impl<B: Sides> Sealed for Reduce<B> {}

impl<B: Sides> Collective for Reduce<B> {
    has_sides!(B);

    #[inline]
    fn operation<L: Level, D: Device>(&self, comm: &Comm<L, D>) -> Result<Operation<'_>> {
        self.sides.check(comm)?;
        let root = self.root.rank(comm, "reduce")?;
        let (send, recv) = (self.sides.send(), self.sides.recv());
        let (send, recv) = match comm.rank() == root {
            true => (send, recv),
            false => (send.or(recv), None),
        };
        Ok(Operation::Reduce {
            send,
            recv,
            op: &self.op,
            root,
        })
    }

    fn between<L: Level, D: Device>(&self, inter: &InterComm<L, D>) -> Result<InterOperation<'_>> {
        self.sides.check(inter.remote())?;
        let (send, recv) = (self.sides.send(), self.sides.recv());
        Ok(InterOperation::Reduce {
            send: send.or(recv).filter(|_| self.root.is_remote()),
            recv: recv.filter(|_| self.root == Root::Here),
            op: &self.op,
            root: self.root.between(),
        })
    }
}

/// Operations in which every rank contributes as many items as it receives.
macro_rules! reduction {
    (
        $(#[$doc:meta])*
        $name:ident, $arg:ident => $operation:expr
        $(, between $inter:ident => $between:expr)?
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[must_use = "arguments do nothing by themselves: give them to Comm::run"]
        pub struct $name<B: Receives> {
            sides: B,
            op: Op,
        }

        impl<S: Buffer, R: BufferMut<Item = S::Item>> $name<SendRecv<S, R>> {
            /// Every rank contributes `send` and receives its result into `recv`, which is as long.
            #[inline]
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

        impl<R: BufferMut> $name<RecvOnly<R>> {
            /// Every rank contributes `data`, and the result takes its place (`MPI_IN_PLACE`).
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

        impl<B: Receives> Sealed for $name<B> {}

        impl<B: Receives> Collective for $name<B> {
            has_sides!(B);

            #[inline]
            fn operation<L: Level, D: Device>(&self, comm: &Comm<L, D>) -> Result<Operation<'_>> {
                self.sides.check(comm)?;
                let $arg = (self.sides.send(), self.sides.target(), &self.op);
                Ok($operation)
            }

            $(
                fn between<L: Level, D: Device>(
                    &self,
                    inter: &InterComm<L, D>,
                ) -> Result<InterOperation<'_>> {
                    let comm = inter.remote();
                    self.sides.check(comm)?;
                    let send = not_in_place(comm, "allreduce", self.sides.send())?;
                    let $inter = (send, self.sides.target(), &self.op);
                    Ok($between)
                }
            )?
        }
    };
}

reduction! {
    /// Combines the ranks' values item by item and gives the result to every rank (MPI-4 section
    /// 6.9.6, `MPI_Allreduce`). Short forms: [`Comm::allreduce`], [`Comm::allreduce_in_place`],
    /// [`Comm::allreduce_one`].
    ///
    /// As with [`Reduce`], an operator that is not commutative is applied in the order of the
    /// ranks, and the algorithm chooses how to group the operands. All ranks get the same bits.
    ///
    /// ```
    /// use portolan::coll::Allreduce;
    /// use portolan::Op;
    ///
    /// portolan::try_threads(3, |world| {
    ///     let comm = world.comm();
    ///     // Composition of functions a·x + b, which is not commutative, modulo 97.
    ///     let then = Op::new(false, |f: [u32; 2], g: [u32; 2]| {
    ///         [f[0] * g[0] % 97, (f[1] * g[0] + g[1]) % 97]
    ///     });
    ///     let (mine, mut all) = ([[comm.rank() + 2, 1]], [[0; 2]]);
    ///     comm.run(Allreduce::new(&mine, &mut all, then))?;
    ///     assert_eq!(all, [[24, 17]]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    #[doc(alias = "MPI_Allreduce")]
    Allreduce, args => Operation::Allreduce { send: args.0, recv: args.1, op: args.2 },
    between args => InterOperation::Allreduce { send: args.0, recv: args.1, op: args.2 }
}

reduction! {
    /// Gives rank `i` the combination of the values of ranks 0 to `i` (MPI-4 section 6.11.1,
    /// `MPI_Scan`). Short forms: [`Comm::scan`], [`Comm::scan_one`].
    ///
    /// ```
    /// use portolan::coll::Scan;
    /// use portolan::Op;
    ///
    /// let ends = portolan::try_threads(4, |world| {
    ///     let comm = world.comm();
    ///     let mut end = [comm.rank() + 1];
    ///     comm.run(Scan::in_place(&mut end, Op::SUM))?;
    ///     Ok(end[0])
    /// })?;
    /// assert_eq!(ends, [1, 3, 6, 10]);
    /// # Ok::<(), portolan::Error>(())
    /// ```
    #[doc(alias = "MPI_Scan")]
    Scan, args => Operation::Scan { send: args.0, recv: args.1, op: args.2, exclusive: false }
}

reduction! {
    /// Gives rank `i` the combination of the values of ranks 0 to `i` − 1 (MPI-4 section 6.11.2,
    /// `MPI_Exscan`); rank 0's receive buffer stays as it is. Short forms: [`Comm::exscan`],
    /// [`Comm::exscan_one`].
    ///
    /// ```
    /// use portolan::coll::Exscan;
    /// use portolan::Op;
    ///
    /// let starts = portolan::try_threads(4, |world| {
    ///     let comm = world.comm();
    ///     let (length, mut start) = ([comm.rank() + 1], [0]);
    ///     comm.run(Exscan::new(&length, &mut start, Op::SUM))?;
    ///     Ok(start[0])
    /// })?;
    /// assert_eq!(starts, [0, 1, 3, 6]);
    /// # Ok::<(), portolan::Error>(())
    /// ```
    #[doc(alias = "MPI_Exscan")]
    Exscan, args => Operation::Scan { send: args.0, recv: args.1, op: args.2, exclusive: true }
}
