//! Boards: what one rank shows the others, and how it lies in memory.
//!
//! Each rank has one board per communicator, and writes its own only. (The exception are the words
//! in which the others say that they have gone: [`Map::gone`].) Operations are made of *steps*,
//! which all ranks count alike. In step `s` a rank has cell `s mod` [`CELLS`], two cache lines with
//! a header and a little data, and chunk `s mod` [`CHUNKS`] for more.
//!
//! Beside those for blocking operations a board has *tracks* ([`TRACKS`]), with steps of their own,
//! cells and small chunks, for operations that are under way while the rank does something else.

use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::direct::agree::sort::Sort;
use crate::direct::blocking::exchange::{ASIDE, RADIX};

/// Cells of a board: as many steps a rank may be ahead of the slowest, at most. (Where ranks take
/// turns on processors, one that waits for nobody goes on for so long before it gives its own away.
/// Eight and four ranks on two cores, 8 bytes, to the time with 16: scatter 0.91 and 0.92, gather
/// 0.86, bcast 0.84 and 0.90. With 64 the lines of all cells take so much of the first cache that 1
/// KiB takes 1.04 to 1.08 of the time.)
pub(in crate::direct) const CELLS: u32 = 32;
/// Chunks of a board: the same for steps with more data than a cell holds.
pub(in crate::direct) const CHUNKS: u32 = 4;
/// Bytes of a chunk, at least. Both copies through it should find it in a cache of the second
/// level, together with the others. A little more than a power of two, so that blocks of such
/// lengths, divided among the others of two, four or eight ranks, need no step more for their last
/// bytes or for what stands in front of them.
pub(in crate::direct) const CHUNK: usize = 68 << 10;
/// The same where ranks take turns on processors: a step costs more there than a copy out of the
/// cache, because nobody goes on before all ranks of each processor have had their turn. (Four and
/// eight ranks on two cores of the EPYC, to the time with the shorter ones, 256 KiB and 1 MiB:
/// bcast 0.92 to 0.96 and 0.51 to 0.53, allgather 0.66 to 0.72 and 0.82 to 0.99, allreduce 0.55 to
/// 0.60 and 0.65 to 0.84, reduce-scatter 0.61 and 0.73. Twice as long ones are no better.)
pub(in crate::direct) const CHUNK_IN_TURNS: usize = 4 * CHUNK;
/// Bytes of two chunks that lie behind each other, the first with an even number, as far as they
/// are used together: an alltoall shows each byte to one rank only, and twice as much does not stay
/// in a cache.
pub(in crate::direct) const WIDE: usize = 2 * CHUNK;
/// The same where ranks take turns on processors.
pub(in crate::direct) const WIDE_IN_TURNS: usize = CHUNK_IN_TURNS;
/// Bytes of data in a cell, behind its header. The first 56 of them are in the header's line.
pub(in crate::direct) const IN_CELL: usize = CELL - HEADER;

/// Tracks of a board: the first for nonblocking operations, each other for one persistent
/// operation.
pub(in crate::direct) const TRACKS: usize = 9;
const LINE: usize = 64;
/// Where the words of those that have gone begin: behind how far the rank is, and where it runs.
const GONE: usize = 2 * LINE;
const CELL: usize = 2 * LINE;
const HEADER: usize = size_of::<u64>();
const PAGE: usize = 4096;

/// How many cells and chunks a track has, and how much of a contribution fits a chunk. (Nonblocking
/// operations of 16 to 64 KiB over boards take 0.4 to 0.9 of the time by messages with two ranks on
/// an EPYC, with four and eight on two cores 0.04 to 0.5.) Persistent operations are started one at
/// a time; theirs are shorter, because there are many of them.
struct Places {
    cells: u32,
    chunks: u32,
    small: usize,
}

const MANY: Places = Places {
    cells: 32,
    chunks: 4,
    small: 64 << 10,
};
const FEW: Places = Places {
    cells: 8,
    chunks: 2,
    small: 16 << 10,
};

#[inline]
const fn places(track: usize) -> &'static Places {
    if track == 0 { &MANY } else { &FEW }
}

/// Cells of a track: as many operations may be under way.
#[inline]
const fn cells(track: usize) -> u32 {
    places(track).cells
}

/// Chunks of a track.
#[inline]
const fn chunks(track: usize) -> u32 {
    places(track).chunks
}

/// Bytes of a contribution in a chunk of a track: what is longer goes by messages.
#[inline]
pub(in crate::direct) const fn small(track: usize) -> usize {
    places(track).small
}

/// Bytes that there are, so that a list of blocks that have so many together fits with the lengths
/// of a few edges.
#[inline]
pub(in crate::direct) const fn small_list(track: usize) -> usize {
    small(track) + 2 * LINE
}

/// Where the cells of a track begin, behind its first line, counted from the beginning of all
/// tracks.
#[inline]
const fn cells_before(track: usize) -> usize {
    let few = LINE + FEW.cells as usize * CELL;
    match track {
        0 => LINE,
        _ => LINE + MANY.cells as usize * CELL + (track - 1) * few + LINE,
    }
}

/// Where the chunks of a track begin, counted from those of the first.
#[inline]
const fn chunks_before(track: usize) -> usize {
    match track {
        0 => 0,
        _ => {
            let few = FEW.chunks as usize * small_list(1);
            MANY.chunks as usize * small_list(0) + (track - 1) * few
        }
    }
}

const _: () = assert!(MANY.cells.is_power_of_two() && MANY.chunks.is_power_of_two());
const _: () = assert!(FEW.cells.is_power_of_two() && FEW.chunks.is_power_of_two());
const _: () = assert!(CELLS.is_power_of_two() && CHUNKS.is_power_of_two() && CHUNKS <= CELLS);

/// Where things lie in a board, by the number of ranks.
#[derive(Clone, Copy, Debug)]
pub(in crate::direct) struct Map {
    cells: usize,
    tracks: usize,
    chunks: usize,
    /// Bytes of a chunk.
    chunk: usize,
    /// Whether there are tracks: more ranks use none.
    has_tracks: bool,
}

impl Map {
    pub(in crate::direct) fn new(ranks: u32, chunk: usize) -> Self {
        let cells = GONE + (ranks as usize * size_of::<u32>()).next_multiple_of(LINE);
        let tracks = cells + CELLS as usize * CELL;
        // Without the first line of the track that is not there.
        let has_tracks = ranks <= RADIX;
        let end = match has_tracks {
            true => tracks + cells_before(TRACKS) - LINE,
            false => tracks,
        };
        Self {
            has_tracks,
            cells,
            tracks,
            chunks: end.next_multiple_of(PAGE),
            chunk,
        }
    }

    /// Bytes of a chunk.
    #[inline]
    pub(in crate::direct) fn chunk_len(self) -> usize {
        self.chunk
    }

    /// Bytes of two chunks that are used together.
    pub(in crate::direct) fn wide_len(self) -> usize {
        match self.chunk {
            CHUNK => WIDE,
            _ => WIDE_IN_TURNS,
        }
    }

    /// Bytes of a board.
    pub(in crate::direct) fn len(self) -> usize {
        self.small()
            + if self.has_tracks {
                chunks_before(TRACKS)
            } else {
                0
            }
    }

    /// Where the chunks of tracks begin.
    #[inline]
    fn small(self) -> usize {
        self.chunks + CHUNKS as usize * self.chunk
    }

    /// Bytes at its beginning that have to be zero when it comes into use.
    pub(in crate::direct) fn zeroed(self) -> usize {
        self.chunks
    }

    /// The word in which a rank says how many steps it has behind it.
    ///
    /// # Safety
    /// `board` is the address of a board with this map.
    #[inline]
    pub(in crate::direct) unsafe fn done<'a>(self, board: *mut u8) -> &'a AtomicU32 {
        // SAFETY: the board begins with it, aligned to a line; it is only accessed as an atomic.
        unsafe { &*board.cast::<AtomicU32>() }
    }

    /// The word in which rank `reader` says that it will not look at this board any more.
    ///
    /// # Safety
    /// As [`done`](Self::done); there is such a rank.
    pub(in crate::direct) unsafe fn gone<'a>(self, board: *mut u8, reader: u32) -> &'a AtomicU32 {
        // SAFETY: the words are in the lines that follow the first two; only accessed as atomics.
        unsafe { &*board.add(GONE).cast::<AtomicU32>().add(reader as usize) }
    }

    /// The word in which a rank says on which processor it runs, counted from 1.
    ///
    /// # Safety
    /// As [`done`](Self::done).
    pub(in crate::direct) unsafe fn processor<'a>(self, board: *mut u8) -> &'a AtomicU32 {
        // SAFETY: it is in a line of its own, behind the first; only accessed as an atomic.
        unsafe { &*board.add(LINE).cast::<AtomicU32>() }
    }

    /// The header of the cell of a step.
    ///
    /// # Safety
    /// As [`done`](Self::done).
    #[inline]
    pub(in crate::direct) unsafe fn header<'a>(self, board: *mut u8, step: u32) -> &'a AtomicU64 {
        // SAFETY: the cell lies within the board, aligned to a line; only accessed as an atomic.
        unsafe { &*self.cell(board, step).cast::<AtomicU64>() }
    }

    /// The data of the cell of a step: [`IN_CELL`] bytes.
    #[inline]
    pub(in crate::direct) fn data(self, board: *mut u8, step: u32) -> *mut u8 {
        self.cell(board, step).wrapping_add(HEADER)
    }

    /// The chunk of a step: [`chunk_len`](Self::chunk_len) bytes.
    #[inline]
    pub(in crate::direct) fn chunk(self, board: *mut u8, step: u32) -> *mut u8 {
        board.wrapping_add(self.chunks + (step % CHUNKS) as usize * self.chunk)
    }

    #[inline]
    fn cell(self, board: *mut u8, step: u32) -> *mut u8 {
        board.wrapping_add(self.cells + (step % CELLS) as usize * CELL)
    }

    /// Where the places of a track lie.
    pub(in crate::direct) fn track(self, track: usize) -> TrackMap {
        TrackMap {
            cells: cells(track),
            chunks: chunks(track),
            first_cell: self.tracks + cells_before(track),
            first_chunk: self.small() + chunks_before(track),
            chunk: small_list(track),
        }
    }
}

/// Where the places of a track lie in each board: found out once, because every operation asks.
#[derive(Clone, Copy, Debug)]
pub(in crate::direct) struct TrackMap {
    pub(in crate::direct) cells: u32,
    pub(in crate::direct) chunks: u32,
    first_cell: usize,
    first_chunk: usize,
    chunk: usize,
}

impl TrackMap {
    /// Where the cell of a step begins.
    #[inline]
    pub(in crate::direct) fn cell(&self, step: u32) -> usize {
        // (A remainder would divide: how many there are is not known when this is compiled.)
        self.first_cell + (step & (self.cells - 1)) as usize * CELL
    }

    /// Where the chunk of a step begins: [`small_list`] bytes.
    #[inline]
    pub(in crate::direct) fn chunk(&self, step: u32) -> usize {
        self.first_chunk + (step & (self.chunks - 1)) as usize * self.chunk
    }

    /// The word in which a rank says how many steps of the track it has behind it.
    ///
    /// # Safety
    /// As [`Map::done`], for a board that has such a track.
    #[inline]
    pub(in crate::direct) unsafe fn done<'a>(&self, board: *mut u8) -> &'a AtomicU32 {
        // SAFETY: it lies within the board, aligned to a line; only accessed as an atomic.
        unsafe { &*board.add(self.first_cell - LINE).cast::<AtomicU32>() }
    }
}

/// The header of the cell that begins there ([`TrackMap::cell`]).
///
/// # Safety
/// As [`TrackMap::done`].
#[inline]
pub(in crate::direct) unsafe fn header_of<'a>(board: *mut u8, cell: usize) -> &'a AtomicU64 {
    // SAFETY: the cell lies within the board, aligned to a line; only accessed as an atomic.
    unsafe { &*board.add(cell).cast::<AtomicU64>() }
}

/// Its data: [`IN_CELL`] bytes.
#[inline]
pub(in crate::direct) fn data_of(board: *mut u8, cell: usize) -> *mut u8 {
    board.wrapping_add(cell + HEADER)
}

/// Where the data of a step lies on a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::direct) enum Place {
    /// Behind the header.
    Cell,
    /// In the chunk.
    Chunk,
}

impl Place {
    /// Where `room` bytes fit.
    #[inline]
    pub(in crate::direct) fn of(room: usize) -> Self {
        if room <= IN_CELL {
            Self::Cell
        } else {
            Self::Chunk
        }
    }
}

/// What a rank is doing in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::direct) enum Kind {
    Barrier = 1,
    Bcast,
    /// A piece behind the first of one that takes several. Its length is how many pieces there are
    /// yet, this one among them.
    BcastMore,
    /// A rank that has nothing to show: it is to have something.
    BcastAwaited,
    /// A rank that waits for what it is going to hand on, and shows that here then. Its length is
    /// the root that it names.
    BcastPassing,
    Gather,
    /// A block that goes as a message. Its length is the root that it names.
    GatherSent,
    GatherAwaited,
    /// Equal parts, in the root's cell.
    Scatter,
    ScatterAwaited,
    /// Parts of any length, in the root's chunk; in its cell if the header has a length.
    ScatterListed,
    /// Parts that come as messages.
    ScatterSent,
    Allgather,
    /// The same where the way is chosen, which each rank knows from its own counts: all its blocks
    /// have one length.
    AllgatherChosen,
    Alltoall,
    /// The v and w forms.
    AlltoallListed,
    Reduce,
    /// The root of a reduction.
    ReduceAwaited,
    /// A reduction by many ranks. Its length has the root that it names behind it.
    ReduceInRounds,
    Allreduce,
    ReduceScatter,
    /// The same with blocks of several lengths, by a checksum of which ranks see whether they
    /// agree.
    ReduceScatterUneven,
    Scan,
    Exscan,
    /// A block for all destinations; as messages from some length on.
    NeighbourAllgather,
    /// A list of blocks, one for each edge.
    NeighbourAlltoall,
    /// Blocks that come as messages, for which a list has no room.
    NeighbourAlltoallSent,
    /// The rank has seen that ranks do not agree: about the root if its length is 1.
    Disagree,
}

impl Kind {
    const ALL: [Self; 28] = [
        Self::Barrier,
        Self::Bcast,
        Self::BcastMore,
        Self::BcastAwaited,
        Self::BcastPassing,
        Self::Gather,
        Self::GatherSent,
        Self::GatherAwaited,
        Self::Scatter,
        Self::ScatterAwaited,
        Self::ScatterListed,
        Self::ScatterSent,
        Self::Allgather,
        Self::AllgatherChosen,
        Self::Alltoall,
        Self::AlltoallListed,
        Self::Reduce,
        Self::ReduceAwaited,
        Self::ReduceInRounds,
        Self::Allreduce,
        Self::ReduceScatter,
        Self::ReduceScatterUneven,
        Self::Scan,
        Self::Exscan,
        Self::NeighbourAllgather,
        Self::NeighbourAlltoall,
        Self::NeighbourAlltoallSent,
        Self::Disagree,
    ];

    /// Whether a rank that shows this waits for another to show something.
    pub(in crate::direct) fn waits(self) -> bool {
        matches!(
            self,
            Self::BcastAwaited | Self::GatherAwaited | Self::ScatterAwaited | Self::ReduceAwaited
        )
    }

    /// In words, for errors.
    pub(in crate::direct) fn text(self) -> &'static str {
        match self {
            Self::Barrier => "a barrier",
            Self::Bcast | Self::BcastMore | Self::BcastAwaited | Self::BcastPassing => "a bcast",
            Self::Gather | Self::GatherSent | Self::GatherAwaited => "a gather",
            Self::Scatter | Self::ScatterAwaited | Self::ScatterListed | Self::ScatterSent => {
                "a scatter"
            }
            Self::Allgather | Self::AllgatherChosen => "an allgather",
            Self::Alltoall => "an alltoall",
            Self::AlltoallListed => "an alltoallv",
            Self::Reduce | Self::ReduceAwaited | Self::ReduceInRounds => "a reduce",
            Self::Allreduce => "an allreduce",
            Self::ReduceScatter | Self::ReduceScatterUneven => "a reduce-scatter",
            Self::Scan => "a scan",
            Self::Exscan => "an exscan",
            Self::NeighbourAllgather => "a neighbour allgather",
            Self::NeighbourAlltoall | Self::NeighbourAlltoallSent => "a neighbour alltoall",
            Self::Disagree => "an operation in which ranks disagree",
        }
    }
}

/// The header of a cell: the step that it is for, what the rank is doing, with what sort of items,
/// and how many bytes.
///
/// The step is in it so that one load shows both that the cell is there and what is in it. Lengths
/// of [`LONG`](Self::LONG) bytes and more are in the cell's data instead. The last bit says that a
/// rank on a track goes by messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::direct) struct Header(pub(in crate::direct) u64);

impl Header {
    /// The length in the header that says: look into the cell.
    pub(in crate::direct) const LONG: usize = (1 << (63 - Self::LEN)) - 1;
    /// Where the kind, the sort and the length begin.
    const KIND: u32 = 32;
    const SORT: u32 = 37;
    const LEN: u32 = Self::SORT + Sort::BITS;
    const KINDS: u64 = (1 << (Self::SORT - Self::KIND)) - 1;

    #[inline]
    pub(in crate::direct) fn new(step: u32, kind: Kind, sort: Sort, len: usize) -> Self {
        let len = len.min(Self::LONG) as u64;
        let what = (kind as u64) << Self::KIND | sort.bits() << Self::SORT;
        Self(u64::from(step) | what | len << Self::LEN)
    }

    /// Where the root begins in the length that ranks show of a reduction in rounds.
    const ROOT: u32 = ASIDE.ilog2() + 1;
    /// So many roots are told apart; of more ranks some look alike.
    const ROOTS: u32 = 1 << 9;

    /// The length that ranks show of a reduction in rounds ([`Kind::ReduceInRounds`]), of [`ASIDE`]
    /// bytes at most.
    #[inline]
    pub(in crate::direct) fn len_and_root(len: usize, root: u32) -> usize {
        debug_assert!(len >> Self::ROOT == 0);
        len | ((root % Self::ROOTS) as usize) << Self::ROOT
    }

    /// The length of the rank's data, as far as the header tells.
    pub(in crate::direct) fn data_len(self) -> usize {
        match self.kind() {
            Some(Kind::ReduceInRounds) => self.len() & ((1 << Self::ROOT) - 1),
            _ => self.len(),
        }
    }

    /// Whether it is the same but for the sort.
    #[inline]
    pub(in crate::direct) fn is_but_for_sort(self, other: Self) -> bool {
        let sorts = ((1 << Sort::BITS) - 1) << Self::SORT;
        (self.0 ^ other.0) & !sorts == 0
    }

    #[inline]
    pub(in crate::direct) fn sort(self) -> Sort {
        Sort::from_bits(self.0 >> Self::SORT)
    }

    /// The same, of a rank that does it by messages.
    #[inline]
    pub(in crate::direct) fn by_messages(self) -> Self {
        Self(self.0 | 1 << 63)
    }

    /// Whether the rank does it by messages.
    #[inline]
    pub(in crate::direct) fn is_by_messages(self) -> bool {
        self.0 >> 63 != 0
    }

    /// The same for a step, where it was made for step 0.
    #[inline]
    pub(in crate::direct) fn of_step(self, step: u32) -> Self {
        debug_assert_eq!(self.step(), 0);
        Self(self.0 | u64::from(step))
    }

    #[inline]
    pub(in crate::direct) fn step(self) -> u32 {
        self.0 as u32
    }

    /// `None` for something that no rank writes.
    pub(in crate::direct) fn kind(self) -> Option<Kind> {
        let kind = self.0 >> Self::KIND & Self::KINDS;
        Kind::ALL.into_iter().find(|&known| known as u64 == kind)
    }

    #[inline]
    pub(in crate::direct) fn len(self) -> usize {
        (self.0 >> Self::LEN) as usize & Self::LONG
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_keep_what_they_are_made_of() {
        let sorts = [Sort::ANY, Sort::from_bits(13), Sort::from_bits(31)];
        let new = |step, kind, len| Header::new(step, kind, sorts[1], len);
        for kind in Kind::ALL {
            for len in [0, 1, 77, Header::LONG - 1] {
                for step in [0, 1, u32::MAX] {
                    for sort in sorts {
                        let header = Header::new(step, kind, sort, len);
                        assert_eq!((header.step(), header.kind()), (step, Some(kind)));
                        assert_eq!((header.sort(), header.len()), (sort, len));
                        assert!(header.is_but_for_sort(new(step, kind, len)));
                        assert!(!header.is_but_for_sort(new(step, kind, len + 1)));
                    }
                }
            }
        }
        assert_eq!(new(3, Kind::Bcast, usize::MAX).len(), Header::LONG);
        for (len, root) in [(0, 1), (7, 0), (ASIDE, 511), (ASIDE, 512)] {
            let shown = Header::len_and_root(len, root);
            assert!(shown < Header::LONG);
            assert_eq!(new(3, Kind::ReduceInRounds, shown).data_len(), len);
            assert_eq!(new(3, Kind::Reduce, shown).data_len(), shown);
        }
        let sent = new(7, Kind::Exscan, 5).by_messages();
        assert!(sent.is_by_messages() && !new(7, Kind::Exscan, usize::MAX).is_by_messages());
        assert_eq!((sent.step(), sent.len()), (7, 5));
        assert_eq!((sent.kind(), sent.sort()), (Some(Kind::Exscan), sorts[1]));
        assert_eq!(Header(0).kind(), None);
    }

    #[test]
    fn nothing_on_a_board_overlaps() {
        for (ranks, chunk) in [1, 2, RADIX, RADIX + 1, 16, 17, 200]
            .into_iter()
            .flat_map(|ranks| [CHUNK, CHUNK_IN_TURNS].map(|chunk| (ranks, chunk)))
        {
            let map = Map::new(ranks, chunk);
            let mut board = vec![0u64; map.len() / 8];
            let base = board.as_mut_ptr().cast::<u8>();
            let at = |ptr: *const u8| ptr as usize - base as usize;
            // SAFETY: `board` has the length of a board, and nobody else uses it.
            let (first, gone) = unsafe { (map.gone(base, 0), map.gone(base, ranks - 1)) };
            // SAFETY: as above.
            let (done, processor) = unsafe { (map.done(base), map.processor(base)) };
            let words = [done, processor, first].map(|word| at(std::ptr::from_ref(word).cast()));
            // Each in a line of its own.
            assert!(words[0] / LINE < words[1] / LINE && words[1] / LINE < words[2] / LINE);
            assert!(at(std::ptr::from_ref(gone).cast()) + 4 <= at(map.data(base, 0)) - HEADER);
            assert_eq!(at(map.data(base, CELLS)), at(map.data(base, 0)));
            assert!(at(map.data(base, CELLS - 1)) + IN_CELL <= map.zeroed());
            assert!(at(map.chunk(base, 0)) >= map.zeroed());
            assert_eq!(at(map.chunk(base, CHUNKS - 1)) + chunk, map.small());
            assert!(map.wide_len() <= 2 * chunk);
            let mut end = at(map.data(base, CELLS - 1)) + IN_CELL;
            let mut small = map.small();
            for track in 0..if map.has_tracks { TRACKS } else { 0 } {
                let of_track = map.track(track);
                // SAFETY: as above.
                let done = at(std::ptr::from_ref(unsafe { of_track.done(base) }).cast());
                assert!(done == end && done.is_multiple_of(LINE));
                assert_eq!(of_track.cell(0), done + LINE);
                assert_eq!(of_track.cell(cells(track)), of_track.cell(0));
                end = at(data_of(base, of_track.cell(cells(track) - 1))) + IN_CELL;
                assert_eq!(of_track.chunk(0), small);
                small = of_track.chunk(chunks(track) - 1) + small_list(track);
            }
            assert!(end <= map.zeroed() && small == map.len());
        }
    }
}
