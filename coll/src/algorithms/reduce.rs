//! Reduce.

use super::knomial::{self, Knomial};
use super::partial::{Fold, Partial, fresh};
use super::{Algorithm, after, before};
use crate::levels;
use crate::problem::Reduce;
use crate::schedule::{Builder, Span};

/// All algorithms for this operation.
pub const ALL: &[Algorithm<Reduce>] = &[
    Algorithm {
        name: "binomial",
        summary: "up a binomial tree: log P rounds of the whole vector, for short ones",
        fits: |_, _| true,
        build: |b, p| binomial(b, p),
    },
    Algorithm {
        name: knomial::NAME,
        summary: "up a tree of a radix, 4 unless the rule says radix=K: fewer rounds, more messages in each",
        fits: |_, _| true,
        build: |b, p| knomial(b, p),
    },
    Algorithm {
        name: "linear",
        summary: "the root hears from every rank, the last first",
        fits: |_, _| true,
        build: |b, p| linear(b, p),
    },
    Algorithm {
        name: "rabenseifner",
        summary: "halves at distance 1, 2, 4 ..., then a gather: 2 log P rounds, 2 vectors sent: long ones",
        fits: |_, ask| ask.items >= ask.ranks as usize,
        build: |b, p| rabenseifner(b, p),
    },
    Algorithm {
        name: "chain",
        summary: "in segments from rank to rank, all links busy at once: the longest ones",
        fits: |_, _| true,
        build: |b, p| chain(b, p),
    },
    Algorithm {
        name: "two-level",
        summary: "each node to its leader, and the leaders to the root: few messages between nodes",
        fits: |_, _| true,
        build: |b, p| levels::reduce(b, p),
    },
];

/// Bytes up to which one round with the whole vector costs less than two with half of it.
const SHORT: usize = 16 << 10;

/// Chooses an algorithm for one level of a two-level form.
pub(crate) fn by_length(b: &mut Builder, p: &Reduce) {
    if p.input.len() > SHORT && p.input.count >= b.size() as usize {
        rabenseifner(b, p);
    } else {
        binomial(b, p);
    }
}

/// The tree has its root at rank 0, or at the operation's root if the order of operands does not
/// matter.
pub(crate) fn binomial(b: &mut Builder, p: &Reduce) {
    let (rank, size) = (b.rank(), b.size());
    let top = if p.commutative { p.root } else { 0 };
    let place = before(rank, top, size);
    let mut partial = Partial::new(p.input, p.output, p.commutative);
    let mut distance = 1;
    while distance < size {
        if place & distance != 0 {
            b.send(after(top, place - distance, size), partial.at());
            b.wait();
            break;
        }
        if size - place > distance {
            partial.receive(b, after(top, place + distance, size), true);
        }
        distance = distance.saturating_mul(2);
    }
    deliver(b, p, top, partial.at());
}

/// As the binomial tree, but a rank receives from all of its children on a level at once.
fn knomial(b: &mut Builder, p: &Reduce) {
    let top = if p.commutative { p.root } else { 0 };
    let tree = Knomial::new(b.rank(), b.size(), top, b.radix());
    let mut partial = Partial::new(p.input, p.output, p.commutative);
    let mut rooms = Vec::new();
    for weight in tree.levels() {
        let children: Vec<u32> = tree.children_at(weight).collect();
        partial.receive_all(b, &children, &mut rooms);
    }
    if let Some(parent) = tree.parent() {
        b.send(parent, partial.at());
        b.wait();
    }
    deliver(b, p, top, partial.at());
}

/// The rank that holds the result sends it to the root.
fn deliver(b: &mut Builder, p: &Reduce, holder: u32, result: Span) {
    if holder != p.root {
        if b.rank() == holder {
            b.send(p.root, result);
        } else if let Some(output) = p.output {
            b.recv(holder, output);
        }
        b.wait();
    } else if let Some(output) = p.output {
        b.copy(result, output);
    }
}

/// One contribution is combined while the next is received.
fn linear(b: &mut Builder, p: &Reduce) {
    let Some(output) = p.output.filter(|_| b.rank() == p.root) else {
        b.send(p.root, p.input);
        return b.wait();
    };
    // Contributions are received in the order in which they are combined: from the last rank to the
    // first, because combining overwrites the later operand. If the order does not matter, this
    // rank's contribution comes first.
    let (rank, size) = (b.rank(), b.size());
    let others = (0..size).rev().filter(|&other| other != rank);
    let own_first = p.commutative || rank == size - 1;
    let own = if own_first {
        b.copy(p.input, output);
        None
    } else if p.input == output {
        let aside = b.scratch_like(p.input, p.input.count);
        b.copy(p.input, aside);
        Some(aside)
    } else {
        Some(p.input)
    };
    let mut own = own;
    let mut rooms = [None; 2];
    let mut come: Option<(u32, Span)> = None;
    let mut begun = own_first;
    let mut settle = |b: &mut Builder, from: u32, data: Span| {
        if from < rank
            && let Some(own) = own.take()
        {
            b.combine(own, output);
        }
        if data != output {
            b.combine(data, output);
        }
    };
    for (index, from) in others.enumerate() {
        let room = if std::mem::replace(&mut begun, true) {
            *rooms[index % 2].get_or_insert_with(|| b.scratch_like(output, output.count))
        } else {
            output
        };
        b.recv(from, room);
        if let Some((from, data)) = come.replace((from, room)) {
            settle(b, from, data);
        }
        b.wait();
    }
    if let Some((from, data)) = come {
        settle(b, from, data);
    }
    if let Some(own) = own {
        b.combine(own, output);
    }
}

/// Halves the vector in each round; what remains is this rank's [share](Fold::share) of the result.
pub(super) fn halve(b: &mut Builder, fold: &Fold, place: u32, partial: &mut Partial) {
    let count = partial.at().count;
    for round in 0..fold.rounds() {
        let peer = place ^ 1 << round;
        let give = fold.share(peer, round + 1, count);
        let keep = fold.share(place, round + 1, count);
        partial.exchange(b, fold.rank(peer), &give, &keep);
    }
}

/// A reduce-scatter, then a gather with the same rounds in reverse order.
fn rabenseifner(b: &mut Builder, p: &Reduce) {
    let fold = Fold::new(b.size(), p.root);
    let mut partial = Partial::new(p.input, p.output, p.commutative);
    let Some(place) = fold.enter(b, &mut partial) else {
        return;
    };
    halve(b, &fold, place, &mut partial);
    let (count, root) = (p.input.count, fold.place(p.root));
    let mine = fold.share(place, fold.rounds(), count);
    // A rank that is not the root gathers the parts that it will send on, in the round in which its
    // way parts from the root's.
    let target = p.output.unwrap_or_else(|| {
        let rounds = (place ^ root).checked_ilog2().map_or(0, |round| round + 1);
        fresh(b, p.input, &fold.share(place, rounds, count))
    });
    b.copy(partial.items(&mine), target.items(mine.start, mine.len()));
    for round in (0..fold.rounds()).rev() {
        let peer = place ^ 1 << round;
        let share = |place: u32| {
            let share = fold.share(place, round + 1, count);
            target.items(share.start, share.len())
        };
        if (place ^ root) & 1 << round != 0 {
            b.send(fold.rank(peer), share(place));
            return b.wait();
        }
        b.recv(fold.rank(peer), share(peer));
        b.wait();
    }
}

/// Number of segments in which the data travels.
pub(super) fn segments(b: &Builder, data: Span) -> usize {
    segments_of(b, data.count, data.size)
}

/// The same for `count` items of `size` bytes.
pub(super) fn segments_of(b: &Builder, count: usize, size: usize) -> usize {
    let len = count * size;
    len.div_ceil(b.segment_of(len)).clamp(1, count.max(1))
}

/// The chain begins at the last rank and ends at rank 0, or at the root if the order of operands
/// does not matter.
fn chain(b: &mut Builder, p: &Reduce) {
    let (rank, size) = (b.rank(), b.size());
    let top = if p.commutative { p.root } else { 0 };
    let place = before(rank, top, size);
    let next = (place > 0).then(|| before(rank, 1, size));
    let previous = (place + 1 < size).then(|| after(rank, 1, size));
    let result = match p.output {
        _ if place > 0 => None,
        Some(output) if top == p.root => Some(output),
        _ => Some(b.scratch_like(p.input, p.input.count)),
    };
    let count = segments(b, p.input);
    let rooms = Rooms::new(b, p.input, count);
    let mut come: Option<(Span, Span)> = None;
    for index in 0..=count {
        let coming = (index < count).then(|| {
            let own = p.input.part(index, count);
            let room = match (previous, result) {
                (None, _) => own,
                (_, Some(result)) if result != p.input => result.part(index, count),
                _ => rooms.room(index, own),
            };
            if let Some(previous) = previous {
                b.recv(previous, room);
            }
            (own, room)
        });
        if let Some((own, data)) = come {
            if previous.is_some() {
                b.combine(own, data);
            }
            if let Some(next) = next {
                b.send(next, data);
            }
            if let Some(result) = result {
                b.copy(data, result.part(index - 1, count));
            }
        }
        b.wait();
        come = coming;
    }
    deliver(b, p, top, result.unwrap_or(p.input));
}

/// Two pieces of scratch memory, used alternately, each for one segment of a span.
pub(super) struct Rooms([Span; 2]);

impl Rooms {
    /// Rooms for the segments of `data` in `count` parts.
    pub(super) fn new(b: &mut Builder, data: Span, count: usize) -> Self {
        let longest = data.part(0, count).count;
        Self([(); 2].map(|()| b.scratch_like(data, longest)))
    }

    /// Room for a segment.
    pub(super) fn room(&self, index: usize, segment: Span) -> Span {
        self.0[index % 2].items(0, segment.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::reference::{Forms, cases};
    use crate::schedule::Base;
    use crate::simulate::{SIZES, Simulation};

    #[test]
    fn the_root_gets_the_reduction_of_all() {
        for algorithm in ALL {
            for size in SIZES {
                for (number, case) in (0..).zip(cases()) {
                    for form in Forms::ALL {
                        let root = number % size;
                        let mut run = Simulation::new(size, 5 + u64::from(size));
                        let (input, output) = case.fill(&mut run, form);
                        let base = |rank| {
                            if rank == root {
                                form.base()
                            } else {
                                Base::Send
                            }
                        };
                        let expected = case.reduced_from(&run, base, 0..size);
                        let (count, layout) = (case.count, &case.layout);
                        let fits = run.schedule_fitting(algorithm, count, layout, |b| {
                            b.set_op(&case.op);
                            let at_root = b.rank() == root;
                            let input = b.span(base(b.rank()), input, count, layout);
                            let output = match form {
                                Forms::InPlace => input,
                                Forms::Apart => b.span(Base::Recv, output, count, layout),
                            };
                            Reduce {
                                input,
                                output: at_root.then_some(output),
                                root,
                                commutative: case.op.is_commutative(),
                            }
                        });
                        if fits {
                            run.run(algorithm.name);
                            let got = run.packed(root, Base::Recv, layout, count);
                            let what = (algorithm.name, size, root, form, &case);
                            assert_eq!(got, expected, "{what:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn every_root_gets_it_and_every_rank_sends_once() {
        let layout = portolan_datatype::Layout::of::<u32>();
        for commutative in [true, false] {
            for size in 1..=9 {
                for root in 0..size {
                    let mut run = Simulation::new(size, 1);
                    run.fill(Base::Send, &layout, 1);
                    run.fill(Base::Recv, &layout, 1);
                    run.schedule_all(|b| {
                        b.set_op(&portolan_datatype::Op::SUM);
                        let output = b.span(Base::Recv, 0, 1, &layout);
                        let p = Reduce {
                            input: b.span(Base::Send, 0, 1, &layout),
                            output: (b.rank() == root).then_some(output),
                            root,
                            commutative,
                        };
                        binomial(b, &p);
                    });
                    run.run("binomial");
                    let messages: usize = (0..size).map(|r| run.schedule(r).messages()).sum();
                    let hop = usize::from(!commutative && root != 0);
                    assert_eq!(messages, size as usize - 1 + hop);
                }
            }
        }
    }
}
