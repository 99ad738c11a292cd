//! Allreduce.

use super::partial::{Fold, Partial};
use super::reduce_scatter::ring_reduce;
use super::{Algorithm, after, bcast, before, reduce};
use crate::levels;
use crate::problem::{Allreduce, Bcast, Reduce};
use crate::schedule::Builder;

/// All algorithms for this operation.
pub const ALL: &[Algorithm<Allreduce>] = &[
    Algorithm {
        name: "recursive-doubling",
        summary: "with the rank at distance 1, 2, 4 ...: log P rounds of the whole vector, for short ones",
        fits: |_, _| true,
        build: |b, p| recursive_doubling(b, p),
    },
    Algorithm {
        name: "reduce-bcast",
        summary: "up a binomial tree and down again: fewest messages, 2 (P - 1) of them",
        fits: |_, _| true,
        build: |b, p| reduce_bcast(b, p),
    },
    Algorithm {
        name: "rabenseifner",
        summary: "halves at distance 1, 2, 4 ... and back: 2 log P rounds, 2 vectors sent: long ones",
        fits: |_, ask| ask.items >= ask.ranks as usize,
        build: |b, p| rabenseifner(b, p),
    },
    Algorithm {
        name: "ring",
        summary: "parts around a ring, in segments, twice: 2 (P - 1) rounds with the neighbours only",
        fits: |p, ask| p.commutative && ask.items >= ask.ranks as usize,
        build: |b, p| ring(b, p),
    },
    Algorithm {
        name: "two-level",
        summary: "each node to its leader, the leaders with each other, and back: few messages between nodes",
        fits: |_, _| true,
        build: |b, p| levels::allreduce(b, p),
    },
    Algorithm {
        name: "node-ring",
        summary: "a ring through one node after the other: the longest ones",
        fits: |p, ask| p.commutative && ask.items >= ask.ranks as usize,
        build: |b, p| levels::allreduce_ring(b, p),
    },
];

/// Bytes up to which one round with the whole vector costs less than two with half of it.
const SHORT: usize = 8 << 10;

/// Chooses an algorithm for one level of a two-level form.
pub(crate) fn by_length(b: &mut Builder, p: &Allreduce) {
    if p.input.len() > SHORT && p.input.count >= b.size() as usize {
        rabenseifner(b, p);
    } else {
        recursive_doubling(b, p);
    }
}

pub(crate) fn recursive_doubling(b: &mut Builder, p: &Allreduce) {
    let fold = Fold::new(b.size(), 0);
    let mut partial = Partial::new(p.input, Some(p.output), p.commutative);
    if let Some(place) = fold.enter(b, &mut partial) {
        let all = partial.all();
        for round in 0..fold.rounds() {
            let peer = fold.rank(place ^ 1 << round);
            partial.exchange(b, peer, &all, &all);
        }
        b.copy(partial.at(), p.output);
    }
    fold.leave(b, p.output);
}

fn reduce_bcast(b: &mut Builder, p: &Allreduce) {
    let root = 0;
    let up = Reduce {
        input: p.input,
        output: (b.rank() == root).then_some(p.output),
        root,
        commutative: p.commutative,
    };
    reduce::binomial(b, &up);
    let data = p.output;
    bcast::binomial(b, &Bcast { data, root });
}

/// A reduce-scatter, then an allgather with the same rounds in reverse order.
fn rabenseifner(b: &mut Builder, p: &Allreduce) {
    let fold = Fold::new(b.size(), 0);
    let mut partial = Partial::new(p.input, Some(p.output), p.commutative);
    if let Some(place) = fold.enter(b, &mut partial) {
        reduce::halve(b, &fold, place, &mut partial);
        let count = p.output.count;
        let output = |place: u32, rounds: u32| {
            let share = fold.share(place, rounds, count);
            p.output.items(share.start, share.len())
        };
        let mine = fold.share(place, fold.rounds(), count);
        b.copy(partial.items(&mine), output(place, fold.rounds()));
        for round in (0..fold.rounds()).rev() {
            let peer = place ^ 1 << round;
            b.recv(fold.rank(peer), output(peer, round + 1));
            b.send(fold.rank(peer), output(place, round + 1));
            b.wait();
        }
    }
    fold.leave(b, p.output);
}

pub(crate) fn ring(b: &mut Builder, p: &Allreduce) {
    let (rank, size) = (b.rank(), b.size());
    let parts = size as usize;
    let part = |part: u32| p.output.part(part as usize, parts);
    let input = |part: u32| p.input.part(part as usize, parts);
    let (longest, direct) = (p.input.part(0, parts).count, p.input != p.output);
    ring_reduce(b, input, longest, part(rank), direct);
    let (left, right) = (before(rank, 1, size), after(rank, 1, size));
    for round in 0..size - 1 {
        b.recv(left, part(before(rank, round + 1, size)));
        b.send(right, part(before(rank, round, size)));
        b.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::reference::{Forms, cases};
    use crate::schedule::Base;
    use crate::simulate::{SIZES, Simulation};

    #[test]
    fn everybody_gets_the_reduction_of_all() {
        for algorithm in ALL {
            for size in SIZES {
                for case in cases() {
                    for form in Forms::ALL {
                        let mut run = Simulation::new(size, 3 + u64::from(size));
                        let (input, output) = case.fill(&mut run, form);
                        let expected = case.reduced(&run, form, 0..size);
                        let (count, layout) = (case.count, &case.layout);
                        let fits = run.schedule_fitting(algorithm, count, layout, |b| {
                            b.set_op(&case.op);
                            Allreduce {
                                input: b.span(form.base(), input, count, layout),
                                output: b.span(Base::Recv, output, count, layout),
                                commutative: case.op.is_commutative(),
                            }
                            .in_form(form)
                        });
                        if fits {
                            run.run(algorithm.name);
                            for rank in 0..size {
                                let got = run.packed(rank, Base::Recv, layout, count);
                                let what = (algorithm.name, size, rank, form, &case);
                                assert_eq!(got, expected, "{what:?}");
                            }
                        }
                    }
                }
            }
        }
    }

    impl Allreduce {
        /// In place, contribution and result are the very same span.
        fn in_form(mut self, form: Forms) -> Self {
            if form == Forms::InPlace {
                self.input = self.output;
            }
            self
        }
    }

    fn written(size: u32, name: &str, count: usize) -> Simulation {
        let mut run = Simulation::new(size, 1);
        let layout = portolan_datatype::Layout::of::<f64>();
        let algorithm = ALL.iter().find(|known| known.name == name).expect("known");
        let fits = run.schedule_fitting(algorithm, count, &layout, |b| Allreduce {
            input: b.span(Base::Send, 0, count, &layout),
            output: b.span(Base::Recv, 0, count, &layout),
            commutative: true,
        });
        assert!(fits);
        run
    }

    #[test]
    fn messages_and_waits_are_as_few_as_the_names_promise() {
        for (size, name, messages, waits) in [
            (8, "recursive-doubling", 3, 3),
            (8, "rabenseifner", 6, 6),
            (8, "ring", 14, 14),
            (2, "recursive-doubling", 1, 1),
        ] {
            let run = written(size, name, 64);
            for rank in 0..size {
                let schedule = run.schedule(rank);
                assert_eq!(
                    (schedule.messages(), schedule.waits()),
                    (messages, waits),
                    "{name}"
                );
            }
        }
        // Ranks 0 and 1 are folded into one, which has two rounds and the message back; the four
        // ranks that stay take two rounds each.
        let run = written(5, "recursive-doubling", 1);
        let messages: Vec<_> = (0..5).map(|rank| run.schedule(rank).messages()).collect();
        assert_eq!(messages, [3, 1, 2, 2, 2]);
        let run = written(6, "reduce-bcast", 1);
        let messages: usize = (0..6).map(|rank| run.schedule(rank).messages()).sum();
        assert_eq!(messages, 10);
    }

    #[test]
    fn beside_a_computation_long_vectors_take_few_rounds() {
        let (count, layout) = (1 << 20, portolan_datatype::Layout::of::<f64>());
        for (size, name, most) in [(2, "ring", 5), (4, "ring", 15), (4, "rabenseifner", 4)] {
            let mut run = Simulation::new(size, 1);
            let algorithm = ALL.iter().find(|known| known.name == name).expect("known");
            run.schedule_fitting(algorithm, count, &layout, |b| {
                b.leave_unattended();
                Allreduce {
                    input: b.span(Base::Send, 0, count, &layout),
                    output: b.span(Base::Recv, 0, count, &layout),
                    commutative: true,
                }
            });
            for rank in 0..size {
                let waits = run.schedule(rank).waits();
                assert!(waits <= most, "{name} {size} {waits}");
            }
        }
    }

    #[test]
    fn a_commutative_operator_needs_no_copy() {
        for name in ["recursive-doubling", "rabenseifner"] {
            for size in [2, 3, 4, 8] {
                let run = written(size, name, 64);
                for rank in 0..size {
                    let steps = run.schedule(rank).steps();
                    let copies = |s: &&crate::schedule::Step| {
                        matches!(s, crate::schedule::Step::Copy { .. })
                    };
                    assert_eq!(steps.iter().find(copies), None, "{name} {size} {rank}");
                }
            }
        }
    }
}
