//! Allgather and alltoall over boards, with all their forms.
//!
//! All ranks look at all others in every step. The number of steps follows from the lengths that
//! all ranks post, so ranks that do not agree about lengths still take the same number of steps.

use portolan_core::buffer::TypedBuf;
use portolan_core::{Device, Result};

use crate::args::Many;
use crate::direct::blocking::choice;
use crate::direct::blocking::common_way::{Able, Agreed, agree};
use crate::direct::blocking::pulled::{Exposed, pulled};
use crate::direct::blocking::steps::{Steps, Way};
use crate::direct::boards::board::{IN_CELL, Kind, LINE, Place};
use crate::direct::boards::limits::is_measured;
use crate::direct::data::Stream;

/// Allgather and allgatherv.
///
/// # Safety
/// The contribution is readable (in place: in its block), the blocks are writable and do not
/// overlap it.
pub(in crate::direct) unsafe fn allgather<D: Device>(
    mut steps: Steps<'_, D>,
    send: Option<&TypedBuf<'_>>,
    recv: &Many<'_>,
) -> Result<Way> {
    let size = steps.size();
    let own = Stream::block(recv, steps.rank());
    let mine = send.map_or(own, Stream::of);
    let len = mine.len();
    // This looks at the lengths, not at the form of the call, because the forms match each other.
    let even = (0..size).all(|rank| Stream::block(recv, rank).len() == len);
    let chosen = even && is_measured(Kind::AllgatherChosen, size, len as u64);
    // Counts are local: a rank whose counts differ may have nothing to choose. It must not mistake
    // the step without data, in which the others agree on the way, for a step with data.
    let kind = match chosen {
        true => Kind::AllgatherChosen,
        false => Kind::Allgather,
    };
    if chosen {
        // SAFETY: from the caller.
        if let Some(way) = unsafe { another_way_to_gather(&mut steps, send, recv, &mine)? } {
            return steps.end_by(way, kind, len);
        }
    }
    let (place, chunk, takes) = (Place::of(len), steps.chunk(), steps.takes_from_all());
    let (mut at, mut longest) = (0, len as u64);
    // A rank that chooses, or that is in another operation, takes one step here. All others see it
    // in that step, and leave.
    let mut left = false;
    loop {
        steps.room(place)?;
        // SAFETY: from the caller; the place is this rank's, free, and has room for a chunk, or for
        // all of the data.
        unsafe { mine.read(at, steps.mine(place), chunk.min(len - at.min(len))) };
        let keep = |steps: &Steps<'_, D>| {
            // The part was read just now, so it is in a cache. (From the board, which the others
            // are reading, it would take longer.)
            let now = chunk.min(len - at.min(len));
            // SAFETY: from the caller; this part of the rank's contribution was copied to the place
            // above.
            unsafe {
                match mine.is_contiguous() {
                    true => own.write(at, mine.address().wrapping_add(at), now),
                    false => own.write(at, steps.mine(place), now),
                }
            }
        };
        if send.is_some() && takes {
            keep(&steps);
        }
        steps.post(kind, len);
        if send.is_some() && !takes {
            // Done here, while the others are still arriving.
            keep(&steps);
        }
        for rank in steps.others() {
            let block = Stream::block(recv, rank);
            let header = steps.header_of(rank)?;
            if header.kind() != Some(kind) {
                steps.note(rank, header);
                left |= at == 0;
                continue;
            }
            let theirs = steps.len_of(rank, header);
            if at == 0 {
                longest = longest.max(theirs);
            }
            if theirs != block.len() as u64 {
                steps.note(rank, header);
            } else {
                if theirs > 0 {
                    steps.see_sort(rank, header);
                }
                let source = steps.at(rank, Place::of(block.len()));
                let now = chunk.min(block.len() - at.min(block.len()));
                // SAFETY: the rank has posted that many bytes there; the block is the caller's.
                unsafe { block.take(at, source, now, takes) };
            }
        }
        steps.seen_all();
        steps.next();
        at += chunk;
        if left || at as u64 >= longest {
            if chosen {
                choice::over(steps.choice(), steps.comm.device());
            }
            return steps.end(kind, len);
        }
    }
}

/// Alltoall, alltoallv and alltoallw; in place without `send`.
///
/// # Safety
/// What is sent is readable, the blocks of `recv` are writable and do not overlap it.
pub(in crate::direct) unsafe fn alltoall<D: Device>(
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
    let chosen = is_chosen(kind, size, len as u64);
    if chosen {
        // SAFETY: from the caller.
        if let Some(way) = unsafe { another_way_to_exchange(&mut steps, send, recv, len)? } {
            return steps.end_by(way, kind, len);
        }
    }
    // Two chunks are used at a time as soon as all ranks know how long the others' blocks are.
    let mut wide = chosen;
    let chunk = steps.chunk();
    let first = Shares::first(kind, len as u64, size, chunk);
    let (mut shares, mut at) = (first, 0);
    if chosen {
        // All ranks have agreed about the length.
        shares = first.rest(len as u64, len as u64, steps.wide());
    }
    let mut longest = len as u64;
    // A rank whose blocks are long enough to choose a way takes one step here and leaves the rest
    // to messages. The others cannot go on without it.
    let mut left = false;
    loop {
        if wide {
            steps.room_wide()?;
        } else {
            steps.room(shares.place)?;
        }
        for rank in steps.others() {
            let block = Stream::block(from, rank);
            let to = steps.mine(shares.place).wrapping_add(shares.of(me, rank));
            // SAFETY: from the caller; the place is this rank's, free, and has a share for each
            // other rank.
            unsafe { shares.write(&block, at, to) };
        }
        steps.post(kind, len);
        if at == 0 && send.is_some() {
            // Done here, while the others are still arriving.
            // SAFETY: from the caller.
            unsafe { Stream::block(from, me).copy_to(&Stream::block(recv, me)) };
        }
        // SAFETY: from the caller.
        let seen = unsafe { take_shares(&mut steps, recv, (kind, &shares), at, chosen)? };
        left |= seen.left;
        longest = longest.max(seen.longest);
        steps.seen_all();
        steps.next();
        if wide {
            steps.next();
        }
        at += shares.data;
        if left || at as u64 >= longest {
            if chosen {
                choice::over(steps.choice(), steps.comm.device());
            }
            return steps.end(kind, len);
        }
        if !chosen {
            wide = true;
            shares = first.rest(len as u64, longest - at as u64, steps.wide());
        }
    }
}

/// Whether ranks choose the way of an alltoall whose longest block has `len` bytes.
fn is_chosen(kind: Kind, size: u32, len: u64) -> bool {
    kind == Kind::Alltoall && is_measured(kind, size, len)
}

/// What a rank has seen of the others in a step of an alltoall.
struct Seen {
    /// The longest block of those that do not choose a way.
    longest: u64,
    /// Whether a rank takes this step only.
    left: bool,
}

/// Takes this rank's shares of a step, which move the blocks from byte `at` on. `chosen`: the ranks
/// have agreed on the way, and so on the length.
///
/// # Safety
/// The blocks of `recv` are writable.
unsafe fn take_shares<D: Device>(
    steps: &mut Steps<'_, D>,
    recv: &Many<'_>,
    (kind, shares): (Kind, &Shares),
    at: usize,
    chosen: bool,
) -> Result<Seen> {
    let (me, size, chunk) = (steps.rank(), steps.size(), steps.chunk());
    let mut seen = Seen {
        longest: 0,
        left: false,
    };
    for rank in steps.others() {
        let header = steps.header_of(rank)?;
        if header.kind() != Some(kind) {
            steps.note(rank, header);
            // In another operation no step takes two numbers. All others see that rank in this
            // step, and leave.
            seen.left |= at == 0;
            continue;
        }
        let len = steps.len_of(rank, header);
        let mut theirs = Shares { len, ..*shares };
        if at == 0 && !chosen {
            theirs = Shares::first(kind, len, size, chunk);
            match is_chosen(kind, size, len) {
                true => seen.left = true,
                false => seen.longest = seen.longest.max(len),
            }
        }
        let block = Stream::block(recv, rank);
        if block.len() > 0 {
            steps.see_sort(rank, header);
        }
        let source = steps.at(rank, theirs.place);
        let source = source.wrapping_add(theirs.of(rank, me));
        // SAFETY: the share has been posted; the block is the caller's.
        if let Err(odd) = unsafe { theirs.take(&block, at, source, steps.takes()) } {
            steps.note_len(rank, header, odd);
        }
    }
    Ok(seen)
}

/// Agrees with the other ranks on the way of an allgather of blocks of one length. If it is not
/// that over boards, returns what is left to do.
///
/// # Safety
/// As [`allgather`]; `mine` is this rank's contribution.
unsafe fn another_way_to_gather<D: Device>(
    steps: &mut Steps<'_, D>,
    send: Option<&TypedBuf<'_>>,
    recv: &Many<'_>,
    mine: &Stream<'_>,
) -> Result<Option<Way>> {
    let (kind, len) = (Kind::AllgatherChosen, mine.len());
    let in_pieces = |rank| !Stream::block(recv, rank).is_contiguous();
    let exposed = match steps.others().any(in_pieces) {
        true => None,
        // SAFETY: from the caller; it is dropped before the operation ends.
        false => unsafe { Exposed::new(steps, mine) },
    };
    let able = Able {
        messages: true,
        pulls: exposed.is_some(),
        exposure: exposed.as_ref().map(Exposed::exposure),
    };
    let agreed = agree(steps, (kind, len), mine.address(), (0, 0), able)?;
    if agreed == Agreed::Pulls {
        if send.is_some() {
            // SAFETY: from the caller.
            unsafe { mine.copy_to(&Stream::block(recv, steps.rank())) };
        }
        let part = |rank| Some((0, Stream::block(recv, rank).address()));
        // SAFETY: from the caller; all blocks have this length.
        let over = unsafe { pulled(steps, (kind, len), part)? };
        return Ok(over.then_some(Way::Done));
    }
    // Ranks that do not choose, or that have other lengths, end with this step, too.
    steps.next();
    Ok((agreed == Agreed::Messages).then_some(Way::Messages))
}

/// Agrees with the other ranks on the way of an alltoall of blocks of one length. If it is not that
/// over boards, returns what is left to do.
///
/// # Safety
/// As [`alltoall`].
unsafe fn another_way_to_exchange<D: Device>(
    steps: &mut Steps<'_, D>,
    send: Option<&Many<'_>>,
    recv: &Many<'_>,
    len: usize,
) -> Result<Option<Way>> {
    let (me, kind) = (steps.rank(), Kind::Alltoall);
    // In place, messages would need memory for all blocks, which a rank may not have, and others
    // would copy what is overwritten. Over boards there is no need for any.
    let from = send.unwrap_or(recv);
    let mine = Stream::block(recv, me);
    // (Nobody expects another length than it sends: `check` has seen to that. Memory depends on
    // it.)
    let is_able = send.is_some() && mine.len() == len;
    let exposed = match from {
        Many::Equal(all) if is_able && mine.is_contiguous() => {
            let count = all.count * steps.size() as usize;
            let all = Stream::of(&TypedBuf { count, ..*all });
            // SAFETY: from the caller; it is dropped before the operation ends.
            unsafe { Exposed::new(steps, &all) }
        }
        _ => None,
    };
    let able = Able {
        messages: is_able,
        pulls: exposed.is_some(),
        exposure: exposed.as_ref().map(Exposed::exposure),
    };
    let data = Stream::block(from, me).address();
    let agreed = agree(steps, (kind, len), data, (0, 0), able)?;
    if agreed == Agreed::Pulls {
        let offset = u64::from(me) * len as u64;
        let part = |rank| Some((offset, Stream::block(recv, rank).address()));
        // SAFETY: from the caller; all blocks have this length.
        let over = unsafe {
            Stream::block(from, me).copy_to(&mine);
            pulled(steps, (kind, len), part)?
        };
        return Ok(over.then_some(Way::Done));
    }
    // Ranks that have shorter blocks end with this step, too.
    steps.next();
    Ok((agreed == Agreed::Messages).then_some(Way::Messages))
}

/// The index of `reader`'s block among those that `owner` has for others; it has none for itself.
#[inline]
pub(in crate::direct) fn index_of(owner: u32, reader: u32) -> usize {
    let index = if reader < owner { reader } else { reader - 1 };
    index as usize
}

/// How a rank's place is divided among the other ranks.
#[derive(Clone, Copy, Debug)]
struct Shares {
    place: Place,
    /// Bytes of the longest block.
    len: u64,
    others: usize,
    /// Bytes from one share to the next.
    step: usize,
    /// Bytes of a block that one step moves: the same on all ranks, so that all count the same
    /// steps.
    data: usize,
    /// Bytes in front of the data that hold the length of the block. There are none if the length
    /// is known because all blocks have it, or because there is only one block.
    prefix: usize,
}

/// Bytes in front of a share for its length: in a chunk a whole line, so that the data begins at a
/// line ([`list`](crate::direct::boards::list)), and in a cell.
const PREFIX: usize = LINE;
const SHORT_PREFIX: usize = size_of::<u8>();

const _: () = assert!(IN_CELL <= u8::MAX as usize);

impl Shares {
    /// The shares in the first step of a rank whose longest block has `len` bytes. Readers know
    /// nothing else about it at that time.
    fn first(kind: Kind, len: u64, size: u32, chunk: usize) -> Self {
        let others = size as usize - 1;
        let listed = kind == Kind::AlltoallListed && others > 1;
        let prefix = |bytes| if listed { bytes } else { 0 };
        let most = (chunk / others) & !63;
        let data = most - prefix(PREFIX);
        let in_cell = (IN_CELL / others) as u64;
        let (place, step, prefix) = if len + prefix(SHORT_PREFIX) as u64 <= in_cell {
            let prefix = prefix(SHORT_PREFIX);
            (Place::Cell, len as usize + prefix, prefix)
        } else {
            let (prefix, len) = (prefix(PREFIX), len.min(data as u64) as usize);
            (Place::Chunk, (prefix + len).next_multiple_of(64), prefix)
        };
        Self {
            place,
            len,
            others,
            step,
            data,
            prefix,
        }
    }

    /// The shares for the `left` remaining bytes of the longest block of all ranks, in two chunks
    /// at a time (`wide` bytes): as few steps as possible, with shares of one length. The rank's
    /// own longest block has `len` bytes.
    fn rest(&self, len: u64, left: u64, wide: usize) -> Self {
        let prefix = match self.place {
            Place::Cell if self.prefix > 0 => PREFIX,
            _ => self.prefix,
        };
        let most = ((wide / self.others) & !63) - prefix;
        let steps = left.div_ceil(most as u64).max(1);
        // This is at most what fits in the chunks, and so no more than a `usize` holds.
        let step = (left.div_ceil(steps) as usize + prefix).next_multiple_of(64);
        Self {
            place: Place::Chunk,
            len,
            step,
            data: step - prefix,
            prefix,
            ..*self
        }
    }

    /// Where the share for `reader` begins in the place of `owner`.
    fn of(&self, owner: u32, reader: u32) -> usize {
        index_of(owner, reader) * self.step
    }

    /// # Safety
    /// `block` is readable and not longer than the longest one; the share at `to` is this rank's
    /// and free.
    unsafe fn write(&self, block: &Stream<'_>, at: usize, to: *mut u8) {
        let len = block.len();
        // SAFETY: from the caller; a share has room for its prefix and data.
        unsafe {
            match self.prefix {
                0 => {}
                SHORT_PREFIX => to.write(len as u8),
                _ => to.cast::<u64>().write(len as u64),
            }
            block.read(at, to.add(self.prefix), self.data.min(len - at.min(len)));
        }
    }

    /// Takes a share. The error is the length that the other rank has for the block, if it differs.
    ///
    /// # Safety
    /// The share at `from` has been posted, and is this rank's to read; `block` is writable.
    unsafe fn take(
        &self,
        block: &Stream<'_>,
        at: usize,
        from: *mut u8,
        takes: bool,
    ) -> Result<(), u64> {
        let len = block.len();
        // SAFETY: from the caller.
        unsafe {
            let theirs = match self.prefix {
                0 => self.len,
                SHORT_PREFIX => from.read().into(),
                _ => from.cast::<u64>().read(),
            };
            if theirs != len as u64 {
                return Err(theirs);
            }
            let now = self.data.min(len - at.min(len));
            block.take(at, from.add(self.prefix), now, takes);
        }
        Ok(())
    }
}
