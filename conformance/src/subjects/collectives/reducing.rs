//! Operations that combine data.

use std::ops::Range;

use portolan_coll::{Name, Operation};
use portolan_core::Device;
use portolan_core::buffer::{MemoryKind, TypedBuf};
use portolan_core::comm::Communicator;
use portolan_datatype::{Layout, Op};

use super::{Call, by_every_algorithm, middle};
use crate::case::Verdict;
use crate::plain::Lent;
use crate::rank::Rank;

/// A reduction of pairs of numbers.
pub(super) struct Reduction {
    pub(super) op: Op,
    pub(super) layout: Layout,
    combine: fn([u32; 2], [u32; 2]) -> [u32; 2],
}

impl Reduction {
    /// Sums, and the composition of `x -> a x + b`, which does not commute.
    pub(super) fn all() -> [Self; 2] {
        let sum = |[a, b]: [u32; 2], [c, d]: [u32; 2]| [a.wrapping_add(c), b.wrapping_add(d)];
        let compose = |[a, b]: [u32; 2], [c, d]: [u32; 2]| {
            [a.wrapping_mul(c), a.wrapping_mul(d).wrapping_add(b)]
        };
        let pair = Layout::of::<[u32; 2]>();
        let sums = Self {
            op: Op::SUM,
            layout: pair.clone(),
            combine: sum,
        };
        let compositions = Self {
            op: Op::new(false, compose),
            layout: pair,
            combine: compose,
        };
        [sums, compositions]
    }

    /// The contribution of a rank.
    pub(super) fn contribution(rank: u32, items: usize) -> Vec<[u32; 2]> {
        let item = |at: usize| {
            let at = at as u32;
            [2 * (rank + at) + 3, rank.wrapping_mul(7_919) ^ at]
        };
        (0..items).map(item).collect()
    }

    /// The reduction of some ranks' contributions, in their order.
    pub(super) fn reduced(&self, ranks: Range<u32>, items: usize) -> Vec<[u32; 2]> {
        let all = ranks.map(|rank| Self::contribution(rank, items));
        let combine = |left: Vec<[u32; 2]>, right: Vec<[u32; 2]>| {
            let pairs = left.into_iter().zip(right);
            pairs.map(|(l, r)| (self.combine)(l, r)).collect()
        };
        all.reduce(combine).unwrap_or_default()
    }

    pub(super) fn buf<'a>(&'a self, data: &mut [[u32; 2]]) -> TypedBuf<'a> {
        TypedBuf {
            ptr: data.as_mut_ptr().cast(),
            count: data.len(),
            layout: &self.layout,
            memory: MemoryKind::Host,
        }
    }
}

const OTHER: [u32; 2] = [0xeeee_eeee; 2];

/// Runs `body` with every reduction and several numbers of items, in every form of the call.
fn each<D: Device>(
    rank: &Rank<'_, D>,
    operation: Name,
    body: impl Fn(&Communicator<Lent<'_, D>>, &Reduction, usize, Call, bool),
) {
    let long = rank.eager_max().min(20_000) / 8 + 1;
    by_every_algorithm(rank, operation, |comm| {
        for reduction in Reduction::all() {
            let short = [0, 1, 11].into_iter().zip(Call::ALL);
            for (items, call) in short.chain(Call::ALL.map(|call| (long, call))) {
                body(comm, &reduction, items, call, false);
                body(comm, &reduction, items, call.in_place(), true);
            }
        }
    });
}

/// Runs an operation.
fn done<D: Device>(comm: &Communicator<D>, call: Call, operation: &Operation<'_>) {
    // SAFETY: the buffers live in the caller, which looks at them after this returns; any bits are
    // valid numbers.
    let outcome = unsafe { call.operation(comm, operation) };
    outcome.unwrap_or_else(|error| panic!("{} {call:?}: {error}", operation.name()));
}

/// The root gets the result.
pub fn reduce<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let me = rank.me();
    each(
        rank,
        Name::Reduce,
        |comm, reduction, items, call, in_place| {
            let first = if in_place { 0 } else { middle(rank) };
            for root in [first, rank.last()] {
                let mut send = Reduction::contribution(me, items);
                let aside = in_place && me == root;
                let mut recv = if aside {
                    send.clone()
                } else {
                    vec![OTHER; items]
                };
                let operation = Operation::Reduce {
                    send: (!aside).then(|| reduction.buf(&mut send)),
                    recv: (me == root).then(|| reduction.buf(&mut recv)),
                    op: &reduction.op,
                    root,
                };
                done(comm, call, &operation);
                if me == root {
                    assert_eq!(recv, reduction.reduced(0..rank.size(), items), "{call:?}");
                }
            }
        },
    );
    Ok(())
}

/// Every rank gets the result.
pub fn allreduce<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    each(
        rank,
        Name::Allreduce,
        |comm, reduction, items, call, in_place| {
            let mut send = Reduction::contribution(rank.me(), items);
            let mut recv = if in_place {
                send.clone()
            } else {
                vec![OTHER; items]
            };
            let operation = Operation::Allreduce {
                send: (!in_place).then(|| reduction.buf(&mut send)),
                recv: reduction.buf(&mut recv),
                op: &reduction.op,
            };
            done(comm, call, &operation);
            let expected = reduction.reduced(0..rank.size(), items);
            assert_eq!(recv, expected, "{call:?}");
            if !in_place && reduction.op.predefined().is_some() {
                with_gaps(comm, call, reduction, &mut send, &expected);
            }
        },
    );
    Ok(())
}

/// The same with the first number of each pair only; the second is a gap.
fn with_gaps<D: Device>(
    comm: &Communicator<D>,
    call: Call,
    reduction: &Reduction,
    send: &mut [[u32; 2]],
    expected: &[[u32; 2]],
) {
    let layout = Layout::resized(&Layout::of::<u32>(), 0, 8).expect("a legal layout");
    let mut recv = vec![OTHER; send.len()];
    let gaps = |buf: TypedBuf<'_>| TypedBuf {
        layout: &layout,
        ..buf
    };
    let operation = Operation::Allreduce {
        send: Some(gaps(reduction.buf(send))),
        recv: gaps(reduction.buf(&mut recv)),
        op: &reduction.op,
    };
    done(comm, call, &operation);
    let expected: Vec<_> = expected.iter().map(|&[sum, _]| [sum, OTHER[1]]).collect();
    assert_eq!(recv, expected, "{call:?} with gaps");
}

/// Every rank gets its block of the result.
pub fn reduce_scatter<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let (me, size) = (rank.me() as usize, rank.size() as usize);
    each(
        rank,
        Name::ReduceScatter,
        |comm, reduction, items, call, in_place| {
            let counts: Vec<_> = (0..size).map(|rank| [items, 0, 1][rank % 3]).collect();
            let blocks = [(counts.clone(), true), (vec![items; size], false)];
            for (counts, listed) in blocks {
                let total = counts.iter().sum();
                let mut send = Reduction::contribution(rank.me(), total);
                let mut recv = if in_place {
                    send.clone()
                } else {
                    vec![OTHER; counts[me]]
                };
                let whole = reduction.buf(&mut recv);
                let block = TypedBuf {
                    count: items,
                    ..whole
                };
                let sent = reduction.buf(&mut send);
                let operation = match listed {
                    true => Operation::ReduceScatter {
                        send: (!in_place).then_some(sent),
                        recv: whole,
                        counts: &counts,
                        op: &reduction.op,
                    },
                    false => Operation::ReduceScatterBlock {
                        send: (!in_place).then_some(TypedBuf {
                            count: items,
                            ..sent
                        }),
                        recv: block,
                        op: &reduction.op,
                    },
                };
                done(comm, call, &operation);
                let first: usize = counts[..me].iter().sum();
                let all = reduction.reduced(0..rank.size(), total);
                let expected = &all[first..first + counts[me]];
                assert_eq!(&recv[..counts[me]], expected, "{call:?} {counts:?}");
            }
        },
    );
    Ok(())
}

/// Every rank gets the result of the ranks up to it, or before it.
pub fn scan<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for (name, exclusive) in [(Name::Scan, false), (Name::Exscan, true)] {
        each(rank, name, |comm, reduction, items, call, in_place| {
            let mut send = Reduction::contribution(rank.me(), items);
            let mut recv = if in_place {
                send.clone()
            } else {
                vec![OTHER; items]
            };
            let before = recv.clone();
            let operation = Operation::Scan {
                send: (!in_place).then(|| reduction.buf(&mut send)),
                recv: reduction.buf(&mut recv),
                op: &reduction.op,
                exclusive,
            };
            done(comm, call, &operation);
            let end = rank.me() + u32::from(!exclusive);
            let expected = match end {
                0 => before,
                _ => reduction.reduced(0..end, items),
            };
            assert_eq!(recv, expected, "{name} {call:?}");
        });
    }
    Ok(())
}
