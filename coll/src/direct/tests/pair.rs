//! Allreduces of two ranks: in how many steps, and what happens if the ranks do not agree on them.

use portolan_core::{Device, ErrorKind, MemoryKind, Result, TypedBuf};
use portolan_datatype::{Layout, Op, Predefined};

use super::{World, buf, on_all};
use crate::direct::boards::board::{CHUNK, IN_CELL};
use crate::{Counters, Operation, counted, run, state};

/// An operator of the program, which is not commutative.
fn of_program() -> Op {
    Op::new(false, |a: u64, b: u64| a.wrapping_mul(10).wrapping_add(b))
}

/// Makes the boards.
fn barrier(world: &World) {
    // SAFETY: there is no buffer.
    unsafe { run(world, &Operation::Barrier) }.unwrap();
}

/// Bytes of a chunk of its boards.
fn chunk_of(world: &World) -> usize {
    match state::of(world).direct.boards.get() {
        Some(Some(boards)) => boards.map.chunk_len(),
        _ => panic!("there are no boards"),
    }
}

/// The contribution of a rank, and the result of both.
fn values(rank: u32, len: usize) -> Vec<u64> {
    let of = |at: usize| (at as u64 + 3) * (1 + u64::from(rank));
    (0..len / 8).map(of).collect()
}

fn both(op: &Op, len: usize) -> Vec<u64> {
    let mut all = values(1, len);
    for (left, right) in values(0, len).into_iter().zip(&mut all) {
        *right = match op.predefined() {
            Some(_) => left + *right,
            None => left.wrapping_mul(10).wrapping_add(*right),
        };
    }
    all
}

/// An allreduce of `len` bytes; returns the result, the outcome and the number of steps.
fn allreduce(world: &World, op: &Op, len: usize, in_place: bool) -> (Vec<u64>, Result<()>, u64) {
    let layout = Layout::of::<u64>();
    let mut from = values(world.rank(), len);
    let mut to = if in_place {
        from.clone()
    } else {
        vec![0; len / 8]
    };
    let allreduce = Operation::Allreduce {
        send: (!in_place).then(|| buf(&mut from, &layout)),
        recv: buf(&mut to, &layout),
        op,
    };
    let before = counted(world, Counters::Signals);
    // SAFETY: the buffers outlive the call.
    let outcome = unsafe { run(world, &allreduce) };
    (to, outcome, counted(world, Counters::Signals) - before)
}

#[test]
fn both_combine_everything_but_with_long_operators_of_the_program() {
    on_all(2, |world| {
        barrier(world);
        let chunk = chunk_of(world);
        let (sum, other) = (Op::from(Predefined::Sum), of_program());
        let cell = IN_CELL / 8 * 8;
        for (op, len, steps) in [
            (&sum, cell, 1),
            (&sum, cell + 8, 1),
            (&sum, chunk, 1),
            (&sum, chunk + 8, 2),
            (&sum, 3 * chunk, 3),
            (&other, (16 << 10) - 8, 1),
            (&other, 16 << 10, 2),
            (&other, chunk + 8, 4),
        ] {
            for in_place in [false, true] {
                let (result, outcome, taken) = allreduce(world, op, len, in_place);
                outcome.unwrap();
                assert!(result == both(op, len), "{len} bytes, in place: {in_place}");
                // Ranks that take turns combine halves of what is long.
                let halved = chunk > CHUNK && len >= 192 << 10 && op.predefined().is_some();
                let steps = if halved { 2 * steps } else { steps };
                assert_eq!(taken, steps, "{len} bytes, {op:?}");
            }
        }
    });
}

/// Four ranks take turns on two processors, those of a communicator of two among them as well.
#[test]
fn where_ranks_take_turns_each_combines_half_of_what_is_long() {
    on_all(4, |world| {
        let pair = world.split(Some(world.rank() / 2), 0).unwrap().unwrap();
        barrier(&pair);
        let (chunk, sum) = (chunk_of(&pair), Op::from(Predefined::Sum));
        let in_turns = world.device().processor().is_some();
        assert_eq!(chunk > CHUNK, in_turns);
        for (len, is_long) in [
            ((192 << 10) - 8, false),
            (192 << 10, true),
            (4 * chunk, true),
        ] {
            let (result, outcome, taken) = allreduce(&pair, &sum, len, false);
            outcome.unwrap();
            assert!(result == both(&sum, len), "{len} bytes");
            let each = if in_turns && is_long { 2 } else { 1 };
            assert_eq!(taken, each * len.div_ceil(chunk) as u64, "{len} bytes");
        }
    });
}

/// The ranks would take different numbers of steps.
#[test]
fn ranks_with_another_sort_of_operator_are_told() {
    for len in [16 << 10, 5 * CHUNK] {
        on_all(2, |world| {
            barrier(world);
            let (sum, other) = (Op::from(Predefined::Sum), of_program());
            for differ in [false, true, false, true, false] {
                let odd = differ && world.rank() == 1;
                let (result, outcome, _) =
                    allreduce(world, if odd { &other } else { &sum }, len, false);
                match differ {
                    false => {
                        outcome.unwrap();
                        assert!(result == both(&sum, len));
                    }
                    true => {
                        let error = outcome.unwrap_err();
                        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
                        let text = error.to_string();
                        assert!(text.contains("an operator of the program"), "{text}");
                    }
                }
            }
        });
    }
}

/// Items that lie apart, or in reverse order, chunk after chunk.
#[test]
fn items_with_gaps_are_combined_where_they_are() {
    const COUNT: usize = 12_000;
    for (lower, stride) in [(-8, 3), (0, -2)] {
        on_all(2, |world| {
            barrier(world);
            let layout = Layout::resized(&Layout::of::<u64>(), lower, stride * 8).unwrap();
            let apart = stride.unsigned_abs();
            // Where item `at` is, in an array in which the items and their gaps just have room.
            let place = |at: usize| match stride > 0 {
                true => at * apart + 1,
                false => (COUNT - 1 - at) * apart,
            };
            let of = |rank: usize, at: usize| ((at + 3) * (1 + rank)) as u64;
            let fresh = || {
                let mut array = vec![u64::MAX; COUNT * apart + 1];
                (0..COUNT).for_each(|at| array[place(at)] = of(world.rank() as usize, at));
                array
            };
            for in_place in [false, true] {
                let mut from = fresh();
                let mut to = if in_place {
                    fresh()
                } else {
                    vec![u64::MAX; from.len()]
                };
                let items = |array: &mut [u64]| TypedBuf {
                    ptr: array.as_mut_ptr().wrapping_add(place(0)).cast(),
                    count: COUNT,
                    layout: &layout,
                    memory: MemoryKind::Host,
                };
                let allreduce = Operation::Allreduce {
                    send: (!in_place).then(|| items(&mut from)),
                    recv: items(&mut to),
                    op: &Op::SUM,
                };
                // SAFETY: the buffers outlive the call, and all items lie in them.
                unsafe { run(world, &allreduce) }.unwrap();
                let mut expected = vec![u64::MAX; to.len()];
                (0..COUNT).for_each(|at| expected[place(at)] = of(0, at) + of(1, at));
                assert!(to == expected, "stride {stride}, in place: {in_place}");
            }
        });
    }
}
