//! Sending: `MP_ASend`, and the part of `MP_Wait` that serves sends.

use super::header::{IN_HEADER, Inbound, Label, Outbound};
use super::lite::{Lite, Mode, Outcome, Outgoing};
use super::peer::Logged;
use super::queue::Position;
use super::steps::Step;
use super::wire::{Buffer, Wire};

/// Most bytes that one call of the machine puts or gets.
pub(super) const PIECE: usize = 8 << 10;
/// Most bytes that move at once inside this PE.
pub(super) const LOCAL: usize = 64 << 10;

/// A receive that waits for a message in this PE's `rmsg` queue.
#[derive(Clone, Copy, Debug)]
struct Prepost {
    position: Position,
    at: u64,
    room: u32,
    receive: u32,
}

/// The result of looking for a preposted receive for a message.
enum Preposted {
    /// This prepost matches.
    Yes(Prepost),
    /// No prepost matches, as far as this PE knows.
    No,
    /// A prepost matches, but it may have been made in the gap, for a message that was sent before.
    Suspicious,
}

/// The result of trying to launch a send.
#[derive(PartialEq, Eq)]
enum Launched {
    /// The send has left.
    Yes,
    /// The send still waits.
    No,
}

impl<B: Buffer> Lite<B> {
    /// `MP_ASend`: puts the message into a preposted receive, if there is one; otherwise a message
    /// of at most 8 bytes leaves in its header. [`progress`](Self::progress) does the rest. Returns
    /// the number of the operation, for [`cancel_send`](Self::cancel_send); the operation may
    /// already be over.
    pub fn asend(&mut self, wire: &mut impl Wire, outgoing: Outgoing<B>) -> u32 {
        wire.step(Step::Call);
        let peer = outgoing.peer;
        let id = self.sends.insert(outgoing);
        self.peer(peer).pending.push_back(id);
        self.busy.insert(peer);
        self.hear_receiver(wire, peer);
        self.launch(wire, peer, false);
        id
    }

    /// Launches the waiting sends to a peer that can leave: into preposted receives, in headers,
    /// and, if `buffer`, through send buffers. Messages of one context leave in order, except for
    /// those that go into a preposted receive which no earlier message matches.
    pub(super) fn launch(&mut self, wire: &mut impl Wire, peer: u32, buffer: bool) {
        let mut held: Vec<u32> = Vec::new();
        let mut at = 0;
        while let Some(&id) = self.peer(peer).pending.get(at) {
            if self.peer(peer).to_smsg.room(wire) == 0 {
                self.stats.held += 1;
                break;
            }
            match self.launch_one(wire, id, at, buffer, &held) {
                Launched::Yes => {
                    self.peer(peer).pending.remove(at);
                }
                Launched::No => {
                    if let Some(send) = self.sends.get(id)
                        && !held.contains(&send.label.context)
                    {
                        held.push(send.label.context);
                    }
                    at += 1;
                }
            }
        }
        if self.peer(peer).is_idle() {
            self.busy.remove(&peer);
        }
    }

    fn launch_one(
        &mut self,
        wire: &mut impl Wire,
        id: u32,
        at: usize,
        buffer: bool,
        held: &[u32],
    ) -> Launched {
        let Some(send) = self.sends.get(id) else {
            return Launched::Yes;
        };
        let (peer, label, mode, len) = (send.peer, send.label, send.mode, send.buffer.len());
        let preposted = self.preposted_for(wire, peer, at, label);
        if let Preposted::Yes(prepost) = preposted {
            self.put_direct(wire, id, prepost);
            return Launched::Yes;
        }
        if held.contains(&label.context) {
            return Launched::No;
        }
        let small = len <= IN_HEADER && mode != Mode::Synchronous;
        let gone = if small {
            self.post_small(wire, id);
            true
        } else {
            buffer && self.post_long(wire, id)
        };
        if !gone {
            return Launched::No;
        }
        self.stats.ignored_preposts += u64::from(matches!(preposted, Preposted::Suspicious));
        self.stats.ready_unposted += u64::from(mode == Mode::Ready);
        Launched::Yes
    }

    /// Looks for a preposted receive for a send: the first that matches, unless it is suspicious,
    /// or an earlier send that still waits matches it, too.
    fn preposted_for(
        &mut self,
        wire: &mut impl Wire,
        peer: u32,
        before: usize,
        label: Label,
    ) -> Preposted {
        let trusting = self.breaks_suspicion();
        let Some(state) = self.peers.get(&peer) else {
            return Preposted::No;
        };
        for position in state.rmsg.seen() {
            wire.step(Step::Look);
            let words = state.rmsg.at(wire, position);
            let Some(Outbound::Prepost {
                context,
                tag,
                at,
                room,
                receive,
                ..
            }) = Outbound::parse(words)
            else {
                continue;
            };
            let matches =
                |label: Label| label.context == context && tag.is_none_or(|tag| tag == label.tag);
            if !matches(label) {
                continue;
            }
            let uncleared = state.log.iter().filter_map(|entry| entry.label());
            if !trusting && uncleared.into_iter().any(matches) {
                return Preposted::Suspicious;
            }
            let mut earlier = state.pending.iter().take(before);
            if earlier.any(|&id| self.sends.get(id).is_some_and(|send| matches(send.label))) {
                return Preposted::No;
            }
            return Preposted::Yes(Prepost {
                position,
                at,
                room,
                receive,
            });
        }
        Preposted::No
    }

    /// Puts a message into a preposted receive, and signals that to the receiver.
    fn put_direct(&mut self, wire: &mut impl Wire, id: u32, prepost: Prepost) {
        let Some(send) = self.sends.remove(id) else {
            return;
        };
        let (peer, len) = (send.peer, send.buffer.len());
        let state = self.peer(peer);
        state.rmsg.delete(wire, prepost.position);
        let (receive, tag, form) = (prepost.receive, send.label.tag, send.form);
        let header = if len <= IN_HEADER {
            Inbound::SmallDone {
                receive,
                tag,
                form,
                data: word(&send.buffer),
                len: len as u8,
            }
        } else {
            let room = len.min(prepost.room as usize);
            if !send.buffer.is_contiguous() {
                wire.step(Step::Copy(room as u64));
            }
            pieces(room, PIECE, |at, piece| {
                send.buffer.read(at, piece);
                wire.step(Step::Piece);
                wire.put_bytes(peer, prepost.at + at as u64, piece);
            });
            Inbound::SendDone {
                receive,
                tag,
                form,
                len: len as u64,
            }
        };
        // A fence orders the header's last word behind everything that was put before, so behind
        // the data, too.
        self.peer(peer).to_smsg.post(wire, peer, header.words());
        self.stats.direct += 1;
        self.stats.direct_bytes += len as u64;
        self.tell(wire, peer);
        self.finish(wire, send.token, Outcome::Sent, send.buffer);
    }

    /// Sends a message of at most 8 bytes in its header.
    fn post_small(&mut self, wire: &mut impl Wire, id: u32) {
        let Some(send) = self.sends.remove(id) else {
            return;
        };
        let header = Inbound::Small {
            label: send.label,
            form: send.form,
            data: word(&send.buffer),
            len: send.buffer.len() as u8,
        };
        let (peer, forgets) = (send.peer, self.breaks_small_log());
        let state = self.peer(peer);
        if !forgets {
            state.log.push_back(Logged::Small {
                label: send.label,
                position: state.to_smsg.p,
            });
        }
        state.to_smsg.post(wire, peer, header.words());
        self.stats.in_header += 1;
        self.finish(wire, send.token, Outcome::Sent, send.buffer);
    }

    /// Sends a message through a buffer, or announces it if there is no memory for that.
    fn post_long(&mut self, wire: &mut impl Wire, id: u32) -> bool {
        if self.post_buffered(wire, id) {
            return true;
        }
        self.stats.held += 1;
        self.announce(wire, id)
    }

    /// Copies a message into a send buffer and posts its header; `false` if there is no memory for
    /// it.
    fn post_buffered(&mut self, wire: &mut impl Wire, id: u32) -> bool {
        let Some(len) = self.sends.get(id).map(|send| send.buffer.len()) else {
            return true;
        };
        let room = self.buffered_max.saturating_sub(self.buffered_now);
        // A single message may be buffered whatever the bound.
        if self.buffered_now != 0 && len as u64 > room {
            return false;
        }
        let Some(at) = self.allocate_spare(len as u64) else {
            return false;
        };
        let Some(send) = self.sends.get(id) else {
            return true;
        };
        wire.step(Step::Allocate);
        let synchronous = send.mode == Mode::Synchronous;
        if !synchronous || !send.buffer.is_contiguous() {
            wire.step(Step::Copy(len as u64));
        }
        pieces(len, LOCAL, |from, piece| {
            send.buffer.read(from, piece);
            wire.write(at + from as u64, piece);
        });
        let (peer, label) = (send.peer, send.label);
        let header = Inbound::Buffered {
            label,
            form: send.form,
            at,
            len: len as u64,
        };
        self.buffered_now += len as u64;
        wire.step(Step::Log);
        let state = self.peer(peer);
        state.log.push_back(Logged::Buffered {
            label,
            at,
            len: len as u64,
            synchronous: synchronous.then_some(id),
        });
        state.to_smsg.post(wire, peer, header.words());
        self.stats.buffered += 1;
        self.stats.buffered_bytes += len as u64;
        if !synchronous && let Some(send) = self.sends.remove(id) {
            self.finish(wire, send.token, Outcome::Sent, send.buffer);
        }
        true
    }

    /// Whether a test has switched off the rule against suspicious preposts.
    fn breaks_suspicion(&self) -> bool {
        #[cfg(test)]
        return self.broken == Some(super::model::Rule::Suspicion);
        #[cfg(not(test))]
        false
    }

    /// Whether a test has switched off the log of small messages.
    fn breaks_small_log(&self) -> bool {
        #[cfg(test)]
        return self.broken == Some(super::model::Rule::SmallLog);
        #[cfg(not(test))]
        false
    }
}

/// The bytes of a message of at most 8 bytes, as a word.
fn word(buffer: &impl Buffer) -> u64 {
    let mut bytes = [0; IN_HEADER];
    buffer.read(0, &mut bytes[..buffer.len()]);
    u64::from_le_bytes(bytes)
}

/// Calls `each` for the pieces, of at most `size` bytes, into which `len` bytes divide, with the
/// offset of the piece and memory for it.
pub(super) fn pieces(len: usize, size: usize, mut each: impl FnMut(usize, &mut [u8])) {
    let mut piece = vec![0; len.min(size)];
    let mut at = 0;
    while at < len {
        let step = (len - at).min(size);
        each(at, &mut piece[..step]);
        at += step;
    }
}
