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

    /// Copies from what a peer has exposed, without progress meanwhile. Returns `false` if that is
    /// not possible.
    ///
    /// # Safety
    /// As [`Exposing::pull`].
    pub(in crate::engine) unsafe fn pull_exposed(
        &mut self,
        peer: u32,
        exposure: &Exposure,
        offset: u64,
        (target, len): (*mut u8, usize),
    ) -> bool {
        // SAFETY: the caller's promise.
        let pulled = unsafe { self.transport.pull(peer, exposure, offset, target, len) };
        let done = pulled == Pulled::Done;
        if done {
            self.proto.counters.bytes_pulled += len as u64;
        }
        done
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
            if !unsafe { state.pull_exposed(peer.index(), exposure, at, (to, now)) } {
                return false;
            }
            done += now;
            if done == len {
                return true;
            }
            // Peers wait for this rank's part in their messages.
            state.progress();
        }
    }
}
