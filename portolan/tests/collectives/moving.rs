//! Data that moves: equal blocks, blocks of any length and place, layouts.

use portolan::coll::{
    Allgather, Allreduce, Alltoall, Alltoallw, Barrier, Bcast, Gather, Scatter, Shapes, strided,
};
use portolan::{ErrorKind, Layout, Op, Result};

use crate::common::jobs;
use crate::{SIZES, values};

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
fn the_roots_data_is_only_read() {
    // Memory in which a write would fault.
    static DATA: [u64; 100_000] = [7; 100_000];
    jobs(&SIZES, |world| {
        let comm = world.comm();
        for len in [1, 1000, 20_000, DATA.len()] {
            let root = len as u32 % comm.size();
            if comm.rank() == root {
                comm.run(Bcast::from_root(&DATA[..len], root))?;
                comm.start_owned(Bcast::from_root(&DATA[..len], root))?
                    .wait()?;
            } else {
                let mut data = vec![0; len];
                comm.run(Bcast::new(&mut data, root))?;
                assert_eq!(data, DATA[..len]);
                let data = comm
                    .start_owned(Bcast::new(vec![0; len], root))?
                    .wait()?
                    .buf;
                assert_eq!(data, DATA[..len]);
            }
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
        // Rank i has i items. Its block comes after those of all higher ranks, with one free item
        // before it.
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
        // j items of rank i go to rank j, from place j on.
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
        // Two ranks into one column: refused on all ranks before any message.
        let same = vec![1; n as usize];
        let columns = strided(&mut matrix, 4, &column);
        let error = comm.run(Allgather::new(&ours, columns).counts_at(&counts, &same));
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidCount, "{error}");
        let says = "allgather: the blocks of ranks 0 and 1 overlap";
        assert!(error.to_string().contains(says), "{error}");
        let shapes: Shapes = (0..n).map(|_| (4, 1, column.clone())).collect();
        let (sent, mut all) = ([0u32; 12], [0; 12]);
        let error = comm.run(Alltoallw::new(&sent, shapes.clone(), &mut all, shapes));
        let says = "the blocks of ranks 0 and 1 overlap in the receive buffer";
        assert!(error.unwrap_err().to_string().contains(says));
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
        // Every rank gives rank i its column i, and gets its own rows.
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
        // A layout that reaches beyond its buffer is refused everywhere.
        let error = comm.run(Bcast::new(strided(&mut matrix[4..], 1, &row_of_4), 0));
        assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidBuffer);
        Ok(())
    });
    Ok(())
}

#[test]
fn vectors_of_any_length_reach_the_ranks_for_which_they_are() {
    let item = |from: u32, to: u32, at: usize| from * 1000 + to * 100 + at as u32;
    let len = |from: u32, to: u32| ((from + 2 * to) % 4) as usize;
    let part = |from: u32, to: u32| -> Vec<u32> {
        (0..len(from, to)).map(|at| item(from, to, at)).collect()
    };
    for ranks in 1..=5 {
        portolan::try_threads(ranks, |world| {
            let (comm, me) = (world.comm(), world.rank());
            let parts: Vec<_> = (0..ranks).map(|to| part(me, to)).collect();
            let all = comm.alltoall_vecs(&parts)?;
            let expected: Vec<_> = (0..ranks).map(|from| part(from, me)).collect();
            assert_eq!(all, expected);
            for root in 0..ranks {
                assert_eq!(comm.scatter_vecs(&parts, root)?, part(root, me));
                let mut data = part(me, root);
                comm.bcast_vec(&mut data, root)?;
                assert_eq!(data, part(root, root));
            }
            let wrong = comm.alltoall_vecs(&parts[1..]).unwrap_err();
            assert_eq!(wrong.kind(), portolan::ErrorKind::InvalidCount, "{wrong}");
            assert!(comm.failed().is_empty());
            Ok(())
        })
        .unwrap();
    }
}
