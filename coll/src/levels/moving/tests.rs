//! Made-up nodes, as in the tests of the other levels.

use super::*;
use crate::algorithms::moved::{Shape, allgathered, exchanged, gathered, scattered, shapes};
use crate::algorithms::moving::Form;
use crate::algorithms::{ALLGATHER, ALLTOALL, GATHER, SCATTER};
use crate::levels::tests::{crossings, maps, named};
use crate::simulate::Random;

/// Calls `each` for every form of blocks on every map of nodes.
fn placed(random: &mut Random, mut each: impl FnMut(&Shape, &Levels, &mut Random)) {
    for map in maps() {
        let levels = Arc::new(Levels::new(map.iter().copied()));
        for mut shape in shapes(map.len() as u32, random) {
            shape.levels = Some(Arc::clone(&levels));
            each(&shape, &levels, random);
        }
    }
}

/// Whether there is data in every block, and the nodes make a difference.
fn tells(shape: &Shape, levels: &Levels) -> bool {
    levels.are_useful() && shape.units.iter().all(|&units| units > 0)
}

#[test]
fn a_gather_takes_one_message_from_each_other_node() {
    let algorithm = named(GATHER, "two-level");
    placed(&mut Random::new(21), |shape, levels, random| {
        for root in 0..shape.units.len() as u32 {
            for in_place in [false, true] {
                let run = gathered(algorithm, root, in_place, shape, random);
                assert_eq!(run.is_some(), shape.form == Form::Equal);
                if let Some(run) = run.filter(|_| tells(shape, levels)) {
                    assert_eq!(crossings(&run, levels), levels.nodes() as usize - 1);
                }
            }
        }
    });
}

#[test]
fn a_scatter_sends_one_message_to_each_other_node() {
    let algorithm = named(SCATTER, "two-level");
    placed(&mut Random::new(22), |shape, levels, random| {
        for root in 0..shape.units.len() as u32 {
            for in_place in [false, true] {
                let run = scattered(algorithm, root, in_place, shape, random);
                assert_eq!(run.is_some(), shape.form == Form::Equal);
                if let Some(run) = run.filter(|_| tells(shape, levels)) {
                    assert_eq!(crossings(&run, levels), levels.nodes() as usize - 1);
                }
            }
        }
    });
}

#[test]
fn an_allgather_crosses_between_nodes_as_seldom_as_it_can() {
    for name in ["two-level", "node-ring"] {
        let algorithm = named(ALLGATHER, name);
        placed(&mut Random::new(23), |shape, levels, random| {
            for in_place in [false, true] {
                let mixed = Shape {
                    mixed: shape.form == Form::Equal,
                    ..shape.clone()
                };
                allgathered(algorithm, in_place, &mixed, random).expect("it fits");
                let run = allgathered(algorithm, in_place, shape, random).expect("it fits");
                if !tells(shape, levels) {
                    continue;
                }
                let (nodes, ranks) = (levels.nodes(), shape.units.len());
                let expected = match name {
                    "two-level" => nodes * nodes.next_power_of_two().ilog2(),
                    _ => nodes * (ranks as u32 - 1),
                };
                assert_eq!(crossings(&run, levels), expected as usize, "{name}");
            }
        });
    }
}

#[test]
fn long_blocks_go_around_the_leaders_in_a_ring() {
    let mut shape = Shape::new(Form::Equal, 0, vec![700; 5]);
    let levels = Arc::new(Levels::new([4, 4, 2, 2, 1]));
    shape.levels = Some(Arc::clone(&levels));
    let algorithm = named(ALLGATHER, "two-level");
    let run = allgathered(algorithm, false, &shape, &mut Random::new(24)).expect("it fits");
    assert_eq!(crossings(&run, &levels), 3 * 2);
}

#[test]
fn an_all_to_all_sends_one_message_between_any_two_nodes() {
    let algorithm = named(ALLTOALL, "two-level");
    placed(&mut Random::new(25), |shape, levels, random| {
        for in_place in [false, true] {
            let units = |_, _| shape.units[0];
            let run = exchanged(algorithm, in_place, shape, units, random);
            assert_eq!(run.is_some(), shape.form == Form::Equal);
            if let Some(run) = run.filter(|_| tells(shape, levels)) {
                let nodes = levels.nodes() as usize;
                assert_eq!(crossings(&run, levels), nodes * (nodes - 1));
            }
        }
    });
}

#[test]
fn blocks_that_lie_side_by_side_are_not_packed() {
    let mut shape = Shape::new(Form::Equal, 0, vec![3; 6]);
    let levels = Arc::new(Levels::new([0, 0, 0, 1, 1, 1]));
    shape.levels = Some(levels);
    let random = &mut Random::new(26);
    let gather = gathered(named(GATHER, "two-level"), 1, false, &shape, random).expect("it fits");
    let scatter = scattered(named(SCATTER, "two-level"), 1, false, &shape, random);
    let allgather = allgathered(named(ALLGATHER, "two-level"), false, &shape, random);
    for run in [scatter.expect("it fits"), gather] {
        assert_eq!(run.schedule(1).scratch(), 0, "the root");
        assert_eq!(run.schedule(2).scratch(), 0, "no leader");
        assert_ne!(
            run.schedule(3).scratch(),
            0,
            "a leader with a node behind it"
        );
    }
    let allgather = allgather.expect("it fits");
    assert!((0..6).all(|rank| allgather.schedule(rank).scratch() == 0));
}
