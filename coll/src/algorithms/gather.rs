//! Gathers: every rank's block to the root.

use portolan_core::comm::Binomial;

use super::around::{recv_around, subtree};
use super::{Algorithm, before};
use crate::problem::Gather;
use crate::schedule::Builder;

/// All of them.
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
        build: |b, p| binomial(b, p),
    },
];

fn linear(b: &mut Builder, p: &Gather) {
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

/// What is below a rank in the tree are the blocks of the ranks that follow it, around.
fn binomial(b: &mut Builder, p: &Gather) {
    let (rank, size, root) = (b.rank(), b.size(), p.root);
    let tree = Binomial::new(rank, size, root);
    let below = |rank: u32| subtree(before(rank, root, size), size);
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
