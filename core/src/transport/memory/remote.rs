//! Remote operations: done at once, under the network's lock; the next poll reports their ends.

use std::collections::VecDeque;

use super::InMemory;
use super::network::Span;
use crate::transport::remote::apply;
use crate::transport::{Begun, Bell, Remote, Sink, Token, TransportCaps};

/// Operations that a rank may have under way: few, so that every engine sees a full network.
const UNDER_WAY: usize = 8;
/// Most bytes that one operation accepts, so that the engine has to cut longer ones.
const PIECE: usize = 64 << 10;

/// The ends of a rank's operations that have not been reported to it yet.
#[derive(Debug, Default)]
pub(super) struct Ends(VecDeque<(u32, Option<u64>)>);

impl Ends {
    /// Reports them, and returns how many there were.
    pub(super) fn tell<S: Sink>(&mut self, sink: &mut S) -> usize {
        let count = self.0.len();
        for (id, outcome) in self.0.drain(..) {
            sink.finished(id, outcome);
        }
        count
    }
}

impl InMemory {
    pub(super) fn register_span(&mut self, data: *mut u8, len: usize) -> Option<Token> {
        if !self.caps.contains(TransportCaps::REMOTE) {
            return None;
        }
        let mut state = self.network.state();
        let number = state.number();
        let span = Span {
            ptr: data,
            len,
            shared: false,
        };
        state.registered.insert((self.rank, number), span);
        Some(super::token(number))
    }

    /// # Safety
    /// As for `Transport::begin_remote`.
    pub(super) unsafe fn begin(
        &mut self,
        peer: u32,
        token: &Token,
        offset: u64,
        what: Remote,
        id: u32,
    ) -> Begun {
        let mut wanted = TransportCaps::REMOTE;
        wanted.set(TransportCaps::ATOMICS, what.is_atomic());
        if peer >= self.network.size || !self.caps.contains(wanted) {
            return Begun::Refused;
        }
        if self.ends.0.len() >= UNDER_WAY {
            return Begun::Full;
        }
        let state = self.network.state();
        if state.failed[peer as usize].is_some() {
            return Begun::Gone;
        }
        let len = what.len().min(PIECE);
        let span = state.registered.get(&(peer, super::number_of(token)));
        let place = span.and_then(|span| {
            let inside = offset.checked_add(len as u64)? <= span.len as u64;
            inside.then(|| span.ptr.cast_mut().wrapping_add(offset as usize))
        });
        let outcome = place.map(|place| {
            // SAFETY: the range lies in a span that is registered, because ending that takes the
            // lock which is held here; the caller promised the memory of this side. Origins at the
            // same place take turns, under the lock.
            unsafe {
                match what {
                    Remote::Put { source, .. } => std::ptr::copy(source, place, len),
                    Remote::Get { target, .. } => std::ptr::copy(place, target, len),
                    Remote::Atomic { width, op } => return apply(place, width, op),
                }
            }
            0
        });
        let asleep = state.armed[peer as usize];
        drop(state);
        if asleep && peer != self.rank {
            self.network.bells[peer as usize].ring();
        }
        self.ends.0.push_back((id, outcome));
        Begun::Bytes(len)
    }
}
