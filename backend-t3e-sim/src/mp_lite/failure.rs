//! Extension: peers that have failed.

use super::lite::{Lite, Outcome, Stage};
use super::wire::{Buffer, Wire};

impl<B: Buffer> Lite<B> {
    /// Ends a receive that waits on this PE only, because `peer` has failed.
    pub fn fail_receive(&mut self, wire: &mut impl Wire, id: u32, peer: u32) {
        if let Some(op) = self.receives.remove(id) {
            self.retire(wire, id, &op);
            self.finish(wire, op.token, Outcome::Failed(peer), op.buffer);
        }
    }

    /// Ends the operations that cannot succeed without `peer`: sends to it that wait, receives from
    /// it, and receives from an unknown source in the contexts for which `doomed` returns `true`.
    /// Messages that it has sent can still be received.
    pub fn fail_peer(
        &mut self,
        wire: &mut impl Wire,
        peer: u32,
        mut doomed: impl FnMut(u32) -> bool,
    ) {
        self.hear(wire, peer);
        let state = self.peer(peer);
        state.failed = true;
        let mut sends: Vec<u32> = state.pending.drain(..).collect();
        state.owed.clear();
        state.replies.clear();
        state.takes.clear();
        for entry in std::mem::take(&mut state.log) {
            use super::peer::Logged;

            if let Some(at) = entry.buffer() {
                self.pool.free(at);
            }
            if let Logged::Buffered {
                len, synchronous, ..
            } = entry
            {
                self.buffered_now -= len;
                sends.extend(synchronous);
            }
            if let Logged::Announced { send, .. } = entry {
                sends.extend(send);
            }
        }
        self.busy.remove(&peer);
        for id in sends {
            if let Some(send) = self.sends.remove(id) {
                self.finish(wire, send.token, Outcome::Failed(peer), send.buffer);
            }
        }
        let receives = self.receives.iter().filter(|(_, op)| match op.stage {
            Stage::Preposted { peer: at, .. } => at == peer,
            Stage::Taking(taking) => taking.arrival.peer == peer,
            Stage::Apart { .. } => match op.pattern.source {
                Some(source) => source == peer,
                None => doomed(op.pattern.context),
            },
        });
        let receives: Vec<u32> = receives.map(|(id, _)| id).collect();
        for id in receives {
            if let Some(op) = self.receives.remove(id) {
                self.retire(wire, id, &op);
                self.finish(wire, op.token, Outcome::Failed(peer), op.buffer);
            }
        }
    }

    /// Ends, because `peer` has failed, all operations in the contexts for which `doomed` returns
    /// `true`, whichever PE they wait for: sends that have not been received, and receives. A
    /// preposted receive is taken back first, so it may still end with its message.
    pub fn fail_contexts(&mut self, wire: &mut impl Wire, peer: u32, doomed: impl Fn(u32) -> bool) {
        let sends = self.sends.iter();
        let sends: Vec<(u32, u32)> = sends
            .filter(|(_, send)| doomed(send.label.context))
            .map(|(id, send)| (id, send.peer))
            .collect();
        for (id, to) in sends {
            self.peer(to).forget_send(id);
            if let Some(send) = self.sends.remove(id) {
                self.finish(wire, send.token, Outcome::Failed(peer), send.buffer);
            }
        }
        let receives = self.receives.iter();
        let receives: Vec<u32> = receives
            .filter(|(_, op)| doomed(op.pattern.context))
            .map(|(id, _)| id)
            .collect();
        for id in receives {
            if let Some(op) = self.receives.get_mut(id).filter(|op| op.posted.is_some()) {
                op.doomed = Some(peer);
                self.cancel_receive(wire, id);
            }
        }
    }
}
