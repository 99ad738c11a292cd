//! What libfabric's shared memory never ends: operations on memory of processes that have ended, in
//! good order or not.
//!
//! Ranks copy by themselves there. What has to be in the peer's memory when it is over the peer
//! copies, when it looks, and so it does with what is read, in 2.x or where processes may not read
//! each other's memory. Whoever has ended copies nothing, and nobody says so: there is no
//! connection that could break. So these operations are abandoned, after polls in which the
//! provider does what is left to do on this side. Their contexts and places stay the provider's.
//!
//! In 1.x the answers to a rank's operations stand in one queue, in the order in which the
//! operations have begun, and what stands behind an answer that never comes is never seen. So all
//! behind it are abandoned with it, and the rank reaches memory of peers by packets from then on.

use portolan_core::transport::Sink;

use crate::caps;
use crate::ofi::Ofi;

/// The first version in which each answer comes for itself.
pub(crate) const WITHOUT_ORDER: (u32, u32) = (2, 0);

/// An operation that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    /// How many of this rank had begun when it did.
    pub(crate) begun: u64,
    pub(crate) peer: u32,
    pub(crate) what: What,
}

/// Which one it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A read of a piece of a message.
    Read(usize),
    /// One on a region, that reads from it or not.
    Remote(usize, bool),
}

/// Whether ranks have ended, and it is not known yet what of theirs is under way. Nothing begins on
/// who has ended: it was seen to have left, or was held to be dead, before.
#[inline]
pub(crate) fn is_open(ofi: &mut Ofi) -> bool {
    let ends = ofi.shared.deaths.ends();
    if ofi.link.memory.settled == ends {
        return false;
    }
    let open = !ofi.link.memory.is_idle() && caps::over(&ofi.link.domain.info, "shm");
    if !open {
        ofi.link.memory.settled = ends;
    }
    open
}

/// Whether something is under way that this provider never ends, because its peer has.
pub(crate) fn is_due(ofi: &Ofi) -> bool {
    if ofi.link.memory.is_idle() || !caps::over(&ofi.link.domain.info, "shm") {
        return false;
    }
    let ended = ofi.shared.deaths.ended();
    ofi.link
        .memory
        .open()
        .any(|open| ended.contains(&open.peer))
}

/// Abandons what is due, unless there is something to wait for. A while of polls lies between two
/// calls.
#[cold]
pub(crate) fn all<S: Sink>(ofi: &mut Ofi, sink: &mut S) {
    let ended = ofi.shared.deaths.ended();
    let ends = ended.len() as u32;
    if !is_due(ofi) {
        ofi.link.memory.settled = ends;
        return;
    }
    if std::mem::replace(&mut ofi.link.memory.seen, ends) != ends {
        return; // What the provider has still to do on this side takes a few polls.
    }
    let mut open: Vec<Open> = ofi.link.memory.open().collect();
    open.sort_by_key(|open| open.begun);
    let of_the_dead = |open: &Open| ended.contains(&open.peer);
    let first = open.iter().position(of_the_dead).unwrap_or(0);
    if first > 0 && ofi.link.memory.is_reading() {
        // The provider has not come to it yet, and may touch memory of the program when it does.
        // Those before it end.
        return;
    }
    let in_order = ofi.link.domain.library.version() < WITHOUT_ORDER;
    ofi.link.memory.stuck |= in_order;
    for open in open.split_off(first) {
        if in_order || of_the_dead(&open) {
            one(ofi, open, &ended, sink);
        }
    }
    ofi.link.memory.settled = ends;
}

fn one<S: Sink>(ofi: &mut Ofi, Open { peer, what, .. }: Open, ended: &[u32], sink: &mut S) {
    portolan_core::log!(DEBUG, rank = ofi.rank, peer, ?what, "nobody ends it");
    match what {
        What::Read(index) => ofi.link.memory.abandon(index),
        What::Remote(index, _) => {
            let id = ofi.link.memory.remotes.abandon(index);
            // The death of its peer ends a request of the engine's; this one has a peer that lives,
            // or that has left.
            let untold = !ended.contains(&peer) || ofi.shared.roster.has_left(peer);
            if let Some(id) = id.filter(|_| untold) {
                sink.finished(id, None);
            }
        }
    }
}

#[cfg(test)]
mod tests;
