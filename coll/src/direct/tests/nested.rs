//! Operators that call collective operations, which they must not. On the communicator whose
//! operation is running they get an error. Whatever they do, no other data gets into the memory of
//! the boards.

use std::cell::RefCell;

use portolan_core::device::Device;
use portolan_core::{ErrorKind, Request, Result};
use portolan_datatype::{Layout, Op};

use super::{World, buf, has_boards, on_all};
use crate::{Operation, run, start};

thread_local! {
    /// The communicator of the rank, for the operator to use, and the operator's outcomes.
    static RANK: RefCell<Option<World>> = const { RefCell::new(None) };
    static TOLD: RefCell<Vec<Result<()>>> = const { RefCell::new(Vec::new()) };
    static STARTED: RefCell<Vec<(Request, Box<[u64; 1]>)>> = const { RefCell::new(Vec::new()) };
}

fn of_rank<R>(body: impl FnOnce(&World) -> R) -> R {
    RANK.with_borrow(|world| body(world.as_ref().expect("it is set")))
}

fn sum<'a>(data: &mut [u64], layout: &'a Layout, op: &'a Op) -> Operation<'a> {
    Operation::Allreduce {
        send: None,
        recv: buf(data, layout),
        op,
    }
}

/// Adds, and calls a blocking operation on the same communicator.
fn calling() -> Op {
    Op::new(true, |a: u64, b: u64| {
        let (mut data, layout) = ([a], Layout::of::<u64>());
        // SAFETY: the data outlives the call.
        let outcome = of_rank(|world| unsafe { run(world, &sum(&mut data, &layout, &Op::SUM)) });
        TOLD.with_borrow_mut(|told| told.push(outcome));
        a + b
    })
}

/// Adds, and starts a nonblocking operation on the same communicator.
fn starting() -> Op {
    Op::new(true, |a: u64, b: u64| {
        let layout = Layout::of::<u64>();
        let mut data = Box::new([1]);
        let request =
            // SAFETY: the data is kept until the request has been waited for.
            of_rank(|world| unsafe { start(world, &sum(&mut data[..], &layout, &Op::SUM)) });
        STARTED.with_borrow_mut(|started| started.push((request.unwrap(), data)));
        a + b
    })
}

/// The operations that a test calls with its operator, on one number per rank.
fn reductions<'a>(
    data: &mut [u64],
    layout: &'a Layout,
    counts: &'a [usize],
    op: &'a Op,
) -> [Operation<'a>; 5] {
    let recv = buf(data, layout);
    let scan = |exclusive| Operation::Scan {
        send: None,
        recv,
        op,
        exclusive,
    };
    [
        sum(data, layout, op),
        Operation::ReduceScatter {
            send: None,
            recv,
            counts,
            op,
        },
        Operation::Reduce {
            send: Some(recv),
            recv: None,
            op,
            root: 0,
        },
        scan(false),
        scan(true),
    ]
}

fn barrier(world: &World) {
    // SAFETY: there is no buffer.
    unsafe { run(world, &Operation::Barrier) }.unwrap();
}

#[test]
fn an_operator_that_calls_a_blocking_operation_is_told() {
    for n in [2, 3, 9] {
        on_all(n, |world| {
            barrier(world);
            assert!(has_boards(world));
            RANK.set(Some(world.clone()));
            let (size, me) = (n as usize, world.rank());
            let (layout, op) = (Layout::of::<u64>(), calling());
            // In a cell and in a chunk.
            for len in [1, 50] {
                let counts = vec![len; size];
                for which in 0..5 {
                    let mut data = vec![u64::from(me) + 1; len * size];
                    let mut result = vec![0; len * size];
                    let mut operation = reductions(&mut data, &layout, &counts, &op)[which];
                    if let (Operation::Reduce { recv, .. }, 0) = (&mut operation, me) {
                        *recv = Some(buf(&mut result, &layout));
                    }
                    // SAFETY: the data outlives the call.
                    unsafe { run(world, &operation) }.unwrap();
                    let upto = |ranks: u32| u64::from(ranks * (ranks + 1) / 2);
                    let all = match which {
                        0 | 1 => Some((&data[..len], upto(n))),
                        2 => (me == 0).then_some((&result[..len], upto(n))),
                        3 => Some((&data[..len], upto(me + 1))),
                        _ => (me > 0).then_some((&data[..len], upto(me))),
                    };
                    if let Some((got, expected)) = all {
                        assert!(got.iter().all(|&number| number == expected), "{which}");
                    }
                    for told in TOLD.take() {
                        let error = told.unwrap_err();
                        assert_eq!(error.kind(), ErrorKind::InvalidCommunicator);
                        assert!(error.to_string().contains("operator"), "{error}");
                    }
                    barrier(world);
                }
            }
            RANK.set(None);
        });
    }
}

#[test]
fn an_operator_that_starts_an_operation_takes_a_step_of_its_own() {
    for n in [2, 3, 5] {
        on_all(n, |world| {
            barrier(world);
            RANK.set(Some(world.clone()));
            let (layout, op) = (Layout::of::<u64>(), starting());
            for _ in 0..50 {
                let mut data = [u64::from(world.rank()) + 1];
                // SAFETY: the data outlives the call.
                unsafe { run(world, &sum(&mut data, &layout, &op)) }.unwrap();
                assert_eq!(data, [u64::from(n * (n + 1) / 2)]);
                // All ranks combine equally often, and so start the same number.
                let started = STARTED.take();
                assert!(!started.is_empty());
                for (request, data) in started {
                    world.device().wait(request).unwrap();
                    assert_eq!(*data, [u64::from(n)]);
                }
            }
            RANK.set(None);
        });
    }
}
