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
//! seen that ([`Looks::late`]). So a rank looks at all its sources before it waits until what it sends has gone: two may have to
//! take each other's.

use portolan_core::buffer::TypedBuf;
use portolan_core::comm::{Cartesian, Neighbour, Neighbours, Topology};
use portolan_core::{Device, Result};

use super::board::{CHUNK, Header, Kind};
use super::data::Stream;
use super::messages::Messages;
use super::steps::{Place, Steps, Way};
use crate::args::Many;
use crate::neighbour::{EDGE_LANES, lane_of};
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
    let mut messages = Messages::new(steps.rank(), steps.size());
    for (edge, block) in edges(sources, |edge| Stream::block(recv, edge)) {
        // An empty one is not sent.
        if block.len() > 0 && !shown.is_short(sources, edge, block.len() as u64) {
            messages.receive(edge.0, lane_of(edge.1), &block);
        }
    }
    // SAFETY: from the caller.
    let place = unsafe { show(&mut steps, shown, destinations, &mut messages)? };
    let mut looks = Looks {
        late: Some(Messages::new(steps.rank(), steps.size())),
        taken: Ok(()),
        shown,
        sources,
        recv,
        place,
        expected: 0,
        number,
        steps,
    };
    // SAFETY: from the caller; what lies on boards goes to other blocks than what comes in messages.
    let sent = unsafe { messages.exchange_watched(comm, state, number, |one| looks.comes(one)) };
    match &sent {
        Err(error) if ends(error) => {}
        // SAFETY: from the caller.
        _ => unsafe { looks.at_all()? },
    }
    let outcome = looks.end();
    outcome.and_then(|way| sent.map(|()| way))
}

/// Shows what this rank sends, and adds what goes as messages. Says where it is shown.
///
/// # Safety
/// As [`allgather`].
unsafe fn show<D: Device>(
    steps: &mut Steps<'_, D>,
    shown: &Shown<'_>,
    destinations: &[Neighbour],
    messages: &mut Messages,
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
    for (edge, block) in edges(destinations, |edge| shown.block(edge)) {
        if !(fits && shown.is_short(destinations, edge, block.len() as u64)) {
            messages.send(edge.0, lane_of(edge.1), &block);
        }
    }
    Ok(place)
}

/// What a rank sees when it looks at its sources.
struct Looks<'a, D: Device> {
    steps: Steps<'a, D>,
    shown: &'a Shown<'a>,
    sources: &'a [Neighbour],
    recv: &'a Many<'a>,
    /// The largest place that it uses: its own or another's.
    place: Place,
    /// Bytes that it expected of the first who disagrees, or of the last.
    expected: usize,
    number: u32,
    /// Messages of which it learns by looking: blocks that have no room on a board, and what ranks send that disagree, which somebody
    /// has to take. `None` when it has looked.
    late: Option<Messages>,
    /// What came of those.
    taken: Result<()>,
}

impl<D: Device> Looks<'_, D> {
    /// Whether a message of this operation will be there: whether the rank at the other end takes part as this one does. What is
    /// there already, or on its way to a rank that has not been seen, will be.
    ///
    /// # Safety
    /// As [`at_all`](Self::at_all).
    unsafe fn comes(&mut self, one: &Started) -> Result<bool> {
        if self.steps.comm.device().is_complete(one.request) {
            return Ok(true);
        }
        let Some(len) = one.expected else {
            // SAFETY: from the caller.
            unsafe { self.at_all()? };
            // It owes nobody anything any more: the other end shows what it does without waiting for this rank.
            let header = self.steps.header_or(one)?;
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
        let (sources, recv) = (self.sources, self.recv);
        let edge = edges(sources, |edge| Stream::block(recv, edge)).find(is_it);
        Ok(edge.is_none_or(|(edge, _)| matches!(self.find(edge, header), (1.., None))))
    }

    /// Looks at all sources, takes what lies on their boards, and what is seen then to come as a message; once.
    ///
    /// # Safety
    /// The blocks are writable.
    unsafe fn at_all(&mut self) -> Result<()> {
        let Some(mut late) = self.late.take() else {
            return Ok(());
        };
        let (sources, recv) = (self.sources, self.recv);
        let beside = self.steps.beside();
        let first = usize::from(!beside.is_any());
        // Those of the same processor first.
        for here in &[true, false][first..] {
            for (edge, block) in edges(sources, |edge| Stream::block(recv, edge)) {
                if beside.is_beside(edge.0) == *here {
                    // SAFETY: from the caller.
                    unsafe { self.at(edge, &block, &mut late)? };
                }
            }
        }
        let (comm, state) = (self.steps.comm, self.steps.state);
        // SAFETY: from the caller.
        self.taken = unsafe { late.exchange(comm, state, self.number) };
        Ok(())
    }

    /// Looks at a source, and takes a block.
    ///
    /// # Safety
    /// The block is writable.
    unsafe fn at(&mut self, edge: Edge, block: &Stream<'_>, late: &mut Messages) -> Result<()> {
        let (from, lane) = (edge.0, lane_of(edge.1));
        let header = self.steps.header_of(from)?;
        let mine = block.len();
        let is_short = self.shown.is_short(self.sources, edge, mine as u64);
        if !self.steps.disagree() {
            self.expected = mine;
        }
        let kind = header.kind();
        if kind == Some(Kind::NeighbourAlltoallSent) && self.shown.is_list() {
            if is_short && mine > 0 {
                late.receive(from, lane, block);
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
        } else if let Some(at) = at.filter(|_| mine > 0) {
            let sort = self.steps.sort_of(block.layout());
            self.steps.see_sort_as(sort, from, header);
            // SAFETY: so many bytes have been posted there; the block is the caller's.
            unsafe { block.write(0, at, mine) };
        }
        if at.is_none() && theirs > 0 && (is_short || mine == 0) {
            late.receive(from, lane, block);
        }
        Ok(())
    }

    /// The length of an edge's block at its source, and where it is, if it lies there.
    fn find(&mut self, (from, lane): Edge, header: Header) -> (u64, Option<*mut u8>) {
        let shown = self.steps.len_of(from, header);
        let is_here = self.shown.is_list() || shown <= self.shown.limit as u64;
        if !is_here {
            return (shown, None);
        }
        let place = Place::of(shown as usize);
        if place == Place::Chunk {
            self.place = place;
        }
        let at = self.steps.at(from, place);
        match self.shown.blocks {
            Blocks::Same(_) => (shown, Some(at)),
            // SAFETY: it has posted a list.
            Blocks::List(_) => unsafe { find(at, (self.steps.rank(), lane)) },
        }
    }

    /// Ends the operation.
    fn end(mut self) -> Result<Way> {
        match self.place {
            Place::Cell => self.steps.next(),
            Place::Chunk => self.steps.next_published(),
        }
        let outcome = self.steps.end(self.shown.kind(), self.expected);
        outcome.and_then(|way| self.taken.map(|()| way))
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
/// With the length of a block in a list: it is there.
const HERE: u64 = 1 << 63;

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

    /// Whether an edge's block of so many bytes lies on the board, if there is room for all, which both ends know. `edges` are
    /// those of this rank, in the same role. Where more lead to one rank than there are lanes, those in one lane match in
    /// their order: they are all messages.
    fn is_short(&self, edges: &[Neighbour], (rank, _): Edge, len: u64) -> bool {
        let fit_lanes = || {
            let same = edges.iter().filter(|edge| edge.rank == Some(rank));
            edges.len() <= EDGE_LANES as usize || same.count() <= EDGE_LANES as usize
        };
        len <= self.limit as u64 && (!self.is_list() || fit_lanes())
    }

    /// Bytes of an edge's block that lie on the board.
    fn on_board(&self, edges: &[Neighbour], edge: Edge, len: usize) -> usize {
        match self.is_short(edges, edge, len as u64) {
            true => len,
            false => 0,
        }
    }

    /// Bytes that it takes.
    fn room(&self, destinations: &[Neighbour]) -> usize {
        match self.blocks {
            Blocks::Same(block) if block.len() <= self.limit => block.len(),
            Blocks::Same(_) => 0,
            Blocks::List(_) => edges(destinations, |edge| self.block(edge))
                .map(|(edge, block)| ENTRY + self.on_board(destinations, edge, block.len()))
                .fold(WORD, |sum, more| {
                    sum.saturating_add(more.next_multiple_of(WORD))
                }),
        }
    }

    /// # Safety
    /// There is room at `to`, which nobody else uses, aligned to a word; what is sent is readable.
    unsafe fn write(&self, destinations: &[Neighbour], to: *mut u8) {
        // SAFETY: from the caller, for all of it.
        unsafe {
            let Blocks::List(many) = self.blocks else {
                let block = self.block(0);
                return block.read(0, to, self.room(destinations));
            };
            let all = || edges(destinations, |edge| Stream::block(many, edge));
            let count = all().count();
            to.cast::<u64>().write(count as u64);
            let mut entry = to.add(WORD);
            let mut at = entry.add(count * ENTRY);
            for (edge, block) in all() {
                let words = entry.cast::<u64>();
                let len = self.on_board(destinations, edge, block.len());
                let here = if len == block.len() { HERE } else { 0 };
                words.write(word_of(edge));
                words.add(1).write(block.len() as u64 | here);
                block.read(0, at, len);
                entry = entry.add(ENTRY);
                at = at.add(len.next_multiple_of(WORD));
            }
        }
    }
}

/// The length of an edge's block in a list, and where it is, if it is there.
///
/// # Safety
/// The list has been posted at `list`.
unsafe fn find(list: *mut u8, edge: Edge) -> (u64, Option<*mut u8>) {
    // SAFETY: from the caller, for all of it.
    unsafe {
        let count = list.cast::<u64>().read() as usize;
        let mut at = list.add(WORD + count * ENTRY);
        for entry in 0..count {
            let words = list.add(WORD + entry * ENTRY).cast::<u64>();
            let told = words.add(1).read();
            let (len, is_here) = (told & !HERE, told & HERE != 0);
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

/// An edge in a list: the rank at its other end, and its number among those between the two.
fn word_of((rank, lane): Edge) -> u64 {
    u64::from(rank) << 32 | u64::from(lane)
}
