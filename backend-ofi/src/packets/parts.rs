//! Packets in parts: a packet that is longer than a provider sends at once goes in several
//! messages.
//!
//! A part is numbered like a packet, and all but the last say that more follows. Where the parts of
//! a packet arrive next to each other in a buffer, which is usual, they are moved together in
//! place; often only the last one moves. Otherwise they are copied.

use std::ops::Range;

use portolan_core::transport::{Header, Sent};

use crate::endpoint::op::Kind;
use crate::ofi::Ofi;
use crate::packets::arrival::Arrival;
use crate::packets::headerless;
use crate::packets::wire::Wire;
use crate::peer::WINDOW;
use crate::send;

/// Sends a packet that is longer than a part. All of it leaves, or is kept here until it can.
///
/// # Safety
/// As for `send::bulk`; the peer must be in the provider's address vector, and no packet may be
/// waiting for it.
pub(crate) unsafe fn send<F: FnOnce(*mut u8)>(
    ofi: &mut Ofi,
    peer: u32,
    header: &Header,
    len: usize,
    source: Option<*const u8>,
    fill: F,
) -> Sent {
    let count = len.div_ceil(ofi.link.part);
    let state = &ofi.peers[peer as usize];
    let under_way = state.sent.wrapping_sub(state.acked);
    if under_way + count as u32 > WINDOW || !ofi.link.large.has_for(peer, count) {
        return Sent::Full;
    }
    let slot = match ofi.link.large.next() {
        Ok(slot) => slot,
        Err(full) => return full,
    };
    // SAFETY: the caller's promise.
    let from_there = source.map_or(Ok(0), |data| unsafe {
        headerless::send(ofi, data, None, peer, header, len)
    });
    let mut left = match from_there {
        Ok(left) if left == len => return Sent::Done,
        Ok(left) => left,
        Err(sent) => return sent,
    };
    // SAFETY: a slot has room for a header and the longest packet, and nothing else uses this one.
    let place = unsafe { ofi.link.large.slab.part(slot).add(Wire::LEN) };
    fill(place);
    if left == 0 {
        // SAFETY: in the slot, and initialised.
        left = match unsafe { headerless::send(ofi, place, Some(slot), peer, header, len) } {
            Ok(left) if left == len => return Sent::Done,
            Ok(left) => left,
            Err(sent) => return sent,
        };
    }
    split(ofi, slot, peer, header, left..len)
}

/// Sends the packet in a slot, or the rest of it, in parts. There must be enough free slots.
fn split(ofi: &mut Ofi, first: usize, peer: u32, header: &Header, rest: Range<usize>) -> Sent {
    let part = ofi.link.part;
    let whole = ofi.link.large.slab.part(first);
    let Range {
        start: mut from,
        end: len,
    } = rest;
    while from < len {
        let size = part.min(len - from);
        let slot = match ofi.link.large.next() {
            Ok(slot) => slot,
            Err(full) => return full, // The caller has checked; not reached.
        };
        // SAFETY: `place` is inside the first slot, which keeps its contents until completions are
        // read, or in another slot, which is free and has room for more than a part. As long as the
        // first slot has not been taken, everything before this part in it has been injected, so
        // the part's header may overwrite it.
        let place = unsafe {
            if slot == first {
                whole.add(from)
            } else {
                let place = ofi.link.large.slab.part(slot);
                let source = whole.add(Wire::LEN + from);
                std::ptr::copy_nonoverlapping(source, place.add(Wire::LEN), size);
                place
            }
        };
        from += size;
        let wire = Wire {
            header: *header,
            job: ofi.job,
            from: ofi.rank | if from < len { Wire::MORE } else { 0 },
            seq: ofi.peers[peer as usize].sent,
            ack: ofi.peers[peer as usize].expected,
        };
        // SAFETY: the header lies in front of the part, where nothing is needed any more.
        unsafe { wire.write(place) };
        let sent = start(ofi, slot, place, peer, Wire::LEN + size);
        if sent != Sent::Done {
            return sent;
        }
        ofi.peers[peer as usize].has_left(wire.ack);
    }
    ofi.peers.has_left_with(peer, header);
    Sent::Done
}

/// Gives a part, which may lie anywhere in its slot, to the provider.
fn start(ofi: &mut Ofi, slot: usize, place: *mut u8, peer: u32, total: usize) -> Sent {
    if total <= ofi.inject {
        match send::inject(ofi, place, peer, total) {
            Sent::Full => {}
            sent => return sent,
        }
    }
    let start = ofi.link.large.slab.part(slot);
    if place != start {
        // SAFETY: both are inside the slot; the bytes that are overwritten have been injected.
        unsafe { std::ptr::copy(place, start, total) };
    }
    send::start(ofi, Kind::Bulk, slot, peer, total)
}

/// Packets of which some parts have arrived: at most one per peer.
#[derive(Debug)]
pub(crate) struct Parts {
    open: Vec<Arrival>,
    /// Length of the longest packet, in bytes.
    most: usize,
}

/// What became of a part.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    /// The packet, if that was its last part.
    pub(crate) whole: Option<Arrival>,
    /// Buffers in which one message less is needed now.
    pub(crate) spent: [Option<u32>; 2],
    /// The packet would have been longer than any valid one, and was discarded.
    pub(crate) too_long: bool,
}

impl Parts {
    /// Makes an empty list for packets of at most `most` bytes.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            open: Vec::new(),
            most,
        }
    }

    /// Whether this message is a part of a packet that has several.
    #[inline]
    pub(crate) fn concern(&self, part: &Arrival) -> bool {
        part.form.more
            || self
                .open
                .iter()
                .any(|open| open.wire.from == part.wire.from)
    }

    /// The incomplete packets.
    pub(crate) fn open(&mut self) -> &mut Vec<Arrival> {
        &mut self.open
    }

    /// Whether there are none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Adds the next part of its sender's packet.
    pub(crate) fn join(&mut self, part: Arrival) -> Joined {
        let from = part.wire.from;
        let Some(at) = self.open.iter().position(|open| open.wire.from == from) else {
            self.open.push(part);
            return Joined::default();
        };
        if self.open[at].len as usize + part.len as usize > self.most {
            let first = self.open.swap_remove(at);
            return Joined {
                spent: [first.lies_in(), part.lies_in()],
                too_long: true,
                whole: None,
            };
        }
        let spent = append(&mut self.open[at], &part, self.most);
        Joined {
            whole: (!part.form.more).then(|| self.open.swap_remove(at)),
            spent,
            too_long: false,
        }
    }
}

/// Appends a part to those before it. Returns the buffers in which one message less is needed.
fn append(first: &mut Arrival, next: &Arrival, most: usize) -> [Option<u32>; 2] {
    let len = next.len as usize;
    let front = next.form.front();
    let behind = first.data.wrapping_add(first.span as usize + front);
    let one = first.lies_in().is_some() && first.lies_in() == next.lies_in();
    if one && std::ptr::eq(behind, next.data) {
        // SAFETY: the two lie next to each other in one buffer, which is not posted again before
        // both are read. Between the first one's end and the second one's data there are only
        // headers and bytes that have been moved, which nothing needs any more; the provider has
        // finished there.
        unsafe {
            let end = first.data.add(first.len as usize).cast_mut();
            if !std::ptr::eq(next.data, end) {
                std::ptr::copy(next.data, end, len);
            }
        }
        first.len += next.len;
        first.span += front as u32 + next.len;
        return [next.lies_in(), None];
    }
    let spent = [first.lies_in(), next.lies_in()];
    // SAFETY: the bytes lie in a buffer that is not posted again before they are read, or in the
    // part's own copy.
    let bytes = unsafe { std::slice::from_raw_parts(next.data, len) };
    first.own(most).extend_from_slice(bytes);
    first.len += next.len;
    spent
}
