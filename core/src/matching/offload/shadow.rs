//! The shadow list: software decides, the device runs ahead of nothing.
//!
//! Every receive is in the software's posted queue until a message takes it, wherever else it is.
//! Two rules keep the device's list in step with it.
//!
//! 1. **Order.** A receive is posted to the device only if no receive that overlaps with it is
//!    kept back in software (earlier ones because they would be overtaken; later ones there are
//!    none, for the receive is the newest, or the oldest of those that wait).
//! 2. **Epochs.** Receives whose `Added` is outstanding were all posted at one count of messages
//!    seen. When a message is handed up, the count moves on and nothing more is posted until those
//!    are answered: they may be refused, and then must not have been overtaken.
//!
//! A message that is handed up is matched in software. Should it match a receive on its way to the
//! device, the handshake ([`TagOffload`]) will refuse that receive there, so the message is given
//! to it at once.
//!
//! Budget: a receive or event costs a constant number of hash buckets; no allocation once working
//! sizes are reached.

use super::device::{Event, Message, ReceiveId, Refusal, TagOffload};
use super::overlap::Overlaps;
use crate::matching::envelope::{Envelope, Pattern};
use crate::matching::posted::{PostedId, PostedQueue};
use crate::matching::slab::{NIL, Slab};
use crate::matching::unexpected::{UnexpectedId, UnexpectedQueue};

/// Where a receive is, besides the software's posted queue.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Place {
    /// In software until a message takes it: the device cannot hold it, or has refused it.
    Kept,
    /// In software until the device has room and nothing is in the way.
    Waiting,
    /// Posted to the device, which has not answered.
    Adding,
    /// In the device's list.
    Listed,
    /// To be taken out of the device's list, which it has entered or not.
    Cancelling { added: bool },
    /// Taken by a message that the device is moving; in no queue any more.
    Consumed,
}

struct Receive<T, B> {
    pattern: Pattern,
    buffer: B,
    len: usize,
    value: T,
    posted: PostedId,
    place: Place,
    /// Neighbours among those that wait.
    prev: u32,
    next: u32,
}

/// What became of a receive that was posted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Posting<T, E, O> {
    /// This message had been waiting for it.
    Matched {
        /// The receive's value.
        value: T,
        /// The message's envelope.
        envelope: Envelope,
        /// The message, whose bytes the caller moves.
        message: Message<E, O>,
    },
    /// It waits, in software or in the device; its outcome comes from [`ShadowList::progress`].
    Posted(ReceiveId),
}

/// How a posted receive ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome<T, E, O> {
    /// The device has put a message into the receive's buffer.
    Delivered {
        /// The receive's value.
        value: T,
        /// The message's envelope.
        envelope: Envelope,
        /// The message's length in bytes, which may be more than the buffer's.
        len: usize,
        /// Data still to be copied to the buffer.
        inline: Option<E>,
    },
    /// A message has matched, and the caller moves its bytes.
    Matched {
        /// The receive's value.
        value: T,
        /// The message's envelope.
        envelope: Envelope,
        /// The message.
        message: Message<E, O>,
    },
    /// The receive was cancelled, as [`ShadowList::cancel`] had started to.
    Cancelled(T),
}

/// What became of a request to cancel.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Cancel<T> {
    /// The receive was in software and is gone.
    Done(T),
    /// The device has been asked. The outcome says whether the cancel or a message was first.
    Started,
    /// A message has taken the receive; the outcome will say so, or has.
    TooLate,
}

/// A device that did not keep the promises of [`TagOffload`]: the order of messages is lost.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Breach {
    /// It reported on a receive that is not with it.
    #[error(
        "the tag-matching device reported {event} for receive {receive:#x}, which is not with it: \
         messages may be out of order; switch tag-matching offload off on this device"
    )]
    NotWithDevice {
        /// What was reported.
        event: &'static str,
        /// [`ReceiveId::to_bits`] of the receive.
        receive: u64,
    },
    /// It handed up a message although its list held a receive for it.
    #[error(
        "the tag-matching device handed up the message with tag {} from rank {} although receive \
         {receive:#x} in its list matches it: messages may be out of order; switch tag-matching \
         offload off on this device", .envelope.tag, .envelope.source
    )]
    NotMatched {
        /// The message's envelope.
        envelope: Envelope,
        /// [`ReceiveId::to_bits`] of the receive.
        receive: u64,
    },
}

/// How often what happened, for diagnostics and for choosing settings.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct ShadowCounters {
    /// Receives given to the device.
    pub posted: u64,
    /// Receives that a message took in the device.
    pub matched: u64,
    /// Receives that the device refused because a message was passing by.
    pub refused: u64,
    /// Receives on their way to the device for which a handed-up message was meant.
    pub raced: u64,
    /// Receives that had to wait because an earlier one that overlaps was in software.
    pub blocked: u64,
    /// Receives that had to wait for an earlier count of messages to be answered.
    pub held_by_epoch: u64,
    /// Receives that had to wait for room in the list.
    pub no_room: u64,
    /// Receives that the device cannot hold.
    pub unsupported: u64,
}

/// The posted and unexpected queues of a rank whose device matches too.
///
/// Every message must come through the device; a message by another way could be meant for a
/// receive that the device is about to fill.
pub struct ShadowList<T, D: TagOffload> {
    device: D,
    min_len: usize,
    receives: Slab<Receive<T, D::Buffer>>,
    posted: PostedQueue<u32>,
    unexpected: UnexpectedQueue<Message<D::Eager, D::Offer>>,
    /// Patterns of those kept in software, and of those that wait.
    kept: Overlaps,
    waiting: Overlaps,
    waiting_first: u32,
    waiting_last: u32,
    /// Messages the device has handed up.
    seen: u64,
    /// Receives the device has not answered, all posted at the count `adding_seen`.
    adding: usize,
    adding_seen: u64,
    counters: ShadowCounters,
}

type Ended<T, D> = Option<Outcome<T, <D as TagOffload>::Eager, <D as TagOffload>::Offer>>;

impl<T, D: TagOffload> ShadowList<T, D> {
    /// Empty queues over a device. Receives with buffers of fewer than `min_len` bytes stay in
    /// software, where a small copy is cheaper than a command.
    #[must_use]
    pub fn new(device: D, min_len: usize) -> Self {
        Self {
            device,
            min_len,
            receives: Slab::new(),
            posted: PostedQueue::new(),
            unexpected: UnexpectedQueue::new(),
            kept: Overlaps::new(),
            waiting: Overlaps::new(),
            waiting_first: NIL,
            waiting_last: NIL,
            seen: 0,
            adding: 0,
            adding_seen: 0,
            counters: ShadowCounters::default(),
        }
    }

    /// Posts a receive into a buffer of `len` bytes.
    pub fn receive(
        &mut self,
        pattern: Pattern,
        len: usize,
        buffer: D::Buffer,
        value: T,
    ) -> Posting<T, D::Eager, D::Offer> {
        if let Some((envelope, message)) = self.unexpected.take_match(&pattern) {
            return Posting::Matched {
                value,
                envelope,
                message,
            };
        }
        let posted = self.posted.post(pattern, NIL);
        let slot = self.receives.insert(Receive {
            pattern,
            buffer,
            len,
            value,
            posted,
            place: Place::Kept,
            prev: NIL,
            next: NIL,
        });
        *self.posted.get_mut(posted).expect("just posted") = slot;
        self.place(slot);
        Posting::Posted(self.id(slot))
    }

    /// Cancels a receive, at once if it is in software.
    pub fn cancel(&mut self, id: ReceiveId) -> Cancel<T> {
        let Some(slot) = self.receives.resolve(id.0) else {
            return Cancel::TooLate;
        };
        let added = match self.receives.get(slot).place {
            Place::Kept | Place::Waiting => {
                self.posted.cancel(self.receives.get(slot).posted);
                let value = self.leave(slot);
                self.promote();
                return Cancel::Done(value);
            }
            Place::Adding => false,
            Place::Listed => true,
            Place::Cancelling { .. } => return Cancel::Started,
            Place::Consumed => return Cancel::TooLate,
        };
        self.device.cancel(id, false);
        self.receives.get_mut(slot).place = Place::Cancelling { added };
        Cancel::Started
    }

    /// Takes one event from the device. `None` if there is none; otherwise what it ended, if it
    /// ended something.
    ///
    /// # Errors
    ///
    /// [`Breach`] if the device breaks its promises. Order is lost then; the device is of no use.
    pub fn progress(&mut self) -> Result<Option<Ended<T, D>>, Breach> {
        let Some(event) = self.device.poll() else {
            return Ok(None);
        };
        let ended = self.handle(event)?;
        self.promote();
        Ok(Some(ended))
    }

    /// The messages that wait for receives, for probes.
    #[must_use]
    pub fn unexpected(&self) -> &UnexpectedQueue<Message<D::Eager, D::Offer>> {
        &self.unexpected
    }

    /// Takes a message that a probe has found.
    pub fn take(&mut self, id: UnexpectedId) -> Option<(Envelope, Message<D::Eager, D::Offer>)> {
        self.unexpected.take(id)
    }

    /// The receives that have not ended, earliest first. For diagnostics: it sorts, and allocates.
    pub fn iter(&self) -> impl Iterator<Item = (ReceiveId, &Pattern, &T)> {
        self.receives.in_order().into_iter().map(|slot| {
            let receive = self.receives.get(slot);
            (self.id(slot), &receive.pattern, &receive.value)
        })
    }

    /// How many receives have not ended.
    #[must_use]
    pub fn len(&self) -> usize {
        self.receives.len()
    }

    /// Whether every receive has ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.receives.is_empty()
    }

    /// How many of them are in software only.
    #[must_use]
    pub fn in_software(&self) -> usize {
        self.kept.len() + self.waiting.len()
    }

    /// What has happened so far.
    #[must_use]
    pub const fn counters(&self) -> &ShadowCounters {
        &self.counters
    }

    /// The device.
    #[must_use]
    pub const fn device(&self) -> &D {
        &self.device
    }

    /// The device, to send with it or to step it. Posting, cancelling and polling are this list's.
    pub const fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    fn handle(&mut self, event: Event<D::Eager, D::Offer>) -> Result<Ended<T, D>, Breach> {
        match event {
            Event::Added(id) => self.added(id).map(|()| None),
            Event::Refused(id) => Ok(self.refused(id)),
            Event::Consumed { receive, .. } => self.consumed("consumed", receive).map(|_| None),
            Event::Completed {
                receive,
                envelope,
                len,
                inline,
            } => {
                let slot = self.consumed("completed", receive)?;
                let value = self.receives.remove(slot).value;
                Ok(Some(Outcome::Delivered {
                    value,
                    envelope,
                    len,
                    inline,
                }))
            }
            Event::Offered {
                receive,
                envelope,
                offer,
            } => {
                let slot = self.consumed("offered", receive)?;
                let value = self.receives.remove(slot).value;
                Ok(Some(Outcome::Matched {
                    value,
                    envelope,
                    message: Message::Rendezvous(offer),
                }))
            }
            Event::Unexpected { envelope, message } => self.handed_up(envelope, message),
            Event::Cancelled(id) => self.cancelled(id),
        }
    }

    fn added(&mut self, id: ReceiveId) -> Result<(), Breach> {
        self.adding = self.adding.saturating_sub(1);
        let slot = self.resolve("added", id)?;
        let place = &mut self.receives.get_mut(slot).place;
        *place = match *place {
            Place::Adding => Place::Listed,
            Place::Cancelling { added: false } => Place::Cancelling { added: true },
            _ => return Err(not_with_device("added", id)),
        };
        Ok(())
    }

    /// The device has not taken a receive after all. It stays in software until a message takes
    /// it: the message that passed by may well be its own.
    fn refused(&mut self, id: ReceiveId) -> Ended<T, D> {
        self.adding = self.adding.saturating_sub(1);
        self.counters.refused += 1;
        // Gone if the message that passed by has taken it.
        let slot = self.receives.resolve(id.0)?;
        let receive = self.receives.get(slot);
        if matches!(receive.place, Place::Cancelling { .. }) {
            self.posted.cancel(receive.posted);
            return Some(Outcome::Cancelled(self.receives.remove(slot).value));
        }
        self.keep(slot);
        None
    }

    fn consumed(&mut self, event: &'static str, id: ReceiveId) -> Result<u32, Breach> {
        let slot = self.resolve(event, id)?;
        let receive = self.receives.get_mut(slot);
        match receive.place {
            Place::Consumed => {}
            Place::Listed | Place::Cancelling { added: true } => {
                receive.place = Place::Consumed;
                self.counters.matched += 1;
                self.posted.cancel(receive.posted);
            }
            _ => return Err(not_with_device(event, id)),
        }
        Ok(slot)
    }

    fn cancelled(&mut self, id: ReceiveId) -> Result<Ended<T, D>, Breach> {
        let slot = self.resolve("cancelled", id)?;
        let receive = self.receives.get(slot);
        if receive.place != (Place::Cancelling { added: true }) {
            return Err(not_with_device("cancelled", id));
        }
        self.posted.cancel(receive.posted);
        let value = self.receives.remove(slot).value;
        Ok(Some(Outcome::Cancelled(value)))
    }

    /// A message the device had nothing for: software matches it.
    fn handed_up(
        &mut self,
        envelope: Envelope,
        message: Message<D::Eager, D::Offer>,
    ) -> Result<Ended<T, D>, Breach> {
        self.seen += 1;
        let Some(slot) = self.posted.match_arrival(&envelope) else {
            self.unexpected.push(envelope, message);
            return Ok(None);
        };
        let id = self.id(slot);
        let value = match self.receives.get(slot).place {
            Place::Kept | Place::Waiting => self.leave(slot),
            // On its way to the device, which will refuse it: the message was handed up first.
            Place::Adding | Place::Cancelling { added: false } => {
                self.counters.raced += 1;
                self.device.cancel(id, true);
                self.receives.remove(slot).value
            }
            Place::Listed | Place::Cancelling { added: true } | Place::Consumed => {
                let receive = id.to_bits();
                return Err(Breach::NotMatched { envelope, receive });
            }
        };
        Ok(Some(Outcome::Matched {
            value,
            envelope,
            message,
        }))
    }

    /// Decides where a new receive goes.
    fn place(&mut self, slot: u32) {
        let receive = self.receives.get(slot);
        let pattern = receive.pattern;
        if receive.len < self.min_len || !self.device.caps().admits(&pattern, receive.len) {
            self.counters.unsupported += 1;
            self.keep(slot);
        } else if self.kept.any(&pattern) || self.waiting.any(&pattern) {
            self.counters.blocked += 1;
            self.wait(slot);
        } else if !self.epoch_allows() {
            self.counters.held_by_epoch += 1;
            self.wait(slot);
        } else {
            match self.post(slot) {
                Ok(()) => {}
                Err(Refusal::NoRoom) => self.wait(slot),
                Err(Refusal::Unsupported) => self.keep(slot),
            }
        }
    }

    /// Whether whatever the device has not answered was posted at the present count.
    fn epoch_allows(&self) -> bool {
        self.adding == 0 || self.adding_seen == self.seen
    }

    fn post(&mut self, slot: u32) -> Result<(), Refusal> {
        let id = self.id(slot);
        let receive = self.receives.get_mut(slot);
        let result = self.device.post(
            id,
            &receive.pattern,
            &receive.buffer,
            receive.len,
            self.seen,
        );
        match result {
            Ok(()) => {
                receive.place = Place::Adding;
                self.adding += 1;
                self.adding_seen = self.seen;
                self.counters.posted += 1;
            }
            Err(Refusal::NoRoom) => self.counters.no_room += 1,
            Err(Refusal::Unsupported) => self.counters.unsupported += 1,
        }
        result
    }

    /// Gives waiting receives to the device, oldest first, for as long as nothing is in the way.
    fn promote(&mut self) {
        while self.waiting_first != NIL && self.epoch_allows() {
            let slot = self.waiting_first;
            if self.kept.any(&self.receives.get(slot).pattern) {
                return;
            }
            match self.post(slot) {
                Ok(()) => self.unlink_waiting(slot),
                Err(Refusal::NoRoom) => return,
                Err(Refusal::Unsupported) => {
                    self.unlink_waiting(slot);
                    self.keep(slot);
                }
            }
        }
    }

    fn keep(&mut self, slot: u32) {
        let receive = self.receives.get_mut(slot);
        receive.place = Place::Kept;
        self.kept.add(&receive.pattern);
    }

    fn wait(&mut self, slot: u32) {
        let last = std::mem::replace(&mut self.waiting_last, slot);
        let receive = self.receives.get_mut(slot);
        receive.place = Place::Waiting;
        receive.prev = last;
        self.waiting.add(&receive.pattern);
        if last == NIL {
            self.waiting_first = slot;
        } else {
            self.receives.get_mut(last).next = slot;
        }
    }

    fn unlink_waiting(&mut self, slot: u32) {
        let receive = self.receives.get_mut(slot);
        let prev = std::mem::replace(&mut receive.prev, NIL);
        let next = std::mem::replace(&mut receive.next, NIL);
        self.waiting.remove(&receive.pattern);
        if prev == NIL {
            self.waiting_first = next;
        } else {
            self.receives.get_mut(prev).next = next;
        }
        if next == NIL {
            self.waiting_last = prev;
        } else {
            self.receives.get_mut(next).prev = prev;
        }
    }

    /// Ends a receive that is in software and has left the posted queue.
    fn leave(&mut self, slot: u32) -> T {
        let receive = self.receives.get(slot);
        if receive.place == Place::Waiting {
            self.unlink_waiting(slot);
        } else {
            self.kept.remove(&receive.pattern);
        }
        self.receives.remove(slot).value
    }

    fn id(&self, slot: u32) -> ReceiveId {
        ReceiveId(self.receives.id(slot))
    }

    fn resolve(&self, event: &'static str, id: ReceiveId) -> Result<u32, Breach> {
        let slot = self.receives.resolve(id.0);
        slot.ok_or_else(|| not_with_device(event, id))
    }
}

fn not_with_device(event: &'static str, id: ReceiveId) -> Breach {
    Breach::NotWithDevice {
        event,
        receive: id.to_bits(),
    }
}
