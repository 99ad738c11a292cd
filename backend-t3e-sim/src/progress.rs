//! Progress: the engine below the device polls here, and operations that MP_Lite has finished
//! complete their requests here. The engine's own packets travel as MP_Lite's buffered messages do.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portolan_core::ProcId;
use portolan_core::device::{Hook, Port, Turn};
use portolan_core::transport::{
    Bell, Header, Limits, Payload, Sent, Sink, Transport, TransportCaps,
};

use crate::caps;
use crate::device::{End, State};
use crate::machine::Time;

/// The state that the device, its engine and its bell share. One thread uses all three. The lock
/// exists because the engine's interfaces must be `Send`; no thread ever waits for it.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<Mutex<State>>);

impl Shared {
    pub(crate) fn new(state: State) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Packets between the engines of two PEs.
#[derive(Debug)]
pub(crate) struct Packets {
    pub(crate) shared: Shared,
    pub(crate) me: u32,
    pub(crate) size: u32,
    pub(crate) processes: bool,
}

/// Bytes of the header in front of a packet.
const HEADER: usize = size_of::<Header>();

fn pack(header: &Header, bytes: &mut [u8]) {
    let words = [
        header.context,
        header.source,
        header.tag,
        header.signature,
        header.cookie,
    ];
    bytes[..4].copy_from_slice(&[header.kind, header.flags, header.rep, header.channel]);
    for (place, word) in bytes[4..HEADER].chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

fn unpack(bytes: &[u8]) -> Header {
    let word = |n: usize| {
        let word = &bytes[4 + 4 * n..8 + 4 * n];
        u32::from_le_bytes(word.try_into().expect("4 bytes"))
    };
    Header {
        kind: bytes[0],
        flags: bytes[1],
        rep: bytes[2],
        channel: bytes[3],
        context: word(0),
        source: word(1),
        tag: word(2),
        signature: word(3),
        cookie: word(4),
    }
}

impl Packets {
    fn send(&self, peer: u32, header: &Header, len: usize, fill: impl FnOnce(*mut u8)) -> Sent {
        let mut state = self.shared.lock();
        if state.has_failed(peer) {
            return Sent::Gone;
        }
        let State { lite, wire, .. } = &mut *state;
        let sent = lite.send_packet(wire, peer, HEADER + len, |bytes| {
            pack(header, bytes);
            fill(bytes[HEADER..].as_mut_ptr());
        });
        if sent { Sent::Done } else { Sent::Full }
    }
}

// SAFETY: packets lie in the emulated machine's memory, which lives as long as the device; no
// reference outlives a call.
unsafe impl Transport for Packets {
    fn name(&self) -> &'static str {
        "t3e-sim"
    }

    fn caps(&self) -> TransportCaps {
        caps::transport(self.processes)
    }

    fn limits(&self) -> Limits {
        caps::limits()
    }

    fn rank(&self) -> u32 {
        self.me
    }

    fn size(&self) -> u32 {
        self.size
    }

    /// Every PE is a node of the torus, with memory of its own.
    fn node_of(&self, peer: u32) -> u32 {
        peer
    }

    fn node_name(&self) -> String {
        format!("t3e-pe{}", self.me)
    }

    unsafe fn send_short(
        &mut self,
        peer: u32,
        header: &Header,
        data: *const u8,
        len: usize,
    ) -> Sent {
        // SAFETY: the caller vouches for `len` bytes at `data`; `send` has room for as many.
        self.send(peer, header, len, |target| unsafe {
            if len > 0 {
                std::ptr::copy_nonoverlapping(data, target, len);
            }
        })
    }

    unsafe fn send_bulk<F: FnOnce(*mut u8)>(
        &mut self,
        peer: u32,
        header: &Header,
        len: usize,
        fill: F,
    ) -> Sent {
        self.send(peer, header, len, fill)
    }

    fn poll<S: Sink>(&mut self, sink: &mut S) -> usize {
        self.shared.lock().progress();
        let mut delivered = 0;
        loop {
            let next = self.shared.lock().lite.next_packet();
            if next.is_none_or(|peer| !sink.accepts(peer)) {
                return delivered;
            }
            let packet = {
                let mut state = self.shared.lock();
                let State { lite, wire, .. } = &mut *state;
                lite.receive_packet(wire)
            };
            // The lock is released while the sink runs, because handlers send.
            if let Some((peer, bytes)) = packet
                && bytes.len() >= HEADER
            {
                sink.packet(peer, &unpack(&bytes), Payload::from_slice(&bytes[HEADER..]));
                delivered += 1;
            }
        }
    }

    fn bell(&self) -> Arc<dyn Bell> {
        Arc::new(Sleeper(self.shared.clone()))
    }

    fn arm(&mut self) {}

    fn disarm(&mut self) {}

    fn failures(&self) -> u32 {
        self.shared.lock().wire.failures()
    }

    fn failure_of(&self, peer: u32) -> Option<String> {
        self.shared.lock().wire.failure_of(peer)
    }

    fn declare_failed(&mut self, peer: u32, why: &str) {
        self.shared.lock().wire.declare_failed(peer, why);
    }

    fn memory_used(&self) -> u64 {
        self.shared.lock().lite.memory()
    }

    fn describe(&self) -> Vec<(String, String)> {
        let state = self.shared.lock();
        let machine = state.wire.describe();
        vec![("machine".to_owned(), machine)]
    }
}

/// Sleeping in virtual time.
#[derive(Debug)]
struct Sleeper(Shared);

impl Bell for Sleeper {
    fn seen(&self) -> u32 {
        self.0.lock().heard
    }

    fn sleep(&self, seen: u32, limit: Option<Duration>) {
        let limit = limit.map(|limit| Time::from_secs(limit.as_secs_f64()));
        self.0.lock().sleep(seen, limit);
    }

    fn ring(&self) {
        let mut state = self.0.lock();
        state.heard = state.heard.wrapping_add(1);
    }
}

/// The hook that completes, inside the engine's progress, the requests of tagged operations that
/// are over.
pub(crate) fn completions(shared: Shared) -> Hook {
    Box::new(move |port| {
        if finish(&shared, port) {
            Turn::Busy
        } else {
            Turn::Idle
        }
    })
}

/// Completes the requests of tagged operations that are over. Returns whether there were any.
pub(crate) fn finish(shared: &Shared, port: &mut dyn Port) -> bool {
    let mut done = false;
    loop {
        // The lock is released while requests complete, because the completions attached to them
        // run.
        let Some((request, end)) = shared.lock().ends.pop_front() else {
            return done;
        };
        done = true;
        let outcome = match end {
            End::Over(status) => port.complete(request, status),
            End::Failed(peer) => port.fail(request, ProcId::new(peer)),
        };
        debug_assert!(outcome.is_ok(), "{outcome:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_packets_survive() {
        let header = Header {
            kind: 7,
            flags: 1,
            rep: 2,
            channel: 3,
            context: 4,
            source: 5,
            tag: u32::MAX,
            signature: 6,
            cookie: 7,
        };
        let mut bytes = [0; HEADER];
        pack(&header, &mut bytes);
        assert_eq!(unpack(&bytes), header);
    }
}
