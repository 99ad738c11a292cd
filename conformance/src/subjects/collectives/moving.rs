//! Operations that move data.

use portolan_coll::{Name, Operation};
use portolan_core::Device;
use portolan_core::comm::Communicator;

use super::buffer::{Buffer, Bytes, Form, UNIT};
use super::{Call, by_every_algorithm, middle};
use crate::case::Verdict;
use crate::rank::Rank;

/// Blocks as they are given: form, whether strided, units of each rank's block.
type Shape = (Form, bool, Vec<usize>);

/// Empty blocks, short ones, and ones too long to be sent eagerly; and blocks of different lengths.
fn shapes<D: Device>(rank: &Rank<'_, D>) -> Vec<Shape> {
    let size = rank.size() as usize;
    let long = rank.eager_max().min(20_000) / UNIT + 1;
    vec![
        (Form::Equal, false, vec![0; size]),
        (Form::Equal, true, vec![3; size]),
        (Form::Equal, false, vec![long; size]),
        (
            Form::Blocks,
            true,
            (0..size).map(|rank| [2, 0, 5, 1][rank % 4]).collect(),
        ),
        (
            Form::Blocks,
            false,
            (0..size).map(|rank| [0, long][rank % 2]).collect(),
        ),
    ]
}

fn content(from: u32, to: u32, units: usize) -> Vec<u8> {
    Bytes::content(from, to, units * UNIT)
}

/// The form of the call for a turn, so that every form is used.
fn call(turn: usize) -> Call {
    Call::ALL[turn % Call::ALL.len()]
}

/// Runs an operation and compares all memory.
fn check<D: Device>(comm: &Communicator<D>, call: Call, operation: &Operation<'_>) {
    // SAFETY: the buffers live in the caller, which looks at them after this returns.
    let outcome = unsafe { call.operation(comm, operation) };
    outcome.unwrap_or_else(|error| panic!("{} {call:?}: {error}", operation.name()));
}

/// The root gets the contributions of all ranks.
pub fn gather<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    by_every_algorithm(rank, Name::Gather, |comm| {
        for (turn, (form, strided, units)) in shapes(rank).into_iter().enumerate() {
            for (root, in_place) in [(middle(rank), false), (rank.last(), true)] {
                let me = rank.me() as usize;
                let mut mine = Buffer::one(units[me], !strided);
                mine.put(0, &content(rank.me(), root, units[me]));
                let mut all = Buffer::new(form, &units, strided);
                let mut expected = Buffer::new(form, &units, strided);
                let at_root = rank.me() == root;
                if at_root {
                    for (from, &units) in (0..).zip(&units) {
                        expected.put(from as usize, &content(from, root, units));
                    }
                }
                let aside = at_root && in_place;
                if aside {
                    all.put(me, &content(root, root, units[me]));
                }
                let operation = Operation::Gather {
                    send: (!aside).then(|| mine.typed()),
                    recv: at_root.then(|| all.many()),
                    root,
                    uneven: form != Form::Equal,
                };
                check(comm, call(turn), &operation);
                assert_eq!(
                    all.memory(),
                    expected.memory(),
                    "{form:?} {units:?} to {root}"
                );
            }
        }
    });
    Ok(())
}

/// Every rank gets its part of the root's data.
pub fn scatter<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    by_every_algorithm(rank, Name::Scatter, |comm| {
        for (turn, (form, strided, units)) in shapes(rank).into_iter().enumerate() {
            for (root, in_place) in [(middle(rank), false), (rank.last(), true)] {
                let me = rank.me() as usize;
                let at_root = rank.me() == root;
                let mut all = Buffer::new(form, &units, strided);
                for (to, &units) in (0..).zip(&units) {
                    all.put(to as usize, &content(root, to, units));
                }
                let mut mine = Buffer::one(units[me], !strided);
                let mut expected = Buffer::one(units[me], !strided);
                let aside = at_root && in_place;
                if !aside {
                    expected.put(0, &content(root, rank.me(), units[me]));
                }
                let operation = Operation::Scatter {
                    send: at_root.then(|| all.many()),
                    recv: (!aside).then(|| mine.typed()),
                    root,
                    uneven: form != Form::Equal,
                };
                check(comm, call(turn), &operation);
                assert_eq!(
                    mine.memory(),
                    expected.memory(),
                    "{form:?} {units:?} of {root}"
                );
            }
        }
    });
    Ok(())
}

/// Every rank gets the contributions of all ranks.
pub fn allgather<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    by_every_algorithm(rank, Name::Allgather, |comm| {
        for (turn, (form, strided, units)) in shapes(rank).into_iter().enumerate() {
            for in_place in [false, true] {
                let me = rank.me() as usize;
                let own = content(rank.me(), 0, units[me]);
                let mut mine = Buffer::one(units[me], !strided);
                mine.put(0, &own);
                let mut all = Buffer::new(form, &units, strided);
                let mut expected = Buffer::new(form, &units, strided);
                for (from, &units) in (0..).zip(&units) {
                    expected.put(from as usize, &content(from, 0, units));
                }
                if in_place {
                    all.put(me, &own);
                }
                let operation = Operation::Allgather {
                    send: (!in_place).then(|| mine.typed()),
                    recv: all.many(),
                };
                check(comm, call(turn), &operation);
                assert_eq!(all.memory(), expected.memory(), "{form:?} {units:?}");
            }
        }
    });
    Ok(())
}

/// Every rank gets from every rank the block meant for it.
pub fn alltoall<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let long = rank.eager_max().min(20_000) / UNIT + 1;
    let shapes = [
        (Form::Equal, false, [0; 4]),
        (Form::Equal, true, [3; 4]),
        (Form::Equal, false, [long; 4]),
        (Form::Blocks, true, [2, 0, 5, 1]),
        (Form::Layouts, false, [1, long, 0, 2]),
    ];
    by_every_algorithm(rank, Name::Alltoall, |comm| {
        for (turn, (form, strided, some)) in shapes.into_iter().enumerate() {
            for in_place in [false, true] {
                let me = rank.me();
                // In place, the block that goes to a rank is as long as the one that comes from it.
                let units = |from: u32, to: u32| {
                    let one_way = if in_place { 0 } else { from };
                    some[(from + to + one_way) as usize % 4]
                };
                let to: Vec<_> = (0..rank.size()).map(|to| units(me, to)).collect();
                let from: Vec<_> = (0..rank.size()).map(|from| units(from, me)).collect();
                let mut send = Buffer::new(form, &to, !strided);
                let mut recv = Buffer::new(form, &from, strided);
                let mut expected = Buffer::new(form, &from, strided);
                let sent = if in_place { &mut recv } else { &mut send };
                for other in 0..rank.size() {
                    let place = other as usize;
                    sent.put(place, &content(me, other, to[place]));
                    expected.put(place, &content(other, me, from[place]));
                }
                let call = match in_place {
                    true => call(turn).in_place(),
                    false => call(turn),
                };
                let operation = Operation::Alltoall {
                    send: (!in_place).then(|| send.many()),
                    recv: recv.many(),
                };
                check(comm, call, &operation);
                assert_eq!(recv.memory(), expected.memory(), "{form:?} {to:?} {from:?}");
            }
        }
    });
    Ok(())
}
