//! The shortest operations of two ranks: the quick way does what the general one does, and a rank
//! there meets one that is not.

use std::sync::Mutex;
use std::time::Duration;

use portolan_core::{ErrorKind, Result};
use portolan_datatype::{Layout, Op, Predefined};

use super::{World, buf, costs, on_all};
use crate::direct::boards::board::{CELLS, IN_CELL};
use crate::{Operation, run};

fn barrier(world: &World) {
    // SAFETY: there is no buffer.
    unsafe { run(world, &Operation::Barrier) }.unwrap();
}

/// What a rank contributes.
fn contribution(rank: u32, items: usize) -> Vec<u16> {
    let of = |at: usize| at as u16 * 7 + 3 + 1000 * rank as u16;
    (0..items).map(of).collect()
}

/// An allreduce by `op` of that many items; returns the result.
fn allreduce(world: &World, op: &Op, items: usize, in_place: bool) -> Vec<u16> {
    let layout = Layout::of::<u16>();
    let mut from = contribution(world.rank(), items);
    let mut to = match in_place {
        true => from.clone(),
        false => vec![0; items],
    };
    let allreduce = Operation::Allreduce {
        send: (!in_place).then(|| buf(&mut from, &layout)),
        recv: buf(&mut to, &layout),
        op,
    };
    // SAFETY: the buffers outlive the call.
    unsafe { run(world, &allreduce) }.unwrap();
    to
}

/// A broadcast of that many items; returns what this rank has afterwards.
fn bcast(world: &World, items: usize, root: u32) -> Result<Vec<u16>> {
    let layout = Layout::of::<u16>();
    let mut data = match world.rank() == root {
        true => contribution(root, items),
        false => vec![0; items],
    };
    let data_of = buf(&mut data, &layout);
    let bcast = Operation::Bcast {
        data: data_of,
        root,
    };
    // SAFETY: the buffer outlives the call.
    unsafe { run(world, &bcast) }?;
    Ok(data)
}

/// Lets the other rank go first, for so long that it does not find this rank in a few looks.
fn come_late() {
    std::thread::sleep(Duration::from_millis(2));
}

#[test]
fn every_length_of_a_cell_and_the_first_beyond_it() {
    on_all(2, |world| {
        barrier(world);
        let ops = [Predefined::Sum, Predefined::Bxor, Predefined::Max].map(Op::from);
        for items in 1..=IN_CELL / 2 + 1 {
            for op in &ops {
                let mut all = contribution(1, items);
                op.apply_slices(&contribution(0, items), &mut all).unwrap();
                assert_eq!(allreduce(world, op, items, false), all);
                assert_eq!(allreduce(world, op, items, true), all);
            }
            for root in [0, 1] {
                assert_eq!(
                    bcast(world, items, root).unwrap(),
                    contribution(root, items)
                );
            }
        }
    });
}

/// A sum of two things that are no numbers is one of the two, and which one depends on their order.
#[test]
fn both_ranks_get_the_same_bits() {
    for in_place in [false, true] {
        let results = Mutex::new(Vec::new());
        on_all(2, |world| {
            barrier(world);
            let layout = Layout::of::<f32>();
            let mut from = [f32::from_bits(0x7fc0_0001 + world.rank())];
            let mut to = if in_place { from } else { [0.0] };
            let allreduce = Operation::Allreduce {
                send: (!in_place).then(|| buf(&mut from, &layout)),
                recv: buf(&mut to, &layout),
                op: &Op::SUM,
            };
            // SAFETY: the buffers outlive the call.
            unsafe { run(world, &allreduce) }.unwrap();
            results.lock().unwrap().push(to[0].to_bits());
        });
        let results = results.into_inner().unwrap();
        assert_eq!(results.len(), 4);
        assert!(
            results.iter().all(|&bits| bits == results[0]),
            "{results:x?}"
        );
    }
}

#[test]
fn a_rank_that_is_late_finds_the_other_waiting() {
    on_all(2, |world| {
        barrier(world);
        let sum = Op::SUM;
        let mut all = contribution(1, 4);
        sum.apply_slices(&contribution(0, 4), &mut all).unwrap();
        for late in [0, 1] {
            let come = || {
                if world.rank() == late {
                    come_late();
                }
            };
            come();
            barrier(world);
            come();
            assert_eq!(allreduce(world, &sum, 4, false), all);
            come();
            assert_eq!(allreduce(world, &sum, 4, true), all);
            for root in [0, 1] {
                come();
                assert_eq!(bcast(world, 4, root).unwrap(), contribution(root, 4));
                barrier(world);
            }
        }
    });
}

#[test]
fn a_rank_with_an_operator_of_its_program_goes_the_general_way_and_meets_the_other() {
    on_all(2, |world| {
        barrier(world);
        let own = Op::new(true, |a: u16, b: u16| a.wrapping_add(b));
        for turn in 0..200u32 {
            let items = 1 + turn as usize % (IN_CELL / 2);
            let mut all = contribution(1, items);
            Op::SUM
                .apply_slices(&contribution(0, items), &mut all)
                .unwrap();
            let op = match world.rank() == turn % 2 {
                true => &own,
                false => &Op::SUM,
            };
            assert_eq!(allreduce(world, op, items, turn % 3 == 0), all);
        }
    });
}

#[test]
fn a_root_that_runs_ahead_waits_for_free_cells() {
    on_all(2, |world| {
        barrier(world);
        if world.rank() == 1 {
            come_late();
        }
        for turn in 0..5 * CELLS as usize {
            let items = 1 + turn % 4;
            assert_eq!(bcast(world, items, 0).unwrap(), contribution(0, items));
        }
    });
}

#[test]
fn ranks_that_disagree_get_errors_whoever_is_late() {
    on_all(2, |world| {
        barrier(world);
        for late in [0, 1] {
            for root in [0, 1] {
                let items = if world.rank() == 0 { 4 } else { 5 };
                if world.rank() == late {
                    come_late();
                }
                let outcome = bcast(world, items, root);
                if world.rank() != root {
                    let error = outcome.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::InvalidCount, "{error}");
                }
                // The steps are the same on both ranks.
                barrier(world);
                if world.rank() == late {
                    come_late();
                }
                let layout = Layout::of::<u16>();
                let (mut from, mut to) = (contribution(0, items), vec![0; items]);
                let allreduce = Operation::Allreduce {
                    send: Some(buf(&mut from, &layout)),
                    recv: buf(&mut to, &layout),
                    op: &Op::SUM,
                };
                // SAFETY: the buffers outlive the call.
                let error = unsafe { run(world, &allreduce) }.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidCount, "{error}");
                assert!(to.iter().all(|&item| item == 0), "nothing is combined");
                barrier(world);
            }
        }
        let mut all = contribution(1, 3);
        Op::SUM.apply_slices(&contribution(0, 3), &mut all).unwrap();
        assert_eq!(allreduce(world, &Op::SUM, 3, false), all);
    });
}

#[test]
fn it_costs_one_signal_and_at_most_one_look() {
    on_all(2, |world| {
        barrier(world);
        let cost = |call: &dyn Fn()| {
            let before = costs(world);
            call();
            let after = costs(world);
            [0, 1, 2].map(|at| after[at] - before[at])
        };
        let root = world.rank() == 0;
        for _ in 0..3 {
            assert_eq!(cost(&|| barrier(world)), [1, 1, 0]);
            let of_bcast = cost(&|| drop(bcast(world, 4, 0).unwrap()));
            assert_eq!(of_bcast, [1, u64::from(!root), 0]);
            let of_allreduce = cost(&|| drop(allreduce(world, &Op::SUM, 4, false)));
            assert_eq!(of_allreduce, [1, 1, 0]);
        }
    });
}
