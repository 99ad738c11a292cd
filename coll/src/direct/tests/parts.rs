//! Parts of a scatter, which go the way that a rank that receives has measured to be better.

use portolan_core::{ErrorKind, Result, TypedBuf};
use portolan_datatype::Layout;

use super::{World, buf, costs, on_all};
use crate::direct::boards::long::LONG;
use crate::{Many, Operation, run};

/// Words in a part: enough that it may go as a message, and few enough that boards have room.
const LEN: usize = 10 << 10;

/// A scatter from a root of parts of `sent` words, of which this rank expects `expected`. Returns
/// how many messages this rank has sent in it.
fn scatter(world: &World, root: u32, sent: usize, expected: usize) -> Result<u64> {
    let layout = Layout::of::<u32>();
    let of = |to: u32, len: usize| vec![to << 8 | root; len];
    let mut all: Vec<u32> = (0..world.size()).flat_map(|to| of(to, sent)).collect();
    let mut mine = vec![0; expected];
    let parts = TypedBuf {
        count: sent,
        ..buf(&mut all, &layout)
    };
    let operation = Operation::Scatter {
        send: (world.rank() == root).then_some(Many::Equal(parts)),
        recv: Some(buf(&mut mine, &layout)),
        root,
        uneven: false,
    };
    let before = costs(world)[2];
    // SAFETY: the buffers outlive the call.
    let outcome = unsafe { run(world, &operation) };
    let messages = costs(world)[2] - before;
    // The root sees what the judge wishes only after the judge has said it.
    world.barrier().unwrap();
    outcome?;
    assert_eq!(mine, of(world.rank(), expected));
    Ok(messages)
}

#[test]
fn parts_come_both_ways_until_one_is_known_to_be_better() {
    for ranks in [2, 3] {
        on_all(ranks, |world| {
            // Each has a judge of its own.
            for root in 0..2 {
                let round = |_| scatter(world, root, LEN, LEN).unwrap();
                let sent: Vec<u64> = (0..60).map(round).collect();
                let messages = if world.rank() == root { ranks - 1 } else { 0 };
                let (boards, others) = sent.split_at(8);
                assert!(boards.iter().all(|&sent| sent == 0), "{sent:?}");
                // At least as many come before a trial can be hopeless.
                let tried = &others[..6];
                assert!(
                    tried.iter().all(|&sent| sent == messages.into()),
                    "{sent:?}"
                );
                // Shorter parts stay on the boards.
                assert_eq!(scatter(world, root, LEN / 2, LEN / 2).unwrap(), 0);
            }
        });
    }
}

/// Whichever way the parts come, who expects another length is told so, and nobody waits for it.
#[test]
fn a_judge_that_expects_another_length_is_told() {
    on_all(3, |world| {
        for round in 0..40 {
            let expected = match (world.rank(), round % 4) {
                (1, 1) => LEN - 1,
                (1, 2) => LEN / 4,
                (1, 3) => 0,
                _ => LEN,
            };
            let outcome = scatter(world, 0, LEN, expected).map(drop);
            match (expected, outcome) {
                (LEN, outcome) => outcome.unwrap(),
                (_, outcome) => {
                    let kind = outcome.unwrap_err().kind();
                    let truncated = [ErrorKind::InvalidCount, ErrorKind::Truncated];
                    assert!(truncated.contains(&kind), "round {round}: {kind:?}");
                }
            }
        }
    });
}

/// Blocks that are too long for any board: the root's own is copied while messages are under way.
#[test]
fn the_root_has_its_own_long_block_too() {
    const LEN: usize = LONG / 4 + 1000;
    let layout = Layout::of::<u32>();
    on_all(3, |world| {
        for root in 0..3 {
            assert_eq!(
                scatter(world, root, LEN, LEN).unwrap(),
                if world.rank() == root { 2 } else { 0 }
            );
            let mut mine = vec![world.rank() + 1; LEN];
            let mut all = vec![0; 3 * LEN];
            let blocks = TypedBuf {
                count: LEN,
                ..buf(&mut all, &layout)
            };
            let operation = Operation::Gather {
                send: Some(buf(&mut mine, &layout)),
                recv: (world.rank() == root).then_some(Many::Equal(blocks)),
                root,
                uneven: false,
            };
            // SAFETY: the buffers outlive the call.
            unsafe { run(world, &operation) }.unwrap();
            let is_right = |(rank, block): (u32, &[u32])| block.iter().all(|&word| word == rank);
            assert!(world.rank() != root || (1..).zip(all.chunks(LEN)).all(is_right));
        }
    });
}
