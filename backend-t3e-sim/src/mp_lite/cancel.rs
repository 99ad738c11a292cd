//! Extension: taking operations back.
//!
//! A receive that is not preposted, or a send that has not left, is taken back at once. A preposted
//! receive may be in its sender's hands: the sender is asked, and either takes the prepost out and
//! says so, or has put a message into it, whose `send_done` signal is under way. From the asking on
//! the receive matches no other message here, so either way it is over once.

use super::header::Outbound;
use super::lite::{Lite, Outcome, Stage};
use super::wire::{Buffer, Wire};

impl<B: Buffer> Lite<B> {
    /// Asks for a receive to be taken back. It ends as cancelled, or with its message.
    pub fn cancel_receive(&mut self, wire: &mut impl Wire, id: u32) {
        let Some(op) = self.receives.get_mut(id) else {
            return;
        };
        let Some(posted) = op.posted.take() else {
            return; // It has been asked for already.
        };
        let stage = op.stage;
        self.posted.cancel(posted);
        match stage {
            Stage::Preposted { peer, .. } => {
                let (receive, seen) = (id, 0);
                self.owe(wire, peer, Outbound::Cancel { receive, seen });
            }
            Stage::Apart { .. } => self.taken_back(wire, id),
            Stage::Taking(_) => {} // It has its message.
        }
    }

    /// A receive is not at its sender any more, and got nothing.
    pub(super) fn taken_back(&mut self, wire: &mut impl Wire, id: u32) {
        if let Some(op) = self.receives.remove(id) {
            self.retire(wire, id, &op);
            let outcome = op.doomed.map_or(Outcome::Cancelled, Outcome::Failed);
            self.finish(wire, op.token, outcome, op.buffer);
        }
    }

    /// Takes a send back that has not left. What has left stays: its receiver may have seen it.
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
