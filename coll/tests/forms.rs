//! The forms of a call over a real engine: blocking, nonblocking, persistent, compared, failed.

mod common;

use portolan_coll::{
    Counters, LayoutsArg, Many, Name, Operation, Options, Persistent, counted, run, start,
};
use portolan_core::transport::memory;
use portolan_core::{Device, ErrorKind, MemoryKind, Request, TypedBuf};
use portolan_datatype::{Layout, Op};

use common::{World, on_ranks};

/// Runs `body` on `n` ranks, which are threads.
fn on_all(n: u32, options: &Options, body: impl Fn(&World) + Sync) {
    on_nodes(n, u32::MAX, options, body);
}

/// The same with `ranks_per_node` ranks on a node.
fn on_nodes(n: u32, ranks_per_node: u32, options: &Options, body: impl Fn(&World) + Sync) {
    let network = memory::Options {
        ranks_per_node,
        ..memory::Options::default()
    };
    on_ranks(memory::network_with(n, network), options, body);
}

fn checked() -> Options {
    let mut options = Options::default();
    options.compare = true;
    options
}

fn buf<'a>(data: &mut [u32], layout: &'a Layout) -> TypedBuf<'a> {
    TypedBuf {
        ptr: data.as_mut_ptr().cast(),
        count: data.len(),
        layout,
        memory: MemoryKind::Host,
    }
}

#[test]
fn every_form_of_a_broadcast_gives_the_same() {
    for n in [1, 2, 3, 5] {
        for len in [0, 1, 1000, 100_000] {
            on_all(n, &Options::default(), |world| {
                let layout = Layout::of::<u32>();
                for root in 0..n {
                    let mine = |step| if world.rank() == root { root + step } else { 0 };
                    let mut data = vec![mine(1); len];
                    let data_buf = buf(&mut data, &layout);
                    let bcast = Operation::Bcast {
                        data: data_buf,
                        root,
                    };
                    // SAFETY: the buffer lives until the operation is over, here and below.
                    unsafe { run(world, &bcast) }.unwrap();
                    assert!(data.iter().all(|&value| value == root + 1));

                    data.fill(mine(2));
                    // SAFETY: as above.
                    let request = unsafe { start(world, &bcast) }.unwrap();
                    world.device().wait(request).unwrap();
                    assert!(data.iter().all(|&value| value == root + 2));

                    let mut again = Persistent::new(world, &bcast).unwrap();
                    for round in 3..6 {
                        data.fill(mine(round));
                        // SAFETY: as above.
                        let request = unsafe { again.start() }.unwrap();
                        world.device().wait(request).unwrap();
                        assert!(data.iter().all(|&value| value == root + round));
                    }
                }
            });
        }
    }
}

#[test]
fn many_are_under_way_and_complete_in_any_order() {
    const MANY: usize = 40;
    on_all(4, &Options::default(), |world| {
        let layout = Layout::of::<u32>();
        let others = world.dup().unwrap();
        let mut data = vec![[0; 50]; MANY];
        let mut requests = Vec::new();
        for (index, data) in data.iter_mut().enumerate() {
            let root = index as u32 % world.size();
            if world.rank() == root {
                data.fill(index as u32);
            }
            let bcast = Operation::Bcast {
                data: buf(data, &layout),
                root,
            };
            let comm = if index % 3 == 0 { &others } else { world };
            // SAFETY: the buffers live until all requests are complete.
            requests.push(unsafe { start(comm, &bcast) }.unwrap());
        }
        // Each rank waits in an order of its own.
        let turn = 7 * (1 + world.rank() as usize);
        requests.rotate_left(turn % MANY);
        requests.into_iter().for_each(|request| {
            world.device().wait(request).unwrap();
        });
        for (index, data) in data.iter().enumerate() {
            assert_eq!(data, &[index as u32; 50]);
        }
    });
}

#[test]
fn a_communicator_may_go_while_its_operations_are_under_way() {
    on_all(3, &Options::default(), |world| {
        let layout = Layout::of::<u32>();
        let mut data = vec![world.rank() + 7; 50_000];
        let mut requests = Vec::new();
        for data in data.chunks_mut(10_000) {
            let comm = world.dup().unwrap();
            let bcast = Operation::Bcast {
                data: buf(data, &layout),
                root: 1,
            };
            // SAFETY: the buffer lives until all requests are complete.
            requests.push(unsafe { start(&comm, &bcast) }.unwrap());
        }
        requests.into_iter().for_each(|request| {
            world.device().wait(request).unwrap();
        });
        assert_eq!(data, vec![8; 50_000]);
        assert_eq!(world.live(), 1, "every context is free again");
    });
}

#[test]
fn persistent_operations_start_in_any_order() {
    on_all(2, &Options::default(), |world| {
        let layout = Layout::of::<u32>();
        let (mut a, mut b) = ([world.rank() + 1; 3], [world.rank() + 10; 3]);
        let bcast = |data, root| Operation::Bcast { data, root };
        let mut first = Persistent::new(world, &bcast(buf(&mut a, &layout), 0)).unwrap();
        let mut second = Persistent::new(world, &bcast(buf(&mut b, &layout), 1)).unwrap();
        // SAFETY: the buffers live until both are complete.
        let (one, two) = unsafe {
            if world.rank() == 0 {
                let one = first.start().unwrap();
                (one, second.start().unwrap())
            } else {
                let two = second.start().unwrap();
                (first.start().unwrap(), two)
            }
        };
        world.device().wait(one).unwrap();
        world.device().wait(two).unwrap();
        assert_eq!((a, b), ([1; 3], [11; 3]));
    });
}

/// By messages, because an operation over boards may be over at once, depending on the others, and
/// may then be started again.
#[test]
fn persistent_operations_are_waited_for_before_they_are_started_again() {
    let mut by_messages = Options::default();
    by_messages.direct = false;
    on_all(2, &by_messages, |world| {
        let layout = Layout::of::<u32>();
        let mut data = [world.rank() + 1; 3];
        let bcast = Operation::Bcast {
            data: buf(&mut data, &layout),
            root: 0,
        };
        let mut bcast = Persistent::new(world, &bcast).unwrap();
        // SAFETY: the buffer lives until the operation is complete.
        let request = unsafe { bcast.start() }.unwrap();
        // SAFETY: as above.
        let error = unsafe { bcast.start() }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
        world.device().wait(request).unwrap();
        // SAFETY: as above.
        let again = unsafe { bcast.start() }.unwrap();
        world.device().wait(again).unwrap();
        assert_eq!(data, [1; 3]);
    });
}

#[test]
fn persistent_operations_that_are_over_at_once_take_no_slot() {
    on_all(2, &Options::default(), |world| {
        let layout = Layout::of::<u32>();
        let mut data = [world.rank() + 1; 3];
        let bcast = Operation::Bcast {
            data: buf(&mut data, &layout),
            root: 0,
        };
        let mut bcast = Persistent::new(world, &bcast).unwrap();
        // SAFETY: the buffer lives until the operation is complete.
        let request = unsafe { bcast.start() }.unwrap();
        if world.rank() == 0 {
            assert_eq!(request, Request::DONE, "a root has shown its data");
        }
        world.device().wait(request).unwrap();
        assert_eq!(data, [1; 3]);
    });
}

#[test]
fn ranks_that_compare_find_out_what_differs() {
    on_all(3, &checked(), |world| {
        let layout = Layout::of::<u32>();
        let mut data = [world.rank(); 8];
        let len = if world.rank() == 2 { 5 } else { 8 };
        let root = u32::from(world.rank() == 1);
        let bcast = |data, root| Operation::Bcast { data, root };
        let texts = [
            (
                bcast(buf(&mut data[..len], &layout), 0),
                "rank 2 calls bcast with 20 bytes, rank 0 calls bcast with 32 bytes",
            ),
            (
                bcast(buf(&mut data, &layout), root),
                "rank 1 calls bcast with root 1, rank 0 calls bcast with root 0",
            ),
            (
                if world.rank() == 0 {
                    Operation::Barrier
                } else {
                    bcast(buf(&mut data, &layout), 0)
                },
                "rank 1 calls a blocking bcast, rank 0 calls a blocking barrier",
            ),
        ];
        for (operation, text) in texts {
            // SAFETY: the buffers live until the operation is over, here and below.
            let error = unsafe { run(world, &operation) }.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(text), "{error}");
        }
        // The same for a nonblocking call that meets a blocking one.
        let barrier = Operation::Barrier;
        // SAFETY: as above.
        let outcome = unsafe {
            if world.rank() == 1 {
                start(world, &barrier).and_then(|request| world.device().wait(request).map(drop))
            } else {
                run(world, &barrier)
            }
        };
        let error = outcome.unwrap_err().to_string();
        assert!(
            error.contains("rank 1 calls a nonblocking barrier"),
            "{error}"
        );
        // The communicator still works afterwards.
        // SAFETY: as above.
        unsafe { run(world, &bcast(buf(&mut data, &layout), 0)) }.unwrap();
        assert_eq!(data, [0; 8]);
    });
}

#[test]
fn ranks_that_compare_find_blocks_with_gaps_that_overlap() {
    on_all(3, &checked(), |world| {
        // Two blocks are columns of a matrix with three rows of four numbers; the third is part of
        // a row.
        let int = Layout::of::<u32>();
        let column = Layout::vector(3, 1, 4, &int).unwrap();
        let layouts = [column.clone(), column, int];
        let mut send: Vec<u32> = (0..9).map(|at| 10 * world.rank() + at).collect();
        let mut matrix = [99; 12];
        let counts = [1, 1, 3];
        let exchange = |send: &mut [u32], matrix: &mut [u32], columns: [isize; 3]| {
            let threes = [(); 3].map(|()| Layout::of::<u32>());
            let operation = Operation::Alltoall {
                send: Some(Many::Layouts(LayoutsArg {
                    ptr: send.as_mut_ptr().cast(),
                    counts: &[3; 3],
                    displacements: &[0, 12, 24],
                    layouts: &threes,
                })),
                recv: Many::Layouts(LayoutsArg {
                    ptr: matrix.as_mut_ptr().cast(),
                    counts: &counts,
                    displacements: &columns,
                    layouts: &layouts,
                }),
            };
            // SAFETY: the buffers outlive the call.
            unsafe { run(world, &operation) }
        };
        // The third block is the end of the last row, so it overlaps the second block if that is
        // the last column.
        let error = exchange(&mut send, &mut matrix, [0, 12, 36]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidCount, "{error}");
        let text = "the blocks of ranks 1 and 2 overlap in the receive buffer";
        assert!(error.to_string().contains(text), "{error}");
        let error = exchange(&mut send, &mut matrix, [8, 8, 36]).unwrap_err();
        assert!(
            error.to_string().contains("ranks 0 and 1 overlap"),
            "{error}"
        );
        assert_eq!(matrix, [99; 12]);
    });
}

#[test]
fn ranks_that_compare_find_equal_blocks_that_overlap() {
    on_all(3, &checked(), |world| {
        // Two of every four numbers, three times; the next block begins where the second pair is.
        let int = Layout::of::<u32>();
        let pairs = Layout::vector(3, 2, 4, &int).unwrap();
        let gather = |extent: isize, all: &mut [u32]| {
            let pairs = Layout::resized(&pairs, 0, extent).unwrap();
            let mut own = [world.rank(); 6];
            let blocks = portolan_core::TypedBuf {
                count: 1,
                layout: &pairs,
                ..buf(all, &int)
            };
            let allgather = Operation::Allgather {
                send: Some(buf(&mut own, &int)),
                recv: Many::Equal(blocks),
            };
            // SAFETY: the buffers outlive the call.
            unsafe { run(world, &allgather) }
        };
        let mut all = [99; 40];
        let error = gather(16, &mut all).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidCount, "{error}");
        let text = "the blocks of ranks 0 and 1 overlap in the receive buffer";
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(all, [99; 40]);
        gather(48, &mut all).unwrap();
        assert_eq!((all[0], all[12], all[24]), (0, 1, 2));
    });
}

#[test]
fn persistent_operations_are_compared_when_they_are_made() {
    on_all(3, &checked(), |world| {
        let layout = Layout::of::<u32>();
        let (mut a, mut b) = ([world.rank(); 3], [world.rank() + 10; 3]);
        let bcast = |data, root| Operation::Bcast { data, root };
        let first = bcast(buf(&mut a, &layout), 0);
        // SAFETY: the buffers live until the operations are over, here and below.
        let outcome = unsafe {
            match world.rank() {
                0 => run(world, &Operation::Barrier),
                1 => Persistent::new(world, &first).map(drop),
                _ => start(world, &Operation::Barrier)
                    .and_then(|request| world.device().wait(request).map(drop)),
            }
        };
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let text = "rank 1 calls a persistent bcast, rank 0 calls a blocking barrier";
        assert!(error.to_string().contains(text), "{error}");
        let root = u32::from(world.rank() == 2);
        let error = Persistent::new(world, &bcast(buf(&mut a, &layout), root)).unwrap_err();
        let text = "rank 2 calls bcast with root 1, rank 0 calls bcast with root 0";
        assert!(error.to_string().contains(text), "{error}");

        // Operations that all ranks make in the same order may be started in any order, and stay in
        // step.
        let mut first = Persistent::new(world, &first).unwrap();
        let mut second = Persistent::new(world, &bcast(buf(&mut b, &layout), 1)).unwrap();
        let before = counted(world, Counters::Messages);
        let turns = if world.rank() == 0 {
            [&mut first, &mut second]
        } else {
            [&mut second, &mut first]
        };
        // SAFETY: as above.
        let requests = turns.map(|operation| unsafe { operation.start() }.unwrap());
        for request in requests {
            world.device().wait(request).unwrap();
        }
        let sent = counted(world, Counters::Messages) - before;
        assert_eq!(
            sent,
            [2, 2, 0][world.rank() as usize],
            "nothing is compared again"
        );
        // SAFETY: a barrier has no buffers.
        unsafe { run(world, &Operation::Barrier) }.unwrap();
        assert_eq!((a, b), ([0; 3], [11; 3]));
    });
}

#[test]
fn a_short_contribution_is_an_error_where_it_arrives_and_nobody_hangs() {
    on_all(3, &Options::default(), |world| {
        let layout = Layout::of::<u32>();
        let mut data = [world.rank(); 8];
        let len = if world.rank() == 0 { 5 } else { 8 };
        let bcast = Operation::Bcast {
            data: buf(&mut data[..len], &layout),
            root: 0,
        };
        // SAFETY: the buffer lives until the operations are over.
        let outcomes = unsafe {
            let request = start(world, &bcast).unwrap();
            let nonblocking = world.device().wait(request).map(drop);
            [run(world, &bcast), nonblocking]
        };
        for outcome in outcomes {
            if world.rank() == 0 {
                outcome.unwrap();
            } else {
                let error = outcome.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidCount);
                assert!(
                    error
                        .to_string()
                        .contains("with 20 bytes where this rank expects 32"),
                    "{error}"
                );
            }
        }
    });
}

#[test]
fn wrong_arguments_are_errors_before_anything_is_sent() {
    on_all(2, &Options::default(), |world| {
        let layout = Layout::of::<u32>();
        let mut data = [0; 4];
        let before = counted(world, Counters::Messages);
        let bcast = Operation::Bcast {
            data: buf(&mut data, &layout),
            root: 2,
        };
        // SAFETY: nothing is started.
        let errors = unsafe {
            [
                run(world, &bcast).unwrap_err(),
                start(world, &bcast).unwrap_err(),
                Persistent::new(world, &bcast).unwrap_err(),
            ]
        };
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::InvalidRank);
            let text = error.to_string();
            assert!(text.contains("bcast: root 2 is outside"), "{text}");
        }
        // The same bounds, but the data is elsewhere within them.
        let low = Layout::resized(&layout, 0, 16).unwrap();
        let high = Layout::hindexed_block(1, &[12], &layout).unwrap();
        let high = Layout::resized(&high, 0, 16).unwrap();
        let op = Op::SUM;
        let one = |data: &mut [u32; 4], layout| TypedBuf {
            count: 1,
            ..buf(data, layout)
        };
        let (mut from, mut to) = ([1; 4], [0; 4]);
        let sum = Operation::Allreduce {
            send: Some(one(&mut from, &low)),
            recv: one(&mut to, &high),
            op: &op,
        };
        // SAFETY: as above.
        let error = unsafe { run(world, &sum) }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidLayout, "{error}");
        // An operator that does not know the type: the error has one remedy, not two.
        let floats = Layout::of::<f32>();
        let bits = Operation::Allreduce {
            send: None,
            recv: buf(&mut to, &floats),
            op: &Op::BAND,
        };
        // SAFETY: as above.
        let text = unsafe { run(world, &bits) }.unwrap_err().to_string();
        assert!(text.contains("allreduce: operator band"), "{text}");
        assert_eq!(text.matches("; use ").count(), 1, "{text}");
        assert_eq!(counted(world, Counters::Messages), before);
    });
}

#[test]
fn a_barrier_costs_as_many_messages_as_its_algorithm_says() {
    for (n, rounds) in [(2, 1), (3, 2), (4, 2), (5, 3), (8, 3)] {
        let mut options = Options::default();
        options.direct = false;
        on_all(n, &options, |world| {
            // SAFETY: a barrier has no buffers.
            unsafe { run(world, &Operation::Barrier) }.unwrap();
            assert_eq!(counted(world, Counters::Messages), rounds);
            assert_eq!(counted(world, Counters::Waits), rounds);
            assert_eq!(counted(world, Counters::Operations), 1);
        });
    }
    assert_eq!(Name::Barrier.to_string(), "barrier");
}

#[test]
fn ranks_on_several_nodes_work_with_a_leader_on_each() {
    on_nodes(6, 3, &Options::default(), |world| {
        let layout = Layout::of::<u32>();
        let messages = || counted(world, Counters::Messages);
        // SAFETY: a barrier has no buffers.
        unsafe { run(world, &Operation::Barrier) }.unwrap();
        let expected = if world.rank().is_multiple_of(3) { 3 } else { 1 };
        assert_eq!(
            messages(),
            expected,
            "a leader tells two and another leader"
        );
        for root in 0..6 {
            let before = messages();
            let mut data = [if world.rank() == root { root + 5 } else { 0 }; 3];
            let data_buf = buf(&mut data, &layout);
            // SAFETY: the buffer lives until the operation is over, here and below.
            unsafe {
                run(
                    world,
                    &Operation::Bcast {
                        data: data_buf,
                        root,
                    },
                )
                .unwrap();
            }
            assert_eq!(data, [root + 5; 3]);
            let leads = world.rank() == root || world.rank() == (3 - root / 3 * 3);
            let sent = if leads {
                2 + u64::from(world.rank() == root)
            } else {
                0
            };
            assert_eq!(messages() - before, sent, "root {root}");
        }
        for len in [3, 200_000] {
            let mut sums = vec![world.rank() + 1; len];
            let allreduce = Operation::Allreduce {
                send: None,
                recv: buf(&mut sums, &layout),
                op: &Op::SUM,
            };
            // SAFETY: as above.
            unsafe {
                run(world, &allreduce).unwrap();
                world
                    .device()
                    .wait(start(world, &allreduce).unwrap())
                    .unwrap();
            }
            assert_eq!(sums, vec![21 * 6; len]);
        }
    });
}

#[test]
fn the_call_that_starts_an_operation_leaves_long_copies_to_the_next_poll() {
    on_all(1, &Options::default(), |world| {
        let layout = Layout::of::<u32>();
        let (mut mine, mut all) = (vec![7; 100_000], vec![0; 100_000]);
        let allgather = Operation::Allgather {
            send: Some(buf(&mut mine, &layout)),
            recv: Many::Equal(buf(&mut all, &layout)),
        };
        // SAFETY: the buffers live until the operation is over.
        let request = unsafe { start(world, &allgather) }.unwrap();
        assert!(!world.device().is_complete(request));
        world.device().wait(request).unwrap();
        assert_eq!(all, mine);
    });
}
