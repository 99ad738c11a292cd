//! Endpoints of one process over libfabric's shared memory, which have to know each other before
//! the first message.
//!
//! In 2.x a command lies in the memory of its sender, and what the receiver is handed is an
//! address: where that memory lies in the receiver's process, which the receiver writes down for
//! the sender to read. It does so when it maps the sender's memory, or when it handles the sender's
//! request for a connection; but not when it maps the memory of an endpoint of its own process,
//! which is there already. And one request connects both ways. So whoever is asked by an endpoint
//! of its own process, and sends to it before it has asked by itself, finds 0 for the address, and
//! the receiver follows what is made of it (2.5; `fi_cq_read` crashes, with whatever does not fit
//! into the command itself: reads, puts, messages of a few hundred bytes).
//!
//! So each of two endpoints of a process asks the other before either looks for the other's
//! request. Ranks that are processes of their own cannot meet it.

use std::collections::HashSet;

use crate::addr::{Card, Process};
use crate::ofi::{Nobody, Ofi};
use crate::progress;
use crate::send;
use crate::start::info::Info;

/// The first version in which the receiver is told where a command lies. 1.17 copies it.
const SINCE: (u32, u32) = (2, 0);

/// Whether endpoints of one process must ask each other both ways.
pub(crate) fn is_needed(version: (u32, u32), info: &Info) -> bool {
    version >= SINCE && info.provider() == "shm"
}

/// Has all endpoints of a process ask each other. None of them may have sent anything to another.
pub(crate) fn all(ranks: &mut [Ofi]) {
    for first in 1..ranks.len() {
        for second in 0..first {
            // No endpoint is sent to before it has answered: what is meant to be sent stays, and
            // the request has left.
            for (from, to) in [(first, second), (second, first)] {
                let _ = send::send_control(&mut ranks[from], to as u32, false);
            }
            for rank in [first, second] {
                progress::poll(&mut ranks[rank], &mut Nobody);
            }
        }
    }
}

/// A process that several of the ranks are in, each of which opens its own endpoint.
pub(crate) fn shared(cards: &[Card]) -> Option<Process> {
    let mut known = HashSet::new();
    let mut cards = cards.iter().map(|card| (&*card.node, card.process));
    let again = cards.find(|(node, process)| !known.insert((*node, process.pid, process.start)));
    again.map(|(_, process)| process)
}
