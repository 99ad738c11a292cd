//! Two-level forms of operations that move a block per rank: gather, scatter, allgather, alltoall.
//!
//! The data from one node to another is one message between their leaders, with the blocks of all
//! ranks side by side: a *parcel*. If those blocks lie side by side in the caller's buffer, the
//! parcel lies there; otherwise it lies in scratch memory.

use std::sync::Arc;

use super::{Levels, Teams, levels};
use crate::algorithms::{allgather, alltoall, bcast, gather, scatter};
use crate::problem::{Allgather, Alltoall, Bcast, Gather, Scatter};
use crate::schedule::{Base, Blocks, Builder, Span};

/// An empty span.
const NOTHING: Span = Span {
    base: Base::Scratch,
    offset: 0,
    count: 0,
    layout: crate::schedule::LayoutId::BYTES,
    size: 1,
    extent: 1,
};

/// Blocks of some ranks, in ascending order, in as few spans as possible.
fn pieces(blocks: &Blocks, ranks: &[u32]) -> Vec<Span> {
    let runs = ranks.chunk_by(|&one, &next| one + 1 == next);
    let of_run = |run: &[u32]| match blocks.range(run[0], run.len() as u32) {
        Some(whole) => vec![whole],
        None => run.iter().map(|&rank| blocks.of(rank)).collect(),
    };
    let spans = runs.flat_map(of_run);
    spans.filter(|span| !span.is_empty()).collect()
}

/// The blocks of a node as one span: the blocks themselves if they lie side by side, or else memory
/// for them.
struct Parcel {
    span: Span,
    /// The places its contents come from or go to, if those are elsewhere.
    pieces: Vec<Span>,
}

impl Parcel {
    fn new(b: &mut Builder, blocks: &Blocks, ranks: &[u32]) -> Self {
        let pieces = pieces(blocks, ranks);
        let (span, pieces) = match pieces[..] {
            [] => (NOTHING, pieces),
            [whole] => (whole, Vec::new()),
            _ => {
                let len = pieces.iter().map(Span::len).sum();
                (b.scratch(len), pieces)
            }
        };
        Self { span, pieces }
    }

    fn pack(&self, b: &mut Builder) {
        self.each(|piece, part| b.copy(piece, part));
    }

    fn unpack(&self, b: &mut Builder) {
        self.each(|piece, part| b.copy(part, piece));
    }

    fn each(&self, mut copy: impl FnMut(Span, Span)) {
        let mut at = 0;
        for &piece in &self.pieces {
            copy(piece, self.span.items(at, piece.len()));
            at += piece.len();
        }
    }
}

/// One parcel per node, except for node `home`, where nothing has to be packed.
fn parcels(b: &mut Builder, blocks: &Blocks, levels: &Levels, home: Option<u32>) -> Vec<Parcel> {
    let nodes = (0..).zip(levels.nodes.iter());
    let parcel = |(node, ranks): (u32, &Arc<[u32]>)| match home == Some(node) {
        true => Parcel::new(b, blocks, &[]),
        false => Parcel::new(b, blocks, ranks),
    };
    nodes.map(parcel).collect()
}

fn listed(parcels: &[Parcel]) -> Blocks {
    Blocks::Listed(parcels.iter().map(|parcel| parcel.span).collect())
}

/// The blocks of the ranks of one node, indexed by their places there.
fn blocks_of(blocks: &Blocks, ranks: &[u32]) -> Blocks {
    Blocks::Listed(ranks.iter().map(|&rank| blocks.of(rank)).collect())
}

/// Equal blocks of scratch memory.
fn scratch_blocks(b: &mut Builder, each: usize, ranks: u32) -> Blocks {
    let whole = b.scratch(each * ranks as usize);
    Blocks::Equal { whole, ranks }
}

/// Each node gathers to its leader, and each leader sends a parcel to the root.
pub(crate) fn gather(b: &mut Builder, p: &Gather) {
    let (Some(levels), Some(each)) = (levels(b, true), p.each) else {
        return gather::linear(b, p);
    };
    let teams = levels.teams(b.rank(), p.root);
    let Teams { local, across, .. } = teams;
    let up = |blocks| Gather {
        mine: p.mine,
        blocks,
        root: teams.leader,
        each: p.each,
    };
    if let Some(blocks) = &p.blocks {
        let home = teams.root;
        let mine = blocks_of(blocks, &levels.nodes[home as usize]);
        b.within(local, |b| gather::by_length(b, &up(Some(mine))));
        let parcels = parcels(b, blocks, &levels, Some(home));
        let to_root = Gather {
            mine: NOTHING,
            blocks: Some(listed(&parcels)),
            root: teams.root,
            each: None,
        };
        if let Some(across) = across {
            b.within(across, |b| gather::linear(b, &to_root));
        }
        return parcels.iter().for_each(|parcel| parcel.unpack(b));
    }
    let Some(across) = across else {
        return b.within(local, |b| gather::by_length(b, &up(None)));
    };
    let mut parcel = p.mine;
    if local.size() > 1 {
        let blocks = scratch_blocks(b, each, local.size());
        parcel = whole(&blocks);
        b.within(local, |b| gather::by_length(b, &up(Some(blocks))));
    }
    let to_root = Gather {
        mine: parcel,
        blocks: None,
        root: teams.root,
        each: None,
    };
    b.within(across, |b| gather::linear(b, &to_root));
}

/// The root sends a parcel to each leader, which scatters it to its node.
pub(crate) fn scatter(b: &mut Builder, p: &Scatter) {
    let (Some(levels), Some(each)) = (levels(b, true), p.each) else {
        return scatter::linear(b, p);
    };
    let teams = levels.teams(b.rank(), p.root);
    let Teams { local, across, .. } = teams;
    let down = |blocks| Scatter {
        mine: p.mine,
        blocks,
        root: teams.leader,
        each: p.each,
    };
    if let Some(blocks) = &p.blocks {
        let home = teams.root;
        let parcels = parcels(b, blocks, &levels, Some(home));
        parcels.iter().for_each(|parcel| parcel.pack(b));
        let from_root = Scatter {
            mine: NOTHING,
            blocks: Some(listed(&parcels)),
            root: teams.root,
            each: None,
        };
        if let Some(across) = across {
            b.within(across, |b| scatter::linear(b, &from_root));
        }
        let mine = blocks_of(blocks, &levels.nodes[home as usize]);
        return b.within(local, |b| scatter::by_length(b, &down(Some(mine))));
    }
    let Some(across) = across else {
        return b.within(local, |b| scatter::by_length(b, &down(None)));
    };
    let alone = local.size() == 1;
    let blocks = (!alone).then(|| scratch_blocks(b, each, local.size()));
    let from_root = Scatter {
        mine: blocks.as_ref().map_or(p.mine, whole),
        blocks: None,
        root: teams.root,
        each: None,
    };
    b.within(across, |b| scatter::linear(b, &from_root));
    if !alone {
        b.within(local, |b| scatter::by_length(b, &down(blocks)));
    }
}

/// Each node gathers to its leader, the leaders exchange parcels, and each broadcasts all blocks to
/// its node.
pub(crate) fn allgather(b: &mut Builder, p: &Allgather) {
    let Some(levels) = levels(b, true) else {
        return allgather::bruck(b, p);
    };
    let Teams {
        local,
        leader,
        across,
        ..
    } = levels.teams(b.rank(), 0);
    let node = levels.node_of(b.rank()) as usize;
    let leads = across.is_some();
    let up = Gather {
        mine: p.mine,
        blocks: leads.then(|| blocks_of(&p.blocks, &levels.nodes[node])),
        root: leader,
        each: same_length(&p.blocks),
    };
    b.within(local.clone(), |b| gather::by_length(b, &up));
    if let Some(across) = across {
        let parcels = parcels(b, &p.blocks, &levels, None);
        parcels[node].pack(b);
        let swap = Allgather {
            mine: parcels[node].span,
            blocks: listed(&parcels),
        };
        b.within(across, |b| allgather::by_length(b, &swap));
        let others = parcels.iter().enumerate().filter(|&(of, _)| of != node);
        others.for_each(|(_, parcel)| parcel.unpack(b));
    }
    if local.size() > 1 {
        let all: Vec<u32> = (0..p.blocks.ranks()).collect();
        let everything = Parcel::new(b, &p.blocks, &all);
        if leads {
            everything.pack(b);
        }
        let data = everything.span;
        b.within(local, |b| {
            bcast::binomial(b, &Bcast { data, root: leader });
        });
        if !leads {
            everything.unpack(b);
        }
    }
}

/// The ring goes through one node after the other.
pub(crate) fn allgather_ring(b: &mut Builder, p: &Allgather) {
    let Some(levels) = levels(b, true) else {
        return allgather::ring(b, p);
    };
    let blocks = match levels.are_consecutive() {
        true => p.blocks.clone(),
        false => blocks_of(&p.blocks, &levels.by_node),
    };
    let team = levels.by_node(b.rank());
    let along = Allgather {
        mine: p.mine,
        blocks,
    };
    b.within(team, |b| allgather::ring(b, &along));
}

/// Each node gathers everything to its leader, each leader sends a parcel to each other leader, and
/// scatters what it receives to its ranks.
pub(crate) fn alltoall(b: &mut Builder, p: &Alltoall) {
    let Some(levels) = levels(b, true) else {
        return alltoall::linear(b, p);
    };
    let (size, each) = (b.size(), p.recv.of(0).len());
    let Teams {
        local,
        leader,
        across,
        ..
    } = levels.teams(b.rank(), 0);
    // All the data that a rank has for the others.
    let bundle = each * size as usize;
    let held = across
        .as_ref()
        .map(|_| scratch_blocks(b, bundle, local.size()));
    let up = Gather {
        mine: whole(&p.send),
        blocks: held.clone(),
        root: leader,
        each: Some(bundle),
    };
    b.within(local.clone(), |b| gather::by_length(b, &up));
    let sorted = across.zip(held).map(|(across, held)| {
        let outgoing = sort_by_node(b, &levels, &held, each);
        let lengths = outgoing.iter().map(Span::len).collect::<Vec<_>>();
        let incoming: Vec<_> = lengths.iter().map(|&len| b.scratch(len)).collect();
        let swap = Alltoall {
            send: Blocks::Listed(outgoing),
            recv: Blocks::Listed(incoming.clone()),
        };
        b.within(across, |b| alltoall::linear(b, &swap));
        // The data received into `held` has been sent on.
        sort_by_rank(b, &levels, &incoming, &held, each);
        held
    });
    let down = Scatter {
        mine: whole(&p.recv),
        blocks: sorted,
        root: leader,
        each: Some(bundle),
    };
    b.within(local, |b| scatter::by_length(b, &down));
}

/// The parcel for each node: from each rank here, in order, the blocks for the ranks there.
fn sort_by_node(b: &mut Builder, levels: &Levels, held: &Blocks, each: usize) -> Vec<Span> {
    let here = held.ranks();
    let parcel = |ranks: &Arc<[u32]>| {
        let parcel = b.scratch(here as usize * ranks.len() * each);
        let mut at = 0;
        for place in 0..here {
            let of_all = Blocks::Equal {
                whole: held.of(place),
                ranks: levels.node_of.len() as u32,
            };
            for piece in pieces(&of_all, ranks) {
                b.copy(piece, parcel.items(at, piece.len()));
                at += piece.len();
            }
        }
        parcel
    };
    levels.nodes.iter().map(parcel).collect()
}

/// The data for each rank here, ordered by sender, taken from the parcels: from each rank there,
/// the blocks for the ranks here.
fn sort_by_rank(b: &mut Builder, levels: &Levels, incoming: &[Span], sorted: &Blocks, each: usize) {
    let here = sorted.ranks() as usize;
    for (parcel, ranks) in incoming.iter().zip(levels.nodes.iter()) {
        for (place, &from) in ranks.iter().enumerate() {
            for to in 0..here {
                let block = parcel.items((place * here + to) * each, each);
                let bundle = sorted.of(to as u32);
                b.copy(block, bundle.items(from as usize * each, each));
            }
        }
    }
}

/// The bytes of each block, if all have the same number. All ranks come to the same answer,
/// whatever form each uses for its blocks.
fn same_length(blocks: &Blocks) -> Option<usize> {
    let each = blocks.of(0).len();
    let same = (1..blocks.ranks()).all(|rank| blocks.of(rank).len() == each);
    same.then_some(each)
}

/// Equal blocks as one span.
fn whole(blocks: &Blocks) -> Span {
    // All callers have equal blocks.
    blocks.range(0, blocks.ranks()).unwrap_or(NOTHING)
}

#[cfg(test)]
mod tests;
