//! Makes endpoints of one process over libfabric's shared memory connect to each other before the
//! first message.
//!
//! In 2.x, a command lies in its sender's memory, and the queue hands the receiver only an address:
//! where that memory is mapped in the receiver's process. The receiver writes this address down for
//! the sender to read. It does so when it maps the sender's memory, or when it handles the sender's
//! connection request. It does not do so for an endpoint of its own process, whose memory is there
//! already and need not be mapped. One request connects both directions. So suppose endpoint A asks
//! endpoint B of the same process, and B sends to A without ever having sent a request itself: B
//! then finds 0 for the address, and A follows what is computed from it (2.5: `fi_cq_read` crashes,
//! for anything that does not fit into the command itself: reads, puts, messages of a few hundred
//! bytes).
//!
//! Therefore each of two endpoints of a process sends the other a request before either handles the
//! other's. Ranks that are processes of their own are not affected.

use std::collections::HashSet;

use crate::addr::{Card, Process};
use crate::ofi::{Nobody, Ofi};
use crate::progress;
use crate::send;
use crate::start::info::Info;

/// The first version in which the receiver is handed an address. 1.17 copies the command.
const SINCE: (u32, u32) = (2, 0);

/// Whether endpoints of one process must send each other requests, in both directions.
pub(crate) fn is_needed(version: (u32, u32), info: &Info) -> bool {
    version >= SINCE && info.provider() == "shm"
}

/// Makes all endpoints of a process send each other requests. None of them may have sent anything
/// to another before.
pub(crate) fn all(ranks: &mut [Ofi]) {
    for first in 1..ranks.len() {
        for second in 0..first {
            // shm sends nothing to an endpoint before that one has answered: the message stays
            // here, but the request has left.
            for (from, to) in [(first, second), (second, first)] {
                let _ = send::send_control(&mut ranks[from], to as u32, false);
            }
            for rank in [first, second] {
                progress::poll(&mut ranks[rank], &mut Nobody);
            }
        }
    }
}

/// A process that several ranks are in, each with an endpoint that it opened itself.
pub(crate) fn shared(cards: &[Card]) -> Option<Process> {
    let mut known = HashSet::new();
    let mut cards = cards.iter().map(|card| (&*card.node, card.process));
    let again = cards.find(|(node, process)| !known.insert((*node, process.pid, process.start)));
    again.map(|(_, process)| process)
}
