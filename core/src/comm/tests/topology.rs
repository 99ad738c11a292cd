//! Topologies of communicators.

use proptest::prelude::*;

use super::*;
use crate::comm::topology::route::tests::HAS_NO_ROOM;

#[test]
fn a_grid_takes_the_first_ranks() {
    for n in [1, 2, 3, 4, 5, 8] {
        on_all(n, |world| {
            let dims = [Dimension::periodic(n / 2), Dimension::open(2)];
            if n == 1 {
                let error = world.cart_create(&dims, true).unwrap_err();
                assert!(
                    error
                        .to_string()
                        .contains("dimension 0 of the grid has size 0")
                );
                let point = world.cart_create(&[], false).unwrap().unwrap();
                assert_eq!(point.neighbours(), Some(Neighbours::default()));
                return;
            }
            let grid = world.cart_create(&dims, true).unwrap();
            assert_eq!(grid.is_some(), world.rank() < n / 2 * 2);
            let Some(grid) = grid else { return };
            assert_eq!(grid.cartesian().unwrap().dims(), dims);
            let copy = grid.dup().unwrap();
            assert_eq!(copy.topology(), grid.topology());
            // Rows and columns.
            let coords = grid.cartesian().unwrap().coords(grid.rank()).unwrap();
            for (keep, dim) in [([true, false], 0), ([false, true], 1)] {
                let part = copy.cart_sub(&keep).unwrap();
                assert_eq!(part.cartesian().unwrap().dims(), &dims[dim..=dim]);
                assert_eq!(part.rank(), coords[dim]);
                let mine = [u64::from(coords[1 - dim])];
                let others = part.allgather_words(&mine).unwrap();
                assert_eq!(others, vec![mine[0]; dims[dim].size as usize]);
            }
            let point = grid.cart_sub(&[false, false]).unwrap();
            assert_eq!((point.size(), point.cartesian().unwrap().size()), (1, 1));
            let error = grid.cart_sub(&[true]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        });
    }
}

#[test]
fn what_does_not_fit_is_refused_by_every_rank() {
    on_all(3, |world| {
        let too_large = world.cart_create(&[Dimension::open(4)], false).unwrap_err();
        assert!(
            too_large
                .to_string()
                .contains("a grid of 4 ranks does not fit"),
            "{too_large}"
        );
        let graph = Graph::new([[1], [0], [3], [2]]).unwrap();
        let too_large = world.graph_create(graph, false).unwrap_err();
        assert_eq!(too_large.kind(), ErrorKind::InvalidArgument);
        let nobody = world
            .dist_graph_create_adjacent([3], Edges::none(), false)
            .unwrap_err();
        assert_eq!(nobody.kind(), ErrorKind::InvalidRank);
        let nobody = world
            .dist_graph_create(&[(0, [7].into())], false)
            .unwrap_err();
        assert_eq!(nobody.kind(), ErrorKind::InvalidRank);
        let error = world.cart_sub(&[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidCommunicator);
        // One rank's edges have weights: all ranks get the error.
        let edges = match world.rank() {
            1 => Edges::weighted([(0, 5)]),
            _ => Edges::from([0]),
        };
        let mixed = world.dist_graph_create(&[(0, edges)], false).unwrap_err();
        assert_eq!(mixed.kind(), ErrorKind::InvalidArgument);
        assert_eq!(world.live(), 1);
        world.barrier().unwrap();
    });
}

#[test]
fn a_graph_is_known_to_all() {
    on_all(5, |world| {
        let graph = Graph::new([vec![1, 2], vec![0], vec![0, 3], vec![2]]).unwrap();
        let on_it = world.graph_create(graph.clone(), false).unwrap();
        assert_eq!(on_it.is_some(), world.rank() < 4);
        let Some(on_it) = on_it else { return };
        let neighbours = on_it.neighbours().unwrap();
        let ranks: Vec<u32> = neighbours.sources.iter().filter_map(|n| n.rank).collect();
        assert_eq!(ranks, graph.neighbours(on_it.rank()));
        assert_eq!(neighbours.sources, neighbours.destinations);
    });
}

/// One rank's want of memory is noticed in any round, and keeps no other rank waiting.
#[test]
fn a_rank_without_memory_for_edges_ends_the_call_on_all_ranks() {
    for n in [2, 3, 5] {
        on_all(n, |world| {
            let me = world.rank();
            // Long enough that the sender has to wait until its message is taken.
            let edges = [((me + 1) % n, Edges::from(vec![(me + n / 2) % n; 5000]))];
            HAS_NO_ROOM.set(me == 1);
            let error = world.dist_graph_create(&edges, false).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
            HAS_NO_ROOM.set(false);
            let graph = world.dist_graph_create(&edges, false).unwrap();
            assert_eq!(graph.neighbours().unwrap().sources.len(), 5000);
            drop(graph);
            assert_eq!(world.live(), 1);
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Edges reach both of their ends, whichever rank passes them, in the order of the ranks that
    /// passed them.
    #[test]
    fn edges_get_to_their_ends(
        n in 1..9_u32,
        edges in prop::collection::vec((0..8_u32, 0..8_u32, 0..8_u32, 1..100_u32), 0..40),
        weighted in any::<bool>(),
    ) {
        let mut edges: Vec<_> = edges.iter().map(|(g, s, d, w)| (g % n, s % n, d % n, *w)).collect();
        edges.sort_by_key(|(giver, ..)| *giver);
        on_all(n, |world| {
            let me = world.rank();
            let list = |dest, weight| match weighted {
                true => Edges::weighted([(dest, weight)]),
                false => Edges::from([dest]),
            };
            let mine = edges.iter().filter(|(giver, ..)| *giver == me);
            let mine: Vec<_> = mine.map(|&(_, s, d, w)| (s, list(d, w))).collect();
            let comm = world.dist_graph_create(&mine, true).unwrap();
            let Some(Topology::DistGraph(graph)) = comm.topology() else {
                panic!("no distributed graph");
            };
            let check = |found: &Edges, expected: Vec<(u32, u32)>| {
                let (ranks, weights): (Vec<u32>, Vec<u32>) = expected.into_iter().unzip();
                assert_eq!(found.ranks(), ranks);
                assert_eq!(found.weights().is_some(), weighted && !edges.is_empty());
                assert!(found.weights().is_none_or(|found| found == weights));
            };
            let ending = edges.iter().filter(|(_, _, d, _)| *d == me).map(|e| (e.1, e.3));
            check(&graph.sources, ending.collect());
            let beginning = edges.iter().filter(|(_, s, _, _)| *s == me).map(|e| (e.2, e.3));
            check(&graph.destinations, beginning.collect());

            let (from, to) = (graph.sources.clone(), graph.destinations.clone());
            let again = comm.dist_graph_create_adjacent(from, to, false).unwrap();
            assert_eq!(again.topology(), comm.topology());
            assert_eq!(again.neighbours(), comm.neighbours());
        });
    }
}
