//! Packets that grow: the receiver copies one end of a packet while the sender writes the other.
//!
//! ```text
//! sender                                receiver
//!   writes the first part
//!   cell: descriptor, length of that ─▶ asks the engine: where to?
//!   writes the next part                copies the first part
//!   `filled` = its end ───────────────▶ copies the next part
//!   …                                   …
//!   rings, if the receiver sleeps       the packet is there
//! ```
//!
//! One packet takes less than two copies, one after the other, and costs hardly more than a whole
//! packet: one more line goes from the sender to the receiver with each part.
//!
//! Only packets for which the receiver is likely to wait in a call grow (the engine says which),
//! and of these those that are alone, as far as the sender can tell
//! ([`Turns`](crate::link::Turns)), and those longer than eager messages, which would go in pieces
//! otherwise. In a row of short packets, and where two ranks send to each other at the same time,
//! both processors have enough to copy anyway, and the line of `filled` would only be one more to
//! hand over.
//!
//! **Invariant:** `filled` never decreases, because the positions of a pair's pieces never do. So
//! it says of every packet how far it is, without being reset.
//!
//! A receiver may stop in the middle of a packet at any time: the sender goes on by itself, and
//! rings at the end like after any other packet. A packet whose sender dies stays incomplete: it is
//! never delivered as a whole, and a receive that its parts have begun to fill ends with the error.

use portolan_core::lines::{copy, copy_and_take, take};
use portolan_core::transport::{Destination, Header, Payload, Sent, Sink};

use crate::bulk::{Descriptor, Piece};
use crate::caps::{EAGER, PIECE};
use crate::link::Incoming;
use crate::ring::Pushed;
use crate::send::{self, Ready};
use crate::shm::Shm;
use crate::sync::Ordering::{Acquire, Release};

/// Bytes of a part, a multiple of [`ALIGN`](crate::bulk::ALIGN). The C library copies this much by
/// loads and stores, and more by `rep movsb`, which begins slowly. (Half a round trip of 3, 4, 6
/// and 8 KiB on Zen 4, near, as a ratio to whole packets: in parts of 1 KiB 0.79, 0.85, 0.83 and
/// 1.11, of 2 KiB 0.80, 0.86, 0.76 and 0.86, of 4 KiB 1.00, 1.06, 0.88 and 0.92.)
const PART: usize = 2 << 10;
/// The same where it depends on the distance which of the two is slower
/// ([`manner`](crate::manner)). (Half a round trip of 8, 16 and 32 KiB on Zen 5, near, as a ratio
/// to packets in pieces of 8 KiB: in parts of 4 KiB 1.19, 1.18 and 1.32, of 6 KiB 1.08, 1.08 and
/// 1.25, of 8 KiB 1.01, 0.95 and 0.95, of 12 KiB 1.01, 0.99 and 0.97, of 16 KiB 0.99, 0.98 and
/// 0.99.)
const PART_BY_LIBRARY: usize = 8 << 10;
/// Looks for the next part that a receiver makes for one packet before it stops waiting: more than
/// the sender needs, unless the system has taken its processor away.
const LOOKS: u32 = 16 << 10;

/// Bytes of the parts of a packet of `len` bytes; `None` if it does not grow. `alone`: whether it
/// is likely to be. `by_words`: whether some packets are copied [by words](crate::manner) here.
#[inline(always)]
pub(crate) fn part(len: usize, alone: bool, by_words: bool) -> Option<usize> {
    let part = if by_words { PART_BY_LIBRARY } else { PART };
    (len > part && (alone || len > EAGER)).then_some(part)
}

/// Sends a packet that grows by parts of `part` bytes.
///
/// # Safety
/// As for `Transport::send_growing`; `part` must be less than `len`.
#[inline(never)]
pub(crate) unsafe fn send(
    shm: &mut Shm,
    peer: u32,
    header: &Header,
    data: *const u8,
    len: usize,
    part: usize,
) -> Sent {
    debug_assert!(part < len);
    let fenced = shm.fenced;
    let out = &mut shm.outgoing[peer as usize];
    if let (Some(ring), Some(bulk)) = (out.ring.as_mut(), out.bulk.as_mut())
        && ring.room() == Pushed::Done
        && let Ok(Some(piece)) = bulk.piece(len, ring.ends())
    {
        // SAFETY: the caller's promise; the piece has `len` bytes.
        unsafe { copy(data, piece.ptr, part) };
        bulk.advance(&piece);
        let descriptor = piece.descriptor.grows_from(part);
        let marked = Piece {
            descriptor,
            ..piece
        };
        // SAFETY: the first part has been written.
        let pushed = unsafe { send::push_descriptor(ring, header, &marked) };
        debug_assert_eq!(pushed, Pushed::Done, "there was room");
        for at in (part..len).step_by(part) {
            let end = len.min(at + part);
            // SAFETY: as above; `end` is at most `len`.
            unsafe { copy(data.add(at), piece.ptr.add(at), end - at) };
            // SYNC 1: pairs with the receiver's Acquire load in `deliver`.
            let filled = &ring.ends().of_sender.filled;
            filled.store(descriptor.start() + end as u64, Release);
        }
        out.turns.sends();
        // SAFETY: there is a ring.
        unsafe { out.bell() }.wake_if_asleep(fenced);
        return Sent::Done;
    }
    match send::slow_bulk(shm, peer, len) {
        // SAFETY: the caller's promise; there is room now, so this recursion ends.
        Ready::Yes => unsafe { self::send(shm, peer, header, data, len, part) },
        Ready::No(sent) => sent,
    }
}

/// What has become of a packet that grows.
pub(crate) enum Grown {
    /// All of it is here, and it is to be delivered as a whole.
    Whole,
    /// It has been delivered.
    Delivered,
    /// It stays where it is, and so many parts of it have been delivered.
    Left(usize),
    /// It is not the packet that has begun to arrive.
    Broken,
}

/// Delivers what there is of the packet that is next in a ring, and grows.
///
/// # Safety
/// The packet's `len` bytes are at `ptr`: readable, and writable if the receiver `takes` lines. Its
/// sender writes each only once, and before it says so.
#[inline(never)]
pub(crate) unsafe fn deliver<S: Sink>(
    from: &mut Incoming,
    takes: bool,
    header: &Header,
    descriptor: &Descriptor,
    (ptr, len): (*const u8, usize),
    sink: &mut S,
) -> Grown {
    let peer = from.peer;
    let words = &from.ring.ends().of_sender;
    let filled = || {
        // SYNC 1: pairs with the sender's Release store in `send`.
        let end = words.filled.load(Acquire);
        end.saturating_sub(descriptor.start()).min(len as u64) as usize
    };
    if from.begun == 0 {
        match sink.grows(peer, header, len) {
            Destination::Whole if filled() == len => return Grown::Whole,
            Destination::Whole => return Grown::Left(0),
            Destination::Here(room) => {
                let (to, first) = (room.as_ptr(), descriptor.first());
                // SAFETY: the caller's promise; there is room for the whole packet.
                let here = unsafe { follow(ptr, to, len, first, takes, filled) };
                sink.placed(peer, header, len, here);
                if here == len {
                    return Grown::Delivered;
                }
                from.begun = here;
                return Grown::Left(1);
            }
            Destination::Parts => {}
        }
    }
    let (at, end) = (from.begun, filled());
    if at >= len {
        return Grown::Broken;
    }
    if end < len && end < at + PIECE {
        return Grown::Left(0);
    }
    // SAFETY: the caller's promise; the sender has said that it has written these bytes.
    let payload = unsafe {
        match takes {
            true => Payload::to_take(ptr.add(at).cast_mut(), end - at),
            false => Payload::new(ptr.add(at), end - at),
        }
    };
    sink.part(peer, header, len, at, payload);
    if end == len {
        from.begun = 0;
        return Grown::Delivered;
    }
    from.begun = end;
    Grown::Left(1)
}

/// Copies a packet behind its sender, of which the first `first` bytes are there. Returns how many
/// bytes have been copied: less than `len` if the sender has stopped.
///
/// # Safety
/// As for [`deliver`]; `len` bytes at `to` are writable, and apart from the packet.
#[inline]
unsafe fn follow(
    from: *const u8,
    to: *mut u8,
    len: usize,
    first: usize,
    takes: bool,
    filled: impl Fn() -> usize,
) -> usize {
    let (mut at, mut end, mut looks) = (0, first.min(len), 0);
    loop {
        if end > at {
            // SAFETY: the caller's promise; the sender has said that it has written these bytes.
            unsafe {
                let (from, to) = (from.add(at), to.add(at));
                match takes {
                    true if end - at <= PART => copy_and_take(from.cast_mut(), to, end - at),
                    // The sender is ahead: the library copies all that there is in less time.
                    true => {
                        copy(from, to, end - at);
                        take(from.cast_mut(), end - at);
                    }
                    false => copy(from, to, end - at),
                }
            }
            at = end;
        }
        if at == len || looks == LOOKS {
            return at;
        }
        // No hint to the processor (`pause`): the next part takes little longer than that.
        looks += 1;
        end = filled();
    }
}

#[cfg(test)]
mod tests;
