//! The device's state beside the engine: MP_Lite, its wire, and the translation between them and
//! the device interface.

use std::collections::{BTreeMap, VecDeque};

use portolan_core::config::Settings;
use portolan_core::device::CommView;
use portolan_core::engine::Data;
use portolan_core::matching::Pattern;
use portolan_core::{ErrorKind, Group, ProcId, Request, Status};
use portolan_datatype::MsgRep;

use crate::machine::Time;
use crate::mp_lite::{Arrival, Buffer, Lite, OnShmem, Outcome, Placed, Wire};
use crate::shmem::Shmem;

/// A buffer of the program, in the form in which MP_Lite moves it.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) data: Data,
    /// How a send's data is to be packed.
    pub(crate) rep: MsgRep,
    /// Whether type signatures are compared.
    pub(crate) checked: bool,
}

impl Buffer for Message {
    fn len(&self) -> usize {
        self.data.len()
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        // SAFETY: the program leaves the buffer to the device until the operation is over, and
        // MP_Lite returns it then. The range lies in the buffer, and `bytes` does not overlap it.
        unsafe {
            self.data
                .read(at, bytes.as_mut_ptr(), bytes.len(), self.rep);
        }
    }

    fn write(&mut self, at: usize, bytes: &[u8], rep: u8) {
        let rep = MsgRep::from_code(rep).unwrap_or(MsgRep::Native);
        // SAFETY: as above.
        unsafe { self.data.write(at, bytes.as_ptr(), bytes.len(), rep) };
    }

    fn accepts(&self, arrival: &Arrival) -> bool {
        self.refusal(arrival).is_none()
    }

    fn is_contiguous(&self) -> bool {
        self.data.contiguous().is_some()
    }
}

impl Message {
    /// Why a message cannot be received into this buffer, if it cannot.
    fn refusal(&self, arrival: &Arrival) -> Option<ErrorKind> {
        let sent = usize::try_from(arrival.len).unwrap_or(usize::MAX);
        if self.checked && !self.data.accepts(arrival.signature, sent) {
            return Some(ErrorKind::TypeMismatch);
        }
        MsgRep::from_code(arrival.rep)
            .is_none()
            .then_some(ErrorKind::PeerMisbehaved)
    }

    /// The status of a receive of this message into this buffer.
    fn status(&self, source: u32, arrival: &Arrival) -> Status {
        let sent = arrival.len;
        let mut status = Status::received(source, arrival.tag, sent);
        if let Some(error) = self.refusal(arrival) {
            status.error = Some(error);
            status.bytes = 0;
            return status;
        }
        let rep = MsgRep::from_code(arrival.rep).unwrap_or(MsgRep::Native);
        status.rep = self.data.delivers(rep);
        let room = self.data.len() as u64;
        if sent > room {
            status.error = Some(ErrorKind::Truncated);
            status.bytes = room;
        }
        status
    }
}

/// The end of a tagged operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// The operation is over, with this status.
    Over(Status),
    /// This peer has failed.
    Failed(u32),
}

/// What the device knows about a communicator.
#[derive(Debug)]
struct Context {
    group: Group,
    contexts: u32,
    /// How many failures have been reported to wildcard receives in this context.
    acknowledged: usize,
    /// The communicator has been freed; operations under way may still name its ranks.
    freed: bool,
}

/// A tagged operation under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) number: Number,
    /// The program has freed its request.
    pub(crate) abandoned: bool,
}

/// The number that MP_Lite has given an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Send(u32),
    Receive(u32),
}

/// MP_Lite and its wire.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) wire: OnShmem,
    pub(crate) lite: Lite<Message>,
    pub(crate) checked: bool,
    /// The tagged operations under way, by the bits of their request.
    pub(crate) operations: BTreeMap<u64, Operation>,
    /// Operations that are over, but whose requests are not complete yet.
    pub(crate) ends: VecDeque<(Request, End)>,
    contexts: BTreeMap<u32, Context>,
    /// Peers that have failed, in the order in which this PE noticed it.
    failed: Vec<u32>,
    failures_seen: u32,
    /// The program polls: virtual time has to pass.
    pub(crate) polled: bool,
    /// Number of rounds of progress that heard something.
    pub(crate) heard: u32,
    /// The text last given to the machine about what this PE waits for.
    noted: String,
}

impl State {
    pub(crate) fn new(shmem: Shmem, settings: &Settings) -> Self {
        let wire = OnShmem::new(shmem, settings.t3e_arena());
        let mut lite: Lite<Message> = wire.lite();
        lite.limit_buffers(settings.unexpected_max() as u64);
        Self {
            wire,
            lite,
            checked: settings.check_signature(),
            operations: BTreeMap::new(),
            ends: VecDeque::new(),
            contexts: BTreeMap::new(),
            failed: Vec::new(),
            failures_seen: 0,
            polled: false,
            heard: 0,
            noted: String::new(),
        }
    }

    /// Makes progress. Afterwards [`ends`](Self::ends) holds the operations that are over.
    pub(crate) fn progress(&mut self) {
        if std::mem::take(&mut self.polled) {
            self.wire.poll();
        }
        if self.wire.has_news() {
            self.heard = self.heard.wrapping_add(1);
        }
        self.lite.progress(&mut self.wire);
        if self.wire.failures() != self.failures_seen {
            self.notice_failures();
        }
        self.collect();
    }

    /// Notes that an operation is under way, unless it is already over.
    pub(crate) fn started(&mut self, request: Request, number: Number) {
        let operation = Operation {
            number,
            abandoned: false,
        };
        self.operations.insert(request.to_bits(), operation);
        self.collect();
    }

    /// Notes that the program frees the request of an operation; the operation goes on.
    pub(crate) fn abandon(&mut self, request: Request) {
        if let Some(operation) = self.operations.get_mut(&request.to_bits()) {
            operation.abandoned = true;
        }
    }

    /// Collects the operations that MP_Lite has finished.
    pub(crate) fn collect(&mut self) {
        while let Some(done) = self.lite.next_done() {
            self.operations.remove(&done.token);
            let end = match done.outcome {
                Outcome::Sent => End::Over(Status::EMPTY),
                Outcome::Cancelled => End::Over(Status::cancelled()),
                Outcome::Failed(peer) => End::Failed(peer),
                Outcome::Received(arrival) => {
                    let source = self.local(arrival.context, arrival.peer);
                    End::Over(done.buffer.status(source, &arrival))
                }
            };
            // SAFETY: the token is the handle of this device's own request.
            let request = unsafe { Request::from_bits(done.token) };
            self.ends.push_back((request, end));
        }
    }

    /// Sleeps until a peer has written, unless one has done so since `heard` was read; at most for
    /// `limit` of virtual time.
    pub(crate) fn sleep(&mut self, heard: u32, limit: Option<Time>) {
        if self.heard != heard || self.wire.has_news() {
            return;
        }
        let what = self.lite.describe().join("; ");
        let what = (what != self.noted).then(|| {
            self.noted.clone_from(&what);
            what
        });
        let deadline = limit.map_or(Time::NEVER, |limit| self.wire.clock() + limit);
        // A stopped machine is noticed as the failure of all peers.
        let _ = self.wire.sleep(deadline, what);
    }

    // ---- Ranks ---------------------------------------------------------------------------------

    /// Remembers a communicator.
    pub(crate) fn add_context(&mut self, comm: &CommView) {
        let context = Context {
            group: comm.group.clone(),
            contexts: comm.contexts.max(1),
            acknowledged: 0,
            freed: false,
        };
        let end = comm.context.saturating_add(context.contexts);
        let apart = |first: u32, known: &Context| {
            end <= first || first.saturating_add(known.contexts) <= comm.context
        };
        self.contexts
            .retain(|&first, known| !known.freed || apart(first, known));
        self.contexts.insert(comm.context, context);
    }

    /// Forgets a communicator: at once if nothing is under way, otherwise together with a later
    /// one.
    pub(crate) fn remove_context(&mut self, first: u32) {
        if let Some(known) = self.contexts.get_mut(&first) {
            known.freed = true;
            self.forget_contexts();
        }
    }

    fn forget_contexts(&mut self) {
        if self.operations.is_empty() {
            self.contexts.retain(|_, known| !known.freed);
        }
    }

    fn context(&self, context: u32) -> Option<&Context> {
        let (first, known) = self.contexts.range(..=context).next_back()?;
        (context - first < known.contexts).then_some(known)
    }

    /// The PE of a local rank in a context. If the context belongs to no known communicator, local
    /// ranks are PEs.
    fn process(&self, context: u32, local: u32) -> Option<u32> {
        match self.context(context) {
            Some(known) => known.group.process(local).map(ProcId::index),
            None => Some(local),
        }
    }

    /// The local rank of a PE in a context.
    pub(crate) fn local(&self, context: u32, pe: u32) -> u32 {
        let known = self.context(context);
        known
            .and_then(|known| known.group.rank_of(ProcId::new(pe)))
            .unwrap_or(pe)
    }

    /// Translates a pattern with local ranks into one with PEs.
    pub(crate) fn pattern(&self, from: &Pattern) -> Pattern {
        let source = from
            .source
            .map(|local| self.process(from.context, local).unwrap_or(local));
        Pattern { source, ..*from }
    }

    // ---- Failures ------------------------------------------------------------------------------

    fn notice_failures(&mut self) {
        self.failures_seen = self.wire.failures();
        let (me, size) = (self.wire.me(), self.wire.size());
        let outcast = self.wire.failure_of(me).is_some();
        for pe in 0..size {
            if !self.failed.contains(&pe) && (outcast || self.wire.failure_of(pe).is_some()) {
                self.fail(pe);
            }
        }
    }

    fn fail(&mut self, pe: u32) {
        self.failed.push(pe);
        let told = self.failed.len();
        let mut wildcards = Vec::new();
        let contexts = &self.contexts;
        // Every operation inside a collective operation with the dead PE ends, whichever PE it
        // waits for.
        let collective = |context| {
            let known = contexts.range(..=context).next_back();
            let inside =
                |first, known: &Context| context > first && context - first < known.contexts;
            known.is_some_and(|(&first, known)| inside(first, known))
                && is_member(contexts, context, pe)
        };
        self.lite.fail_contexts(&mut self.wire, pe, collective);
        self.lite.fail_peer(&mut self.wire, pe, |context| {
            let doomed = is_member(contexts, context, pe);
            if doomed {
                wildcards.push(context);
            }
            doomed
        });
        for context in wildcards {
            self.acknowledge(context, told);
        }
    }

    fn acknowledge(&mut self, context: u32, told: usize) {
        if let Some((first, known)) = self.contexts.range_mut(..=context).next_back()
            && context - first < known.contexts
        {
            known.acknowledged = told;
        }
    }

    pub(crate) fn has_failed(&self, pe: u32) -> bool {
        self.failed.contains(&pe)
    }

    /// A dead member of the communicator that uses this context for collective operations.
    pub(crate) fn failure_in(&self, context: u32) -> Option<u32> {
        let (&first, known) = self.contexts.range(..=context).next_back()?;
        if context == first || context - first >= known.contexts {
            return None;
        }
        let member = |&pe: &u32| known.group.rank_of(ProcId::new(pe)).is_some();
        self.failed.iter().copied().find(member)
    }

    /// The failed peer because of which a waiting receive has to fail, if there is one. Wildcard
    /// receives are told of each failure once.
    pub(crate) fn failure_for(&mut self, pattern: &Pattern) -> Option<u32> {
        if let Some(dead) = self.failure_in(pattern.context) {
            return Some(dead);
        }
        if let Some(pe) = pattern.source {
            return self.has_failed(pe).then_some(pe);
        }
        let told = self
            .context(pattern.context)
            .map_or(0, |known| known.acknowledged);
        let untold = self.failed.iter().skip(told).copied();
        let pe = untold
            .into_iter()
            .find(|&pe| is_member(&self.contexts, pattern.context, pe))?;
        let all = self.failed.len();
        self.acknowledge(pattern.context, all);
        Some(pe)
    }
}

/// Whether a PE belongs to the communicator of a context. If there is none, every PE does.
fn is_member(contexts: &BTreeMap<u32, Context>, context: u32, pe: u32) -> bool {
    let known = contexts.range(..=context).next_back();
    let known = known.filter(|(first, known)| context - **first < known.contexts);
    known.is_none_or(|(_, known)| known.group.rank_of(ProcId::new(pe)).is_some())
}
