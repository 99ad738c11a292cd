//! Made-up nodes: uneven, interleaved, and with roots that are not the first rank of their node.

use super::*;
use crate::algorithms::reference::{Forms, affine, cases};
use crate::algorithms::{ALLREDUCE, Algorithm, BARRIER, BCAST, REDUCE};
use crate::problem::Barrier;
use crate::schedule::{Base, Step};
use crate::simulate::Simulation;

/// Maps from ranks to nodes.
pub(super) fn maps() -> Vec<Vec<u32>> {
    vec![
        vec![0, 0],
        vec![0, 1, 1],
        vec![5, 5, 5, 2, 2],
        vec![0, 1, 0, 1, 0, 1],
        vec![3, 1, 1, 4, 1, 5, 9, 1],
        vec![0, 0, 0, 0, 1, 2, 2, 3, 3, 3],
        vec![2, 1, 0, 0, 1, 2, 2, 2, 2, 2, 2, 1, 7],
    ]
}

pub(super) fn named<P>(list: &'static [Algorithm<P>], name: &str) -> &'static Algorithm<P> {
    list.iter().find(|known| known.name == name).expect("known")
}

/// Number of messages between nodes.
pub(super) fn crossings(run: &Simulation, levels: &Levels) -> usize {
    let crossing = |rank: u32| {
        let steps = run.schedule(rank).steps().iter();
        steps.filter(move |step| match step {
            Step::Send { to, .. } => levels.node_of(*to) != levels.node_of(rank),
            _ => false,
        })
    };
    (0..run.size()).map(|rank| crossing(rank).count()).sum()
}

#[test]
fn nodes_are_counted_by_their_first_ranks() {
    let levels = Levels::new([5, 2, 5, 2, 9]);
    assert_eq!(
        [0, 1, 2, 3, 4].map(|rank| levels.node_of(rank)),
        [0, 1, 0, 1, 2]
    );
    assert_eq!(*levels.by_node, [0, 2, 1, 3, 4]);
    assert!(levels.are_useful() && !levels.are_consecutive());
    assert!(Levels::new([8, 8, 1]).are_consecutive());
    assert!(!Levels::new([1, 1]).are_useful() && !Levels::new([1, 2]).are_useful());
    let teams = levels.teams(3, 3);
    assert_eq!((teams.leader, teams.root), (1, 1));
    let across = teams.across.expect("the root is a leader");
    assert_eq!(
        (0..3).map(|place| across.member(place)).collect::<Vec<_>>(),
        [0, 3, 4]
    );
    assert!(levels.teams(1, 3).across.is_none());
}

#[test]
fn nobody_leaves_a_barrier_before_everybody_has_come() {
    for map in maps() {
        let levels = Arc::new(Levels::new(map.clone()));
        let mut run = Simulation::new(map.len() as u32, 5);
        run.schedule_all(|b| {
            b.set_levels(Some(Arc::clone(&levels)));
            (named(BARRIER, "two-level").build)(b, &Barrier);
        });
        run.assert_synchronises("two-level");
        if levels.are_useful() {
            let rounds = levels.nodes().next_power_of_two().ilog2();
            assert_eq!(crossings(&run, &levels), (levels.nodes() * rounds) as usize);
        }
    }
}

#[test]
fn a_broadcast_reaches_everybody_and_each_node_once() {
    let layout = portolan_datatype::Layout::of::<u32>();
    for map in maps() {
        let levels = Arc::new(Levels::new(map.clone()));
        let size = map.len() as u32;
        for root in 0..size {
            for (name, count) in [("two-level", 5), ("two-level", 0), ("node-chain", 40_000)] {
                let mut run = Simulation::new(size, 7);
                run.fill(Base::Recv, &layout, count);
                run.schedule_fitting(named(BCAST, name), count, &layout, |b| {
                    b.set_levels(Some(Arc::clone(&levels)));
                    let data = b.span(Base::Recv, 0, count, &layout);
                    Bcast { data, root }
                });
                let expected = run.packed(root, Base::Recv, &layout, count);
                run.run(name);
                for rank in 0..size {
                    let got = run.packed(rank, Base::Recv, &layout, count);
                    assert_eq!(got, expected, "{name} {map:?} {root}");
                }
                let crossed = crossings(&run, &levels);
                let segments = (count * 4).div_ceil(64 << 10);
                match name {
                    _ if count == 0 || !levels.are_useful() => {}
                    "two-level" => assert_eq!(crossed, levels.nodes() as usize - 1),
                    // A root in the middle of its node divides the node in two.
                    _ => assert!(crossed <= levels.nodes() as usize * segments, "{crossed}"),
                }
            }
        }
    }
}

#[test]
fn a_reduction_reaches_its_root_from_any_nodes() {
    for map in maps() {
        let levels = Arc::new(Levels::new(map.clone()));
        let size = map.len() as u32;
        for (number, case) in (0..).zip(cases()) {
            for form in Forms::ALL {
                let root = number % size;
                let mut run = Simulation::new(size, 9);
                let (input, output) = case.fill(&mut run, form);
                let base = |rank| {
                    if rank == root {
                        form.base()
                    } else {
                        Base::Send
                    }
                };
                let expected = case.reduced_from(&run, base, 0..size);
                run.schedule_fitting(named(REDUCE, "two-level"), case.count, &case.layout, |b| {
                    b.set_levels(Some(Arc::clone(&levels)));
                    b.set_op(&case.op);
                    let input = b.span(base(b.rank()), input, case.count, &case.layout);
                    let output = match form {
                        Forms::InPlace => input,
                        Forms::Apart => b.span(Base::Recv, output, case.count, &case.layout),
                    };
                    Reduce {
                        input,
                        output: (b.rank() == root).then_some(output),
                        root,
                        commutative: case.op.is_commutative(),
                    }
                });
                run.run("two-level");
                let got = run.packed(root, Base::Recv, &case.layout, case.count);
                assert_eq!(got, expected, "{map:?} {root} {case:?}");
            }
        }
    }
}

#[test]
fn an_allreduce_reaches_everybody_from_any_nodes() {
    for map in maps() {
        let levels = Arc::new(Levels::new(map.clone()));
        let size = map.len() as u32;
        let long = affine(3_000);
        for case in cases().into_iter().chain([long]) {
            for (name, form) in [
                ("two-level", Forms::Apart),
                ("two-level", Forms::InPlace),
                ("node-ring", Forms::Apart),
            ] {
                let mut run = Simulation::new(size, 11);
                let (input, output) = case.fill(&mut run, form);
                let expected = case.reduced(&run, form, 0..size);
                let algorithm = named(ALLREDUCE, name);
                let fits = run.schedule_fitting(algorithm, case.count, &case.layout, |b| {
                    b.set_levels(Some(Arc::clone(&levels)));
                    b.set_op(&case.op);
                    let input = b.span(form.base(), input, case.count, &case.layout);
                    Allreduce {
                        input,
                        output: match form {
                            Forms::InPlace => input,
                            Forms::Apart => b.span(Base::Recv, output, case.count, &case.layout),
                        },
                        commutative: case.op.is_commutative(),
                    }
                });
                if !fits {
                    continue;
                }
                run.run(name);
                for rank in 0..size {
                    let got = run.packed(rank, Base::Recv, &case.layout, case.count);
                    assert_eq!(got, expected, "{name} {map:?} {rank} {case:?}");
                }
            }
        }
    }
}
