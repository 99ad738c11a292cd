//! Operations on tracks: their cost, and their outcome if ranks do not agree, die or drop the
//! communicator.

use std::sync::{Condvar, Mutex};

use portolan_core::comm::Communicator;
use portolan_core::config::Settings;
use portolan_core::device::Check;
use portolan_core::level::Multiple;
use portolan_core::transport::memory;
use portolan_core::{Device, Engine, ErrorKind, Request, Result};
use portolan_datatype::{Layout, Op, Predefined};

use super::{World, buf, costs, has_boards, on_all, on_some};
use crate::direct::boards::board::small;
use crate::{BlocksArg, Counters, Many, Operation, Persistent, counted, run, start};

/// Numbers that go as a message instead of as a contribution on the track of nonblocking
/// operations.
const LONG: usize = small(0) / 8 + 1;

fn barrier<D: Device>(world: &Communicator<D>) {
    // SAFETY: there is no buffer.
    unsafe { run(world, &Operation::Barrier) }.unwrap();
}

fn ibarrier(world: &World) -> Request {
    // SAFETY: there is no buffer.
    unsafe { start(world, &Operation::Barrier) }.unwrap()
}

fn iallreduce<D: Device>(world: &Communicator<D>, data: &mut [u64]) -> Request {
    let (layout, op) = (Layout::of::<u64>(), &Op::from(Predefined::Sum));
    let (send, recv) = (None, buf(data, &layout));
    // SAFETY: the callers leave the data alone until they have waited.
    unsafe { start(world, &Operation::Allreduce { send, recv, op }) }.unwrap()
}

fn ibcast(world: &World, data: &mut [u64], root: u32) -> Request {
    let layout = Layout::of::<u64>();
    let data = buf(data, &layout);
    // SAFETY: as above.
    unsafe { start(world, &Operation::Bcast { data, root }) }.unwrap()
}

fn wait<D: Device>(world: &Communicator<D>, request: Request) -> Result<()> {
    world.device().wait(request).map(drop)
}

#[test]
fn one_signal_and_no_message_once_there_are_boards() {
    on_all(3, |world| {
        wait(world, ibarrier(world)).unwrap();
        assert!(!has_boards(world) && counted(world, Counters::Messages) > 0);
        let other = world.dup().unwrap();
        barrier(&other);
        for round in 1..100 {
            let mut data = [1; LONG - 1];
            wait(&other, iallreduce(&other, &mut data)).unwrap();
            assert_eq!(
                (data, costs(&other)),
                ([3; LONG - 1], [1 + round, 2 + 2 * round, 0])
            );
        }
        let mut data = [1; LONG];
        wait(&other, iallreduce(&other, &mut data)).unwrap();
        assert!(data == [3; LONG] && counted(&other, Counters::Messages) > 0);
        assert_eq!(counted(&other, Counters::Operations), 101);
    });
}

#[test]
fn what_a_rank_has_for_the_others_may_fill_a_chunk() {
    for size in [2, 3, 5] {
        on_all(size, |world| {
            barrier(world);
            let (me, size, layout) = (world.rank(), world.size() as usize, Layout::of::<u64>());
            let fits = small(0) / 8 / (size - 1);
            for (len, by_messages) in [(1, false), (fits, false), (fits + 1, true)] {
                let number = |from: u32, to: usize| u64::from(from) * 10 + to as u64;
                let mut from: Vec<_> = (0..size).flat_map(|to| vec![number(me, to); len]).collect();
                let mut to = vec![0; size * len];
                let block = |all: &mut [u64]| Many::Equal(buf(&mut all[..len], &layout));
                let operation = Operation::Alltoall {
                    send: Some(block(&mut from)),
                    recv: block(&mut to),
                };
                let before = counted(world, Counters::Messages);
                // SAFETY: there is a block for each rank, from the first on; left alone until the
                // wait.
                wait(world, unsafe { start(world, &operation) }.unwrap()).unwrap();
                let messages = counted(world, Counters::Messages) - before;
                assert_eq!(messages > 0, by_messages, "{len} of {size}");
                for (rank, blocks) in (0..).zip(to.chunks(len)) {
                    assert!(blocks.iter().all(|&it| it == number(rank, me as usize)));
                }
            }
        });
    }
}

#[test]
fn a_persistent_one_makes_the_boards_and_sends_nothing() {
    on_all(3, |world| {
        let mut data = [u64::from(world.rank())];
        let layout = Layout::of::<u64>();
        let operation = Operation::Bcast {
            data: buf(&mut data, &layout),
            root: 1,
        };
        let mut plan = Persistent::new(world, &operation).unwrap();
        for round in 1..100 {
            // SAFETY: the buffer is left alone until the wait.
            wait(world, unsafe { plan.start() }.unwrap()).unwrap();
            assert!(has_boards(world) && costs(world)[2] == 0 && costs(world)[0] == round);
        }
        assert_eq!(data, [1]);
    });
}

#[test]
fn one_that_is_refused_takes_no_number() {
    for over_boards in [true, false] {
        on_all(3, |world| {
            let layout = Layout::of::<u64>();
            let mut data = [[u64::from(world.rank()) + 1; 4], [10; 4]];
            let [first, second] = &mut data;
            let (first, second) = (buf(first, &layout), buf(second, &layout));
            let len = if over_boards { 4 } else { 2000 };
            let mut long = vec![u64::from(world.rank()); len];
            if world.rank() == 1 {
                let wrong = Operation::Bcast {
                    data: buf(&mut long, &layout),
                    root: 3,
                };
                let error = Persistent::new(world, &wrong).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidRank, "{error}");
            }
            let mut plans =
                [(buf(&mut long, &layout), 2), (first, 0), (second, 1)].map(|(data, root)| {
                    Persistent::new(world, &Operation::Bcast { data, root }).unwrap()
                });
            for plan in &mut plans {
                // SAFETY: the buffers are left alone until the wait.
                wait(world, unsafe { plan.start() }.unwrap()).unwrap();
            }
            assert_eq!(data, [[1; 4], [10; 4]]);
            assert!(long.iter().all(|&value| value == 2));
        });
    }
}

#[test]
fn a_rank_that_goes_by_messages_looks_behind_one_that_is_late() {
    for _ in 0..20 {
        let shown = std::sync::Barrier::new(2);
        on_all(3, |world| {
            barrier(world);
            let len = if world.rank() == 1 { 20_000 } else { 1 };
            let mut data = vec![1; len];
            if world.rank() == 0 {
                shown.wait();
            }
            let outcome = wait(world, ibcast(world, &mut data, 2));
            match world.rank() {
                1 => assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidCount),
                2 => drop(shown.wait()),
                _ => {}
            }
            barrier(world);
        });
    }
}

/// A rank that has no free cell sends nothing before it has one. Its messages could otherwise be
/// taken for those of another operation.
#[test]
fn messages_of_one_that_is_not_shown_yet_are_not_taken() {
    // As many operations as a rank may be ahead of ranks that have ended none.
    const AHEAD: usize = 32;
    let turn = std::sync::Barrier::new(3);
    on_all(3, |world| {
        barrier(world);
        let (me, layout) = (world.rank(), Layout::of::<u64>());
        let mut data = vec![u64::from(me); LONG];
        let mut barriers = Vec::new();
        // The other ranks come first, and look again only after rank 1 is done. So they have ended
        // none of the barriers, and rank 1 has ended all.
        for next in [0, 2, 1] {
            if next == me {
                barriers.extend((0..AHEAD).map(|_| ibarrier(world)));
            }
            if next == me && me == 1 {
                assert!(barriers.iter().all(|&request| request == Request::DONE));
            }
            turn.wait();
        }
        let odd = (me == 1).then(|| {
            let operation = Operation::Reduce {
                send: Some(buf(&mut data, &layout)),
                recv: None,
                op: &Op::from(Predefined::Sum),
                root: 0,
            };
            // SAFETY: as above.
            unsafe { start(world, &operation) }.unwrap()
        });
        turn.wait();
        for request in barriers {
            wait(world, request).unwrap();
        }
        turn.wait();
        let request = odd.unwrap_or_else(|| ibcast(world, &mut data, 1));
        for _ in 0..1000 {
            if me != 1 {
                world.device().device_check(Check::NonBlocking).unwrap();
            }
        }
        // Rank 1 has made no progress since it started its own operation.
        turn.wait();
        let error = wait(world, request).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        barrier(world);
    });
}

#[test]
fn a_root_may_start_many_before_anybody_comes() {
    let started = std::sync::Barrier::new(3);
    on_all(3, |world| {
        barrier(world);
        let mut data: Vec<[u64; 20]> = vec![[u64::from(world.rank()); 20]; 300];
        if world.rank() > 0 {
            started.wait();
        }
        let requests: Vec<_> = data.iter_mut().map(|data| ibcast(world, data, 0)).collect();
        if world.rank() == 0 {
            started.wait();
        }
        for request in requests {
            wait(world, request).unwrap();
        }
        assert!(data.iter().all(|data| *data == [0; 20]));
    });
}

#[test]
fn lengths_that_differ_are_told_to_all_who_look_and_what_follows_works() {
    let lens = [0, 1, 16, LONG - 1, LONG, 20_000];
    for ranks in [2, 3, 8] {
        on_all(ranks, |world| {
            barrier(world);
            for (odd, usual) in lens.iter().flat_map(|&a| lens.map(|b| (a, b))) {
                if odd == usual || odd.min(usual) >= LONG {
                    continue;
                }
                let len = if world.rank() == 1 { odd } else { usual };
                let mut data = vec![1; len];
                let error = wait(world, iallreduce(world, &mut data)).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidCount, "{error}");

                let mut data = vec![7; len];
                let outcome = wait(world, ibcast(world, &mut data, 0));
                if world.rank() == 1 {
                    let kind = outcome.unwrap_err().kind();
                    assert!([ErrorKind::InvalidCount, ErrorKind::Truncated].contains(&kind));
                }
                let mut data = [1];
                wait(world, iallreduce(world, &mut data)).unwrap();
                assert_eq!(data, [u64::from(ranks)]);
                barrier(world);
            }
        });
    }
}

#[test]
fn another_operation_is_told_by_its_name() {
    on_all(2, |world| {
        barrier(world);
        let mut data = [1];
        let request = match world.rank() {
            0 => ibarrier(world),
            _ => iallreduce(world, &mut data),
        };
        let error = wait(world, request).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let text = error.to_string();
        assert!(
            text.contains("a barrier") && text.contains("an allreduce"),
            "{text}"
        );
        wait(world, ibarrier(world)).unwrap();
    });
}

/// The last handle is dropped while operations are under way: they continue, and the boards are
/// reused afterwards.
#[test]
fn operations_outlive_the_communicator() {
    on_all(3, |world| {
        barrier(world);
        for round in 0..60 {
            let comm = world.dup().unwrap();
            barrier(&comm);
            let mut data = [[1; 1], [1; 1], [1; 1]];
            let requests = data.each_mut().map(|data| iallreduce(&comm, data));
            drop(comm);
            if round % 3 == world.rank() {
                std::thread::yield_now();
            }
            for request in requests {
                wait(world, request).unwrap();
            }
            assert_eq!(data, [[3]; 3]);
        }
    });
}

/// One operation is never waited for, so it is under way when the device goes away.
#[test]
fn an_operation_that_never_ends_goes_with_the_device() {
    on_some(2, |world| {
        barrier(world);
        let mut data = Box::new([1]);
        if world.rank() == 0 {
            iallreduce(world, &mut *data);
        }
        // The buffer belongs to the operation for good.
        std::mem::forget(data);
    });
}

#[test]
fn a_dead_member_ends_what_is_under_way() {
    let started = std::sync::Barrier::new(4);
    on_some(4, |world| {
        barrier(world);
        let layout = Layout::of::<u64>();
        let (mut data, mut kept, mut long) = ([1], [1], vec![1; 5000]);
        let operation = Operation::Bcast {
            data: buf(&mut kept, &layout),
            root: 2,
        };
        let mut plan = Persistent::new(world, &operation).unwrap();
        if world.rank() == 2 {
            started.wait();
            world.device().declare_self_failed("on purpose");
            return;
        }
        let requests = [
            iallreduce(world, &mut data),
            // SAFETY: the buffer is left alone until the wait.
            unsafe { plan.start() }.unwrap(),
            iallreduce(world, &mut long),
        ];
        started.wait();
        for request in requests {
            let error = wait(world, request).unwrap_err();
            let about = (error.kind(), error.peer());
            assert_eq!(about, (ErrorKind::PeerFailed, Some(2)), "{error}");
        }
    });
}

/// Ranks 0 and 2 send each other long blocks, which arrive. Rank 1, whose short blocks would lie on
/// its board, never shows them.
#[test]
fn a_dead_member_ends_what_waits_for_its_short_block() {
    let started = std::sync::Barrier::new(3);
    on_some(3, |world| {
        barrier(world);
        let (me, layout) = (world.rank() as usize, Layout::of::<u64>());
        if me == 1 {
            started.wait();
            world.device().declare_self_failed("on purpose");
            return;
        }
        let mut counts = [LONG; 3];
        (counts[1], counts[me]) = (1, 0);
        let (mut from, mut to) = (vec![1u64; LONG + 1], vec![0u64; LONG + 1]);
        // The blocks to and from rank 1 come last.
        let displacements = [0, LONG as isize, 0];
        let blocks = |data: &mut Vec<u64>| {
            Many::Blocks(BlocksArg {
                ptr: data.as_mut_ptr().cast(),
                counts: &counts,
                displacements: &displacements,
                layout: &layout,
            })
        };
        let operation = Operation::Alltoall {
            send: Some(blocks(&mut from)),
            recv: blocks(&mut to),
        };
        // SAFETY: the buffers are left alone until the wait.
        let request = unsafe { start(world, &operation) }.unwrap();
        for _ in 0..1000 {
            world.device().device_check(Check::NonBlocking).unwrap();
        }
        started.wait();
        let error = wait(world, request).unwrap_err();
        let about = (error.kind(), error.peer());
        assert_eq!(about, (ErrorKind::PeerFailed, Some(1)), "{error}");
    });
}

/// Two threads of each rank start operations on one communicator, taking turns as a program must,
/// and wait at the same time.
#[test]
fn two_threads_start_in_turns_and_wait_together() {
    std::thread::scope(|scope| {
        for transport in memory::network(2) {
            scope.spawn(move || {
                let engine = Engine::<_, Multiple>::new(transport, &Settings::default()).unwrap();
                let world = Communicator::world(std::sync::Arc::new(engine)).unwrap();
                barrier(&world);
                let (turn, turned) = (Mutex::new(0), Condvar::new());
                std::thread::scope(|threads| {
                    for me in 0..2 {
                        let (world, turn, turned) = (&world, &turn, &turned);
                        threads.spawn(move || {
                            for round in 0..200 {
                                let mut data = [1 + round, me];
                                let whose = turn.lock().unwrap();
                                let is_other = |whose: &mut u64| *whose % 2 != me;
                                let mut whose = turned.wait_while(whose, is_other).unwrap();
                                let request = iallreduce(world, &mut data);
                                *whose += 1;
                                turned.notify_all();
                                drop(whose);
                                wait(world, request).unwrap();
                                assert_eq!(data, [2 + 2 * round, 2 * me]);
                            }
                        });
                    }
                });
                world.barrier().unwrap();
            });
        }
    });
}
