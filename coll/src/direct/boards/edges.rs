//! The data that goes along the edges of a topology, and its layout on a board.
//!
//! For an allgather the board has a rank's block. For an alltoall it has a list. The list begins
//! with one entry per edge (the rank at its other end, its number, and its block's length); the
//! blocks that are short enough follow. All ranks use the same limit for "short enough", because
//! when the boards were made they told each other their numbers of edges, and the limit follows
//! from the largest. So all short blocks of any rank fit, and the receiver of a block knows from
//! its length where it is.

use portolan_core::comm::{Neighbour, Neighbours};

use crate::args::Many;
use crate::direct::boards::board::Kind;
use crate::direct::boards::list::{WORD, before, begin};
use crate::direct::boards::long::{LONG_ALONG, LONG_ALONG_SHARED};
use crate::direct::data::Stream;
use crate::neighbour::EDGE_LANES;

/// The rank at the other end of an edge, and the edge's number among the edges between the two
/// ranks.
pub(in crate::direct) type Edge = (u32, u32);

/// The edges that exist, with their data.
#[inline]
pub(in crate::direct) fn edges<'a>(
    neighbours: &'a [Neighbour],
    data: impl Fn(u32) -> Stream<'a>,
) -> impl Iterator<Item = (Edge, Stream<'a>)> {
    let edge = move |(at, neighbour): (u32, &Neighbour)| {
        Some(((neighbour.rank?, neighbour.lane), data(at)))
    };
    (0..).zip(neighbours).filter_map(edge)
}

/// The topology of a communicator, as far as its boards need it.
#[derive(Debug)]
pub(in crate::direct) struct Edges {
    pub(in crate::direct) neighbours: Neighbours,
    /// The largest number of destinations that any rank has, and of sources.
    most: usize,
    sources: usize,
    /// Whether more edges lead from some rank to another than there are lanes for messages.
    /// Messages in one lane match in order, so all blocks must then go as messages.
    crowded: bool,
    /// Longest block, in bytes, that a blocking operation shows.
    longest: usize,
}

impl Edges {
    /// What a rank tells the others about its edges: whether there are too many for the lanes, how
    /// many lead from it, and how many lead to it.
    pub(in crate::direct) fn told(neighbours: Option<&Neighbours>) -> [u64; 3] {
        let Some(all) = neighbours else {
            return [0; 3];
        };
        let destinations = &all.destinations;
        let crowded = |to: &Neighbour| to.rank.is_some() && to.lane >= EDGE_LANES;
        let crowded = destinations.iter().any(crowded);
        [
            u64::from(crowded),
            destinations.len() as u64,
            all.sources.len() as u64,
        ]
    }

    /// Makes the edges from this rank's neighbours and from what all ranks have told. `gain` says
    /// that all of them gain by messages ([`LONG_ALONG_SHARED`]).
    pub(in crate::direct) fn new(
        neighbours: Neighbours,
        told: impl Iterator<Item = [u64; 3]>,
        gain: bool,
    ) -> Self {
        let most = |a: [u64; 3], b: [u64; 3]| std::array::from_fn(|at| a[at].max(b[at]));
        let [crowded, most, sources] = told.fold([0; 3], most);
        let number = |edges| usize::try_from(edges).unwrap_or(usize::MAX);
        Self {
            neighbours,
            most: number(most),
            sources: number(sources),
            crowded: crowded != 0,
            longest: if gain { LONG_ALONG_SHARED } else { LONG_ALONG },
        }
    }

    /// Longest block for all destinations, in bytes, that a blocking operation shows.
    pub(in crate::direct) fn longest(&self) -> usize {
        self.longest
    }

    /// Longest block, in bytes, in the list that a blocking operation shows; `None` if no list
    /// fits.
    pub(in crate::direct) fn longest_listed(&self) -> Option<usize> {
        let limit = self.limit(LONG_ALONG)?;
        Some(limit.min(self.longest))
    }

    /// Longest block, in bytes, in a list of `room` bytes; `None` if no list fits.
    pub(in crate::direct) fn limit(&self, room: usize) -> Option<usize> {
        let each = (room - WORD) / self.most.max(1) / WORD * WORD;
        let limit = each.checked_sub(ENTRY)?;
        let limit = limit.saturating_sub(before(limit));
        Some(if self.crowded { 0 } else { limit })
    }

    /// As [`limit`](Self::limit), where the list may have the lengths of awaited blocks in front of
    /// it. Also `None` if all blocks must go as messages.
    pub(in crate::direct) fn limit_of_listed(&self, room: usize) -> Option<usize> {
        let behind = self.limit_of_one(room)?;
        self.limit(behind)
    }

    /// Longest single block, in bytes, behind the lengths of awaited blocks.
    pub(in crate::direct) fn limit_of_one(&self, room: usize) -> Option<usize> {
        let in_front = self.sources.checked_mul(ENTRY)?.checked_add(WORD)?;
        let behind = room.checked_sub(in_front).filter(|&behind| behind > WORD);
        behind.filter(|_| !self.crowded)
    }
}

/// What a rank shows to its destinations.
pub(in crate::direct) struct Shown<'a> {
    /// Longest block, in bytes, that lies on the board: the same on all ranks.
    pub(in crate::direct) limit: usize,
    pub(in crate::direct) blocks: Blocks<'a>,
}

pub(in crate::direct) enum Blocks<'a> {
    /// One block for all destinations.
    Same(Stream<'a>),
    /// A block for each destination: the list has their number, the edge and length of each, and
    /// the short blocks.
    List(&'a Many<'a>),
    /// A block for each destination; all of them go as messages.
    Sent(&'a Many<'a>),
}

/// Bytes that a list needs for each edge besides its block.
pub(in crate::direct) const ENTRY: usize = 2 * WORD;
/// Flag in a block's length: the block is in the list.
const HERE: u64 = 1 << 63;

impl<'a> Shown<'a> {
    pub(in crate::direct) fn kind(&self) -> Kind {
        match self.blocks {
            Blocks::Same(_) => Kind::NeighbourAllgather,
            Blocks::List(_) => Kind::NeighbourAlltoall,
            Blocks::Sent(_) => Kind::NeighbourAlltoallSent,
        }
    }

    pub(in crate::direct) fn block(&self, edge: u32) -> Stream<'a> {
        match self.blocks {
            Blocks::Same(block) => block,
            Blocks::List(many) | Blocks::Sent(many) => Stream::block(many, edge),
        }
    }

    /// Whether an edge's block of `len` bytes lies on the board. Both ends know this.
    pub(in crate::direct) fn is_short(&self, len: u64) -> bool {
        !matches!(self.blocks, Blocks::Sent(_)) && len <= self.limit as u64
    }

    /// How many of an edge's `len` bytes lie on the board.
    fn on_board(&self, len: usize) -> usize {
        if self.is_short(len as u64) { len } else { 0 }
    }

    /// Bytes that this rank's blocks need on the board.
    pub(in crate::direct) fn room(&self, destinations: &[Neighbour]) -> usize {
        match self.blocks {
            Blocks::Same(block) => self.on_board(block.len()),
            Blocks::Sent(_) => 0,
            Blocks::List(many) => {
                let lens = edges(destinations, |edge| Stream::block(many, edge));
                let lens = lens.map(|(_, block)| self.on_board(block.len()));
                WORD + lens.map(room_of_block).sum::<usize>()
            }
        }
    }

    /// Writes what this rank shows.
    ///
    /// # Safety
    /// There is room at `to`, which is aligned to a word and which nothing else uses; the data to
    /// send is readable.
    pub(in crate::direct) unsafe fn write(&self, destinations: &[Neighbour], to: *mut u8) {
        // SAFETY: from the caller, for all of it.
        unsafe {
            let many = match self.blocks {
                Blocks::Same(block) => return block.read(0, to, self.on_board(block.len())),
                Blocks::Sent(_) => return,
                Blocks::List(many) => many,
            };
            let all = || edges(destinations, |edge| Stream::block(many, edge));
            let count = all().count();
            to.cast::<u64>().write(count as u64);
            let mut entry = to.add(WORD);
            let mut at = entry.add(count * ENTRY);
            for (edge, block) in all() {
                let words = entry.cast::<u64>();
                let len = self.on_board(block.len());
                let here = if len == block.len() { HERE } else { 0 };
                words.write(word_of(edge));
                words.add(1).write(block.len() as u64 | here);
                let to = begin(at, len);
                block.read(0, to, len);
                entry = entry.add(ENTRY);
                at = to.add(len.next_multiple_of(WORD));
            }
        }
    }
}

impl Shown<'_> {
    /// Writes what a rank shows that has no memory for its blocks, and sends all of them: a list of
    /// their lengths, if it fits in `room` bytes.
    ///
    /// # Safety
    /// There is that much room at `to`, which is aligned to a word and which nothing else uses.
    pub(in crate::direct) unsafe fn write_lengths(
        &self,
        destinations: &[Neighbour],
        (to, room): (*mut u8, usize),
    ) {
        let Blocks::List(many) = self.blocks else {
            return;
        };
        let alone = Shown {
            limit: 0,
            blocks: Blocks::List(many),
        };
        // SAFETY: from the caller; no block is read.
        unsafe {
            match alone.room(destinations) <= room {
                true => alone.write(destinations, to),
                false => to.cast::<u64>().write(NO_LENGTHS),
            }
        }
    }
}

/// In place of the number of edges of a list that does not fit.
const NO_LENGTHS: u64 = u64::MAX;

/// The list that [`Shown::write_lengths`] has written, if it fitted.
///
/// # Safety
/// It has been posted at `at`.
pub(in crate::direct) unsafe fn lengths_in(at: *mut u8) -> Option<*mut u8> {
    // SAFETY: from the caller.
    let count = unsafe { at.cast::<u64>().read() };
    (count != NO_LENGTHS).then_some(at)
}

/// Bytes of a list for an edge of which `len` bytes lie on the board.
fn room_of_block(len: usize) -> usize {
    ENTRY + before(len) + len.next_multiple_of(WORD)
}

/// The length of an edge's block in a list, and its address if the block is in the list.
///
/// # Safety
/// The list has been posted at `list`.
#[inline]
pub(in crate::direct) unsafe fn find(list: *mut u8, edge: Edge) -> (u64, Option<*mut u8>) {
    // SAFETY: from the caller, for all of it.
    unsafe {
        let count = list.cast::<u64>().read() as usize;
        let mut at = list.add(WORD + count * ENTRY);
        for entry in 0..count {
            let words = list.add(WORD + entry * ENTRY).cast::<u64>();
            let told = words.add(1).read();
            let (len, is_here) = (told & !HERE, told & HERE != 0);
            if is_here {
                at = begin(at, len as usize);
            }
            if words.read() == word_of(edge) {
                return (len, is_here.then_some(at));
            }
            if is_here {
                at = at.add((len as usize).next_multiple_of(WORD));
            }
        }
    }
    (0, None)
}

/// The word that stands for an edge in a list: the rank at its other end, and its number among the
/// edges between the two ranks.
pub(in crate::direct) fn word_of((rank, lane): Edge) -> u64 {
    u64::from(rank) << 32 | u64::from(lane)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::boards::board::{CHUNK, small};

    fn to(rank: u32, lane: u32) -> Neighbour {
        Neighbour {
            rank: Some(rank),
            lane,
        }
    }

    #[test]
    fn as_many_edges_as_any_rank_has_fit() {
        let list = |edges: u64, len| WORD + edges as usize * room_of_block(len);
        for most in [0, 1, 2, 3, 4, 6, 26, 100, 400, 5000] {
            for room in [small(1), CHUNK] {
                let told = [[0; 3], [0, most, most / 2], [0, most / 2, most]];
                let edges = Edges::new(Neighbours::default(), told.into_iter(), false);
                match edges.limit(room) {
                    Some(limit) => assert!(list(most, limit) <= room, "{most} in {room}"),
                    None => assert!(list(most, 0) > room, "{most} in {room}"),
                }
                let in_front = WORD + most as usize * ENTRY;
                match edges.limit_of_listed(room) {
                    Some(limit) => assert!(in_front + list(most, limit) <= room),
                    None => assert!(in_front + list(most, 0) > room, "{most} in {room}"),
                }
                match edges.limit_of_one(room) {
                    Some(limit) => assert_eq!(in_front + limit, room),
                    None => assert!(in_front + WORD >= room, "{most} in {room}"),
                }
            }
        }
    }

    #[test]
    fn long_blocks_of_shared_vectors_are_messages() {
        let of =
            |most, gain| Edges::new(Neighbours::default(), [[0, most, most]].into_iter(), gain);
        for (most, gain, longest, listed) in [
            (1, false, LONG_ALONG, LONG_ALONG / 2..LONG_ALONG),
            (1, true, 16 << 10, 16 << 10..(16 << 10) + 1),
            (200, true, 16 << 10, 2 << 10..16 << 10),
        ] {
            let edges = of(most, gain);
            assert_eq!(edges.longest(), longest);
            let limit = edges.longest_listed().expect("a list fits");
            assert!(listed.contains(&limit), "{most} edges: {limit}");
        }
        assert_eq!(of(1 << 40, true).longest_listed(), None);
    }

    #[test]
    fn lengths_alone_where_messages_share_a_lane() {
        let to_one = |edges: u32| {
            let destinations = (0..edges).map(|lane| to(1, lane)).collect();
            Neighbours {
                sources: Vec::new(),
                destinations,
            }
        };
        let told = [EDGE_LANES, EDGE_LANES + 1].map(|edges| Edges::told(Some(&to_one(edges))));
        let [fits, crowded] = told;
        assert_eq!(told.map(|[crowded, ..]| crowded), [0, 1]);
        let [alone, both] = [vec![fits], vec![fits, crowded]]
            .map(|told| Edges::new(to_one(3), told.into_iter(), false));
        assert!(alone.limit(CHUNK) > Some(0) && alone.limit_of_listed(CHUNK) > Some(0));
        let limits = [both.limit_of_listed(CHUNK), both.limit_of_one(CHUNK)];
        assert_eq!((both.limit(CHUNK), limits), (Some(0), [None; 2]));
        assert_eq!(Edges::told(None), [0; 3]);
    }
}
