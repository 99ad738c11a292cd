//! Packets in parts: what is longer than a provider sends at once goes in several of its messages.
//!
//! A part is numbered as a packet is, and all but the last say that more follows. Where the parts
//! of a packet arrive side by side, which is usual, they are moved together there: the last one is
//! often the only one that moves. Others are copied.

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
/// As for `send::bulk`; the peer must be in the provider's address vector, and nothing wait for it.
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
    if under_way + count as u32 > WINDOW || !ofi.link.large.has(count) {
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
    // SAFETY: a slot has room for a header and the longest packet; nobody uses this one.
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

/// Sends what lies in a slot, or the rest of it, in parts. There are slots enough.
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
            Err(full) => return full, // There were enough.
        };
        // SAFETY: inside of the first slot, which keeps what was filled until completions are
        // looked at; another slot is free, and has room for more than a part. What lies before a
        // part in the first slot has been injected, if that slot has not been taken: the part's
        // header may lie there.
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
        // SAFETY: in front of the part, where nothing lies that is still needed.
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

/// Gives a part, somewhere in its slot, to the provider.
fn start(ofi: &mut Ofi, slot: usize, place: *mut u8, peer: u32, total: usize) -> Sent {
    if total <= ofi.inject {
        match send::inject(ofi, place, peer, total) {
            Sent::Full => {}
            sent => return sent,
        }
    }
    let start = ofi.link.large.slab.part(slot);
    if place != start {
        // SAFETY: both inside of the slot; what is overwritten has been injected.
        unsafe { std::ptr::copy(place, start, total) };
    }
    send::start(ofi, Kind::Bulk, slot, peer, total)
}

/// Packets of which some parts have arrived: one of a peer at most.
#[derive(Debug)]
pub(crate) struct Parts {
    open: Vec<Arrival>,
    /// Bytes of the longest packet.
    most: usize,
}

/// What became of a part.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    /// The packet, if that was the last one.
    pub(crate) whole: Option<Arrival>,
    /// Buffers in which a message less is needed now.
    pub(crate) spent: [Option<u32>; 2],
    /// It would have been longer than any packet, and was thrown away.
    pub(crate) too_long: bool,
}

impl Parts {
    /// For packets of at most `most` bytes.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            open: Vec::new(),
            most,
        }
    }

    /// Whether a part of this peer is one of several.
    #[inline]
    pub(crate) fn concern(&self, part: &Arrival) -> bool {
        part.form.more
            || self
                .open
                .iter()
                .any(|open| open.wire.from == part.wire.from)
    }

    /// The packets that are not whole.
    pub(crate) fn open(&mut self) -> &mut Vec<Arrival> {
        &mut self.open
    }

    /// Whether there are any.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The next part of a packet of its sender.
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

/// Puts a part behind those that it follows. Returns the buffers in which a message less is needed.
fn append(first: &mut Arrival, next: &Arrival, most: usize) -> [Option<u32>; 2] {
    let len = next.len as usize;
    let front = next.form.front();
    let behind = first.data.wrapping_add(first.span as usize + front);
    let one = first.lies_in().is_some() && first.lies_in() == next.lies_in();
    if one && std::ptr::eq(behind, next.data) {
        // SAFETY: side by side in one buffer, which is not posted again before both are read. What
        // lies between the first one's end and the second one's bytes, headers and bytes that have
        // been moved, nobody needs any more: the provider has finished there.
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
    // SAFETY: in a buffer that is not posted again before it is read, or in its own copy.
    let bytes = unsafe { std::slice::from_raw_parts(next.data, len) };
    first.own(most).extend_from_slice(bytes);
    first.len += next.len;
    spent
}
