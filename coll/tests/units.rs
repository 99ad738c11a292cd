//! Reductions of items that consist of several of the operator's, described in different ways.

mod common;

use portolan_coll::{Operation, Options, Persistent, run, start};
use portolan_core::transport::memory;
use portolan_core::{Device, MemoryKind, Result, TypedBuf};
use portolan_datatype::{Layout, Op};

use common::{World, on_ranks};

fn buf<'a>(data: &mut [f64], layout: &'a Layout) -> TypedBuf<'a> {
    TypedBuf {
        ptr: data.as_mut_ptr().cast(),
        count: size_of_val(data) / layout.size(),
        layout,
        memory: MemoryKind::Host,
    }
}

/// Performs the operation in one of its three forms.
fn perform(world: &World, operation: &Operation<'_>, form: u32) -> Result<()> {
    let wait = |request| world.device().wait(request).map(drop);
    // SAFETY: the callers' buffers live until the operation is over.
    unsafe {
        match form {
            0 => run(world, operation),
            1 => start(world, operation).and_then(wait),
            _ => Persistent::new(world, operation).and_then(|mut plan| wait(plan.start()?)),
        }
    }
}

/// Six numbers in a row on one side, two arrays of three on the other: the operator knows arrays of
/// three only.
#[test]
fn contribution_and_result_may_describe_the_same_bytes_in_two_ways() {
    for direct in [false, true] {
        let mut options = Options::default();
        options.direct = direct;
        on_ranks(memory::network(2), &options, |world| {
            let flat = Layout::contiguous(6, &Layout::of::<f64>()).unwrap();
            let nested = Layout::contiguous(2, &Layout::of::<[f64; 3]>()).unwrap();
            // It does something else with each number of an array.
            let op = Op::new(true, |a: [f64; 3], b: [f64; 3]| {
                [a[0] + b[0], a[1].max(b[1]), a[2].min(b[2])]
            });
            let me = f64::from(world.rank());
            for items in [1, 7, 4000] {
                for form in 0..3 {
                    let mut ours = vec![me; 6 * items];
                    let mut result = vec![-1.0; 6 * items];
                    let allreduce = Operation::Allreduce {
                        send: Some(buf(&mut ours, &flat)),
                        recv: buf(&mut result, &nested),
                        op: &op,
                    };
                    perform(world, &allreduce, form).unwrap();
                    assert!(result.chunks(3).all(|each| each == [1.0, 1.0, 0.0]));

                    result.fill(-1.0);
                    let reduce = Operation::Reduce {
                        send: Some(buf(&mut ours, &nested)),
                        recv: (world.rank() == 0).then_some(buf(&mut result, &flat)),
                        op: &op,
                        root: 0,
                    };
                    perform(world, &reduce, form).unwrap();
                    let expected = match world.rank() {
                        0 => [1.0, 1.0, 0.0],
                        _ => [-1.0; 3],
                    };
                    assert!(result.chunks(3).all(|each| each == expected));
                }
            }
            // SAFETY: a barrier has no buffers.
            unsafe { run(world, &Operation::Barrier) }.unwrap();
        });
    }
}
