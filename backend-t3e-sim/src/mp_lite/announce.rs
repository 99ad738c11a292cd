//! Extension: messages for which there is no send buffer. The paper has no such messages: its
//! `malloc` succeeds, and its receives fit into memory.
//!
//! ```text
//! sender                      receiver
//!   Announced ──────────────▶ waits for its receive like any message
//!   put a part ◀───────────── Take: here is so much room
//!   Part ───────────────────▶ copy it out, take the next
//!   complete                  complete
//! ```
//!
//! So a message may be longer than all memory of the machine, and a sender that has no memory for
//! one message can still send the next. Parts land in a quarter of the pool that nothing else may
//! use, so a message that has been matched gets through.

use super::header::{Inbound, Outbound};
use super::lite::{Lite, Mode, Outcome, Stage, Taking, Waiting};
use super::peer::{Logged, Take};
use super::send::{LOCAL, PIECE, pieces};
use super::steps::Step;
use super::wire::{Buffer, Wire};

/// Longest part of a message.
const PART: u64 = 1 << 20;

impl<B: Buffer> Lite<B> {
    /// Allocates a place in the pool, unless that would use some of the quarter that is kept for
    /// parts.
    pub(super) fn allocate_spare(&mut self, len: u64) -> Option<u64> {
        let spare = self.pool.len() - self.pool.len() / 4;
        let fits = self
            .pool
            .used()
            .checked_add(len)
            .is_some_and(|used| used <= spare);
        fits.then(|| self.pool.allocate(len)).flatten()
    }

    /// Announces a send; `false` if the send must not be announced.
    pub(super) fn announce(&mut self, wire: &mut impl Wire, id: u32) -> bool {
        let Some(send) = self
            .sends
            .get(id)
            .filter(|send| send.mode != Mode::Immediate)
        else {
            return false;
        };
        let (peer, label, form) = (send.peer, send.label, send.form);
        let len = send.buffer.len() as u64;
        wire.step(Step::Log);
        let state = self.peer(peer);
        let position = state.to_smsg.p;
        state.log.push_back(Logged::Announced {
            label,
            position,
            taken: 0,
            send: Some(id),
        });
        let header = Inbound::Announced {
            label,
            form,
            message: position,
            len,
        };
        state.to_smsg.post(wire, peer, header.words());
        self.stats.announced += 1;
        true
    }

    /// Begins to receive an announced message that has met its receive.
    pub(super) fn take_announced(
        &mut self,
        wire: &mut impl Wire,
        id: u32,
        message: &Waiting,
        number: u32,
    ) {
        let Some(mut op) = self.receives.remove(id) else {
            return;
        };
        let arrival = message.arrival();
        let gap = self.retire(wire, id, &op);
        if let Some(receive) = gap {
            self.stats.gaps += 1;
            let (at, len, seen) = (0, arrival.len, 0);
            let gap = Some(receive);
            self.owe(
                wire,
                message.peer,
                Outbound::RecvDone { at, len, gap, seen },
            );
        }
        if op.buffer.is_empty() || arrival.len == 0 || !op.buffer.accepts(&arrival) {
            self.want_no_more(wire, message.peer, number);
            return self.finish(wire, op.token, Outcome::Received(arrival), op.buffer);
        }
        op.posted = None;
        op.stage = Stage::Taking(Taking {
            arrival,
            message: number,
            at: None,
            done: 0,
        });
        // This gives out again the number of the receive that has just been retired. That is safe,
        // because the sender hears of the old receive's end before it hears of the new receive.
        let id = self.receives.insert(op);
        self.starved.push_back(id);
        self.feed(wire);
    }

    /// Gives memory to receives of announced messages that wait for it.
    pub(super) fn feed(&mut self, wire: &mut impl Wire) {
        while let Some(&id) = self.starved.front() {
            let Some((wanted, _)) = self.taking(id) else {
                self.starved.pop_front();
                continue;
            };
            let Some(at) = self.pool.allocate(wanted.min(PART)) else {
                return;
            };
            wire.step(Step::Allocate);
            self.starved.pop_front();
            if let Some((_, taking)) = self.taking(id) {
                taking.at = Some(at);
            }
            self.take_part(wire, id);
        }
    }

    /// How many bytes a receive of an announced message wants in all, and the state of its
    /// transfer.
    fn taking(&mut self, id: u32) -> Option<(u64, &mut Taking)> {
        let op = self.receives.get_mut(id)?;
        let room = op.buffer.len() as u64;
        match &mut op.stage {
            Stage::Taking(taking) => Some((room.min(taking.arrival.len), taking)),
            _ => None,
        }
    }

    /// Asks for the next part.
    fn take_part(&mut self, wire: &mut impl Wire, id: u32) {
        let Some((wanted, taking)) = self.taking(id) else {
            return;
        };
        let (peer, message, at) = (taking.arrival.peer, taking.message, taking.at);
        let room = (wanted - taking.done).min(PART) as u32;
        let (at, receive, seen) = (at.unwrap_or(0), id, 0);
        let take = Outbound::Take {
            message,
            at,
            room,
            receive,
            seen,
        };
        self.owe(wire, peer, take);
    }

    /// Tells the sender of an announced message that its receiver wants no more of it.
    pub(super) fn want_no_more(&mut self, wire: &mut impl Wire, peer: u32, message: u32) {
        let take = Outbound::Take {
            message,
            at: 0,
            room: 0,
            receive: 0,
            seen: 0,
        };
        self.owe(wire, peer, take);
    }

    /// Handles the arrival of a part of an announced message.
    pub(super) fn part_here(&mut self, wire: &mut impl Wire, id: u32, len: u64) {
        let Some((wanted, taking)) = self.taking(id) else {
            debug_assert!(false, "a part for receive {id}, which takes none");
            return;
        };
        let from = taking.done;
        taking.done += len;
        let (at, taking) = (taking.at.unwrap_or(0), *taking);
        let Some(op) = self.receives.get_mut(id) else {
            return;
        };
        pieces(len as usize, LOCAL, |offset, piece| {
            wire.read(at + offset as u64, piece);
            op.buffer
                .write(from as usize + offset, piece, taking.arrival.rep);
        });
        if len != 0 && taking.done < wanted {
            return self.take_part(wire, id);
        }
        if let Some(op) = self.receives.remove(id) {
            self.retire(wire, id, &op);
            let outcome = if len == 0 {
                Outcome::Failed(taking.arrival.peer)
            } else {
                Outcome::Received(taking.arrival)
            };
            if len != 0 && wanted < taking.arrival.len {
                self.want_no_more(wire, taking.arrival.peer, taking.message);
            }
            self.finish(wire, op.token, outcome, op.buffer);
        }
    }

    /// Puts a part of an announced message where its receiver wants it. The caller has checked that
    /// there is room in the queue.
    pub(super) fn put_part(&mut self, wire: &mut impl Wire, peer: u32, take: Take) {
        let state = self.peer(peer);
        let found = state.log.iter().position(|entry| {
            matches!(entry, Logged::Announced { position, .. } if *position == take.message)
        });
        let Some(found) = found else {
            return;
        };
        let Logged::Announced { taken, send, .. } = &mut state.log[found] else {
            return;
        };
        let from = *taken;
        *taken += u64::from(take.room);
        let (now, send) = (*taken, *send);
        let op = send.and_then(|id| self.sends.get(id));
        let len = op.map_or(0, |op| op.buffer.len() as u64);
        if let Some(op) = op
            && take.room > 0
        {
            if !op.buffer.is_contiguous() {
                wire.step(Step::Copy(u64::from(take.room)));
            }
            pieces(take.room as usize, PIECE, |offset, piece| {
                op.buffer.read(from as usize + offset, piece);
                wire.step(Step::Piece);
                wire.put_bytes(peer, take.at + offset as u64, piece);
            });
        }
        let part = if op.is_some() {
            u64::from(take.room)
        } else {
            0
        };
        let state = self.peer(peer);
        if take.room > 0 {
            let (receive, len) = (take.receive, part);
            let header = Inbound::Part { receive, len };
            state.to_smsg.post(wire, peer, header.words());
        }
        if take.room == 0 || now >= len || send.is_none() {
            state.log.remove(found);
            if let Some(send) = send.and_then(|id| self.sends.remove(id)) {
                self.finish(wire, send.token, Outcome::Sent, send.buffer);
            }
        }
    }
}
