//! Operations between two groups.

use portolan_coll::Options;
use portolan_coll::inter::{self, InterOperation, Root};
use portolan_core::comm::{Communicator, InterCommunicator, RemoteLeader, Tag};
use portolan_core::{Device, ErrorKind, Request, Result};

use super::buffer::{Buffer, Bytes, Form, UNIT};
use super::reducing::Reduction;
use super::{Call, world};
use crate::case::Verdict;
use crate::plain::Lent;
use crate::rank::{Rank, fails};

impl Call {
    /// Does an operation between two groups.
    ///
    /// # Safety
    /// As [`inter::run`].
    unsafe fn between<D: Device>(
        self,
        comm: &InterCommunicator<D>,
        operation: &InterOperation<'_>,
    ) -> Result<()> {
        let device = comm.merged().device();
        let wait = |request: Request| device.wait(request).map(drop);
        // SAFETY: from the caller; requests are waited for before this returns.
        unsafe {
            match self {
                Self::Blocking => inter::run(comm, operation),
                Self::Nonblocking => wait(inter::start(comm, operation)?),
                Self::Persistent => {
                    let mut operation = inter::persistent(comm, operation)?;
                    wait(operation.start()?)?;
                    wait(operation.start()?)
                }
            }
        }
    }
}

/// The first third of the ranks and the others.
struct Halves<'c, 'd, D: Device> {
    comm: &'c InterCommunicator<Lent<'d, D>>,
    /// World rank of the first of the other group.
    first: u32,
    others: u32,
}

impl<D: Device> Halves<'_, '_, D> {
    /// Does an operation.
    fn done(&self, call: Call, operation: &InterOperation<'_>) {
        // SAFETY: the buffers live in the caller, who looks at them after this returns; any bits are
        // valid numbers.
        let outcome = unsafe { call.between(self.comm, operation) };
        outcome.unwrap_or_else(|error| panic!("{} {call:?}: {error}", operation.name()));
    }

    /// World ranks of the other group.
    fn others(&self) -> std::ops::Range<u32> {
        self.first..self.first + self.others
    }
}

/// Where the first rank of the group is, seen by one that is in it or is not.
fn first(mine: bool, rank: u32) -> Root {
    match (mine, rank) {
        (false, _) => Root::Remote(0),
        (true, 0) => Root::Here,
        (true, _) => Root::Beside,
    }
}

/// Splits the world in two groups of different sizes.
fn between<D: Device>(
    rank: &Rank<'_, D>,
    body: impl FnOnce(&Communicator<Lent<'_, D>>, &Halves<'_, '_, D>),
) {
    world(rank, Options::default(), |comm| {
        let (me, size) = (rank.me(), rank.size());
        let low = size.div_ceil(3);
        let mine = me < low;
        let local = comm.split(Some(u32::from(mine)), 0).expect("a group");
        let local = local.expect("everybody is in one");
        let first = if mine { low } else { 0 };
        let leader = RemoteLeader {
            peer: comm,
            rank: first,
            tag: Tag(3),
        };
        let both = InterCommunicator::create(&local, 0, Some(leader)).expect("two groups");
        let halves = Halves {
            comm: &both,
            first,
            others: if mine { size - low } else { low },
        };
        body(comm, &halves);
    });
}

/// Every operation, with the root in each group, in every form of the call.
pub fn two_groups_move<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    between(rank, |_, two| {
        let (me, long) = (rank.me(), 1_500);
        let own = two.comm.rank();
        for (turn, call) in Call::ALL.into_iter().enumerate() {
            two.done(call, &InterOperation::Barrier);
            let units = |from: u32, to: u32| [1, 0, long, 3][(from + to) as usize % 4];
            let content = |from, to, units| Bytes::content(from, to, units * UNIT);
            let lens: Vec<_> = two.others().map(|other| units(other, 0)).collect();
            for low in [true, false] {
                let root = first(low == (two.first > 0), own);
                // World rank of the root.
                let world_root = if matches!(root, Root::Remote(_)) {
                    two.first
                } else {
                    me
                };
                let mut data = Buffer::one(long, turn == 0);
                let mut expected = Buffer::one(long, turn == 0);
                if root != Root::Beside {
                    expected.put(0, &content(world_root, 0, long));
                }
                if root == Root::Here {
                    data.put(0, &content(me, 0, long));
                }
                let operation = InterOperation::Bcast {
                    data: (root != Root::Beside).then(|| data.typed()),
                    root,
                };
                two.done(call, &operation);
                assert_eq!(data.memory(), expected.memory(), "bcast {call:?} {root:?}");

                let mut mine = Buffer::one(units(me, 0), turn == 1);
                mine.put(0, &content(me, 0, units(me, 0)));
                let mut all = Buffer::new(Form::Blocks, &lens, turn == 2);
                let mut expected = Buffer::new(Form::Blocks, &lens, turn == 2);
                for (place, other) in two.others().enumerate() {
                    if root == Root::Here {
                        expected.put(place, &content(other, 0, lens[place]));
                    }
                }
                let operation = InterOperation::Gather {
                    send: matches!(root, Root::Remote(_)).then(|| mine.typed()),
                    recv: (root == Root::Here).then(|| all.many()),
                    root,
                };
                two.done(call, &operation);
                assert_eq!(all.memory(), expected.memory(), "gather {call:?} {root:?}");

                let mut parts = Buffer::new(Form::Blocks, &lens, turn == 2);
                for (place, other) in two.others().enumerate() {
                    parts.put(place, &content(me, other, lens[place]));
                }
                let mut part = Buffer::one(units(me, 0), turn == 0);
                let mut expected = Buffer::one(units(me, 0), turn == 0);
                if matches!(root, Root::Remote(_)) {
                    expected.put(0, &content(world_root, me, units(me, 0)));
                }
                let operation = InterOperation::Scatter {
                    send: (root == Root::Here).then(|| parts.many()),
                    recv: matches!(root, Root::Remote(_)).then(|| part.typed()),
                    root,
                };
                two.done(call, &operation);
                assert_eq!(
                    part.memory(),
                    expected.memory(),
                    "scatter {call:?} {root:?}"
                );
            }

            let mut mine = Buffer::one(units(me, 0), turn == 1);
            mine.put(0, &content(me, 0, units(me, 0)));
            let mut all = Buffer::new(Form::Blocks, &lens, turn == 2);
            let mut expected = Buffer::new(Form::Blocks, &lens, turn == 2);
            for (place, other) in two.others().enumerate() {
                expected.put(place, &content(other, 0, lens[place]));
            }
            let operation = InterOperation::Allgather {
                send: mine.typed(),
                recv: all.many(),
            };
            two.done(call, &operation);
            assert_eq!(all.memory(), expected.memory(), "allgather {call:?}");

            let to: Vec<_> = two.others().map(|to| units(me, to)).collect();
            let from: Vec<_> = two.others().map(|from| units(from, me)).collect();
            let mut send = Buffer::new(Form::Layouts, &to, turn == 1);
            let mut recv = Buffer::new(Form::Layouts, &from, turn == 2);
            let mut expected = Buffer::new(Form::Layouts, &from, turn == 2);
            for (place, other) in two.others().enumerate() {
                send.put(place, &content(me, other, to[place]));
                expected.put(place, &content(other, me, from[place]));
            }
            let operation = InterOperation::Alltoall {
                send: send.many(),
                recv: recv.many(),
            };
            two.done(call, &operation);
            assert_eq!(recv.memory(), expected.memory(), "alltoall {call:?}");
        }
    });
    Ok(())
}

/// Each group gets what the other one's contributions come to.
pub fn two_groups_reduce<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    between(rank, |_, two| {
        let (me, own) = (rank.me(), two.comm.rank());
        for reduction in Reduction::all() {
            for (items, call) in [0, 1, 3_000].into_iter().zip(Call::ALL) {
                let mut send = Reduction::contribution(me, items);
                let mut recv = vec![[0; 2]; items];
                let result = reduction.reduced(two.others(), items);
                let operation = InterOperation::Allreduce {
                    send: reduction.buf(&mut send),
                    recv: reduction.buf(&mut recv),
                    op: &reduction.op,
                };
                two.done(call, &operation);
                assert_eq!(recv, result, "allreduce {call:?}");

                for low in [true, false] {
                    let root = first(low == (two.first > 0), own);
                    recv.fill([0; 2]);
                    let operation = InterOperation::Reduce {
                        send: matches!(root, Root::Remote(_)).then(|| reduction.buf(&mut send)),
                        recv: (root == Root::Here).then(|| reduction.buf(&mut recv)),
                        op: &reduction.op,
                        root,
                    };
                    two.done(call, &operation);
                    let expected = match root {
                        Root::Here => result.clone(),
                        _ => vec![[0; 2]; items],
                    };
                    assert_eq!(recv, expected, "reduce {call:?} {root:?}");
                }
            }
            // As many items in both groups, which do not divide them alike.
            let (local, remote) = (two.comm.size() as usize, two.comm.remote_size() as usize);
            let total = 3 * local * remote;
            let mut counts = vec![3 * remote; local];
            let result = reduction.reduced(two.others(), total);
            for (call, even) in Call::ALL.into_iter().zip([true, false, true]) {
                if !even && local > 1 {
                    counts[0] -= 2;
                    counts[local - 1] += 2;
                }
                let mine = counts[own as usize];
                let mut send = Reduction::contribution(me, total);
                let mut recv = vec![[0; 2]; mine];
                let mut sent = reduction.buf(&mut send);
                let operation = if even {
                    sent.count = mine;
                    InterOperation::ReduceScatterBlock {
                        send: sent,
                        recv: reduction.buf(&mut recv),
                        op: &reduction.op,
                    }
                } else {
                    InterOperation::ReduceScatter {
                        send: sent,
                        recv: reduction.buf(&mut recv),
                        counts: &counts,
                        op: &reduction.op,
                    }
                };
                two.done(call, &operation);
                let start: usize = counts[..own as usize].iter().sum();
                assert_eq!(recv, &result[start..start + mine], "{call:?} {counts:?}");
                counts = vec![3 * remote; local];
            }
        }
    });
    Ok(())
}

/// A root that is not in the other group, and buffers that are missing, are errors everywhere.
pub fn two_groups_bad_arguments<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    between(rank, |comm, two| {
        let mut one = Buffer::one(1, false);
        let outside = InterOperation::Bcast {
            data: Some(one.typed()),
            root: Root::Remote(two.others),
        };
        let missing = InterOperation::Gather {
            send: None,
            recv: None,
            root: Root::Here,
        };
        for call in Call::ALL {
            // SAFETY: the buffer outlives the calls.
            unsafe {
                let outcome = call.between(two.comm, &outside);
                fails(outcome, ErrorKind::InvalidRank, "a root outside");
                let outcome = call.between(two.comm, &missing);
                fails(outcome, ErrorKind::InvalidBuffer, "no buffer");
            }
        }
        // Nothing is left behind.
        two.done(Call::Blocking, &InterOperation::Barrier);
        comm.barrier().expect("a barrier");
    });
    Ok(())
}
