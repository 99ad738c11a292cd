//! Memory that ranks expose to each other by hand, and copy from without the owner's help.

use crate::device::{Exposing, ProcId};
use crate::engine::Engine;
use crate::engine::long::transfer::TURN;
use crate::engine::state::State;
use crate::level::{Level, StateLock};
use crate::transport::{Exposure, Pulled, Transport, TransportCaps};

impl<T: Transport> State<T> {
    /// Whether peers may copy from what this rank exposes, in one call.
    pub(in crate::engine) fn exposes(&self) -> bool {
        let caps = self.transport.caps();
        caps.contains(TransportCaps::PULL) && !caps.contains(TransportCaps::PULL_FAR)
    }
}

impl<T: Transport, L: Level> Exposing for Engine<T, L> {
    unsafe fn expose(&self, start: *const u8, len: usize) -> Option<Exposure> {
        // SAFETY: the caller's promise.
        unsafe { self.state.lock().transport.expose(start, len) }
    }

    fn withdraw(&self, exposure: &Exposure) {
        self.state.lock().transport.withdraw(exposure);
    }

    unsafe fn pull(
        &self,
        peer: ProcId,
        exposure: &Exposure,
        offset: u64,
        target: *mut u8,
        len: usize,
    ) -> bool {
        let mut done = 0;
        loop {
            let (at, now) = (offset.wrapping_add(done as u64), TURN.min(len - done));
            let to = target.wrapping_add(done);
            let mut state = self.state.lock();
            // SAFETY: the caller's promise, for a part of the target.
            let pulled = unsafe { state.transport.pull(peer.index(), exposure, at, to, now) };
            if pulled != Pulled::Done {
                return false;
            }
            state.proto.counters.bytes_pulled += now as u64;
            done += now;
            if done == len {
                return true;
            }
            // Peers wait for this rank's part in their messages.
            state.progress();
        }
    }
}
