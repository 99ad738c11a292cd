//! A simulated card: a bounded list, and queues of commands and events, all stepped by hand.
//!
//! Nothing happens by itself. A test decides when the card carries out its next command, when a
//! message arrives and when a transfer ends. So it can produce any order, including races: a
//! message can pass by after a command has been given and before it is carried out.

use std::collections::VecDeque;

use super::device::{Event, Message, OffloadCaps, ReceiveId, Refusal, TagOffload};
use crate::matching::envelope::{Envelope, Pattern};

/// A card without a network. `E` is an eager message's data, `O` a rendezvous offer.
///
/// Eager data is handed over in the completion event, because the card has no access to memory.
#[derive(Debug)]
pub struct SimNic<E, O> {
    caps: OffloadCaps,
    commands: VecDeque<Command>,
    /// Receives in the list or in the command queue; both count towards `list_size`.
    held: usize,
    list: Vec<(ReceiveId, Pattern)>,
    transfers: Vec<Event<E, O>>,
    events: VecDeque<Event<E, O>>,
    handed_up: u64,
    handshake: bool,
}

#[derive(Debug)]
enum Command {
    Add {
        receive: ReceiveId,
        pattern: Pattern,
        seen: u64,
    },
    Remove {
        receive: ReceiveId,
        force: bool,
    },
}

impl<E, O> SimNic<E, O> {
    /// An idle card.
    #[must_use]
    pub fn new(caps: OffloadCaps) -> Self {
        Self {
            caps,
            commands: VecDeque::new(),
            held: 0,
            list: Vec::new(),
            transfers: Vec::new(),
            events: VecDeque::new(),
            handed_up: 0,
            handshake: true,
        }
    }

    /// Makes the card break its promise: it adds receives without comparing counts.
    #[must_use]
    pub fn without_handshake(mut self) -> Self {
        self.handshake = false;
        self
    }

    /// Carries out the next command. Returns `false` if there is none.
    pub fn execute_command(&mut self) -> bool {
        match self.commands.pop_front() {
            Some(Command::Add {
                receive,
                pattern,
                seen,
            }) => self.add(receive, pattern, seen),
            Some(Command::Remove { receive, force }) => self.remove(receive, force),
            None => return false,
        }
        true
    }

    /// Delivers an eager message of `len` bytes from the network.
    pub fn arrive_eager(&mut self, envelope: Envelope, len: usize, data: E) {
        match self.consume(envelope) {
            Some(receive) => self.transfers.push(Event::Completed {
                receive,
                envelope,
                len,
                inline: Some(data),
            }),
            None => self.hand_up(envelope, Message::Eager(data)),
        }
    }

    /// Delivers a rendezvous offer from the network.
    pub fn arrive_rendezvous(&mut self, envelope: Envelope, offer: O) {
        match self.consume(envelope) {
            Some(receive) => self.transfers.push(Event::Offered {
                receive,
                envelope,
                offer,
            }),
            None => self.hand_up(envelope, Message::Rendezvous(offer)),
        }
    }

    /// Ends one of the transfers under way, number `which` modulo their count. Returns `false` if
    /// there is none.
    pub fn finish_transfer(&mut self, which: usize) -> bool {
        if self.transfers.is_empty() {
            return false;
        }
        let event = self.transfers.remove(which % self.transfers.len());
        self.events.push_back(event);
        true
    }

    /// Number of receives in the list.
    #[must_use]
    pub fn listed(&self) -> usize {
        self.list.len()
    }

    /// Whether there are no commands, transfers and events, and the list is empty.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.commands.is_empty()
            && self.list.is_empty()
            && self.held == 0
            && self.transfers.is_empty()
            && self.events.is_empty()
    }

    fn add(&mut self, receive: ReceiveId, pattern: Pattern, seen: u64) {
        if self.handshake && seen != self.handed_up {
            self.held -= 1;
            self.events.push_back(Event::Refused(receive));
        } else {
            self.list.push((receive, pattern));
            self.events.push_back(Event::Added(receive));
        }
    }

    fn remove(&mut self, receive: ReceiveId, force: bool) {
        let Some(at) = self.list.iter().position(|(held, _)| *held == receive) else {
            return; // It was consumed or refused, and an event says so.
        };
        self.list.remove(at);
        self.held -= 1;
        if !force {
            self.events.push_back(Event::Cancelled(receive));
        }
    }

    fn consume(&mut self, envelope: Envelope) -> Option<ReceiveId> {
        let matching = |(_, pattern): &(ReceiveId, Pattern)| pattern.matches(&envelope);
        let at = self.list.iter().position(matching)?;
        let (receive, _) = self.list.remove(at);
        self.held -= 1;
        self.events.push_back(Event::Consumed { receive, envelope });
        Some(receive)
    }

    fn hand_up(&mut self, envelope: Envelope, message: Message<E, O>) {
        self.handed_up += 1;
        self.events
            .push_back(Event::Unexpected { envelope, message });
    }
}

impl<E, O> TagOffload for SimNic<E, O> {
    type Buffer = ();
    type Eager = E;
    type Offer = O;

    fn caps(&self) -> OffloadCaps {
        self.caps
    }

    fn post(
        &mut self,
        receive: ReceiveId,
        pattern: &Pattern,
        _buffer: &(),
        len: usize,
        seen: u64,
    ) -> Result<(), Refusal> {
        if !self.caps.admits(pattern, len) {
            return Err(Refusal::Unsupported);
        }
        if self.held >= self.caps.list_size {
            return Err(Refusal::NoRoom);
        }
        self.held += 1;
        self.commands.push_back(Command::Add {
            receive,
            pattern: *pattern,
            seen,
        });
        Ok(())
    }

    fn cancel(&mut self, receive: ReceiveId, force: bool) {
        self.commands.push_back(Command::Remove { receive, force });
    }

    fn poll(&mut self) -> Option<Event<E, O>> {
        self.events.pop_front()
    }
}
