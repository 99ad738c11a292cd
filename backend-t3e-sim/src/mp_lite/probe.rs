//! Extension: finding a message that could be received, and taking it out of matching.

use portolan_core::matching::Pattern;

use super::lite::{Lite, RecvOp, Stage};
use super::wire::{Arrival, Buffer, Wire};

impl<B: Buffer> Lite<B> {
    /// The earliest message that a pattern matches, if one has arrived.
    pub fn probe(&mut self, wire: &mut impl Wire, pattern: &Pattern) -> Option<Arrival> {
        let found = self.find(wire, pattern)?;
        self.look_at(wire, found).map(|message| message.arrival())
    }

    /// Takes out of matching the earliest message that a pattern matches. Returns a number for
    /// [`receive_taken`](Self::receive_taken) or [`discard_taken`](Self::discard_taken).
    pub fn take(&mut self, wire: &mut impl Wire, pattern: &Pattern) -> Option<(u32, Arrival)> {
        let found = self.find(wire, pattern)?;
        let message = self.take_found(wire, found)?;
        Some((self.taken.insert(message), message.arrival()))
    }

    /// Receives a message that was taken; `false` if there is none with this number.
    pub fn receive_taken(
        &mut self,
        wire: &mut impl Wire,
        number: u32,
        buffer: B,
        token: u64,
    ) -> bool {
        let Some(message) = self.taken.remove(number) else {
            return false;
        };
        let arrival = message.arrival();
        let op = RecvOp {
            token,
            pattern: Pattern {
                context: arrival.context,
                source: Some(arrival.peer),
                tag: Some(arrival.tag),
            },
            buffer,
            // An age that no waiting receive has; this one waits for nothing.
            stage: Stage::Apart { age: u64::MAX },
            doomed: None,
            posted: None,
        };
        let id = self.receives.insert(op);
        self.deliver(wire, id, message);
        true
    }

    /// Discards a message that was taken, which then counts as received; `false` if there is none
    /// with this number.
    pub fn discard_taken(&mut self, wire: &mut impl Wire, number: u32) -> bool {
        let Some(message) = self.taken.remove(number) else {
            return false;
        };
        if let super::header::Inbound::Announced {
            message: number, ..
        } = message.header
        {
            self.want_no_more(wire, message.peer, number);
        } else {
            self.acknowledge(wire, &message, None);
        }
        true
    }
}
