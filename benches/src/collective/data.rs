//! Buffers, counts and layouts for a measured operation.

use portolan::coll::Shapes;
use portolan::{Error, ErrorKind, Layout, Result};

use crate::pattern::Collective;

/// Number of neighbours of a rank: the one before it and the one after it.
const SIDES: usize = 2;

/// Buffers for contributions and results: single-precision numbers, each buffer at a page boundary.
#[derive(Debug)]
pub(super) struct Floats {
    memory: Vec<f32>,
    send: std::ops::Range<usize>,
    recv: std::ops::Range<usize>,
    /// Items of each rank's block in a reduce-scatter.
    counts: Vec<usize>,
    /// For operations with several blocks: the items in a block, and the number of blocks.
    block: usize,
    blocks: usize,
}

impl Floats {
    /// Buffers for an operation on `bytes` bytes: the size of the whole message if there is one,
    /// else of one rank's block.
    pub(super) fn new(collective: Collective, bytes: usize, ranks: u32) -> Result<Self> {
        const PAGE: usize = 4096 / size_of::<f32>();
        let (items, ranks) = (bytes / size_of::<f32>(), ranks as usize);
        let counts: Vec<_> = (0..ranks)
            .map(|rank| items / ranks + usize::from(rank < items % ranks))
            .collect();
        let blocks = if collective.is_of_neighbours() {
            SIDES
        } else {
            ranks
        };
        let all = items.checked_mul(blocks);
        // A reduce-scatter in equal blocks uses a vector of at least this length.
        let part = items.div_ceil(ranks);
        let (send, recv) = match collective {
            Collective::Gather | Collective::Allgather => (Some(items), all),
            Collective::Gatherv | Collective::Allgatherv => (Some(items), all),
            Collective::NeighbourAllgather | Collective::NeighbourAllgatherv => (Some(items), all),
            Collective::Scatter | Collective::Scatterv => (all, Some(items)),
            Collective::Alltoall | Collective::Alltoallv | Collective::Alltoallw => (all, all),
            Collective::NeighbourAlltoall
            | Collective::NeighbourAlltoallv
            | Collective::NeighbourAlltoallw => (all, all),
            Collective::ReduceScatterBlock => (part.checked_mul(ranks), Some(part)),
            _ => (Some(items), Some(items)),
        };
        let mut memory = Vec::new();
        let pages = |len: usize| len.checked_next_multiple_of(PAGE);
        let mut total = || {
            let both = pages(send?)?.checked_add(pages(recv?)?)?;
            let total = both.checked_add(PAGE)?;
            memory.try_reserve_exact(total).ok()?;
            Some((total, send?, recv?))
        };
        let Some((total, send, recv)) = total() else {
            let what =
                format!("no memory for a collective operation of {bytes} bytes on {ranks} ranks");
            return Err(Error::new(ErrorKind::Exhausted, what).remedy("measure smaller messages"));
        };
        memory.resize(total, 1.0);
        let first = memory.as_ptr().align_offset(4096).min(PAGE);
        let second = first + send.next_multiple_of(PAGE);
        Ok(Self {
            memory,
            send: first..first + send,
            recv: second..second + recv,
            counts,
            block: items,
            blocks,
        })
    }

    /// The counts of a reduce-scatter, equal counts for all blocks, and the blocks as layouts.
    pub(super) fn lists(&self) -> (Vec<usize>, Vec<usize>, Shapes) {
        let (blocks, block) = (self.blocks, self.block);
        let float = Layout::of::<f32>();
        let shape = |at| (at * block * size_of::<f32>(), block, float.clone());
        let shapes = (0..blocks).map(shape).collect();
        (self.counts.clone(), vec![block; blocks], shapes)
    }

    /// The contribution, and the buffer for results.
    pub(super) fn both(&mut self) -> (&[f32], &mut [f32]) {
        let (front, back) = self.memory.split_at_mut(self.recv.start);
        (&front[self.send.clone()], &mut back[..self.recv.len()])
    }
}
