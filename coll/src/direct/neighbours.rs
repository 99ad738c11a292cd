//! Neighbour collectives over boards.
//!
//! A rank knows its own edges only, and nobody but its neighbours how much goes along them. So each shows what it sends in one
//! step, and looks at its sources alone. Blocks up to a length lie on the board; longer ones go as messages,
//! which both ends of an edge know from its length. Before a rank waits for a message it looks if the other end has the same
//! in mind: a receiver does not wait for what never comes, nor a sender for somebody who does something else. No sooner, because
//! where ranks take turns on processors it is the wait for a message that finds out who has to run next.
//!
//! For allgather the board has the block; else a list of blocks by edge. Where there is no room for that, which many or long
//! edges make, the rank says so, and everything goes as messages: what others expected to find here they receive when they have
//! seen that ([`Looks::late`]).

use portolan_core::buffer::TypedBuf;
use portolan_core::comm::{Cartesian, Neighbour, Neighbours, Topology};
use portolan_core::{Device, Result};

use super::board::{CHUNK, Header, Kind};
use super::data::Stream;
use super::messages::Messages;
use super::steps::{Place, Steps, Way};
use crate::args::Many;
use crate::neighbour::lane_of;
use crate::run::{Started, ends};

/// Bytes of a block of a list that lies on the board, at most, in a graph, where a rank may have any number of edges.
const SHORT: usize = 8 << 10;

/// Allgather and allgatherv along edges. `number` is that of the operation, for its messages.
///
/// # Safety
/// The contribution is readable, the blocks are writable and do not overlap it.
pub(super) unsafe fn allgather<D: Device>(
    steps: Steps<'_, D>,
    send: &TypedBuf<'_>,
    recv: &Many<'_>,
    number: u32,
) -> Result<Way> {
    let shown = Shown {
        limit: CHUNK,
        blocks: Blocks::Same(Stream::of(send)),
    };
    // SAFETY: from the caller.
    unsafe { exchange(steps, &shown, recv, number) }
}

/// Alltoall, alltoallv and alltoallw along edges.
///
/// # Safety
/// As [`allgather`].
pub(super) unsafe fn alltoall<D: Device>(
    steps: Steps<'_, D>,
    send: &Many<'_>,
    recv: &Many<'_>,
    number: u32,
) -> Result<Way> {
    let shown = Shown {
        limit: limit_of_list(steps.comm.topology()),
        blocks: Blocks::List(send),
    };
    // SAFETY: from the caller.
    unsafe { exchange(steps, &shown, recv, number) }
}

/// # Safety
/// As [`allgather`].
unsafe fn exchange<D: Device>(
    mut steps: Steps<'_, D>,
    shown: &Shown<'_>,
    recv: &Many<'_>,
    number: u32,
) -> Result<Way> {
    let (comm, state) = (steps.comm, steps.state);
    let neighbours = state.neighbours(comm);
    let Neighbours {
        sources,
        destinations,
    } = neighbours.expect("that there is a topology has been checked");
    // All ranks take another number, for messages that are seen late to be needed.
    let late_number = state.begin();
    let new = |steps: &Steps<'_, D>| Messages::new(steps.rank(), steps.size());
    let (mut messages, mut late) = (new(&steps), new(&steps));
    for ((from, lane), block) in edges(sources, |edge| Stream::block(recv, edge)) {
        if block.len() > shown.limit {
            messages.receive(from, lane_of(lane), &block);
        }
    }
    // SAFETY: from the caller.
    let place = unsafe { show(&mut steps, shown, destinations, [&mut messages, &mut late])? };
    let mut looks = Looks {
        shown,
        place,
        expected: 0,
        late,
        unwanted: new(&steps),
        steps,
    };
    // SAFETY: from the caller; what lies on boards goes to other blocks than what comes in messages.
    let sent = unsafe {
        messages.exchange_watched(comm, state, number, |one| looks.comes(one, sources, recv))
    };
    let outcome = match &sent {
        Err(error) if ends(error) => Ok(()),
        // SAFETY: from the caller.
        _ => unsafe { looks.at_all(sources, recv) },
    };
    outcome?;
    let outcome = looks.end([number, late_number]);
    outcome.and_then(|way| sent.map(|()| way))
}

/// Shows what this rank sends, and adds what goes as messages: long blocks, and, late, short ones that should be on the board and
/// have no room there. Says where it is shown.
///
/// # Safety
/// As [`allgather`].
unsafe fn show<D: Device>(
    steps: &mut Steps<'_, D>,
    shown: &Shown<'_>,
    destinations: &[Neighbour],
    [messages, late]: [&mut Messages; 2],
) -> Result<Place> {
    let room = shown.room(destinations);
    let fits = room <= CHUNK;
    let place = if fits { Place::of(room) } else { Place::Cell };
    steps.room(place)?;
    if fits {
        // SAFETY: from the caller; the place is this rank's, free, and has the room.
        unsafe { shown.write(destinations, steps.mine(place)) };
        let len = match shown.blocks {
            Blocks::Same(block) => block.len(),
            Blocks::List(_) => room,
        };
        steps.post(shown.kind(), len);
    } else {
        steps.post(Kind::NeighbourAlltoallSent, 0);
    }
    for ((to, lane), block) in edges(destinations, |edge| shown.block(edge)) {
        if block.len() > shown.limit {
            messages.send(to, lane_of(lane), &block);
        } else if !fits {
            late.send(to, lane_of(lane), &block);
        }
    }
    Ok(place)
}

/// What a rank sees when it looks at its sources.
struct Looks<'a, D: Device> {
    steps: Steps<'a, D>,
    shown: &'a Shown<'a>,
    /// The largest place that it uses: its own or another's.
    place: Place,
    /// Bytes that it expected of the first who disagrees, or of the last.
    expected: usize,
    /// Messages that others learn of by looking at boards.
    late: Messages,
    /// Messages of ranks that disagree, which somebody has to take, or they would wait for ever.
    unwanted: Messages,
}

impl<D: Device> Looks<'_, D> {
    /// Whether a message of this operation will be there: whether the rank at the other end takes part as this one does. What is
    /// there already, or on its way to a rank that has not been seen, will be.
    fn comes(&mut self, one: &Started, sources: &[Neighbour], recv: &Many<'_>) -> Result<bool> {
        if self.steps.comm.device().is_complete(one.request) {
            return Ok(true);
        }
        let Some(len) = one.expected else {
            let header = self.steps.seen_of(one.peer);
            return Ok(header.is_none_or(|header| self.shown.is_done_by(header)));
        };
        let header = match self.steps.header_or(one)? {
            Some(header) if header.kind() == Some(self.shown.kind()) => header,
            Some(header) => return Ok(self.shown.is_done_by(header)),
            None => return Ok(true),
        };
        let is_it = |&((from, lane), block): &(Edge, Stream<'_>)| {
            (from, lane_of(lane), block.len()) == (one.peer, one.lane, len)
        };
        let edge = edges(sources, |edge| Stream::block(recv, edge)).find(is_it);
        Ok(edge.is_none_or(|(edge, _)| self.find(edge, header).0 > self.shown.limit as u64))
    }

    /// Looks at all sources, and takes what lies on their boards.
    ///
    /// # Safety
    /// The blocks are writable.
    unsafe fn at_all(&mut self, sources: &[Neighbour], recv: &Many<'_>) -> Result<()> {
        let beside = self.steps.beside();
        let first = usize::from(!beside.is_any());
        // Those of the same processor first.
        for here in &[true, false][first..] {
            for (edge, block) in edges(sources, |edge| Stream::block(recv, edge)) {
                if beside.is_beside(edge.0) == *here {
                    // SAFETY: from the caller.
                    unsafe { self.at(edge, &block)? };
                }
            }
        }
        Ok(())
    }

    /// Looks at a source, and takes a block.
    ///
    /// # Safety
    /// The block is writable.
    unsafe fn at(&mut self, edge: Edge, block: &Stream<'_>) -> Result<()> {
        let (from, lane, limit) = (edge.0, lane_of(edge.1), self.shown.limit);
        let header = self.steps.header_of(from)?;
        let mine = block.len();
        if !self.steps.disagree() {
            self.expected = mine;
        }
        let kind = header.kind();
        if kind == Some(Kind::NeighbourAlltoallSent) && self.shown.is_list() {
            if (1..=limit).contains(&mine) {
                self.late.receive(from, lane, block);
            }
            return Ok(());
        }
        if kind != Some(self.shown.kind()) {
            self.steps.note(from, header);
            return Ok(());
        }
        let (theirs, at) = self.find(edge, header);
        if theirs != mine as u64 {
            self.steps.note_len(from, header, theirs);
            if theirs > limit as u64 && mine <= limit {
                self.unwanted.receive(from, lane, block);
            }
        } else if (1..=limit).contains(&mine) {
            let sort = self.steps.sort_of(block.layout());
            self.steps.see_sort_as(sort, from, header);
            // SAFETY: so many bytes have been posted there; the block is the caller's.
            unsafe { block.write(0, at, mine) };
        }
        Ok(())
    }

    /// The length of an edge's block at its source, and where it is, if it lies there.
    fn find(&mut self, edge: Edge, header: Header) -> (u64, *mut u8) {
        let (from, lane) = edge;
        let shown = self.steps.len_of(from, header);
        // What is longer than a chunk lies nowhere.
        let place = match self.shown.is_list() || shown <= self.shown.limit as u64 {
            true => Place::of(shown as usize),
            false => Place::Cell,
        };
        if place == Place::Chunk {
            self.place = place;
        }
        let at = self.steps.at(from, place);
        match self.shown.blocks {
            Blocks::Same(_) => (shown, at),
            // SAFETY: it has posted a list.
            Blocks::List(_) => unsafe { self.shown.find(at, (self.steps.rank(), lane)) },
        }
    }

    /// Ends the operation, and sends and takes late messages.
    fn end(mut self, [number, late_number]: [u32; 2]) -> Result<Way> {
        match self.place {
            Place::Cell => self.steps.next(),
            Place::Chunk => self.steps.next_published(),
        }
        let (comm, state) = (self.steps.comm, self.steps.state);
        let outcome = self.steps.end(self.shown.kind(), self.expected);
        // SAFETY: the blocks are those of `exchange`.
        let (taken, late) = unsafe {
            let taken = self.unwanted.exchange(comm, state, number);
            (taken, self.late.exchange(comm, state, late_number))
        };
        outcome.and_then(|way| taken.and(late).map(|()| way))
    }
}

/// The rank at the other end of an edge, and the edge's number among those between the two.
type Edge = (u32, u32);

/// The edges that are there, with their data.
fn edges<'a>(
    neighbours: &'a [Neighbour],
    data: impl Fn(u32) -> Stream<'a>,
) -> impl Iterator<Item = (Edge, Stream<'a>)> {
    let edge = move |(at, neighbour): (u32, &Neighbour)| {
        Some(((neighbour.rank?, neighbour.lane), data(at)))
    };
    (0..).zip(neighbours).filter_map(edge)
}

/// Bytes of a block of a list that lies on the board, at most: so many that all fit there, where all ranks know how many edges
/// a rank has at most.
fn limit_of_list(topology: Option<&Topology>) -> usize {
    match topology {
        Some(Topology::Cartesian(grid)) => limit_on_grid(grid),
        _ => SHORT,
    }
}

pub(super) fn limit_on_grid(grid: &Cartesian) -> usize {
    let edges = 2 * grid.dims().len().max(1);
    (((CHUNK - WORD) / edges).saturating_sub(ENTRY) / WORD * WORD).max(WORD)
}

/// What a rank shows its destinations.
struct Shown<'a> {
    /// Bytes of a block that lies on the board, at most: the same on all ranks.
    limit: usize,
    blocks: Blocks<'a>,
}

enum Blocks<'a> {
    /// The same for all.
    Same(Stream<'a>),
    /// A block for each: their number, the edge and length of each, and the short ones.
    List(&'a Many<'a>),
}

/// Bytes of a number in a list; blocks begin at multiples of it.
const WORD: usize = size_of::<u64>();
/// Bytes of a list for each edge beside its block.
const ENTRY: usize = 2 * WORD;

impl<'a> Shown<'a> {
    fn kind(&self) -> Kind {
        match self.blocks {
            Blocks::Same(_) => Kind::NeighbourAllgather,
            Blocks::List(_) => Kind::NeighbourAlltoall,
        }
    }

    /// Whether a rank that shows this does the same operation.
    fn is_done_by(&self, header: Header) -> bool {
        let kind = header.kind();
        kind == Some(self.kind()) || self.is_list() && kind == Some(Kind::NeighbourAlltoallSent)
    }

    fn is_list(&self) -> bool {
        matches!(self.blocks, Blocks::List(_))
    }

    fn block(&self, edge: u32) -> Stream<'a> {
        match self.blocks {
            Blocks::Same(block) => block,
            Blocks::List(many) => Stream::block(many, edge),
        }
    }

    /// Bytes of a block that lie on the board.
    fn on_board(&self, len: usize) -> usize {
        if len <= self.limit { len } else { 0 }
    }

    /// Bytes that it takes.
    fn room(&self, destinations: &[Neighbour]) -> usize {
        match self.blocks {
            Blocks::Same(block) => self.on_board(block.len()),
            Blocks::List(_) => {
                let room = |block: Stream<'_>| self.on_board(block.len()).next_multiple_of(WORD);
                edges(destinations, |edge| self.block(edge))
                    .map(|(_, block)| ENTRY + room(block))
                    .fold(WORD, usize::saturating_add)
            }
        }
    }

    /// # Safety
    /// There is room at `to`, which nobody else uses, aligned to a word; what is sent is readable.
    unsafe fn write(&self, destinations: &[Neighbour], to: *mut u8) {
        // SAFETY: from the caller, for all of it.
        unsafe {
            let Blocks::List(many) = self.blocks else {
                let block = self.block(0);
                return block.read(0, to, self.on_board(block.len()));
            };
            let all = || edges(destinations, |edge| Stream::block(many, edge));
            let count = all().count();
            to.cast::<u64>().write(count as u64);
            let mut entry = to.add(WORD);
            let mut at = entry.add(count * ENTRY);
            for (edge, block) in all() {
                let words = entry.cast::<u64>();
                words.write(word_of(edge));
                words.add(1).write(block.len() as u64);
                let len = self.on_board(block.len());
                block.read(0, at, len);
                entry = entry.add(ENTRY);
                at = at.add(len.next_multiple_of(WORD));
            }
        }
    }

    /// The length of an edge's block in a list, and where it is.
    ///
    /// # Safety
    /// The list has been posted at `list`.
    unsafe fn find(&self, list: *mut u8, edge: Edge) -> (u64, *mut u8) {
        // SAFETY: from the caller, for all of it.
        unsafe {
            let count = list.cast::<u64>().read() as usize;
            let mut at = list.add(WORD + count * ENTRY);
            for entry in 0..count {
                let words = list.add(WORD + entry * ENTRY).cast::<u64>();
                let len = words.add(1).read();
                if words.read() == word_of(edge) {
                    return (len, at);
                }
                at = at.add(self.on_board(len as usize).next_multiple_of(WORD));
            }
        }
        (0, list)
    }
}

/// An edge in a list: the rank at its other end, and its number among those between the two.
fn word_of((rank, lane): Edge) -> u64 {
    u64::from(rank) << 32 | u64::from(lane)
}
