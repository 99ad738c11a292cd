//! Process topologies (MPI-4 chapter 8): ranks on grids and graphs, which know their neighbours.
//!
//! ```
//! use portolan::topology::Dimension;
//!
//! // Everybody gives its number to the one to the right, in rings of three.
//! portolan::try_threads(6, |world| {
//!     let dims = [Dimension::open(2), Dimension::periodic(3)];
//!     let grid = world.comm().cart_create(&dims, true)?.expect("the grid takes all ranks");
//!     let ring = grid.shift(1, 1)?;
//!     let (left, right) = (ring.source.expect("a ring"), ring.destination.expect("a ring"));
//!     let (mine, mut theirs) = ([grid.coords()[1]], [9]);
//!     grid.sendrecv(&mine, right, 7, &mut theirs, left, 7)?;
//!     assert_eq!((theirs[0] + 1) % 3, mine[0]);
//!     // Beyond the ends of the other dimension there is nobody.
//!     assert_eq!(grid.shift(0, 2)?.destination, None);
//!     Ok(())
//! })?;
//! # Ok::<(), portolan::Error>(())
//! ```

use std::ops::Deref;

pub use portolan_core::comm::{
    Cartesian, Dimension, DistGraph, Edges, Graph, Neighbour, Neighbours, OneWay, Shift, Topology,
    dims_create,
};

use portolan_coll::Creation;
#[cfg(doc)]
use portolan_core::ErrorKind;
use portolan_core::level::{Level, Single};
use portolan_core::{Device, Result};

use super::Comm;
use crate::any::AnyDevice;

impl<L: Level, D: Device> Comm<L, D> {
    /// The topology, if the communicator has one (MPI-4 section 8.5.5, `MPI_Topo_test`).
    #[doc(alias = "MPI_Topo_test")]
    #[must_use]
    pub fn topology(&self) -> Option<&Topology> {
        self.inner.topology()
    }

    /// The ranks that this rank receives from and sends to in neighbour collectives, in their order
    /// (MPI-4 section 8.5.5, `MPI_Dist_graph_neighbors`, `MPI_Graph_neighbors`); `None` without a
    /// topology.
    #[doc(alias("MPI_Dist_graph_neighbors", "MPI_Graph_neighbors", "neighbors"))]
    #[must_use]
    pub fn neighbours(&self) -> Option<Neighbours> {
        self.inner.neighbours()
    }

    /// Makes a communicator of as many ranks as a grid has, arranged on that grid (MPI-4 section
    /// 8.5.1, `MPI_Cart_create`). Returns `None` on the ranks that are left over. Collective; all
    /// ranks give the same grid. [`dims_create`] finds even sizes.
    ///
    /// `reorder` allows ranks to be renumbered so that neighbours are close to each other. At
    /// present they keep their order.
    ///
    /// # Errors
    /// As [`dup`](Self::dup); [`InvalidArgument`](ErrorKind::InvalidArgument) if a dimension is 0
    /// or the grid is larger than the communicator.
    #[doc(alias = "MPI_Cart_create")]
    pub fn cart_create(&self, dims: &[Dimension], reorder: bool) -> Result<Option<CartComm<L, D>>> {
        self.before(Creation::CartCreate(dims))?;
        let new = self.raise(self.inner.cart_create(dims, reorder))?;
        Ok(new.map(|inner| CartComm(Self::wrap(inner))))
    }

    /// This communicator as one on a grid, if it has a grid; a duplicate of such a communicator,
    /// for example.
    #[must_use]
    pub fn as_cart(&self) -> Option<CartComm<L, D>> {
        let is_cart = matches!(self.topology(), Some(Topology::Cartesian(_)));
        is_cart.then(|| CartComm(self.clone()))
    }

    /// Makes a communicator of as many ranks as a graph has, arranged on that graph (MPI-4 section
    /// 8.5.3, `MPI_Graph_create`). Returns `None` on the ranks that are left over. Collective; all
    /// ranks give the same graph.
    ///
    /// Neighbour collectives need as many edges back as there are from one rank to another. On
    /// another graph they return [`InvalidCommunicator`](ErrorKind::InvalidCommunicator) on every
    /// rank, and name the edge ([`Graph::one_way`]).
    ///
    /// # Errors
    /// As [`dup`](Self::dup); [`InvalidArgument`](ErrorKind::InvalidArgument) if the graph is
    /// larger than the communicator.
    #[doc(alias = "MPI_Graph_create")]
    pub fn graph_create(&self, graph: Graph, reorder: bool) -> Result<Option<Self>> {
        self.before(Creation::GraphCreate(&graph))?;
        let new = self.raise(self.inner.graph_create(graph, reorder))?;
        Ok(new.map(Self::wrap))
    }

    /// Makes a communicator of the same ranks on a graph (MPI-4 section 8.5.4,
    /// `MPI_Dist_graph_create_adjacent`). Each rank gives its own edges: the ranks that it receives
    /// from and those that it sends to. Collective.
    ///
    /// An edge is given by both of its ends, a double one twice by each. No rank can know by itself
    /// whether the other end gives it as well. If it does not, neighbour collectives may wait for
    /// ever; with `PORTOLAN_COLL_CHECK=on` this call returns
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) on every rank, and names the edge.
    ///
    /// ```
    /// use portolan::topology::Edges;
    ///
    /// // Rank 0 sends to everybody else, and twice as much to the last.
    /// portolan::try_threads(3, |world| {
    ///     let comm = world.comm();
    ///     let star = if comm.rank() == 0 {
    ///         comm.dist_graph_create_adjacent(Edges::none(), Edges::weighted([(1, 1), (2, 2)]), true)?
    ///     } else {
    ///         let weight = comm.rank();
    ///         comm.dist_graph_create_adjacent(Edges::weighted([(0, weight)]), Edges::none(), true)?
    ///     };
    ///     let neighbours = star.neighbours().expect("it has a topology");
    ///     assert_eq!(neighbours.sources.len(), usize::from(comm.rank() > 0));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`dup`](Self::dup); [`InvalidRank`](ErrorKind::InvalidRank) if a neighbour is outside of
    /// the communicator.
    #[doc(alias = "MPI_Dist_graph_create_adjacent")]
    pub fn dist_graph_create_adjacent(
        &self,
        sources: impl Into<Edges>,
        destinations: impl Into<Edges>,
        reorder: bool,
    ) -> Result<Self> {
        let (sources, destinations) = (sources.into(), destinations.into());
        self.before(Creation::DistGraphCreateAdjacent {
            sources: &sources,
            destinations: &destinations,
        })?;
        let new = self
            .inner
            .dist_graph_create_adjacent(sources, destinations, reorder);
        self.raise(new.map(Self::wrap))
    }

    /// As [`dist_graph_create_adjacent`](Self::dist_graph_create_adjacent), except that any rank
    /// may give any edges, as sources with their destinations (MPI-4 section 8.5.4,
    /// `MPI_Dist_graph_create`). A rank's neighbours are ordered by the rank that gave the edge,
    /// then by the order in which it gave them. Collective.
    ///
    /// # Errors
    /// As [`dist_graph_create_adjacent`](Self::dist_graph_create_adjacent), and
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) on every rank if some edges have weights and
    /// others do not.
    #[doc(alias = "MPI_Dist_graph_create")]
    pub fn dist_graph_create(&self, edges: &[(u32, Edges)], reorder: bool) -> Result<Self> {
        self.before(Creation::DistGraphCreate)?;
        let new = self.inner.dist_graph_create(edges, reorder);
        self.raise(new.map(Self::wrap))
    }
}

/// A communicator whose ranks are on a grid ([`Comm::cart_create`]). It has all the calls of
/// [`Comm`].
pub struct CartComm<L: Level = Single, D: Device = AnyDevice<L>>(Comm<L, D>);

impl<L: Level, D: Device> CartComm<L, D> {
    /// The grid: its dimensions, and the position of each rank (MPI-4 section 8.5.5,
    /// `MPI_Cart_get`, `MPI_Cart_rank`, `MPI_Cart_coords`).
    #[doc(alias("MPI_Cart_get", "MPI_Cart_rank", "MPI_Cart_coords"))]
    #[must_use]
    pub fn grid(&self) -> &Cartesian {
        match self.0.topology() {
            Some(Topology::Cartesian(grid)) => grid,
            _ => unreachable!("a CartComm is made of communicators on grids only"),
        }
    }

    /// The coordinates of this rank (MPI-4 section 8.5.5, `MPI_Cart_coords`).
    #[doc(alias = "MPI_Cart_coords")]
    #[must_use]
    pub fn coords(&self) -> Vec<u32> {
        self.grid().coords(self.rank()).unwrap_or_default()
    }

    /// The rank `displacement` places away along a dimension, as the destination, and the rank for
    /// which this one is that destination, as the source (MPI-4 section 8.5.6, `MPI_Cart_shift`).
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if there is no such dimension.
    #[doc(alias = "MPI_Cart_shift")]
    pub fn shift(&self, dim: usize, displacement: i64) -> Result<Shift> {
        let shift = self.grid().shift(self.rank(), dim, displacement);
        self.0.raise(shift)
    }

    /// Splits the grid into smaller ones that keep the dimensions in `keep`: the ranks of each have
    /// equal coordinates in the other dimensions (MPI-4 section 8.5.7, `MPI_Cart_sub`). Collective.
    ///
    /// # Errors
    /// As [`Comm::dup`]; [`InvalidArgument`](ErrorKind::InvalidArgument) if `keep` does not have
    /// one entry per dimension.
    #[doc(alias = "MPI_Cart_sub")]
    pub fn sub(&self, keep: &[bool]) -> Result<Self> {
        self.0.before(Creation::CartSub(keep))?;
        let part = self.0.inner.cart_sub(keep).map(Comm::wrap);
        self.0.raise(part).map(Self)
    }
}

impl<L: Level, D: Device> Deref for CartComm<L, D> {
    type Target = Comm<L, D>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<L: Level, D: Device> Clone for CartComm<L, D> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<L: Level, D: Device> std::fmt::Debug for CartComm<L, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CartComm")
            .field("comm", &self.0)
            .field("dims", &self.grid().dims())
            .finish()
    }
}
