//! Probing: which message could be received, and taking it out of matching.

use crate::device::Message;
use crate::engine::data::Data;
use crate::engine::short::send::START;
use crate::engine::short::unexpected::Arrived;
use crate::engine::state::State;
use crate::error::Result;
use crate::guard::NoUnwind;
use crate::matching::{Envelope, Pattern};
use crate::request::{Request, State as Stage};
use crate::status::Status;
use crate::transport::Transport;

fn status(envelope: &Envelope, arrived: &Arrived) -> Status {
    Status::received(envelope.source, envelope.tag, arrived.bytes())
}

impl<T: Transport> State<T> {
    /// The status of the earliest stored message that matches.
    ///
    /// An offer is taken from its sender when a probe reports it: what a probe has reported can be
    /// received, so from then on its sender cannot cancel it.
    pub(in crate::engine) fn probe(&mut self, pattern: &Pattern) -> Result<Option<Status>> {
        while let Some(id) = self.proto.unexpected.find(pattern) {
            let Some((envelope, arrived)) = self.proto.unexpected.get_mut(id) else {
                break;
            };
            let shown = status(envelope, arrived);
            if let Arrived::Offer {
                peer, body, taken, ..
            } = arrived
                && !*taken
            {
                if body
                    .word
                    .is_some_and(|word| !self.transport.offer_take(*peer, word))
                {
                    self.proto.unexpected.take(id);
                    continue;
                }
                *taken = true;
            }
            return Ok(Some(shown));
        }
        self.proto.check_live()?;
        if self.proto.trouble
            && let Some(peer) = self.proto.failure_for(pattern)
        {
            return Err(self.proto.peer_failed(peer));
        }
        Ok(None)
    }

    /// Takes the earliest stored message that matches out of matching.
    pub(in crate::engine) fn matched_probe(
        &mut self,
        pattern: &Pattern,
    ) -> Result<Option<(Message, Status)>> {
        self.proto.check_live()?;
        if let Some((envelope, arrived)) = self.take_unexpected(pattern) {
            let status = status(&envelope, &arrived);
            let handle = self.proto.taken.keep(envelope, arrived);
            return Ok(Some((Message(handle), status)));
        }
        self.probe(pattern).map(|_| None)
    }

    /// Receives a message that was taken. If no slot is free, the message stays taken.
    ///
    /// # Safety
    /// The buffer must stay writable until the request completes.
    pub(in crate::engine) unsafe fn receive_taken(
        &mut self,
        message: Message,
        data: Data,
    ) -> Result<Request> {
        let request = self.proto.table.claim(Stage::Active)?;
        let (envelope, arrived) = match self.proto.release_taken(message.0) {
            Ok(taken) => taken,
            Err(stale) => {
                self.proto.table.release(request.index());
                return Err(stale);
            }
        };
        NoUnwind::during(START, || {
            self.receive_arrived(request.index(), &envelope, arrived, data);
        });
        Ok(request)
    }

    /// Discards a taken message; its sender is told that it was received. This needs no slot, so
    /// that it works when none is free.
    pub(in crate::engine) fn discard(&mut self, message: Message) -> Result<()> {
        let (_, arrived) = self.proto.release_taken(message.0)?;
        match arrived {
            Arrived::Eager { peer, header, .. } => self.proto.delivered(peer, &header, 0),
            Arrived::Offer { peer, header, .. } => {
                self.proto.unasked.comes(peer);
                self.proto.acknowledge(peer, header.cookie);
            }
            Arrived::Looped { send, .. } => {
                self.proto.counters.looped += 1;
                self.proto.complete_send(send);
            }
        }
        // Send an acknowledgement now: this rank may not poll again for long, and the sender waits
        // for it.
        if self.proto.has_outgoing() {
            self.flush_outgoing();
        }
        Ok(())
    }
}
