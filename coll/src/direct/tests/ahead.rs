//! Which ranks wait for which, and how often.

use portolan_core::{Device, TypedBuf};
use portolan_datatype::{Layout, Op, Predefined};

use super::{World, buf, costs, on_all};
use crate::{BlocksArg, Counters, Many, Operation, counted, run};

/// Adds up the contributions of all ranks to blocks of some lengths, and returns this rank's block.
fn reduce_scatter(world: &World, counts: &[usize], value: u64) -> Vec<u64> {
    let layout = Layout::of::<u64>();
    let mut mine = vec![value; counts.iter().sum()];
    let mut block = vec![0; counts[world.rank() as usize]];
    let operation = Operation::ReduceScatter {
        send: Some(buf(&mut mine, &layout)),
        recv: buf(&mut block, &layout),
        counts,
        op: &Op::from(Predefined::Sum),
    };
    // SAFETY: the buffers outlive the call.
    unsafe { run(world, &operation) }.unwrap();
    block
}

#[test]
fn who_gets_an_empty_block_waits_for_nobody() {
    // In a cell and in a chunk.
    for long in [2, 500] {
        on_all(4, |world| {
            let before = costs(world);
            let counts = [long, 0, 1, 0];
            let block = reduce_scatter(world, &counts, 7);
            assert_eq!(block, vec![28; counts[world.rank() as usize]]);
            let looks = costs(world)[1] - before[1];
            assert_eq!(looks, [3, 0, 3, 0][world.rank() as usize]);
        });
    }
}

/// Ranks with empty blocks run ahead of the others, as far as the others have room for what they
/// show.
#[test]
fn what_nobody_waits_for_is_not_overwritten() {
    for long in [1, 1000] {
        on_all(4, |world| {
            for round in 0..400 {
                let mut counts = [0; 4];
                counts[round / 64 % 4] = long;
                counts[round / 32 % 3] = 1;
                if world.rank() == 2 && round % 50 == 0 {
                    (0..50).for_each(|_| std::thread::yield_now());
                }
                let block = reduce_scatter(world, &counts, round as u64);
                let sum = 4 * round as u64;
                assert_eq!(block, vec![sum; counts[world.rank() as usize]], "{round}");
            }
        });
    }
}

/// An alltoall of long blocks takes two chunks in a step, and as few steps as possible: blocks of
/// 64 KiB of four ranks take two, after the step in which the ranks agree. With counts the first
/// step uses one chunk, and states the lengths. Where ranks take turns on processors, one chunk
/// holds as much as two elsewhere.
#[test]
fn long_blocks_take_few_steps() {
    on_all(4, |world| {
        // So that steps begin with an odd and with an even number.
        for before in 0..4 {
            (0..before).for_each(|_| world.barrier().unwrap());
            let in_turns = u64::from(world.device().processor().is_some());
            assert_eq!(signals_of_alltoall(world, 8192, false), 3 - in_turns);
            assert_eq!(signals_of_alltoall(world, 8192, true), 2 - in_turns);
            assert_eq!(signals_of_alltoall(world, 1, true), 1);
        }
    });
}

/// Exchanges blocks of `count` numbers; returns the number of steps.
fn signals_of_alltoall(world: &World, count: usize, listed: bool) -> u64 {
    let (rank, size) = (u64::from(world.rank()), world.size() as usize);
    let layout = Layout::of::<u64>();
    let counts = vec![count; size];
    let displacements: Vec<isize> = (0..size).map(|rank| (rank * count) as isize).collect();
    let blocks = |data: &mut [u64]| match listed {
        true => Many::Blocks(BlocksArg {
            ptr: data.as_mut_ptr().cast(),
            counts: &counts,
            displacements: &displacements,
            layout: &layout,
        }),
        false => Many::Equal(TypedBuf {
            count,
            ..buf(data, &layout)
        }),
    };
    let all = (size * count) as u64;
    let mut from: Vec<u64> = (0..all).map(|at| at << 8 | rank).collect();
    let mut to = vec![0; size * count];
    let alltoall = Operation::Alltoall {
        send: Some(blocks(&mut from)),
        recv: blocks(&mut to),
    };
    let before = counted(world, Counters::Signals);
    // SAFETY: the buffers outlive the call.
    unsafe { run(world, &alltoall) }.unwrap();
    for (at, &value) in to.iter().enumerate() {
        let (sender, place) = (at / count, rank as usize * count + at % count);
        assert_eq!(value, (place as u64) << 8 | sender as u64);
    }
    counted(world, Counters::Signals) - before
}
