//! Neighbour collectives over boards.
//!
//! A rank knows only its own edges, and only its neighbours know how much data goes along them. So
//! each rank shows what it sends in one step, and looks at its sources alone. Blocks up to a
//! certain length lie on the board; longer ones go as messages. Both ends of an edge know which
//! from the length of its block. Before a rank waits for a message it checks that the other end
//! expects the same: a receiver must not wait for a message that never comes, nor a sender for a
//! rank that does something else. It does not check earlier, because where ranks take turns on
//! processors the wait for a message is what finds out which rank has to run next.
//!
//! The layout of what lies on a board is in [`edges`](crate::direct::boards::edges). A rank looks
//! at all its sources before it waits for its own sends to complete, because two ranks that
//! disagree may each have to take the other's messages ([`Looks::late`]).

use portolan_core::buffer::TypedBuf;
use portolan_core::comm::{Neighbour, Neighbours};
use portolan_core::{Device, Result};

use crate::args::Many;
use crate::direct::blocking::steps::{Steps, Way};
use crate::direct::boards::board::{Header, Place};
use crate::direct::boards::edges::{Blocks, Edge, Edges, Shown, edges, find, lengths_in};
use crate::direct::boards::long::LONG_ALONG;
use crate::direct::data::Stream;
use crate::direct::tracks::messages::Messages;
use crate::neighbour::lane_of;
use crate::run::{Started, ends};

/// Allgather and allgatherv along edges. `number` is the operation's number, for its messages.
///
/// # Safety
/// The contribution is readable, the blocks are writable and do not overlap it.
pub(in crate::direct) unsafe fn allgather<D: Device>(
    steps: Steps<'_, D>,
    send: &TypedBuf<'_>,
    recv: &Many<'_>,
    number: u32,
) -> Result<Way> {
    let shown = Shown {
        limit: steps.edges().map_or(0, Edges::longest),
        blocks: Blocks::Same(Stream::of(send)),
    };
    // SAFETY: from the caller.
    unsafe { exchange(steps, &shown, recv, number) }
}

/// Alltoall, alltoallv and alltoallw along edges.
///
/// # Safety
/// As [`allgather`].
pub(in crate::direct) unsafe fn alltoall<D: Device>(
    steps: Steps<'_, D>,
    send: &Many<'_>,
    recv: &Many<'_>,
    number: u32,
) -> Result<Way> {
    let limit = steps.edges().and_then(Edges::longest_listed);
    let shown = Shown {
        limit: limit.unwrap_or(0),
        blocks: match limit {
            Some(_) => Blocks::List(send),
            None => Blocks::Sent(send),
        },
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
    let edges_of = steps.edges().map(|edges| &edges.neighbours);
    let Neighbours {
        sources,
        destinations,
    } = edges_of.expect("that there is a topology has been checked");
    let mut messages = Messages::new(steps.rank(), steps.size());
    for (edge, block) in edges(sources, |edge| Stream::block(recv, edge)) {
        // An empty block is not sent.
        if block.len() > 0 && !shown.is_short(block.len() as u64) {
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
    // SAFETY: from the caller; data from boards and data from messages go to different blocks.
    let sent = unsafe { messages.exchange_watched(comm, state, number, |one| looks.comes(one)) };
    match &sent {
        Err(error) if ends(error) => {}
        // SAFETY: from the caller.
        _ => unsafe { looks.at_all()? },
    }
    let outcome = looks.end();
    outcome.and_then(|way| sent.map(|()| way))
}

/// Shows what this rank sends, and adds to `messages` what goes as messages. Returns the place
/// where it is shown.
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
    // SAFETY: the header tells how long it is, or the first word of the cell.
    let to = unsafe { steps.my_place(room, LONG_ALONG)? };
    // SAFETY: from the caller; the place is this rank's, free, and has the room. Without such a
    // place, the chunk is as free.
    unsafe {
        match to {
            Some(to) => shown.write(destinations, to),
            None => shown.write_lengths(destinations, (steps.mine(Place::Chunk), steps.chunk())),
        }
    }
    let len = match shown.blocks {
        Blocks::Same(block) => block.len(),
        Blocks::List(_) | Blocks::Sent(_) => room,
    };
    steps.post(shown.kind(), len);
    for (edge, block) in edges(destinations, |edge| shown.block(edge)) {
        if to.is_none() || !shown.is_short(block.len() as u64) {
            messages.send(edge.0, lane_of(edge.1), &block);
        }
    }
    Ok(Place::of(room))
}

/// The state of a rank that looks at its sources.
struct Looks<'a, D: Device> {
    steps: Steps<'a, D>,
    shown: &'a Shown<'a>,
    sources: &'a [Neighbour],
    recv: &'a Many<'a>,
    /// The largest place that is used, by this rank or a source.
    place: Place,
    /// Bytes expected from the first source that disagrees, or from the last source if none does.
    expected: usize,
    number: u32,
    /// Messages that this rank learns of only by looking: blocks for which a source had no memory,
    /// and messages from ranks that disagree, which have to be received by someone. `None` once it
    /// has looked.
    late: Option<Messages>,
    /// The outcome of receiving those messages.
    taken: Result<()>,
}

impl<D: Device> Looks<'_, D> {
    /// Whether a message of this operation will complete, that is, whether the rank at the other
    /// end takes part as this rank does. This holds for a message that is complete already, or that
    /// belongs to a rank that has not been seen yet.
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
            // This rank owes nothing to others any more, and the other end shows what it does
            // without waiting for this rank.
            return Ok(match self.steps.header_or(one)? {
                Some(header) if header.kind() != Some(self.shown.kind()) => {
                    // The message is cancelled, and no look at a source tells why.
                    self.steps.note(one.peer, header);
                    false
                }
                _ => true,
            });
        };
        let header = match self.steps.header_or(one)? {
            Some(header) if header.kind() == Some(self.shown.kind()) => header,
            Some(_) => return Ok(false),
            None => return Ok(true),
        };
        let is_it = |&((from, lane), block): &(Edge, Stream<'_>)| {
            (from, lane_of(lane), block.len()) == (one.peer, one.lane, len)
        };
        let (sources, recv) = (self.sources, self.recv);
        let edge = edges(sources, |edge| Stream::block(recv, edge)).find(is_it);
        let found = match edge {
            Some((edge, _)) => self.find(edge, header)?,
            None => None,
        };
        Ok(found.is_none_or(|found| matches!(found, (1.., None))))
    }

    /// Looks at all sources and takes the blocks that lie on their boards, then receives the
    /// messages that it learned of by looking. Does so only once.
    ///
    /// # Safety
    /// The blocks are writable.
    unsafe fn at_all(&mut self) -> Result<()> {
        let Some(mut late) = self.late.take() else {
            return Ok(());
        };
        let (sources, recv) = (self.sources, self.recv);
        self.steps
            .begin_looks(sources.iter().filter_map(|source| source.rank));
        let beside = self.steps.beside();
        let first = usize::from(!beside.is_any());
        // Sources on the same processor come first.
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

    /// Looks at a source, and takes a block from it.
    ///
    /// # Safety
    /// The block is writable.
    unsafe fn at(&mut self, edge: Edge, block: &Stream<'_>, late: &mut Messages) -> Result<()> {
        let (from, lane) = (edge.0, lane_of(edge.1));
        let header = self.steps.header_of(from)?;
        let mine = block.len();
        if !self.steps.disagree() {
            self.expected = mine;
        }
        if header.kind() != Some(self.shown.kind()) {
            self.steps.note(from, header);
            return Ok(());
        }
        let is_short = self.shown.is_short(mine as u64);
        let Some((theirs, at)) = self.find(edge, header)? else {
            // (If the source's block is empty, nothing comes. Then the two disagree, and the source
            // has more edges than a chunk has lengths.)
            if is_short && mine > 0 {
                late.receive(from, lane, block);
            }
            return Ok(());
        };
        if theirs != mine as u64 {
            self.steps.note_len(from, header, theirs);
        } else if let Some(at) = at.filter(|_| mine > 0) {
            let sort = self.steps.sort_of(block.layout());
            self.steps.see_sort_as(sort, from, header);
            // A block in a list belongs to one edge, so it has one reader.
            let takes = self.steps.takes() && matches!(self.shown.blocks, Blocks::List(_));
            // SAFETY: the source has posted that many bytes there; the block is the caller's.
            unsafe { block.take(0, at, mine, takes) };
        }
        if at.is_none() && theirs > 0 && is_short {
            late.receive(from, lane, block);
        }
        Ok(())
    }

    /// The length of an edge's block at its source, and its address if it lies on the board; `None`
    /// for a source that does not tell the length and sends all of its blocks that are not empty.
    fn find(
        &mut self,
        (from, lane): Edge,
        header: Header,
    ) -> Result<Option<(u64, Option<*mut u8>)>> {
        let shown = self.steps.len_of(from, header);
        Ok(match self.shown.blocks {
            Blocks::Same(_) if self.shown.is_short(shown) => {
                Some((shown, self.place_of(from, shown)?))
            }
            Blocks::Same(_) => Some((shown, None)),
            Blocks::List(_) => {
                let list = match self.place_of(from, shown)? {
                    Some(list) => Some(list),
                    // SAFETY: a source that had no memory has written to its chunk.
                    None => unsafe { lengths_in(self.steps.at(from, Place::Chunk)) },
                };
                // SAFETY: the source has posted a list.
                list.map(|list| unsafe { find(list, (self.steps.rank(), lane)) })
            }
            Blocks::Sent(_) => None,
        })
    }

    /// Where a source has shown its `len` bytes, if there was room for them.
    fn place_of(&mut self, from: u32, len: u64) -> Result<Option<*mut u8>> {
        let place = Place::of(len as usize);
        if place == Place::Chunk {
            self.place = place;
        }
        // SAFETY: the source has posted that many bytes.
        unsafe { self.steps.place_of(from, len) }
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
