//! Translates the callers' descriptions ([`Operation`]) to the algorithms' input
//! ([`crate::problem`]).
//!
//! All differences between forms of a call end here: in place, counts, displacements, layouts per
//! rank. Arguments have been validated ([`crate::check`]).

use portolan_core::buffer::TypedBuf;

use crate::algorithms::Ask;
use crate::args::{Many, Operation};
use crate::problem::{
    Allgather, Allreduce, Alltoall, Barrier, Bcast, Gather, Neighbour, Reduce, ReduceScatter, Scan,
    Scatter,
};
use crate::schedule::{Base, Blocks, Builder, Span};

/// A problem of any operation.
#[derive(Clone, Debug)]
pub(crate) enum Problem {
    Barrier(Barrier),
    Bcast(Bcast),
    Gather(Gather),
    Scatter(Scatter),
    Allgather(Allgather),
    Alltoall(Alltoall),
    Reduce(Reduce),
    Allreduce(Allreduce),
    ReduceScatter(ReduceScatter),
    Scan(Scan),
    Neighbour(Neighbour),
}

/// An operation as algorithms see it.
#[derive(Debug)]
pub(crate) struct Lowered {
    pub(crate) problem: Problem,
    pub(crate) ask: Ask,
    /// Addresses of [`Base::Send`] and [`Base::Recv`].
    pub(crate) bases: [*mut u8; 2],
}

/// Lowers an operation that has been validated. Copies that it needs are added to the schedule.
pub(crate) fn lower(b: &mut Builder, operation: &Operation<'_>) -> Lowered {
    match *operation {
        Operation::Barrier => barrier(b),
        Operation::Bcast { data, root } => bcast(b, &data, root),
        Operation::Gather {
            send,
            recv,
            root,
            uneven,
        } => gather(b, send, recv, root, uneven),
        Operation::Scatter {
            send,
            recv,
            root,
            uneven,
        } => scatter(b, send, recv, root, uneven),
        Operation::Allgather { send, recv } => allgather(b, send, &recv),
        Operation::Alltoall { send, recv } => alltoall(b, send.as_ref(), &recv),
        Operation::Reduce {
            send,
            recv,
            op,
            root,
        } => {
            b.set_op(op);
            reduce(b, send, recv, op.is_commutative(), root)
        }
        Operation::Allreduce { send, recv, op } => {
            b.set_op(op);
            let (input, output, bases) = pair(b, send, recv, recv.count);
            let (ask, commutative) = (ask(b, output), op.is_commutative());
            let problem = Allreduce {
                input,
                output,
                commutative,
            };
            lowered(Problem::Allreduce(problem), ask, bases)
        }
        Operation::ReduceScatter {
            send,
            recv,
            counts,
            op,
        } => {
            b.set_op(op);
            reduce_scatter(b, send, recv, Some(counts), op.is_commutative())
        }
        Operation::ReduceScatterBlock { send, recv, op } => {
            b.set_op(op);
            reduce_scatter(b, send, recv, None, op.is_commutative())
        }
        Operation::Scan {
            send,
            recv,
            op,
            exclusive,
        } => {
            b.set_op(op);
            let (input, output, bases) = pair(b, send, recv, recv.count);
            let (ask, commutative) = (ask(b, output), op.is_commutative());
            let problem = Scan {
                input,
                output,
                exclusive,
                commutative,
            };
            lowered(Problem::Scan(problem), ask, bases)
        }
        Operation::NeighbourAllgather { .. } | Operation::NeighbourAlltoall { .. } => {
            unreachable!("neighbour collectives are lowered with their topology (`neighbour.rs`)")
        }
    }
}

fn lowered(problem: Problem, ask: Ask, bases: [*mut u8; 2]) -> Lowered {
    Lowered {
        problem,
        ask,
        bases,
    }
}

fn ask(b: &Builder, data: Span) -> Ask {
    Ask {
        ranks: b.size(),
        bytes: data.len(),
        items: data.count,
    }
}

/// The query for blocks of `each` bytes. If each rank has its own lengths, no rank knows those of
/// the others. Items are not part of the query, because the two sides of a message may count them
/// differently.
fn ask_of_blocks(b: &Builder, each: Option<usize>) -> Ask {
    Ask {
        ranks: b.size(),
        bytes: each.unwrap_or(0),
        items: 0,
    }
}

const NULL: *mut u8 = std::ptr::null_mut();

fn barrier(b: &Builder) -> Lowered {
    let none = Span::bytes(Base::Scratch, 0, 0);
    lowered(Problem::Barrier(Barrier), ask(b, none), [NULL; 2])
}

fn bcast(b: &mut Builder, data: &TypedBuf<'_>, root: u32) -> Lowered {
    let span = b.span(Base::Recv, 0, data.count, data.layout);
    let problem = Bcast { data: span, root };
    lowered(Problem::Bcast(problem), ask(b, span), [NULL, data.ptr])
}

/// The blocks of `ranks` ranks, or neighbours, in a buffer.
pub(crate) fn blocks(
    b: &mut Builder,
    base: Base,
    many: &Many<'_>,
    ranks: u32,
) -> (Blocks, *mut u8) {
    match many {
        Many::Equal(buf) => {
            let whole = b.span(base, 0, buf.count * ranks as usize, buf.layout);
            (Blocks::Equal { whole, ranks }, buf.ptr)
        }
        Many::Blocks(of) => {
            let first = b.span(base, 0, 0, of.layout);
            let block = |(&count, &at): (&usize, &isize)| Span {
                offset: at * first.extent,
                count,
                ..first
            };
            let spans = of.counts.iter().zip(of.displacements).map(block);
            (Blocks::Listed(spans.collect()), of.ptr)
        }
        Many::Layouts(of) => {
            let places = of.counts.iter().zip(of.displacements).zip(of.layouts);
            let spans = places.map(|((&count, &at), layout)| b.span(base, at, count, layout));
            (Blocks::Listed(spans.collect()), of.ptr)
        }
    }
}

fn gather(
    b: &mut Builder,
    send: Option<TypedBuf<'_>>,
    recv: Option<Many<'_>>,
    root: u32,
    uneven: bool,
) -> Lowered {
    let recv = recv.filter(|_| b.rank() == root);
    let mut bases = [NULL; 2];
    let ranks = b.size();
    let target = recv.map(|recv| {
        let (target, ptr) = blocks(b, Base::Recv, &recv, ranks);
        bases[1] = ptr;
        target
    });
    let mine = match (send, &target) {
        (Some(send), _) => {
            bases[0] = send.ptr;
            b.span(Base::Send, 0, send.count, send.layout)
        }
        (None, Some(target)) => target.of(root),
        (None, None) => Span::bytes(Base::Send, 0, 0),
    };
    let each = (!uneven).then(|| mine.len());
    let ask = ask_of_blocks(b, each);
    let problem = Gather {
        mine,
        blocks: target,
        root,
        each,
    };
    lowered(Problem::Gather(problem), ask, bases)
}

fn scatter(
    b: &mut Builder,
    send: Option<Many<'_>>,
    recv: Option<TypedBuf<'_>>,
    root: u32,
    uneven: bool,
) -> Lowered {
    let send = send.filter(|_| b.rank() == root);
    let mut bases = [NULL; 2];
    let ranks = b.size();
    let source = send.map(|send| {
        let (source, ptr) = blocks(b, Base::Send, &send, ranks);
        bases[0] = ptr;
        source
    });
    let mine = match (recv, &source) {
        (Some(recv), _) => {
            bases[1] = recv.ptr;
            b.span(Base::Recv, 0, recv.count, recv.layout)
        }
        (None, Some(source)) => source.of(root),
        (None, None) => Span::bytes(Base::Recv, 0, 0),
    };
    let each = (!uneven).then(|| mine.len());
    let ask = ask_of_blocks(b, each);
    let problem = Scatter {
        mine,
        blocks: source,
        root,
        each,
    };
    lowered(Problem::Scatter(problem), ask, bases)
}

fn allgather(b: &mut Builder, send: Option<TypedBuf<'_>>, recv: &Many<'_>) -> Lowered {
    let ranks = b.size();
    let (target, ptr) = blocks(b, Base::Recv, recv, ranks);
    let (mine, from) = match send {
        Some(send) => (b.span(Base::Send, 0, send.count, send.layout), send.ptr),
        None => (target.of(b.rank()), NULL),
    };
    // All ranks have to make the same choice, and the mean is the same on all.
    let ask = ask_of_blocks(b, Some(target.len() / ranks as usize));
    let problem = Allgather {
        mine,
        blocks: target,
    };
    lowered(Problem::Allgather(problem), ask, [from, ptr])
}

fn alltoall(b: &mut Builder, send: Option<&Many<'_>>, recv: &Many<'_>) -> Lowered {
    let ranks = b.size();
    let (target, to) = blocks(b, Base::Recv, recv, ranks);
    let (source, from) = match send {
        Some(send) => blocks(b, Base::Send, send, ranks),
        None => (put_aside(b, &target), NULL),
    };
    let each = target.are_equal().then(|| target.of(0).len());
    let ask = ask_of_blocks(b, each);
    let problem = Alltoall {
        send: source,
        recv: target,
    };
    lowered(Problem::Alltoall(problem), ask, [from, to])
}

/// Copies all blocks to scratch memory.
fn put_aside(b: &mut Builder, blocks: &Blocks) -> Blocks {
    let aside = b.scratch(blocks.len());
    if let Blocks::Equal { whole, ranks } = *blocks {
        b.copy(whole, aside);
        return Blocks::Equal {
            whole: aside,
            ranks,
        };
    }
    let mut next = 0;
    let spans = (0..blocks.ranks()).map(|rank| {
        let block = blocks.of(rank);
        let copy = aside.items(next, block.len());
        next += block.len();
        b.copy(block, copy);
        copy
    });
    Blocks::Listed(spans.collect())
}

/// The contribution to a reduction of `count` items, and its result.
fn pair(
    b: &mut Builder,
    send: Option<TypedBuf<'_>>,
    recv: TypedBuf<'_>,
    count: usize,
) -> (Span, Span, [*mut u8; 2]) {
    let output = b.span(Base::Recv, 0, count, recv.layout);
    match send {
        Some(send) => {
            let input = Span {
                base: Base::Send,
                ..output
            };
            (input, output, [send.ptr, recv.ptr])
        }
        None => (output, output, [NULL, recv.ptr]),
    }
}

fn reduce(
    b: &mut Builder,
    send: Option<TypedBuf<'_>>,
    recv: Option<TypedBuf<'_>>,
    commutative: bool,
    root: u32,
) -> Lowered {
    let recv = recv.filter(|_| b.rank() == root);
    let (input, output, bases) = match (send, recv) {
        (send, Some(recv)) => {
            let (input, output, bases) = pair(b, send, recv, recv.count);
            (input, Some(output), bases)
        }
        (Some(send), None) => {
            let input = b.span(Base::Send, 0, send.count, send.layout);
            (input, None, [send.ptr, NULL])
        }
        (None, None) => (Span::bytes(Base::Send, 0, 0), None, [NULL; 2]),
    };
    let ask = ask(b, input);
    let problem = Reduce {
        input,
        output,
        root,
        commutative,
    };
    lowered(Problem::Reduce(problem), ask, bases)
}

fn reduce_scatter(
    b: &mut Builder,
    send: Option<TypedBuf<'_>>,
    recv: TypedBuf<'_>,
    counts: Option<&[usize]>,
    commutative: bool,
) -> Lowered {
    let (ranks, rank) = (b.size(), b.rank());
    let total = counts.map_or(recv.count * ranks as usize, |counts| counts.iter().sum());
    let mine = counts.map_or(recv.count, |counts| counts[rank as usize]);
    let (whole, output, bases) = pair(b, send, recv, total);
    let output = output.items(0, mine);
    let input = match counts {
        None => Blocks::Equal { whole, ranks },
        Some(counts) => {
            let mut next = 0;
            let block = |&count: &usize| {
                let block = whole.items(next, count);
                next += count;
                block
            };
            Blocks::Listed(counts.iter().map(block).collect())
        }
    };
    let ask = Ask {
        ranks,
        bytes: whole.len() / ranks as usize,
        items: total / ranks as usize,
    };
    let problem = ReduceScatter {
        input,
        whole,
        output,
        commutative,
    };
    lowered(Problem::ReduceScatter(problem), ask, bases)
}
