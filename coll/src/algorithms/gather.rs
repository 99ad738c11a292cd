//! Gathers: every rank's block to the root.

use super::around::recv_around;
use super::knomial::{self, Knomial};
use super::{Algorithm, before};
use crate::levels;
use crate::problem::Gather;
use crate::schedule::Builder;

/// All algorithms for this operation.
pub const ALL: &[Algorithm<Gather>] = &[
    Algorithm {
        name: "linear",
        summary: "every rank sends to the root: no byte moves twice, but the root takes P messages",
        fits: |_, _| true,
        build: |b, p| linear(b, p),
    },
    Algorithm {
        name: "binomial",
        summary: "up a binomial tree: log P rounds of growing messages, for short blocks of one length",
        fits: |p, _| p.each.is_some(),
        build: |b, p| tree(b, p, 2),
    },
    Algorithm {
        name: knomial::NAME,
        summary: "up a tree of a radix, 4 unless the rule says radix=K: fewer rounds, for short blocks of one length",
        fits: |p, _| p.each.is_some(),
        build: |b, p| tree(b, p, b.radix()),
    },
    Algorithm {
        name: "two-level",
        summary: "each node to one leader, one message from each leader to the root: blocks of one length",
        fits: |p, _| p.each.is_some(),
        build: |b, p| levels::gather(b, p),
    },
];

/// The tree is only better for blocks of at most this many bytes, and with more than this many
/// ranks.
const SHORT: usize = 2 << 10;
const FEW: u32 = 4;

/// The tree for short blocks of many ranks; otherwise straight to the root.
pub(crate) fn by_length(b: &mut Builder, p: &Gather) {
    match p.each {
        Some(each) if each <= SHORT && b.size() > FEW => tree(b, p, 2),
        _ => linear(b, p),
    }
}

pub(crate) fn linear(b: &mut Builder, p: &Gather) {
    match &p.blocks {
        Some(blocks) => {
            let others = (0..b.size()).filter(|&rank| rank != p.root);
            others.for_each(|rank| b.recv(rank, blocks.of(rank)));
            b.copy(p.mine, blocks.of(p.root));
        }
        None => b.send(p.root, p.mine),
    }
    b.wait();
}

/// The blocks below a rank in the tree are those of the ranks that follow it, wrapping around.
fn tree(b: &mut Builder, p: &Gather, radix: u32) {
    let (rank, size, root) = (b.rank(), b.size(), p.root);
    let tree = Knomial::new(rank, size, root, radix);
    let below = |rank: u32| Knomial::new(rank, size, root, radix).below();
    if let Some(blocks) = &p.blocks {
        let children = tree.children();
        let incoming: Vec<_> = children
            .map(|child| recv_around(b, child, blocks, child, below(child)))
            .collect();
        b.copy(p.mine, blocks.of(rank));
        b.wait();
        incoming
            .into_iter()
            .for_each(|blocks_of| blocks_of.unpack(b, blocks));
        return;
    }
    let mut parcel = p.mine;
    if below(rank) > 1 {
        let each = p.mine.len();
        parcel = b.scratch(below(rank) as usize * each);
        for child in tree.children() {
            let first = before(child, rank, size) as usize * each;
            b.recv(child, parcel.items(first, below(child) as usize * each));
        }
        b.copy(p.mine, parcel.items(0, each));
        b.wait();
    }
    if let Some(parent) = tree.parent() {
        b.send(parent, parcel);
    }
    b.wait();
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::algorithms::moved::{Shape, gathered, shapes};
    use crate::algorithms::moving::{Form, LAYOUTS};
    use crate::simulate::{Random, SIZES};

    #[test]
    fn the_root_gets_every_block_in_every_form() {
        let mut random = Random::new(3);
        for algorithm in ALL {
            for size in SIZES {
                for shape in shapes(size, &mut random) {
                    let root = random.below(size as usize) as u32;
                    for (root, in_place) in [(root, false), (root, true), (0, false)] {
                        gathered(algorithm, root, in_place, &shape, &mut random);
                    }
                }
            }
        }
    }

    #[test]
    fn a_binomial_tree_costs_one_message_per_rank_and_the_root_one_wait() {
        let mut random = Random::new(4);
        let shape = Shape::new(Form::Equal, 0, vec![3; 13]);
        let binomial = &ALL[1];
        let all = gathered(binomial, 5, false, &shape, &mut random).expect("it fits");
        assert!((0..13).all(|rank| all.sent(rank) == usize::from(rank != 5)));
        assert_eq!(all.waits(5), 1);
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
                    gathered(algorithm, root, in_place, &shape, &mut random);
                }
            }
        }
    }
}
