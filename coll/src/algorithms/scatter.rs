//! Scatters: a block of the root's to every rank.

use portolan_core::comm::Binomial;

use super::around::{send_around, subtree};
use super::{Algorithm, before};
use crate::problem::Scatter;
use crate::schedule::Builder;

/// All of them.
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
        build: |b, p| binomial(b, p),
    },
];

fn linear(b: &mut Builder, p: &Scatter) {
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

/// What goes down to a rank are the blocks of itself and of the ranks that follow it, around.
fn binomial(b: &mut Builder, p: &Scatter) {
    let (rank, size, root) = (b.rank(), b.size(), p.root);
    let tree = Binomial::new(rank, size, root);
    let below = |rank: u32| subtree(before(rank, root, size), size);
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
