//! Polling: a poll looks once at the failure epoch, once at the inbox, and once at the ring of each
//! rank that has announced one to this rank.
//!
//! Budget of a poll that finds nothing: two loads, and one for each ring. All of them are of lines
//! that stay in this core's cache until another rank writes them. If a poll delivers nothing and
//! the sink refuses nothing, nothing was there, or a packet whose sender rings when all of it is:
//! `arm` relies on this.

use portolan_core::lines::{is_for_words, may_be_for_words};
use portolan_core::transport::{Header, Payload, Sink};

use crate::bulk::{DESCRIPTOR, Descriptor};
use crate::caps::BULK;
use crate::grow::{self, Grown};
use crate::inbox::{Arrived, Kind};
use crate::link::{Incoming, Outgoing};
use crate::ring::Polled;
use crate::segment::{Geometry, Segment};
use crate::send;
use crate::shm::Shm;
use crate::sync::Ordering::Relaxed;

/// Most packets that one poll takes from one peer.
const BURST: usize = 16;

#[inline(always)]
pub(crate) fn poll<S: Sink>(shm: &mut Shm, sink: &mut S) -> usize {
    if shm.epoch() != shm.epoch_seen {
        note_failures(shm);
    }
    let mut delivered = 0;
    // The inbox comes first, so that a ring announced there is polled below.
    // SAFETY: points into the segment, which is mapped as long as `shm` lives.
    shm.held |= unsafe { &*shm.inbox }.pending();
    if shm.held != 0 {
        delivered += poll_inbox(shm, sink);
    }
    delivered + poll_rings(shm, sink)
}

/// Looks at every ring; each poll begins with another one.
#[inline(always)]
fn poll_rings<S: Sink>(shm: &mut Shm, sink: &mut S) -> usize {
    let Shm {
        incoming,
        outgoing,
        segment,
        fenced,
        geometry,
        takes,
        by_words,
        ..
    } = shm;
    let count = incoming.len();
    let (mut delivered, mut nonsense) = (0, None);
    let mut at = if shm.turn < count { shm.turn } else { 0 };
    for _ in 0..count {
        let from = &mut incoming[at];
        let out = &mut outgoing[from.peer as usize];
        let copies = Copies {
            takes,
            by_words,
            out,
        };
        let (taken, left) = drain(from, segment, fenced, geometry, copies, sink);
        if taken > 0 {
            out.turns.comes(taken);
            out.prefetch_next();
        }
        delivered += taken;
        match left {
            Left::Nothing => {}
            Left::Growing(parts) => delivered += parts,
            // If a second ring holds nonsense, the next poll finds it again.
            Left::Nonsense(what) => {
                if nonsense.is_none() {
                    from.ring.silence();
                    nonsense = Some((from.peer, what));
                }
            }
        }
        at += 1;
        if at == count {
            at = 0;
        }
    }
    shm.turn = at + 1;
    if let Some((peer, what)) = nonsense {
        send::misbehaved(shm, peer, what);
    }
    delivered
}

/// How to copy payloads out of the bulk area.
#[derive(Clone, Copy)]
struct Copies<'a> {
    /// Whether the receiver takes their lines.
    takes: &'a bool,
    /// Whether some are copied by words ([`lines`](portolan_core::lines)).
    by_words: &'a bool,
    /// Tells whether the next packet is likely to be alone, and how such packets are copied.
    out: &'a Outgoing,
}

impl Copies<'_> {
    /// Whether the next packet, with `len` bytes behind `delivered` others, is copied by words.
    fn is_by_words(self, len: usize, delivered: usize) -> bool {
        match delivered == 0 && self.out.turns.awaits_one() {
            true => may_be_for_words(len) && self.out.manner.prefers_words(),
            false => is_for_words(len),
        }
    }
}

/// What a poll has left at the head of a ring.
enum Left {
    /// Nothing, or what a later poll delivers.
    Nothing,
    /// A packet that grows, of which so many parts have been delivered.
    Growing(usize),
    /// Something that no correct peer writes.
    Nonsense(&'static str),
}

/// Delivers the packets that one ring holds, and returns their number.
///
/// Arguments that only some packets need come by reference, so that the others do not load them.
#[inline(always)]
fn drain<S: Sink>(
    from: &mut Incoming,
    segment: &Segment,
    fenced: &bool,
    geometry: &Geometry,
    copies: Copies<'_>,
    sink: &mut S,
) -> (usize, Left) {
    let mut delivered = 0;
    from.bulk.prefetch_next();
    while delivered < BURST {
        let (index, len, bulk) = match from.ring.poll() {
            Polled::Empty => break,
            Polled::Message { index, len, bulk } => (index, len, bulk),
            Polled::Broken => {
                let what = "it wrote a control word that no packet has";
                return (delivered, Left::Nonsense(what));
            }
        };
        if !sink.accepts(from.peer) {
            break;
        }
        if delivered > 0 {
            // The second packet of one poll: this is a burst.
            from.ring.prefetch();
            if sink.looks_ahead() > 0 {
                look_ahead(from, sink);
            }
        }
        let cells = from.ring.cells();
        // SAFETY: `poll` has seen the message at `index`.
        let header = Header::from_words(unsafe { cells.header(index) });
        // SAFETY: `len` bytes of payload lie in the cell (`poll` has checked it), and stay there
        // until the message is consumed below.
        let payload = unsafe { Payload::new(cells.payload(index), len) };
        let mut piece = None;
        let payload = if bulk {
            let Some((found, descriptor)) = find_bulk(
                from,
                segment,
                geometry.bulk_bytes,
                copies,
                delivered,
                payload,
            ) else {
                let what = "it described a packet outside of its bulk area";
                return (delivered, Left::Nonsense(what));
            };
            if descriptor.first() != 0 {
                let bytes = (found.as_ptr(), found.len());
                // Copies, so that the headers of other packets need not be written to memory for
                // this call.
                let (header, described) = (header, descriptor);
                // SAFETY: `find_bulk` has found them, and nobody has read them yet.
                let grown =
                    unsafe { grow::deliver(from, *copies.takes, &header, &described, bytes, sink) };
                match grown {
                    Grown::Whole => {}
                    Grown::Delivered => {
                        from.bulk.done(&descriptor, from.ring.ends());
                        from.ring.consume();
                        tell_sender(from, *fenced);
                        delivered += 1;
                        continue;
                    }
                    Grown::Left(parts) => return (delivered, Left::Growing(parts)),
                    Grown::Broken => {
                        let what = "it changed a packet that had begun to arrive";
                        return (delivered, Left::Nonsense(what));
                    }
                }
            }
            piece = Some(descriptor);
            found
        } else {
            from.bulk.unused();
            payload
        };
        if delivered > 0 && *copies.takes {
            // Only now: of a packet that grows, the next poll may have to read all of this again.
            // SAFETY: as above; the header has been read.
            unsafe { from.ring.cells().take(index, len) };
        }
        // The loop calls `packet` in one place only, so that all of it is inlined here.
        sink.packet(from.peer, &header, payload);
        if let Some(descriptor) = piece {
            from.bulk.done(&descriptor, from.ring.ends());
            tell_sender(from, *fenced);
        }
        if from.ring.consume() {
            tell_sender(from, *fenced);
        }
        delivered += 1;
    }
    (delivered, Left::Nothing)
}

/// Shows the sink the headers of packets that have arrived behind the next one, the farthest first.
/// (Not inlined: it runs seldom enough, and costs enough, that the loop around it should keep its
/// registers for everything else.)
#[cold]
#[inline(never)]
fn look_ahead<S: Sink>(from: &Incoming, sink: &mut S) {
    let places = sink.looks_ahead();
    // Prefetch still farther ahead, so that the line of that cell is under way before a later call
    // reads it.
    from.ring.ask_for(places + 4);
    for places in (1..=places).rev().step_by(2) {
        if let Some(index) = from.ring.behind(places) {
            // SAFETY: `behind` has seen the message at `index`.
            let header = Header::from_words(unsafe { from.ring.cells().header(index) });
            sink.ahead(&header, places);
        }
    }
}

/// The packet in the bulk area that a payload describes; `None` if the description makes no sense.
#[inline]
fn find_bulk<'a>(
    from: &mut Incoming,
    segment: &Segment,
    size: u64,
    copies: Copies<'_>,
    delivered: usize,
    payload: Payload<'a>,
) -> Option<(Payload<'a>, Descriptor)> {
    let descriptor = Descriptor::from_bytes(payload.first::<DESCRIPTOR>()?);
    let (ptr, len) = from.bulk.find(segment, &descriptor, size, BULK)?;
    // SAFETY: `find` has checked that the bytes lie in the allocated part of the segment; the
    // sender leaves them alone until `done`, and writes all of them anew before they are read
    // again.
    let payload = unsafe {
        if *copies.takes {
            Payload::to_take(ptr.cast_mut(), len)
        } else if *copies.by_words && copies.is_by_words(len, delivered) {
            Payload::by_words(ptr, len)
        } else {
            Payload::new(ptr, len)
        }
    };
    Some((payload, descriptor))
}

/// Wakes a sender that sleeps because it found no room.
#[inline(always)]
fn tell_sender(from: &Incoming, fenced: bool) {
    let starved = &from.ring.ends().of_sender.starved;
    from.bell().wake_if(fenced, || {
        // `starved` is cleared before the bell's word changes. A sender reads that word before it
        // announces its sleep and sets `starved`; so if this swap clears its mark, the ring that
        // follows changes the word that the sender has read, and the sender does not sleep.
        starved.load(Relaxed) != 0 && starved.swap(0, Relaxed) != 0
    });
}

/// Delivers the packets in the inbox.
#[cold]
#[inline(never)]
fn poll_inbox<S: Sink>(shm: &mut Shm, sink: &mut S) -> usize {
    let mut delivered = 0;
    let mut bits = shm.held;
    while bits != 0 {
        let slot = bits.trailing_zeros();
        bits &= bits - 1;
        let segment = std::sync::Arc::clone(&shm.segment);
        let inbox = &segment.rank(shm.rank).inbox;
        if let Some(arrived) = inbox.look(slot) {
            let sound = arrived.from < segment.ranks() && arrived.from != shm.rank;
            if sound && arrived.kind == Kind::Packet as u32 {
                if !sink.accepts(arrived.from) {
                    continue;
                }
                let header = Header::from_words(arrived.header);
                // SAFETY: the slot belongs to the receiver until it is freed, and `look` has
                // limited the length to what a slot holds.
                let payload = unsafe { Payload::new(arrived.payload, arrived.len) };
                sink.packet(arrived.from, &header, payload);
                delivered += 1;
            } else if sound {
                adopt_ring(shm, &arrived);
            }
            inbox.free(slot);
            if sound {
                segment.rank(arrived.from).bell.wake_if_asleep(shm.fenced);
            }
            wake_starved(shm, &segment);
        }
        shm.held &= !(1 << slot);
    }
    delivered
}

/// Adopts the ring that a sender has announced; its later packets come through that ring.
fn adopt_ring(shm: &mut Shm, arrived: &Arrived) {
    let [offset, cells, wide] = arrived.header;
    let known = shm
        .incoming
        .iter()
        .any(|incoming| incoming.peer == arrived.from);
    let agreed = u64::from(shm.geometry.ring_cells);
    let ring = if known || cells != agreed || wide > 1 || arrived.kind != Kind::Ring as u32 {
        None
    } else {
        Incoming::adopt(
            &shm.segment,
            arrived.from,
            offset,
            shm.geometry.ring_cells,
            wide == 1,
        )
    };
    match ring {
        Some(ring) => shm.incoming.push(ring),
        None => send::misbehaved(shm, arrived.from, "it announced a ring that cannot be one"),
    }
}

/// Wakes every sleeping rank if any has found no free slot in this rank's inbox.
fn wake_starved(shm: &Shm, segment: &Segment) {
    if segment.rank(shm.rank).inbox.take_starved() {
        for rank in 0..segment.ranks() {
            segment.rank(rank).bell.wake_if_asleep(shm.fenced);
        }
    }
}

/// Notes the ranks that have died since the last poll.
#[cold]
#[inline(never)]
fn note_failures(shm: &mut Shm) {
    shm.epoch_seen = shm.epoch();
    let segment = std::sync::Arc::clone(&shm.segment);
    let dead = |rank: u32| rank >= segment.ranks() || segment.life(rank).dead();
    for peer in 0..segment.ranks() {
        if peer != shm.rank && dead(peer) {
            shm.outgoing[peer as usize].end(segment.reason(peer));
        }
    }
    // Packets that dead ranks had published are still delivered.
    shm.held |= segment.rank(shm.rank).inbox.sweep(dead);
}

/// Announces that this rank is about to sleep, and rings its own bell if a peer to which it found
/// no room has made some meanwhile. Returns `false` if a wake-up could be missed.
pub(crate) fn arm(shm: &mut Shm) -> bool {
    let segment = std::sync::Arc::clone(&shm.segment);
    let bell = &segment.rank(shm.rank).bell;
    for &peer in &shm.blocked {
        if let Some(ring) = shm.outgoing[peer as usize].ring.as_ref() {
            ring.ends().of_sender.starved.store(1, Relaxed);
        }
    }
    let sure = bell.arm(shm.fenced);
    shm.all_ring = true;
    let blocked = std::mem::take(&mut shm.blocked);
    for peer in blocked {
        if send::unblocked(shm, peer) {
            shm.outgoing[peer as usize].blocked = false;
            bell.ring();
        } else {
            shm.blocked.push(peer);
        }
    }
    sure
}
