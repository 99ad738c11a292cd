//! Ranks whose items have other types than the others' items.

use portolan_core::{Device, ErrorKind, MemoryKind, Result, TypedBuf};
use portolan_datatype::{Layout, Op, Predefined};

use super::{World, on_all};
use crate::{BlocksArg, Many, Operation, run, start};

/// Operations that move data without interpreting it, and operations that reduce.
const MOVES: [&str; 5] = ["bcast", "gather", "scatter", "allgather", "alltoall"];
const REDUCES: [&str; 6] = [
    "reduce",
    "allreduce",
    "reduce-scatter",
    "reduce-scatter-block",
    "scan",
    "exscan",
];

/// Words as items of a layout whose size divides theirs.
fn words<'a>(data: &mut [u32], layout: &'a Layout) -> TypedBuf<'a> {
    TypedBuf {
        ptr: data.as_mut_ptr().cast(),
        count: size_of_val(data) / layout.size(),
        layout,
        memory: MemoryKind::Host,
    }
}

/// A block of the buffer for each of `size` ranks.
fn each(buf: TypedBuf<'_>, size: usize) -> Many<'_> {
    Many::Equal(TypedBuf {
        count: buf.count / size,
        ..buf
    })
}

/// Calls an operation on this rank with blocks of `len` words of a layout, from or to rank 0.
/// Returns its result.
fn call(
    world: &World,
    name: &str,
    len: usize,
    layout: &Layout,
    blocking: bool,
) -> (Vec<u32>, Result<()>) {
    let (size, root) = (world.size() as usize, 0);
    let mut send = vec![world.rank() + 1; len * size];
    let mut recv = vec![0; len * size];
    if name == "bcast" {
        recv[..len].fill(world.rank() + 1);
    }
    let is_root = world.rank() == root;
    let (one, all) = (
        words(&mut send[..len], layout),
        words(&mut send[..], layout),
    );
    let (to_one, to_all) = (
        words(&mut recv[..len], layout),
        words(&mut recv[..], layout),
    );
    let counts = vec![one.count; size];
    let op = &Op::from(Predefined::Sum);
    let operation = match name {
        "bcast" => Operation::Bcast { data: to_one, root },
        "gather" => Operation::Gather {
            send: Some(one),
            recv: is_root.then(|| each(to_all, size)),
            root,
            uneven: false,
        },
        "scatter" => Operation::Scatter {
            send: is_root.then(|| each(all, size)),
            recv: Some(to_one),
            root,
            uneven: false,
        },
        "allgather" => Operation::Allgather {
            send: Some(one),
            recv: each(to_all, size),
        },
        "alltoall" => Operation::Alltoall {
            send: Some(each(all, size)),
            recv: each(to_all, size),
        },
        "reduce" => Operation::Reduce {
            send: Some(one),
            recv: is_root.then_some(to_one),
            op,
            root,
        },
        "allreduce" => Operation::Allreduce {
            send: Some(one),
            recv: to_one,
            op,
        },
        "reduce-scatter" => Operation::ReduceScatter {
            send: Some(all),
            recv: to_one,
            counts: &counts,
            op,
        },
        // The count is that of one block.
        "reduce-scatter-block" => Operation::ReduceScatterBlock {
            send: Some(TypedBuf {
                count: to_one.count,
                ..all
            }),
            recv: to_one,
            op,
        },
        _ => Operation::Scan {
            send: Some(one),
            recv: to_one,
            op,
            exclusive: name == "exscan",
        },
    };
    // SAFETY: the buffers outlive the call and the wait.
    let outcome = unsafe {
        match blocking {
            true => run(world, &operation),
            false => {
                start(world, &operation).and_then(|request| world.device().wait(request).map(drop))
            }
        }
    };
    (recv, outcome)
}

/// Whether a rank takes data from rank 1, or is rank 1 and takes data from another.
fn is_concerned(name: &str, rank: u32, ranks: u32) -> bool {
    match name {
        "bcast" | "scatter" => rank == 1,
        "gather" | "reduce" => rank == 0,
        "scan" => rank == 1 || rank == 2.min(ranks - 1),
        "exscan" => rank == 1 || rank == 2,
        // In the first of several rounds.
        _ => rank < 8,
    }
}

fn barrier(world: &World) {
    // SAFETY: there is no buffer.
    unsafe { run(world, &Operation::Barrier) }.unwrap();
}

#[test]
fn types_that_differ_are_told_to_who_takes_the_data_and_what_follows_works() {
    let [usual, other] = [Layout::of::<u32>(), Layout::of::<f32>()];
    for ranks in [2, 3, 4, 10] {
        on_all(ranks, |world| {
            barrier(world);
            for name in MOVES.into_iter().chain(REDUCES) {
                for (len, blocking) in [
                    (1, true),
                    (1, false),
                    (20, true),
                    (20, false),
                    (5000, true),
                    (50_000, true),
                ] {
                    if ranks > 8 && !blocking {
                        continue; // These are messages, some of which forward others' data.
                    }
                    let layout = if world.rank() == 1 { &other } else { &usual };
                    let (_, outcome) = call(world, name, len, layout, blocking);
                    let case = format!("{name} of {len}, blocking {blocking}, {ranks} ranks");
                    match outcome {
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::TypeMismatch, "{case}: {error}");
                        }
                        Ok(()) => assert!(
                            !is_concerned(name, world.rank(), ranks),
                            "{case}: rank {} was told nothing",
                            world.rank()
                        ),
                    }
                    let (_, outcome) = call(world, name, len, &usual, blocking);
                    outcome.unwrap_or_else(|error| panic!("after {case}: {error}"));
                }
            }
        });
    }
}

#[test]
fn an_error_names_both_types() {
    on_all(2, |world| {
        barrier(world);
        let layouts = [Layout::of::<u32>(), Layout::of::<f32>()];
        let me = world.rank() as usize;
        for blocking in [true, false] {
            let (_, outcome) = call(world, "allreduce", 2, &layouts[me], blocking);
            let text = outcome.unwrap_err().to_string();
            let types = [["f32", "u32"], ["u32", "f32"]][me];
            let told = format!(
                "rank {} took part in an allreduce with data of {}",
                1 - me,
                types[0]
            );
            assert!(text.contains(&told) && text.contains(types[1]), "{text}");
        }
    });
}

#[test]
fn bytes_match_everything() {
    let [usual, bytes] = [Layout::of::<u32>(), Layout::byte()];
    for ranks in [2, 3, 10] {
        on_all(ranks, |world| {
            barrier(world);
            for name in MOVES {
                for (len, blocking) in [(1, true), (1, false), (5000, true), (50_000, true)] {
                    let layout = if world.rank() == 1 { &bytes } else { &usual };
                    let (got, outcome) = call(world, name, len, layout, blocking);
                    outcome.unwrap_or_else(|error| panic!("{name} of {len}: {error}"));
                    let (wanted, _) = call(world, name, len, &usual, blocking);
                    assert_eq!(got, wanted, "{name} of {len}");
                }
            }
        });
    }
}

#[test]
fn an_answer_may_be_of_another_type_than_the_request() {
    let layouts = [Layout::of::<u32>(), Layout::of::<f32>()];
    on_all(2, |world| {
        barrier(world);
        let me = world.rank() as usize;
        for (len, blocking) in [(1, true), (1, false), (5000, true), (50_000, true)] {
            let mut send = vec![world.rank() + 1; 2 * len];
            let mut recv = vec![0; 2 * len];
            // Nothing goes to the rank itself, because the types would not match there.
            let counts = [[0, len], [len, 0]][me];
            let blocks = |data: &mut [u32], layout| {
                Many::Blocks(BlocksArg {
                    ptr: data.as_mut_ptr().cast(),
                    counts: &counts,
                    displacements: &[0, 0],
                    layout,
                })
            };
            let operation = Operation::Alltoall {
                send: Some(blocks(&mut send, &layouts[me])),
                recv: blocks(&mut recv, &layouts[1 - me]),
            };
            // SAFETY: the buffers outlive the call and the wait.
            let outcome = unsafe {
                match blocking {
                    true => run(world, &operation),
                    false => start(world, &operation)
                        .and_then(|request| world.device().wait(request).map(drop)),
                }
            };
            outcome.unwrap_or_else(|error| panic!("{len}: {error}"));
            assert!(recv[..len].iter().all(|&item| item == 2 - world.rank()));
        }
    });
}

#[test]
fn who_receives_bytes_hides_nothing_from_others() {
    let [word, float, bytes] = [Layout::of::<u32>(), Layout::of::<f32>(), Layout::byte()];
    on_all(2, |world| {
        barrier(world);
        for (len, blocking) in [(1, true), (1, false), (5000, true)] {
            let mut send = vec![world.rank() + 1; len];
            let mut recv = vec![0; 2 * len];
            let is_odd = world.rank() == 0;
            let (from, to) = if is_odd {
                (&float, &bytes)
            } else {
                (&word, &word)
            };
            let operation = Operation::Allgather {
                send: Some(words(&mut send, from)),
                recv: each(words(&mut recv, to), 2),
            };
            // SAFETY: as above.
            let outcome = unsafe {
                match blocking {
                    true => run(world, &operation),
                    false => start(world, &operation)
                        .and_then(|request| world.device().wait(request).map(drop)),
                }
            };
            match outcome {
                Ok(()) => assert!(is_odd, "{len}"),
                Err(error) => {
                    assert!(!is_odd, "{len}: {error}");
                    assert_eq!(error.kind(), ErrorKind::TypeMismatch, "{error}");
                }
            }
        }
    });
}

#[test]
fn items_that_lie_over_each_other_are_no_less_right() {
    on_all(3, |world| {
        barrier(world);
        let layout = Layout::resized(&Layout::of::<u32>(), 0, 0).unwrap();
        for count in [1usize, 1 << 10, 1 << 20] {
            let (mut send, mut recv) = ([5u32 + world.rank()], [0u32]);
            let one = |data: &mut [u32; 1]| TypedBuf {
                ptr: data.as_mut_ptr().cast(),
                count,
                layout: &layout,
                memory: MemoryKind::Host,
            };
            let op = &Op::from(Predefined::Max);
            let operation = Operation::Reduce {
                send: Some(one(&mut send)),
                recv: Some(one(&mut recv)).filter(|_| world.rank() == 0),
                op,
                root: 0,
            };
            // SAFETY: as above.
            match unsafe { run(world, &operation) } {
                Ok(()) if world.rank() == 0 => assert_eq!(recv, [7], "{count}"),
                Ok(()) => {}
                // Items that overlap themselves may be refused as a result.
                Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidLayout, "{error}"),
            }
        }
    });
}
