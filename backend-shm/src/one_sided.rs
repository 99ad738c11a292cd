//! Access to a peer's memory without the peer's help, and the facts that a user can ask for.

use portolan_core::comm::NoUnwind;
use portolan_core::lines::copy_apart_or_not;
use portolan_core::transport::{Exposure, Pulled, Pulls};

use crate::allocator;
use crate::config::Cma;
use crate::pull::{Access, Local, Place, Puller, Read};
use crate::ring::CELL;
use crate::segment::layout::Life;
use crate::shm::Shm;
use crate::sync::Ordering::Relaxed;

/// Shortest message, in bytes, for which waking a sleeping sender pays: waking takes some 30
/// microseconds, and the sender then moves half of the message.
const WORTH_WAKING: usize = 1 << 20;

/// The ways that the data of a message of `len` bytes from `peer` may take at the moment. With
/// `inside`, the peer is known to be in a call; its presence word, which it has just written, is
/// then not read.
pub(crate) fn pulls(shm: &Shm, peer: u32, exposure: &Exposure, len: usize, inside: bool) -> Pulls {
    let is_shared = Place::from_exposure(exposure).segment_offset().is_some();
    let reached = is_shared || !matches!(shm.puller.access(peer), Access::Refused(_));
    if peer >= shm.segment.ranks() || !reached {
        return Pulls::Never;
    }
    let outside = !inside && {
        let area = shm.segment.rank(peer);
        // A sender that sleeps in a call counts as inside for a message worth waking it: the
        // request for the data wakes it.
        area.presence.0.inside.load(Relaxed) == 0 && (len < WORTH_WAKING || !area.bell.is_asleep())
    };
    if is_shared {
        return if outside { Pulls::Whole } else { Pulls::Shared };
    }
    match shm.config.cma {
        Cma::Off => Pulls::Never,
        _ if outside => Pulls::Absent,
        Cma::On => Pulls::Always,
        Cma::Auto => Pulls::Measured,
    }
}

/// Copies between this rank's memory and what a peer has exposed.
///
/// # Safety
/// As for `Transport::pull` and `Transport::push`.
pub(crate) unsafe fn reach(
    shm: &mut Shm,
    peer: u32,
    exposure: &Exposure,
    offset: u64,
    local: Local,
) -> Pulled {
    let place = Place::from_exposure(exposure);
    let off = shm.config.cma == Cma::Off && place.segment_offset().is_none();
    if peer >= shm.segment.ranks() || peer == shm.rank || off {
        return Pulled::Stream;
    }
    // After a rank's death, the system may give its process id to another process. The watcher's
    // thread notices the death at once, long before the system has used up all other ids. So it is
    // enough to look at what that thread has recorded: before a write, and after a read. A rank
    // that has left has taken its memory along, and answers nothing any more.
    if shm.segment.life(peer) != Life::Running {
        return ended(shm, peer);
    }
    let pushes = matches!(local, Local::From(..));
    if pushes && !shm.segment.begin_push(shm.rank, peer) {
        return ended(shm, peer);
    }
    let probe_at = shm.segment.rank(peer).identity.probe_at.load(Relaxed);
    // The first copy logs what it finds. If a log subscriber panicked there, the owner of the
    // buffer would wait for this rank's `pushing` word for ever.
    let guard = NoUnwind::new("a copy between ranks");
    // SAFETY: the caller's promise.
    let read = match place.segment_offset() {
        // SAFETY: the caller's promise.
        Some(start) => unsafe { load_or_store(shm, start.saturating_add(offset), local) },
        // SAFETY: the caller's promise.
        None => unsafe { shm.puller.copy(peer, exposure, offset, local, probe_at) },
    };
    guard.done();
    if pushes {
        shm.segment.end_push(shm.rank);
    }
    match read {
        // What was read may have been another process's memory by then.
        _ if shm.segment.life(peer) != Life::Running => ended(shm, peer),
        // If this rank is held to be dead, the peer waits for it no more, and its buffer may have
        // been in use by then.
        Read::Done if shm.segment.life(shm.rank) != Life::Running => Pulled::Stream,
        Read::Done => Pulled::Done,
        // The copy may have failed because the peer's process has just ended, unnoticed so far.
        Read::No if shm.finds_dead(peer) => Pulled::Gone,
        Read::No => Pulled::Stream,
    }
}

/// Copies from or to this place in the segment, which a peer has named: memory of `alloc` of its
/// own, if it is honest.
///
/// # Safety
/// The bytes of `local` are readable or writable, as its direction needs.
unsafe fn load_or_store(shm: &Shm, offset: u64, local: Local) -> Read {
    let Some(there) = shm.segment.at(offset, local.len()) else {
        return Read::No;
    };
    // SAFETY: the place is in the mapping, the rest is the caller's promise. The two may overlap if
    // the peer has made up the place; then it has wrong bytes.
    unsafe {
        match local {
            Local::To(target, len) => copy_apart_or_not(there, target, len),
            Local::From(source, len) => copy_apart_or_not(source, there, len),
        }
    }
    Read::Done
}

/// The outcome of a copy whose peer is no longer running.
#[cold]
fn ended(shm: &mut Shm, peer: u32) -> Pulled {
    match shm.segment.life(peer) {
        // The peer's program has failed, and its process is about to end. This rank may still ask
        // it for a stream, and gets no answer. The end of the process is what tells this rank, and
        // no sooner: the launcher is to hear of the failure from the rank that failed, not from a
        // rank that waits for it.
        Life::Ending => Pulled::Stream,
        Life::Finished => {
            shm.outgoing[peer as usize].has_left(peer);
            Pulled::Gone
        }
        _ => {
            shm.met_death = true;
            Pulled::Gone
        }
    }
}

/// The facts that a user may want to know, one line each.
pub(crate) fn describe(shm: &Shm) -> Vec<(String, String)> {
    let kib = |bytes: u64| format!("{} KiB", bytes >> 10);
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let mut facts = vec![
        fact(
            "segment",
            format!("{} MiB of address space", shm.segment.total() >> 20),
        ),
        fact(
            "ring per pair",
            kib(u64::from(shm.geometry.ring_cells) * CELL as u64),
        ),
        fact("bulk area per pair", kib(shm.geometry.bulk_bytes)),
        fact("large copies", large_copies(shm)),
        fact("wake-up", wake_up(shm).to_owned()),
    ];
    let (held, refusals) = (allocator::held(&shm.segment), allocator::refusals());
    if held > 0 || refusals > 0 {
        let value = format!("{}, {refusals} allocations found no room", kib(held));
        facts.push(fact("the program's allocator", value));
    }
    facts
}

fn wake_up(shm: &Shm) -> &'static str {
    if shm.fenced {
        "futex, a fence in every send (membarrier is not allowed)"
    } else {
        "futex, a membarrier before sleeping"
    }
}

fn large_copies(shm: &Shm) -> String {
    let way = match (&shm.puller, shm.config.cma) {
        (_, Cma::Off) => return "through shared chunks (PORTOLAN_SHM_CMA=off)".to_owned(),
        (Puller::Within(_), _) => "direct copies",
        (Puller::Across { .. }, _) => "process_vm_readv",
    };
    let when = if shm.config.cma == Cma::On {
        ""
    } else {
        " or through shared chunks, whichever is measured to be faster"
    };
    let refused = (0..shm.segment.ranks())
        .filter(|&peer| peer != shm.rank)
        .find_map(|peer| match shm.puller.access(peer) {
            Access::Refused(why) => Some(format!("; refused for rank {peer}: {why}")),
            _ => None,
        });
    format!("{way}{when}{}", refused.unwrap_or_default())
}
