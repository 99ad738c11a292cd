//! Gather and scatter over boards.
//!
//! A block that is too long for a place on a board goes as a message between the root and the one
//! rank: the other ranks cannot know about it, and need not. In a scatter measurements decide for
//! parts of 32 KiB and more ([`choice`]).

use portolan_core::buffer::TypedBuf;
use portolan_core::{Device, Result};

use crate::args::Many;
use crate::direct::blocking::choice;
use crate::direct::blocking::steps::{Steps, Way};
use crate::direct::boards::board::{Header, IN_CELL, Kind, Place};
use crate::direct::boards::limits::is_measured;
use crate::direct::boards::list::{List, WORD, before};
use crate::direct::boards::long::LONG;
use crate::direct::data::Stream;
use crate::direct::tracks::messages::Messages;
use crate::run::{Started, ends};
use crate::schedule::Lane;

/// Gather and gatherv. `number` is the operation's number, for its messages.
///
/// # Safety
/// `send` is readable; at the root the blocks of `recv` are writable and do not overlap it.
pub(in crate::direct) unsafe fn gather<D: Device>(
    mut steps: Steps<'_, D>,
    send: Option<&TypedBuf<'_>>,
    recv: Option<&Many<'_>>,
    root: u32,
    number: u32,
) -> Result<Way> {
    let recv = recv.filter(|_| steps.rank() == root);
    match (recv, send) {
        // SAFETY: from the caller.
        (Some(recv), _) => unsafe { collect(steps, send, recv, number) },
        (None, Some(send)) => {
            let mine = Stream::of(send);
            // SAFETY: the header tells how long the data is, and whether it is there.
            let Some(to) = (unsafe { steps.my_place(mine.len(), LONG)? }) else {
                // SAFETY: from the caller.
                return unsafe { give(steps, &mine, root, number) };
            };
            // SAFETY: from the caller; the place is this rank's, free, and has the room.
            unsafe { mine.read(0, to, mine.len()) };
            steps.post_apart(Kind::Gather, mine.len(), root);
            steps.wake(root);
            steps.next();
            steps.end(Kind::Gather, mine.len())
        }
        (None, None) => unreachable!("`check` has seen a buffer"),
    }
}

/// The lane of a gather's messages. Those of a scatter have another, because a gather's root waits
/// for messages from ranks that it has not seen yet, and these may call a scatter by mistake.
const GATHERED: Lane = 1;
const SCATTERED: Lane = 0;

/// The part in a gather of a rank whose block goes as a message.
///
/// # Safety
/// The block is readable.
unsafe fn give<D: Device>(
    mut steps: Steps<'_, D>,
    mine: &Stream<'_>,
    root: u32,
    number: u32,
) -> Result<Way> {
    let (comm, state) = (steps.comm, steps.state);
    steps.room(Place::Cell)?;
    // Wakes all: the rank that this one takes for the root may itself be waiting for another rank
    // that it takes for the root, and so on.
    steps.post(Kind::GatherSent, root as usize);
    let mut messages = Messages::new(steps.rank(), steps.size());
    messages.send(root, GATHERED, mine);
    let collects = |header: &Header| header.kind() == Some(Kind::GatherAwaited);
    let comes = |one: &Started| match steps.header_or(one)? {
        Some(header) if !collects(&header) => {
            steps.note(root, header);
            Ok(false)
        }
        _ => Ok(true),
    };
    // SAFETY: from the caller.
    let sent = unsafe { messages.exchange_watched(comm, state, number, comes) };
    steps.next();
    let way = steps.end(Kind::Gather, mine.len())?;
    sent?;
    Ok(way)
}

/// The root's part in a gather. Blocks for which there is never a place are received while it looks
/// for the others.
///
/// # Safety
/// As [`gather`].
unsafe fn collect<D: Device>(
    mut steps: Steps<'_, D>,
    send: Option<&TypedBuf<'_>>,
    recv: &Many<'_>,
    number: u32,
) -> Result<Way> {
    let (comm, state, me) = (steps.comm, steps.state, steps.rank());
    let own = Stream::block(recv, me);
    let mut messages = Messages::new(me, steps.size());
    for rank in steps.others() {
        let block = Stream::block(recv, rank);
        if block.len() > LONG {
            messages.receive(rank, GATHERED, &block);
        }
    }
    if let Some(send) = send {
        // SAFETY: from the caller.
        unsafe { messages.copy(&Stream::of(send), &own) };
    }
    steps.room(Place::Cell)?;
    // Ranks that take this one for the root of another operation may sleep.
    steps.post_apart(Kind::GatherAwaited, own.len(), me);
    let comes = |one: &Started| match steps.header_or(one)? {
        Some(header) if !is_sent_to(me, header) => {
            steps.note(one.peer, header);
            Ok(false)
        }
        _ => Ok(true),
    };
    // SAFETY: from the caller.
    let received = unsafe { messages.exchange_watched(comm, state, number, comes) };
    if received.as_ref().is_err_and(ends) {
        return received.map(|()| Way::Done);
    }
    // SAFETY: from the caller.
    let late = unsafe { look(&mut steps, recv)? };
    steps.next_published();
    let outcome = steps.end(Kind::GatherAwaited, own.len());
    // SAFETY: from the caller.
    let late = unsafe { late.exchange(comm, state, number) };
    let way = outcome?;
    received.and(late).map(|()| way)
}

/// Whether a rank that shows this header sends its block to `root` as a message.
fn is_sent_to(root: u32, header: Header) -> bool {
    header.kind() == Some(Kind::GatherSent) && header.len() == root as usize
}

/// The root of a gather looks at all others, and takes the blocks that lie on their boards. Returns
/// the messages of which it learns only here, from ranks that had no memory for their blocks.
///
/// # Safety
/// The blocks are writable.
unsafe fn look<D: Device>(steps: &mut Steps<'_, D>, recv: &Many<'_>) -> Result<Messages> {
    let mut late = Messages::new(steps.rank(), steps.size());
    let mut takes = steps.takes();
    if takes {
        // Taking lines writes to them. Another rank that takes itself for the root does so, too.
        for rank in steps.others() {
            takes &= steps.header_of(rank)?.kind() != Some(Kind::GatherAwaited);
        }
    }
    for rank in steps.others() {
        let block = Stream::block(recv, rank);
        let header = steps.header_of(rank)?;
        if is_sent_to(steps.rank(), header) {
            if block.len() <= LONG {
                late.receive(rank, GATHERED, &block);
            }
            continue;
        }
        if header.kind() != Some(Kind::Gather) {
            steps.note(rank, header);
            continue;
        }
        let theirs = steps.len_of(rank, header);
        if theirs != block.len() as u64 {
            steps.note(rank, header);
        } else {
            if theirs > 0 {
                steps.see_sort(rank, header);
            }
            // SAFETY: the rank has posted that many bytes there; the block is the caller's.
            unsafe {
                match steps.place_of(rank, theirs)? {
                    Some(source) => block.take(0, source, block.len(), takes),
                    None => steps.note(rank, header),
                }
            }
        }
    }
    Ok(late)
}

/// Scatter and scatterv. `number` is the operation's number, for its messages.
///
/// # Safety
/// At the root the blocks of `send` are readable; `recv` is writable and does not overlap them.
pub(in crate::direct) unsafe fn scatter<D: Device>(
    mut steps: Steps<'_, D>,
    send: Option<&Many<'_>>,
    recv: Option<&TypedBuf<'_>>,
    root: u32,
    number: u32,
) -> Result<Way> {
    let send = send.filter(|_| steps.rank() == root);
    let (len, sent) = match (send, recv) {
        (Some(send), _) => {
            let own = Stream::block(send, root);
            // SAFETY: from the caller.
            let sent = unsafe {
                let mut messages = distribute(&mut steps, send)?;
                if let Some(recv) = recv {
                    messages.copy(&own, &Stream::of(recv));
                }
                send_parts(&mut steps, messages, number)
            };
            steps.next();
            (own.len(), sent)
        }
        (None, Some(recv)) => {
            let mine = Stream::of(recv);
            // SAFETY: from the caller.
            let sent = unsafe { take_measured(&mut steps, &mine, root, number)? };
            (mine.len(), sent)
        }
        (None, None) => unreachable!("`check` has seen a buffer"),
    };
    let way = steps.end(Kind::Scatter, len)?;
    sent?;
    Ok(way)
}

/// Sends the parts that are too long for the board to the ranks that wait for them.
///
/// # Safety
/// The parts are readable.
unsafe fn send_parts<D: Device>(
    steps: &mut Steps<'_, D>,
    messages: Messages,
    number: u32,
) -> Result<()> {
    let (comm, state) = (steps.comm, steps.state);
    let me = steps.rank();
    let awaits = |steps: &Steps<'_, D>, rank, header: Header| {
        header.kind() == Some(Kind::ScatterAwaited)
            // SAFETY: the rank has posted the root that it names.
            && unsafe { named_root(steps.at(rank, Place::Cell)).read_unaligned() } == me
    };
    let comes = |one: &Started| match steps.header_or(one)? {
        Some(header) if !awaits(steps, one.peer, header) => {
            steps.note(one.peer, header);
            Ok(false)
        }
        _ => Ok(true),
    };
    // SAFETY: from the caller.
    unsafe { messages.exchange_watched(comm, state, number, comes) }
}

/// The rank that measures which way the parts of a scatter take best.
fn judge_of(root: u32) -> u32 {
    if root == 0 { 1 } else { 0 }
}

/// Whether the judge of a scatter wants its part, of `len` bytes, as a message.
fn is_wished<D: Device>(steps: &Steps<'_, D>, len: usize) -> bool {
    is_measured(Kind::ScatterListed, steps.size(), len as u64)
        && choice::is_wished(steps.wishes_of(judge_of(steps.rank())), len)
}

/// Where a rank that waits for its part names the root, after the word that may hold its length.
fn named_root(cell: *mut u8) -> *mut u32 {
    cell.wrapping_add(WORD).cast()
}

/// The root's part in a scatter: shows the parts, or says that they go as messages. Returns those
/// messages.
unsafe fn distribute<D: Device>(steps: &mut Steps<'_, D>, send: &Many<'_>) -> Result<Messages> {
    let (root, size) = (steps.rank(), steps.size());
    let mut messages = Messages::new(root, size);
    let others = || {
        let blocks = (0..size).map(|rank| (rank, Stream::block(send, rank)));
        blocks.filter(|(rank, _)| *rank != root)
    };
    let each = Stream::block(send, judge_of(root)).len();
    // This looks at the lengths, not at the form of the call, because the forms match each other.
    let even = others().all(|(_, block)| block.len() == each);
    let sum = |align| {
        let lens = others().map(|(_, block)| block.len().next_multiple_of(align));
        lens.fold(0usize, usize::saturating_add)
    };
    if even && each.saturating_mul(size as usize) <= IN_CELL {
        steps.room(Place::Cell)?;
        for (rank, block) in others() {
            let to = steps.mine(Place::Cell).wrapping_add(rank as usize * each);
            // SAFETY: from the caller; the cell is this rank's, free, and has room for a part per
            // rank.
            unsafe { block.read(0, to, each) };
        }
        steps.post(Kind::Scatter, each);
    } else if let total = sum(1).saturating_add(size as usize)
        && total <= IN_CELL
    {
        steps.room(Place::Cell)?;
        let list = List::in_cell(steps.mine(Place::Cell), size);
        // SAFETY: from the caller; the cell is this rank's, free, and has room for the list and all
        // parts.
        unsafe { list.write(root, others(), usize::MAX) };
        steps.post(Kind::ScatterListed, total);
    } else {
        let lined = others()
            .map(|(_, block)| before(block.len()))
            .sum::<usize>();
        let total = sum(WORD).saturating_add(size as usize * WORD + lined);
        let place = if is_wished(steps, each) {
            steps.room(Place::Chunk)?;
            None
        } else {
            // SAFETY: the header tells how long the list is.
            unsafe { steps.my_place(total, LONG)? }
        };
        // If there is no such place, the chunk is free all the same.
        let at = place.unwrap_or_else(|| steps.mine(Place::Chunk));
        let longest = if place.is_some() { usize::MAX } else { 0 };
        // SAFETY: as above, for a chunk or a longer place; if the parts go as messages, for the
        // list alone.
        unsafe { List::in_words(at, size).write(root, others(), longest) };
        if place.is_some() {
            steps.post(Kind::ScatterListed, total);
        } else {
            others().for_each(|(rank, block)| messages.send(rank, SCATTERED, &block));
            steps.post(Kind::ScatterSent, 0);
        }
    }
    Ok(messages)
}

/// The part of the other ranks in a scatter. Returns how its message, if there is one, has ended.
///
/// # Safety
/// `mine` is writable.
unsafe fn take_measured<D: Device>(
    steps: &mut Steps<'_, D>,
    mine: &Stream<'_>,
    root: u32,
    number: u32,
) -> Result<Result<()>> {
    let (comm, state, choice) = (steps.comm, steps.state, steps.choice());
    let device = comm.device();
    // Equal parts that have no room on a board are messages in any case.
    let has_choice = mine.len().saturating_mul(steps.size() as usize - 1) < LONG;
    let judges = steps.rank() == judge_of(root)
        && has_choice
        && is_measured(Kind::ScatterListed, steps.size(), mine.len() as u64);
    if judges {
        choice.begin_part(mine.len(), || device.wtime());
    }
    // SAFETY: from the caller. The root sends whatever the others do.
    let (way, sent) = unsafe {
        let messages = take(steps, mine, root)?;
        let way = match messages.is_empty() {
            true => Way::Done,
            false => Way::Messages,
        };
        (way, messages.exchange(comm, state, number))
    };
    if judges {
        let came = !steps.disagree() && sent.is_ok();
        choice.end_part(came.then_some(way), || device.wtime());
        steps.wish(choice.wishes());
    }
    Ok(sent)
}

/// Takes the part if it is on the root's board. Returns the message that is to be received.
unsafe fn take<D: Device>(
    steps: &mut Steps<'_, D>,
    mine: &Stream<'_>,
    root: u32,
) -> Result<Messages> {
    let (me, len) = (steps.rank() as usize, mine.len());
    let mut messages = Messages::new(steps.rank(), steps.size());
    steps.room(Place::Cell)?;
    // SAFETY: the cell is this rank's and free.
    unsafe { named_root(steps.mine(Place::Cell)).write_unaligned(root) };
    steps.post_apart(Kind::ScatterAwaited, len, root);
    let header = steps.header_of(root)?;
    let wanted = [Kind::Scatter, Kind::ScatterListed].map(Some);
    if len > 0 && wanted.contains(&header.kind()) {
        steps.see_sort(root, header);
    }
    match header.kind() {
        Some(Kind::Scatter) if header.len() == len => {
            let source = steps.at(root, Place::Cell).wrapping_add(me * len);
            // SAFETY: parts of this length have been posted; the buffer is the caller's.
            unsafe { mine.write(0, source, len) };
        }
        Some(kind @ (Kind::ScatterListed | Kind::ScatterSent)) => {
            let (size, shown) = (steps.size(), header.len());
            let place = match kind {
                // SAFETY: the root has posted that many bytes.
                Kind::ScatterListed => unsafe { steps.place_of(root, shown as u64)? },
                _ => None,
            };
            let list = match place {
                Some(at) if shown <= IN_CELL => List::in_cell(at, size),
                Some(at) => List::in_words(at, size),
                None => List::in_words(steps.at(root, Place::Chunk), size),
            };
            // SAFETY: the list has been posted.
            let part = unsafe { list.len(me) };
            if kind == Kind::ScatterSent && part > 0 {
                messages.receive(root, SCATTERED, mine);
            } else if part == len {
                // SAFETY: the parts have been posted, or this one is empty; the buffer is the
                // caller's.
                unsafe { mine.take(0, list.part(me, usize::MAX), len, steps.takes()) };
            } else {
                steps.note_len(root, header, part as u64);
            }
        }
        _ => steps.note(root, header),
    }
    match header.kind() {
        Some(Kind::ScatterListed) if header.len() <= IN_CELL => steps.next(),
        Some(Kind::ScatterListed | Kind::ScatterSent) => steps.next_published(),
        _ => steps.next(),
    }
    Ok(messages)
}
