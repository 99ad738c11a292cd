//! Making communicators that have a topology.

use std::sync::Arc;

use super::super::Communicator;
use super::super::meet::Call;
use super::{Cartesian, Dimension, DistGraph, Edges, Graph, Topology};
use crate::device::Device;
use crate::error::{ErrorKind, Result};
use crate::group::Group;

impl<D: Device> Communicator<D> {
    /// A communicator on a grid, with as many ranks as the grid has (`MPI_Cart_create`); `None` on
    /// ranks that are left over. Collective, with the same grid everywhere.
    ///
    /// `reorder` allows ranks to change places to be near their neighbours. At present they keep
    /// their places.
    ///
    /// # Errors
    /// As [`dup`](Self::dup); [`InvalidArgument`](ErrorKind::InvalidArgument) if the grid is
    /// invalid, or larger than the communicator.
    #[doc(alias = "MPI_Cart_create")]
    pub fn cart_create(&self, dims: &[Dimension], reorder: bool) -> Result<Option<Self>> {
        let grid = self.located(Cartesian::new(dims))?;
        self.check_fits("grid", grid.size())?;
        let size = grid.size();
        self.on_first(size, Topology::Cartesian(grid), reorder)
    }

    /// Splits a grid into grids of the dimensions to `keep` (`MPI_Cart_sub`): ranks with equal
    /// coordinates in all other dimensions are together. Collective.
    ///
    /// # Errors
    /// As [`dup`](Self::dup); [`InvalidCommunicator`](ErrorKind::InvalidCommunicator) if this is
    /// not a grid, [`InvalidArgument`](ErrorKind::InvalidArgument) if `keep` has the wrong number
    /// of dimensions.
    #[doc(alias = "MPI_Cart_sub")]
    pub fn cart_sub(&self, keep: &[bool]) -> Result<Self> {
        let grid = self.cartesian()?;
        if keep.len() != grid.dims().len() {
            let (got, there) = (keep.len(), grid.dims().len());
            return Err(self.error(
                ErrorKind::InvalidArgument,
                format!("{got} dimensions to keep or not, of a grid of {there}"),
                "say for every dimension whether it is kept",
            ));
        }
        let (color, key) = (
            grid.number_in(self.rank(), keep, false),
            grid.number_in(self.rank(), keep, true),
        );
        // Every rank can tell by itself which ranks have the same color. Ids are agreed on as in a
        // split.
        let members = (0..grid.size()).filter(|&rank| grid.number_in(rank, keep, false) == color);
        let members = members.filter_map(|rank| self.group().process(rank));
        let group = Group::new(members.collect::<Vec<_>>());
        let topology = Arc::new(Topology::Cartesian(grid.kept(keep)));
        self.check_members()?;
        let context = self.agree(Call::CartSub(keep))?;
        self.derive(group, key, context, Some(topology))
    }

    /// A communicator on a graph, with as many ranks as the graph has (`MPI_Graph_create`); `None`
    /// on ranks that are left over. Collective, with the same graph everywhere.
    ///
    /// # Errors
    /// As [`dup`](Self::dup); [`InvalidArgument`](ErrorKind::InvalidArgument) if the graph is
    /// larger than the communicator.
    #[doc(alias = "MPI_Graph_create")]
    pub fn graph_create(&self, graph: Graph, reorder: bool) -> Result<Option<Self>> {
        self.check_fits("graph", graph.size())?;
        let size = graph.size();
        self.on_first(size, Topology::Graph(graph), reorder)
    }

    /// A communicator of the same ranks on a graph, of which each rank passes its own edges
    /// (`MPI_Dist_graph_create_adjacent`). Collective: an edge that one rank passes as a
    /// destination, the rank at its other end passes as a source. That is not checked. Along an
    /// edge that only one of its ends knows of, neighbour collectives may wait for ever.
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
        for edges in [&sources, &destinations] {
            self.located(edges.check(self.size()))?;
        }
        self.meet(Call::DistGraphCreateAdjacent)?;
        self.with_edges(
            DistGraph {
                sources,
                destinations,
            },
            reorder,
        )
    }

    /// Like [`dist_graph_create_adjacent`](Self::dist_graph_create_adjacent), but any rank may pass
    /// any edges: each source with its destinations (`MPI_Dist_graph_create`). Collective.
    ///
    /// A rank's neighbours are ordered by the ranks that passed the edges, and then in the order in
    /// which each rank passed them.
    ///
    /// # Errors
    /// As [`dist_graph_create_adjacent`](Self::dist_graph_create_adjacent), on the rank that passes
    /// the edge; [`InvalidArgument`](ErrorKind::InvalidArgument), on every rank, if some edges have
    /// weights and others do not.
    #[doc(alias = "MPI_Dist_graph_create")]
    pub fn dist_graph_create(&self, edges: &[(u32, Edges)], reorder: bool) -> Result<Self> {
        for (source, destinations) in edges {
            self.check_rank("source", *source)?;
            self.located(destinations.check(self.size()))?;
        }
        let given = edges.iter().filter(|(_, to)| !to.ranks().is_empty());
        let (with, without): (Vec<_>, Vec<_>) = given.partition(|(_, to)| to.weights().is_some());
        self.meet(Call::DistGraphCreate)?;
        // A bit survives if no rank objects.
        let mut none = [bit(with.is_empty()) | bit(without.is_empty()) << 1];
        self.and_words(&mut none)?;
        if none[0] == 0 {
            return Err(self.error(
                ErrorKind::InvalidArgument,
                "some edges of the graph have weights and others do not".to_owned(),
                "give weights to all edges, on all ranks, or to none",
            ));
        }
        let graph = self.gather_edges(edges, none[0] & 1 == 0)?;
        self.with_edges(graph, reorder)
    }

    /// This rank's edges, out of those that all ranks pass.
    fn gather_edges(&self, given: &[(u32, Edges)], weighted: bool) -> Result<DistGraph> {
        let me = u64::from(self.rank());
        let mut parcels = Vec::new();
        let mut number = 0;
        for (source, edges) in given {
            let weights = edges.weights().unwrap_or_default();
            for (place, &dest) in edges.ranks().iter().enumerate() {
                let weight = weights.get(place).copied().unwrap_or(1);
                let ends = [*source, dest, weight].map(u64::from);
                for (end, is_dest) in [(ends[0], 0), (ends[1], 1)] {
                    parcels.push([end, is_dest, me, number, ends[0], ends[1], ends[2]]);
                }
                number += 1;
            }
        }
        let mut mine = self.route(parcels)?;
        mine.sort_unstable();
        let edges = |is_dest: u64, other: usize| {
            let edges = mine.iter().filter(|parcel| parcel[1] == is_dest);
            let pairs = edges.map(|parcel| (parcel[other] as u32, parcel[6] as u32));
            let (ranks, weights): (Vec<u32>, Vec<u32>) = pairs.unzip();
            Edges::with(ranks, weighted.then_some(weights))
        };
        Ok(DistGraph {
            sources: edges(1, 4),
            destinations: edges(0, 5),
        })
    }

    /// A communicator of the same ranks, which must have met.
    fn with_edges(&self, graph: DistGraph, _reorder: bool) -> Result<Self> {
        let context = self.decide()?;
        let topology = Some(Arc::new(Topology::DistGraph(graph)));
        self.derive(self.group().clone(), self.rank(), context, topology)
    }

    /// A communicator of the first `size` ranks, with a topology.
    fn on_first(&self, size: u32, topology: Topology, _reorder: bool) -> Result<Option<Self>> {
        let ranks: Vec<u32> = (0..size).collect();
        let group = self.group().include(&ranks)?;
        let topology = Arc::new(topology);
        let call = match &*topology {
            Topology::Cartesian(grid) => Call::CartCreate(grid),
            Topology::Graph(graph) => Call::GraphCreate(graph),
            Topology::DistGraph(_) => Call::DistGraphCreate,
        };
        self.create_on(&group, call, Some(Arc::clone(&topology)))
    }

    fn check_fits(&self, what: &str, size: u32) -> Result<()> {
        if size <= self.size() {
            return Ok(());
        }
        let there = self.size();
        Err(self.error(
            ErrorKind::InvalidArgument,
            format!("a {what} of {size} ranks does not fit a communicator of {there}"),
            "make it smaller, or start more ranks",
        ))
    }

    /// Adds the rank and device to an error.
    fn located<T>(&self, result: Result<T>) -> Result<T> {
        let attributes = self.device().attributes();
        result.map_err(|e| e.on_rank(attributes.world_rank).on_device(attributes.name))
    }
}

fn bit(set: bool) -> u64 {
    u64::from(set)
}
