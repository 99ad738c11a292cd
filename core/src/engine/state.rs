//! The engine's state behind its lock: the transport, and the protocol state that a poll may touch
//! while the transport is borrowed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::buffer::MemoryKind;
use crate::config::{Origin, Settings};
use crate::engine::deaths::beside::Beside;
use crate::engine::entry::Table;
use crate::engine::long::flows::Flows;
use crate::engine::long::late::Late;
use crate::engine::long::pieces::{Arrivals, Lengths};
use crate::engine::long::transfer::{Push, TURN};
use crate::engine::long::unasked::Unasked;
use crate::engine::long::ways::Ways;
use crate::engine::one_sided::regions::Regions;
use crate::engine::one_sided::remote::Remotes;
use crate::engine::shared::Shared;
use crate::engine::short::bundle::{self, Bundle};
use crate::engine::short::in_hand::InHand;
use crate::engine::short::outgoing::{Peer, Stream};
use crate::engine::short::unexpected::{Arrived, OfferBody, Taken};
use crate::engine::upper::active::ActiveState;
use crate::engine::upper::hooks::Hooks;
use crate::group::Group;
use crate::matching::{PostedQueue, UnexpectedQueue};
use crate::observe::{Counters, Event, Tracer};
use crate::transport::{Exposure, Header, Limits, Transport, TransportCaps};

/// A channel's state. The field order matters: the transport, through which peers reach memory
/// without this rank's help, is dropped before the memory that they may reach.
pub(super) struct State<T: Transport> {
    pub(super) transport: T,
    pub(super) proto: Proto,
}

impl<T: Transport> Drop for State<T> {
    /// Closes the transport first: peers may still be reading the buffers of operations under way
    /// and of requests that the program has freed.
    fn drop(&mut self) {
        self.transport.close();
    }
}

/// Everything in a channel except its transport.
pub(super) struct Proto {
    pub(super) me: u32,
    pub(super) limits: Limits,
    /// The lengths at which messages change their form, derived from `limits`.
    pub(super) lengths: Lengths,
    pub(super) caps: TransportCaps,
    pub(super) check_signature: bool,
    pub(super) shared: Arc<Shared>,

    pub(super) posted: PostedQueue<u32>,
    pub(super) unexpected: UnexpectedQueue<Arrived>,
    pub(super) taken: Taken,
    pub(super) hand: InHand,
    /// Heap bytes held by stored messages, and the limit above which peers are told to hold.
    pub(super) stored_bytes: usize,
    pub(super) stored_max: usize,
    /// Peers that were told to hold.
    pub(super) holding: Vec<u32>,

    pub(super) table: Table,
    pub(super) peers: Vec<Peer>,
    /// Whether any of the following needs the slow part of a progress step.
    pub(super) work: bool,
    /// An offer that has arrived. The poll pauses until the offer is matched, which needs the
    /// transport.
    pub(super) deferred: Option<(u32, Header, OfferBody)>,
    /// Whether packets wait behind that offer.
    pub(super) held_up: bool,
    /// Peers with packets waiting to leave.
    pub(super) waiting_peers: Vec<u32>,
    pub(super) streams: VecDeque<Stream>,
    /// Peers that had no room for a stream during the current run of `flush_streams`.
    pub(super) full_peers: Vec<u32>,
    /// The ways from an accelerator to a peer on which streams have advanced during that run, once
    /// for each stream.
    pub(super) loaded_ways: Vec<(u32, (MemoryKind, i32))>,
    /// Receives whose data is being pulled.
    pub(super) pulls: VecDeque<u32>,
    /// Whether this progress step has already copied for one of these receives; the others then
    /// wait.
    pub(super) has_pulled: bool,
    /// Bytes pulled in all after which calls that begin receives leave the copying to the next
    /// step.
    pub(super) pulls_until: u64,
    /// Whether this progress step has copied for a receive whose sender is absent.
    pub(super) has_pulled_absent: bool,
    /// Halves of messages that this rank writes into the receivers' buffers.
    pub(super) pushes: VecDeque<Push>,
    /// Exposed buffers that their pushers may no longer use; withdrawn once the transport is
    /// available.
    pub(super) withdrawals: Vec<Exposure>,
    pub(super) ways: Ways,
    /// Receivers to which messages of middle length are sent without an offer.
    pub(super) unasked: Unasked,
    /// Messages that arrive in pieces and are not complete yet.
    pub(super) arrivals: Arrivals,
    /// Receives whose senders are absent. Their data is pulled unless the senders come back first.
    pub(super) late: Late,
    /// Receives whose transfers waited for others and may now begin.
    pub(super) begins: VecDeque<u32>,
    pub(super) scratch: Vec<u8>,
    /// Messages of this length or more never go into a bundle.
    pub(super) bundled_below: usize,
    pub(super) bundle: Bundle,
    pub(super) flows: Flows,

    pub(super) active: ActiveState,
    pub(super) hooks: Hooks,
    pub(super) regions: Regions,
    pub(super) remotes: Remotes,
    pub(super) contexts: BTreeMap<u32, Context>,
    pub(super) failures_seen: u32,
    /// World ranks held to be dead, and those that left while something was still wanted of them.
    pub(super) failed: Vec<u32>,
    /// World ranks that are dead or accept no more packets, each with the number of polls since the
    /// transport gave the reason. Possibly only this rank knows of it; some may have left the job.
    /// What they had sent may still be arriving.
    pub(super) gone: Vec<(u32, u32)>,
    /// Tells of the operations of a device that contains this engine.
    pub(super) beside: Option<Box<dyn Beside>>,
    pub(super) finalized: bool,
    /// A waiting call's own packet found no room and is in no queue.
    pub(super) found_no_room: bool,
    /// The device was ended, or a peer has died: receives need extra checks.
    pub(super) trouble: bool,
    /// Messages sent since the last poll.
    pub(super) unpolled: u32,
    /// Number of send buffers that peers may read.
    pub(super) exposed: u32,

    pub(super) counters: Counters,
    /// Whether either of the next two is set.
    pub(super) traced: bool,
    pub(super) tracer: Option<Tracer>,
    pub(super) debug: Option<Tracer>,
}

/// What the engine remembers of a communicator.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) group: Group,
    pub(super) contexts: u32,
    /// How many failures the wildcard receives in this context have been told of.
    pub(super) acknowledged: usize,
    /// The communicator has been freed. Operations still pending on it name its ranks until the
    /// context ids are used again.
    pub(super) freed: bool,
}

impl<T: Transport> State<T> {
    pub(super) fn new(transport: T, settings: &Settings, shared: Arc<Shared>) -> Self {
        let mut limits = transport.limits();
        limits.eager = limits.eager.min(limits.bulk);
        limits.bundle = limits.bundle.min(limits.bulk);
        limits.grows = limits.grows.min(limits.bulk);
        // Unless the user has set a value, the transport's own is the best one.
        if settings.origin("EAGER_MAX") != Some(Origin::Default) {
            limits.eager = limits.eager.min(settings.eager_max());
        }
        let size = transport.size() as usize;
        let proto = Proto {
            me: transport.rank(),
            limits,
            caps: transport.caps(),
            lengths: Lengths::new(&limits, transport.caps()),
            check_signature: settings.check_signature(),
            posted: PostedQueue::new(),
            unexpected: UnexpectedQueue::new(),
            taken: Taken::default(),
            hand: InHand::nothing(),
            stored_bytes: 0,
            stored_max: settings.unexpected_max(),
            holding: Vec::new(),
            table: Table::new(Arc::clone(&shared)),
            peers: (0..size).map(|_| Peer::default()).collect(),
            work: false,
            deferred: None,
            held_up: false,
            waiting_peers: Vec::new(),
            streams: VecDeque::new(),
            full_peers: Vec::new(),
            loaded_ways: Vec::new(),
            pulls: VecDeque::new(),
            has_pulled: false,
            pulls_until: TURN as u64,
            has_pulled_absent: false,
            pushes: VecDeque::new(),
            withdrawals: Vec::new(),
            ways: Ways::default(),
            unasked: Unasked::default(),
            arrivals: Arrivals::default(),
            late: Late::default(),
            begins: VecDeque::new(),
            scratch: Vec::new(),
            bundled_below: match settings.bundle() {
                true => bundle::end_of_lengths(&limits),
                false => 0,
            },
            bundle: Bundle::default(),
            flows: Flows::default(),
            active: ActiveState::default(),
            hooks: Hooks::default(),
            regions: Regions::default(),
            remotes: Remotes::default(),
            contexts: BTreeMap::new(),
            // Differs from the present value, so that the first poll also notices peers that died
            // before this rank had started.
            failures_seen: transport.failures().wrapping_sub(1),
            failed: Vec::new(),
            gone: Vec::new(),
            beside: None,
            finalized: false,
            found_no_room: false,
            trouble: false,
            unpolled: 0,
            exposed: 0,
            counters: Counters::default(),
            traced: false,
            tracer: None,
            debug: None,
            shared,
        };
        Self { transport, proto }
    }
}

impl Proto {
    /// Changes the length up to which messages travel with their envelope.
    pub(super) fn set_eager(&mut self, bytes: usize) {
        self.limits.eager = bytes.min(self.limits.bulk);
        self.lengths = Lengths::new(&self.limits, self.caps);
    }

    /// The world rank of a local rank in a context. Without a communicator from above, local ranks
    /// are world ranks ("a null communicator may be used", paper, section 7).
    pub(super) fn process_of(&self, context: u32, local: u32) -> Option<u32> {
        match self.context_of(context) {
            Some(known) => known.group.process(local).map(|process| process.index()),
            None => ((local as usize) < self.peers.len()).then_some(local),
        }
    }

    /// The communicator that a context id belongs to.
    pub(super) fn context_of(&self, context: u32) -> Option<&Context> {
        let (first, known) = self.contexts.range(..=context).next_back()?;
        (context - first < known.contexts).then_some(known)
    }

    /// Records an event, if tracing is on.
    #[inline]
    pub(super) fn trace(&mut self, name: &'static str, peer: u32, tag: u32, bytes: usize) {
        if self.traced {
            self.record(&Event {
                name,
                peer,
                tag,
                bytes: bytes as u64,
            });
        }
    }

    #[cold]
    #[inline(never)]
    fn record(&mut self, event: &Event) {
        let now = crate::engine::deaths::finish::clock();
        for tracer in [&mut self.tracer, &mut self.debug].into_iter().flatten() {
            tracer.record(now, event);
        }
    }

    /// What this rank waits for and what is in its queues, one line each.
    pub(super) fn describe(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .table
            .active()
            .filter_map(|(_, entry)| entry.describe())
            .collect();
        lines.push(format!(
            "unexpected messages: {} ({} bytes stored); posted receives: {}; request slots: {}",
            self.unexpected.len() + self.taken.len(),
            self.stored_bytes,
            self.posted.len(),
            self.table.capacity(),
        ));
        for (_, envelope, arrived) in self.unexpected.iter().take(8) {
            lines.push(format!(
                "unexpected: from rank {} (context {}, tag {}, {} bytes)",
                envelope.source,
                envelope.context,
                envelope.tag,
                arrived.bytes()
            ));
        }
        for peer in &self.waiting_peers {
            lines.push(format!("packets wait to leave to world rank {peer}"));
        }
        lines
    }

    /// Whether the slow part of a progress step has anything to do.
    pub(super) fn has_outgoing(&self) -> bool {
        self.waits_for_room() || self.has_copies()
    }

    /// Whether packets or streams are waiting to leave. Right after a progress step they can only
    /// be waiting for room or for a driver.
    fn waits_for_room(&self) -> bool {
        !self.waiting_peers.is_empty() || !self.streams.is_empty()
    }

    /// Whether an operation is under way that advances step by step.
    fn has_copies(&self) -> bool {
        !self.pulls.is_empty()
            || !self.pushes.is_empty()
            || !self.late.is_empty()
            || !self.begins.is_empty()
            || !self.flows.landing.is_empty()
            || self.remotes.has_work()
    }
}

impl<T: Transport> State<T> {
    /// Whether a rank that has called `arm` and found nothing to do is waiting for something that
    /// may come without ringing its bell.
    pub(super) fn waits_unannounced(&self) -> bool {
        let proto = &self.proto;
        let loads = || proto.streams.iter().any(|stream| stream.loader.is_some());
        let wants_room = proto.waits_for_room() || proto.found_no_room;
        // Only a poll finds out why a peer refused packets.
        !proto.gone.is_empty()
            || proto.has_copies()
            || (wants_room && (!self.transport.rings_for_room() || loads()))
    }
}
