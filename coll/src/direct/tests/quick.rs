//! The shortest operations of two ranks: the quick way does what the general one does, and a rank
//! there meets one that is not.

use std::cell::Cell;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portolan_core::comm::Communicator;
use portolan_core::config::Settings;
use portolan_core::level::Multiple;
use portolan_core::transport::memory;
use portolan_core::{Device, Engine, ErrorKind, Result, TypedBuf};
use portolan_datatype::{Layout, Op, Predefined};

use super::{World, buf, costs, has_boards, on_all, on_network};
use crate::direct::boards::board::{CELLS, IN_CELL};
use crate::{Operation, Options, run, start};

thread_local! {
    /// Operations of this rank that have gone the quick way.
    static QUICK: Cell<u32> = const { Cell::new(0) };
}

/// Called by each operation on the quick way.
pub(in crate::direct) fn note() {
    QUICK.set(QUICK.get() + 1);
}

/// Both forms of a call.
const FORMS: [Form; 2] = [Form::Blocking, Form::Nonblocking];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Blocking,
    Nonblocking,
}

/// Performs an operation whose buffers outlive the call.
fn perform(world: &World, operation: &Operation<'_>, form: Form) -> Result<()> {
    // SAFETY: from the caller; in both cases the operation is over in this function.
    unsafe {
        match form {
            Form::Blocking => run(world, operation),
            Form::Nonblocking => {
                let request = start(world, operation)?;
                world.device().wait(request).map(drop)
            }
        }
    }
}

fn barrier(world: &World) {
    perform(world, &Operation::Barrier, Form::Blocking).unwrap();
}

/// What a rank contributes.
fn contribution(rank: u32, items: usize) -> Vec<u16> {
    let of = |at: usize| at as u16 * 7 + 3 + 1000 * rank as u16;
    (0..items).map(of).collect()
}

/// An allreduce by `op` of that many items; returns the result.
fn allreduce(world: &World, op: &Op, items: usize, in_place: bool, form: Form) -> Vec<u16> {
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
    perform(world, &allreduce, form).unwrap();
    to
}

/// The result of both ranks.
fn sum_of_both(items: usize) -> Vec<u16> {
    let mut all = contribution(1, items);
    let sum = Op::SUM.apply_slices(&contribution(0, items), &mut all);
    sum.map(|()| all).unwrap()
}

/// A broadcast of that many items; returns what this rank has afterwards.
fn bcast(world: &World, items: usize, root: u32, form: Form) -> Result<Vec<u16>> {
    let layout = Layout::of::<u16>();
    let mut values = match world.rank() == root {
        true => contribution(root, items),
        false => vec![0; items],
    };
    let data = buf(&mut values, &layout);
    perform(world, &Operation::Bcast { data, root }, form)?;
    Ok(values)
}

/// Lets the other rank go first, for so long that it does not find this rank in a few looks.
fn come_late() {
    std::thread::sleep(Duration::from_millis(2));
}

#[test]
fn what_is_short_goes_the_quick_way_and_the_rest_does_not() {
    on_all(2, |world| {
        barrier(world);
        let quick = |call: &dyn Fn()| {
            let before = QUICK.get();
            call();
            QUICK.get() - before
        };
        let own = Op::new(true, |a: u16, b: u16| a.wrapping_add(b));
        for form in FORMS {
            let of_barrier = || perform(world, &Operation::Barrier, form).unwrap();
            assert_eq!(quick(&of_barrier), 1);
            for (items, ways) in [(IN_CELL / 2, 1), (IN_CELL / 2 + 1, 0)] {
                let of_bcast = || drop(bcast(world, items, 1, form).unwrap());
                assert_eq!(quick(&of_bcast), ways, "{form:?}");
                let of_allreduce = || drop(allreduce(world, &Op::SUM, items, false, form));
                assert_eq!(quick(&of_allreduce), ways, "{form:?}");
            }
            assert_eq!(quick(&|| drop(allreduce(world, &own, 4, false, form))), 0);
        }
    });
}

#[test]
fn every_length_of_a_cell_and_the_first_beyond_it() {
    on_all(2, |world| {
        barrier(world);
        let ops = [Predefined::Sum, Predefined::Bxor, Predefined::Max].map(Op::from);
        for items in 1..=IN_CELL / 2 + 1 {
            for form in FORMS {
                for op in &ops {
                    let mut all = contribution(1, items);
                    op.apply_slices(&contribution(0, items), &mut all).unwrap();
                    assert_eq!(allreduce(world, op, items, false, form), all);
                    assert_eq!(allreduce(world, op, items, true, form), all);
                }
                for root in [0, 1] {
                    let values = bcast(world, items, root, form).unwrap();
                    assert_eq!(values, contribution(root, items));
                }
            }
        }
    });
}

/// A sum of two things that are no numbers is one of the two, and which one depends on their order.
#[test]
fn both_ranks_get_the_same_bits() {
    for (in_place, form) in [false, true]
        .into_iter()
        .flat_map(|in_place| FORMS.map(|form| (in_place, form)))
    {
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
            perform(world, &allreduce, form).unwrap();
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
        for (late, form) in [0, 1]
            .into_iter()
            .flat_map(|late| FORMS.map(|form| (late, form)))
        {
            let come = || {
                if world.rank() == late {
                    come_late();
                }
            };
            come();
            perform(world, &Operation::Barrier, form).unwrap();
            come();
            assert_eq!(allreduce(world, &Op::SUM, 4, false, form), sum_of_both(4));
            come();
            assert_eq!(allreduce(world, &Op::SUM, 4, true, form), sum_of_both(4));
            for root in [0, 1] {
                come();
                let values = bcast(world, 4, root, form).unwrap();
                assert_eq!(values, contribution(root, 4));
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
        for turn in 0..400u32 {
            let items = 1 + turn as usize % (IN_CELL / 2);
            let op = match world.rank() == turn % 2 {
                true => &own,
                false => &Op::SUM,
            };
            let form = FORMS[turn as usize / 200];
            let sum = allreduce(world, op, items, turn % 3 == 0, form);
            assert_eq!(sum, sum_of_both(items));
        }
    });
}

/// One rank has its data with gaps between the items, and the other side by side.
#[test]
fn a_broadcast_with_gaps_goes_the_general_way_and_meets_the_other() {
    on_all(2, |world| {
        barrier(world);
        let (plain, me) = (Layout::of::<u16>(), world.rank());
        let gaps = Layout::resized(&plain, 0, 4).unwrap();
        let mut quick = 0;
        for turn in 0..400u32 {
            let items = 1 + turn as usize % (IN_CELL / 2);
            let (root, with_gaps) = (turn % 2, turn / 2 % 2);
            let (layout, apart) = match me == with_gaps {
                true => (&gaps, 2),
                false => (&plain, 1),
            };
            let expected = contribution(root, items);
            let mut values = vec![7; items * apart];
            if me == root {
                let places = values.iter_mut().step_by(apart);
                places.zip(&expected).for_each(|(to, from)| *to = *from);
            }
            let data = TypedBuf {
                count: items,
                ..buf(&mut values, layout)
            };
            let before = QUICK.get();
            let bcast = Operation::Bcast { data, root };
            perform(world, &bcast, FORMS[turn as usize / 200]).unwrap();
            let ways = QUICK.get() - before;
            assert!(me != with_gaps || ways == 0, "{turn}");
            quick += ways;
            assert!(values.iter().step_by(apart).eq(&expected), "{turn}");
            let mut between = values.iter().skip(1).step_by(2);
            assert!(apart == 1 || between.all(|&value| value == 7), "{turn}");
        }
        // All without gaps, except where a cell is not known to be free.
        assert!(quick > 150, "{quick} of 200");
    });
}

/// There are boards, for barriers and broadcasts, but reductions go by messages.
#[test]
fn reductions_that_are_to_be_reproducible_do_not_go_the_quick_way() {
    let options = Options {
        reproducible: true,
        ..Options::default()
    };
    on_network(memory::network(2), &options, |world| {
        barrier(world);
        assert!(has_boards(world));
        let quick = QUICK.get();
        for form in FORMS {
            for in_place in [false, true] {
                let [_, _, before] = costs(world);
                assert_eq!(
                    allreduce(world, &Op::SUM, 4, in_place, form),
                    sum_of_both(4)
                );
                let [_, _, after] = costs(world);
                assert!(after > before, "it sends messages");
            }
        }
        assert_eq!(QUICK.get(), quick);
        barrier(world);
    });
}

#[test]
fn a_root_that_runs_ahead_waits_for_free_cells() {
    on_all(2, |world| {
        barrier(world);
        for form in FORMS {
            if world.rank() == 1 {
                come_late();
            }
            for turn in 0..5 * CELLS as usize {
                let items = 1 + turn % 4;
                let values = bcast(world, items, 0, form).unwrap();
                assert_eq!(values, contribution(0, items));
            }
        }
    });
}

/// Several are under way at once, and end in another order.
#[test]
fn operations_under_way_do_not_mix() {
    on_all(2, |world| {
        barrier(world);
        let layout = Layout::of::<u16>();
        for late in [0, 1] {
            if world.rank() == late {
                come_late();
            }
            let mut froms: Vec<Vec<u16>> = (1..=40)
                .map(|items| contribution(world.rank(), items))
                .collect();
            let mut tos: Vec<Vec<u16>> = (1..=40).map(|items| vec![0; items]).collect();
            let requests: Vec<_> = froms
                .iter_mut()
                .zip(&mut tos)
                .map(|(from, to)| {
                    let allreduce = Operation::Allreduce {
                        send: Some(buf(from, &layout)),
                        recv: buf(to, &layout),
                        op: &Op::SUM,
                    };
                    // SAFETY: the buffers live until all requests are over.
                    unsafe { start(world, &allreduce) }.unwrap()
                })
                .collect();
            for request in requests.into_iter().rev() {
                world.device().wait(request).unwrap();
            }
            for (items, to) in (1..).zip(&tos) {
                assert_eq!(*to, sum_of_both(items));
            }
        }
    });
}

#[test]
fn ranks_that_disagree_get_errors_whoever_is_late() {
    on_all(2, |world| {
        barrier(world);
        let layout = Layout::of::<u16>();
        for (late, form) in [0, 1]
            .into_iter()
            .flat_map(|late| FORMS.map(|form| (late, form)))
        {
            for root in [0, 1] {
                let items = if world.rank() == 0 { 4 } else { 5 };
                if world.rank() == late {
                    come_late();
                }
                let outcome = bcast(world, items, root, form);
                if world.rank() != root {
                    let error = outcome.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::InvalidCount, "{error}");
                }
                // The steps are the same on both ranks.
                barrier(world);
                if world.rank() == late {
                    come_late();
                }
                let (mut from, mut to) = (contribution(0, items), vec![0; items]);
                let allreduce = Operation::Allreduce {
                    send: Some(buf(&mut from, &layout)),
                    recv: buf(&mut to, &layout),
                    op: &Op::SUM,
                };
                let error = perform(world, &allreduce, form).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidCount, "{error}");
                assert!(to.iter().all(|&item| item == 0), "nothing is combined");
                barrier(world);
            }
        }
        let sum = allreduce(world, &Op::SUM, 3, false, Form::Nonblocking);
        assert_eq!(sum, sum_of_both(3));
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
        for form in FORMS {
            let of_barrier = || perform(world, &Operation::Barrier, form).unwrap();
            assert_eq!(cost(&of_barrier), [1, 1, 0]);
            let of_bcast = cost(&|| drop(bcast(world, 4, 0, form).unwrap()));
            assert_eq!(of_bcast, [1, u64::from(!root), 0]);
            let of_allreduce = cost(&|| drop(allreduce(world, &Op::SUM, 4, false, form)));
            assert_eq!(of_allreduce, [1, 1, 0]);
        }
    });
}

/// Two threads of a rank that do not take turns: one is told so, and the steps stay in order.
#[test]
fn of_two_threads_at_once_one_is_told() {
    std::thread::scope(|scope| {
        for transport in memory::network(2) {
            scope.spawn(move || {
                let engine = Engine::<_, Multiple>::new(transport, &Settings::default()).unwrap();
                let world = Communicator::world(Arc::new(engine)).unwrap();
                // SAFETY: there is no buffer.
                let barrier = || unsafe { run(&world, &Operation::Barrier) };
                barrier().unwrap();
                // Both ranks do as many barriers in all, whichever thread does them.
                let left = AtomicI32::new(5000);
                std::thread::scope(|threads| {
                    for _ in 0..2 {
                        threads.spawn(|| {
                            while left.fetch_sub(1, Ordering::Relaxed) > 0 {
                                while let Err(error) = barrier() {
                                    assert_eq!(error.kind(), ErrorKind::InvalidCommunicator);
                                }
                            }
                        });
                    }
                });
                world.barrier().unwrap();
            });
        }
    });
}
