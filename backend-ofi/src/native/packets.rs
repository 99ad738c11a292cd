//! The transport below the device's engine: the same endpoint, whose polls also bring completions
//! of tagged operations.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use libfabric_sys::fi_cancel;
use portolan_core::device::{HandlerId, Hook, Port, Turn};
use portolan_core::engine::Data;
use portolan_core::error::LEFT;
use portolan_core::matching::{Envelope, Pattern};
use portolan_core::transport::{
    Bell, Exposure, Header, Limits, Pulled, Pulls, Sent, Sink, Transport, TransportCaps,
};
use portolan_core::{Error, ErrorKind, ProcId, Request, Result, SendArgs};

use super::bits::Bits;
use super::inquiries::Note;
use super::tags::{End, Tags};
use crate::ofi::{FAREWELL, FAREWELL_FROM_THE_DEAD, Nobody, Ofi};

/// Handler of the messages which say that a synchronous send was matched: the last id of all,
/// outside every crate's range.
pub(super) const MATCHED: HandlerId = HandlerId(u32::MAX);

/// What a handler that runs while the endpoint is being polled wants to be done.
pub(super) enum Wish {
    Send(Request, SendArgs, Data),
    Receive(Request, Pattern, Data),
    Cancel(Request),
    /// A message from a peer's device.
    Hear(Note),
}

/// The endpoint, and the operations matched on it. The fields are dropped in order: memory that the
/// provider may still use goes after the endpoint.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) ofi: Ofi,
    pub(super) tags: Tags,
}

/// What the device and its engine share. A thread that needs both locks takes the engine's first.
pub(super) struct Shared {
    core: Mutex<Core>,
    /// The endpoint is being polled, by a thread that holds the engine's lock and has locked the
    /// core.
    polling: AtomicBool,
    wishes: Mutex<Vec<Wish>>,
    bits: Bits,
    rank: u32,
}

impl Shared {
    pub(super) fn new(ofi: Ofi, tags: Tags) -> Arc<Self> {
        Arc::new(Self {
            bits: tags.bits,
            rank: ofi.rank,
            core: Mutex::new(Core { ofi, tags }),
            polling: AtomicBool::new(false),
            wishes: Mutex::default(),
        })
    }

    /// Locks the endpoint. Handlers and hooks must not: they [`ask`](Self::ask).
    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what a handler or a hook wants: at once, or right after the poll within which it runs.
    pub(super) fn ask(&self, wish: Wish) {
        // Relaxed: only a thread that holds the engine's lock, as the caller does, writes it.
        if self.polling.load(Ordering::Relaxed) {
            let mut wishes = self.wishes.lock().unwrap_or_else(PoisonError::into_inner);
            wishes.push(wish);
        } else {
            self.lock().grant(wish);
        }
    }

    /// Returns an error if a message with this envelope cannot be given a tag.
    pub(super) fn check_send(&self, args: &SendArgs) -> Result<()> {
        if self.bits.hold(&args.envelope) {
            return Ok(());
        }
        Err(self.no_tag(&args.envelope))
    }

    /// Returns an error if no tag can express what a receive or a probe asks for.
    pub(super) fn check_pattern(&self, from: &Pattern) -> Result<()> {
        let envelope = Envelope {
            context: from.context,
            source: from.source.unwrap_or(0),
            tag: from.tag.unwrap_or(0),
        };
        if self.bits.hold(&envelope) {
            return Ok(());
        }
        Err(self.no_tag(&envelope))
    }

    #[cold]
    fn no_tag(&self, envelope: &Envelope) -> Error {
        let Envelope {
            context,
            source,
            tag,
        } = envelope;
        let what = format!(
            "context {context}, source rank {source} and tag {tag} do not fit the tags of the provider"
        );
        let (context, tag) = (self.bits.max_context_id(), self.bits.tag_ub());
        let remedy = format!(
            "use contexts to {context} (MAX_CONTEXT_ID), ranks of the job and tags to {tag} (TAG_UB), or \
             PORTOLAN_MATCH=software"
        );
        Error::new(ErrorKind::InvalidArgument, what)
            .remedy(&remedy)
            .on_rank(self.rank)
    }

    fn poll<S: Sink>(&self, sink: &mut S) -> usize {
        let mut core = self.lock();
        // Relaxed: see `ask`.
        self.polling.store(true, Ordering::Relaxed);
        let delivered = core.ofi.poll(sink);
        self.polling.store(false, Ordering::Relaxed);
        let mut done = core.collect();
        let wishes = {
            let mut wishes = self.wishes.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *wishes)
        };
        done += wishes.len();
        for wish in wishes {
            core.grant(wish);
        }
        let Core { ofi, tags } = &mut *core;
        done += tags.advance(ofi);
        if ofi.listens() && tags.waits() {
            ofi.bell.set_brief(true);
        }
        delivered + done
    }
}

impl Core {
    /// Takes over the completions of the last poll. Returns how many there were.
    pub(super) fn collect(&mut self) -> usize {
        let Self { ofi, tags } = self;
        if ofi.tagged.is_empty() {
            return 0;
        }
        let received = tags.received_count();
        let mut news = std::mem::take(&mut ofi.tagged);
        for matched in &news {
            tags.completed(ofi, matched);
        }
        if tags.received_count() != received {
            // More messages from the dead may follow.
            ofi.silence.0 = 0;
        }
        let count = news.len();
        news.clear();
        ofi.tagged = news;
        count
    }

    pub(super) fn grant(&mut self, wish: Wish) {
        let Self { ofi, tags } = self;
        match wish {
            Wish::Send(request, args, data) => {
                // SAFETY: the caller of the port has promised the buffer.
                let started = unsafe { tags.start_send(ofi, request, &args, data) };
                if started.is_err() {
                    tags.end_exhausted(request);
                }
            }
            Wish::Receive(request, from, data) => {
                // SAFETY: as above.
                let started = unsafe { tags.start_receive(ofi, request, &from, data) };
                if started.is_err() {
                    tags.end_exhausted(request);
                }
            }
            Wish::Cancel(request) => tags.cancel(ofi, request),
            Wish::Hear(note) => tags.hear(&note),
        }
    }
}

impl Drop for Core {
    /// Lets messages leave and takes receives back. Operations that the provider has not released
    /// by then end with the endpoint, and so does their memory.
    fn drop(&mut self) {
        let start = Instant::now();
        let Self { ofi, tags } = self;
        for context in tags.abandon_all() {
            // SAFETY: an open endpoint, the context of a receive under way.
            unsafe { fi_cancel(ofi.link.ep.get(), context) };
        }
        while self.tags.is_under_way() && start.elapsed() < FAREWELL {
            // Messages to ranks that are dead or have left stay under way. (A death may also keep
            // those from going that are for others.)
            let lost = self.ofi.shared.deaths.count() != 0;
            let gone = lost || !self.tags.is_under_way_with_the_living();
            if gone && start.elapsed() > FAREWELL_FROM_THE_DEAD {
                break;
            }
            self.ofi.poll(&mut Nobody);
            self.collect();
        }
        self.send_last_packets(start);
        if self.tags.is_under_way() {
            let rank = self.ofi.rank;
            portolan_core::log!(
                WARN,
                rank,
                "left although the provider has not let go of messages"
            );
            let slots = std::mem::take(&mut self.tags.slots);
            let sink = std::mem::take(&mut self.tags.sink);
            *self.ofi.link.lent = Some(Box::new((slots, sink)));
        }
    }
}

/// The engine's packets, over the endpoint.
pub(super) struct Packets(pub(super) Arc<Shared>);

// SAFETY: as for the transport behind it, which does everything that touches memory.
unsafe impl Transport for Packets {
    fn name(&self) -> &'static str {
        self.0.lock().ofi.name()
    }

    /// Without remote operations: the engine announces in packets that a region is gone. Tagged
    /// messages are not ordered with packets, so a rank that learned of the end by a tagged message
    /// could still reach the region.
    fn caps(&self) -> TransportCaps {
        let caps = self.0.lock().ofi.caps();
        caps.difference(TransportCaps::REMOTE | TransportCaps::ATOMICS)
    }

    fn limits(&self) -> Limits {
        self.0.lock().ofi.limits()
    }

    fn rank(&self) -> u32 {
        self.0.lock().ofi.rank()
    }

    fn size(&self) -> u32 {
        self.0.lock().ofi.size()
    }

    fn node_of(&self, peer: u32) -> u32 {
        self.0.lock().ofi.node_of(peer)
    }

    fn node_name(&self) -> String {
        self.0.lock().ofi.node_name()
    }

    fn process_of(&self, peer: u32) -> Option<u32> {
        self.0.lock().ofi.process_of(peer)
    }

    unsafe fn send_short(
        &mut self,
        peer: u32,
        header: &Header,
        data: *const u8,
        len: usize,
    ) -> Sent {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.0.lock().ofi.send_short(peer, header, data, len) }
    }

    unsafe fn send_bulk<F: FnOnce(*mut u8)>(
        &mut self,
        peer: u32,
        header: &Header,
        len: usize,
        fill: F,
    ) -> Sent {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.0.lock().ofi.send_bulk(peer, header, len, fill) }
    }

    unsafe fn send_bulk_from(
        &mut self,
        peer: u32,
        header: &Header,
        data: *const u8,
        len: usize,
    ) -> Sent {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.0.lock().ofi.send_bulk_from(peer, header, data, len) }
    }

    fn poll<S: Sink>(&mut self, sink: &mut S) -> usize {
        self.0.poll(sink)
    }

    fn bell(&self) -> Arc<dyn Bell> {
        self.0.lock().ofi.bell()
    }

    fn arm(&mut self) {
        self.0.lock().ofi.arm();
    }

    fn disarm(&mut self) {
        self.0.lock().ofi.disarm();
    }

    fn failures(&self) -> u32 {
        self.0.lock().ofi.failures()
    }

    fn failure_of(&self, peer: u32) -> Option<String> {
        self.0.lock().ofi.failure_of(peer)
    }

    fn has_left(&mut self, peer: u32) -> bool {
        self.0.lock().ofi.has_left(peer)
    }

    fn declare_failed(&mut self, peer: u32, why: &str) {
        self.0.lock().ofi.declare_failed(peer, why);
    }

    unsafe fn expose(&mut self, data: *const u8, len: usize) -> Option<Exposure> {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.0.lock().ofi.expose(data, len) }
    }

    fn withdraw(&mut self, exposure: &Exposure) {
        self.0.lock().ofi.withdraw(exposure);
    }

    fn end_silently(&mut self) {
        self.0.lock().ofi.end_silently();
    }

    fn pulls(&self, peer: u32, exposure: &Exposure, len: usize, inside: bool) -> Pulls {
        self.0.lock().ofi.pulls(peer, exposure, len, inside)
    }

    unsafe fn pull(
        &mut self,
        peer: u32,
        exposure: &Exposure,
        offset: u64,
        target: *mut u8,
        len: usize,
    ) -> Pulled {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.0.lock().ofi.pull(peer, exposure, offset, target, len) }
    }

    fn memory_used(&self) -> u64 {
        let core = self.0.lock();
        core.ofi.memory_used() + core.tags.memory() as u64
    }

    fn describe(&self) -> Vec<(String, String)> {
        let mut facts = self.0.lock().ofi.describe();
        facts.push(("matching".to_owned(), "by the provider".to_owned()));
        facts
    }
}

/// Completes the requests of tagged operations that are over, within the engine's progress.
pub(super) fn completions(shared: Arc<Shared>) -> Hook {
    Box::new(move |port| {
        if finish(&shared, port) {
            Turn::Busy
        } else {
            Turn::Idle
        }
    })
}

/// Completes the requests of tagged operations that are over, and tells senders that wait for it
/// that their messages were matched. Returns whether there were any.
pub(super) fn finish(shared: &Shared, port: &mut dyn Port) -> bool {
    let mut done = false;
    if shared.polling.load(Ordering::Relaxed) {
        return done; // Within a handler: the hook runs right after the poll.
    }
    loop {
        // The lock is released while requests complete, because this runs the completions attached
        // to them.
        let (end, note) = {
            let mut core = shared.lock();
            (core.tags.next_end(), core.tags.next_note())
        };
        if let Some(note) = &note {
            let (peer, payload) = (ProcId::new(note.peer), note.payload());
            let outcome = port.send(peer, note.handler, note.args, &payload);
            // A peer that has died does not wait any more.
            drop(outcome);
        }
        let outcome = match end {
            None if note.is_none() => return done,
            None => Ok(()),
            Some((request, End::Over(status))) => port.complete(request, status),
            Some((request, End::Failed(peer))) => port.fail(request, ProcId::new(peer)),
            Some((request, End::Left(peer))) => {
                let error = Error::peer_failed(peer, LEFT).on_rank(port.me().index());
                port.fail_with(request, error)
            }
        };
        let discarded = || end.is_some_and(|(request, _)| request.is_null());
        debug_assert!(outcome.is_ok() || discarded(), "{outcome:?}");
        done = true;
    }
}
