//! The view of a topology that neighbour collectives need.

use super::{Cartesian, DistGraph, Edges, Graph};

/// The ranks that a rank receives from and sends to, in MPI's order (MPI-4 section 8.6).
///
/// On a grid: dimension by dimension, the neighbour below and then the neighbour above, in both
/// lists. In a graph: in the order in which the edges were given.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Neighbours {
    /// The ranks that it receives from.
    pub sources: Vec<Neighbour>,
    /// The ranks that it sends to.
    pub destinations: Vec<Neighbour>,
}

/// One neighbour, as a source or as a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Neighbour {
    /// Its rank; `None` beyond the end of a grid (`MPI_PROC_NULL`), where nothing is sent and the
    /// place in the buffer is left unchanged.
    #[doc(alias = "MPI_PROC_NULL")]
    pub rank: Option<u32>,
    /// Distinguishes messages between the same two ranks: a message that one rank sends on a lane
    /// is received on that lane. Destinations with the same rank have different lanes, and so do
    /// sources.
    ///
    /// On a grid: twice the dimension, plus 1 for messages upwards. (In a periodic dimension of 1
    /// or 2 places, both neighbours are the same rank.) In a graph: how many times the rank has
    /// occurred before in the list.
    pub lane: u32,
}

impl Neighbours {
    pub(super) fn on_grid(grid: &Cartesian, rank: u32) -> Self {
        let mut all = Self::default();
        for (dim, lane) in (0..grid.dims().len()).zip((0..).step_by(2)) {
            let [below, above] = [-1, 1].map(|by| grid.moved(rank, dim, by));
            let (down, up) = (lane, lane + 1);
            // A message from below travels upwards.
            let sources = [(below, up), (above, down)];
            let destinations = [(below, down), (above, up)];
            let neighbour = |(rank, lane)| Neighbour { rank, lane };
            all.sources.extend(sources.map(neighbour));
            all.destinations.extend(destinations.map(neighbour));
        }
        all
    }

    pub(super) fn in_graph(graph: &Graph, rank: u32) -> Self {
        let all = numbered(graph.neighbours(rank));
        Self {
            sources: all.clone(),
            destinations: all,
        }
    }

    pub(super) fn of(graph: &DistGraph) -> Self {
        let numbered = |edges: &Edges| numbered(edges.ranks());
        Self {
            sources: numbered(&graph.sources),
            destinations: numbered(&graph.destinations),
        }
    }
}

/// The ranks, each with the number of its earlier occurrences as its lane.
fn numbered(ranks: &[u32]) -> Vec<Neighbour> {
    let neighbour = |&rank: &u32| Neighbour {
        rank: Some(rank),
        lane: 0,
    };
    let mut all: Vec<Neighbour> = ranks.iter().map(neighbour).collect();
    let mut order: Vec<usize> = (0..ranks.len()).collect();
    order.sort_by_key(|&place| ranks[place]);
    for pair in order.windows(2) {
        if ranks[pair[0]] == ranks[pair[1]] {
            all[pair[1]].lane = all[pair[0]].lane + 1;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::Dimension;
    use super::*;

    fn pairs(neighbours: &[Neighbour]) -> Vec<(Option<u32>, u32)> {
        neighbours.iter().map(|n| (n.rank, n.lane)).collect()
    }

    /// Checks that every message sent on a lane is expected on that lane.
    fn check(all: &[Neighbours]) {
        let mut sent = Vec::new();
        let mut expected = Vec::new();
        for (own, rank) in all.iter().zip(0..) {
            let there = |n: &Neighbour| n.rank.map(|rank| (rank, n.lane));
            sent.extend(
                own.destinations
                    .iter()
                    .filter_map(there)
                    .map(|(to, l)| (rank, to, l)),
            );
            expected.extend(
                own.sources
                    .iter()
                    .filter_map(there)
                    .map(|(from, l)| (from, rank, l)),
            );
        }
        sent.sort_unstable();
        expected.sort_unstable();
        assert_eq!(sent, expected);
        sent.dedup();
        assert_eq!(sent.len(), expected.len(), "a lane is used twice");
    }

    #[test]
    fn grids_of_every_width_are_consistent() {
        for (rows, columns) in [(1, 1), (1, 2), (2, 2), (3, 2), (4, 3)] {
            for periodic in [[false, false], [true, false], [true, true]] {
                let dims = [(rows, periodic[0]), (columns, periodic[1])]
                    .map(|(size, periodic)| Dimension { size, periodic });
                let grid = Cartesian::new(&dims).unwrap();
                let all: Vec<_> = (0..grid.size())
                    .map(|r| Neighbours::on_grid(&grid, r))
                    .collect();
                check(&all);
            }
        }
    }

    #[test]
    fn the_order_is_below_then_above() {
        let grid = Cartesian::new(&[Dimension::open(2), Dimension::periodic(2)]).unwrap();
        let own = Neighbours::on_grid(&grid, 1);
        let destinations = [(None, 0), (Some(3), 1), (Some(0), 2), (Some(0), 3)];
        assert_eq!(pairs(&own.destinations), destinations);
        assert_eq!(
            pairs(&own.sources),
            [(None, 1), (Some(3), 0), (Some(0), 3), (Some(0), 2)]
        );
    }

    #[test]
    fn edges_that_are_there_twice_have_lanes_of_their_own() {
        let graph = Graph::new([vec![1, 0, 1, 0], vec![0, 0]]).unwrap();
        let own = Neighbours::in_graph(&graph, 0);
        assert_eq!(
            pairs(&own.sources),
            [(Some(1), 0), (Some(0), 0), (Some(1), 1), (Some(0), 1)]
        );
        check(&[own, Neighbours::in_graph(&graph, 1)]);
    }
}
