//! Alltoalls in place, which no rank may leave to messages.

use portolan_datatype::Layout;

use super::{World, buf, costs, on_all};
use crate::direct::blocking::pulled::forbid;
use crate::{Many, Operation, run};

/// Words in a block, enough that a choice of ways is made.
const LEN: usize = 8 << 10;

/// An alltoall, checked; returns how many messages this rank has sent in it.
fn alltoall(world: &World, in_place: bool) -> u64 {
    let (me, layout) = (world.rank(), Layout::of::<u32>());
    let word = |from: u32, to: u32| from << 8 | to;
    let mut mine: Vec<u32> = (0..world.size())
        .flat_map(|to| vec![word(me, to); LEN])
        .collect();
    let mut theirs = if in_place {
        mine.clone()
    } else {
        vec![0; mine.len()]
    };
    let block = |data: &mut Vec<u32>| {
        let mut block = buf(data, &layout);
        block.count = LEN;
        Many::Equal(block)
    };
    let operation = Operation::Alltoall {
        send: (!in_place).then(|| block(&mut mine)),
        recv: block(&mut theirs),
    };
    let before = costs(world)[2];
    // SAFETY: the buffers outlive the call.
    unsafe { run(world, &operation) }.unwrap();
    let expected = (0..world.size()).flat_map(|from| vec![word(from, me); LEN]);
    assert!(theirs.iter().copied().eq(expected));
    costs(world)[2] - before
}

/// Messages would need memory for all blocks. A rank that did not have it would learn so only when
/// the others already waited for its messages.
#[test]
fn an_alltoall_in_place_is_not_left_to_messages() {
    for ranks in [2, 3] {
        on_all(ranks, |world| {
            forbid();
            let others = u64::from(ranks - 1);
            // Up to the trial of messages.
            let boards = (0..100).take_while(|_| alltoall(world, false) == 0).count();
            assert!(boards < 100);
            for round in 0..20 {
                assert_eq!(alltoall(world, true), 0);
                // One rank in place is enough, whether it is the judge or not.
                assert_eq!(alltoall(world, world.rank() == round % ranks), 0);
            }
            // The trial goes on where it was.
            assert_eq!(alltoall(world, false), others);
        });
    }
}
