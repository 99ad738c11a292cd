//! Boards: the memory in which a rank shows the others its part, and its layout.
//!
//! Each rank has one board per communicator and writes only its own. (The exception is the words in
//! which the other ranks say that they no longer use it: [`Map::gone`].) Operations are made of
//! *steps*, which all ranks count alike. In step `s` a rank has cell `s mod` [`CELLS`] (two cache
//! lines with a header and a little data) and, for more data, chunk `s mod` [`CHUNKS`].
//!
//! Besides the places for blocking operations a board has *tracks* ([`TRACKS`]), each with steps,
//! cells and small chunks of its own. They serve operations that are under way while the rank does
//! something else.

use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::direct::agree::sort::Sort;
use crate::direct::blocking::exchange::{ASIDE, RADIX};

/// Cells of a board: a rank may be at most this many steps ahead of the slowest. (Where ranks take
/// turns on processors, a rank that waits for no other runs on for this many steps before it gives
/// its processor away. Times with eight and four ranks on two cores, 8 bytes, relative to 16 cells:
/// scatter 0.91 and 0.92, gather 0.86, bcast 0.84 and 0.90. With 64, the lines of all cells take so
/// much of the L1 cache that an operation of 1 KiB takes 1.04 to 1.08 of the time.)
pub(in crate::direct) const CELLS: u32 = 32;
/// Chunks of a board: the same limit for steps with more data than a cell holds.
pub(in crate::direct) const CHUNKS: u32 = 4;
/// Minimum bytes of a chunk. Both the copy into a chunk and the copy out of it should find it in
/// the L2 cache, together with the other chunks. The size is a little more than a power of two:
/// blocks whose length is a power of two, divided among the others of two, four or eight ranks,
/// then need no extra step for their last bytes or for the lengths in front of them.
pub(in crate::direct) const CHUNK: usize = 68 << 10;
/// The same where ranks take turns on processors. There a step costs more than a copy that misses
/// the cache, because no rank continues until all ranks on each processor have had their turn.
/// (Four and eight ranks on two cores of the EPYC, relative to the shorter chunks, at 256 KiB and 1
/// MiB: bcast 0.92 to 0.96 and 0.51 to 0.53, allgather 0.66 to 0.72 and 0.82 to 0.99, allreduce
/// 0.55 to 0.60 and 0.65 to 0.84, reduce-scatter 0.61 and 0.73. Chunks twice as long are no
/// better.)
pub(in crate::direct) const CHUNK_IN_TURNS: usize = 4 * CHUNK;
/// Bytes used of a pair of adjacent chunks (the first has an even number) when a step uses both. An
/// alltoall, which shows each byte to one rank only, is the reason for this limit: twice as much
/// does not stay in a cache.
pub(in crate::direct) const WIDE: usize = 2 * CHUNK;
/// The same where ranks take turns on processors.
pub(in crate::direct) const WIDE_IN_TURNS: usize = CHUNK_IN_TURNS;
/// Bytes of data in a cell, after its header. The first 56 of them share the header's cache line.
pub(in crate::direct) const IN_CELL: usize = CELL - HEADER;

/// Tracks of a board: the first is for nonblocking operations, each of the others for one
/// persistent operation.
pub(in crate::direct) const TRACKS: usize = 9;
/// The track of nonblocking operations.
pub(crate) const NONBLOCKING: usize = 0;
pub(in crate::direct) const LINE: usize = 64;
/// Offset of the words in which ranks say that they are gone: after the line with the number of
/// finished steps and the line with the processor and the wishes.
const GONE: usize = 2 * LINE;
const CELL: usize = 2 * LINE;
const HEADER: usize = size_of::<u64>();
const PAGE: usize = 4096;

/// How many cells and chunks a track has, and how many bytes of a contribution fit in a chunk.
/// (Nonblocking operations of 16 to 64 KiB over boards take 0.4 to 0.9 of the time they take by
/// messages with two ranks on an EPYC, and 0.04 to 0.5 with four and eight ranks on two cores.) A
/// persistent operation has at most one start under way, so its track has fewer places; there are
/// also many such tracks.
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

/// Cells of a track: at most this many operations may be under way on it.
#[inline]
const fn cells(track: usize) -> u32 {
    places(track).cells
}

/// Chunks of a track.
#[inline]
const fn chunks(track: usize) -> u32 {
    places(track).chunks
}

/// Longest contribution, in bytes, that a chunk of a track holds; a longer one goes as messages.
#[inline]
pub(in crate::direct) const fn small(track: usize) -> usize {
    places(track).small
}

/// Bytes of a chunk of a track. It has a little more room than `small`, so that a list of blocks of
/// that length in total fits together with the lengths of a few edges, if each block begins at a
/// line.
#[inline]
pub(in crate::direct) const fn small_list(track: usize) -> usize {
    small(track) + 10 * LINE
}

/// Offset of a track's cells, which follow its first line, from the beginning of all tracks.
#[inline]
const fn cells_before(track: usize) -> usize {
    let few = LINE + FEW.cells as usize * CELL;
    match track {
        0 => LINE,
        _ => LINE + MANY.cells as usize * CELL + (track - 1) * few + LINE,
    }
}

/// Offset of a track's chunks from those of the first track.
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

/// The layout of a board for a given number of ranks.
#[derive(Clone, Copy, Debug)]
pub(in crate::direct) struct Map {
    cells: usize,
    tracks: usize,
    chunks: usize,
    /// Bytes of a chunk.
    chunk: usize,
    /// Whether there are tracks: communicators with more than `RADIX` ranks have none.
    has_tracks: bool,
}

impl Map {
    pub(in crate::direct) fn new(ranks: u32, chunk: usize) -> Self {
        let cells = GONE + (ranks as usize * size_of::<u32>()).next_multiple_of(LINE);
        let tracks = cells + CELLS as usize * CELL;
        // Without tracks, not even the first line of one is there.
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

    /// Bytes of two chunks when a step uses both.
    pub(in crate::direct) fn wide_len(self) -> usize {
        match self.chunk {
            CHUNK => WIDE,
            _ => WIDE_IN_TURNS,
        }
    }

    /// Bytes of a board in all.
    pub(in crate::direct) fn len(self) -> usize {
        self.small()
            + if self.has_tracks {
                chunks_before(TRACKS)
            } else {
                0
            }
    }

    /// Offset of the chunks of the tracks.
    #[inline]
    fn small(self) -> usize {
        self.chunks + CHUNKS as usize * self.chunk
    }

    /// Bytes at the beginning of a board that must be zero before its first use.
    pub(in crate::direct) fn zeroed(self) -> usize {
        self.chunks
    }

    /// The word in which the board's owner publishes how many steps it has finished.
    ///
    /// # Safety
    /// `board` is the address of a board with this map.
    #[inline]
    pub(in crate::direct) unsafe fn done<'a>(self, board: *mut u8) -> &'a AtomicU32 {
        // SAFETY: the word is at the beginning of the board, aligned to a line; it is only accessed
        // as an atomic.
        unsafe { &*board.cast::<AtomicU32>() }
    }

    /// The word in which rank `reader` says that it will not look at this board again.
    ///
    /// # Safety
    /// As [`done`](Self::done); `reader` is a rank of the communicator.
    pub(in crate::direct) unsafe fn gone<'a>(self, board: *mut u8, reader: u32) -> &'a AtomicU32 {
        // SAFETY: the words are in the lines that follow the first two; only accessed as atomics.
        unsafe { &*board.add(GONE).cast::<AtomicU32>().add(reader as usize) }
    }

    /// The word in which the board's owner says on which processor it runs, counted from 1.
    ///
    /// # Safety
    /// As [`done`](Self::done).
    pub(in crate::direct) unsafe fn processor<'a>(self, board: *mut u8) -> &'a AtomicU32 {
        // SAFETY: it is in a line of its own, behind the first; only accessed as an atomic.
        unsafe { &*board.add(LINE).cast::<AtomicU32>() }
    }

    /// The word in which the board's owner says which parts of a scatter it wants as messages
    /// ([`wishes`](crate::direct::blocking::choice::Choice::wishes)).
    ///
    /// # Safety
    /// As [`done`](Self::done).
    pub(in crate::direct) unsafe fn wishes<'a>(self, board: *mut u8) -> &'a AtomicU32 {
        // SAFETY: it follows the word of the processor; only accessed as an atomic.
        unsafe { &*board.add(LINE).cast::<AtomicU32>().add(1) }
    }

    /// The word in which the board's owner says which contributions it wishes to be lent
    /// ([`lending`](crate::direct::tracks::lending)).
    ///
    /// # Safety
    /// As [`done`](Self::done).
    pub(in crate::direct) unsafe fn loan_wishes<'a>(self, board: *mut u8) -> &'a AtomicU32 {
        // SAFETY: it follows the word of the wishes; only accessed as an atomic.
        unsafe { &*board.add(LINE).cast::<AtomicU32>().add(2) }
    }

    /// The data of the cell of a step: [`IN_CELL`] bytes.
    #[inline]
    pub(in crate::direct) fn data(self, board: *mut u8, step: u32) -> *mut u8 {
        data_of(board, self.cell(step))
    }

    /// The chunk of a step: [`chunk_len`](Self::chunk_len) bytes.
    #[inline]
    pub(in crate::direct) fn chunk(self, board: *mut u8, step: u32) -> *mut u8 {
        board.wrapping_add(self.chunks + (step % CHUNKS) as usize * self.chunk)
    }

    /// Offset of the cell of a step.
    #[inline]
    pub(in crate::direct) fn cell(self, step: u32) -> usize {
        self.cells + (step % CELLS) as usize * CELL
    }

    /// The layout of a track.
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

/// The offsets of a track's places in each board. It is computed once, because every operation
/// needs it.
#[derive(Clone, Copy, Debug)]
pub(in crate::direct) struct TrackMap {
    pub(in crate::direct) cells: u32,
    pub(in crate::direct) chunks: u32,
    first_cell: usize,
    first_chunk: usize,
    chunk: usize,
}

impl TrackMap {
    /// Offset of the cell of a step.
    #[inline]
    pub(in crate::direct) fn cell(&self, step: u32) -> usize {
        // (`%` would compile to a division, because the number of cells is not known at compile
        // time.)
        self.first_cell + (step & (self.cells - 1)) as usize * CELL
    }

    /// Offset of the chunk of a step, which has [`small_list`] bytes.
    #[inline]
    pub(in crate::direct) fn chunk(&self, step: u32) -> usize {
        self.first_chunk + (step & (self.chunks - 1)) as usize * self.chunk
    }

    /// The word in which the board's owner publishes how many steps of the track it has finished.
    ///
    /// # Safety
    /// As [`Map::done`], for a board that has such a track.
    #[inline]
    pub(in crate::direct) unsafe fn done<'a>(&self, board: *mut u8) -> &'a AtomicU32 {
        // SAFETY: it lies within the board, aligned to a line; only accessed as an atomic.
        unsafe { &*board.add(self.first_cell - LINE).cast::<AtomicU32>() }
    }
}

/// The header of the cell at offset `cell` ([`Map::cell`], [`TrackMap::cell`]).
///
/// # Safety
/// As [`TrackMap::done`].
#[inline]
pub(in crate::direct) unsafe fn header_of<'a>(board: *mut u8, cell: usize) -> &'a AtomicU64 {
    // SAFETY: the cell lies within the board, aligned to a line; only accessed as an atomic.
    unsafe { &*board.add(cell).cast::<AtomicU64>() }
}

/// The data of that cell: [`IN_CELL`] bytes.
#[inline]
pub(in crate::direct) fn data_of(board: *mut u8, cell: usize) -> *mut u8 {
    board.wrapping_add(cell + HEADER)
}

/// Which place on a board holds the data of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::direct) enum Place {
    /// The cell, after the header.
    Cell,
    /// The chunk.
    Chunk,
}

impl Place {
    /// The place in which `room` bytes fit.
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
    /// A piece after the first of a broadcast in several pieces. Its length field holds the number
    /// of pieces still to come, including this one.
    BcastMore,
    /// A rank that receives, and has nothing to show.
    BcastAwaited,
    /// A rank that waits for data that it will hand on, and will show the data here then. Its
    /// length field holds the root that the rank names.
    BcastPassing,
    Gather,
    /// A block that goes as a message. Its length field holds the root that the rank names.
    GatherSent,
    GatherAwaited,
    /// Equal parts, in the root's cell.
    Scatter,
    ScatterAwaited,
    /// Parts of any length, in the root's chunk; or in its cell if the header has a length.
    ScatterListed,
    /// Parts that go as messages.
    ScatterSent,
    Allgather,
    /// An allgather of blocks of one length: a blocking one for which the ranks choose between
    /// boards and messages, or, on a track, one whose blocks may be lent. Each rank knows that this
    /// applies from its own counts.
    AllgatherChosen,
    Alltoall,
    /// The v and w forms of alltoall.
    AlltoallListed,
    Reduce,
    /// The root of a reduction, which waits for contributions.
    ReduceAwaited,
    /// A reduction by many ranks. Its length field also holds the root that the rank names.
    ReduceInRounds,
    Allreduce,
    /// A long allreduce of two ranks of which each combines one half: with an operator of the
    /// program, or where they take turns. (It takes more steps than others of its length.)
    AllreduceHalved,
    ReduceScatter,
    /// A reduce-scatter with blocks of several lengths. A checksum of the lengths tells the ranks
    /// whether they agree.
    ReduceScatterUneven,
    Scan,
    Exscan,
    /// One block for all destinations; from some length on it goes as messages.
    NeighbourAllgather,
    /// A list of blocks, one for each edge.
    NeighbourAlltoall,
    /// Blocks that go as messages because a list has no room for them.
    NeighbourAlltoallSent,
    /// The rank has seen that ranks do not agree: about the root if the length field is 1.
    Disagree,
}

impl Kind {
    const ALL: [Self; 29] = [
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
        Self::AllreduceHalved,
        Self::ReduceScatter,
        Self::ReduceScatterUneven,
        Self::Scan,
        Self::Exscan,
        Self::NeighbourAllgather,
        Self::NeighbourAlltoall,
        Self::NeighbourAlltoallSent,
        Self::Disagree,
    ];

    /// Whether a rank that shows this waits for another rank to show its part.
    pub(in crate::direct) fn waits(self) -> bool {
        matches!(
            self,
            Self::BcastAwaited | Self::GatherAwaited | Self::ScatterAwaited | Self::ReduceAwaited
        )
    }

    /// Whether it combines items.
    pub(in crate::direct) fn is_reduction(self) -> bool {
        matches!(
            self,
            Self::Reduce
                | Self::ReduceAwaited
                | Self::ReduceInRounds
                | Self::Allreduce
                | Self::AllreduceHalved
                | Self::ReduceScatter
                | Self::ReduceScatterUneven
                | Self::Scan
                | Self::Exscan
        )
    }

    /// A description in words, for errors.
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
            Self::Allreduce | Self::AllreduceHalved => "an allreduce",
            Self::ReduceScatter | Self::ReduceScatterUneven => "a reduce-scatter",
            Self::Scan => "a scan",
            Self::Exscan => "an exscan",
            Self::NeighbourAllgather => "a neighbour allgather",
            Self::NeighbourAlltoall | Self::NeighbourAlltoallSent => "a neighbour alltoall",
            Self::Disagree => "an operation in which ranks disagree",
        }
    }
}

/// The header of a cell: the step it belongs to, what the rank is doing, the sort of its items, and
/// the number of bytes.
///
/// The header contains the step so that one load shows both that the cell has been posted and what
/// is in it. Lengths of [`LONG`](Self::LONG) bytes and more are in the cell's data instead. The
/// last bit says that the rank does an operation on a track by messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::direct) struct Header(pub(in crate::direct) u64);

impl Header {
    /// The length that tells the reader to take the actual length from the cell's data.
    pub(in crate::direct) const LONG: usize = (1 << (63 - Self::LEN)) - 1;
    /// Lengths that stand for items with gaps in reductions
    /// ([`Items::shown_len`](crate::direct::data::Items::shown_len)).
    pub(in crate::direct) const GAPS: std::ops::Range<usize> = Self::LONG - 0xffff..Self::LONG;
    /// Positions of the kind, the sort and the length.
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

    /// Position of the root within the length field of a reduction in rounds.
    const ROOT: u32 = ASIDE.ilog2() + 1;
    /// How many roots can be told apart. Where there are more ranks, some look alike.
    const ROOTS: u32 = 1 << 9;

    /// The value of the length field for a reduction in rounds ([`Kind::ReduceInRounds`]) of at
    /// most [`ASIDE`] bytes.
    #[inline]
    pub(in crate::direct) fn len_and_root(len: usize, root: u32) -> usize {
        debug_assert!(len >> Self::ROOT == 0);
        len | ((root % Self::ROOTS) as usize) << Self::ROOT
    }

    /// The length of the rank's data, as far as the header contains it.
    pub(in crate::direct) fn data_len(self) -> usize {
        match self.kind() {
            Some(Kind::ReduceInRounds) => self.len() & ((1 << Self::ROOT) - 1),
            _ => self.len(),
        }
    }

    /// Whether the two headers are equal except for the sort.
    #[inline]
    pub(in crate::direct) fn is_but_for_sort(self, other: Self) -> bool {
        let sorts = ((1 << Sort::BITS) - 1) << Self::SORT;
        (self.0 ^ other.0) & !sorts == 0
    }

    #[inline]
    pub(in crate::direct) fn sort(self) -> Sort {
        Sort::from_bits(self.0 >> Self::SORT)
    }

    /// The same header for a rank that does the operation by messages.
    #[inline]
    pub(in crate::direct) fn by_messages(self) -> Self {
        Self(self.0 | 1 << 63)
    }

    /// Whether the rank does the operation by messages.
    #[inline]
    pub(in crate::direct) fn is_by_messages(self) -> bool {
        self.0 >> 63 != 0
    }

    /// The same header for step `step`; it was made for step 0.
    #[inline]
    pub(in crate::direct) fn of_step(self, step: u32) -> Self {
        debug_assert_eq!(self.step(), 0);
        Self(self.0 | u64::from(step))
    }

    #[inline]
    pub(in crate::direct) fn step(self) -> u32 {
        self.0 as u32
    }

    /// The kind; `None` for a value that no rank writes.
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
            // Each word is in a cache line of its own.
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
