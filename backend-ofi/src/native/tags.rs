//! The state that the device keeps in addition to the engine: the operations that the provider
//! matches, and the translation between these and the device interface.
//!
//! Sending is in `sends.rs`, receiving in `receives.rs`, probing in `looks.rs`, deaths in
//! `deaths.rs`.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::c_void;

use libfabric_sys::FI_EAGAIN;
use portolan_core::matching::{Envelope, Pattern};
use portolan_core::{ErrorKind, Request, Status};

use super::bits::{Bits, Mark};
use super::buffers::Buffers;
use super::contexts::Contexts;
use super::deaths::Doomed;
use super::inquiries::{Inquiry, Note};
use super::looks::Scan;
use super::matched::Matched;
use super::slots::{Lost, Outgoing, Slot, Slots, What};
use crate::ofi::Ofi;

/// libfabric's error where there is no room.
pub(super) const NO_ROOM: isize = -(FI_EAGAIN as isize);

/// The end of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// It has ended as the status says.
    Over(Status),
    /// This peer has failed.
    Failed(u32),
    /// This peer has left the job in good order.
    Left(u32),
}

/// The operations under way, and the work left to do for them.
#[derive(Debug)]
pub(crate) struct Tags {
    pub(super) bits: Bits,
    /// Whether type signatures are compared.
    pub(super) checked: bool,
    pub(super) contexts: Contexts,
    pub(super) slots: Slots,
    pub(super) buffers: Buffers,
    /// The operation of each request. Only looked up, never iterated.
    pub(super) numbers: HashMap<u64, u32>,
    /// Sends that the provider had no room for, by peer, in order.
    pub(super) unsent: BTreeMap<u32, VecDeque<u32>>,
    /// Receives that the provider had no room for, in order.
    pub(super) unposted: BTreeMap<u64, u32>,
    /// Number of the next receive: receives are numbered in the order in which they were started.
    pub(super) next_turn: u64,
    /// Receives of taken messages that the provider had no room for.
    pub(super) unclaimed: VecDeque<u32>,
    /// How many receives the provider has, and how many it may have.
    pub(super) posted: usize,
    pub(super) most_posted: usize,
    pub(super) scan: Scan,
    /// How often the provider was given a receive, or a look that takes what it finds. When this
    /// changes, a message that an earlier look has shown may have been taken.
    pub(super) takings: u64,
    /// Takes the excess of messages that are too long for their buffers. Nothing reads it. It is at
    /// least [as long](crate::caps::sink) as the longest message that the provider sends at once.
    pub(super) sink: Box<[u8]>,
    /// Operations that are over, whose requests have not been completed yet.
    pub(super) ends: VecDeque<(Request, End)>,
    /// Messages for other ranks' devices, for example that a message of theirs was matched.
    pub(super) notes: VecDeque<Note>,
    /// How many messages this rank has sent.
    pub(super) turn: u64,
    /// Operations with numbers from here on cannot be synchronous sends, because marks hold only
    /// lower numbers.
    pub(super) most_awaited: u32,
    /// Messages that probes have taken, by handle.
    pub(super) handles: BTreeMap<u64, u32>,
    pub(super) last_handle: u64,
    /// Operations that a death has ended, and that the provider still has.
    pub(super) doomed: Vec<Doomed>,
    /// Receives of which it is being found out whose message they have matched.
    pub(super) inquiries: Vec<Inquiry>,
    pub(super) last_inquiry: u32,
    pub(super) failures_seen: u32,
    /// The provider does not answer looks any more, because this rank's endpoint is broken.
    pub(super) blind: bool,
    pub(super) counts: Counts,
}

/// Counters of messages and receives.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) injected: u64,
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) waited: u64,
}

impl Tags {
    /// Makes an empty state. `most_posted` is how many receives the provider may be given, `sink`
    /// the memory for the excess of messages.
    pub(crate) fn new(bits: Bits, checked: bool, most_posted: usize, sink: Box<[u8]>) -> Self {
        Self {
            bits,
            checked,
            contexts: Contexts::default(),
            slots: Slots::default(),
            buffers: Buffers::default(),
            numbers: HashMap::new(),
            unsent: BTreeMap::new(),
            unposted: BTreeMap::new(),
            next_turn: 0,
            counts: Counts::default(),
            unclaimed: VecDeque::new(),
            posted: 0,
            most_posted,
            scan: Scan::default(),
            takings: 0,
            sink,
            ends: VecDeque::new(),
            notes: VecDeque::new(),
            turn: 0,
            most_awaited: Mark::NUMBERS,
            handles: BTreeMap::new(),
            last_handle: 0,
            doomed: Vec::new(),
            inquiries: Vec::new(),
            last_inquiry: 0,
            failures_seen: 0,
            blind: false,
        }
    }

    /// Handles a completion of an operation.
    pub(crate) fn completed(&mut self, ofi: &mut Ofi, matched: &Matched) {
        let number = matched.index;
        let slot = self.slots.at(number);
        slot.under_way = false;
        match &mut slot.what {
            What::Send(_) => self.sent(ofi, matched),
            What::Receive(_) => self.received(ofi, matched),
            What::Look(_) => self.looked(ofi, matched),
            What::Lost(_) => self.release(number),
            What::Free | What::Taken(_) => debug_assert!(false, "nothing is under way"),
        }
    }

    /// Retries what the provider had no room for. Returns how much was done.
    pub(crate) fn advance(&mut self, ofi: &mut Ofi) -> usize {
        let mut done = 0;
        if ofi.adopted != self.failures_seen {
            self.notice_deaths(ofi);
            done += 1;
        }
        if !self.unsent.is_empty() {
            done += self.send_waiting(ofi);
        }
        if !self.unclaimed.is_empty() {
            done += self.claim_waiting(ofi);
        }
        if !self.unposted.is_empty() {
            done += self.post_waiting(ofi);
        }
        if !self.doomed.is_empty() {
            done += self.give_up(ofi);
        }
        if !self.inquiries.is_empty() {
            self.pursue(ofi);
        }
        done
    }

    /// Whether there is work to do that no message announces.
    pub(crate) fn waits(&self) -> bool {
        !self.unsent.is_empty()
            || !self.unclaimed.is_empty()
            || !self.unposted.is_empty()
            || !self.doomed.is_empty()
            || !self.inquiries.is_empty()
    }

    /// Ends an operation: frees its slot and queues its request for completion. (A message that was
    /// discarded has no request. The engine refuses to complete [`Request::NULL`], which costs the
    /// others nothing.)
    pub(super) fn finish(&mut self, number: u32, end: End) {
        let request = self.slots.at(number).request;
        self.clear(number);
        self.numbers.remove(&request.to_bits());
        self.ends.push_back((request, end));
    }

    /// Queues a request for completion, with the error that there is no memory or number for it.
    pub(super) fn end_exhausted(&mut self, request: Request) {
        let exhausted = Status::EMPTY.with_error(ErrorKind::Exhausted);
        self.ends.push_back((request, End::Over(exhausted)));
    }

    /// Frees an operation's slot and memory, which the provider has finished with.
    pub(super) fn clear(&mut self, number: u32) {
        if let Some(buffer) = self.slots.remove(number).into_bytes() {
            self.buffers.give_back(buffer);
        }
    }

    /// Ends an operation for the program but not for the provider, which keeps slot and memory.
    pub(super) fn lose(&mut self, number: u32, end: End) {
        let slot = self.slots.at(number);
        let request = slot.request;
        slot.what = std::mem::take(&mut slot.what).into_lost();
        self.numbers.remove(&request.to_bits());
        self.ends.push_back((request, end));
    }

    /// Handles the provider's release of an operation whose request is over. The number of a
    /// synchronous message is not used again as long as its receiver may report it.
    #[cold]
    pub(super) fn release(&mut self, number: u32) {
        let What::Lost(lost) = &mut self.slots.at(number).what else {
            return;
        };
        if let Some(bytes) = lost.bytes.take() {
            self.buffers.give_back(bytes);
        }
        if lost.awaits.is_none_or(|peer| self.contexts.is_dead(peer)) {
            self.clear(number);
        }
    }

    /// No report of a synchronous message whose request is over comes any more.
    #[cold]
    pub(super) fn stop_awaiting(&mut self, number: u32) {
        let slot = self.slots.at(number);
        let under_way = slot.under_way;
        if let What::Lost(lost) = &mut slot.what {
            lost.awaits = None;
            if !under_way {
                self.clear(number);
            }
        }
    }

    /// The communicators that the device was told of.
    pub(crate) fn contexts(&mut self) -> &mut Contexts {
        &mut self.contexts
    }

    /// The dead rank that a probe would wait for. That is `own`, this rank, if its endpoint shows
    /// no messages any more.
    pub(crate) fn doom_of_probe(&mut self, own: u32, from: &Pattern) -> Option<u32> {
        if self.blind {
            return Some(own);
        }
        self.contexts.doom(from)
    }

    /// A number that changes whenever a message may have been taken.
    pub(crate) fn takings(&self) -> u64 {
        self.takings
    }

    /// Whether a receive that matches such a message is posted.
    pub(crate) fn expects(&self, envelope: &Envelope) -> bool {
        let matches = |slot: &Slot| {
            matches!(&slot.what, What::Receive(receive)
                if receive.claimed.is_none() && receive.from.matches(envelope))
        };
        self.slots.iter().any(matches)
    }

    /// Whether a request is of an operation here.
    pub(crate) fn knows(&self, request: Request) -> bool {
        self.numbers.contains_key(&request.to_bits())
    }

    /// The next request to complete, and its end.
    pub(crate) fn next_end(&mut self) -> Option<(Request, End)> {
        self.ends.pop_front()
    }

    /// The next request to complete with a status.
    pub(crate) fn next_over(&mut self) -> Option<(Request, Status)> {
        match self.ends.front() {
            Some(&(request, End::Over(status))) => {
                self.ends.pop_front();
                Some((request, status))
            }
            _ => None,
        }
    }

    /// The next message for another rank's device.
    pub(crate) fn next_note(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    /// Makes sure that nothing is written to the program's buffers from now on. Returns the
    /// contexts of the receives that the provider has.
    pub(crate) fn abandon_all(&mut self) -> Vec<*mut c_void> {
        let mut receives = Vec::new();
        for number in self.slots.numbers() {
            let slot = self.slots.at(number);
            let receive = matches!(slot.what, What::Receive(_));
            if slot.under_way {
                slot.what = std::mem::take(&mut slot.what).into_lost();
                receives.extend(receive.then(|| self.slots.context(number)));
            }
        }
        receives
    }

    /// Whether the provider has any operation.
    pub(crate) fn is_under_way(&self) -> bool {
        self.slots.iter().any(|slot| slot.under_way)
    }

    /// Whether the provider has a message to a rank that lives, or a receive.
    pub(crate) fn is_under_way_with_the_living(&self) -> bool {
        self.slots.iter().any(|slot| match &slot.what {
            What::Send(Outgoing { peer, .. }) | What::Lost(Lost { to: Some(peer), .. }) => {
                slot.under_way && !self.contexts.is_dead(*peer)
            }
            _ => slot.under_way,
        })
    }

    /// Bytes of unused memory.
    pub(crate) fn memory(&self) -> usize {
        self.buffers.kept() + self.sink.len()
    }

    /// How many messages have been received.
    pub(crate) fn received_count(&self) -> u64 {
        self.counts.received
    }

    /// Counters, by name.
    pub(crate) fn counters(&self) -> [(&'static str, u64); 4] {
        let Counts {
            injected,
            sent,
            received,
            waited,
        } = self.counts;
        [
            ("tagged_injected", injected),
            ("tagged_sent", sent),
            ("tagged_received", received),
            ("tagged_waited", waited),
        ]
    }

    /// The operations under way, in words for users.
    pub(crate) fn describe(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for slot in self.slots.iter() {
            let place = if slot.under_way {
                "with the provider"
            } else {
                "waiting for room"
            };
            lines.push(match &slot.what {
                What::Send(send) => {
                    format!(
                        "send of {} bytes to world rank {}, {place}",
                        send.len, send.peer
                    )
                }
                What::Receive(receive) => format!("receive of {:?}, {place}", receive.from),
                What::Taken(arrival) => format!("taken message {:?}", arrival.envelope),
                What::Look(_) | What::Free | What::Lost(_) => continue,
            });
        }
        lines
    }
}
