//! The transport that asks a hook.

use std::sync::Arc;

use super::hook::{Arrival, Hook};
use crate::buffer::MemoryKind;
use crate::error::Result;
use crate::transport::{
    Begun, Bell, DirectMemory, Exposure, Header, Limits, Payload, Pulled, Pulls, Remote, Sent,
    Sink, Token, Transport, TransportCaps,
};

/// A transport with a [`Hook`] around it.
#[derive(Debug)]
pub struct Decorated<T, H> {
    inner: T,
    hook: H,
    /// The copy of the payload that the hook sees; kept to be reused.
    scratch: Vec<u8>,
    /// Whether the hook has refused a packet since the last `arm`: no bell rings when the hook
    /// would no longer refuse it.
    refused: bool,
    /// Whether the last poll held something back.
    holds_back: bool,
}

impl<T: Transport, H: Hook> Decorated<T, H> {
    /// `inner` under `hook`.
    pub fn new(inner: T, hook: H) -> Self {
        Self {
            inner,
            hook,
            scratch: Vec::new(),
            refused: false,
            holds_back: false,
        }
    }

    /// Asks the hook, then the transport, then tells the hook.
    fn send(
        &mut self,
        peer: u32,
        header: &Header,
        len: usize,
        hand_over: impl FnOnce(&mut T) -> Sent,
    ) -> Sent {
        if let Some(answer) = self.hook.sending(peer, header, len) {
            self.refused |= answer == Sent::Full;
            return answer;
        }
        let outcome = hand_over(&mut self.inner);
        self.hook.sent(peer, header, len, outcome);
        outcome
    }
}

/// The engine's sink with the hook in front of it.
struct Watched<'a, S, H> {
    sink: &'a mut S,
    hook: &'a mut H,
    scratch: &'a mut Vec<u8>,
}

impl<S: Sink, H: Hook> Sink for Watched<'_, S, H> {
    fn accepts(&mut self, peer: u32) -> bool {
        self.sink.accepts(peer) && self.hook.accepts(peer)
    }

    fn packet(&mut self, peer: u32, header: &Header, payload: Payload<'_>) {
        let (mut header, len) = (*header, payload.len());
        self.scratch.clear();
        if H::READS_PAYLOADS {
            self.scratch.append(&mut payload.to_vec());
        }
        let arrival = Arrival {
            peer,
            header: &mut header,
            payload: self.scratch,
            len,
        };
        self.hook.arrived(arrival);
        let payload = if H::READS_PAYLOADS {
            Payload::from_slice(self.scratch)
        } else {
            payload
        };
        self.sink.packet(peer, &header, payload);
    }

    fn finished(&mut self, id: u32, outcome: Option<u64>) {
        self.sink.finished(id, outcome);
    }
}

// SAFETY: every call that touches memory goes to the transport inside; a hook sees copies of
// headers, or holds packets back.
unsafe impl<T: Transport, H: Hook> Transport for Decorated<T, H> {
    unsafe fn send_short(
        &mut self,
        peer: u32,
        header: &Header,
        data: *const u8,
        len: usize,
    ) -> Sent {
        self.send(peer, header, len, |inner| {
            // SAFETY: the caller's promise is the one that is needed.
            unsafe { inner.send_short(peer, header, data, len) }
        })
    }

    unsafe fn send_bulk<F: FnOnce(*mut u8)>(
        &mut self,
        peer: u32,
        header: &Header,
        len: usize,
        fill: F,
    ) -> Sent {
        self.send(peer, header, len, |inner| {
            // SAFETY: the caller's promise is the one that is needed.
            unsafe { inner.send_bulk(peer, header, len, fill) }
        })
    }

    unsafe fn send_bulk_from(
        &mut self,
        peer: u32,
        header: &Header,
        data: *const u8,
        len: usize,
    ) -> Sent {
        self.send(peer, header, len, |inner| {
            // SAFETY: the caller's promise is the one that is needed.
            unsafe { inner.send_bulk_from(peer, header, data, len) }
        })
    }

    fn has_room(&mut self, peer: u32, len: usize, piece: usize) -> bool {
        self.inner.has_room(peer, len, piece)
    }

    fn poll<S: Sink>(&mut self, sink: &mut S) -> usize {
        if let Some((peer, why)) = self.hook.condemns() {
            self.inner.declare_failed(peer, &why);
        }
        let (hook, scratch) = (&mut self.hook, &mut self.scratch);
        let delivered = self.inner.poll(&mut Watched {
            sink,
            hook,
            scratch,
        });
        self.holds_back = self.hook.holds_back();
        if self.holds_back {
            // The bell rings before the sleep: `Bell` promises that the sleep then returns at once.
            self.inner.bell().ring();
        }
        delivered
    }

    // The following methods pass straight through.

    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn caps(&self) -> TransportCaps {
        self.inner.caps()
    }

    fn limits(&self) -> Limits {
        Limits {
            // A hook sees packets as a whole.
            grows: 0,
            ..self.inner.limits()
        }
    }

    fn rank(&self) -> u32 {
        self.inner.rank()
    }

    fn size(&self) -> u32 {
        self.inner.size()
    }

    fn node_of(&self, peer: u32) -> u32 {
        self.inner.node_of(peer)
    }

    fn node_name(&self) -> String {
        self.inner.node_name()
    }

    fn process_of(&self, peer: u32) -> Option<u32> {
        self.inner.process_of(peer)
    }

    fn bell(&self) -> Arc<dyn Bell> {
        self.inner.bell()
    }

    fn arm(&mut self) {
        self.refused = false;
        self.inner.arm();
    }

    fn rings_for_room(&self) -> bool {
        !self.refused && self.inner.rings_for_room()
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }

    fn set_present(&mut self, present: bool) {
        self.inner.set_present(present);
    }

    fn note_look(&mut self) {
        self.inner.note_look();
    }

    fn note_processor(&mut self, processor: u32) {
        self.inner.note_processor(processor);
    }

    fn processor_of(&self, peer: u32) -> Option<u32> {
        self.inner.processor_of(peer)
    }

    fn looks(&self, peer: u32) -> u32 {
        self.inner.looks(peer)
    }

    fn failures(&self) -> u32 {
        self.inner.failures()
    }

    fn failure_of(&self, peer: u32) -> Option<String> {
        self.inner.failure_of(peer)
    }

    fn has_left(&mut self, peer: u32) -> bool {
        // The packets held back may be the last that the peer sent.
        !self.holds_back && self.inner.has_left(peer)
    }

    fn declare_failed(&mut self, peer: u32, why: &str) {
        self.inner.declare_failed(peer, why);
    }

    unsafe fn expose(&mut self, data: *const u8, len: usize) -> Option<Exposure> {
        // SAFETY: the caller's promise is the one that is needed.
        unsafe { self.inner.expose(data, len) }
    }

    fn withdraw(&mut self, exposure: &Exposure) {
        self.inner.withdraw(exposure);
    }

    fn end_silently(&mut self) {
        self.inner.end_silently();
    }

    fn close(&mut self) {
        self.inner.close();
    }

    fn serves(&self, address: *const u8, memory: MemoryKind) -> bool {
        self.inner.serves(address, memory)
    }

    fn shares(&self, data: *const u8, len: usize) -> bool {
        self.inner.shares(data, len)
    }

    fn pulls(&self, peer: u32, exposure: &Exposure, len: usize, inside: bool) -> Pulls {
        self.inner.pulls(peer, exposure, len, inside)
    }

    unsafe fn expose_mut(&mut self, data: *mut u8, len: usize) -> Option<Exposure> {
        // SAFETY: the caller's promise is the one that is needed.
        unsafe { self.inner.expose_mut(data, len) }
    }

    unsafe fn push(
        &mut self,
        peer: u32,
        exposure: &Exposure,
        offset: u64,
        source: *const u8,
        len: usize,
    ) -> Pulled {
        if !self.hook.reaches(peer, len) {
            return Pulled::Stream;
        }
        // SAFETY: the caller's promise is the one that is needed.
        unsafe { self.inner.push(peer, exposure, offset, source, len) }
    }

    unsafe fn pull(
        &mut self,
        peer: u32,
        exposure: &Exposure,
        offset: u64,
        target: *mut u8,
        len: usize,
    ) -> Pulled {
        if !self.hook.reaches(peer, len) {
            return Pulled::Stream;
        }
        // SAFETY: the caller's promise is the one that is needed.
        unsafe { self.inner.pull(peer, exposure, offset, target, len) }
    }

    unsafe fn register(&mut self, data: *mut u8, len: usize, memory: MemoryKind) -> Option<Token> {
        // SAFETY: the caller's promise is the one that is needed.
        unsafe { self.inner.register(data, len, memory) }
    }

    fn deregister(&mut self, token: &Token) {
        self.inner.deregister(token);
    }

    unsafe fn begin_remote(
        &mut self,
        peer: u32,
        token: &Token,
        offset: u64,
        what: Remote,
        id: u32,
    ) -> Begun {
        // SAFETY: the caller's promise is the one that is needed.
        unsafe { self.inner.begin_remote(peer, token, offset, what, id) }
    }

    fn offer_open(&mut self) -> Option<u32> {
        self.inner.offer_open()
    }

    fn offer_take(&mut self, peer: u32, word: u32) -> bool {
        self.inner.offer_take(peer, word)
    }

    fn offer_cancel(&mut self, word: u32) -> bool {
        self.inner.offer_cancel(word)
    }

    fn offer_close(&mut self, word: u32) {
        self.inner.offer_close(word);
    }

    fn alloc(&mut self, len: usize) -> Result<DirectMemory> {
        self.inner.alloc(len)
    }

    unsafe fn free(&mut self, memory: DirectMemory) {
        // SAFETY: the caller's promise is the one that is needed.
        unsafe { self.inner.free(memory) };
    }

    fn map(&mut self, peer: u32, key: &[u8; 32]) -> Option<(*mut u8, usize)> {
        self.inner.map(peer, key)
    }

    fn nudge(&mut self, peer: u32) {
        self.inner.nudge(peer);
    }

    fn memory_used(&self) -> u64 {
        self.inner.memory_used()
    }

    fn describe(&self) -> Vec<(String, String)> {
        self.inner.describe()
    }
}
