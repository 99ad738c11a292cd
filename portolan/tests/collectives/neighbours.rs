//! Operations between neighbours.

use portolan::coll::{NeighbourAllgather, NeighbourAlltoall, NeighbourAlltoallw, Shapes};
use portolan::topology::{Dimension, Graph};
use portolan::{ErrorKind, Layout, Op};

use crate::common::jobs;

#[test]
fn neighbours_on_a_torus_and_on_a_line() {
    jobs(&[1, 2, 4, 5], |world| {
        let comm = world.comm();
        let n = comm.size();
        let missing = comm.neighbour_allgather(&[0u8], &mut [0]);
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::InvalidCommunicator);

        let dims = [
            Dimension::periodic((n / 2).max(1)),
            Dimension::periodic(n.min(2)),
        ];
        let Some(torus) = comm.cart_create(&dims, true)? else {
            return Ok(());
        };
        let me = torus.rank();
        // Below and above in each dimension; the rank below gets the data meant for below.
        let around = torus.neighbours().expect("a grid");
        let ranks: Vec<u32> = around
            .sources
            .iter()
            .filter_map(|source| source.rank)
            .collect();
        let opposite = [1, 0, 3, 2];
        let sent: Vec<u32> = (0..4).map(|edge| me * 10 + edge).collect();
        let received: Vec<u32> = (0..4)
            .map(|edge| ranks[edge] * 10 + opposite[edge])
            .collect();
        in_all_forms!(
            torus,
            sent.clone(),
            vec![0; 4],
            |s, r| NeighbourAlltoall::new(s, r),
            received.clone()
        );
        in_all_forms!(
            torus,
            vec![me, 7],
            vec![0; 8],
            |s, r| NeighbourAllgather::new(s, r),
            ranks.iter().flat_map(|&rank| [rank, 7]).collect::<Vec<_>>()
        );
        in_all_forms!(
            torus,
            sent.clone(),
            vec![0; 4],
            |s, r| NeighbourAlltoall::new(s, r)
                .send_counts(&[1; 4])
                .recv_counts_at(&[1; 4], &[3, 2, 1, 0]),
            received.iter().rev().copied().collect::<Vec<_>>()
        );
        let bytes = |places: [usize; 4]| -> Shapes {
            places
                .map(|place| (4 * place, 1, Layout::of::<u32>()))
                .into_iter()
                .collect()
        };
        in_all_forms!(
            torus,
            sent.clone(),
            vec![0; 4],
            |s, r| NeighbourAlltoallw::new(s, bytes([0, 1, 2, 3]), r, bytes([3, 2, 1, 0])),
            received.iter().rev().copied().collect::<Vec<_>>()
        );
        refused!(
            torus,
            InvalidCount,
            ["equal blocks, one per source"],
            NeighbourAllgather::new(&[1u8][..], Box::leak(Box::new([0u8; 3])).as_mut_slice())
        );
        refused!(
            torus,
            InvalidCount,
            ["block of destination 3", "has 4"],
            NeighbourAlltoall::new(&[1u8; 4][..], Box::leak(Box::new([0u8; 4])).as_mut_slice())
                .send_counts(&[1, 1, 1, 2])
                .recv_counts(&[1; 4])
        );
        refused!(
            torus,
            InvalidCount,
            ["for 4 source(s)"],
            NeighbourAlltoallw::new(
                &[1u8; 4][..],
                bytes([0; 4]),
                Box::leak(Box::new([0u8; 4])).as_mut_slice(),
                Shapes::default()
            )
        );

        let line = torus
            .cart_create(&[Dimension::open(torus.size())], false)?
            .expect("all ranks");
        let (mut around, me, last) = ([99; 2], line.rank(), line.size() - 1);
        line.neighbour_allgather(&[me], &mut around)?;
        let below = if me == 0 { 99 } else { me - 1 };
        assert_eq!(around, [below, if me == last { 99 } else { me + 1 }]);
        line.neighbour_alltoall(&[me * 2, me * 2 + 1], &mut around)?;
        let below = if me == 0 { 99 } else { me * 2 - 1 };
        assert_eq!(around, [below, if me == last { 99 } else { me * 2 + 2 }]);
        Ok(())
    });
}

#[test]
fn counts_that_do_not_fit_name_the_neighbour_and_both() {
    jobs(&[2, 3, 4], |world| {
        let comm = world.comm();
        let n = comm.size();
        let ring = comm.cart_create(&[Dimension::periodic(n)], false)?;
        let ring = ring.expect("it has all ranks");
        let me = ring.rank();
        for (given, kind) in [(3, ErrorKind::Truncated), (1, ErrorKind::InvalidCount)] {
            // Rank 1 sends more than the others have room for, or less.
            let len = if me == 1 { given } else { 2 };
            let heard = |error: portolan::Error, name: &str| {
                let text = error.to_string();
                let bytes = 4 * given;
                let what = format!(
                    "): {name}: neighbour 1 sends {bytes} bytes where this rank's counts make 8; give"
                );
                assert!(text.contains(&what), "{text} // {what}");
                assert_eq!(error.kind(), kind, "{text}");
            };
            let refused = |outcome: Result<(), portolan::Error>, name: &str| {
                let around = [(me + 1) % n, (me + n - 1) % n];
                match outcome {
                    Err(error) => heard(error, name),
                    Ok(()) => assert!(!around.contains(&1), "rank {me} has not heard of it"),
                }
            };
            let (mine, mut theirs) = (vec![me; len], vec![0; 4]);
            let gather = NeighbourAllgather::new(&mine, &mut theirs).counts(&[2, 2]);
            refused(ring.run(gather).map(drop), "neighbour-allgather");
            let gather = NeighbourAllgather::new(mine, theirs).counts(&[2, 2]);
            let outcome = ring.start_owned(gather)?.wait();
            refused(outcome.map(drop).map_err(Into::into), "neighbour-allgather");
            let mut theirs = vec![0; 4];
            let mine = vec![me; 2 * len];
            let exchange = NeighbourAlltoall::new(&mine, &mut theirs)
                .send_counts(&[len; 2])
                .recv_counts(&[2, 2]);
            refused(ring.run(exchange).map(drop), "neighbour-alltoall");
        }
        // All ranks are still in step.
        ring.barrier()
    });
}

/// All ranks are neighbours of each other, but the last has the first twice.
#[test]
fn a_graph_with_an_edge_that_does_not_lead_back_is_refused_on_every_rank() {
    jobs(&[2, 3, 4, 8], |world| {
        let comm = world.comm();
        let (me, n) = (comm.rank() as usize, comm.size() as usize);
        let mut lists: Vec<Vec<u32>> = vec![(0..comm.size()).collect(); n];
        let even = comm.graph_create(Graph::new(&lists)?, false)?;
        let even = even.expect("it has all ranks");
        lists[n - 1].push(0);
        let graph = comm.graph_create(Graph::new(&lists)?, false)?;
        let graph = graph.expect("it has all ranks");
        let len = lists[me].len();
        let what = format!(
            "2 edge(s) lead from rank {} to rank 0 and 1 back; add",
            n - 1
        );
        for _ in 0..2 {
            refused!(
                graph,
                InvalidCommunicator,
                [&what],
                NeighbourAllgather::new(&[1u8][..], vec![0u8; len].leak())
            );
            refused!(
                graph,
                InvalidCommunicator,
                [&what],
                NeighbourAlltoall::new(&*vec![0u8; len].leak(), vec![0u8; len].leak())
                    .send_counts(&vec![1; len])
                    .recv_counts(&vec![1; len])
            );
            // It is as good as any other communicator for everything else.
            assert_eq!(graph.allreduce_one(1, &Op::SUM)?, comm.size());
        }
        let mut all = vec![0; n];
        even.neighbour_allgather(&[comm.rank()], &mut all)?;
        assert!(all.into_iter().eq(0..comm.size()));
        Ok(())
    });
}

/// A patch of a grid on each rank, with ghosts around it, in one matrix that a persistent operation
/// owns: rows and columns go straight to their places.
#[test]
fn a_matrix_exchanges_its_edges_with_its_own_ghosts() {
    const SIDE: usize = 6;
    jobs(&[1, 2, 4, 6], |world| {
        let n = world.comm().size();
        let dims = [
            Dimension::open(n.div_ceil(2)),
            Dimension::periodic(n.min(2)),
        ];
        let grid = world.comm().cart_create(&dims, false)?;
        let grid = grid.expect("a place for all");
        let row = Layout::contiguous(SIDE - 2, &Layout::of::<u32>())?;
        let column = Layout::vector(SIDE - 2, 1, SIDE as isize, &Layout::of::<u32>())?;
        let at = |row: usize, column: usize| (row * SIDE + column) * size_of::<u32>();
        let last = SIDE - 1;
        // Above and below, then left and right.
        let shapes = |places: [usize; 4]| -> Shapes {
            let layouts = [&row, &row, &column, &column];
            let blocks = places.into_iter().zip(layouts);
            blocks.map(|(at, layout)| (at, 1, layout.clone())).collect()
        };
        let send = shapes([at(1, 1), at(last - 1, 1), at(1, 1), at(1, last - 1)]);
        let recv = shapes([at(0, 1), at(last, 1), at(1, 0), at(1, last)]);
        let around = grid.neighbours().expect("a grid").sources;
        let inner = |rank: u32, step: u32, row: usize, column: usize| {
            rank * 10_000 + step * 1_000 + (row * SIDE + column) as u32
        };
        let expected = |step: u32| {
            let mut matrix = vec![0; SIDE * SIDE];
            for (index, value) in matrix.iter_mut().enumerate() {
                let (row, column) = (index / SIDE, index % SIDE);
                let middle = 1..last;
                let of = |side: usize, row: usize, column: usize| match around[side].rank {
                    Some(rank) => inner(rank, step, row, column),
                    None => 0,
                };
                *value = match (middle.contains(&row), middle.contains(&column)) {
                    (true, true) => inner(grid.rank(), step, row, column),
                    (false, true) if row == 0 => of(0, last - 1, column),
                    (false, true) => of(1, 1, column),
                    (true, false) if column == 0 => of(2, row, last - 1),
                    (true, false) => of(3, row, 1),
                    (false, false) => 0,
                };
            }
            matrix
        };
        let fill = |matrix: &mut [u32], step: u32| {
            for (index, value) in matrix.iter_mut().enumerate() {
                let (row, column) = (index / SIDE, index % SIDE);
                if (1..last).contains(&row) && (1..last).contains(&column) {
                    *value = inner(grid.rank(), step, row, column);
                }
            }
        };
        let blank = || vec![0; SIDE * SIDE];
        let halo = NeighbourAlltoallw::within(blank(), send.clone(), recv.clone());
        let mut halo = grid.persistent(halo)?;
        for step in 0..4 {
            fill(halo.buffers_mut()?, step);
            halo.start()?;
            halo.wait()?;
            assert_eq!(halo.buffers()?, expected(step));
        }
        assert_eq!(halo.into_buffers()?, expected(3));

        let mut matrix = blank();
        fill(&mut matrix, 5);
        grid.run(NeighbourAlltoallw::within(
            &mut matrix,
            send.clone(),
            recv.clone(),
        ))?;
        assert_eq!(matrix, expected(5));
        fill(&mut matrix, 6);
        let halo = NeighbourAlltoallw::within(matrix, send.clone(), recv);
        assert_eq!(grid.start_owned(halo)?.wait()?.buf, expected(6));

        // The corner of the patch would be sent and received.
        let wrong = shapes([at(0, 1), at(last, 1), at(1, 0), at(1, last - 1)]);
        refused!(
            grid,
            InvalidBuffer,
            ["sent and received"],
            NeighbourAlltoallw::within(blank().leak(), send.clone(), wrong.clone())
        );
        grid.barrier()
    });
}
