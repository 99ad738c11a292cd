//! Process topologies (MPI-4 chapter 8): which ranks are neighbours.
//!
//! A topology belongs to a communicator for all of the communicator's life, and
//! [`dup`](super::Communicator::dup) copies it. Grids ([`Cartesian`]) and graphs ([`Graph`],
//! [`DistGraph`]) are plain values that know nothing about communicators; `create.rs` makes
//! communicators that have them. The neighbour collectives are in `coll`, which needs
//! [`Neighbours`] only.
//!
//! **Reordering.** A creation with `reorder` may place ranks so that neighbours are close to each
//! other. At present ranks keep their places, because inside one node there is nothing to gain.

mod cartesian;
mod create;
mod dims;
mod graph;
mod neighbours;
pub(super) mod route;

pub use cartesian::{Cartesian, Dimension, Shift};
pub use dims::dims_create;
pub use graph::{DistGraph, Edges, Graph, OneWay};
pub use neighbours::{Neighbour, Neighbours};

use super::Communicator;
use crate::device::Device;
use crate::error::{ErrorKind, Result};

/// The topology of a communicator (`MPI_Topo_test`).
#[doc(alias = "MPI_Topo_test")]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topology {
    /// A grid (`MPI_CART`).
    #[doc(alias = "MPI_CART")]
    Cartesian(Cartesian),
    /// A graph that every rank knows in full (`MPI_GRAPH`).
    #[doc(alias = "MPI_GRAPH")]
    Graph(Graph),
    /// A graph of which every rank knows only its own edges (`MPI_DIST_GRAPH`).
    #[doc(alias = "MPI_DIST_GRAPH")]
    DistGraph(DistGraph),
}

impl<D: Device> Communicator<D> {
    /// The topology, if the communicator has one (`MPI_Topo_test`).
    #[doc(alias = "MPI_Topo_test")]
    #[must_use]
    pub fn topology(&self) -> Option<&Topology> {
        self.0.topology.as_deref()
    }

    /// The grid of a communicator that has one (`MPI_Cart_get`, `MPI_Cartdim_get`).
    ///
    /// # Errors
    /// [`InvalidCommunicator`](ErrorKind::InvalidCommunicator) if it has none.
    #[doc(alias("MPI_Cart_get", "MPI_Cartdim_get"))]
    pub fn cartesian(&self) -> Result<&Cartesian> {
        match self.topology() {
            Some(Topology::Cartesian(grid)) => Ok(grid),
            _ => Err(self.error(
                ErrorKind::InvalidCommunicator,
                format!("communicator {} is not a grid", self.name()),
                "use the one that cart_create returned, or a copy of it",
            )),
        }
    }

    /// The ranks that this rank receives from and sends to in neighbour collectives; `None` without
    /// a topology (`MPI_Dist_graph_neighbors`, `MPI_Graph_neighbors`).
    ///
    /// Computed at each call; collectives keep the result.
    #[doc(alias("MPI_Dist_graph_neighbors", "MPI_Graph_neighbors"))]
    #[must_use]
    pub fn neighbours(&self) -> Option<Neighbours> {
        Some(match self.topology()? {
            Topology::Cartesian(grid) => Neighbours::on_grid(grid, self.rank()),
            Topology::Graph(graph) => Neighbours::in_graph(graph, self.rank()),
            Topology::DistGraph(graph) => Neighbours::of(graph),
        })
    }
}
