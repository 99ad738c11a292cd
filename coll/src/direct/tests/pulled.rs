//! Operations in which ranks copy from each other's buffers.

use portolan_core::transport::Pulls;
use portolan_core::transport::memory::{self, Options as Network};
use portolan_core::{Device, ErrorKind, TypedBuf};
use portolan_datatype::Layout;

use super::{World, buf, costs, on_network};
use crate::direct::blocking::choice::trials;
use crate::direct::blocking::pulled::forbid;
use crate::{Many, Operation, Options, run};

/// Words in a block, enough that a choice of ways is made.
const LEN: usize = 10 << 10;

/// Runs `body` on ranks that may copy from each other.
fn on_ranks(n: u32, body: impl Fn(&World) + Sync) {
    let network = Network {
        pulls: Pulls::Always,
        ..Network::default()
    };
    on_network(
        memory::network_with(n, network),
        &Options::default(),
        |world| {
            body(world);
            world.barrier().unwrap();
        },
    );
}

/// Bytes that this rank has copied from others' buffers so far.
fn pulled(world: &World) -> u64 {
    let all = world.device().counters();
    let found = all.iter().find(|(name, _)| *name == "bytes_pulled");
    found.unwrap().1
}

/// What an operation has cost this rank: bytes copied from others' buffers, and messages sent.
fn cost(world: &World, operation: &Operation<'_>) -> [u64; 2] {
    let before = [pulled(world), costs(world)[2]];
    // SAFETY: the callers' buffers outlive the call.
    unsafe { run(world, operation) }.unwrap();
    [pulled(world) - before[0], costs(world)[2] - before[1]]
}

/// Equal blocks of items of `layout`, one for each rank.
fn blocks<'a>(data: &mut [u32], layout: &'a Layout, count: usize) -> Many<'a> {
    Many::Equal(TypedBuf {
        count,
        ..buf(data, layout)
    })
}

/// An alltoall, checked.
fn alltoall(world: &World) -> [u64; 2] {
    alltoall_of(world, LEN)
}

fn alltoall_of(world: &World, len: usize) -> [u64; 2] {
    let (me, layout) = (world.rank(), Layout::of::<u32>());
    let word = |from: u32, to: u32| from << 8 | to;
    let all = 0..world.size();
    let mut mine: Vec<_> = all.clone().flat_map(|to| vec![word(me, to); len]).collect();
    let mut theirs = vec![0; mine.len()];
    let operation = Operation::Alltoall {
        send: Some(blocks(&mut mine, &layout, len)),
        recv: blocks(&mut theirs, &layout, len),
    };
    let cost = cost(world, &operation);
    assert!(
        theirs
            .into_iter()
            .eq(all.flat_map(|from| vec![word(from, me); len]))
    );
    cost
}

/// An allgather of two ranks, checked.
fn allgather(world: &World, in_place: bool) -> [u64; 2] {
    let (me, layout) = (world.rank(), Layout::of::<u32>());
    let mut mine = vec![me + 1; LEN];
    let mut all = vec![0; 2 * LEN];
    if in_place {
        all[me as usize * LEN..][..LEN].copy_from_slice(&mine);
    }
    let operation = Operation::Allgather {
        send: (!in_place).then(|| buf(&mut mine, &layout)),
        recv: blocks(&mut all, &layout, LEN),
    };
    let cost = cost(world, &operation);
    assert!(all.into_iter().eq((1..=2).flat_map(|word| vec![word; LEN])));
    cost
}

/// A broadcast, checked.
fn bcast(world: &World, root: u32) -> [u64; 2] {
    let layout = Layout::of::<u32>();
    let mut words = vec![world.rank() + 1; LEN];
    let data = buf(&mut words, &layout);
    let cost = cost(world, &Operation::Bcast { data, root });
    assert_eq!(words, vec![root + 1; LEN]);
    cost
}

const BLOCK: u64 = LEN as u64 * 4;

#[test]
fn each_rank_copies_its_blocks_from_the_others() {
    for ranks in [2, 3, 5, 8, 9] {
        on_ranks(ranks, |world| {
            let all: Vec<_> = (0..30).map(|_| alltoall(world)).collect();
            let (boards, others) = all.split_at(8);
            assert!(boards.iter().all(|&cost| cost == [0, 0]), "{all:?}");
            let each = [u64::from(ranks - 1) * BLOCK, 0];
            assert!(others[..3].iter().all(|&cost| cost == each), "{all:?}");
        });
    }
    on_ranks(2, |world| {
        let all: Vec<_> = (0..30)
            .map(|round| allgather(world, round % 2 == 0))
            .collect();
        assert!(all[8..11].iter().all(|&cost| cost == [BLOCK, 0]), "{all:?}");
        for root in 0..2 {
            let all: Vec<_> = (0..20).map(|_| bcast(world, root)).collect();
            let receives = if world.rank() == root { 0 } else { BLOCK };
            assert!(
                all[8..11].iter().all(|&cost| cost == [receives, 0]),
                "{all:?}"
            );
        }
    });
}

/// Longer blocks than a device copies at a time.
#[test]
fn the_longest_blocks_are_copied_in_parts() {
    const LONG: usize = (5 << 20) / 8 + 100;
    on_ranks(2, |world| {
        let all: Vec<_> = (0..12).map(|_| alltoall_of(world, LONG)).collect();
        let (boards, others) = all.split_at(trials((4 * LONG).ilog2()) as usize);
        assert!(boards.iter().all(|&cost| cost == [0, 0]), "{all:?}");
        // Where copies are far worse, their trial ends after three.
        let each = [4 * LONG as u64, 0];
        assert!(others[..3].iter().all(|&cost| cost == each), "{all:?}");
    });
}

#[test]
fn if_one_rank_may_not_none_tries_again() {
    // More than eight ranks take more steps.
    for (ranks, one) in [(2, 0), (2, 1), (3, 2), (9, 4)] {
        on_ranks(ranks, |world| {
            if world.rank() == one {
                forbid();
            }
            let all: Vec<_> = (0..40).map(|_| alltoall(world)).collect();
            let copies = |&[pulled, messages]: &[u64; 2]| pulled > 0 && messages == 0;
            assert_eq!(copies(&all[8]), world.rank() != one, "{all:?}");
            assert!(!all[9..].iter().any(copies), "{all:?}");
            // The trial is then one of messages, which may be pulled.
            let messages = u64::from(ranks - 1);
            assert!(all[9..].iter().any(|cost| cost[1] == messages), "{all:?}");
        });
    }
}

/// Such blocks are left to messages, by all ranks if by one.
#[test]
fn what_does_not_lie_in_one_piece_is_not_copied_from_there() {
    on_ranks(3, |world| {
        let layout = Layout::of::<u32>();
        let apart = Layout::resized(&layout, 0, 8).unwrap();
        for round in 0..60 {
            let strided = world.rank() == round % 3;
            let (each, step) = if strided { (&apart, 2) } else { (&layout, 1) };
            let mut mine = vec![world.rank() + 1; 3 * LEN * step];
            let mut theirs = vec![0; 3 * LEN];
            let operation = Operation::Alltoall {
                send: Some(blocks(&mut mine, each, LEN)),
                recv: blocks(&mut theirs, &layout, LEN),
            };
            let [pulled, messages] = cost(world, &operation);
            assert!(pulled == 0 || messages == 2, "{pulled} without a message");
            assert!(
                theirs
                    .into_iter()
                    .eq((1..=3).flat_map(|word| vec![word; LEN]))
            );
        }
    });
}

/// Ranks with blocks of other lengths get errors, and nothing is written behind the end of a block.
#[test]
fn ranks_that_disagree_do_not_copy() {
    on_ranks(3, |world| {
        let layout = Layout::of::<u32>();
        for round in 0..30 {
            let agreed = round % 3 != 2;
            let len = if agreed || world.rank() != 1 {
                LEN
            } else {
                LEN - 500
            };
            let mut mine = vec![1; 3 * LEN];
            let mut theirs = vec![0; 3 * LEN];
            let operation = Operation::Alltoall {
                send: Some(blocks(&mut mine, &layout, len)),
                recv: blocks(&mut theirs, &layout, len),
            };
            // SAFETY: the buffers outlive the call.
            let outcome = unsafe { run(world, &operation) };
            match agreed {
                true => outcome.unwrap(),
                false => assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidCount),
            }
            assert!(theirs[3 * len..].iter().all(|&word| word == 0));
        }
    });
}
