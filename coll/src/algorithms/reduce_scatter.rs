//! Reduce-scatter, with equal blocks and with a count per rank.

use std::ops::Range;

use super::partial::{Fold, Partial, Role};
use super::{Algorithm, after, before, reduce};
use crate::levels;
use crate::problem::{Reduce, ReduceScatter};
use crate::schedule::{Blocks, Builder, Span};

/// All algorithms for this operation.
pub const ALL: &[Algorithm<ReduceScatter>] = &[
    Algorithm {
        name: "pairwise",
        summary: "in round k with the ranks k before and after: P - 1 rounds of one block, in any order of work",
        fits: |_, _| true,
        build: |b, p| pairwise(b, p),
    },
    Algorithm {
        name: "reduce-scatter",
        summary: "a reduction to rank 0 up a binomial tree, which sends the blocks: few short messages",
        fits: |_, _| true,
        build: |b, p| reduce_scatter(b, p),
    },
    Algorithm {
        name: "recursive-halving",
        summary: "half of the blocks at distance P/2, a quarter at P/4 ...: log P rounds",
        fits: |p, _| p.commutative,
        build: |b, p| recursive_halving(b, p),
    },
    Algorithm {
        name: "ring",
        summary: "blocks around a ring, in segments: P - 1 rounds with the neighbours only",
        fits: |p, _| p.commutative,
        build: |b, p| ring(b, p),
    },
    Algorithm {
        name: "two-level",
        summary: "each node to its leader, the leaders with each other, and back: few messages between nodes",
        fits: |_, _| true,
        build: |b, p| levels::reduce_scatter(b, p),
    },
    Algorithm {
        name: "node-ring",
        summary: "a ring through one node after the other: long blocks",
        fits: |p, _| p.commutative,
        build: |b, p| levels::reduce_scatter_ring(b, p),
    },
];

/// Chooses an algorithm for one level of a two-level form.
pub(crate) fn by_order(b: &mut Builder, p: &ReduceScatter) {
    if p.commutative {
        recursive_halving(b, p);
    } else {
        pairwise(b, p);
    }
}

impl ReduceScatter {
    /// Whether the result goes to the memory of the contribution, part of which may still have to
    /// be sent.
    pub(crate) fn in_place(&self) -> bool {
        (self.output.base, self.output.offset) == (self.whole.base, self.whole.offset)
    }
}

fn reduce_scatter(b: &mut Builder, p: &ReduceScatter) {
    let (rank, size) = (b.rank(), b.size());
    if size == 1 {
        return b.copy(p.whole, p.output);
    }
    let result = (rank == 0).then(|| b.scratch_like(p.whole, p.whole.count));
    let up = Reduce {
        input: p.whole,
        output: result,
        root: 0,
        commutative: p.commutative,
    };
    reduce::binomial(b, &up);
    let Some(result) = result else {
        b.recv(0, p.output);
        return b.wait();
    };
    let block = |rank: u32| {
        let block = p.input.of(rank);
        Span {
            base: result.base,
            offset: block.offset - p.whole.offset + result.offset,
            ..block
        }
    };
    (1..size).for_each(|rank| b.send(rank, block(rank)));
    b.copy(block(0), p.output);
    b.wait();
}

/// Data from ranks before this one is combined with this rank's block, nearest rank first; data
/// from ranks after it is combined separately, last rank first. So operands stay in order.
pub(crate) fn pairwise(b: &mut Builder, p: &ReduceScatter) {
    let (rank, size) = (b.rank(), b.size());
    let own = p.input.of(rank);
    if size == 1 {
        return b.copy(own, p.output);
    }
    let result = if p.in_place() {
        b.scratch_like(own, own.count)
    } else {
        p.output
    };
    let rooms = [(); 2].map(|()| b.scratch_like(own, own.count));
    // The memory in which operands of ranks after this one are combined, and the rank whose operand
    // comes there first.
    let (upper, first) = if p.commutative {
        (result, before(rank, 1, size))
    } else {
        b.copy(own, result);
        (b.scratch_like(own, own.count), size - 1)
    };
    let settle = |b: &mut Builder, from: u32, data: Span| {
        let target = if from > rank { upper } else { result };
        if data != target {
            b.combine(data, target);
        } else if p.commutative {
            b.combine(own, target);
        }
    };
    let mut come: Option<(u32, Span)> = None;
    for distance in 1..size {
        let (to, from) = (after(rank, distance, size), before(rank, distance, size));
        let begins = from == first && (p.commutative || from > rank);
        let room = if begins {
            upper
        } else {
            rooms[distance as usize % 2]
        };
        b.recv(from, room);
        b.send(to, p.input.of(to));
        if let Some((from, data)) = come.replace((from, room)) {
            settle(b, from, data);
        }
        b.wait();
    }
    if let Some((from, data)) = come {
        settle(b, from, data);
    }
    if p.commutative || rank == size - 1 {
        b.copy(result, p.output);
    } else {
        b.combine(result, upper);
        b.copy(upper, p.output);
    }
}

fn recursive_halving(b: &mut Builder, p: &ReduceScatter) {
    let fold = Fold::new(b.size(), 0);
    let mut partial = Partial::new(p.whole, None, true);
    let items = |ranks: Range<u32>| items(&p.input, ranks);
    let Some(place) = fold.enter(b, &mut partial) else {
        return fold.leave(b, p.output);
    };
    let mut distance = fold.size / 2;
    while distance > 0 {
        // The places that have all higher bits in common with a place.
        let share = |place: u32| {
            let low = place & !(distance - 1);
            items(fold.ranks(low..low + distance))
        };
        let peer = place ^ distance;
        partial.exchange(b, fold.rank(peer), &share(peer), &share(place));
        distance /= 2;
    }
    let block = |rank: u32| partial.items(&items(rank..rank + 1));
    if let Role::Stays {
        other: Some(other), ..
    } = fold.role(b.rank())
    {
        fold.leave(b, block(other));
    }
    b.copy(block(b.rank()), p.output);
}

/// The items of the blocks of some ranks, in the vector of all.
fn items(blocks: &Blocks, ranks: Range<u32>) -> Range<usize> {
    match blocks {
        Blocks::Equal { whole, ranks: all } => {
            let each = whole.count / *all as usize;
            ranks.start as usize * each..ranks.end as usize * each
        }
        Blocks::Listed(spans) => {
            let count = |spans: &[Span]| spans.iter().map(|span| span.count).sum::<usize>();
            let (start, end) = (ranks.start as usize, ranks.end as usize);
            let first = count(&spans[..start]);
            first..first + count(&spans[start..end])
        }
    }
}

fn ring(b: &mut Builder, p: &ReduceScatter) {
    let counts = (0..b.size()).map(|rank| p.input.of(rank).count);
    let longest = counts.max().unwrap_or(0);
    ring_reduce(b, |rank| p.input.of(rank), longest, p.output, !p.in_place());
}

/// Blocks go around the ring once, each rank combining its own contribution, and end where they
/// belong.
///
/// One segment is combined while the next is received. `direct` says that the output may be written
/// before all of the input has been read.
pub(crate) fn ring_reduce(
    b: &mut Builder,
    input: impl Fn(u32) -> Span,
    longest: usize,
    output: Span,
    direct: bool,
) {
    let (rank, size) = (b.rank(), b.size());
    let (left, right, rounds) = (before(rank, 1, size), after(rank, 1, size), size - 1);
    if size == 1 {
        return b.copy(input(rank), output);
    }
    let parts = reduce::segments_of(b, longest, output.size);
    let rooms = [(); 2].map(|()| b.scratch_like(output, longest));
    // The block that arrives in a round, and where it goes.
    let block = |round: u32| input(before(rank, (round + 2) % size, size));
    let room = |round: u32| {
        if direct && round == rounds - 1 {
            output
        } else {
            rooms[round as usize % 2].items(0, block(round).count)
        }
    };
    let combine = |b: &mut Builder, round: u32, part: usize| {
        b.combine(
            block(round).part(part, parts),
            room(round).part(part, parts),
        );
    };
    let mut come = None;
    for round in 0..rounds {
        for part in 0..parts {
            // A segment has to be combined before it is sent in the next round. If there is only
            // one segment, that means now.
            if let Some((round, part)) = come.take_if(|_| parts == 1) {
                combine(b, round, part);
            }
            let sent = match round {
                0 => input(left),
                _ => room(round - 1),
            };
            b.recv(left, room(round).part(part, parts));
            b.send(right, sent.part(part, parts));
            if let Some((round, part)) = come.replace((round, part)) {
                combine(b, round, part);
            }
            b.wait();
        }
    }
    if let Some((round, part)) = come {
        combine(b, round, part);
    }
    b.copy(room(rounds - 1), output);
}

#[cfg(test)]
mod tests {
    use portolan_datatype::{Layout, Op};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::algorithms::reference::{Case, Forms, affine, cases};
    use crate::schedule::Base;
    use crate::simulate::{SIZES, Simulation};

    /// Runs a reduce-scatter of `case` with a block of so many items for each rank.
    fn check(
        algorithm: &Algorithm<ReduceScatter>,
        case: &Case,
        counts: &[usize],
        equal: bool,
        seed: u64,
    ) {
        let size = counts.len() as u32;
        for form in Forms::ALL {
            let mut run = Simulation::new(size, seed);
            let (input, output) = case.fill(&mut run, form);
            let expected = case.reduced(&run, form, 0..size);
            let (total, layout) = (case.count, &case.layout);
            let fits = run.schedule_fitting(algorithm, total, layout, |b| {
                b.set_op(&case.op);
                let whole = b.span(form.base(), input, total, layout);
                let output = match form {
                    Forms::InPlace => whole,
                    Forms::Apart => b.span(Base::Recv, output, total, layout),
                };
                let block = |rank: usize| whole.items(counts[..rank].iter().sum(), counts[rank]);
                ReduceScatter {
                    input: if equal {
                        Blocks::Equal { whole, ranks: size }
                    } else {
                        Blocks::Listed((0..size as usize).map(block).collect())
                    },
                    whole,
                    output: output.items(0, counts[b.rank() as usize]),
                    commutative: case.op.is_commutative(),
                }
            });
            if fits {
                run.run(algorithm.name);
                let mut next = 0;
                for (rank, &count) in (0..).zip(counts) {
                    let got = run.packed(rank, Base::Recv, layout, total);
                    let len = count * layout.size();
                    let what = (algorithm.name, size, rank, form, case, counts);
                    assert_eq!(got[..len], expected[next..next + len], "{what:?}");
                    next += len;
                }
            }
        }
    }

    #[test]
    fn every_rank_gets_its_block() {
        for algorithm in ALL {
            for size in SIZES {
                for mut case in cases() {
                    let each = case.count.div_ceil(size as usize);
                    case.count = if case.woven {
                        case.count
                    } else {
                        each * size as usize
                    };
                    if case.count == each * size as usize {
                        let counts = vec![each; size as usize];
                        check(algorithm, &case, &counts, true, 9 + u64::from(size));
                    }
                }
            }
        }
    }

    #[test]
    fn blocks_may_have_any_lengths() {
        let mut random = crate::simulate::Random::new(77);
        for algorithm in ALL {
            for size in SIZES {
                for _ in 0..6 {
                    let counts: Vec<_> = (0..size)
                        .map(|_| random.below(9) * random.below(3))
                        .collect();
                    let total = counts.iter().sum();
                    let seed = 9 + u64::from(size);
                    check(algorithm, &affine(total), &counts, false, seed);
                    let sum = Case::new("sum", Op::SUM, Layout::of::<u32>(), total);
                    check(algorithm, &sum, &counts, false, seed);
                }
            }
        }
    }

    #[test]
    fn long_blocks_travel_in_segments() {
        let each = 3 * 16_384 + 5;
        for size in [2, 3, 5] {
            let case = Case::new("sum", Op::SUM, Layout::of::<u32>(), each * size as usize);
            for algorithm in ALL {
                let counts = vec![each; size as usize];
                check(algorithm, &case, &counts, true, 9 + size as u64);
            }
        }
    }

    #[test]
    fn messages_are_as_few_as_the_names_promise() {
        for (name, messages) in [("pairwise", 7), ("recursive-halving", 3), ("ring", 7)] {
            let algorithm = ALL.iter().find(|known| known.name == name).expect("known");
            let layout = Layout::of::<u32>();
            let mut run = Simulation::new(8, 1);
            let fits = run.schedule_fitting(algorithm, 16, &layout, |b| {
                let whole = b.span(Base::Send, 0, 16, &layout);
                ReduceScatter {
                    input: Blocks::Equal { whole, ranks: 8 },
                    whole,
                    output: b.span(Base::Recv, 0, 2, &layout),
                    commutative: true,
                }
            });
            assert!(fits);
            for rank in 0..8 {
                let schedule = run.schedule(rank);
                assert_eq!(
                    (schedule.messages(), schedule.waits()),
                    (messages, messages),
                    "{name}"
                );
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_blocks_of_any_number_of_ranks(
            counts in vec(0_usize..20, 1..20),
            sums in any::<bool>(),
            seed in any::<u64>(),
        ) {
            let even = vec![counts[0]; counts.len()];
            for (counts, equal) in [(counts, false), (even, true)] {
                let total = counts.iter().sum();
                let case = match sums {
                    true => Case::new("sum", Op::SUM, Layout::of::<u64>(), total),
                    false => affine(total),
                };
                for algorithm in ALL {
                    check(algorithm, &case, &counts, equal, seed);
                }
            }
        }
    }
}
