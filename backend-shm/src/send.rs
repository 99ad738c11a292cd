//! Sending packets: through a cell of the ring, the bulk area or the receiver's inbox.
//!
//! Budget of a short packet to a rank for which this rank already has a ring: 0 allocations, 0
//! system calls (1 to wake a sleeper), 0 locked instructions, 1 cache line written for up to 32
//! bytes of payload (2 for more, up to 88, in a wide ring).

use std::num::NonZeroU64;

use portolan_core::error::OWN_FAILURE;
use portolan_core::transport::{Header, Sent};
use portolan_core::{Error, ErrorKind};

use crate::bulk::{BulkTx, DESCRIPTOR, Piece};
use crate::caps::{BULK, SHORT};
use crate::inbox::{self, Kind};
use crate::link::{Seen, ring_at, ring_bytes};
use crate::ring::{Pushed, RingTx};
use crate::shm::Shm;
use crate::sync::Ordering::Relaxed;

/// Bytes of the bulk area with which a pair begins. The pair keeps this area where there is no
/// memory for a larger one.
pub(crate) const FIRST_AREA: u64 = 32 << 10;
const _: () = assert!(BULK as u64 <= FIRST_AREA, "the longest packet fits");
/// Packets that a pair sends through the inbox before it gets a ring.
const FIRST_PACKETS: u32 = 2;

/// # Safety
/// As for `Transport::send_short`.
#[inline(always)]
pub(crate) unsafe fn short(
    shm: &mut Shm,
    peer: u32,
    header: &Header,
    data: *const u8,
    len: usize,
) -> Sent {
    debug_assert!(peer != shm.rank && len <= SHORT);
    let fenced = shm.fenced;
    let out = &mut shm.outgoing[peer as usize];
    if let Some(ring) = out.ring.as_mut() {
        if len > ring.inline() {
            // SAFETY: the caller's promise; the closure copies `len` bytes into a piece of `len`
            // bytes.
            return unsafe {
                bulk(shm, peer, header, len, |to| {
                    std::ptr::copy_nonoverlapping(data, to, len);
                })
            };
        }
        // SAFETY: the caller's promise; `len` is at most `inline`.
        if unsafe { ring.push(header.to_words(), data, len) } == Pushed::Done {
            out.turns.sends();
            // SAFETY: there is a ring.
            unsafe { out.bell() }.wake_if_asleep(fenced);
            return Sent::Done;
        }
    }
    // SAFETY: the caller's promise, passed on.
    unsafe { slow_short(shm, peer, header, data, len) }
}

/// # Safety
/// As for `Transport::send_bulk`.
#[inline(always)]
pub(crate) unsafe fn bulk<F: FnOnce(*mut u8)>(
    shm: &mut Shm,
    peer: u32,
    header: &Header,
    len: usize,
    fill: F,
) -> Sent {
    let fenced = shm.fenced;
    let out = &mut shm.outgoing[peer as usize];
    if let (Some(ring), Some(bulk)) = (out.ring.as_mut(), out.bulk.as_mut())
        && ring.room() == Pushed::Done
        && let Ok(Some(piece)) = bulk.piece(len, ring.ends())
    {
        fill(piece.ptr);
        bulk.advance(&piece);
        // SAFETY: the descriptor of the piece fits one cell.
        let pushed = unsafe { push_descriptor(ring, header, &piece) };
        debug_assert_eq!(pushed, Pushed::Done, "there was room");
        out.turns.sends();
        // SAFETY: there is a ring.
        unsafe { out.bell() }.wake_if_asleep(fenced);
        return Sent::Done;
    }
    match slow_bulk(shm, peer, len) {
        // SAFETY: the caller's promise; there is room now, so this recursion ends.
        Ready::Yes => unsafe { bulk(shm, peer, header, len, fill) },
        Ready::No(sent) => sent,
    }
}

/// # Safety
/// The receiver may read the piece, up to where its descriptor says that it is filled.
#[inline(always)]
pub(crate) unsafe fn push_descriptor(ring: &mut RingTx, header: &Header, piece: &Piece) -> Pushed {
    // SAFETY: the descriptor lives on this stack and is `DESCRIPTOR` bytes long.
    unsafe {
        ring.push_bulk(
            header.to_words(),
            (&raw const piece.descriptor).cast(),
            DESCRIPTOR,
        )
    }
}

/// Whether a packet finds room now.
pub(crate) enum Ready {
    Yes,
    No(Sent),
}

/// A short send that the fast path could not do: there is no ring yet, no room, or the peer is
/// gone.
#[cold]
#[inline(never)]
unsafe fn slow_short(
    shm: &mut Shm,
    peer: u32,
    header: &Header,
    data: *const u8,
    len: usize,
) -> Sent {
    let out = &shm.outgoing[peer as usize];
    let begins = out.ring.is_none() && out.unannounced.is_none();
    if begins && out.gone().is_none() && out.first_packets < FIRST_PACKETS && len <= inbox::PAYLOAD
    {
        // SAFETY: the caller vouches for `data`, and `len` fits.
        return unsafe { through_inbox(shm, peer, header, data, len) };
    }
    match ready(shm, peer) {
        Ready::No(sent) => return sent,
        Ready::Yes => {}
    }
    let out = &mut shm.outgoing[peer as usize];
    let room = out.ring.as_mut();
    let room = room.map(|ring| (len > ring.inline(), ring.room()));
    match room {
        // SAFETY: the caller's promise. There is a ring now: a longer payload takes `bulk`, and a
        // short one has room for its cell, so the call does not come back here.
        Some((true, _) | (_, Pushed::Done)) => unsafe { short(shm, peer, header, data, len) },
        Some((_, Pushed::Broken)) => broken(shm, peer),
        Some((_, Pushed::Full)) | None => no_room(shm, peer),
    }
}

/// Makes sure that there is a ring, and an area with room for `len` bytes.
#[cold]
#[inline(never)]
pub(crate) fn slow_bulk(shm: &mut Shm, peer: u32, len: usize) -> Ready {
    if let Ready::No(sent) = ready(shm, peer) {
        return Ready::No(sent);
    }
    loop {
        let out = &mut shm.outgoing[peer as usize];
        let Some(ring) = out.ring.as_mut() else {
            return Ready::No(Sent::Full);
        };
        if ring.room() == Pushed::Full {
            return Ready::No(no_room(shm, peer));
        }
        let (grows, piece) = match out.bulk.as_mut() {
            None => (true, Ok(None)),
            Some(bulk) => {
                let piece = bulk.piece(len, ring.ends());
                (bulk.may_grow(), piece)
            }
        };
        match (ring.room(), piece) {
            (Pushed::Done, Ok(Some(_))) => return Ready::Yes,
            (Pushed::Broken, _) | (_, Err(_)) => return Ready::No(broken(shm, peer)),
            _ if !grows => return Ready::No(no_room(shm, peer)),
            _ => {}
        }
        if let Err(sent) = grow_bulk(shm, peer, len) {
            return Ready::No(sent);
        }
    }
}

/// Makes sure that the pair has an announced ring, or says why it has none.
fn ready(shm: &mut Shm, peer: u32) -> Ready {
    let out = &mut shm.outgoing[peer as usize];
    if out.gone().is_some() {
        return Ready::No(Sent::Gone);
    }
    if !out.ring.is_none() {
        return Ready::Yes;
    }
    if out.unannounced.is_none() {
        match make_ring(shm) {
            Ok(offset) => shm.outgoing[peer as usize].unannounced = NonZeroU64::new(offset),
            Err(error) => return Ready::No(exhausted(shm, peer, &error.to_string())),
        }
    }
    announce(shm, peer)
}

/// Allocates a ring.
fn make_ring(shm: &mut Shm) -> portolan_core::Result<u64> {
    let bytes = ring_bytes(shm.geometry.ring_cells);
    let (offset, len) = shm.segment.extend(bytes, "the ring of a pair of ranks")?;
    shm.ring_memory += len;
    Ok(offset)
}

/// Gives the pair its first bulk area, or replaces its small one by one of full size. Where there
/// is no memory for the full size, the pair keeps the small one.
fn grow_bulk(shm: &mut Shm, peer: u32, len: usize) -> Result<(), Sent> {
    let full = shm.geometry.bulk_bytes;
    let has_one = !shm.outgoing[peer as usize].bulk.is_none();
    let begins_small = !has_one && FIRST_AREA < full && len as u64 <= FIRST_AREA / 4;
    let size = if begins_small { FIRST_AREA } else { full };
    let why = match new_area(shm, peer, size) {
        Ok(()) => return Ok(()),
        Err(error) => error.to_string(),
    };
    let has_small = has_one || (size > FIRST_AREA && new_area(shm, peer, FIRST_AREA).is_ok());
    match shm.outgoing[peer as usize].bulk.as_mut() {
        Some(small) if has_small => {
            small.stays();
            go_on_with_less(shm, peer, &why);
            Ok(())
        }
        _ => Err(exhausted(shm, peer, &why)),
    }
}

/// Allocates a bulk area of `size` bytes and continues in it.
fn new_area(shm: &mut Shm, peer: u32, size: u64) -> portolan_core::Result<()> {
    let what = "the bulk area of a pair of ranks";
    let (offset, len) = shm.segment.extend(size, what)?;
    shm.ring_memory += len;
    let (takes, full) = (shm.takes, shm.geometry.bulk_bytes);
    let bulk = &mut shm.outgoing[peer as usize].bulk;
    let area = match bulk.as_mut() {
        None if size < full => BulkTx::small(&shm.segment, offset, size, takes),
        None => BulkTx::new(&shm.segment, offset, size, takes),
        Some(smaller) => smaller.moved_to(&shm.segment, offset, size),
    };
    let nowhere = || {
        Error::new(
            ErrorKind::Internal,
            "it was allocated outside of the segment",
        )
    };
    bulk.set(Some(area.ok_or_else(nowhere)?));
    Ok(())
}

/// Logs a warning, once, that pairs have smaller bulk areas than they should.
#[cold]
fn go_on_with_less(shm: &mut Shm, peer: u32, why: &str) {
    if !std::mem::replace(&mut shm.said_short, true) {
        portolan_core::log!(
            WARN,
            rank = shm.rank,
            peer,
            why,
            "longer messages go through small areas of {FIRST_AREA} bytes, and more slowly, to this rank and perhaps to others"
        );
    }
}

/// Announces the ring through the inbox, once this rank's previous packet there is delivered.
fn announce(shm: &mut Shm, peer: u32) -> Ready {
    if !inbox_is_free(shm, peer) {
        return Ready::No(no_room(shm, peer));
    }
    let cells = shm.geometry.ring_cells;
    let Some(offset) = shm.outgoing[peer as usize].unannounced else {
        return Ready::Yes;
    };
    let offset = offset.get();
    let wide = shm.takes;
    let Some((memory, ends)) = ring_at(&shm.segment, offset, cells, wide) else {
        return Ready::No(exhausted(
            shm,
            peer,
            "a ring was allocated outside of the segment",
        ));
    };
    let header = [offset, u64::from(cells), u64::from(wide)];
    if !post(shm, peer, Kind::Ring, header, &[]) {
        return Ready::No(no_room(shm, peer));
    }
    // SAFETY: the ring lies in the segment, which outlives it; this is its one sender.
    let ring = unsafe { RingTx::new(memory, ends, shm.takes) };
    shm.outgoing[peer as usize].begin(ring, &shm.segment.rank(peer).bell);
    Ready::Yes
}

/// # Safety
/// `len` bytes at `data` are readable, and `len` is at most what a slot holds.
unsafe fn through_inbox(
    shm: &mut Shm,
    peer: u32,
    header: &Header,
    data: *const u8,
    len: usize,
) -> Sent {
    if !inbox_is_free(shm, peer) {
        // A second packet while the first still waits: the pair is busy enough to deserve a ring.
        shm.outgoing[peer as usize].first_packets = FIRST_PACKETS;
        return no_room(shm, peer);
    }
    let mut bytes = [0; inbox::PAYLOAD];
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(data, bytes.as_mut_ptr(), len) };
    if !post(shm, peer, Kind::Packet, header.to_words(), &bytes[..len]) {
        return no_room(shm, peer);
    }
    shm.outgoing[peer as usize].first_packets += 1;
    Sent::Done
}

/// Whether the packet that this rank last posted to `peer` was delivered.
fn inbox_is_free(shm: &mut Shm, peer: u32) -> bool {
    let out = &mut shm.outgoing[peer as usize];
    match out.posted.as_ref() {
        Some(&posted) if !shm.segment.rank(peer).inbox.delivered(posted) => false,
        _ => {
            out.posted.set(None);
            true
        }
    }
}

fn post(shm: &mut Shm, peer: u32, kind: Kind, header: [u64; 3], bytes: &[u8]) -> bool {
    let area = shm.segment.rank(peer);
    let out = &mut shm.outgoing[peer as usize];
    let number = out.first_packets;
    // SAFETY: `bytes` is a slice, which the callers keep to at most `inbox::PAYLOAD` bytes.
    let posted = unsafe {
        area.inbox
            .post(shm.rank, number, kind, header, bytes.as_ptr(), bytes.len())
    };
    if posted.is_some() {
        area.bell.wake_if_asleep(shm.fenced);
    }
    out.posted.set(posted);
    posted.is_some()
}

/// Notes that a send to `peer` found no room, so that the peer rings once it makes some.
fn no_room(shm: &mut Shm, peer: u32) -> Sent {
    if shm.has_left(peer) {
        shm.outgoing[peer as usize].has_left(peer);
        return Sent::Gone;
    }
    let out = &mut shm.outgoing[peer as usize];
    let seen = out
        .ring
        .as_ref()
        .map_or_else(Seen::default, |ring| Seen::now(ring.ends()));
    if let Some(ring) = out.ring.as_ref() {
        // Relaxed: the barrier in `arm`, which comes between this store and a sleep, orders it.
        ring.ends().of_sender.starved.store(1, Relaxed);
    }
    out.seen = seen;
    let known = std::mem::replace(&mut out.blocked, true);
    // A receiver that made room just before it could see `starved` does not ring; only the check in
    // `arm` finds that room. And when an inbox slot comes free, all senders that wait for one are
    // woken, but each may lose it to another.
    let waits_for_slot = out.ring.is_none() && out.posted.is_none();
    shm.all_ring &= known && !waits_for_slot;
    if !known {
        shm.blocked.push(peer);
    }
    Sent::Full
}

/// Whether a send to `peer` that found no room might find some now.
pub(crate) fn unblocked(shm: &Shm, peer: u32) -> bool {
    let out = &shm.outgoing[peer as usize];
    if !out.blocked {
        return true;
    }
    if let Some(ring) = out.ring.as_ref() {
        return Seen::now(ring.ends()) != out.seen;
    }
    let inbox = &shm.segment.rank(peer).inbox;
    match out.posted.as_ref() {
        Some(&posted) => inbox.delivered(posted),
        None => inbox.has_room(),
    }
}

fn broken(shm: &mut Shm, peer: u32) -> Sent {
    misbehaved(
        shm,
        peer,
        "it overwrote its position in a ring with nonsense",
    );
    Sent::Gone
}

/// Declares a peer failed that has written something no correct peer writes.
#[cold]
pub(crate) fn misbehaved(shm: &mut Shm, peer: u32, what: &str) {
    shm.segment.fail(
        peer,
        &format!(
            "rank {peer} misbehaved, noticed by rank {}: {what}",
            shm.rank
        ),
    );
    shm.outgoing[peer as usize].end(shm.segment.reason(peer));
}

/// Memory ran out in the middle of the job, even for the least that a pair needs. This rank cannot
/// go on, and tells every rank why.
#[cold]
fn exhausted(shm: &mut Shm, peer: u32, why: &str) -> Sent {
    portolan_core::log!(ERROR, rank = shm.rank, peer, why, "shared memory ran out");
    shm.segment.fail(shm.rank, why);
    shm.outgoing[peer as usize].refuse(&format!("{OWN_FAILURE}{why}"));
    Sent::Gone
}
