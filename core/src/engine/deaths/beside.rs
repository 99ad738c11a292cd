//! Operations of a device that contains an engine and matches messages elsewhere. To the engine
//! they are requests of another kind, which do not say what they wait for.

use crate::device::ProcId;
use crate::engine::Engine;
use crate::level::{Level, StateLock};
use crate::request::Request;
use crate::transport::Transport;

/// Tells an engine which peers the operations need that a device runs beside it, and hears from the
/// engine which of these peers have left the job in good order.
///
/// Both functions are called with the engine's state locked.
pub trait Beside: Send {
    /// The peers that an operation cannot do without: that of this request, or any operation if
    /// there is no request, or if the request is of none of them. Waits that may take long ask:
    /// every so many polls, whether these are in vain or not, and before they sleep.
    fn needed(&self, request: Option<Request>) -> Vec<u32>;

    /// `peer` has left, and everything that it had sent has arrived
    /// ([`Transport::has_left`]). The operations that need it have to end, and those that begin
    /// later as well. [`Port::fail`](crate::device::Port::fail), in a hook, ends a request with the
    /// right error: hooks run right after this.
    fn has_left(&self, peer: u32);
}

impl<T: Transport, L: Level> Engine<T, L> {
    /// Sets what tells of the operations of a device that contains this engine.
    pub fn set_beside(&self, beside: Box<dyn Beside>) {
        self.state.lock().proto.beside = Some(beside);
    }

    /// Checks whether `peer` has left in good order, as waits of the engine do: for a wait that a
    /// device does itself. If so, [`Beside::has_left`] is called in one of the next polls.
    pub fn look_for_leaver(&self, peer: ProcId) {
        self.state.lock().look_for_leaver(peer.index());
    }
}
