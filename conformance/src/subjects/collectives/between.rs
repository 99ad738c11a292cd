//! Operations between two groups.

use portolan_coll::Options;
use portolan_coll::inter::{self, InterOperation, Root};
use portolan_core::comm::{Communicator, InterCommunicator, RemoteLeader, Tag};
use portolan_core::{Device, ErrorKind, MemoryKind, Request, Result, TypedBuf};
use portolan_datatype::{Layout, Op};

use super::buffer::{Buffer, Bytes, Form, UNIT};
use super::reducing::Reduction;
use super::{Call, debug_mode, world};
use crate::case::Verdict;
use crate::plain::Lent;
use crate::rank::{Rank, fails};

impl Call {
    /// Runs an operation between two groups.
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
                Self::Once => wait(inter::persistent(comm, operation)?.start()?),
            }
        }
    }
}

/// The first third of the ranks as one group, and the rest as the other.
struct Halves<'c, 'd, D: Device> {
    comm: &'c InterCommunicator<Lent<'d, D>>,
    /// World rank of the other group's first rank.
    first: u32,
    others: u32,
}

impl<D: Device> Halves<'_, '_, D> {
    /// Runs an operation.
    fn done(&self, call: Call, operation: &InterOperation<'_>) {
        // SAFETY: the buffers live in the caller, which looks at them after this returns; any bits
        // are valid numbers.
        let outcome = unsafe { call.between(self.comm, operation) };
        outcome.unwrap_or_else(|error| panic!("{} {call:?}: {error}", operation.name()));
    }

    /// World ranks of the other group.
    fn others(&self) -> std::ops::Range<u32> {
        self.first..self.first + self.others
    }
}

/// The first rank of a group as the root, as a member of that group or of the other names it.
fn first(mine: bool, rank: u32) -> Root {
    match (mine, rank) {
        (false, _) => Root::Remote(0),
        (true, 0) => Root::Here,
        (true, _) => Root::Beside,
    }
}

/// Splits the world into two groups of different sizes.
fn between<D: Device>(
    rank: &Rank<'_, D>,
    options: Options,
    body: impl FnOnce(&Communicator<Lent<'_, D>>, &Halves<'_, '_, D>),
) {
    world(rank, options, |comm| {
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

/// How many units one rank sends to another. What goes to all ranks has the length for rank 0.
fn units(from: u32, to: u32) -> usize {
    [1, 0, 1_500, 3][(from + to) as usize % 4]
}

fn content(from: u32, to: u32, units: usize) -> Vec<u8> {
    Bytes::content(from, to, units * UNIT)
}

/// Operations that move data, with the root in each group, in every form of the call, and in the
/// debug mode as well.
pub fn two_groups_move<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for options in [Options::default(), debug_mode()] {
        between(rank, options, |_, two| {
            let me = rank.me();
            for (turn, call) in Call::ALL.into_iter().enumerate() {
                two.done(call, &InterOperation::Barrier);
                for low in [true, false] {
                    let root = first(low == (two.first > 0), two.comm.rank());
                    broadcast(two, me, root, call);
                    gather_and_scatter(two, me, root, call, turn == 0);
                }
                all_to_all(two, me, call, turn == 1);
            }
        });
    }
    Ok(())
}

fn broadcast<D: Device>(two: &Halves<'_, '_, D>, me: u32, root: Root, call: Call) {
    let takes_part = root != Root::Beside;
    let root_rank = if root == Root::Here { me } else { two.first };
    let mut data = Buffer::one(900, true);
    let mut expected = Buffer::one(900, true);
    if takes_part {
        expected.put(0, &content(root_rank, 0, 900));
    }
    if root == Root::Here {
        data.put(0, &content(me, 0, 900));
    }
    let operation = InterOperation::Bcast {
        data: takes_part.then(|| data.typed()),
        root,
    };
    two.done(call, &operation);
    assert_eq!(data.memory(), expected.memory(), "bcast {call:?} {root:?}");
}

fn gather_and_scatter<D: Device>(
    two: &Halves<'_, '_, D>,
    me: u32,
    root: Root,
    call: Call,
    strided: bool,
) {
    let (here, remote) = (root == Root::Here, matches!(root, Root::Remote(_)));
    let lens: Vec<_> = two.others().map(|other| units(other, 0)).collect();
    let mut mine = Buffer::one(units(me, 0), !strided);
    mine.put(0, &content(me, 0, units(me, 0)));
    let mut all = Buffer::new(Form::Blocks, &lens, strided);
    let mut expected = Buffer::new(Form::Blocks, &lens, strided);
    let mut parts = Buffer::new(Form::Blocks, &lens, strided);
    for (place, other) in two.others().enumerate() {
        parts.put(place, &content(me, other, lens[place]));
        if here {
            expected.put(place, &content(other, 0, lens[place]));
        }
    }
    let operation = InterOperation::Gather {
        send: remote.then(|| mine.typed()),
        recv: here.then(|| all.many()),
        root,
    };
    two.done(call, &operation);
    assert_eq!(all.memory(), expected.memory(), "gather {call:?} {root:?}");

    let mut part = Buffer::one(units(me, 0), !strided);
    let mut expected = Buffer::one(units(me, 0), !strided);
    if remote {
        expected.put(0, &content(two.first, me, units(me, 0)));
    }
    let operation = InterOperation::Scatter {
        send: here.then(|| parts.many()),
        recv: remote.then(|| part.typed()),
        root,
    };
    two.done(call, &operation);
    assert_eq!(
        part.memory(),
        expected.memory(),
        "scatter {call:?} {root:?}"
    );
}

fn all_to_all<D: Device>(two: &Halves<'_, '_, D>, me: u32, call: Call, strided: bool) {
    let lens: Vec<_> = two.others().map(|other| units(other, 0)).collect();
    let to: Vec<_> = two.others().map(|to| units(me, to)).collect();
    let from: Vec<_> = two.others().map(|from| units(from, me)).collect();
    let mut mine = Buffer::one(units(me, 0), strided);
    mine.put(0, &content(me, 0, units(me, 0)));
    let mut all = Buffer::new(Form::Blocks, &lens, !strided);
    let mut gathered = Buffer::new(Form::Blocks, &lens, !strided);
    let mut send = Buffer::new(Form::Layouts, &to, strided);
    let mut recv = Buffer::new(Form::Layouts, &from, !strided);
    let mut expected = Buffer::new(Form::Layouts, &from, !strided);
    for (place, other) in two.others().enumerate() {
        gathered.put(place, &content(other, 0, lens[place]));
        send.put(place, &content(me, other, to[place]));
        expected.put(place, &content(other, me, from[place]));
    }
    let operation = InterOperation::Allgather {
        send: mine.typed(),
        recv: all.many(),
    };
    two.done(call, &operation);
    assert_eq!(all.memory(), gathered.memory(), "allgather {call:?}");
    let operation = InterOperation::Alltoall {
        send: send.many(),
        recv: recv.many(),
    };
    two.done(call, &operation);
    assert_eq!(recv.memory(), expected.memory(), "alltoall {call:?}");
}

/// Each group gets the reduction of the other group's contributions.
pub fn two_groups_reduce<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    for options in [Options::default(), debug_mode()] {
        between(rank, options, |_, two| {
            for reduction in Reduction::all() {
                for (items, call) in [0, 1, 3_000].into_iter().zip(Call::ALL) {
                    reduce(two, rank.me(), &reduction, items, call);
                }
                for (even, call) in [true, false, true].into_iter().zip(Call::ALL) {
                    reduce_scatter(two, rank.me(), &reduction, even, call);
                }
            }
        });
    }
    Ok(())
}

fn reduce<D: Device>(
    two: &Halves<'_, '_, D>,
    me: u32,
    reduction: &Reduction,
    items: usize,
    call: Call,
) {
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
        let root = first(low == (two.first > 0), two.comm.rank());
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

/// Equally many items in both groups, which divide them differently.
fn reduce_scatter<D: Device>(
    two: &Halves<'_, '_, D>,
    me: u32,
    reduction: &Reduction,
    even: bool,
    call: Call,
) {
    let (local, remote) = (two.comm.size() as usize, two.comm.remote_size() as usize);
    let own = two.comm.rank() as usize;
    let mut counts = vec![3 * remote; local];
    if !even && local > 1 {
        counts[0] -= 2;
        counts[local - 1] += 2;
    }
    let (mine, total) = (counts[own], 3 * local * remote);
    let mut send = Reduction::contribution(me, total);
    let mut recv = vec![[0; 2]; mine];
    let mut send = reduction.buf(&mut send);
    let operation = if even {
        send.count = mine;
        InterOperation::ReduceScatterBlock {
            send,
            recv: reduction.buf(&mut recv),
            op: &reduction.op,
        }
    } else {
        InterOperation::ReduceScatter {
            send,
            recv: reduction.buf(&mut recv),
            counts: &counts,
            op: &reduction.op,
        }
    };
    two.done(call, &operation);
    let start: usize = counts[..own].iter().sum();
    let result = reduction.reduced(two.others(), total);
    assert_eq!(recv, &result[start..start + mine], "{call:?} {counts:?}");
}

/// A root that is not in the other group, and missing buffers, are errors on every rank.
pub fn two_groups_bad_arguments<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    between(rank, Options::default(), |comm, two| {
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

/// In the debug mode, if one rank of two groups makes a different call than the others, all calls
/// end with the same text, which names that rank. This holds in every form of the call, and no rank
/// hangs.
pub fn two_groups_disagree<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    between(rank, debug_mode(), |_, two| {
        let low = two.first > 0;
        let right = first(low, two.comm.rank());
        let (odd, last) = (
            rank.me() == rank.last(),
            format!("world rank {}", rank.last()),
        );
        for call in Call::ALL {
            let mut data = Buffer::one(if odd { 2 } else { 1 }, false);
            let refused = |operation: &InterOperation<'_>, words: &[&str]| {
                // SAFETY: the buffers outlive the call.
                let error = unsafe { call.between(two.comm, operation) }.expect_err("a refusal");
                assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
                let text = error.to_string();
                for word in words {
                    assert!(text.contains(word), "{call:?}: `{word}` is not in {text}");
                }
            };
            let what = if odd {
                InterOperation::Barrier
            } else {
                bcast(&mut data, right)
            };
            refused(&what, &[&last, "barrier", "world rank 0", "bcast"]);
            // The last rank takes the root, which is in the other group, for one of its own group.
            let root = if odd { Root::Beside } else { right };
            let beside = format!("{last} calls bcast beside the root");
            refused(
                &bcast(&mut data, root),
                &[&beside, "world rank 0 calls bcast as the root"],
            );
            // And the last rank takes itself for the root.
            let root = if odd { Root::Here } else { right };
            let itself = format!("{last} calls bcast as the root");
            refused(&bcast(&mut data, root), &[&itself]);
            let nobody = "nobody is the root of bcast";
            refused(&bcast(&mut data, Root::Beside), &[nobody]);
            refused(
                &bcast(&mut data, right),
                &[&last, "bcast with 16 bytes", "bcast with 8"],
            );
            let (send, mut recv) = ([1u32; 4], [0u32; 4]);
            let layout = Layout::of::<u32>();
            let op = if odd { Op::MAX } else { Op::SUM };
            let sum = InterOperation::Allreduce {
                send: buf(send.as_ptr().cast_mut(), &layout),
                recv: buf(recv.as_mut_ptr(), &layout),
                op: &op,
            };
            refused(
                &sum,
                &[&last, "allreduce with operator max", "operator sum"],
            );
            // And all are in working order afterwards.
            two.done(call, &InterOperation::Barrier);
            broadcast(two, rank.me(), right, call);
        }
    });
    Ok(())
}

fn bcast(data: &mut Buffer, root: Root) -> InterOperation<'_> {
    InterOperation::Bcast {
        data: (root != Root::Beside).then(|| data.typed()),
        root,
    }
}

fn buf(ptr: *mut u32, layout: &Layout) -> TypedBuf<'_> {
    TypedBuf {
        ptr: ptr.cast(),
        count: 4,
        layout,
        memory: MemoryKind::Host,
    }
}
