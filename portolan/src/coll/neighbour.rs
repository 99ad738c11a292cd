//! Operations between neighbours in the communicator's topology.

use portolan_coll::Operation;
use portolan_core::comm::Neighbours;
use portolan_core::{Device, ErrorKind, Result};

use super::alltoallw::Shapes;
use super::blocks::{Blocks, Which, wrong};
use super::call::{Collective, Sealed, has_sides};
use super::data::IntoData;
use super::sides::{Private, Receives, RecvOnly, SendRecv};
use crate::Level;
use crate::comm::raw::all_bytes;
use crate::comm::{Buffer, BufferMut, Comm};

const ALLGATHER: &str = "neighbour-allgather";
const ALLTOALL: &str = "neighbour-alltoall";

fn neighbours<L: Level, D: Device>(
    comm: &Comm<L, D>,
    operation: &'static str,
) -> Result<Neighbours> {
    comm.inner.neighbours().ok_or_else(|| {
        let what = format!("communicator {} has no topology", comm.name());
        let remedy = "use one that cart_create, graph_create or dist_graph_create_adjacent made";
        wrong(
            comm,
            operation,
            ErrorKind::InvalidCommunicator,
            &what,
            remedy,
        )
    })
}

/// Gives every rank the values of its sources, in the order of [`Comm::neighbours`] (MPI-4 section
/// 8.6.1, `MPI_Neighbor_allgather`, `MPI_Neighbor_allgatherv`). Short form:
/// [`Comm::neighbour_allgather`].
///
/// At the edge of a grid, the block of a source that does not exist stays as it is.
///
/// ```
/// use portolan::coll::NeighbourAllgather;
/// use portolan::topology::Dimension;
///
/// portolan::try_threads(3, |world| {
///     let line = world.comm().cart_create(&[Dimension::open(3)], false)?.expect("all ranks");
///     let (mine, mut around) = ([line.rank()], [9, 9]);
///     line.run(NeighbourAllgather::new(&mine, &mut around))?;
///     assert_eq!(around, [[9, 1], [0, 2], [1, 9]][line.rank() as usize]);
///     Ok(())
/// })?;
/// # Ok::<(), portolan::Error>(())
/// ```
#[doc(alias("MPI_Neighbor_allgather", "MPI_Neighbor_allgatherv"))]
#[doc(alias = "NeighborAllgather")]
#[derive(Debug)]
#[must_use = "arguments do nothing by themselves: give them to Comm::run"]
pub struct NeighbourAllgather<S: Buffer, R: BufferMut> {
    sides: SendRecv<S, R>,
    blocks: Blocks,
}

impl<S: Buffer, R: BufferMut<Item = S::Item>> NeighbourAllgather<S, R> {
    /// `send` goes to every destination; `recv` has a block for every source.
    pub fn new(send: impl IntoData<Buffer = S>, recv: impl IntoData<Buffer = R>) -> Self {
        let (send, recv) = (send.into_data(), recv.into_data());
        Self {
            sides: SendRecv { send, recv },
            blocks: Blocks::Equal,
        }
    }

    /// Lets contributions differ in length: source `i` contributes `counts[i]` items, and the
    /// blocks are side by side.
    pub fn counts(self, counts: &[usize]) -> Self {
        let blocks = Blocks::packed(counts);
        Self { blocks, ..self }
    }

    /// As [`counts`](Self::counts), with the contribution of source `i` at `displacements[i]`, in
    /// items from the beginning of the buffer.
    pub fn counts_at(self, counts: &[usize], displacements: &[usize]) -> Self {
        let blocks = Blocks::at(counts, displacements);
        Self { blocks, ..self }
    }
}

impl<S: Buffer, R: BufferMut> Sealed for NeighbourAllgather<S, R> {}

impl<S: Buffer, R: BufferMut> Collective for NeighbourAllgather<S, R> {
    has_sides!(SendRecv<S, R>);

    fn operation<L: Level, D: Device>(&self, comm: &Comm<L, D>) -> Result<Operation<'_>> {
        self.sides.check(comm)?;
        let sources = neighbours(comm, ALLGATHER)?.sources.len();
        let which = Which {
            comm,
            operation: ALLGATHER,
            buffer: "the receive buffer",
            blocks: (sources, "source"),
        };
        Ok(Operation::NeighbourAllgather {
            send: self.sides.send.all(),
            recv: self.blocks.of(which, self.sides.recv.all())?,
        })
    }
}

/// Every rank sends a block to every destination, and receives one from every source, in the order
/// of [`Comm::neighbours`] (MPI-4 section 8.6.2, `MPI_Neighbor_alltoall`,
/// `MPI_Neighbor_alltoallv`). Short form: [`Comm::neighbour_alltoall`].
///
/// At the edge of a grid, the blocks of a neighbour that does not exist are not used.
///
/// ```
/// use portolan::coll::NeighbourAlltoall;
/// use portolan::topology::Dimension;
///
/// portolan::try_threads(3, |world| {
///     let ring = world.comm().cart_create(&[Dimension::periodic(3)], false)?.expect("all ranks");
///     let me = ring.rank();
///     // One value to the left, one to the right.
///     let (mine, mut theirs) = ([me * 10, me * 10 + 1], [0; 2]);
///     ring.run(NeighbourAlltoall::new(&mine, &mut theirs))?;
///     assert_eq!(theirs, [(me + 2) % 3 * 10 + 1, (me + 1) % 3 * 10]);
///     Ok(())
/// })?;
/// # Ok::<(), portolan::Error>(())
/// ```
#[doc(alias("MPI_Neighbor_alltoall", "MPI_Neighbor_alltoallv"))]
#[doc(alias = "NeighborAlltoall")]
#[derive(Debug)]
#[must_use = "arguments do nothing by themselves: give them to Comm::run"]
pub struct NeighbourAlltoall<S: Buffer, R: BufferMut> {
    sides: SendRecv<S, R>,
    send: Blocks,
    recv: Blocks,
}

impl<S: Buffer, R: BufferMut<Item = S::Item>> NeighbourAlltoall<S, R> {
    /// Block `i` of `send` goes to destination `i`; block `i` of `recv` comes from source `i`.
    pub fn new(send: impl IntoData<Buffer = S>, recv: impl IntoData<Buffer = R>) -> Self {
        let (send, recv) = (send.into_data(), recv.into_data());
        Self {
            sides: SendRecv { send, recv },
            send: Blocks::Equal,
            recv: Blocks::Equal,
        }
    }

    /// Lets sent blocks differ in length: `counts[i]` items go to destination `i`, and the blocks
    /// are side by side.
    pub fn send_counts(self, counts: &[usize]) -> Self {
        let send = Blocks::packed(counts);
        Self { send, ..self }
    }

    /// As [`send_counts`](Self::send_counts), with the block for destination `i` at
    /// `displacements[i]`, in items from the beginning of the buffer.
    pub fn send_counts_at(self, counts: &[usize], displacements: &[usize]) -> Self {
        let send = Blocks::at(counts, displacements);
        Self { send, ..self }
    }

    /// Lets received blocks differ in length: `counts[i]` items come from source `i`, and the
    /// blocks are side by side.
    pub fn recv_counts(self, counts: &[usize]) -> Self {
        let recv = Blocks::packed(counts);
        Self { recv, ..self }
    }

    /// As [`recv_counts`](Self::recv_counts), with the block of source `i` at `displacements[i]`,
    /// in items from the beginning of the buffer.
    pub fn recv_counts_at(self, counts: &[usize], displacements: &[usize]) -> Self {
        let recv = Blocks::at(counts, displacements);
        Self { recv, ..self }
    }
}

impl<S: Buffer, R: BufferMut> Sealed for NeighbourAlltoall<S, R> {}

impl<S: Buffer, R: BufferMut> Collective for NeighbourAlltoall<S, R> {
    has_sides!(SendRecv<S, R>);

    fn operation<L: Level, D: Device>(&self, comm: &Comm<L, D>) -> Result<Operation<'_>> {
        self.sides.check(comm)?;
        let around = neighbours(comm, ALLTOALL)?;
        let which = |buffer, blocks| Which {
            comm,
            operation: ALLTOALL,
            buffer,
            blocks,
        };
        let to = which(
            "the send buffer",
            (around.destinations.len(), "destination"),
        );
        let from = which("the receive buffer", (around.sources.len(), "source"));
        Ok(Operation::NeighbourAlltoall {
            send: self.send.of(to, self.sides.send.all())?,
            recv: self.recv.of(from, self.sides.recv.all())?,
        })
    }
}

/// As [`NeighbourAlltoall`], with a layout for every block (MPI-4 section 8.6.2,
/// `MPI_Neighbor_alltoallw`). It moves the edges of a patch of a grid straight to their places, for
/// example, without a copy in the program. The type of the buffers must be one without padding;
/// that is checked when the program is compiled.
///
/// ```
/// use portolan::Layout;
/// use portolan::coll::NeighbourAlltoallw;
/// use portolan::topology::Dimension;
///
/// // Everybody has two rows of four columns, of which the outer ones belong to the neighbours.
/// portolan::try_threads(3, |world| {
///     let ring = world.comm().cart_create(&[Dimension::periodic(3)], false)?.expect("all ranks");
///     let me = f64::from(ring.rank());
///     let cells = vec![0.0, me, me, 0.0, 0.0, me, me, 0.0];
///     let mut ghosts = vec![0.0; 8];
///     let column = Layout::vector(2, 1, 4, &Layout::of::<f64>())?;
///     let inner = [(8, 1, column.clone()), (16, 1, column.clone())].into_iter().collect();
///     let outer = [(0, 1, column.clone()), (24, 1, column)].into_iter().collect();
///     ring.run(NeighbourAlltoallw::new(&cells, inner, &mut ghosts, outer))?;
///     let (left, right) = ((me + 2.0) % 3.0, (me + 1.0) % 3.0);
///     assert_eq!(ghosts, [left, 0.0, 0.0, right, left, 0.0, 0.0, right]);
///     Ok(())
/// })?;
/// # Ok::<(), portolan::Error>(())
/// ```
#[doc(alias("MPI_Neighbor_alltoallw", "NeighborAlltoallw"))]
#[derive(Debug)]
#[must_use = "arguments do nothing by themselves: give them to Comm::run"]
pub struct NeighbourAlltoallw<B: Receives> {
    sides: B,
    send: Shapes,
    recv: Shapes,
}

impl<S: Buffer, R: BufferMut<Item = S::Item>> NeighbourAlltoallw<SendRecv<S, R>> {
    /// Block `i` of `send` goes to destination `i`; block `i` of `recv` comes from source `i`.
    pub fn new(
        send: impl IntoData<Buffer = S>,
        send_shapes: Shapes,
        recv: impl IntoData<Buffer = R>,
        recv_shapes: Shapes,
    ) -> Self {
        const {
            all_bytes::<S::Item>();
        };
        let (send, recv) = (send.into_data(), recv.into_data());
        Self {
            sides: SendRecv { send, recv },
            send: send_shapes,
            recv: recv_shapes,
        }
    }
}

impl<R: BufferMut> NeighbourAlltoallw<RecvOnly<R>> {
    /// Sends from and receives into one buffer: block `i` of `send_shapes` goes to destination `i`,
    /// block `i` of `recv_shapes` comes from source `i`. No byte may be both sent and received. If
    /// blocks lie between each other, as the columns of a matrix do, every byte has to be looked
    /// at, in memory as long as the buffer. A [persistent](Comm::persistent) operation does that
    /// once, when it is planned.
    ///
    /// ```
    /// use portolan::Layout;
    /// use portolan::coll::NeighbourAlltoallw;
    /// use portolan::topology::Dimension;
    ///
    /// // Three rows of four columns, of which the outer ones are ghosts of the neighbours' inner
    /// // ones. Beyond the ends of the line they stay as they are.
    /// portolan::try_threads(3, |world| {
    ///     let line = world.comm().cart_create(&[Dimension::open(3)], false)?.expect("all ranks");
    ///     let column = Layout::vector(3, 1, 4, &Layout::of::<f64>())?;
    ///     let at = |column_at: usize| (column_at * size_of::<f64>(), 1, column.clone());
    ///     let (send, recv) = ([at(1), at(2)], [at(0), at(3)]);
    ///     let (send, recv) = (send.into_iter().collect(), recv.into_iter().collect());
    ///     let halo = NeighbourAlltoallw::within(vec![-1.0; 12], send, recv);
    ///     let mut halo = line.persistent(halo)?;
    ///     for step in 0..5 {
    ///         let matrix = halo.buffers_mut()?;
    ///         for row in matrix.chunks_mut(4) {
    ///             row[1..3].fill(f64::from(10 * step + line.rank()));
    ///         }
    ///         halo.start()?;
    ///         halo.wait()?;
    ///         let left = match line.rank() {
    ///             0 => -1.0,
    ///             me => f64::from(10 * step + me - 1),
    ///         };
    ///         assert!(halo.buffers()?.chunks(4).all(|row| row[0] == left));
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// None here. The operation returns [`InvalidBuffer`](ErrorKind::InvalidBuffer) if a byte is
    /// sent and received, and [`Exhausted`](ErrorKind::Exhausted) if there is no memory to find
    /// out.
    pub fn within(
        data: impl IntoData<Buffer = R>,
        send_shapes: Shapes,
        recv_shapes: Shapes,
    ) -> Self {
        const {
            all_bytes::<R::Item>();
        };
        let recv = data.into_data();
        Self {
            sides: RecvOnly { recv },
            send: send_shapes,
            recv: recv_shapes,
        }
    }
}

impl<B: Receives> Sealed for NeighbourAlltoallw<B> {}

impl<B: Receives> Collective for NeighbourAlltoallw<B> {
    has_sides!(B);

    fn operation<L: Level, D: Device>(&self, comm: &Comm<L, D>) -> Result<Operation<'_>> {
        self.sides.check(comm)?;
        let around = neighbours(comm, ALLTOALL)?;
        let (sent, received) = self.sides.spots();
        let to = Which {
            comm,
            operation: ALLTOALL,
            buffer: "the send buffer",
            blocks: (around.destinations.len(), "destination"),
        };
        let from = Which {
            comm,
            operation: ALLTOALL,
            buffer: "the receive buffer",
            blocks: (around.sources.len(), "source"),
        };
        let send = self.send.of(to, sent.as_ref().unwrap_or(&received))?;
        let recv = self.recv.of(from, &received)?;
        if sent.is_none() {
            self.send
                .check_apart(&self.recv, &received, comm, ALLTOALL)?;
        }
        Ok(Operation::NeighbourAlltoall { send, recv })
    }
}
