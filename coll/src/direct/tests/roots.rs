//! Ranks that name different roots.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use portolan_core::{Device, ErrorKind, Result};
use portolan_datatype::{Layout, Op, Predefined};

use super::{World, buf, on_all};
use crate::direct::boards::long::LONG;
use crate::{Many, Operation, run, start, state};

/// Bytes of a block: in a cell, in a chunk, as messages where there are any, the longest that a
/// header can state, and longer.
const LENS: [usize; 5] = [8, 1000, 1 << 20, (1 << 21) - 1, 3 << 20];

fn end(world: &World, operation: &Operation<'_>, blocking: bool) -> Result<()> {
    // SAFETY: the callers' buffers outlive the call, and the wait.
    unsafe {
        match blocking {
            true => run(world, operation),
            false => {
                start(world, operation).and_then(|request| world.device().wait(request).map(drop))
            }
        }
    }
}

/// Calls a scatter on this rank, with blocks of `len` bytes, from a root.
fn scatter(world: &World, root: u32, len: usize) -> Result<()> {
    scatter_in(world, root, len, true)
}

fn scatter_in(world: &World, root: u32, len: usize, blocking: bool) -> Result<()> {
    let (layout, ranks) = (Layout::of::<u8>(), world.size() as usize);
    let [mut send, mut recv] = [vec![1u8; len * ranks], vec![0u8; len]];
    let all = Many::Equal(portolan_core::TypedBuf {
        count: len,
        ..buf(&mut send, &layout)
    });
    let operation = Operation::Scatter {
        send: (world.rank() == root).then_some(all),
        recv: Some(buf(&mut recv, &layout)),
        root,
        uneven: false,
    };
    end(world, &operation, blocking)
}

fn gather(world: &World, root: u32, len: usize) -> Result<()> {
    gather_in(world, root, len, true)
}

fn gather_in(world: &World, root: u32, len: usize, blocking: bool) -> Result<()> {
    let (layout, ranks) = (Layout::of::<u8>(), world.size() as usize);
    let [mut send, mut recv] = [vec![1u8; len], vec![0u8; len * ranks]];
    let all = Many::Equal(portolan_core::TypedBuf {
        count: len,
        ..buf(&mut recv, &layout)
    });
    let operation = Operation::Gather {
        send: Some(buf(&mut send, &layout)),
        recv: (world.rank() == root).then_some(all),
        root,
        uneven: false,
    };
    end(world, &operation, blocking)
}

/// A reduction to a root; if it succeeds, the result must be right.
fn reduce_in(world: &World, root: u32, len: usize, blocking: bool) -> Result<()> {
    let layout = Layout::of::<u8>();
    let [mut send, mut recv] = [vec![1u8; len], vec![0u8; len]];
    let operation = Operation::Reduce {
        send: Some(buf(&mut send, &layout)),
        recv: (world.rank() == root).then_some(buf(&mut recv, &layout)),
        op: &Op::from(Predefined::Sum),
        root,
    };
    end(world, &operation, blocking)?;
    let sum = if world.rank() == root {
        world.size() as u8
    } else {
        0
    };
    assert!(recv.iter().all(|&byte| byte == sum));
    Ok(())
}

fn bcast(world: &World, root: u32, len: usize, blocking: bool) -> Result<()> {
    let (layout, mut data) = (Layout::of::<u8>(), vec![1u8; len]);
    let data = buf(&mut data, &layout);
    let operation = Operation::Bcast { data, root };
    end(world, &operation, blocking)
}

#[track_caller]
fn is_told(outcome: Result<()>, name: &str) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let text = error.to_string();
    assert!(
        text.contains("another root") && text.contains(name),
        "{text}"
    );
}

fn barrier(world: &World) {
    // SAFETY: there is no buffer.
    unsafe { run(world, &Operation::Barrier) }.unwrap();
}

#[test]
fn who_waits_for_one_that_waits_is_told() {
    for ranks in [2, 3, 4] {
        on_all(ranks, |world| {
            barrier(world);
            let next = (world.rank() + 1) % ranks;
            for len in LENS {
                is_told(scatter(world, next, len), "a scatter");
                barrier(world);
                // All ranks collect, and none gives.
                is_told(gather(world, world.rank(), len), "a gather");
                barrier(world);
            }
            // For longer ones the ranks may agree about the way first, and the judge depends on the
            // root.
            for len in [8, 120, 121, 10_000] {
                is_told(bcast(world, next, len, true), "a bcast");
                barrier(world);
            }
            for len in [8, 1000] {
                is_told(bcast(world, next, len, false), "a bcast");
                barrier(world);
            }
        });
    }
}

/// Bytes of a reduction: in a cell, in a chunk, in several chunks or in parts, the longest that a
/// header can state, and longer.
const REDUCED: [usize; 6] = [8, 1000, 100_000, 1 << 20, (1 << 21) - 1, 3 << 20];

#[test]
fn two_roots_of_one_reduction_are_told() {
    for ranks in [2, 3, 4, 5, 8] {
        on_all(ranks, |world| {
            barrier(world);
            let me = world.rank();
            for (len, blocking) in REDUCED
                .into_iter()
                .flat_map(|len| [(len, true), (len, false)])
            {
                is_told(reduce_in(world, me, len, blocking), "a reduce");
                barrier(world);
                // The first and the last rank are roots; the ranks between give to the first.
                let root = if me + 1 == ranks { me } else { 0 };
                let outcome = reduce_in(world, root, len, blocking);
                if me == root {
                    is_told(outcome, "a reduce");
                }
                barrier(world);
                reduce_in(world, ranks - 1, len, blocking).unwrap();
            }
        });
    }
}

#[test]
fn who_looks_at_all_sees_how_many_roots_there_are() {
    // Not short reductions, in which ranks look only at the root.
    for ranks in [2, 3, 4, 5, 8, 9, 11] {
        on_all(ranks, |world| {
            barrier(world);
            let me = world.rank();
            let last = me + 1 == ranks;
            for len in [200_000, 1 << 20, (1 << 21) - 1] {
                // No rank is the root, or all are.
                is_told(reduce_in(world, (me + 1) % ranks, len, true), "a reduce");
                barrier(world);
                is_told(reduce_in(world, me, len, true), "a reduce");
                barrier(world);
                // One rank names another root than the rest, for which the operation succeeds.
                // (With two ranks, both are the root.)
                let outcome = reduce_in(world, if last { 1 } else { 0 }, len, true);
                match last || ranks == 2 {
                    true => is_told(outcome, "a reduce"),
                    false => outcome.unwrap(),
                }
                barrier(world);
                reduce_in(world, ranks - 1, len, true).unwrap();
            }
        });
    }
}

#[test]
fn many_ranks_tell_each_other_of_roots_and_of_lengths() {
    const LENS: [usize; 4] = [0, 8, 1000, 2048];
    for ranks in [9, 12, 20] {
        on_all(ranks, |world| {
            barrier(world);
            let me = world.rank();
            for len in LENS {
                is_told(reduce_in(world, me, len, true), "a reduce");
                barrier(world);
                // One rank alone: the others hear of it from each other.
                is_told(
                    reduce_in(world, if me == 5 { 7 } else { 3 }, len, true),
                    "a reduce",
                );
                barrier(world);
                reduce_in(world, 3, len, true).unwrap();
                // One rank has more data. For the longest length it proceeds in parts, where the
                // others go in rounds.
                let longer = len + usize::from(me == 2);
                let error = reduce_in(world, 3, longer, true).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidCount, "{error}");
                let text = error.to_string();
                let told = format!("with {len} bytes where this rank expects {longer}");
                assert!(me != 2 || text.contains(&told), "{text}");
                barrier(world);
            }
        });
    }
}

#[test]
fn of_reductions_of_nothing_no_type_is_compared() {
    for ranks in [2, 5, 9, 12] {
        on_all(ranks, |world| {
            barrier(world);
            for root in [0, 1] {
                let layout = match world.rank() {
                    1 => Layout::of::<u32>(),
                    _ => Layout::of::<u8>(),
                };
                let [mut send, mut recv] = [[0u32; 0]; 2];
                let operation = Operation::Reduce {
                    send: Some(buf(&mut send, &layout)),
                    recv: (world.rank() == root).then_some(buf(&mut recv, &layout)),
                    op: &Op::from(Predefined::Sum),
                    root,
                };
                end(world, &operation, true).unwrap();
            }
        });
    }
}

#[test]
fn who_passes_on_what_never_comes_is_told() {
    // With ten ranks and more, some hand on data that fits in a cell.
    for ranks in [10, 12, 19] {
        on_all(ranks, |world| {
            barrier(world);
            for ahead in [1, 3, 9] {
                let root = (world.rank() + ahead) % ranks;
                is_told(bcast(world, root, 8, true), "a bcast");
                barrier(world);
            }
            // Two camps: each rank names the first rank of the other camp.
            let outcome = bcast(world, if world.rank() < 5 { 5 } else { 0 }, 8, true);
            is_told(outcome, "a bcast");
            barrier(world);
            bcast(world, ranks - 1, 8, true).unwrap();
        });
    }
}

#[test]
fn who_gives_to_one_that_does_not_collect_is_told() {
    for ranks in [2, 3, 4] {
        on_all(ranks, |world| {
            barrier(world);
            for len in LENS.into_iter().filter(|&len| len > LONG) {
                is_told(gather(world, (world.rank() + 1) % ranks, len), "a gather");
                barrier(world);
            }
        });
    }
    on_all(3, |world| {
        barrier(world);
        for len in LENS.into_iter().filter(|&len| len > LONG) {
            // The first rank collects, from the last; the second rank names the last as the root.
            let outcome = gather(world, [0, 2, 0][world.rank() as usize], len);
            match world.rank() {
                2 => outcome.unwrap(),
                _ => is_told(outcome, "a gather"),
            }
            barrier(world);
        }
    });
}

/// Whether the flag is set soon.
fn is_set(flag: &AtomicBool) -> bool {
    (0..3000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        flag.load(Ordering::Acquire)
    })
}

/// An operation of three ranks, given the root that this rank names and the bytes of a block.
type Named = fn(&World, u32, usize, bool) -> Result<()>;

/// Rank 0 is asleep by the time that rank 1 comes. Rank 1 agrees with rank 2, or waits for no other
/// rank. No rank does anything else before rank 0 has received its error.
#[test]
fn who_sleeps_for_one_that_looks_elsewhere_is_woken() {
    let cases: [(&str, [u32; 3], Named); 4] = [
        ("gather", [0, 2, 0], gather_in),
        ("reduce", [0, 2, 0], reduce_in),
        ("scatter", [1, 2, 2], scatter_in),
        ("bcast", [1, 2, 2], bcast),
    ];
    let mut asleep = Vec::new();
    for ((name, roots, call), len, blocking) in cases.into_iter().flat_map(|case| {
        let forms = [(8, false), (1000, false), (8, true), (1000, true)];
        forms.map(|(len, blocking)| (case, len, blocking))
    }) {
        let (told, woken) = (AtomicBool::new(false), AtomicBool::new(true));
        on_all(3, |world| {
            barrier(world);
            // The end of every other step of a track wakes all ranks. This barrier makes sure that
            // the step that follows does not.
            end(world, &Operation::Barrier, false).unwrap();
            if world.rank() == 1 {
                std::thread::sleep(Duration::from_millis(100));
            }
            let outcome = call(world, roots[world.rank() as usize], len, blocking);
            if world.rank() == 0 {
                // Data given to another root may be taken all the same: short blocks do not say for
                // which rank they are.
                assert!(outcome.is_err() || roots[0] == 0, "{name} of {len}");
                told.store(true, Ordering::Release);
            } else if !is_set(&told) {
                woken.store(false, Ordering::Relaxed);
            }
            barrier(world);
        });
        if !woken.into_inner() {
            asleep.push((name, len, blocking));
        }
    }
    assert_eq!(asleep, []);
}

#[test]
fn who_was_elsewhere_in_a_long_broadcast_takes_no_pieces_of_two() {
    // In the first step of the broadcast rank 1 gives data to its root, and looks at no other rank.
    const LEN: usize = 9000;
    on_all(2, |world| {
        barrier(world);
        let me = world.rank();
        let first = match me {
            1 => reduce_in(world, 0, 8, true),
            _ => bcast(world, 0, LEN, true),
        };
        first.unwrap();
        for round in 1..=6u8 {
            let mut data = vec![if me == 0 { round } else { 0 }; LEN];
            let layout = Layout::of::<u8>();
            let data_buf = buf(&mut data, &layout);
            let outcome = end(
                world,
                &Operation::Bcast {
                    data: data_buf,
                    root: 0,
                },
                true,
            );
            match (me, round) {
                (1, 1) => {
                    let told = outcome.unwrap_err();
                    assert_eq!(told.kind(), ErrorKind::InvalidArgument);
                    assert!(told.to_string().contains("at an earlier bcast"), "{told}");
                }
                // One broadcast behind, and each is complete.
                (1, _) => {
                    outcome.unwrap();
                    assert_eq!(data, [round - 1; LEN]);
                }
                _ => outcome.unwrap(),
            }
        }
        // The root's last broadcast.
        if me == 1 {
            bcast(world, 0, LEN, true).unwrap();
        }
    });
}

/// In the last step of a long reduction among more than a few ranks, the root alone reads. It says
/// at once that it has, so that the others need not wait for its next operation to write again.
#[test]
fn a_root_that_has_read_what_the_others_wrote_says_so() {
    on_all(5, |world| {
        reduce_in(world, 0, 40_000, true).unwrap();
        if world.rank() == 0 {
            let boards = state::of(world).direct.boards.get().unwrap();
            let boards = boards.as_ref().unwrap();
            // SAFETY: a board of this communicator, mapped as long as it lives. (Relaxed: this
            // thread has stored both.)
            let done = unsafe { boards.map.done(boards.own()) }.load(Ordering::Relaxed);
            assert_eq!(done, boards.step.load(Ordering::Relaxed));
        }
    });
}
