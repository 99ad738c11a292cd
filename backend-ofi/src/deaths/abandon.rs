//! Abandons operations that libfabric's shared memory provider never ends: those on memory of
//! processes that have ended, in good order or not.
//!
//! Over shared memory, ranks copy the data themselves. Some copies are made by the peer, when it
//! polls: data that must be in the peer's memory when the operation completes, and, in 2.x or where
//! processes may not read each other's memory, also data that is read. A process that has ended
//! copies nothing, and nothing reports that: there is no connection that could break. So these
//! operations are abandoned, after some polls in which the provider does what is left to do on this
//! side. Their contexts and places remain the provider's.
//!
//! In 1.x, the answers to a rank's operations stand in one queue, in the order in which the
//! operations began, and an answer behind one that never comes is never seen. So all operations
//! behind it are abandoned with it, and from then on the rank reaches its peers' memory by packets.

use portolan_core::transport::Sink;

use crate::caps;
use crate::ofi::Ofi;

/// The first version in which answers are independent of each other.
pub(crate) const WITHOUT_ORDER: (u32, u32) = (2, 0);

/// An operation that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    /// How many operations this rank had begun before this one.
    pub(crate) begun: u64,
    pub(crate) peer: u32,
    pub(crate) what: What,
}

/// The kind of an open operation, and its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A read of a part of a message.
    Read(usize),
    /// An operation on a region; `true` if it reads from it.
    Remote(usize, bool),
}

/// Whether ranks have ended whose open operations have not been dealt with yet. No operation begins
/// on a rank that has ended: before that, it was seen to have left, or was declared dead.
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

/// Whether an operation is open that this provider never ends, because its peer has ended.
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

/// Abandons the operations that are due, unless there is something to wait for. Many polls lie
/// between two calls.
#[cold]
pub(crate) fn all<S: Sink>(ofi: &mut Ofi, sink: &mut S) {
    let ended = ofi.shared.deaths.ended();
    let ends = ended.len() as u32;
    if !is_due(ofi) {
        ofi.link.memory.settled = ends;
        return;
    }
    if std::mem::replace(&mut ofi.link.memory.seen, ends) != ends {
        return; // The provider's remaining work on this side takes a few polls.
    }
    let mut open: Vec<Open> = ofi.link.memory.open().collect();
    open.sort_by_key(|open| open.begun);
    let of_the_dead = |open: &Open| ended.contains(&open.peer);
    let first = open.iter().position(of_the_dead).unwrap_or(0);
    if first > 0 && ofi.link.memory.is_reading() {
        // The provider has not reached this operation yet, and may touch the program's memory when
        // it does. The operations before it will end.
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
            // For a peer that has died, the death ends the engine's request. This peer is alive, or
            // has left.
            let untold = !ended.contains(&peer) || ofi.shared.roster.has_left(peer);
            if let Some(id) = id.filter(|_| untold) {
                sink.finished(id, None);
            }
        }
    }
}

#[cfg(test)]
mod tests;
