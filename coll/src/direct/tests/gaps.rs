//! Reductions of ranks whose items lie in memory in different ways.

use portolan_core::{Device, ErrorKind, MemoryKind, Result, TypedBuf};
use portolan_datatype::{Layout, Op};

use super::{World, on_all};
use crate::{Operation, run, start};

/// Layouts of two doubles each.
fn layouts() -> [Layout; 4] {
    let one = Layout::of::<f64>();
    let pair = Layout::contiguous(2, &one).unwrap();
    [
        pair.clone(),
        Layout::vector(2, 1, 4, &one).unwrap(),
        // As long as the one before, with its second value elsewhere; and in the opposite order.
        Layout::resized(&pair, 0, 40).unwrap(),
        Layout::indexed_block(1, &[1, 0], &one).unwrap(),
    ]
}

fn call(world: &World, name: &str, layout: &Layout, count: usize, blocking: bool) -> Result<()> {
    let size = world.size() as usize;
    // Enough for the widest layout.
    let mut send = vec![1.0f64; 5 * count * size];
    let mut recv = vec![0.0f64; 5 * count * size];
    let buf = |data: &mut [f64], count| TypedBuf {
        ptr: data.as_mut_ptr().cast(),
        count,
        layout,
        memory: MemoryKind::Host,
    };
    let one = Some(buf(&mut send, count));
    let (to, op) = (buf(&mut recv, count), &Op::SUM);
    let counts: Vec<usize> = (0..size).map(|rank| count + rank % 2).collect();
    let mut more = vec![1.0f64; 5 * (count + 1) * size];
    let mut part = vec![0.0f64; 5 * (count + 1)];
    let operation = match name {
        "reduce" => Operation::Reduce {
            send: one,
            recv: (world.rank() == 0).then_some(to),
            op,
            root: 0,
        },
        "allreduce" => Operation::Allreduce {
            send: one,
            recv: to,
            op,
        },
        "reduce-scatter" => Operation::ReduceScatter {
            send: Some(buf(&mut more, counts.iter().sum())),
            recv: buf(&mut part, counts[world.rank() as usize]),
            counts: &counts,
            op,
        },
        "reduce-scatter-block" => Operation::ReduceScatterBlock {
            send: one,
            recv: to,
            op,
        },
        _ => Operation::Scan {
            send: one,
            recv: to,
            op,
            exclusive: name == "exscan",
        },
    };
    // SAFETY: the buffers outlive the operation, and have room for each layout.
    unsafe {
        match blocking {
            true => run(world, &operation),
            false => {
                let request = start(world, &operation)?;
                world.device().wait(request).map(|_| ())
            }
        }
    }
}

const NAMES: [&str; 6] = [
    "reduce",
    "allreduce",
    "reduce-scatter",
    "reduce-scatter-block",
    "scan",
    "exscan",
];

#[test]
fn who_has_other_gaps_is_told_and_nobody_gets_out_of_step() {
    let layouts = layouts();
    // Short and long, in one step and in several; with nine ranks, in rounds.
    for (ranks, counts) in [
        (2, &[1, 3, 40, 9_000][..]),
        (3, &[1, 40, 5_000]),
        (9, &[1, 20]),
    ] {
        on_all(ranks, |world| {
            world.barrier().unwrap();
            for (name, &count) in NAMES
                .iter()
                .flat_map(|name| counts.iter().map(move |c| (name, c)))
            {
                for (at, mine) in layouts.iter().enumerate() {
                    for blocking in [true, false] {
                        if !blocking && ranks > 8 {
                            continue;
                        }
                        let odd = world.rank() == 1;
                        let theirs = &layouts[(at + 1) % layouts.len()];
                        let outcome = call(
                            world,
                            name,
                            if odd { theirs } else { mine },
                            count,
                            blocking,
                        );
                        // The last rank of a scan is seen by none, and the root of a reduction sees
                        // for all.
                        let sees = match *name {
                            "reduce" => world.rank() == 0,
                            "scan" | "exscan" => odd,
                            _ => world.rank() < 2,
                        };
                        let told = outcome.is_err_and(|error| {
                            assert_eq!(error.kind(), ErrorKind::InvalidCount, "{error}");
                            let text = error.to_string();
                            assert!(
                                text.contains("lie in memory otherwise") || ranks > 2,
                                "{text}"
                            );
                            true
                        });
                        assert!(
                            told || !sees || ranks > 8,
                            "{name}, {count}, {at}, {blocking}"
                        );
                        // The boards are in step, and items with gaps alone are right.
                        call(world, name, mine, count, blocking).unwrap();
                    }
                }
            }
        });
    }
}
