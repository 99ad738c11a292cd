//! Extension: cancelling operations.
//!
//! A receive that is not preposted, or a send that has not left, is taken back at once. A preposted
//! receive may already be in use by its sender. So the sender is asked: either it takes the prepost
//! out and says so, or it has put a message into the receive, and the `send_done` signal is under
//! way. From the request on, the receive matches no other message here, so it ends exactly once in
//! either case.

use super::header::Outbound;
use super::lite::{Lite, Outcome, Stage};
use super::wire::{Buffer, Wire};

impl<B: Buffer> Lite<B> {
    /// Asks for a receive to be taken back. The receive ends as cancelled, or with its message.
    pub fn cancel_receive(&mut self, wire: &mut impl Wire, id: u32) {
        let Some(op) = self.receives.get_mut(id) else {
            return;
        };
        let Some(posted) = op.posted.take() else {
            return; // The receive is already being taken back.
        };
        let stage = op.stage;
        self.posted.cancel(posted);
        match stage {
            Stage::Preposted { peer, .. } => {
                let (receive, seen) = (id, 0);
                self.owe(wire, peer, Outbound::Cancel { receive, seen });
            }
            Stage::Apart { .. } => self.taken_back(wire, id),
            Stage::Taking(_) => {} // The receive has its message.
        }
    }

    /// Ends a receive that is no longer at its sender and got no message.
    pub(super) fn taken_back(&mut self, wire: &mut impl Wire, id: u32) {
        if let Some(op) = self.receives.remove(id) {
            self.retire(wire, id, &op);
            let outcome = op.doomed.map_or(Outcome::Cancelled, Outcome::Failed);
            self.finish(wire, op.token, outcome, op.buffer);
        }
    }

    /// Takes back a send that has not left. One that has left stays, because its receiver may have
    /// seen it.
    pub fn cancel_send(&mut self, wire: &mut impl Wire, id: u32) {
        let Some(peer) = self.sends.get(id).map(|send| send.peer) else {
            return;
        };
        let state = self.peer(peer);
        let before = state.pending.len();
        state.pending.retain(|&pending| pending != id);
        if state.pending.len() == before {
            return;
        }
        if state.is_idle() {
            self.busy.remove(&peer);
        }
        if let Some(send) = self.sends.remove(id) {
            self.finish(wire, send.token, Outcome::Cancelled, send.buffer);
        }
    }
}
