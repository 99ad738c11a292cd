//! Collective operations through the typed interface: every operation in every form of the call, against
//! results written down by hand, and arguments that are wrong.

mod common;

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use common::{jobs, value};
use portolan::coll::{
    Allgather, Allreduce, Alltoall, Alltoallw, Barrier, Bcast, Exscan, Gather, NeighbourAllgather,
    NeighbourAlltoall, NeighbourAlltoallw, Reduce, ReduceScatter, ReduceScatterBlock, Root, Scan,
    Scatter, Shapes, strided,
};
use portolan::topology::Dimension;
use portolan::{
    Comm, Datatype, ErrorKind, InterComm, Layout, Op, RemoteLeader, Result, wait_all, wait_any,
};

const SIZES: [u32; 5] = [1, 2, 3, 4, 5];

/// Composition of the functions `a·x + b` modulo a prime: associative, not commutative.
fn compose(f: [u64; 2], g: [u64; 2]) -> [u64; 2] {
    [f[0] * g[0] % 65_537, (f[1] * g[0] + g[1]) % 65_537]
}

fn function(rank: u32, index: usize) -> [u64; 2] {
    [u64::from(rank) + 2, index as u64 + 3 * u64::from(rank)]
}

/// What ranks `first..last` have at each place, composed in their order.
fn composed(first: u32, last: u32, len: usize) -> Vec<[u64; 2]> {
    let at = |index| {
        let functions = (first..last).map(|rank| function(rank, index));
        functions.reduce(compose).unwrap_or_default()
    };
    (0..len).map(at).collect()
}

fn functions(rank: u32, len: usize) -> Vec<[u64; 2]> {
    (0..len).map(|index| function(rank, index)).collect()
}

fn values(rank: u32, len: usize) -> Vec<u64> {
    (0..len).map(|index| value(rank, index)).collect()
}

/// Runs one operation in all forms. `$send` and `$recv` are expressions for fresh buffers, `$call` makes the
/// arguments of two buffers, and `$expected` is what is received.
macro_rules! in_all_forms {
    ($comm:expr, $send:expr, $recv:expr, |$s:ident, $r:ident| $call:expr, $expected:expr) => {{
        let (comm, expected) = (&$comm, $expected);
        {
            let (send, mut recv) = ($send, $recv);
            let ($s, $r) = (&send[..], &mut recv[..]);
            comm.run($call)?;
            assert_eq!(recv, expected, "blocking");
        }
        {
            let (send, mut recv) = ($send, $recv);
            comm.scope(|scope| {
                let ($s, $r) = (&send[..], &mut recv[..]);
                scope.start($call)?.wait()?;
                Ok(())
            })?;
            assert_eq!(recv, expected, "in a scope");
            // Left to the scope.
            let (send, mut recv) = ($send, $recv);
            comm.scope(|scope| {
                let ($s, $r) = (&send[..], &mut recv[..]);
                scope.start($call)?;
                Ok(())
            })?;
            assert_eq!(recv, expected, "at the end of a scope");
        }
        {
            let ($s, $r) = ($send, $recv);
            let (send, recv) = comm.start_owned($call)?.wait()?.buf;
            assert_eq!((send, recv), ($send, expected.clone()), "owning");
        }
        {
            let ($s, $r) = ($send, $recv);
            let mut persistent = comm.persistent($call)?;
            for round in 0..3 {
                let (_, recv) = persistent.values()?;
                recv.copy_from_slice(&$recv);
                persistent.start()?;
                persistent.wait()?;
                let (_, recv) = persistent.values()?;
                assert_eq!(recv, expected, "persistent, round {round}");
            }
            let (send, recv) = persistent.into_buffers()?;
            assert_eq!((send, recv), ($send, expected), "persistent");
        }
    }};
}

/// What every form of a call says of wrong arguments.
macro_rules! refused {
    ($comm:expr, $kind:ident, $words:expr, $call:expr) => {{
        let blocking = $comm.run($call).map(drop).unwrap_err();
        let scoped = $comm.scope(|s| s.start($call).map(drop)).unwrap_err();
        let owned = $comm.start_owned($call).map(drop).unwrap_err();
        let persistent = $comm.persistent($call).map(drop).unwrap_err();
        assert_eq!(blocking.kind(), ErrorKind::$kind, "{blocking}");
        let text = blocking.to_string();
        for word in $words {
            assert!(text.contains(word), "`{word}` is not in: {text}");
        }
        for other in [scoped, owned.error, persistent.error] {
            assert_eq!(other.to_string(), text);
        }
    }};
}

#[test]
fn data_moves_in_every_form() {
    jobs(&SIZES, |world| {
        let comm = world.comm();
        let (me, n) = (comm.rank(), comm.size());
        let ranks = n as usize;
        for len in [0, 1, 3, 5000] {
            let root = len as u32 % n;
            let all: Vec<u64> = (0..n).flat_map(|rank| values(rank, len)).collect();
            let whole = |rank| values(rank, len * ranks);
            let block = |rank, block| {
                let of = whole(rank);
                of[len * block as usize..][..len].to_vec()
            };

            in_all_forms!(
                comm,
                values(me, len),
                vec![0; len * ranks],
                |s, r| Allgather::new(s, r),
                all.clone()
            );
            let at_root = |then: Vec<u64>| {
                if me == root {
                    then
                } else {
                    vec![9; len * ranks]
                }
            };
            in_all_forms!(
                comm,
                values(me, len),
                vec![9; len * ranks],
                |s, r| Gather::new(s, r, root),
                at_root(all.clone())
            );
            in_all_forms!(
                comm,
                whole(me),
                vec![0; len],
                |s, r| Scatter::new(s, r, root),
                block(root, me)
            );
            in_all_forms!(
                comm,
                whole(me),
                vec![0; len * ranks],
                |s, r| Alltoall::new(s, r),
                (0..n).flat_map(|rank| block(rank, me)).collect::<Vec<_>>()
            );

            let mut data = values(me, len);
            comm.bcast(&mut data, root)?;
            assert_eq!(data, values(root, len));
            let mut data = vec![0; len * ranks];
            data[len * me as usize..][..len].copy_from_slice(&values(me, len));
            comm.run(Allgather::in_place(&mut data))?;
            assert_eq!(data, all);
            let mut data = whole(me);
            comm.run(Alltoall::in_place(&mut data))?;
            let exchanged: Vec<_> = (0..n).flat_map(|rank| block(rank, me)).collect();
            assert_eq!(data, exchanged);
        }
        comm.start_owned(Barrier::new())?.wait()?;
        let mut barrier = comm.persistent(Barrier::new())?;
        for _ in 0..3 {
            barrier.start()?;
            while !barrier.test()? {}
        }
        Ok(())
    });
}

#[test]
fn reductions_keep_the_order_of_the_ranks_in_every_form() {
    jobs(&SIZES, |world| {
        let comm = world.comm();
        let (me, n) = (comm.rank(), comm.size());
        let op = Op::new(false, compose);
        for len in [0, 1, 3, 700] {
            let root = len as u32 % n;
            let all = composed(0, n, len);
            let zeros = || vec![[0; 2]; len];
            in_all_forms!(
                comm,
                functions(me, len),
                zeros(),
                |s, r| Allreduce::new(s, r, op.clone()),
                all.clone()
            );
            in_all_forms!(
                comm,
                functions(me, len),
                zeros(),
                |s, r| Reduce::new(s, r, op.clone(), root),
                if me == root { all.clone() } else { zeros() }
            );
            in_all_forms!(
                comm,
                functions(me, len),
                zeros(),
                |s, r| Scan::new(s, r, op.clone()),
                composed(0, me + 1, len)
            );
            in_all_forms!(
                comm,
                functions(me, len),
                zeros(),
                |s, r| Exscan::new(s, r, op.clone()),
                composed(0, me, len)
            );

            let blocks = composed(0, n, len * n as usize);
            let mine = blocks[len * me as usize..][..len].to_vec();
            in_all_forms!(
                comm,
                functions(me, len * n as usize),
                zeros(),
                |s, r| ReduceScatterBlock::new(s, r, op.clone()),
                mine.clone()
            );
            let counts: Vec<_> = (0..n as usize).map(|rank| len + rank % 2).collect();
            let first: usize = counts[..me as usize].iter().sum();
            let total: usize = counts.iter().sum();
            let uneven = composed(0, n, total)[first..][..counts[me as usize]].to_vec();
            in_all_forms!(
                comm,
                functions(me, total),
                vec![[0; 2]; counts[me as usize]],
                |s, r| ReduceScatter::new(s, r, &counts, op.clone()),
                uneven.clone()
            );

            let mut data = functions(me, len);
            comm.run(Allreduce::in_place(&mut data, op.clone()))?;
            assert_eq!(data, all);
            let mut data = functions(me, len);
            comm.run(Reduce::in_place(&mut data, op.clone(), root))?;
            assert_eq!(data, if me == root { all } else { functions(me, len) });
            let mut data = functions(me, len);
            comm.run(Exscan::in_place(&mut data, op.clone()))?;
            let before = if me == 0 {
                functions(0, len)
            } else {
                composed(0, me, len)
            };
            assert_eq!(data, before);
            let mut data = functions(me, len * n as usize);
            comm.run(ReduceScatterBlock::in_place(&mut data, op.clone()))?;
            assert_eq!(data[..len], mine);
            let mut data = functions(me, total);
            comm.run(ReduceScatter::in_place(&mut data, &counts, op.clone()))?;
            assert_eq!(data[..uneven.len()], uneven);
        }
        Ok(())
    });
}

#[test]
fn blocks_of_any_length_and_place() {
    jobs(&SIZES, |world| {
        let comm = world.comm();
        let (me, n) = (comm.rank(), comm.size());
        let ranks = n as usize;
        let root = n / 2;
        // Rank i has i items; its place is behind those of all higher ranks, with one free item before.
        let counts: Vec<usize> = (0..ranks).collect();
        let places: Vec<usize> = (0..ranks)
            .map(|i| (i + 1..ranks).sum::<usize>() + 1)
            .collect();
        let room = ranks * (ranks - 1) / 2 + 1;
        let mut backwards = vec![9];
        backwards.extend((0..n).rev().flat_map(|rank| values(rank, rank as usize)));
        let mine = || values(me, me as usize);

        in_all_forms!(
            comm,
            mine(),
            vec![9; room],
            |s, r| Allgather::new(s, r).counts_at(&counts, &places),
            backwards.clone()
        );
        in_all_forms!(
            comm,
            mine(),
            vec![9; room],
            |s, r| Gather::new(s, r, root).counts_at(&counts, &places),
            if me == root {
                backwards.clone()
            } else {
                vec![9; room]
            }
        );
        in_all_forms!(
            comm,
            backwards.clone(),
            vec![0; me as usize],
            |s, r| Scatter::new(s, r, root).counts_at(&counts, &places),
            mine()
        );
        // To rank j go j items of rank i, from place j on.
        let received: Vec<u64> = (0..n)
            .flat_map(|rank| values(rank, 2 * ranks)[me as usize..][..me as usize].to_vec())
            .collect();
        in_all_forms!(
            comm,
            values(me, 2 * ranks),
            vec![0; ranks * me as usize],
            |s, r| Alltoall::new(s, r)
                .send_counts_at(&counts, &counts)
                .recv_counts(&vec![me as usize; ranks]),
            received
        );

        let parts = comm.allgather_vecs(&mine())?;
        let expected: Vec<_> = (0..n).map(|rank| values(rank, rank as usize)).collect();
        assert_eq!(parts, expected);
        let parts = comm.gather_vecs(&mine(), root)?;
        assert_eq!(parts, (me == root).then_some(expected));
        Ok(())
    });
}

#[test]
fn layouts_take_part_like_slices() -> Result<()> {
    let row_of_4 = Layout::vector(3, 1, 4, &Layout::of::<u32>())?;
    let column = Layout::resized(&row_of_4, 0, 4)?;
    jobs(&[2, 4], |world| {
        let comm = world.comm();
        let (me, n) = (comm.rank(), comm.size());
        // Three rows of four; every rank contributes a column, the last first.
        let ours = [me * 10, me * 10 + 1, me * 10 + 2];
        let mut matrix = [99; 12];
        let counts = vec![1; n as usize];
        let places: Vec<usize> = (0..n as usize).rev().collect();
        let columns = strided(&mut matrix, 4, &column);
        comm.run(Allgather::new(&ours, columns).counts_at(&counts, &places))?;
        for (row, values) in matrix.chunks(4).enumerate() {
            for (at, &value) in values.iter().enumerate() {
                let rank = (n as usize).checked_sub(at + 1);
                let expected = rank.map_or(99, |rank| rank as u32 * 10 + row as u32);
                assert_eq!(value, expected, "row {row}, column {at}");
            }
        }
        // A column is summed; nothing else changes.
        let before = matrix;
        comm.run(Allreduce::in_place(
            strided(&mut matrix[3..], 1, &row_of_4),
            Op::SUM,
        ))?;
        for (index, (&after, &before)) in matrix.iter().zip(&before).enumerate() {
            let times = if index % 4 == 3 { n } else { 1 };
            assert_eq!(after, before * times);
        }
        // Every rank gives rank i its column i, and gets rows of its own.
        let shapes: Shapes = (0..n as usize)
            .map(|i| (4 * i, 1, column.clone()))
            .collect();
        let rows: Shapes = (0..n as usize)
            .map(|i| (12 * i, 3, Layout::of::<u32>()))
            .collect();
        let mut mine = vec![0; 3 * n as usize];
        let all: Vec<u32> = (0..12).map(|index| me * 100 + index).collect();
        comm.run(Alltoallw::new(&all, shapes, &mut mine, rows))?;
        for (rank, column) in (0..n).zip(mine.chunks(3)) {
            assert_eq!(column, [0, 4, 8].map(|row| rank * 100 + row + me));
        }
        // A layout that leaves its buffer is refused everywhere.
        let error = comm.run(Bcast::new(strided(&mut matrix[4..], 1, &row_of_4), 0));
        assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidBuffer);
        Ok(())
    });
    Ok(())
}

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
        // Below and above in each dimension; the one below gets what is meant for below.
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

#[derive(Clone, Copy, Debug, PartialEq, Datatype)]
#[repr(u8)]
enum Light {
    Red = 1,
    Green = 2,
}

#[test]
fn received_values_are_values() {
    jobs(&[2, 3, 5], |world| {
        let comm = world.comm();
        let (me, n) = (comm.rank(), comm.size());
        assert_eq!(comm.bcast_one(['a', 'b'][(me == 1) as usize], 1)?, 'b');
        assert!(!comm.allreduce_one(me != 1, &Op::LAND)?);
        let lights = comm.allgather_one([Light::Red, Light::Green][me as usize % 2])?;
        let expected = (0..n).map(|rank| [Light::Red, Light::Green][rank as usize % 2]);
        assert_eq!(lights, expected.collect::<Vec<_>>());
        assert_eq!(comm.scatter_one(&lights, 0)?, lights[me as usize]);
        let or = Op::new(true, |a: bool, b: bool| a | b);
        assert!(comm.allreduce_one(me == 1, &or)?);
        assert_eq!(comm.scan_one(me == 1, &or)?, me >= 1);

        // Rank 1 has bytes where the others have lights.
        let mut light = [Light::Red];
        let outcome = match me {
            1 => comm.bcast(&mut [7u8], 1),
            _ => comm.bcast(&mut light, 1),
        };
        let kind = outcome.map_err(|error| error.kind());
        assert_eq!(
            kind,
            if me == 1 {
                Ok(())
            } else {
                Err(ErrorKind::InvalidValue)
            }
        );
        assert_eq!(light, [Light::Red]);
        // An operator on lights never sees what is none.
        let seen = |a: Light, b: Light| if a == Light::Red { b } else { a };
        let kind = match me {
            1 => comm
                .allreduce_in_place(&mut [7u8], &Op::new(true, |_: u8, _: u8| 9))
                .map_err(|error| error.kind()),
            _ => comm
                .allreduce_in_place(&mut light, &Op::new(true, seen))
                .map_err(|error| error.kind()),
        };
        assert_eq!(
            kind,
            if me == 1 {
                Ok(())
            } else {
                Err(ErrorKind::InvalidValue)
            }
        );
        Ok(())
    });
}

#[test]
fn wrong_arguments_are_refused_before_anything_is_sent() {
    jobs(&[1, 2, 4], |world| {
        let comm = world.comm();
        let (me, n) = (comm.rank(), comm.size());
        let ranks = n as usize;
        let here = format!("rank {me}");
        static ONES: [u32; 64] = [1; 64];
        let leak = |len: usize| Box::leak(vec![0u32; len].into_boxed_slice());
        let counts = vec![1; ranks];

        refused!(
            comm,
            InvalidRank,
            ["root", &n.to_string()],
            Bcast::new(leak(1), n)
        );
        refused!(
            comm,
            InvalidRank,
            ["root"],
            Gather::new(&ONES[..1], leak(ranks), n + 7)
        );
        refused!(
            comm,
            InvalidCount,
            ["3", "1"],
            Allreduce::new(&ONES[..3], leak(1), Op::SUM)
        );
        refused!(
            comm,
            InvalidCount,
            ["allgather", &here],
            Allgather::new(&ONES[..2], leak(ranks))
        );
        if n > 1 {
            refused!(
                comm,
                InvalidCount,
                ["equal", &here, "make it longer"],
                Alltoall::in_place(leak(ranks + 1))
            );
            refused!(
                comm,
                InvalidCount,
                ["overlap"],
                Allgather::new(&ONES[..1], leak(ranks)).counts_at(&counts, &vec![0; ranks])
            );
        }
        refused!(
            comm,
            InvalidCount,
            ["block of rank 0", "from item 9", "has 4", &here],
            Allgather::new(&ONES[..1], leak(4)).counts_at(&counts, &vec![9; ranks])
        );
        refused!(
            comm,
            InvalidCount,
            [&here[..], "for every rank"],
            Allgather::new(&ONES[..1], leak(4)).counts(&vec![1; ranks + 1])
        );
        refused!(
            comm,
            InvalidCount,
            ["block of rank 0"],
            Alltoall::new(&ONES[..ranks], leak(ranks))
                .send_counts_at(&counts, &vec![usize::MAX; ranks])
                .recv_counts(&counts)
        );
        refused!(
            comm,
            InvalidArgument,
            ["form"],
            Alltoall::new(&ONES[..ranks], leak(ranks)).send_counts(&counts)
        );
        refused!(
            comm,
            InvalidCount,
            ["sum up to"],
            ReduceScatter::new(&ONES[..1], leak(5), &vec![2; ranks], Op::SUM)
        );
        refused!(
            comm,
            InvalidLayout,
            ["maxloc"],
            Scan::new(&ONES[..1], leak(1), Op::MAXLOC)
        );
        let past: Shapes = (0..ranks).map(|_| (253, 1, Layout::of::<u32>())).collect();
        refused!(
            comm,
            InvalidCount,
            ["bytes 253 to 257", "256"],
            Alltoallw::new(&ONES[..], past.clone(), leak(64), past.clone())
        );
        if me != 0 {
            refused!(
                comm,
                InvalidBuffer,
                ["only the root"],
                Bcast::from_root(&ONES[..1], 0)
            );
            refused!(
                comm,
                InvalidBuffer,
                ["in place"],
                Gather::in_place(leak(ranks), 0)
            );
        } else {
            refused!(
                comm,
                InvalidBuffer,
                ["is the root"],
                Gather::contribute(&ONES[..1], 0)
            );
        }
        // Nobody is waiting for anything, and nothing is out of step.
        assert_eq!(comm.allreduce_one(1, &Op::SUM)?, n);
        world.finalize().map(drop)
    });
}

#[test]
fn lengths_that_differ_between_ranks_are_errors() {
    let error = portolan::try_threads(2, |world| {
        let comm = world.comm();
        let mut data = vec![0u8; 2 + comm.rank() as usize];
        comm.run(Bcast::new(&mut data, 0)).map(drop)
    })
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidCount, "{error}");
    let error = portolan::try_threads(2, |world| {
        let comm = world.comm();
        let data = vec![0u8; 2 + comm.rank() as usize];
        Ok(comm.start_owned(Bcast::new(data, 0))?.wait().map(drop)?)
    })
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidCount, "{error}");
}

#[test]
fn many_operations_on_overlapping_communicators_are_under_way_at_once() {
    jobs(&[1, 3, 4], |world| {
        let comms = [world.comm(), world.comm().dup()?, world.comm().dup()?];
        let (me, n) = (world.rank(), world.size());
        let mut requests = Vec::new();
        for round in 0..20u32 {
            for (which, comm) in (0u32..).zip(&comms) {
                let mine = vec![round * 100 + which * 10 + me; 50];
                requests.push(comm.start_owned(Allreduce::new(mine, vec![0; 50], Op::MAX))?);
            }
        }
        // Waited for in another order than started.
        for outcome in wait_all(requests.drain(30..)) {
            outcome?;
        }
        for (index, request) in (0u32..).zip(requests) {
            let (_, most) = request.wait()?.buf;
            assert_eq!(most, [index / 3 * 100 + index % 3 * 10 + n - 1; 50]);
        }
        Ok(())
    });
}

#[test]
fn requests_can_be_dropped_awaited_and_waited_for_in_any_order() {
    fn ready<F: Future>(future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(output) = future
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
            {
                return output;
            }
        }
    }
    jobs(&[2, 3], |world| {
        let comm = world.comm();
        let (me, n) = (comm.rank(), comm.size());
        let sum = |len| Allreduce::new(vec![1u64; len], vec![0; len], Op::SUM);
        // The others rely on this rank's part, whether or not it looks at the result.
        let dropped = comm.start_owned(sum(20_000))?;
        let kept = comm.start_owned(sum(20_000))?;
        let mut persistent = comm.persistent(sum(20_000))?;
        persistent.start()?;
        assert_eq!(
            persistent.start().unwrap_err().kind(),
            ErrorKind::InvalidRequest
        );
        assert_eq!(
            persistent.values().unwrap_err().kind(),
            ErrorKind::InvalidRequest
        );
        if me == 0 {
            drop(dropped);
            drop(persistent);
        } else {
            assert_eq!(dropped.wait()?.buf.1, vec![u64::from(n); 20_000]);
            persistent.wait()?;
            assert_eq!(persistent.into_buffers()?.1, vec![u64::from(n); 20_000]);
        }
        assert_eq!(ready(async { kept.await })?.buf.1[19_999], u64::from(n));

        let mut requests = vec![comm.start_owned(sum(1))?, comm.start_owned(sum(2))?];
        while let Some((_, outcome)) = wait_any(&mut requests)? {
            assert!(outcome?.buf.1.iter().all(|&x| x == u64::from(n)));
        }
        Ok(())
    });
}

#[test]
fn an_operation_in_a_scope_goes_on_when_the_scope_fails() {
    let failed = AtomicBool::new(false);
    jobs(&[3], |world| {
        let comm: Comm = world.comm();
        let (mine, mut sum) = ([1u32; 1000], [0; 1000]);
        let outcome = comm.scope(|s| {
            s.start(Allreduce::new(&mine, &mut sum, Op::SUM))?;
            match comm.rank() {
                1 => Err(portolan::Error::new(ErrorKind::Job, "changed its mind")),
                _ => Ok(()),
            }
        });
        assert_eq!(outcome.is_err(), comm.rank() == 1);
        failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
        assert_eq!(sum, [3; 1000]);
        world.finalize().map(drop)
    });
    assert!(failed.into_inner());
}

/// The two sides of a job: the lower ranks on the left. Whether this rank is there, and how many are on each.
fn sides(comm: &Comm) -> Result<(InterComm, bool)> {
    let lefts = comm.size().div_ceil(2);
    let left = comm.rank() < lefts;
    let own = comm
        .split(u32::from(left), 0)?
        .expect("everybody has a side");
    let remote = RemoteLeader {
        peer: comm,
        rank: if left { lefts } else { 0 },
        tag: 1.into(),
    };
    Ok((own.intercomm_create(0, Some(remote))?, left))
}

#[test]
fn two_groups_get_what_the_other_one_has() {
    jobs(&[2, 3, 5], |world| {
        let comm = world.comm();
        let (inter, left) = sides(&comm)?;
        let (me, here, there) = (inter.rank(), inter.size(), inter.remote_size());
        let (ours, theirs) = if left { (0, 100) } else { (100, 0) };
        inter.barrier()?;

        let call = || Allgather::new(vec![ours + me, 7], vec![0; 2 * there as usize]);
        let expected: Vec<u32> = (0..there).flat_map(|rank| [theirs + rank, 7]).collect();
        assert_eq!(inter.run(call())?.1, expected);
        assert_eq!(inter.start_owned(call())?.wait()?.buf.1, expected);
        let mut persistent = inter.persistent(call())?;
        for _ in 0..2 {
            persistent.start()?;
            persistent.wait()?;
        }
        assert_eq!(persistent.into_buffers()?.1, expected);
        let (mine, mut got) = ([ours + me, 7], vec![0; 2 * there as usize]);
        comm.scope(|s| {
            let (_, got) = s
                .start_between(&inter, Allgather::new(&mine, &mut got))?
                .wait()?;
            assert_eq!(got, expected);
            Ok(())
        })?;

        // Rank i of the other side sends i + 1 items to everybody.
        let counts: Vec<usize> = (1..=there as usize).collect();
        let mine = vec![ours + me; (me as usize + 1) * there as usize];
        let mut got = vec![0; counts.iter().sum()];
        let call = Alltoall::new(&mine, &mut got).recv_counts(&counts);
        inter.run(call.send_counts(&vec![me as usize + 1; there as usize]))?;
        let expected: Vec<u32> = (0..there)
            .flat_map(|rank| vec![theirs + rank; rank as usize + 1])
            .collect();
        assert_eq!(got, expected);

        // The root is the last of either side in turn; it sends to and hears from the other one.
        for left_has_it in [true, false] {
            let last = if left == left_has_it { here } else { there } - 1;
            let root = match (left == left_has_it, me == last) {
                (false, _) => Root::Rank(last),
                (true, true) => Root::Here,
                (true, false) => Root::Beside,
            };
            let mut data = [ours + me];
            inter.run(Bcast::new(&mut data, root))?;
            let far = root == Root::Rank(last);
            assert_eq!(data, [if far { theirs + last } else { ours + me }]);

            let mut all = vec![
                9;
                if root == Root::Here {
                    there as usize
                } else {
                    0
                }
            ];
            inter.run(Gather::new(&[ours + me], &mut all, root))?;
            let expected: Vec<u32> = (0..there).map(|rank| theirs + rank).collect();
            assert!(root != Root::Here || all == expected);
            let mut mine = [9];
            inter.run(Scatter::new(&all, &mut mine, root))?;
            assert_eq!(mine, [if far { ours + me } else { 9 }]);

            let mut sum = [0];
            inter.run(Reduce::new(&[me + 1], &mut sum, Op::SUM, root))?;
            let expected = there * (there + 1) / 2;
            assert_eq!(sum, [if root == Root::Here { expected } else { 0 }]);
        }

        let items = (here * there) as usize;
        let (mine, mut sum) = (vec![1; items], vec![0; there as usize]);
        inter.run(ReduceScatterBlock::new(&mine, &mut sum, Op::SUM))?;
        assert_eq!(sum, vec![there; there as usize]);
        let counts = vec![there as usize; here as usize];
        inter.run(ReduceScatter::new(&mine, &mut sum, &counts, Op::PROD))?;
        assert_eq!(sum, vec![1; there as usize]);

        // What there is not between two groups.
        for outcome in [
            inter.run(Scan::new(&[1], &mut [0], Op::SUM)).map(drop),
            inter.run(Allreduce::in_place(&mut [1], Op::SUM)).map(drop),
            inter.remote().barrier(),
        ] {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidCommunicator);
        }
        let root = comm.run(Bcast::new(&mut [0u8], Root::Here)).map(drop);
        assert_eq!(root.unwrap_err().kind(), ErrorKind::InvalidRank);
        // Light in one direction, dark in the other: values are checked here, too.
        let outcome = match left {
            true => inter
                .run(Allgather::new(&[7u8], &mut vec![0; there as usize]))
                .map(drop),
            false => inter
                .run(Allgather::new(
                    &[1u8 as char],
                    &mut vec!['a'; there as usize],
                ))
                .map(drop),
        };
        assert!(outcome.is_err());
        world.finalize().map(drop)
    });
}
