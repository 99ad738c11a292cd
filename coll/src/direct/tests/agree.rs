//! The cost of operations, the life of boards, and the errors of ranks that do not agree.

use portolan_core::transport::TransportCaps;
use portolan_core::transport::memory;
use portolan_core::{Device, ErrorKind, Result};
use portolan_datatype::{Layout, Op, Predefined};

use super::{World, buf, costs, has_boards, on_all, on_network, on_some};
use crate::direct::blocking::pulled::forbid;
use crate::{BlocksArg, Counters, Many, Operation, Options, counted, run};

fn sum() -> Op {
    Op::from(Predefined::Sum)
}

fn allreduce(world: &World, data: &mut [u64]) -> Result<()> {
    let layout = Layout::of::<u64>();
    let recv = buf(data, &layout);
    let (send, op) = (None, &sum());
    // SAFETY: the buffer outlives the call.
    unsafe { run(world, &Operation::Allreduce { send, recv, op }) }
}

fn bcast(world: &World, data: &mut [u64], root: u32) -> Result<()> {
    let layout = Layout::of::<u64>();
    let data = buf(data, &layout);
    // SAFETY: as above.
    unsafe { run(world, &Operation::Bcast { data, root }) }
}

fn barrier(world: &World) -> Result<()> {
    // SAFETY: there is no buffer.
    unsafe { run(world, &Operation::Barrier) }
}

#[test]
fn a_barrier_is_one_signal_and_a_look_at_each_other() {
    for ranks in [2, 3, 4, 8] {
        on_all(ranks, |world| {
            for count in 1..=50 {
                barrier(world).unwrap();
                let others = u64::from(ranks) - 1;
                assert_eq!(costs(world), [count, count * others, 0]);
                assert_eq!(counted(world, Counters::Operations), count);
            }
        });
    }
    // Two rounds: a rank looks at seven others of its own block, and at one of each other block.
    on_all(20, |world| {
        barrier(world).unwrap();
        let block = if world.rank() < 16 { 7 } else { 3 };
        assert_eq!(costs(world), [2, block + 2, 0]);
    });
}

#[test]
fn short_operations_take_one_signal() {
    on_all(4, |world| {
        let rank = u64::from(world.rank());
        let mut data = [rank; 4];
        allreduce(world, &mut data).unwrap();
        assert_eq!((data, costs(world)), ([6; 4], [1, 3, 0]));
        let mut data = [rank];
        bcast(world, &mut data, 2).unwrap();
        let looks = 3 + u64::from(rank != 2);
        assert_eq!((data, costs(world)), ([2], [2, looks, 0]));
    });
}

#[test]
fn a_root_that_is_far_ahead_waits_for_the_slowest() {
    on_all(3, |world| {
        let mut data = [0; 3];
        for round in 0..1000 {
            if world.rank() == 1 {
                data = [round, 2, 3];
            } else if world.rank() == 2 && round % 64 == 0 {
                (0..50).for_each(|_| std::thread::yield_now());
            }
            bcast(world, &mut data, 1).unwrap();
            assert_eq!(data, [round, 2, 3]);
        }
    });
}

#[test]
fn lengths_that_differ_are_told_and_what_follows_works() {
    let lens = [0, 1, 7, 15, 16, 1000, 1025, 20_000, 100_000];
    // These lengths do not fit in a header.
    let longest = [(300_000, 400_000), (400_000, 300_000), (1, 300_000)];
    for ranks in [2, 3, 4, 10] {
        on_all(ranks, |world| {
            let pairs = lens.iter().flat_map(|&a| lens.map(|b| (a, b)));
            for (odd, usual) in pairs.chain(longest) {
                if odd == usual || ranks == 10 && odd.max(usual) > 20_000 {
                    continue;
                }
                let len = if world.rank() == 1 { odd } else { usual };
                let mut data = vec![1; len];
                let error = allreduce(world, &mut data).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidCount, "{error}");

                let mut data = vec![7; len];
                let outcome = bcast(world, &mut data, 0);
                if world.rank() == 1 {
                    let error = outcome.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::InvalidCount, "{error}");
                    let text = error.to_string();
                    let (theirs, own) = (format!("{} bytes", usual * 8), format!("{}", odd * 8));
                    assert!(text.contains(&theirs) && text.contains(&own), "{text}");
                } else if let Err(error) = outcome {
                    // This happens where all ranks look at all others before they send messages.
                    assert_eq!(error.kind(), ErrorKind::InvalidCount, "{error}");
                }
                let mut data = [1];
                allreduce(world, &mut data).unwrap();
                assert_eq!(data, [u64::from(ranks)]);
            }
        });
    }
}

#[test]
fn blocks_that_differ_are_told_and_what_follows_works() {
    for ranks in [2, 3, 4, 8] {
        blocks_that_differ(ranks);
    }
}

fn blocks_that_differ(ranks: u32) {
    on_all(ranks, |world| {
        let layout = Layout::of::<u64>();
        // With 4 ranks, blocks of 3,125 take two steps, and blocks of 5,000 go as messages. In a
        // gather, blocks of 40,000 and more lie in a long place, or go as messages.
        let lens = [
            (40_000, 100_000),
            (100_000, 150_000),
            (150_000, 40_000),
            (5, 100_000),
            (150_000, 5),
            (1, 2),
            (5, 4000),
            (4000, 5),
            (5000, 3125),
            (9000, 20_000),
            (20_000, 0),
        ];
        for (odd, usual) in lens {
            let rank = world.rank();
            let len = if rank == 1 { odd } else { usual };
            let (mut from, mut to) = (
                vec![1u64; len * ranks as usize],
                vec![0u64; len * ranks as usize],
            );
            let part = |data: &mut Vec<u64>, count| portolan_core::TypedBuf {
                count,
                ..buf(data, &layout)
            };
            let (send, recv) = (part(&mut from, len), part(&mut to, len));
            let many = Many::Equal;
            let op = &sum();
            let (root, uneven) = (0, true);
            let ops = [
                Operation::Allgather {
                    send: Some(send),
                    recv: many(recv),
                },
                Operation::Alltoall {
                    send: Some(many(send)),
                    recv: many(recv),
                },
                Operation::ReduceScatterBlock {
                    send: Some(send),
                    recv,
                    op,
                },
                Operation::Scan {
                    send: Some(send),
                    recv,
                    op,
                    exclusive: false,
                },
                Operation::Reduce {
                    send: Some(send),
                    recv: Some(recv),
                    op,
                    root,
                },
                Operation::Gather {
                    send: Some(send),
                    recv: Some(many(recv)),
                    root,
                    uneven,
                },
                Operation::Scatter {
                    send: Some(many(send)),
                    recv: Some(recv),
                    root,
                    uneven,
                },
            ];
            for (index, operation) in ops.iter().enumerate() {
                // SAFETY: the buffers outlive the call.
                let outcome = unsafe { run(world, operation) };
                let sees = match index {
                    0..=2 => true,
                    3 => rank > 0,
                    4 | 5 => rank == 0,
                    _ => rank == 1,
                };
                if let Err(error) = &outcome {
                    let kind = error.kind();
                    let about = [ErrorKind::InvalidCount, ErrorKind::Truncated].contains(&kind);
                    assert!(about, "{error}");
                }
                assert!(
                    outcome.is_err() || !sees,
                    "rank {rank}, {:?}",
                    operation.name()
                );
                let mut data = [1];
                allreduce(world, &mut data).unwrap();
                assert_eq!(data, [u64::from(ranks)]);
            }
        }
    });
}

/// An allgather of `counts` items, which contain 1 + the rank, as this rank sees it.
fn allgatherv(world: &World, counts: &[usize]) -> Result<Vec<u64>> {
    let (layout, rank) = (Layout::of::<u64>(), world.rank() as usize);
    let mut mine = vec![rank as u64 + 1; counts[rank]];
    let mut all = vec![0; counts.iter().sum()];
    let places: Vec<isize> = (0..counts.len())
        .map(|rank| counts[..rank].iter().sum::<usize>() as isize)
        .collect();
    let recv = Many::Blocks(BlocksArg {
        ptr: all.as_mut_ptr().cast(),
        counts,
        displacements: &places,
        layout: &layout,
    });
    let send = Some(buf(&mut mine, &layout));
    // SAFETY: the buffers outlive the call.
    unsafe { run(world, &Operation::Allgather { send, recv }) }.map(|()| all)
}

#[test]
fn counts_that_differ_are_told_where_one_rank_has_a_way_to_choose_and_the_other_has_not() {
    on_all(2, |world| {
        // Blocks of 32 KiB and less than a chunk, and blocks of more than a chunk.
        for len in [4096, 12_800] {
            for odd in [0, 1] {
                let mut counts = [len; 2];
                allgatherv(world, &counts).unwrap();
                if world.rank() == odd {
                    counts[odd as usize] = len / 4;
                }
                let error = allgatherv(world, &counts).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidCount, "{error}");
                let text = error.to_string();
                assert!(text.contains("an allgather with"), "{text}");
                // The boards are in step: with counts on which both agree, data arrives.
                let all = allgatherv(world, &[len, len / 4]).unwrap();
                assert!(all[..len].iter().all(|&value| value == 1));
                assert!(all[len..].iter().all(|&value| value == 2));
                let mut data = [1];
                allreduce(world, &mut data).unwrap();
                assert_eq!(data, [2]);
            }
        }
    });
}

#[test]
fn who_takes_an_allgather_of_many_chunks_leaves_where_others_take_another_operation() {
    for ranks in [2, 3] {
        on_all(ranks, |world| {
            let mut counts = vec![40_000; ranks as usize];
            counts[0] -= 1;
            let outcome = match world.rank() {
                0 => barrier(world),
                _ => allgatherv(world, &counts).map(drop),
            };
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidArgument);
            barrier(world).unwrap();
            let all = allgatherv(world, &counts).unwrap();
            assert_eq!((all[0], all[all.len() - 1]), (1, u64::from(ranks)));
        });
    }
}

#[test]
fn where_lengths_differ_a_rank_without_a_block_keeps_nobody_waiting() {
    on_all(3, |world| {
        let layout = Layout::of::<u64>();
        for (odd, usual) in [(1, 2), (5, 4000), (4000, 5), (9000, 20_000)] {
            let len = if world.rank() == 1 { odd } else { usual };
            let counts = [len, 0, len];
            let own = counts[world.rank() as usize];
            let (mut from, mut to) = (vec![1u64; 2 * len], vec![0u64; own]);
            let reduction = Operation::ReduceScatter {
                send: Some(buf(&mut from, &layout)),
                recv: buf(&mut to, &layout),
                counts: &counts,
                op: &sum(),
            };
            // SAFETY: the buffers outlive the call.
            let outcome = unsafe { run(world, &reduction) };
            // Rank 1 waits for no other rank if the vectors are short, and then does not see it.
            match outcome {
                Ok(()) => assert_eq!(world.rank(), 1),
                Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidCount),
            }
            let mut data = [1];
            allreduce(world, &mut data).unwrap();
            assert_eq!(data, [3]);
        }
    });
}

#[test]
fn another_operation_is_told_by_its_name() {
    on_all(2, |world| {
        barrier(world).unwrap();
        let outcome = match world.rank() {
            0 => barrier(world),
            _ => allreduce(world, &mut [1]),
        };
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let text = error.to_string();
        assert!(
            text.contains("a barrier") && text.contains("an allreduce"),
            "{text}"
        );
        barrier(world).unwrap();
    });
}

/// An alltoall with counts, of `each` items for each rank.
fn alltoallv(world: &World, each: usize) -> Result<()> {
    let (layout, size) = (Layout::of::<u64>(), world.size() as usize);
    let (mut from, mut to) = (vec![1_u64; each * size], vec![0_u64; each * size]);
    let counts = vec![each; size];
    let places: Vec<isize> = (0..size).map(|rank| (rank * each) as isize).collect();
    let blocks = |data: &mut Vec<u64>| {
        Many::Blocks(BlocksArg {
            ptr: data.as_mut_ptr().cast(),
            counts: &counts,
            displacements: &places,
            layout: &layout,
        })
    };
    let (send, recv) = (Some(blocks(&mut from)), blocks(&mut to));
    // SAFETY: the buffers outlive the call.
    unsafe { run(world, &Operation::Alltoall { send, recv }) }
}

#[test]
fn who_takes_steps_of_two_numbers_does_not_leave_others_behind() {
    for ranks in [2, 3] {
        // So that steps begin with an even and with an odd number.
        for before in 0..4 {
            on_all(ranks, |world| {
                (0..before).for_each(|_| barrier(world).unwrap());
                let outcome = match world.rank() {
                    0 => barrier(world),
                    _ => alltoallv(world, 40_000),
                };
                assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidArgument);
                barrier(world).unwrap();
                alltoallv(world, 40_000).unwrap();
                barrier(world).unwrap();
            });
        }
    }
}

#[test]
fn ranks_of_two_nodes_send_messages_and_those_of_one_do_not() {
    let options = memory::Options {
        ranks_per_node: 2,
        ..memory::Options::default()
    };
    on_network(
        memory::network_with(4, options),
        &Options::default(),
        |world| {
            let mut data = [1];
            allreduce(world, &mut data).unwrap();
            assert!(data == [4] && !has_boards(world) && counted(world, Counters::Messages) > 0);
            let node = world.split(Some(world.rank() / 2), 0).unwrap().unwrap();
            allreduce(&node, &mut data).unwrap();
            assert_eq!((data, costs(&node)), ([8], [1, 1, 0]));
            world.barrier().unwrap();
        },
    );
    // Memory into which other ranks cannot store directly.
    let options = memory::Options {
        caps: memory::Options::default().caps - TransportCaps::DIRECT,
        ..memory::Options::default()
    };
    on_network(
        memory::network_with(2, options),
        &Options::default(),
        |world| {
            let mut data = [1];
            allreduce(world, &mut data).unwrap();
            assert!(data == [2] && !has_boards(world));
            world.barrier().unwrap();
        },
    );
}

#[test]
fn without_memory_for_a_board_all_do_without() {
    let options = memory::Options {
        // Enough for two boards, not for three.
        direct: 1 << 20,
        ..memory::Options::default()
    };
    on_network(
        memory::network_with(3, options),
        &Options::default(),
        |world| {
            let mut data = [1];
            allreduce(world, &mut data).unwrap();
            assert!(data == [3] && !has_boards(world));
            world.barrier().unwrap();
        },
    );
}

#[test]
fn a_dead_member_ends_the_wait_for_it() {
    // The boards exist before any rank dies.
    let reduced = std::sync::Barrier::new(4);
    on_some(4, |world| {
        let mut data = [1];
        allreduce(world, &mut data).unwrap();
        reduced.wait();
        if world.rank() == 2 {
            world.device().declare_self_failed("on purpose");
            return;
        }
        // A rank that hears of the death before it begins gives up, too, as does one that waits.
        let mut data = vec![1; 40_000];
        let error = allreduce(world, &mut data).unwrap_err();
        assert_eq!(
            (error.kind(), error.peer()),
            (ErrorKind::PeerFailed, Some(2))
        );
        let error = barrier(world).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PeerFailed);
    });
}

#[test]
fn boards_are_used_again_when_all_have_gone() {
    on_all(3, |world| {
        let region = |comm: &World| {
            barrier(comm).unwrap();
            assert!(has_boards(comm));
            let boards = crate::state::of(comm)
                .direct
                .boards
                .get()
                .unwrap()
                .as_ref()
                .unwrap();
            boards.region.ptr as usize
        };
        barrier(world).unwrap();
        let first = world.dup().unwrap();
        let address = region(&first);
        let second = world.dup().unwrap();
        assert_ne!(region(&second), address);
        drop(first);
        // All ranks have dropped it now.
        barrier(world).unwrap();
        let third = world.dup().unwrap();
        assert_eq!(region(&third), address);
        for round in 0..200 {
            let comm = world.dup().unwrap();
            let mut data = [round];
            bcast(&comm, &mut data, (round % 3) as u32).unwrap();
        }
    });
}

#[test]
fn parts_of_a_communicator_have_boards_of_their_own() {
    on_all(4, |world| {
        let colour = world.rank() % 2;
        let half = world.split(Some(colour), 0).unwrap().unwrap();
        for _ in 0..20 {
            let mut data = [1];
            allreduce(&half, &mut data).unwrap();
            assert_eq!(data, [2]);
            allreduce(world, &mut data).unwrap();
            assert_eq!(data, [8]);
        }
        let alone = world.split(Some(world.rank()), 0).unwrap().unwrap();
        barrier(&alone).unwrap();
        assert!(has_boards(&half) && !has_boards(&alone));
    });
}

/// Rank 1 comes only after rank 0 has received its error. Until then one of rank 0's threads is
/// still making the boards.
#[test]
fn two_threads_at_making_the_boards_are_told() {
    use portolan_core::Engine;
    use portolan_core::comm::Communicator;
    use portolan_core::config::Settings;
    use portolan_core::level::Multiple;

    let told = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for transport in memory::network(2) {
            let told = &told;
            scope.spawn(move || {
                let engine = Engine::<_, Multiple>::new(transport, &Settings::default()).unwrap();
                let world = Communicator::world(std::sync::Arc::new(engine)).unwrap();
                // SAFETY: there is no buffer.
                let barrier = || unsafe { run(&world, &Operation::Barrier) };
                if world.rank() == 1 {
                    told.wait();
                    barrier().unwrap();
                    return world.barrier().unwrap();
                }
                let outcomes = std::thread::scope(|threads| {
                    let both = [(), ()].map(|()| {
                        threads.spawn(|| {
                            let outcome = barrier();
                            if outcome.is_err() {
                                told.wait();
                            }
                            outcome
                        })
                    });
                    both.map(|thread| thread.join().unwrap())
                });
                let wrong: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
                assert_eq!(wrong.len(), 1);
                assert_eq!(wrong[0].kind(), ErrorKind::InvalidCommunicator);
                world.barrier().unwrap();
            });
        }
    });
}

#[test]
fn long_blocks_of_two_ranks_are_tried_both_ways() {
    on_all(2, |world| {
        forbid();
        let rank = u64::from(world.rank());
        let mut data = vec![0; 8192];
        for round in 0..60 {
            let root = u32::from(round % 2 == 1);
            data.fill(if world.rank() == root { round } else { 99 });
            bcast(world, &mut data, root).unwrap();
            assert!(data.iter().all(|&value| value == round));
            // Each rank judges the broadcasts in which it receives.
            let sent = counted(world, Counters::Messages);
            match round {
                0..16 => assert_eq!(sent, 0),
                // A hopeless trial ends early.
                24.. => assert!(sent >= 3, "{sent}"),
                _ => {}
            }
        }
        let before = counted(world, Counters::Messages);
        let layout = Layout::of::<u64>();
        for round in 0..30 {
            let mut mine = vec![round + rank; 4096];
            let mut all = vec![0; 8192];
            let mut blocks = buf(&mut all, &layout);
            blocks.count = 4096;
            let allgather = Operation::Allgather {
                send: Some(buf(&mut mine, &layout)),
                recv: Many::Equal(blocks),
            };
            // SAFETY: the buffers outlive the call.
            unsafe { run(world, &allgather) }.unwrap();
            let right = |(at, &value): (usize, &u64)| value == round + at as u64 / 4096;
            assert!(all.iter().enumerate().all(right));
        }
        let sent = counted(world, Counters::Messages) - before;
        assert!((3..=22).contains(&sent), "{sent}");
    });
}

#[test]
fn long_reductions_to_the_root_have_lengths_that_agree() {
    let layout = Layout::of::<u64>();
    for ranks in [3, 4, 5] {
        on_all(ranks, |world| {
            for (odd, usual) in [
                (100_000, 20_000),
                (20_000, 100_000),
                (100_000, 1),
                (1, 70_000),
            ] {
                for root in 0..ranks {
                    let len = if world.rank() == 1 { odd } else { usual };
                    let (mut mine, mut sum) = (vec![2; len], vec![0; len]);
                    let reduce = |mine: &mut [u64], sum: &mut [u64]| {
                        let recv = (world.rank() == root).then(|| buf(sum, &layout));
                        let reduce = Operation::Reduce {
                            send: Some(buf(mine, &layout)),
                            recv,
                            op: &Op::from(Predefined::Sum),
                            root,
                        };
                        // SAFETY: the buffers outlive the call.
                        unsafe { run(world, &reduce) }
                    };
                    let outcome = reduce(&mut mine, &mut sum);
                    if world.rank() == root {
                        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidCount);
                    }
                    let (mut mine, mut sum) = (vec![2; usual], vec![0; usual]);
                    reduce(&mut mine, &mut sum).unwrap();
                    let expected = if world.rank() == root {
                        2 * u64::from(ranks)
                    } else {
                        0
                    };
                    assert!(sum.iter().all(|&value| value == expected));
                }
            }
        });
    }
}
