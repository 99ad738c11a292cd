//! Graphs.

use crate::error::{Error, ErrorKind, Result};

/// A graph that every rank knows in full: each rank's neighbours, by rank (MPI-4 section 8.5.3).
///
/// A rank may be its own neighbour, and a neighbour may be listed several times. Neighbour
/// collectives need a graph in which as many edges lead from any rank to another as lead back
/// (MPI-4 section 8.6); on another they are refused on every rank ([`one_way`](Self::one_way)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// Where each rank's edges end in `edges`; one entry per rank.
    ends: Box<[usize]>,
    edges: Box<[u32]>,
}

impl Graph {
    /// The graph of these lists of neighbours, one for each rank.
    ///
    /// ```
    /// use portolan_core::comm::Graph;
    ///
    /// let star = Graph::new([vec![1, 2], vec![0], vec![0]])?;
    /// assert_eq!((star.size(), star.neighbours(0)), (3, [1, 2].as_slice()));
    /// # Ok::<(), portolan_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidRank`](ErrorKind::InvalidRank) if a neighbour is outside of the graph,
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if it has more ranks than can be numbered.
    pub fn new(lists: impl IntoIterator<Item: AsRef<[u32]>>) -> Result<Self> {
        let (mut ends, mut edges) = (Vec::new(), Vec::new());
        for list in lists {
            edges.extend_from_slice(list.as_ref());
            ends.push(edges.len());
        }
        let Ok(size) = u32::try_from(ends.len()) else {
            let what = format!("a graph of {} ranks", ends.len());
            return Err(Error::new(ErrorKind::InvalidArgument, what).remedy("use fewer"));
        };
        if let Some(&rank) = edges.iter().find(|&&rank| rank >= size) {
            return Err(no_such_neighbour(rank, size));
        }
        Ok(Self {
            ends: ends.into(),
            edges: edges.into(),
        })
    }

    /// Number of ranks in the graph (`MPI_Graphdims_get`).
    #[doc(alias = "MPI_Graphdims_get")]
    #[must_use]
    pub fn size(&self) -> u32 {
        self.ends.len() as u32
    }

    /// Number of edges; each counts once, at the rank where it begins (`MPI_Graphdims_get`).
    #[doc(alias = "MPI_Graphdims_get")]
    #[must_use]
    pub fn edges(&self) -> usize {
        self.edges.len()
    }

    /// The neighbours of a rank, in the order in which they were given (`MPI_Graph_neighbors`).
    /// Empty for a rank outside of the graph.
    #[doc(alias = "MPI_Graph_neighbors")]
    #[must_use]
    pub fn neighbours(&self, rank: u32) -> &[u32] {
        let rank = rank as usize;
        let Some(&end) = self.ends.get(rank) else {
            return &[];
        };
        let start = rank.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.edges[start..end]
    }

    /// The edges that keep neighbour collectives from using the graph, because fewer lead back;
    /// the first of them by the ranks where they begin and end. `None` if there are none.
    ///
    /// Looks at all edges.
    ///
    /// ```
    /// use portolan_core::comm::{Graph, OneWay};
    ///
    /// let graph = Graph::new([vec![1, 1], vec![0]])?;
    /// let missing = OneWay { from: 0, to: 1, there: 2, back: 1 };
    /// assert_eq!(graph.one_way(), Some(missing));
    /// assert_eq!(Graph::new([vec![1, 1], vec![0, 0]])?.one_way(), None);
    /// # Ok::<(), portolan_core::Error>(())
    /// ```
    #[must_use]
    pub fn one_way(&self) -> Option<OneWay> {
        let of_rank = |from| self.neighbours(from).iter().map(move |&to| (from, to));
        let mut edges: Vec<(u32, u32)> = (0..self.size()).flat_map(of_rank).collect();
        edges.sort_unstable();
        let number = |edge: (u32, u32)| {
            let first = edges.partition_point(|&other| other < edge);
            edges[first..].partition_point(|&other| other == edge)
        };
        let alike = edges.chunk_by(|one, next| one == next);
        let mut counted = alike.map(|alike| OneWay {
            from: alike[0].0,
            to: alike[0].1,
            there: alike.len(),
            back: number((alike[0].1, alike[0].0)),
        });
        counted.find(|edges| edges.there > edges.back)
    }
}

/// The edges from one rank to another, if fewer lead back ([`Graph::one_way`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneWay {
    /// The rank where they begin.
    pub from: u32,
    /// The rank where they end.
    pub to: u32,
    /// How many there are.
    pub there: usize,
    /// How many lead back.
    pub back: usize,
}

/// Edges from or to one rank: the ranks at their other ends and, optionally, weights, which say how
/// much data goes along each edge.
///
/// ```
/// use portolan_core::comm::Edges;
///
/// let plain = Edges::from([1, 2]);
/// let weighted = Edges::weighted([(1, 10), (2, 30)]);
/// assert_eq!(plain.ranks(), weighted.ranks());
/// assert_eq!((plain.weights(), weighted.weights()), (None, Some([10, 30].as_slice())));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Edges {
    ranks: Vec<u32>,
    weights: Option<Vec<u32>>,
}

impl Edges {
    /// No edges.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Edges given as pairs of rank and weight.
    #[must_use]
    pub fn weighted(edges: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let (ranks, weights) = edges.into_iter().unzip();
        Self {
            ranks,
            weights: Some(weights),
        }
    }

    pub(super) fn with(ranks: Vec<u32>, weights: Option<Vec<u32>>) -> Self {
        Self { ranks, weights }
    }

    /// The ranks at the other ends.
    #[must_use]
    pub fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// The weights, one per rank; `None` for unweighted edges (`MPI_UNWEIGHTED`).
    #[doc(alias = "MPI_UNWEIGHTED")]
    #[must_use]
    pub fn weights(&self) -> Option<&[u32]> {
        self.weights.as_deref()
    }

    /// Checks that all ranks are below `size`.
    pub(super) fn check(&self, size: u32) -> Result<()> {
        match self.ranks.iter().find(|&&rank| rank >= size) {
            None => Ok(()),
            Some(&rank) => Err(no_such_neighbour(rank, size)),
        }
    }
}

impl<T: Into<Vec<u32>>> From<T> for Edges {
    /// Edges without weights.
    fn from(ranks: T) -> Self {
        Self {
            ranks: ranks.into(),
            weights: None,
        }
    }
}

/// One rank's edges in a graph that no rank needs to know in full (MPI-4 section 8.5.4).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DistGraph {
    /// Edges that end here: the ranks that this rank receives from.
    pub sources: Edges,
    /// Edges that begin here: the ranks that it sends to.
    pub destinations: Edges,
}

#[cold]
fn no_such_neighbour(rank: u32, size: u32) -> Error {
    let what = format!("neighbour {rank} is outside of a graph of {size} rank(s)");
    let remedy = match size {
        0 => "give every rank a list of neighbours".to_owned(),
        size => format!("use ranks 0 to {}", size - 1),
    };
    Error::new(ErrorKind::InvalidRank, what).remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_what_was_given() {
        let lists: [&[u32]; 4] = [&[1, 1, 3], &[], &[2], &[0, 2]];
        let graph = Graph::new(lists).unwrap();
        assert_eq!((graph.size(), graph.edges()), (4, 6));
        for (list, rank) in lists.iter().zip(0..) {
            assert_eq!(graph.neighbours(rank), *list);
        }
        assert_eq!(graph.neighbours(4), []);
        let error = Graph::new([[1], [2]]).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("neighbour 2 is outside of a graph of 2"),
            "{error}"
        );
        assert_eq!(Graph::new([[0; 0]; 0]).unwrap().size(), 0);
    }

    #[test]
    fn edges_without_opposite_edges_are_found() {
        let one_way = |lists: &[&[u32]]| {
            let found = Graph::new(lists).unwrap().one_way()?;
            Some((found.from, found.to, found.there, found.back))
        };
        // An edge from a rank to itself is its own opposite.
        let even: [&[&[u32]]; 6] = [
            &[],
            &[&[]],
            &[&[0]],
            &[&[0, 0, 0]],
            &[&[1, 0, 1], &[0, 1, 1, 0]],
            &[&[2, 1], &[0, 2], &[1, 0, 3], &[2]],
        ];
        for lists in even {
            assert_eq!(one_way(lists), None, "{lists:?}");
        }
        assert_eq!(one_way(&[&[1], &[]]), Some((0, 1, 1, 0)));
        assert_eq!(one_way(&[&[], &[0, 1]]), Some((1, 0, 1, 0)));
        assert_eq!(one_way(&[&[1, 0], &[0, 0, 0]]), Some((1, 0, 3, 1)));
        // The same number of neighbours everywhere does not help.
        assert_eq!(one_way(&[&[1], &[2], &[0]]), Some((0, 1, 1, 0)));
        assert_eq!(one_way(&[&[1, 2], &[0, 2, 2], &[0, 1]]), Some((1, 2, 2, 1)));
    }
}
