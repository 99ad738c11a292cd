//! Neighbour collectives on a track: one rank's part.
//!
//! A rank knows its own edges only, and both ends of an edge know the length of its block. Up to a
//! length that is the same on all ranks the block lies on the sender's board; a longer one is a
//! message. A rank that has messages marks its header, and shows in front of its blocks the lengths
//! of all blocks that it awaits. A sender that sees that one of its long blocks is not awaited with
//! its length does not send it.

use portolan_core::comm::Neighbour;
use portolan_core::{Error, ErrorKind, Result};

use crate::args::{Many, Name, Operation};
use crate::direct::agree::sort::{Sort, Sorts};
use crate::direct::agree::verdict::{Verdict, Wrong};
use crate::direct::boards::board::{Header, Kind, Place, small, small_list};
use crate::direct::boards::edges::{Blocks, ENTRY, Edge, Edges, Shown, edges, find, word_of};
use crate::direct::boards::list::WORD;
use crate::direct::data::Stream;
use crate::direct::tracks::messages::Messages;
use crate::neighbour::lane_of;

/// One rank's part in an operation along edges.
pub(in crate::direct) struct Along<'a> {
    edges: &'a Edges,
    rank: u32,
    shown: Shown<'a>,
    recv: &'a Many<'a>,
    /// Masks of other ranks: those to which messages go, those from which messages come, those from
    /// which anything comes, and those to which anything goes.
    sends: u32,
    receives: u32,
    sources: u32,
    destinations: u32,
}

impl<'a> Along<'a> {
    /// `None` if all blocks are messages, about which all ranks come to the same answer.
    #[inline]
    pub(in crate::direct) fn of(
        operation: &'a Operation<'a>,
        rank: u32,
        edges: &'a Edges,
        track: usize,
    ) -> Option<Self> {
        let (blocks, recv) = match *operation {
            Operation::NeighbourAllgather { send, ref recv } => {
                (Blocks::Same(Stream::of(&send)), recv)
            }
            Operation::NeighbourAlltoall { ref send, ref recv } => (Blocks::List(send), recv),
            _ => return None,
        };
        let limit = match blocks {
            Blocks::Same(_) => edges.limit_of_one(small_list(track))?.min(small(track)),
            _ => edges.limit_of_listed(small_list(track))?,
        };
        let mut part = Self {
            edges,
            rank,
            shown: Shown { limit, blocks },
            recv,
            sends: 0,
            receives: 0,
            sources: 0,
            destinations: 0,
        };
        [part.sources, part.receives] = bits(part.received(), rank, limit);
        [part.destinations, part.sends] = bits(part.sent(), rank, limit);
        Some(part)
    }

    #[inline]
    fn received(&self) -> impl Iterator<Item = (Edge, Stream<'a>)> + use<'a> {
        let recv = self.recv;
        edges(&self.edges.neighbours.sources, move |edge| {
            Stream::block(recv, edge)
        })
    }

    #[inline]
    fn sent(&self) -> impl Iterator<Item = (Edge, Stream<'a>)> + use<'a, '_> {
        edges(&self.edges.neighbours.destinations, |edge| {
            self.shown.block(edge)
        })
    }

    #[inline]
    pub(in crate::direct) fn kind(&self) -> Kind {
        self.shown.kind()
    }

    /// The length in the header, in bytes: that of the block for all destinations, or that of the
    /// list.
    #[inline]
    pub(in crate::direct) fn len(&self) -> usize {
        match self.shown.blocks {
            Blocks::Same(block) => block.len(),
            _ => self.shown.room(self.to()),
        }
    }

    #[inline]
    fn to(&self) -> &'a [Neighbour] {
        &self.edges.neighbours.destinations
    }

    /// Whether some of the data goes as messages.
    #[inline]
    pub(in crate::direct) fn has_messages(&self) -> bool {
        self.sends | self.receives != 0
    }

    /// The masks of the ranks that it looks at, and of those that look at it.
    #[inline]
    pub(in crate::direct) fn looks_and_wakes(&self) -> [u32; 2] {
        [self.sources | self.sends, self.destinations | self.receives]
    }

    /// Approximately how many bytes it takes from boards.
    #[inline]
    pub(in crate::direct) fn work(&self) -> usize {
        let lens = self.received().map(|(_, block)| block.len());
        lens.filter(|&len| len <= self.shown.limit).sum()
    }

    /// Where this rank shows its blocks.
    #[inline]
    pub(in crate::direct) fn place(&self) -> Place {
        match self.has_messages() {
            true => Place::Chunk,
            false => Place::of(self.len()),
        }
    }

    /// Shows the blocks for other ranks, and copies those for this rank itself, unless that is done
    /// [while messages are under way](Self::messages).
    ///
    /// # Safety
    /// The buffers are the operation's; `to` is this rank's place, and free.
    #[inline]
    pub(in crate::direct) unsafe fn show(&self, mut to: *mut u8) {
        // SAFETY: from the caller; the limit leaves room for all of it.
        unsafe {
            if self.has_messages() {
                to = self.await_all(to);
            }
            self.shown.write(self.to(), to);
            if !self.has_messages() {
                self.own().for_each(|(from, to)| from.copy_to(&to));
            }
        }
    }

    /// The blocks that go from this rank to itself, and their places.
    #[inline]
    fn own(&self) -> impl Iterator<Item = (Stream<'a>, Stream<'a>)> {
        let own = self.received().filter(|(edge, _)| edge.0 == self.rank);
        own.filter_map(|(edge, to)| Some((self.to_itself(edge)?, to)))
    }

    /// The block that goes along an edge from this rank to itself, if the edge is also among its
    /// destinations.
    #[inline]
    fn to_itself(&self, edge: Edge) -> Option<Stream<'a>> {
        match self.shown.blocks {
            Blocks::Same(block) => Some(block),
            _ => self
                .sent()
                .find(|&(other, _)| other == edge)
                .map(|(_, block)| block),
        }
    }

    /// What is wrong with the blocks that this rank has for itself: the counterpart of
    /// [`judge`](Self::judge), which is for other ranks.
    pub(in crate::direct) fn judge_itself(&self, sorts: Sorts) -> Option<Wrong> {
        let own = self.received().filter(|(edge, _)| edge.0 == self.rank);
        own.into_iter().find_map(|(edge, block)| {
            let given = self.to_itself(edge).map_or(0, |given| given.len());
            let (theirs, mine) = (given as u64, block.len() as u64);
            let right = theirs == mine && (mine == 0 || sorts.taken.matches(sorts.shown));
            let awaits = false;
            (!right).then_some(Wrong {
                theirs,
                mine,
                awaits,
            })
        })
    }

    /// Writes the awaited length of each source's block; returns the position after them.
    ///
    /// # Safety
    /// There is room for all of them at `to`, which is aligned to a word and which nothing else
    /// uses.
    unsafe fn await_all(&self, to: *mut u8) -> *mut u8 {
        // SAFETY: from the caller, for all of it.
        unsafe {
            let mut at = to.add(WORD);
            for (edge, block) in self.received() {
                at.cast::<u64>().write(word_of(edge));
                at.cast::<u64>().add(1).write(block.len() as u64);
                at = at.add(ENTRY);
            }
            to.cast::<u64>()
                .write((at.offset_from(to) as usize / ENTRY) as u64);
            at
        }
    }

    /// The address of the blocks of a rank that has shown this header.
    ///
    /// # Safety
    /// The rank has shown them; `at` says where its places are.
    #[inline]
    unsafe fn blocks(&self, header: Header, at: impl Fn(Place) -> *mut u8) -> *mut u8 {
        if !header.is_by_messages() {
            return at(Place::of(header.len()));
        }
        let all = at(Place::Chunk);
        // SAFETY: from the caller: a rank that marks its header has written this.
        let awaited = unsafe { all.cast::<u64>().read() } as usize;
        all.wrapping_add(WORD + awaited * ENTRY)
    }

    /// The length that a rank with a marked header awaits for a block; 0 if it has no such edge.
    ///
    /// # Safety
    /// The rank has shown its part, in the chunk `all`.
    unsafe fn awaited(all: *mut u8, edge: Edge) -> u64 {
        // SAFETY: from the caller, for all of it.
        unsafe {
            let words = all.cast::<u64>();
            let entry = |at: usize| words.add(1 + 2 * at);
            let mut entries = (0..words.read() as usize).map(entry);
            let found = entries.find(|entry| entry.read() == word_of(edge));
            found.map_or(0, |entry| entry.add(1).read())
        }
    }

    /// Compares what a rank shows with what this rank expects. `at` says where the rank's places
    /// are, and `told` is the length that it states.
    ///
    /// # Safety
    /// The rank has shown its part in this step, with this header.
    #[inline]
    pub(in crate::direct) unsafe fn judge(
        &self,
        rank: u32,
        header: Header,
        told: u64,
        taken: Sort,
        at: impl Fn(Place) -> *mut u8,
    ) -> Verdict {
        let mut verdict = Verdict::default();
        let (marked, limit) = (header.is_by_messages(), self.shown.limit as u64);
        let does_this = header.kind() == Some(self.kind());
        if !does_this {
            verdict.comes(told, told);
        }
        // SAFETY: the rank has shown them.
        let blocks = does_this.then(|| unsafe { self.blocks(header, &at) });
        for (edge, block) in self.received().filter(|(edge, _)| edge.0 == rank) {
            let mine = block.len() as u64;
            let comes = match (blocks, &self.shown.blocks) {
                (None, _) => None,
                (_, Blocks::Same(_)) => Some(told),
                // SAFETY: the rank has shown a list.
                (Some(list), _) => Some(unsafe { find(list, (self.rank, edge.1)).0 }),
            };
            if comes != Some(mine) {
                verdict.comes(comes.unwrap_or(told), mine);
                if mine > limit {
                    verdict.refuse(rank, lane_of(edge.1), false);
                }
            } else if mine > 0 && mine <= limit && !taken.matches(header.sort()) {
                verdict.comes(mine, mine);
            }
        }
        if self.sends >> rank & 1 == 0 {
            return verdict;
        }
        let long = |block: &Stream<'_>| block.len() as u64 > limit;
        let sent = self
            .sent()
            .filter(|(edge, block)| edge.0 == rank && long(block));
        for (edge, block) in sent {
            let mine = block.len() as u64;
            let awaits = match does_this && marked {
                // SAFETY: the rank has marked its header.
                true => unsafe { Self::awaited(at(Place::Chunk), (self.rank, edge.1)) },
                // The rank awaits no long block in this case.
                false => 0,
            };
            if awaits != mine {
                verdict.awaits(awaits, mine);
                verdict.refuse(rank, lane_of(edge.1), true);
            }
        }
        verdict
    }

    /// Takes the blocks that others have shown. `at` says where a rank has shown them, and `header`
    /// with which header.
    ///
    /// # Errors
    /// [`InvalidCount`](ErrorKind::InvalidCount) if a source has no such edge.
    ///
    /// # Safety
    /// All sources have shown their part, which has been found to be right; the buffers are the
    /// operation's.
    #[inline]
    pub(in crate::direct) unsafe fn take(
        &self,
        at: impl Fn(u32, Place) -> *mut u8,
        header: impl Fn(u32) -> Header,
        takes: bool,
    ) -> Result<()> {
        let me = self.rank;
        let is_here = |((from, _), block): &(Edge, Stream<'_>)| {
            *from != me && block.len() <= self.shown.limit
        };
        for ((from, lane), block) in self.received().filter(is_here) {
            // SAFETY: from the caller.
            let there = unsafe { self.blocks(header(from), |place| at(from, place)) };
            let data = match self.shown.blocks {
                Blocks::Same(_) => Some(there),
                // SAFETY: the rank has shown a list.
                _ => unsafe { find(there, (me, lane)).1 },
            };
            let Some(data) = data else {
                return Err(no_edge(from, me));
            };
            // A block in a list belongs to one edge, so it has one reader.
            let takes = takes && !matches!(self.shown.blocks, Blocks::Same(_));
            // SAFETY: the rank has shown that many bytes there; the block is the caller's.
            unsafe { block.take(0, data, block.len(), takes) };
        }
        Ok(())
    }

    /// The messages for the long blocks; blocks for this rank itself are copied meanwhile.
    pub(in crate::direct) fn messages(&self, size: u32, name: Name) -> Messages {
        let mut messages = Messages::named(self.rank, size, name);
        let is_long = |((other, _), block): &(Edge, Stream<'_>)| {
            *other != self.rank && block.len() > self.shown.limit
        };
        // Receives come first: a message that is announced when its receive is posted already goes
        // straight to its place.
        for ((from, lane), block) in self.received().filter(is_long) {
            messages.receive(from, lane_of(lane), &block);
        }
        for ((to, lane), block) in self.sent().filter(is_long) {
            messages.send(to, lane_of(lane), &block);
        }
        if self.has_messages() {
            // Blocks of different lengths are an error, and no data moves.
            let alike = self.own().filter(|(from, to)| from.len() == to.len());
            alike.for_each(|(from, to)| messages.copy_meanwhile(&from, &to));
        }
        messages
    }
}

/// Masks of the ranks other than `me` at the ends of these edges: all of them, and those with long
/// blocks.
#[inline]
fn bits<'a>(blocks: impl Iterator<Item = (Edge, Stream<'a>)>, me: u32, limit: usize) -> [u32; 2] {
    blocks.fold([0; 2], |[all, long], ((other, _), block)| {
        let bit = 1u32 << other & !(1 << me);
        let is_long = block.len() > limit;
        [all | bit, long | if is_long { bit } else { 0 }]
    })
}

#[cold]
fn no_edge(from: u32, me: u32) -> Error {
    let what = format!("rank {from} has fewer edges to rank {me} than that has from it");
    Error::new(ErrorKind::InvalidCount, what)
        .remedy("give both ends of an edge in the graph: as a destination there, as a source here")
}
