//! Scatters: a block of the root's to every rank.

use super::around::send_around;
use super::knomial::{self, Knomial};
use super::{Algorithm, before};
use crate::levels;
use crate::problem::Scatter;
use crate::schedule::Builder;

/// All algorithms for this operation.
pub const ALL: &[Algorithm<Scatter>] = &[
    Algorithm {
        name: "linear",
        summary: "the root sends to every rank: no byte moves twice, but the root sends P messages",
        fits: |_, _| true,
        build: |b, p| linear(b, p),
    },
    Algorithm {
        name: "binomial",
        summary: "down a binomial tree: log P rounds of shrinking messages, for short blocks of one length",
        fits: |p, _| p.each.is_some(),
        build: |b, p| tree(b, p, 2),
    },
    Algorithm {
        name: knomial::NAME,
        summary: "down a tree of a radix, 4 unless the rule says radix=K: fewer rounds, for short blocks of one length",
        fits: |p, _| p.each.is_some(),
        build: |b, p| tree(b, p, b.radix()),
    },
    Algorithm {
        name: "two-level",
        summary: "one message from the root to a leader of each node, and from it to the node: blocks of one length",
        fits: |p, _| p.each.is_some(),
        build: |b, p| levels::scatter(b, p),
    },
];

/// The tree is only better for blocks of at most this many bytes, and with more than this many
/// ranks.
const SHORT: usize = 2 << 10;
const FEW: u32 = 4;

/// The tree for short blocks of many ranks; otherwise straight from the root.
pub(crate) fn by_length(b: &mut Builder, p: &Scatter) {
    match p.each {
        Some(each) if each <= SHORT && b.size() > FEW => tree(b, p, 2),
        _ => linear(b, p),
    }
}

pub(crate) fn linear(b: &mut Builder, p: &Scatter) {
    match &p.blocks {
        Some(blocks) => {
            let others = (0..b.size()).filter(|&rank| rank != p.root);
            others.for_each(|rank| b.send(rank, blocks.of(rank)));
            b.copy(blocks.of(p.root), p.mine);
        }
        None => b.recv(p.root, p.mine),
    }
    b.wait();
}

/// A rank receives its own block and those of the ranks that follow it, wrapping around.
fn tree(b: &mut Builder, p: &Scatter, radix: u32) {
    let (rank, size, root) = (b.rank(), b.size(), p.root);
    let tree = Knomial::new(rank, size, root, radix);
    let below = |rank: u32| Knomial::new(rank, size, root, radix).below();
    if let Some(blocks) = &p.blocks {
        for child in tree.children() {
            send_around(b, child, blocks, child, below(child));
        }
        b.copy(blocks.of(rank), p.mine);
        return b.wait();
    }
    let each = p.mine.len();
    let parcel = match below(rank) {
        1 => p.mine,
        blocks => b.scratch(blocks as usize * each),
    };
    if let Some(parent) = tree.parent() {
        b.recv(parent, parcel);
    }
    b.wait();
    if below(rank) > 1 {
        for child in tree.children() {
            let first = before(child, rank, size) as usize * each;
            b.send(child, parcel.items(first, below(child) as usize * each));
        }
        b.copy(parcel.items(0, each), p.mine);
        b.wait();
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::algorithms::moved::{Shape, scattered, shapes};
    use crate::algorithms::moving::{Form, LAYOUTS};
    use crate::simulate::{Random, SIZES};

    #[test]
    fn every_rank_gets_its_part_in_every_form() {
        let mut random = Random::new(5);
        for algorithm in ALL {
            for size in SIZES {
                for shape in shapes(size, &mut random) {
                    let root = random.below(size as usize) as u32;
                    for (root, in_place) in [(root, false), (root, true), (0, false)] {
                        scattered(algorithm, root, in_place, &shape, &mut random);
                    }
                }
            }
        }
    }

    #[test]
    fn a_binomial_tree_costs_the_root_log_p_messages() {
        let mut random = Random::new(6);
        let shape = Shape::new(Form::Equal, 0, vec![3; 13]);
        let binomial = &ALL[1];
        let all = scattered(binomial, 5, false, &shape, &mut random).expect("it fits");
        assert_eq!((all.sent(5), all.waits(5)), (4, 1));
        assert_eq!((0..13).map(|rank| all.sent(rank)).sum::<usize>(), 12);
        assert!((0..13).all(|rank| all.waits(rank) <= 2));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_blocks_at_any_root(
            units in vec(0_usize..9, 1..20),
            layout in 0..LAYOUTS,
            root in any::<prop::sample::Index>(),
            in_place in any::<bool>(),
            seed in any::<u64>(),
        ) {
            let mut random = Random::new(seed);
            let root = root.index(units.len()) as u32;
            let even = vec![units[0]; units.len()];
            for (form, units) in [(Form::Equal, even), (Form::Blocks, units)] {
                let shape = Shape::new(form, layout, units);
                for algorithm in ALL {
                    scattered(algorithm, root, in_place, &shape, &mut random);
                }
            }
        }
    }
}
