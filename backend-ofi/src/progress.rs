//! The poll: reads completions in batches, delivers packets in order, posts buffers again.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::time::Instant;

use libfabric_sys::{
    FI_EAGAIN, FI_EAVAIL, FI_REMOTE_READ, FI_REMOTE_WRITE, fi_cq_err_entry, fi_cq_read,
    fi_cq_readerr, fi_cq_strerror, fi_cq_tagged_entry,
};
use portolan_core::transport::{Bell, Sink, Transport};

use crate::addr;
use crate::caps;
use crate::deaths::abandon::{self, What};
use crate::deaths::sever;
use crate::endpoint::op::{Kind, Ops};
use crate::memory::remote::{self, Failed};
use crate::native::Matched;
use crate::ofi::Ofi;
use crate::packets::arrival::Arrival;
use crate::packets::gap::{Gap, Late};
use crate::packets::headerless;
use crate::packets::inbox::{Fate, Own};
use crate::packets::wire::Wire;
use crate::peer::WINDOW;
use crate::quirks::room;
use crate::send;
use crate::shared::Contacts;

/// Completions read by one call.
const BATCH: usize = 16;
/// Most batches that one poll reads.
const BATCHES: usize = 4;
/// Polls in a row without news before a death is adopted: packets that the dead rank sent may still
/// be on their way through the provider.
pub(crate) const SILENCE: u32 = 64;
/// Polls after which a death is adopted in any case, whatever arrives from others.
const LONG_ENOUGH: u32 = 4096;

/// Delivers what has arrived. Returns how many packets.
pub(crate) fn poll<S: Sink>(ofi: &mut Ofi, sink: &mut S) -> usize {
    if let Some(stream) = &mut ofi.stream {
        for _ in 0..stream.polls() {
            std::hint::spin_loop();
        }
    }
    let mut delivered = 0;
    let held = ofi.link.inbox.holds_any();
    if held {
        delivered += ofi
            .link
            .inbox
            .deliver_held(&mut ofi.peers, &mut ofi.to_tell, sink);
    }
    for _ in 0..BATCHES {
        let mut batch = [const { MaybeUninit::<fi_cq_tagged_entry>::uninit() }; BATCH];
        ofi.calling();
        // SAFETY: an open queue of this format; room for as many entries.
        let count =
            unsafe { fi_cq_read(ofi.link.domain.cq.get(), batch.as_mut_ptr().cast(), BATCH) };
        ofi.back();
        if count <= 0 {
            if count == -(FI_EAVAIL as isize) {
                delivered += read_error(ofi, sink);
                continue;
            }
            if count != 0 && count != -(FI_EAGAIN as isize) {
                broken(ofi, "reading completions", count);
            }
            break;
        }
        for entry in &batch[..count as usize] {
            // SAFETY: the provider has written as many entries as it said.
            let entry = unsafe { entry.assume_init_ref() };
            delivered += completed(ofi, entry, sink);
        }
        if (count as usize) < BATCH {
            break;
        }
    }
    if ofi.link.inbox.is_low() {
        relieve(ofi);
    }
    if let Some((from, what)) = ofi.link.inbox.liar() {
        lied(ofi, from, what);
    }
    if held {
        look_for_gaps(ofi);
    }
    give(ofi);
    if ofi.link.memory.registrations.has_refused() {
        ofi.link.memory.registrations.end_again();
    }
    if ofi.link.memory.registrations.has_kept() {
        ofi.link.memory.registrations.look();
    }
    if ofi.rooms.is_some() {
        room::make(ofi);
    }
    if ofi.shared.deaths.word() != ofi.adopted || abandon::is_open(ofi) {
        adopt(ofi, delivered, sink);
    }
    if ofi.listens() {
        before_sleep(ofi);
    }
    if let Some(stream) = &mut ofi.stream {
        stream.polled(delivered);
    }
    delivered
}

/// Gives the provider what it had no room for before.
#[inline]
fn give(ofi: &mut Ofi) {
    let (unposted, waiting) = (ofi.link.inbox.has_unposted(), !ofi.waiting.is_empty());
    if !unposted && !waiting && ofi.to_tell.is_empty() {
        return;
    }
    ofi.calling();
    if unposted {
        post(ofi);
    }
    if waiting {
        send::send_waiting(ofi);
    }
    if !ofi.to_tell.is_empty() {
        send::tell(ofi);
    }
    ofi.back();
}

/// Handles one completion. Returns how many packets were delivered for it.
#[inline]
fn completed<S: Sink>(ofi: &mut Ofi, entry: &fi_cq_tagged_entry, sink: &mut S) -> usize {
    if entry.op_context.is_null() {
        return 0; // An injected packet: nothing waits for it.
    }
    // SAFETY: this crate gave every operation that completes a context, and contexts live as long
    // as the endpoint.
    let (kind, index) = unsafe { Ops::of(entry.op_context) };
    match kind {
        Kind::Short => ofi.link.small.give_back(index),
        Kind::Bulk => ofi.link.large.give_back(index),
        Kind::Read => ofi.link.memory.completed(index, true),
        Kind::Remote => return remote::completed(ofi, index, sink),
        Kind::Tagged => ofi.tagged.push(Matched::of(index, entry)),
        Kind::Receive => {
            if ofi.adopted == 0 {
                let own = Own {
                    job: ofi.job,
                    rank: ofi.rank,
                };
                let (inbox, peers) = (&mut ofi.link.inbox, &mut ofi.peers);
                if inbox.deliver_in_turn((index, entry), own, peers, &mut ofi.to_tell, sink) {
                    return 1;
                }
            }
            if let Some(arrival) = ofi.link.inbox.arrived(index, entry) {
                return arrived(ofi, arrival, sink);
            }
        }
    }
    0
}

/// Handles a packet that has arrived whole. Returns how many packets were delivered for it.
#[inline]
fn arrived<S: Sink>(ofi: &mut Ofi, mut arrival: Arrival, sink: &mut S) -> usize {
    if arrival.form.bare
        && let Some(peer) = ofi.peers.get(arrival.wire.from as usize)
    {
        headerless::complete(&mut arrival.wire, ofi.job, peer);
    }
    let wire = arrival.wire;
    let known = wire.job == ofi.job && wire.from < ofi.size && wire.from != ofi.rank;
    if !known {
        stranger(ofi, &arrival);
        return 0;
    }
    if wire.seq == 0 {
        ofi.heard(wire.from);
    }
    let peer = &mut ofi.peers[wire.from as usize];
    let ahead = wire.seq.wrapping_sub(peer.expected) < WINDOW;
    if !ahead || !peer.acknowledged(wire.ack) {
        nonsense(ofi, &arrival);
        return 0;
    }
    if ofi.has_adopted(wire.from) {
        ofi.link.inbox.read(&arrival);
        return 0;
    }
    let held = ofi.link.inbox.holds_any();
    match ofi
        .link
        .inbox
        .deliver(arrival, &mut ofi.peers, &mut ofi.to_tell, sink)
    {
        Fate::Held => 0,
        Fate::Delivered if held => {
            1 + ofi
                .link
                .inbox
                .deliver_held(&mut ofi.peers, &mut ofi.to_tell, sink)
        }
        Fate::Delivered => 1,
    }
}

/// A packet that is not for the engine (a control packet), or that no rank of this job can have
/// sent.
#[cold]
#[inline(never)]
fn stranger(ofi: &mut Ofi, arrival: &Arrival) {
    ofi.link.inbox.read(arrival);
    let wire = &arrival.wire;
    let from = wire.from & !Wire::CONTROL;
    if wire.job != ofi.job || from >= ofi.size || from == ofi.rank {
        portolan_core::log!(
            WARN,
            rank = ofi.rank,
            from,
            "a packet that is not of this job"
        );
        return;
    }
    ofi.shared.contacts.note(from, Contacts::ARRIVED);
    if !ofi.peers[from as usize].acknowledged(wire.ack) {
        impossible(ofi, wire);
    }
}

/// A packet whose numbers no correct peer sends.
#[cold]
#[inline(never)]
fn nonsense(ofi: &mut Ofi, arrival: &Arrival) {
    ofi.link.inbox.read(arrival);
    impossible(ofi, &arrival.wire);
}

fn impossible(ofi: &Ofi, wire: &Wire) {
    let Wire { from, seq, ack, .. } = *wire;
    let why = format!("it sent a packet with the impossible number {seq} or acknowledgement {ack}");
    ofi.shared.deaths.declare(from & !Wire::CONTROL, &why);
}

/// A packet that no correct peer sends.
#[cold]
#[inline(never)]
fn lied(ofi: &Ofi, from: u32, what: &str) {
    ofi.shared.deaths.declare(from, &format!("it sent {what}"));
}

/// Packets were already held before this poll: perhaps they wait for one that never comes.
#[cold]
#[inline(never)]
fn look_for_gaps(ofi: &mut Ofi) {
    let Some(gap) = &mut ofi.gap else {
        return;
    };
    let missing = ofi.link.inbox.missing(&ofi.peers);
    if gap.look(missing, Instant::now)
        && let Some((from, number)) = missing
    {
        lost_packet(ofi, from, number);
    }
}

fn lost_packet(ofi: &Ofi, from: u32, number: u32) {
    let why = format!("packet {number} of it was lost, with a connection that broke");
    ofi.shared.deaths.declare(from, &why);
}

/// The watching thread has called, once per period: publishes how many packets this rank has sent
/// to each other rank, and compares what others have published with what has arrived.
fn compare_counts(ofi: &mut Ofi, delivered: usize) {
    let counts = &ofi.shared.counts;
    // Packets that the provider has not accepted may wait for long.
    let sent = ofi.peers.iter();
    counts.publish(sent.map(|peer| (peer.waiting == 0).then_some(peer.sent)));
    let nothing_came = delivered == 0 && ofi.tagged.is_empty();
    let Some(gap) = ofi.gap.as_mut().filter(|_| nothing_came) else {
        return;
    };
    let late = |rank: u32| {
        let (count, number) = (counts.latest(rank)?, ofi.peers[rank as usize].expected);
        let missing = count.packets.wrapping_sub(number).wrapping_sub(1) < WINDOW;
        let missing = missing && !ofi.link.inbox.holds((rank, number));
        (missing && !ofi.shared.deaths.is_dead(rank)).then_some(Late {
            packet: (rank, number),
            turn: count.turn,
            looks: 0,
        })
    };
    let lost = gap.compare((0..ofi.size).filter_map(late), counts.patience());
    if let Some((from, number)) = lost {
        lost_packet(ofi, from, number);
    }
}

/// The packets that lie in the receive buffers have all but used these up.
#[cold]
#[inline(never)]
fn relieve(ofi: &mut Ofi) {
    let link = &mut *ofi.link;
    if let Err(why) = link.inbox.relieve(&link.domain) {
        portolan_core::log!(WARN, rank = ofi.rank, why, "no room for what arrives");
    }
}

/// Posts receive buffers again.
pub(crate) fn post(ofi: &mut Ofi) {
    let link = &mut *ofi.link;
    if let Err(error) = link.inbox.post(&link.ep) {
        broken(ofi, "posting a receive buffer", error);
    }
}

/// Lets the provider make progress after this rank has left: how operations end no longer matters
/// to anyone.
#[cold]
pub(crate) fn discard(ofi: &mut Ofi) {
    let cq = ofi.link.domain.cq.get();
    let mut batch = [const { MaybeUninit::<fi_cq_tagged_entry>::uninit() }; BATCH];
    for _ in 0..BATCHES {
        ofi.calling();
        // SAFETY: an open queue of this format; room for as many entries.
        let count = unsafe { fi_cq_read(cq, batch.as_mut_ptr().cast(), BATCH) };
        ofi.back();
        if count == -(FI_EAVAIL as isize) {
            // SAFETY: numbers and null pointers, for which zero is a value.
            let mut entry = unsafe { std::mem::zeroed::<fi_cq_err_entry>() };
            // SAFETY: an open queue, room for one entry.
            unsafe { fi_cq_readerr(cq, &raw mut entry, 0) };
        } else if count <= 0 {
            return;
        }
    }
}

/// Handles the completion of a failed operation. Returns how many events that is for the engine.
#[cold]
#[inline(never)]
fn read_error<S: Sink>(ofi: &mut Ofi, sink: &mut S) -> usize {
    // SAFETY: numbers and null pointers, for which zero is a value.
    let mut entry = unsafe { std::mem::zeroed::<fi_cq_err_entry>() };
    // SAFETY: an open queue, room for one entry.
    if unsafe { fi_cq_readerr(ofi.link.domain.cq.get(), &raw mut entry, 0) } <= 0 {
        return 0;
    }
    if entry.op_context.is_null() {
        return nameless(ofi, &entry, sink);
    }
    // SAFETY: as in `completed`.
    let (kind, index) = unsafe { Ops::of(entry.op_context) };
    let slots = match kind {
        Kind::Short => &mut ofi.link.small,
        Kind::Bulk => &mut ofi.link.large,
        // The data is then sent in packets instead.
        Kind::Read => {
            ofi.link.memory.completed(index, false);
            return 0;
        }
        Kind::Tagged => {
            ofi.tagged.push(Matched::of_error(index, &entry));
            return 0;
        }
        Kind::Remote => return remote_failed(ofi, index, &entry, sink),
        Kind::Receive => {
            // Only the flags say whether the provider gives the buffer back; otherwise the rest of
            // it may still be posted.
            ofi.link.inbox.failed(index, entry.flags);
            let why = words(ofi, &entry);
            portolan_core::log!(WARN, rank = ofi.rank, why, "a receive failed");
            return 0;
        }
    };
    slots.give_back(index);
    let (peer, _) = slots.ops.noted(index);
    if ofi.shared.roster.has_left(peer) {
        return 0;
    }
    // The cause may be a broken connection. Packets handed over to it and not yet delivered are
    // then lost as well, and no copy of them exists any more.
    lost(ofi, peer, "send to it", &entry);
    0
}

/// An operation has failed, and the provider does not say which.
fn nameless<S: Sink>(ofi: &mut Ofi, entry: &fi_cq_err_entry, sink: &mut S) -> usize {
    let why = words(ofi, entry);
    if entry.flags & (FI_REMOTE_READ | FI_REMOTE_WRITE) != 0 {
        portolan_core::log!(
            WARN,
            rank = ofi.rank,
            why,
            "what a peer did to memory here failed"
        );
        return 0;
    }
    // Where libfabric's shared memory provider copies within the call that begins an operation, the
    // operation also ends within that call. So every operation begun before the failed one has
    // already been seen to end, and the oldest open one is the one that failed.
    let reads = |open: &abandon::Open| !matches!(open.what, What::Remote(_, false));
    // (This does not hold for 2.x, whose copies may outlast the call: there, nothing tells which
    // operation failed.)
    let within = caps::over(&ofi.link.domain.info, "shm")
        && ofi.link.domain.library.version() < abandon::WITHOUT_ORDER;
    let open = ofi.link.memory.open().filter(|open| within && reads(open));
    match open.min_by_key(|open| open.begun).map(|open| open.what) {
        Some(What::Read(index)) => {
            ofi.link.memory.completed(index, false);
            0
        }
        Some(What::Remote(index, _)) => {
            if let Some(peer) = ofi.link.memory.remotes.peer(index) {
                notice_end(ofi, peer);
            }
            remote_failed(ofi, index, entry, sink)
        }
        None => {
            portolan_core::log!(WARN, rank = ofi.rank, why, "an injected packet was lost");
            0
        }
    }
}

/// A read from a peer failed as if the peer had refused it. Perhaps the peer's process is ending,
/// and the thread that watches it has not been told yet.
fn notice_end(ofi: &Ofi, peer: u32) {
    let Some(pid) = ofi.process_of(peer).filter(|_| peer != ofi.rank) else {
        return;
    };
    if addr::is_ending(pid) && !ofi.shared.roster.has_left(peer) {
        ofi.shared.deaths.died(peer, pid);
    }
}

/// Handles a failed operation on a peer's memory.
fn remote_failed<S: Sink>(
    ofi: &mut Ofi,
    index: usize,
    entry: &fi_cq_err_entry,
    sink: &mut S,
) -> usize {
    // Some of shm's error numbers are negative.
    match remote::failed(ofi, index, (entry.err.abs(), entry.prov_errno), sink) {
        Failed::Refused => return 1,
        Failed::Lost(peer) => lost(ofi, peer, "reach memory of it", entry),
    }
    0
}

/// Declares a peer dead that the provider cannot reach. A rank that is held to be dead itself has
/// shut the connections, and accuses nobody.
fn lost(ofi: &Ofi, peer: u32, what: &str, entry: &fi_cq_err_entry) {
    if ofi.shared.deaths.is_dead(ofi.rank) {
        return;
    }
    let why = words(ofi, entry);
    let provider = ofi.link.domain.info.provider();
    let why = format!("provider {provider} could not {what}: {why}");
    ofi.shared.deaths.declare(peer, &why);
}

/// The provider's words for an error.
fn words(ofi: &Ofi, entry: &fi_cq_err_entry) -> String {
    let general = ofi.link.domain.library.fi_strerror(i64::from(entry.err));
    // SAFETY: an open queue; the text, if there is one, lives until the next call.
    let special = unsafe {
        let null = std::ptr::null_mut();
        let cq = ofi.link.domain.cq.get();
        let text = fi_cq_strerror(cq, entry.prov_errno, entry.err_data, null, 0);
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    match special {
        Some(special) if special != general => format!("{general} ({special})"),
        _ => general,
    }
}

/// The endpoint no longer works. The rank is as good as dead, and declares so itself.
#[cold]
#[inline(never)]
fn broken(ofi: &mut Ofi, what: &str, error: isize) {
    let why = ofi.link.domain.library.fi_strerror(error as i64);
    let provider = ofi.link.domain.info.provider();
    let why = format!("{what} failed on provider {provider}: {why}");
    ofi.shared.deaths.declare(ofi.rank, &why);
}

/// Adopts the known deaths once nothing from the dead ranks is on its way any more. Answers the
/// watching thread's call first, if there is one.
#[cold]
#[inline(never)]
fn adopt<S: Sink>(ofi: &mut Ofi, delivered: usize, sink: &mut S) {
    if ofi.shared.deaths.take_call() {
        compare_counts(ofi, delivered);
        if ofi.shared.deaths.count() == ofi.adopted && !abandon::is_open(ofi) {
            return;
        }
    }
    let (quiet, polls) = &mut ofi.silence;
    *quiet = if delivered == 0 { *quiet + 1 } else { 0 };
    *polls += 1;
    if *quiet > SILENCE || *polls > LONG_ENOUGH {
        abandon::all(ofi, sink);
        if ofi.shared.deaths.count() != ofi.adopted {
            believe(ofi);
        }
        ofi.silence = (0, 0);
    }
}

/// Adopts the known deaths, except those that have to wait for reads ([`Ofi::held`]), unless
/// operations are to be abandoned: an engine that is told of a rank's death takes the buffers of
/// operations with that rank back. (A rank that is held to be dead itself takes back all of them.)
pub(crate) fn believe(ofi: &mut Ofi) {
    // Other threads may declare further deaths meanwhile. Those are for the next time: whether
    // anything is being read from these ranks has not been looked at.
    let known = ofi.shared.deaths.count();
    let memory = &ofi.link.memory;
    let dead = |peer| ofi.shared.deaths.reason(peer, known).is_some();
    let lent = memory.is_reading() || ofi.link.matches || memory.is_offered();
    if lent || memory.remotes.concern(dead) {
        // With their connections shut, these operations end now or never. Until they end, they
        // occupy places that operations on living ranks need. Through these connections, a rank
        // that is wrongly held to be dead can no longer write into memory of this rank either, nor
        // read from it: the engine ends the messages to a dead rank and the program frees their
        // buffers, while the provider may still be answering that rank's reads from there. (A
        // connection that such a rank has opened stays if others at its IP address live. What the
        // provider is answering there goes on; later reads of a buffer fail, because the engine
        // withdraws it.)
        sever::connections(ofi);
    }
    ofi.silence = (0, 0);
    if abandon::is_due(ofi) {
        return;
    }
    let deaths = ofi.shared.deaths.list(0).into_iter().take(known as usize);
    let deaths = deaths.map(|(rank, _)| rank);
    let (held, dead): (Vec<u32>, Vec<u32>) = deaths.partition(|&rank| has_to_wait(ofi, rank));
    let news = dead.len() as u32 != ofi.adopted;
    (ofi.adopted, ofi.held) = (dead.len() as u32, held);
    if news {
        forget(ofi, &dead);
    }
}

/// Whether a death cannot be adopted yet, because the provider may access memory of the program in
/// operations with that rank, or with any, if it is this one. Until then the rank lives to the
/// engine, which gives back no memory in which a living rank's data may still arrive, whoever else
/// has died.
fn has_to_wait(ofi: &Ofi, rank: u32) -> bool {
    let concerns = |peer| peer == rank || rank == ofi.rank;
    // What has been adopted stays so. (A rank that is held to be dead still reaches its own
    // memory.)
    ofi.link.memory.is_reading_from(concerns) && !ofi.has_adopted(rank)
}

/// Discards what there is of the ranks whose deaths have been adopted.
fn forget(ofi: &mut Ofi, dead: &[u32]) {
    let dead = |rank| dead.contains(&rank);
    ofi.link.inbox.forget(dead);
    if let Some(gap) = &mut ofi.gap {
        *gap = Gap::default();
    }
    ofi.link.memory.forget(dead);
    ofi.link.inbox.broke();
}

/// The last poll before a sleep: makes the provider's descriptor signal what arrives from now on.
#[cold]
#[inline(never)]
fn before_sleep(ofi: &mut Ofi) {
    let unannounced = !ofi.waiting.is_empty()
        || !ofi.to_tell.is_empty()
        || ofi.link.inbox.has_unposted()
        || ofi.link.inbox.is_shut()
        || ofi.shared.deaths.count() != ofi.adopted
        || ofi.gap.as_ref().is_some_and(Gap::is_open)
        // What the network does to registered memory by itself wakes nobody.
        || !ofi.link.memory.registrations.is_empty();
    ofi.bell
        .set_brief(unannounced || ofi.link.domain.wait.is_none());
    if !ofi.link.domain.may_sleep() {
        ofi.bell.ring();
    }
}
