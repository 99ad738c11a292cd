//! Neighbour collectives on a track: one rank's part.
//!
//! Those with one length for all blocks (MPI-4 section 8.6.1 demands that it is the same on all ranks), so that all know alike
//! whether they go by messages. A rank without edges does not know; it shows that it does, which nobody minds.

use portolan_core::comm::Neighbour;
use portolan_core::{Error, ErrorKind, Result};

use super::board::{Kind, SMALL, SMALL_LIST};
use super::data::Stream;
use super::edges::{Blocks, Edge, Edges, Shown, edges, find};
use super::steps::Place;
use crate::args::{Many, Operation};

/// One rank's part in an operation along edges.
pub(super) struct Along<'a> {
    edges: &'a Edges,
    rank: u32,
    shown: Shown<'a>,
    recv: Many<'a>,
    /// Bytes of a block that it sends, and of one that it receives.
    lens: [usize; 2],
}

impl<'a> Along<'a> {
    /// `None` for an operation that is never done on a track, which all ranks know alike.
    pub(super) fn of(operation: &Operation<'a>, rank: u32, edges: &'a Edges) -> Option<Self> {
        let limit = edges.limit_of_all(SMALL_LIST)?;
        let (blocks, limit, recv) = match *operation {
            Operation::NeighbourAllgather { send, recv } => {
                (Blocks::Same(Stream::of(&send)), SMALL, recv)
            }
            Operation::NeighbourAlltoall { send, recv } => (Blocks::List(send), limit, recv),
            _ => return None,
        };
        let sent = match blocks {
            Blocks::List(Many::Equal(block)) => Stream::of(&block),
            Blocks::Same(block) => block,
            _ => return None,
        };
        let Many::Equal(received) = recv else {
            return None;
        };
        let lens = [sent, Stream::of(&received)].map(|block| block.len());
        let shown = Shown { limit, blocks };
        Some(Self {
            edges,
            rank,
            shown,
            recv,
            lens,
        })
    }

    pub(super) fn kind(&self) -> Kind {
        self.shown.kind()
    }

    /// Bytes of a block, which the header tells.
    pub(super) fn len(&self) -> usize {
        self.lens[0]
    }

    /// Bytes that a source has to tell.
    pub(super) fn expected(&self) -> usize {
        self.lens[1]
    }

    /// Whether the rank has neighbours, itself or others.
    pub(super) fn has_edges(&self) -> bool {
        let all = &self.edges.neighbours;
        let mut both = all.sources.iter().chain(&all.destinations);
        both.any(|neighbour| neighbour.rank.is_some())
    }

    /// The other ranks at the ends of its edges, as bits: sources and destinations.
    pub(super) fn others(&self) -> [u32; 2] {
        let all = &self.edges.neighbours;
        let bits = |neighbours: &[Neighbour]| {
            let ranks = neighbours.iter().filter_map(|neighbour| neighbour.rank);
            ranks.fold(0, |bits, rank| bits | 1 << rank) & !(1 << self.rank)
        };
        [bits(&all.sources), bits(&all.destinations)]
    }

    /// Where this rank shows its blocks; `None` if they, or those of the others, are long.
    pub(super) fn place(&self) -> Option<Place> {
        let longest = self.lens[0].max(self.lens[1]);
        (longest <= self.shown.limit).then(|| self.place_of(self.lens[0]))
    }

    /// Where a rank shows blocks of so many bytes: the same for all ranks, whatever edges they have.
    fn place_of(&self, len: usize) -> Place {
        Place::of(match self.shown.blocks {
            Blocks::Same(_) => len,
            Blocks::List(_) | Blocks::Sent(_) => self.edges.room(len),
        })
    }

    /// Shows what goes to others, and hands over what goes to the rank itself.
    ///
    /// # Safety
    /// The buffers are the operation's; `to` is this rank's place, and free.
    pub(super) unsafe fn show(&self, to: *mut u8) {
        let (me, neighbours) = (self.rank, &self.edges.neighbours);
        let received = || edges(&neighbours.sources, |edge| Stream::block(&self.recv, edge));
        let sent = || edges(&neighbours.destinations, |edge| self.shown.block(edge));
        // SAFETY: from the caller; the place was chosen by its room.
        unsafe {
            self.shown.write(&neighbours.destinations, to);
            for (edge, to) in received().filter(|(edge, _)| edge.0 == me) {
                let same_edge = |&(other, _): &(Edge, Stream<'_>)| other == edge;
                if let Some((_, from)) = sent().find(same_edge) {
                    from.copy_to(&to);
                }
            }
        }
    }

    /// Takes what others have shown; `at` says where a rank has.
    ///
    /// # Errors
    /// [`InvalidCount`](ErrorKind::InvalidCount) if a source has no such edge.
    ///
    /// # Safety
    /// All sources have shown their part, with the length that is expected; the buffers are the operation's.
    pub(super) unsafe fn take(&self, at: impl Fn(u32, Place) -> *mut u8) -> Result<()> {
        let (me, len) = (self.rank, self.expected());
        let place = self.place_of(len);
        let received = edges(&self.edges.neighbours.sources, |edge| {
            Stream::block(&self.recv, edge)
        });
        for ((from, lane), block) in received.filter(|(edge, _)| edge.0 != me) {
            let there = at(from, place);
            let data = match self.shown.blocks {
                Blocks::Same(_) => Some(there),
                // SAFETY: it has shown a list.
                Blocks::List(_) | Blocks::Sent(_) => unsafe { find(there, (me, lane)).1 },
            };
            let Some(data) = data else {
                return Err(no_edge(from, me));
            };
            // SAFETY: so many bytes are there; the block is the caller's.
            unsafe { block.write(0, data, len) };
        }
        Ok(())
    }
}

#[cold]
fn no_edge(from: u32, me: u32) -> Error {
    let what = format!("rank {from} has fewer edges to rank {me} than that has from it");
    Error::new(ErrorKind::InvalidCount, what)
        .remedy("give both ends of an edge in the graph: as a destination there, as a source here")
}
