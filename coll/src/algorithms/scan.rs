//! Scan and exscan.

use super::Algorithm;
use super::partial::Partial;
use super::reduce::{Rooms, segments};
use crate::levels;
use crate::problem::Scan;
use crate::schedule::{Builder, Span};

/// All algorithms for this operation.
pub const ALL: &[Algorithm<Scan>] = &[
    Algorithm {
        name: "recursive-doubling",
        summary: "from the rank 1, 2, 4 ... before: log P rounds of the whole vector, for short ones",
        fits: |_, _| true,
        build: |b, p| {
            if p.exclusive {
                exclusive_doubling(b, p);
            } else {
                doubling(b, p);
            }
        },
    },
    Algorithm {
        name: "chain",
        summary: "in segments from rank to rank, all links busy at once: long ones",
        fits: |_, _| true,
        build: |b, p| {
            if p.exclusive {
                exclusive_chain(b, p);
            } else {
                chain(b, p);
            }
        },
    },
    Algorithm {
        name: "two-level",
        summary: "within each node, between the last ranks of nodes, and on: few messages between nodes",
        fits: |_, _| true,
        build: |b, p| levels::scan(b, p),
    },
];

/// Bytes up to which log P rounds with the whole vector cost less than a chain.
const SHORT: usize = 8 << 10;

/// Chooses an algorithm for one level of a two-level form.
pub(crate) fn by_length(b: &mut Builder, p: &Scan) {
    match (p.input.len() <= SHORT, p.exclusive) {
        (true, false) => doubling(b, p),
        (true, true) => exclusive_doubling(b, p),
        (false, false) => chain(b, p),
        (false, true) => exclusive_chain(b, p),
    }
}

/// The ranks `distance` before and after, if they exist.
fn neighbours(b: &Builder, distance: u32) -> (Option<u32>, Option<u32>) {
    let before = b.rank().checked_sub(distance);
    let after = b.rank().checked_add(distance);
    (before, after.filter(|&rank| rank < b.size()))
}

/// The distances of the rounds.
fn distances(size: u32) -> impl Iterator<Item = u32> {
    (0..32)
        .map(|round| 1 << round)
        .take_while(move |&distance| distance < size)
}

/// After a round a rank has the reduction over twice as many ranks as before, of which it is the
/// last.
fn doubling(b: &mut Builder, p: &Scan) {
    let mut partial = Partial::new(p.input, Some(p.output), p.commutative);
    let all = partial.all();
    for distance in distances(b.size()) {
        let (before, after) = neighbours(b, distance);
        if let Some(before) = before {
            let room = partial.room(b, &all);
            b.recv(before, room);
        }
        if let Some(after) = after {
            b.send(after, partial.at());
        }
        b.wait();
        if before.is_some() {
            partial.add(b, false, &all);
        }
    }
    b.copy(partial.at(), p.output);
}

/// The same with two reductions: one with this rank's contribution, for the ranks that come after,
/// and one without it, for the result. It takes as many rounds as the inclusive scan.
fn exclusive_doubling(b: &mut Builder, p: &Scan) {
    let first = b.rank() == 0;
    let like = |b: &mut Builder| b.scratch_like(p.input, p.input.count);
    let in_place = p.input == p.output;
    let result = if in_place && !first {
        like(b)
    } else {
        p.output
    };
    let mut sent = p.input;
    let mut room = None;
    for distance in distances(b.size()) {
        let (before, after) = neighbours(b, distance);
        let Some(before) = before else {
            if let Some(after) = after {
                b.send(after, sent);
            }
            b.wait();
            continue;
        };
        let come = if distance == 1 {
            result
        } else {
            *room.get_or_insert_with(|| like(b))
        };
        b.recv(before, come);
        if let Some(after) = after {
            b.send(after, sent);
        }
        b.wait();
        if come != result {
            b.combine(come, result);
        }
        // The data to be sent next; not needed if there is no rank to send it to in the next round.
        if neighbours(b, distance.saturating_mul(2)).1.is_some() {
            if sent == p.input {
                sent = like(b);
                b.copy(p.input, sent);
            }
            b.combine(come, sent);
        }
    }
    if !first {
        b.copy(result, p.output);
    }
}

/// A rank forwards one segment while it receives the next.
fn chain(b: &mut Builder, p: &Scan) {
    let (before, after) = neighbours(b, 1);
    let count = segments(b, p.input);
    // The data that arrives is combined in the memory of the result, if this order of operands
    // allows it.
    let direct = p.commutative && p.input != p.output;
    let rooms = Rooms::new(b, p.input, count);
    let mut come: Option<(Span, Span, Span)> = None;
    for index in 0..=count {
        let coming = (index < count).then(|| {
            let own = p.input.part(index, count);
            let result = p.output.part(index, count);
            let room = if direct {
                result
            } else {
                rooms.room(index, own)
            };
            match before {
                Some(before) => b.recv(before, room),
                None => b.copy(own, result),
            }
            (own, room, result)
        });
        if let Some((own, room, result)) = come {
            if before.is_some() && direct {
                b.combine(own, result);
            } else if before.is_some() {
                b.copy(own, result);
                b.combine(room, result);
            }
            if let Some(after) = after {
                b.send(after, result);
            }
        }
        b.wait();
        come = coming;
    }
}

fn exclusive_chain(b: &mut Builder, p: &Scan) {
    let (before, after) = neighbours(b, 1);
    let count = segments(b, p.input);
    let rooms = Rooms::new(b, p.input, count);
    let mut come: Option<(Span, Span)> = None;
    for index in 0..=count {
        let coming = (index < count).then(|| {
            let own = p.input.part(index, count);
            let result = p.output.part(index, count);
            let Some(before) = before else {
                return (result, own);
            };
            // The next rank gets this rank's contribution combined with the data that arrives. In
            // place, the contribution has to be moved away before that data arrives.
            let sum = rooms.room(index, own);
            if after.is_some() {
                b.copy(own, sum);
            }
            b.recv(before, result);
            (result, sum)
        });
        if let (Some((result, sum)), Some(after)) = (come, after) {
            if before.is_some() {
                b.combine(result, sum);
            }
            b.send(after, sum);
        }
        b.wait();
        come = coming;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::reference::{Forms, cases};
    use crate::schedule::Base;
    use crate::simulate::{SIZES, Simulation};

    #[test]
    fn every_rank_gets_the_reduction_of_those_up_to_it() {
        for algorithm in ALL {
            for size in SIZES {
                for case in cases() {
                    for (form, exclusive) in
                        Forms::ALL.into_iter().flat_map(|f| [(f, true), (f, false)])
                    {
                        let mut run = Simulation::new(size, 13 + u64::from(size));
                        let (input, output) = case.fill(&mut run, form);
                        let (count, layout) = (case.count, &case.layout);
                        let untouched = run.memory(0, Base::Recv).to_vec();
                        let expected: Vec<_> = (0..size)
                            .map(|rank| case.reduced(&run, form, 0..rank + u32::from(!exclusive)))
                            .collect();
                        let fits = run.schedule_fitting(algorithm, count, layout, |b| {
                            b.set_op(&case.op);
                            let input = b.span(form.base(), input, count, layout);
                            Scan {
                                input,
                                output: match form {
                                    Forms::InPlace => input,
                                    Forms::Apart => b.span(Base::Recv, output, count, layout),
                                },
                                exclusive,
                                commutative: case.op.is_commutative(),
                            }
                        });
                        assert!(fits);
                        run.run(algorithm.name);
                        for (rank, expected) in (0..).zip(expected) {
                            let what = (algorithm.name, size, rank, form, exclusive, &case);
                            if exclusive && rank == 0 {
                                assert_eq!(run.memory(0, Base::Recv), untouched, "{what:?}");
                            } else {
                                let got = run.packed(rank, Base::Recv, layout, count);
                                assert_eq!(got, expected, "{what:?}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn doubling_takes_log_p_rounds() {
        let layout = portolan_datatype::Layout::of::<u32>();
        for exclusive in [false, true] {
            let mut run = Simulation::new(9, 1);
            run.schedule_all(|b| {
                let p = Scan {
                    input: b.span(Base::Send, 0, 1, &layout),
                    output: b.span(Base::Recv, 0, 1, &layout),
                    exclusive,
                    commutative: true,
                };
                (ALL[0].build)(b, &p);
            });
            // The last rank waits in every round, the first sends in every round.
            assert_eq!(run.schedule(8).waits(), 4);
            assert_eq!(run.schedule(0).messages(), 4);
            assert_eq!(run.schedule(8).messages(), 0);
        }
    }
}
