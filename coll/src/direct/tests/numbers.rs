//! Step numbers that wrap around, and numbers of operations that were not made.

use std::sync::atomic::Ordering;

use portolan_core::{Device, ErrorKind};
use portolan_datatype::{Layout, Op};

use super::{World, buf, on_all};
use crate::direct::boards::board::CELLS;
use crate::{Operation, Persistent, run, state};

/// Continues as if `step` steps had been taken. Called by all ranks, between operations.
fn go_on_from(world: &World, step: u32) {
    world.barrier().unwrap();
    let direct = &state::of(world).direct;
    let boards = direct.boards.get().and_then(Option::as_ref).unwrap();
    boards.step.store(step, Ordering::Relaxed);
    boards.proved.store(step, Ordering::Relaxed);
    let own = boards.board(world.rank());
    // SAFETY: a board of this communicator.
    unsafe { boards.map.done(own) }.store(step, Ordering::Relaxed);
    // No rank looks at these words before all ranks have written them.
    world.barrier().unwrap();
}

#[test]
fn operations_go_on_when_the_numbers_of_steps_begin_again() {
    let (layout, op) = (Layout::of::<u64>(), Op::SUM);
    for ranks in [2, 3, 9] {
        on_all(ranks, |world| {
            let mut one = [1];
            let sum = |data: &mut [u64]| {
                let recv = buf(data, &layout);
                let allreduce = Operation::Allreduce {
                    send: None,
                    recv,
                    op: &op,
                };
                // SAFETY: the buffer outlives the call.
                unsafe { run(world, &allreduce) }.unwrap();
            };
            sum(&mut one);
            // Far enough back that every cell is reused before the number wraps around.
            for before in [u32::MAX - 40, u32::MAX - CELLS] {
                go_on_from(world, before);
                for round in 0..60 {
                    let mut data = vec![round; if round % 7 == 0 { 3000 } else { 3 }];
                    sum(&mut data);
                    let expected = round * u64::from(ranks);
                    assert!(data.iter().all(|&sum| sum == expected), "{round}");
                    // A root is steps ahead of the others, and waits for their `done` words.
                    let bcast = Operation::Bcast {
                        data: buf(&mut data, &layout),
                        root: 1,
                    };
                    // SAFETY: as above.
                    unsafe { run(world, &bcast) }.unwrap();
                    assert!(data.iter().all(|&sum| sum == expected), "{round}");
                }
            }
        });
    }
}

/// A persistent operation for which no boards could be made takes no number. The tags of later ones
/// follow from their numbers, which have to be the same on all ranks.
#[test]
fn a_persistent_operation_without_boards_gives_its_number_back() {
    on_all(2, |world| {
        let (state, layout) = (state::of(world), Layout::of::<u64>());
        if world.rank() == 1 {
            // As if another thread were making them.
            state.direct.making.store(true, Ordering::Relaxed);
            let error = Persistent::new(world, &Operation::Barrier).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidCommunicator, "{error}");
            state.direct.making.store(false, Ordering::Relaxed);
        }
        // Too long for a track, so by messages, with the tags of its number.
        let mut data = vec![1u64; 100_000];
        let allreduce = Operation::Allreduce {
            send: None,
            recv: buf(&mut data, &layout),
            op: &Op::SUM,
        };
        let mut kept = Persistent::new(world, &allreduce).unwrap();
        let number = state.reserve();
        state.unreserve();
        assert_eq!(number, 1);
        // SAFETY: the buffer outlives the wait.
        let request = unsafe { kept.start() }.unwrap();
        world.device().wait(request).unwrap();
        assert!(data.iter().all(|&sum| sum == 2));
    });
}
