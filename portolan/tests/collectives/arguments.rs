//! Wrong arguments, on one rank or between ranks.

use portolan::coll::{
    Allgather, Allreduce, Alltoall, Alltoallw, Bcast, Gather, ReduceScatter, Scan, Shapes, strided,
};
use portolan::{ErrorKind, Layout, Op};

use crate::common::jobs;

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
        refused!(
            comm,
            InvalidArgument,
            ["allreduce: `replace` is for one-sided", &here],
            Allreduce::new(&ONES[..1], leak(1), Op::REPLACE)
        );
        refused!(
            comm,
            InvalidArgument,
            ["scan: `no_op` is for one-sided"],
            Scan::new(&ONES[..1], leak(1), Op::NO_OP)
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
        // No rank is waiting, and all are still in step.
        assert_eq!(comm.allreduce_one(1, &Op::SUM)?, n);
        world.finalize().map(drop)
    });
}

#[test]
fn blocks_whose_items_reach_into_each_other_are_refused_where_they_overlap() {
    let column = Layout::vector(3, 1, 4, &Layout::of::<u32>()).unwrap();
    let resized = |extent| Layout::resized(&column, 0, extent).unwrap();
    let (narrow, flat) = (resized(4), resized(0));
    jobs(&[5], |world| {
        let comm = world.comm();
        static ONES: [u32; 15] = [1; 15];
        let leak = || Box::leak(vec![0u32; 16].into_boxed_slice());
        // The rows have four words, so columns 0 and 4 share two.
        refused!(
            comm,
            InvalidCount,
            ["the blocks of ranks 0 and 4 overlap in the receive buffer"],
            Allgather::new(&ONES[..3], strided(leak(), 5, &narrow))
        );
        refused!(
            comm,
            InvalidCount,
            ["the blocks of ranks 0 and 4 overlap in the receive buffer"],
            Alltoall::new(&ONES[..], strided(leak(), 5, &narrow))
                .send_counts(&[3; 5])
                .recv_counts_at(&[1; 5], &[4, 1, 2, 3, 0])
        );
        refused!(
            comm,
            InvalidCount,
            ["the blocks of ranks 0 and 1 overlap in the receive buffer"],
            Allgather::new(&ONES[..3], strided(leak(), 5, &flat))
        );
        // What is sent may overlap.
        let mut sums = [0; 15];
        comm.run(Alltoall::new(strided(&ONES[..], 5, &flat), &mut sums))?;
        assert_eq!(sums, [1; 15]);
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
fn a_communicator_of_a_world_that_has_ended_is_refused_in_every_form() {
    jobs(&[1, 2, 3], |world| {
        let comms = [world.comm(), world.comm().dup()?];
        // One communicator has been used already, the other has not.
        comms[0].allreduce_one(1, &Op::SUM)?;
        let mut early = comms[0].persistent(Bcast::new(vec![0u8], 0))?;
        world.finalize()?;
        for comm in &comms {
            for len in [1, 40_000] {
                let leak = || Box::leak(vec![0u32; len].into_boxed_slice());
                refused!(comm, Finalized, ["has left"], Bcast::new(leak(), 0));
                refused!(
                    comm,
                    Finalized,
                    ["has left"],
                    Allreduce::new(&*leak(), leak(), Op::SUM)
                );
            }
            assert_eq!(comm.dup().unwrap_err().kind(), ErrorKind::Finalized);
            // A communicator of one rank, of which the others are not members.
            let first = comm.group().include(&[0])?;
            let error = comm.create_group(&first, 7).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Finalized);
        }
        assert_eq!(early.start().unwrap_err().kind(), ErrorKind::Finalized);
        Ok(())
    });
}
