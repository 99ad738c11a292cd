//! Made-up nodes, as in the tests of the other levels.

use super::*;
use crate::algorithms::reference::{Case, Forms, affine, cases};
use crate::algorithms::{REDUCE_SCATTER, SCAN};
use crate::levels::tests::{crossings, maps, named};
use crate::schedule::Base;
use crate::simulate::{Random, Simulation};

/// Runs a reduce-scatter of one case with these blocks, on these nodes; `None` if the algorithm
/// does not fit.
fn scattered(name: &str, map: &[u32], case: &Case, counts: &[usize], form: Forms) -> Option<usize> {
    let levels = Arc::new(Levels::new(map.iter().copied()));
    let (total, layout) = (case.count, &case.layout);
    let mut run = Simulation::new(map.len() as u32, 13);
    let (input, output) = case.fill(&mut run, form);
    let expected = case.reduced(&run, form, 0..map.len() as u32);
    let algorithm = named(REDUCE_SCATTER, name);
    let fits = run.schedule_fitting(algorithm, total, layout, |b| {
        b.set_levels(Some(Arc::clone(&levels)));
        b.set_op(&case.op);
        let whole = b.span(form.base(), input, total, layout);
        let output = match form {
            Forms::InPlace => whole,
            Forms::Apart => b.span(Base::Recv, output, total, layout),
        };
        ReduceScatter {
            input: cut(whole, counts.iter().copied()),
            whole,
            output: output.items(0, counts[b.rank() as usize]),
            commutative: case.op.is_commutative(),
        }
    });
    if !fits {
        return None;
    }
    run.run(name);
    let mut next = 0;
    for (rank, &count) in (0..).zip(counts) {
        let got = run.packed(rank, Base::Recv, layout, total);
        let len = count * layout.size();
        let what = (name, map, rank, form, case, counts);
        assert_eq!(got[..len], expected[next..next + len], "{what:?}");
        next += len;
    }
    Some(crossings(&run, &levels))
}

#[test]
fn every_rank_gets_its_block_from_any_nodes() {
    let mut random = Random::new(31);
    for name in ["two-level", "node-ring"] {
        for map in maps() {
            for case in cases().into_iter().chain([affine(3_000)]) {
                // Some of the items for each rank, and the rest for the last.
                let (mut counts, mut left) = (Vec::new(), case.count);
                for _ in 1..map.len() {
                    let count = random
                        .below(2 * case.count.div_ceil(map.len()) + 1)
                        .min(left);
                    counts.push(count);
                    left -= count;
                }
                counts.push(left);
                for form in Forms::ALL {
                    let done = scattered(name, &map, &case, &counts, form);
                    assert!(done.is_some() || name == "node-ring" && !case.op.is_commutative());
                }
            }
        }
    }
}

#[test]
fn leaders_alone_send_to_other_nodes() {
    let map = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3];
    let case = Case::new(
        "sum",
        portolan_datatype::Op::SUM,
        portolan_datatype::Layout::of::<u32>(),
        24,
    );
    let crossed = |name| scattered(name, &map, &case, &[2; 12], Forms::Apart);
    // Each of four leaders halves twice; the ring crosses to each next node in every round.
    assert_eq!(crossed("two-level"), Some(4 * 2));
    assert_eq!(crossed("node-ring"), Some(4 * 11));
}

#[test]
fn every_rank_gets_the_reduction_of_those_up_to_it_from_any_nodes() {
    let algorithm = named(SCAN, "two-level");
    for map in maps() {
        let levels = Arc::new(Levels::new(map.iter().copied()));
        let size = map.len() as u32;
        for case in cases().into_iter().chain([affine(3_000)]) {
            for (form, exclusive) in Forms::ALL.into_iter().flat_map(|f| [(f, false), (f, true)]) {
                let (count, layout) = (case.count, &case.layout);
                let mut run = Simulation::new(size, 15);
                let (input, output) = case.fill(&mut run, form);
                let untouched = run.memory(0, Base::Recv).to_vec();
                let expected: Vec<_> = (0..size)
                    .map(|rank| case.reduced(&run, form, 0..rank + u32::from(!exclusive)))
                    .collect();
                run.schedule_fitting(algorithm, count, layout, |b| {
                    b.set_levels(Some(Arc::clone(&levels)));
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
                run.run(algorithm.name);
                for (rank, expected) in (0..).zip(expected) {
                    let what = (&map, rank, form, exclusive, &case);
                    if exclusive && rank == 0 {
                        assert_eq!(run.memory(0, Base::Recv), untouched, "{what:?}");
                    } else {
                        let got = run.packed(rank, Base::Recv, layout, count);
                        assert_eq!(got, expected, "{what:?}");
                    }
                }
                if levels.are_consecutive() && levels.are_useful() && case.count == 5 {
                    // From each node to those 1, 2, 4 and so on after it.
                    let nodes = levels.nodes();
                    let sent = |distance: u32| nodes.saturating_sub(distance) as usize;
                    let rounds = (0..32).map(|round| sent(1 << round)).sum::<usize>();
                    assert_eq!(crossings(&run, &levels), rounds, "{map:?}");
                }
            }
        }
    }
}
