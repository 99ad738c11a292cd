//! Operations between two groups.

use portolan::coll::{
    Allgather, Allreduce, Alltoall, Bcast, Gather, Reduce, ReduceScatter, ReduceScatterBlock, Root,
    Scan, Scatter, strided,
};
use portolan::{Comm, ErrorKind, InterComm, Layout, Op, RemoteLeader, Result};

use crate::common::jobs;

/// The two sides of a job, the lower ranks on the left, and whether this rank is there.
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

        // Rank i of the other side sends i + 1 items to every rank.
        let counts: Vec<usize> = (1..=there as usize).collect();
        let mine = vec![ours + me; (me as usize + 1) * there as usize];
        let mut got = vec![0; counts.iter().sum()];
        let call = Alltoall::new(&mine, &mut got).recv_counts(&counts);
        inter.run(call.send_counts(&vec![me as usize + 1; there as usize]))?;
        let expected: Vec<u32> = (0..there)
            .flat_map(|rank| vec![theirs + rank; rank as usize + 1])
            .collect();
        assert_eq!(got, expected);

        // The last rank of either side is the root in turn; it sends to the other side and receives
        // from it.
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

        // Operations that do not exist between two groups.
        for outcome in [
            inter.run(Scan::new(&[1], &mut [0], Op::SUM)).map(drop),
            inter.run(Allreduce::in_place(&mut [1], Op::SUM)).map(drop),
            inter.remote().barrier(),
        ] {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidCommunicator);
        }
        let root = comm.run(Bcast::new(&mut [0u8], Root::Here)).map(drop);
        assert_eq!(root.unwrap_err().kind(), ErrorKind::InvalidRank);
        // Lights in one direction, darkness in the other: values are checked here, too.
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

/// The operator knows arrays of three only; the contribution is described as six numbers.
#[test]
fn two_groups_combine_items_that_are_described_in_two_ways() {
    jobs(&[2, 3], |world| {
        let (inter, left) = sides(&world.comm())?;
        let flat = Layout::contiguous(6, &Layout::of::<f64>())?;
        let nested = Layout::contiguous(2, &Layout::of::<[f64; 3]>())?;
        let op = Op::new(true, |a: [f64; 3], b: [f64; 3]| {
            [a[0] + b[0], a[1].max(b[1]), a[2].min(b[2])]
        });
        let own = if left { 1.0 } else { 2.0 };
        let (ours, mut got) = ([own; 12], [0.0; 12]);
        let (send, recv) = (strided(&ours, 2, &flat), strided(&mut got, 2, &nested));
        inter.run(Allreduce::new(send, recv, op))?;
        let theirs = 3.0 - own;
        let sum = theirs * f64::from(inter.remote_size());
        assert!(got.chunks(3).all(|got| got == [sum, theirs, theirs]));
        Ok(())
    });
}
