//! The answers of receivers: the `rmsg` queues of a sender.

use super::header::{Inbound, Outbound};
use super::lite::{Lite, Outcome};
use super::peer::{Logged, Take};
use super::queue::Position;
use super::steps::Step;
use super::wire::{Buffer, Wire};

impl<B: Buffer> Lite<B> {
    /// Reads the headers that receiver `peer` has written. Preposts stay in the queue; signals are
    /// carried out.
    pub(super) fn hear_receiver(&mut self, wire: &mut impl Wire, peer: u32) {
        // Read before the queue, so that everything that the peer put before it told this is then
        // in the queue.
        let told = self.peer(peer).to_smsg.told(wire);
        while let Some(words) = self.peer(peer).rmsg.see(wire) {
            wire.step(Step::Look);
            let position = self.peer(peer).rmsg.next.wrapping_sub(1);
            self.obey(wire, peer, position, Outbound::parse(words));
        }
        self.peer(peer).clear_deleted(told);
        self.tell(wire, peer);
    }

    fn obey(
        &mut self,
        wire: &mut impl Wire,
        peer: u32,
        position: Position,
        header: Option<Outbound>,
    ) {
        match header {
            Some(Outbound::Prepost { .. }) => {}
            Some(Outbound::RecvDone { at, gap, .. }) => {
                self.peer(peer).rmsg.delete(wire, position);
                if at != 0 {
                    self.clear_buffered(wire, peer, at);
                }
                if let Some(receive) = gap {
                    // A negative number of bytes: the prepost was made in the gap.
                    self.unpost(wire, peer, receive);
                    self.stats.unposted += 1;
                }
            }
            Some(Outbound::Take {
                message,
                at,
                room,
                receive,
                ..
            }) => {
                self.peer(peer).rmsg.delete(wire, position);
                let take = Take {
                    message,
                    at,
                    room,
                    receive,
                };
                self.peer(peer).takes.push_back(take);
                self.busy.insert(peer);
                self.settle(wire, peer);
            }
            Some(Outbound::Cancel { receive, .. }) => {
                self.peer(peer).rmsg.delete(wire, position);
                if self.unpost(wire, peer, receive) {
                    let state = self.peer(peer);
                    state.replies.push_back(Inbound::Cancelled { receive });
                    self.busy.insert(peer);
                    self.settle(wire, peer);
                }
            }
            None => self.peer(peer).rmsg.delete(wire, position),
        }
        if let Some(header) = header {
            // After the header's own effects: messages that the writer had seen by then have no
            // further ones.
            self.peer(peer).clear_seen(header.seen());
        }
    }

    /// Handles the `recv_done` signal: a message was received from its send buffer.
    fn clear_buffered(&mut self, wire: &mut impl Wire, peer: u32, at: u64) {
        wire.step(Step::Log);
        let log = &mut self.peer(peer).log;
        let Some(found) = log.iter().position(|entry| entry.buffer() == Some(at)) else {
            return;
        };
        let entry = log.remove(found);
        wire.step(Step::Allocate);
        self.pool.free(at);
        if let Some(Logged::Buffered {
            len, synchronous, ..
        }) = entry
        {
            self.buffered_now -= len;
            if let Some(send) = synchronous.and_then(|id| self.sends.remove(id)) {
                self.finish(wire, send.token, Outcome::Sent, send.buffer);
            }
        }
    }

    /// Takes a prepost out of the queue, if it is still there.
    fn unpost(&mut self, wire: &mut impl Wire, peer: u32, wanted: u32) -> bool {
        let state = self.peer(peer);
        for position in state.rmsg.seen() {
            wire.step(Step::Look);
            let words = state.rmsg.at(wire, position);
            if let Some(Outbound::Prepost { receive, .. }) = Outbound::parse(words)
                && receive == wanted
            {
                state.rmsg.delete(wire, position);
                return true;
            }
        }
        false
    }
}
