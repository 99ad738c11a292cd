//! Two-level forms of the reductions that leave a separate result at each rank: reduce-scatter,
//! scan, exscan.

use std::sync::Arc;

use super::{Levels, Teams, levels, team};
use crate::algorithms::{bcast, reduce, reduce_scatter as flat, scan as flat_scan, scatter};
use crate::problem::{Bcast, Reduce, ReduceScatter, Scan, Scatter};
use crate::schedule::{Blocks, Builder, Span};
use crate::team::Team;

/// Each node reduces to its leader; each leader gets its node's part of the overall sum, and hands
/// it out.
pub(crate) fn reduce_scatter(b: &mut Builder, p: &ReduceScatter) {
    let Some(levels) = levels(b, p.commutative) else {
        return flat::pairwise(b, p);
    };
    let Teams {
        local,
        leader,
        across,
        ..
    } = levels.teams(b.rank(), 0);
    let alone = local.size() == 1;
    let room = across.as_ref().map(|_| match alone {
        true => p.whole,
        false => b.scratch_like(p.whole, p.whole.count),
    });
    if !alone {
        let up = Reduce {
            input: p.whole,
            output: room,
            root: leader,
            commutative: p.commutative,
        };
        b.within(local.clone(), |b| reduce::by_length(b, &up));
    }
    let handed = across.zip(room).map(|(across, sum)| {
        let whole = sort_by_node(b, &levels, p, sum);
        let blocks = blocks_of_nodes(&levels, p, whole);
        let mine = blocks[across.rank() as usize];
        let output = match alone {
            true => p.output,
            false => b.scratch_like(mine, mine.count),
        };
        let swap = ReduceScatter {
            input: Blocks::Listed(blocks),
            whole,
            output,
            commutative: p.commutative,
        };
        b.within(across, |b| flat::by_order(b, &swap));
        output
    });
    if alone {
        return;
    }
    let node = levels.node_of(b.rank()) as usize;
    let down = Scatter {
        mine: p.output,
        blocks: handed.map(|whole| cut(whole, counts(p, &levels.nodes[node]))),
        root: leader,
        each: None,
    };
    b.within(local, |b| scatter::linear(b, &down));
}

/// Items of the blocks of some ranks.
fn counts<'a>(p: &'a ReduceScatter, ranks: &'a [u32]) -> impl Iterator<Item = usize> + 'a {
    ranks.iter().map(|&rank| p.input.of(rank).count)
}

/// A span divided into blocks of `counts` items.
fn cut(whole: Span, counts: impl Iterator<Item = usize>) -> Blocks {
    let mut next = 0;
    let block = |count: usize| {
        let block = whole.items(next, count);
        next += count;
        block
    };
    Blocks::Listed(counts.map(block).collect())
}

/// The blocks in `sum`, which lie as in the whole contribution, sorted by node; not moved if they
/// are in that order already.
fn sort_by_node(b: &mut Builder, levels: &Levels, p: &ReduceScatter, sum: Span) -> Span {
    if levels.are_consecutive() {
        return sum;
    }
    let all: Vec<u32> = (0..p.input.ranks()).collect();
    let from = cut(sum, counts(p, &all));
    let sorted = b.scratch_like(sum, sum.count);
    let to = cut(sorted, counts(p, &levels.by_node));
    for (place, &rank) in (0..).zip(levels.by_node.iter()) {
        b.copy(from.of(rank), to.of(place));
    }
    sorted
}

/// Each node's part of data that is sorted by nodes.
fn blocks_of_nodes(levels: &Levels, p: &ReduceScatter, whole: Span) -> Vec<Span> {
    let mut next = 0;
    let of_node = |ranks: &Arc<[u32]>| {
        let count = counts(p, ranks).sum();
        let block = whole.items(next, count);
        next += count;
        block
    };
    levels.nodes.iter().map(of_node).collect()
}

/// The ring goes through one node after the other.
pub(crate) fn reduce_scatter_ring(b: &mut Builder, p: &ReduceScatter) {
    let team = match levels(b, true) {
        Some(levels) => levels.by_node(b.rank()),
        None => b.team().clone(),
    };
    let longest = (0..b.size()).map(|rank| p.input.of(rank).count).max();
    let of = team.clone();
    let block = |place: u32| p.input.of(of.member(place));
    b.within(team, |b| {
        flat::ring_reduce(b, block, longest.unwrap_or(0), p.output, !p.in_place());
    });
}

/// A scan within each node. The total of all nodes before goes from the last rank of each node to
/// the other ranks of the next.
///
/// This only works if the ranks of each node are consecutive: otherwise the ranks that come before
/// a node are not those that come before each of its ranks.
pub(crate) fn scan(b: &mut Builder, p: &Scan) {
    let Some(levels) = levels(b, false) else {
        return flat_scan::by_length(b, p);
    };
    let node = levels.node_of(b.rank());
    let local = team(b.rank(), &levels.nodes[node as usize]);
    let (place, last) = (local.rank(), local.size() - 1);
    let mut total = p.output;
    if p.exclusive && place == last {
        total = b.scratch_like(p.input, p.input.count);
        b.copy(p.input, total);
    }
    if last > 0 || !p.exclusive {
        b.within(local.clone(), |b| flat_scan::by_length(b, p));
    }
    if p.exclusive && place == last && last > 0 {
        b.combine(p.output, total);
    }
    if node == 0 && place != last {
        return;
    }
    let before = b.scratch_like(p.input, p.input.count);
    if place == last {
        let of_nodes = Scan {
            input: total,
            output: before,
            exclusive: true,
            commutative: p.commutative,
        };
        b.within(last_ranks(&levels, node), |b| {
            flat_scan::by_length(b, &of_nodes);
        });
    }
    if node == 0 {
        return;
    }
    let down = Bcast {
        data: before,
        root: last,
    };
    b.within(local, |b| bcast::binomial(b, &down));
    if p.exclusive && place == 0 {
        b.copy(before, p.output);
    } else {
        b.combine(before, p.output);
    }
}

/// The last ranks of all nodes, as seen by that of `node`.
fn last_ranks(levels: &Levels, node: u32) -> Team {
    let last = |ranks: &Arc<[u32]>| ranks[ranks.len() - 1];
    Team::of(node, levels.nodes.iter().map(last).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;
