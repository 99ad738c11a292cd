//! Allgather and alltoall over boards, with all their forms.
//!
//! All ranks look at all others in every step. How many steps there are follows from the lengths that all
//! post, so that ranks that do not agree about lengths take as many as the others.

use portolan_core::buffer::TypedBuf;
use portolan_core::{Device, Result};

use super::board::{CHUNK, IN_CELL, Kind, WIDE};
use super::choice;
use super::data::Stream;
use super::limits::is_measured;
use super::steps::{Place, Steps, Way};
use crate::args::Many;

/// Allgather and allgatherv.
///
/// # Safety
/// The contribution is readable (in place: in its block), the blocks are writable and do not overlap it.
pub(super) unsafe fn allgather<D: Device>(
    mut steps: Steps<'_, D>,
    send: Option<&TypedBuf<'_>>,
    recv: &Many<'_>,
) -> Result<Way> {
    let (kind, size) = (Kind::Allgather, steps.size());
    let own = Stream::block(recv, steps.rank());
    let mine = send.map_or(own, Stream::of);
    let len = mine.len();
    // By the lengths, not by the form of the call: the forms match each other.
    let even = (0..size).all(|rank| Stream::block(recv, rank).len() == len);
    let sent = |len: u64| even && is_measured(kind, size, len);
    let chosen = sent(len as u64);
    if chosen && announced(&mut steps, kind, len)? == Way::Messages {
        return steps.end_by(Way::Messages, kind, len);
    }
    let place = Place::of(len);
    let (mut at, mut longest) = (0, len as u64);
    loop {
        steps.room(place)?;
        // SAFETY: from the caller; the place is this rank's, free, and has room for a chunk, or for all.
        unsafe { mine.read(at, steps.mine(place), CHUNK.min(len - at.min(len))) };
        steps.post(kind, len);
        if send.is_some() {
            // While the others come, and from the place: it is in a cache, and what is read twice from memory
            // costs more than all else in blocks that no cache can hold.
            // SAFETY: what the place has of this rank's contribution was copied above; the block is the caller's.
            unsafe { own.write(at, steps.mine(place), CHUNK.min(len - at.min(len))) };
        }
        for rank in steps.others() {
            let block = Stream::block(recv, rank);
            let header = steps.header_of(rank)?;
            let theirs = steps.len_of(rank, header);
            let same = header.kind() == Some(kind);
            if same && at == 0 && !sent(theirs) {
                longest = longest.max(theirs);
            }
            if !same || theirs != block.len() as u64 {
                steps.note(rank, header);
            } else {
                let source = steps.at(rank, Place::of(block.len()));
                let now = CHUNK.min(block.len() - at.min(block.len()));
                // SAFETY: so many bytes have been posted there; the block is the caller's.
                unsafe { block.write(at, source, now) };
            }
        }
        steps.seen_all();
        steps.next();
        at += CHUNK;
        if at as u64 >= longest {
            if chosen {
                choice::over(steps.choice(), steps.comm.device());
            }
            return steps.end(kind, len);
        }
    }
}

/// The way of an operation that may be left to messages. It takes one step, and ranks that have
/// shorter blocks end with it.
fn announced<D: Device>(steps: &mut Steps<'_, D>, kind: Kind, len: usize) -> Result<Way> {
    let way = choice::agree(steps, kind, len, 0)?;
    steps.next();
    Ok(way)
}

/// Alltoall, alltoallv and alltoallw; in place without `send`.
///
/// # Safety
/// What is sent is readable, the blocks of `recv` are writable and do not overlap it.
pub(super) unsafe fn alltoall<D: Device>(
    mut steps: Steps<'_, D>,
    send: Option<&Many<'_>>,
    recv: &Many<'_>,
) -> Result<Way> {
    let me = steps.rank();
    let from = send.unwrap_or(recv);
    let all = (0..steps.size()).filter(|&rank| rank != me);
    let len = all.map(|rank| Stream::block(from, rank).len()).max();
    let len = len.unwrap_or(0);
    let kind = match recv {
        Many::Equal(_) => Kind::Alltoall,
        Many::Blocks(_) | Many::Layouts(_) => Kind::AlltoallListed,
    };
    let size = steps.size();
    let sent = |len: u64| kind == Kind::Alltoall && is_measured(kind, size, len);
    let chosen = sent(len as u64);
    if chosen && announced(&mut steps, kind, len)? == Way::Messages {
        return steps.end_by(Way::Messages, kind, len);
    }
    let shares = match chosen {
        // All have agreed about the length.
        true => Shares::wide(len as u64, size),
        false => Shares::new(kind, len as u64, size),
    };
    let (mut at, mut longest) = (0, shares);
    // A rank with longer blocks takes one step and leaves them to messages: nobody goes on without it.
    let mut left = false;
    loop {
        match chosen {
            true => steps.room_wide()?,
            false => steps.room(shares.place)?,
        }
        for rank in steps.others() {
            let block = Stream::block(from, rank);
            let to = steps.mine(shares.place).wrapping_add(shares.of(me, rank));
            // SAFETY: from the caller; the place is this rank's, free, and has a share for each other rank.
            unsafe { shares.write(&block, at, to) };
        }
        steps.post(kind, len);
        if at == 0 && send.is_some() {
            // While the others come.
            // SAFETY: from the caller.
            unsafe { Stream::block(from, me).copy_to(&Stream::block(recv, me)) };
        }
        for rank in steps.others() {
            let header = steps.header_of(rank)?;
            let theirs = match chosen {
                true => shares,
                false => Shares::new(kind, steps.len_of(rank, header), size),
            };
            if header.kind() != Some(kind) {
                steps.note(rank, header);
                continue;
            }
            left |= at == 0 && !chosen && sent(theirs.len);
            if at == 0 && theirs.len > longest.len && !sent(theirs.len) {
                longest = theirs;
            }
            let block = Stream::block(recv, rank);
            let source = steps
                .at(rank, theirs.place)
                .wrapping_add(theirs.of(rank, me));
            // SAFETY: the share has been posted; the block is the caller's.
            if let Err(odd) = unsafe { theirs.read(&block, at, source) } {
                steps.note_len(rank, header, odd);
            }
        }
        steps.seen_all();
        steps.next();
        if chosen {
            steps.next();
        }
        at += shares.data;
        if left || at as u64 >= longest.len {
            if chosen {
                choice::over(steps.choice(), steps.comm.device());
            }
            return steps.end(kind, len);
        }
    }
}

/// How a rank's place is divided among the others.
#[derive(Clone, Copy, Debug)]
struct Shares {
    place: Place,
    /// Bytes of the longest block.
    len: u64,
    /// From one share to the next.
    step: usize,
    /// Bytes of data in one.
    data: usize,
    /// Whether the length of the block is in front of the data.
    listed: bool,
}

const PREFIX: usize = size_of::<u64>();

impl Shares {
    fn new(kind: Kind, len: u64, size: u32) -> Self {
        let others = size as usize - 1;
        let listed = kind == Kind::AlltoallListed;
        if !listed && len <= (IN_CELL / others) as u64 {
            return Self {
                place: Place::Cell,
                len,
                step: len as usize,
                // As far as chunks go, so that all ranks count the same steps.
                data: Self::in_chunks(others, listed),
                listed,
            };
        }
        Self {
            place: Place::Chunk,
            len,
            step: (CHUNK / others) & !63,
            data: Self::in_chunks(others, listed),
            listed,
        }
    }

    /// In two chunks at a time, in as few steps as that takes and shares of one length.
    fn wide(len: u64, size: u32) -> Self {
        let (len, others) = (len as usize, size as usize - 1);
        let most = (WIDE / others) & !63;
        let steps = len.div_ceil(most).max(1);
        let each = len.div_ceil(steps).next_multiple_of(64);
        Self {
            place: Place::Chunk,
            len: len as u64,
            step: each,
            data: each,
            listed: false,
        }
    }

    fn in_chunks(others: usize, listed: bool) -> usize {
        let step = (CHUNK / others) & !63;
        if listed { step - PREFIX } else { step }
    }

    /// Where the share for `reader` begins in the place of `owner`.
    fn of(&self, owner: u32, reader: u32) -> usize {
        let index = if reader < owner { reader } else { reader - 1 };
        index as usize * self.step
    }

    /// # Safety
    /// `block` is readable; the share at `to` is this rank's and free.
    unsafe fn write(&self, block: &Stream<'_>, at: usize, to: *mut u8) {
        let now = self.data.min(block.len() - at.min(block.len()));
        // SAFETY: from the caller; a share has room for its prefix and data.
        unsafe {
            if self.listed {
                to.cast::<u64>().write(block.len() as u64);
                block.read(at, to.add(PREFIX), now);
            } else {
                block.read(at, to, now);
            }
        }
    }

    /// The error is the length that the other rank has for the block, if it is another.
    ///
    /// # Safety
    /// The share at `from` has been posted; `block` is writable.
    unsafe fn read(&self, block: &Stream<'_>, at: usize, from: *const u8) -> Result<(), u64> {
        let now = self.data.min(block.len() - at.min(block.len()));
        // SAFETY: from the caller.
        unsafe {
            let (theirs, from) = match self.listed {
                true => (from.cast::<u64>().read(), from.add(PREFIX)),
                false => (self.len, from),
            };
            if theirs != block.len() as u64 {
                return Err(theirs);
            }
            block.write(at, from, now);
        }
        Ok(())
    }
}
