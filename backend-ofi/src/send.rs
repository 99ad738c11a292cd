//! Hands packets to the provider.
//!
//! Budget of a small packet: one copy into a slot, one call into the provider, no allocation. A
//! packet that the provider copies within the call (`fi_inject`) does not even keep its slot.

use libfabric_sys::{FI_ADDR_NOTAVAIL, FI_EAGAIN, fi_av_insert, fi_inject, fi_send};
use portolan_core::transport::{Bell, Header, Sent};

use crate::endpoint::op::Kind;
use crate::ofi::Ofi;
use crate::packets::headerless;
use crate::packets::parts;
use crate::packets::slots::Slots;
use crate::packets::wire::Wire;
use crate::peer::{TELL, WINDOW};
use crate::shared::Contacts;
use crate::start::descriptors;

/// libfabric's error where there is no room.
const NO_ROOM: isize = -(FI_EAGAIN as isize);

/// Sends a packet of at most `Limits::short` bytes.
///
/// # Safety
/// As for `Transport::send_short`.
#[inline]
pub(crate) unsafe fn short(
    ofi: &mut Ofi,
    peer: u32,
    header: &Header,
    data: *const u8,
    len: usize,
) -> Sent {
    // SAFETY: the caller promises as many bytes; a slot has room for them. Nothing is read if there
    // are none.
    let fill = |place: *mut u8| unsafe {
        if len > 0 {
            std::ptr::copy_nonoverlapping(data, place, len);
        }
    };
    // SAFETY: the caller's promise.
    unsafe { hand_over(ofi, Kind::Short, peer, header, len, Some(data), fill) }
}

/// Sends a packet that `fill` writes.
///
/// # Safety
/// As for `Transport::send_bulk`.
#[inline]
pub(crate) unsafe fn bulk<F: FnOnce(*mut u8)>(
    ofi: &mut Ofi,
    peer: u32,
    header: &Header,
    len: usize,
    fill: F,
) -> Sent {
    // SAFETY: the caller's promise.
    unsafe { hand_over(ofi, Kind::Bulk, peer, header, len, None, fill) }
}

/// Sends a packet whose bytes lie at `data`: directly from there, if the provider copies them
/// within the call.
///
/// # Safety
/// As for `Transport::send_bulk_from`.
#[inline]
pub(crate) unsafe fn bulk_from(
    ofi: &mut Ofi,
    peer: u32,
    header: &Header,
    data: *const u8,
    len: usize,
) -> Sent {
    // SAFETY: the caller promises as many bytes; a slot has room for them.
    let fill = |place: *mut u8| unsafe { std::ptr::copy_nonoverlapping(data, place, len) };
    // SAFETY: the caller's promise.
    unsafe { hand_over(ofi, Kind::Bulk, peer, header, len, Some(data), fill) }
}

/// # Safety
/// `peer` must be another rank, `len` must fit a slot of the kind, and `fill` must initialise as
/// many bytes; as many must be readable at `source`, if it is given.
#[inline]
unsafe fn hand_over<F: FnOnce(*mut u8)>(
    ofi: &mut Ofi,
    kind: Kind,
    peer: u32,
    header: &Header,
    len: usize,
    source: Option<*const u8>,
    fill: F,
) -> Sent {
    debug_assert!(peer < ofi.size && peer != ofi.rank);
    if let Some(stream) = &mut ofi.stream {
        stream.turned();
    }
    if (ofi.shared.deaths.count() != 0 || ofi.shared.roster.anyone_left())
        && let Some(verdict) = absent(ofi, peer)
    {
        return verdict;
    }
    if ofi.peers[peer as usize].waiting > 0 {
        send_waiting(ofi);
    }
    let state = &ofi.peers[peer as usize];
    if state.waiting > 0 || state.sent.wrapping_sub(state.acked) >= WINDOW {
        return Sent::Full;
    }
    if ofi.peers[peer as usize].addr == FI_ADDR_NOTAVAIL && !insert(ofi, peer) {
        return Sent::Gone;
    }
    if len > ofi.link.part {
        // SAFETY: the caller's promise; the remaining conditions were established just above.
        return unsafe { parts::send(ofi, peer, header, len, source, fill) };
    }
    if let Some(data) = source
        && (headerless::LEAST..=ofi.inject).contains(&len)
        && ofi.words
        && ofi.peers.remembers(peer, header)
    {
        // SAFETY: the caller's promise. (If there is no room, the packet goes with a header, and
        // can wait.)
        match unsafe { headerless::inject(ofi, data, peer, len) } {
            Sent::Full => {}
            sent => return sent,
        }
    }
    let slot = match slots(ofi, kind).next_for(peer) {
        Ok(slot) => slot,
        Err(full) => return full,
    };
    let place = slots(ofi, kind).slab.part(slot);
    let wire = Wire {
        header: *header,
        job: ofi.job,
        from: ofi.rank,
        seq: ofi.peers[peer as usize].sent,
        ack: ofi.peers[peer as usize].expected,
    };
    // SAFETY: a slot has room for the wire header and a packet of its kind, and nothing else uses
    // it.
    unsafe {
        wire.write(place);
        fill(place.add(Wire::LEN));
    }
    let sent = start(ofi, kind, slot, peer, Wire::LEN + len);
    if sent == Sent::Done {
        ofi.peers[peer as usize].has_left(wire.ack);
        if len >= headerless::LEAST {
            ofi.peers.has_left_with(peer, header);
        }
    }
    sent
}

/// Gives a filled slot to the provider. If there is no room, a slot that `send_bulk` filled is
/// kept, since its bytes no longer exist where they came from.
pub(crate) fn start(ofi: &mut Ofi, kind: Kind, slot: usize, peer: u32, total: usize) -> Sent {
    if total <= ofi.inject {
        let place = slots(ofi, kind).slab.part(slot);
        return match inject(ofi, place, peer, total) {
            Sent::Full if kind == Kind::Bulk => keep(ofi, slot, peer, total),
            sent => sent,
        };
    }
    match send(ofi, kind, slot, peer, total) {
        0 => {
            slots(ofi, kind).take();
            ofi.peers[peer as usize].injected = false;
            Sent::Done
        }
        NO_ROOM if kind == Kind::Bulk => keep(ofi, slot, peer, total),
        NO_ROOM => Sent::Full,
        error => refused(ofi, peer, error),
    }
}

/// Has the provider copy the bytes at `place`, which are initialised.
#[inline]
pub(crate) fn inject(ofi: &mut Ofi, place: *const u8, peer: u32, total: usize) -> Sent {
    let addr = ofi.peers[peer as usize].addr;
    // SAFETY: an open endpoint, an address of its vector, bytes of a slot. The provider has copied
    // them when the call returns.
    match unsafe { fi_inject(ofi.link.ep.get(), place.cast(), total, addr) } {
        0 => {
            ofi.peers[peer as usize].injected = true;
            Sent::Done
        }
        NO_ROOM => Sent::Full,
        error => refused(ofi, peer, error),
    }
}

/// The `fi_send` call itself. The slot belongs to the provider if the result is 0.
fn send(ofi: &mut Ofi, kind: Kind, slot: usize, peer: u32, total: usize) -> isize {
    let (ep, addr) = (ofi.link.ep.get(), ofi.peers[peer as usize].addr);
    let slots = slots(ofi, kind);
    slots.ops.note(slot, peer, total);
    let (place, desc) = (slots.slab.part(slot), slots.slab.desc());
    let context = slots.ops.context(slot);
    // SAFETY: an open endpoint, an address of its vector, bytes and a context that stay where they
    // are until the completion.
    unsafe { fi_send(ep, place.cast(), total, desc, addr, context) }
}

/// Keeps a large packet for later. Until it has left, no other packet goes to that peer, except the
/// parts that follow in the same packet.
fn keep(ofi: &mut Ofi, slot: usize, peer: u32, total: usize) -> Sent {
    if ofi.waiting.is_empty() && ofi.listens() {
        // Another thread of this rank sleeps, or is about to. When it looked, nothing waited, so it
        // sleeps until something arrives, which does not show that the provider has room.
        ofi.bell.set_brief(true);
        ofi.bell.ring();
    }
    ofi.link.large.ops.note(slot, peer, total);
    ofi.link.large.take();
    ofi.peers[peer as usize].waiting += 1;
    ofi.waiting.push_back(slot as u32);
    Sent::Done
}

/// Retries the packets that the provider had no room for. A peer without room does not delay
/// packets to others.
pub(crate) fn send_waiting(ofi: &mut Ofi) {
    for _ in 0..ofi.waiting.len() {
        let Some(slot) = ofi.waiting.pop_front() else {
            return;
        };
        let (peer, total) = ofi.link.large.ops.noted(slot as usize);
        let result = match absent(ofi, peer) {
            None => send(ofi, Kind::Bulk, slot as usize, peer, total),
            Some(_) => isize::MIN,
        };
        if result == NO_ROOM {
            ofi.waiting.push_back(slot);
            continue;
        }
        ofi.peers[peer as usize].waiting -= 1;
        if result != 0 {
            ofi.link.large.give_back(slot as usize);
            if result != isize::MIN {
                let _ = refused(ofi, peer, result);
            }
        }
    }
}

/// Sends a packet that carries only an acknowledgement: how many packets have been delivered. With
/// `completes`, its completion shows that all packets before it have left. Returns whether it could
/// be sent.
pub(crate) fn send_control(ofi: &mut Ofi, peer: u32, completes: bool) -> bool {
    if ofi.peers[peer as usize].addr == FI_ADDR_NOTAVAIL && !insert(ofi, peer) {
        return true; // It is dead now.
    }
    let Ok(slot) = ofi.link.small.next_for(peer) else {
        return false;
    };
    let wire = Wire {
        header: Header::default(),
        job: ofi.job,
        from: ofi.rank | Wire::CONTROL,
        seq: 0,
        ack: ofi.peers[peer as usize].expected,
    };
    // SAFETY: a slot has room for it, and is free.
    unsafe { wire.write(ofi.link.small.slab.part(slot)) };
    let sent = if completes {
        match send(ofi, Kind::Short, slot, peer, Wire::LEN) {
            0 => {
                ofi.link.small.take();
                ofi.peers[peer as usize].injected = false;
                Sent::Done
            }
            NO_ROOM => Sent::Full,
            error => refused(ofi, peer, error),
        }
    } else {
        start(ofi, Kind::Short, slot, peer, Wire::LEN)
    };
    if sent == Sent::Done {
        let peer = &mut ofi.peers[peer as usize];
        peer.told = wire.ack;
        peer.greet = false;
    }
    sent != Sent::Full
}

/// Tells senders how many of their packets have been delivered, where that is due.
#[cold]
pub(crate) fn tell(ofi: &mut Ofi) {
    for _ in 0..ofi.to_tell.len() {
        let Some(peer) = ofi.to_tell.pop_front() else {
            return;
        };
        let state = &ofi.peers[peer as usize];
        let due = state.greet || state.expected.wrapping_sub(state.told) >= TELL;
        if due && absent(ofi, peer).is_none() && !send_control(ofi, peer, false) {
            ofi.to_tell.push_back(peer);
        }
    }
}

#[inline]
fn slots(ofi: &mut Ofi, kind: Kind) -> &mut Slots {
    match kind {
        Kind::Bulk => &mut ofi.link.large,
        Kind::Short | Kind::Receive | Kind::Read | Kind::Tagged | Kind::Remote => {
            &mut ofi.link.small
        }
    }
}

/// The result of sending to a peer that is gone; `None` if the peer is there.
#[cold]
pub(crate) fn absent(ofi: &Ofi, peer: u32) -> Option<Sent> {
    if ofi.shared.deaths.is_dead(peer) {
        return Some(Sent::Gone);
    }
    // It has left in good order: packets sent to it are lost.
    ofi.shared.roster.has_left(peer).then_some(Sent::Done)
}

/// Puts a peer's address into the provider's vector.
#[cold]
#[inline(never)]
pub(crate) fn insert(ofi: &mut Ofi, peer: u32) -> bool {
    ofi.shared.contacts.note(peer, Contacts::SPOKEN);
    if let Some(rooms) = &mut ofi.rooms {
        rooms.expect();
    }
    let mut addr = FI_ADDR_NOTAVAIL;
    let address = ofi.addresses.of(peer).as_ptr().cast();
    // SAFETY: an open vector, one address of its format, room for one number. (All ranks have the
    // same provider, and IP addresses of one family and length: `networks::mixed`.)
    let inserted = unsafe {
        fi_av_insert(
            ofi.link.domain.av.get(),
            address,
            1,
            &raw mut addr,
            0,
            std::ptr::null_mut(),
        )
    };
    ofi.peers[peer as usize].addr = addr;
    if inserted != 1 || addr == FI_ADDR_NOTAVAIL {
        let _ = refused(ofi, peer, isize::try_from(inserted.min(-1)).unwrap_or(-1));
        return false;
    }
    true
}

/// Errors that say what this rank has too little of, and what helps. (In libfabric's headers the
/// numbers are the system's.)
const LACKS: [(i32, &str); 4] = [
    (libc::EMFILE, descriptors::REMEDY),
    (
        libc::ENFILE,
        "let this node have more open files (sysctl fs.file-max)",
    ),
    (libc::ENOMEM, MEMORY),
    (libc::ENOBUFS, MEMORY),
];
const MEMORY: &str = "free memory on this node, or raise its limits (ulimit -l, ulimit -v)";

/// The provider refuses to send to a peer: declares it dead, unless it has left. If this rank lacks
/// something for that, no peer is to blame: it declares itself dead. A rank that is dead accuses
/// nobody: it has shut the connections.
#[cold]
#[inline(never)]
pub(crate) fn refused(ofi: &mut Ofi, peer: u32, error: isize) -> Sent {
    if ofi.shared.roster.has_left(peer) {
        return Sent::Done;
    }
    if ofi.shared.deaths.is_dead(ofi.rank) {
        return Sent::Gone;
    }
    let why = ofi.link.domain.library.fi_strerror(error as i64);
    let provider = ofi.link.domain.info.provider();
    let lacks = LACKS.iter().find(|(code, _)| -(*code as isize) == error);
    match lacks {
        Some((_, remedy)) => {
            let why = format!("provider {provider} cannot send to rank {peer}: {why}; {remedy}");
            ofi.shared.deaths.declare(ofi.rank, &why);
        }
        None => {
            let why = format!("provider {provider} cannot send to it: {why}");
            ofi.shared.deaths.declare(peer, &why);
        }
    }
    Sent::Gone
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::Config;
    use crate::deaths::roster::Roster;
    use crate::shared::Shared;
    use crate::testing::opened_or_skipped;

    #[test]
    fn who_lacks_descriptors_or_memory_blames_no_peer() {
        let config = Config {
            provider: Some("tcp".to_owned()),
            interface: Some("lo".to_owned()),
            ..Config::default()
        };
        let what = "a rank that lacks something";
        let Some(mut ranks) = opened_or_skipped(what, 3, &config) else {
            return; // The skip has been printed.
        };
        let zero = &mut ranks[0];
        assert_eq!(refused(zero, 2, -(libc::ECONNREFUSED as isize)), Sent::Gone);
        let dead = |ofi: &Ofi, rank| ofi.shared.deaths.is_dead(rank);
        assert!(dead(zero, 2) && !dead(zero, 0), "that is the peer's");
        for (code, _) in LACKS {
            zero.shared = Arc::new(Shared::new(Roster::within(3), 3));
            assert_eq!(refused(zero, 1, -(code as isize)), Sent::Gone);
            assert!(dead(zero, 0) && !dead(zero, 1), "{code}");
        }
        let why = zero.shared.deaths.reason(0, u32::MAX).expect("it is dead");
        assert!(why.contains("rank 1") && why.contains("ulimit"), "{why}");
        assert_eq!(refused(zero, 1, -(libc::ECONNRESET as isize)), Sent::Gone);
        assert!(!dead(zero, 1), "the dead accuse nobody");
    }
}
