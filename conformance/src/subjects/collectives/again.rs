//! Long operations, called so often that each way of doing them has its turn.

use portolan_coll::{Many, Operation, Options};
use portolan_core::Device;
use portolan_core::buffer::{MemoryKind, TypedBuf};
use portolan_core::comm::Communicator;
use portolan_datatype::Layout;

use super::{Call, world};
use crate::case::Verdict;
use crate::rank::Rank;

/// Words of a block: more than the shortest of which ranks choose the way.
const LEN: usize = 9_000;
/// More than come before the first trial of another way, and that trial.
const ROUNDS: u32 = 24;

fn words<'a>(words: &mut [u32], layout: &'a Layout, count: usize) -> TypedBuf<'a> {
    TypedBuf {
        ptr: words.as_mut_ptr().cast(),
        count,
        layout,
        memory: MemoryKind::Host,
    }
}

/// A block from one rank to another in a round.
fn block(round: u32, from: u32, to: u32) -> Vec<u32> {
    let first = round << 20 | from << 10 | to;
    (0..LEN as u32)
        .map(|at| first.wrapping_add(at * 7))
        .collect()
}

fn run<D: Device>(comm: &Communicator<D>, operation: &Operation<'_>) {
    // SAFETY: the buffers live in the caller, which looks at them after this returns.
    let outcome = unsafe { Call::Blocking.operation(comm, operation) };
    outcome.unwrap_or_else(|error| panic!("{}: {error}", operation.name()));
}

/// What is moved is right whichever way it goes.
pub fn every_way<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let (me, size, layout) = (rank.me(), rank.size(), Layout::of::<u32>());
    world(rank, Options::default(), |comm| {
        let all = || 0..size;
        for round in 0..ROUNDS {
            let mut mine: Vec<_> = all().flat_map(|to| block(round, me, to)).collect();
            let mut theirs = vec![0; mine.len()];
            let operation = Operation::Alltoall {
                send: Some(Many::Equal(words(&mut mine, &layout, LEN))),
                recv: Many::Equal(words(&mut theirs, &layout, LEN)),
            };
            run(comm, &operation);
            assert!(
                theirs
                    .into_iter()
                    .eq(all().flat_map(|from| block(round, from, me)))
            );

            let (mut mine, mut theirs) = (block(round, me, 0), vec![0; LEN * size as usize]);
            let operation = Operation::Allgather {
                send: Some(words(&mut mine, &layout, LEN)),
                recv: Many::Equal(words(&mut theirs, &layout, LEN)),
            };
            run(comm, &operation);
            assert!(
                theirs
                    .into_iter()
                    .eq(all().flat_map(|from| block(round, from, 0)))
            );

            let root = round % size.min(2);
            let mut data = match me == root {
                true => block(round, root, root),
                false => vec![0; LEN],
            };
            let operation = Operation::Bcast {
                data: words(&mut data, &layout, LEN),
                root,
            };
            run(comm, &operation);
            assert_eq!(data, block(round, root, root));

            let mut parts: Vec<_> = all().flat_map(|to| block(round, root, to)).collect();
            let mut part = vec![0; LEN];
            let operation = Operation::Scatter {
                send: (me == root).then(|| Many::Equal(words(&mut parts, &layout, LEN))),
                recv: Some(words(&mut part, &layout, LEN)),
                root,
                uneven: false,
            };
            run(comm, &operation);
            assert_eq!(part, block(round, root, me));
        }
    });
    Ok(())
}
