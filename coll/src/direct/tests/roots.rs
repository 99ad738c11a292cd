//! Ranks that name different roots.

use portolan_core::{Device, ErrorKind, Result};
use portolan_datatype::Layout;

use super::super::long::LONG;
use super::{World, buf, on_all};
use crate::{Many, Operation, run, start};

/// Bytes of a block: in a cell, in a chunk, by messages where those are, and as long as a header tells, or longer.
const LENS: [usize; 5] = [8, 1000, 1 << 20, (1 << 21) - 1, 3 << 20];

/// Lets this rank call a scatter, with blocks of `len` bytes, from a root.
fn scatter(world: &World, root: u32, len: usize) -> Result<()> {
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
    // SAFETY: the buffers outlive the call.
    unsafe { run(world, &operation) }
}

fn gather(world: &World, root: u32, len: usize) -> Result<()> {
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
    // SAFETY: as above.
    unsafe { run(world, &operation) }
}

fn bcast(world: &World, root: u32, len: usize, blocking: bool) -> Result<()> {
    let (layout, mut data) = (Layout::of::<u8>(), vec![1u8; len]);
    let data = buf(&mut data, &layout);
    let operation = Operation::Bcast { data, root };
    // SAFETY: as above, and the wait.
    unsafe {
        match blocking {
            true => run(world, &operation),
            false => {
                start(world, &operation).and_then(|request| world.device().wait(request).map(drop))
            }
        }
    }
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
                // All collect, and nobody gives.
                is_told(gather(world, world.rank(), len), "a gather");
                barrier(world);
            }
            // Longer ones may agree about the way first, whose judge depends on the root.
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

#[test]
fn who_passes_on_what_never_comes_is_told() {
    // With ten ranks and more, some hand on what fits a cell.
    for ranks in [10, 12, 19] {
        on_all(ranks, |world| {
            barrier(world);
            for ahead in [1, 3, 9] {
                let root = (world.rank() + ahead) % ranks;
                is_told(bcast(world, root, 8, true), "a bcast");
                barrier(world);
            }
            // Two camps: each rank names the first of the other.
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
            // The first collects, from the last; the second would have the last collect.
            let outcome = gather(world, [0, 2, 0][world.rank() as usize], len);
            match world.rank() {
                2 => outcome.unwrap(),
                _ => is_told(outcome, "a gather"),
            }
            barrier(world);
        }
    });
}
