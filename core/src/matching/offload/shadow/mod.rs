//! The shadow list: the software decides, and the card never gets ahead of it.
//!
//! Every receive is in the software's posted queue until a message takes it, wherever else it may
//! be. Two rules keep the card's list consistent with that queue.
//!
//! 1. **Order.** A receive is posted to the card only if no receive that overlaps it is kept back
//!    in software. Otherwise the receive would overtake an earlier one. There cannot be later ones,
//!    because the receive is either the newest, or the oldest of those that wait.
//! 2. **Epochs.** All receives whose `Added` is outstanding were posted at the same count of
//!    messages seen. When a message is handed up, the count changes, and nothing more is posted
//!    until those receives are answered. They may be refused, and in that case nothing may have
//!    overtaken them.
//!
//! A message that is handed up is matched in software. If it matches a receive on its way to the
//! card, the handshake ([`TagOffload`]) ensures that the card will refuse that receive. So the
//! receive gets the message at once.
//!
//! Budget: a receive or an event costs a constant number of hash buckets, and no allocation once
//! the working size has been reached.

use super::device::{Message, ReceiveId, TagOffload};
use super::outcome::{Breach, Cancel, Outcome, Posting, ShadowCounters};
use super::overlap::Overlaps;
use crate::matching::envelope::{Envelope, Pattern};
use crate::matching::posted::{PostedId, PostedQueue};
use crate::matching::slab::{NIL, Slab};
use crate::matching::unexpected::{UnexpectedId, UnexpectedQueue};

mod events;
mod placing;

/// Where a receive is, in addition to the software's posted queue.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Place {
    /// In software until a message takes it, because the card cannot hold it.
    Kept,
    /// In software until the card has room and no other receive is in the way.
    Waiting,
    /// Posted to the card, which has not answered yet.
    Adding,
    /// In the card's list.
    Listed,
    /// To be removed from the card's list; `added` says whether it has entered the list.
    Cancelling { added: bool },
    /// Taken by a message whose data the card is moving; no longer in any queue.
    Consumed,
}

struct Receive<T, B> {
    pattern: Pattern,
    buffer: B,
    len: usize,
    value: T,
    posted: PostedId,
    place: Place,
    /// Neighbours in the list of waiting receives.
    prev: u32,
    next: u32,
}

/// The posted and unexpected queues of a rank whose card matches too.
///
/// Every message must come through the card. A message that comes another way could be meant for a
/// receive that the card is about to fill.
pub struct ShadowList<T, D: TagOffload> {
    device: D,
    min_len: usize,
    receives: Slab<Receive<T, D::Buffer>>,
    posted: PostedQueue<u32>,
    unexpected: UnexpectedQueue<Handed<D>>,
    /// Patterns of receives that are kept in software, and of those that wait.
    kept: Overlaps,
    waiting: Overlaps,
    waiting_first: u32,
    waiting_last: u32,
    /// Messages that the card has handed up.
    seen: u64,
    /// Receives that the card has not answered, all posted at the count `adding_seen`.
    adding: usize,
    adding_seen: u64,
    counters: ShadowCounters,
}

/// A message that a card has handed up.
type Handed<D> = Message<<D as TagOffload>::Eager, <D as TagOffload>::Offer>;

/// The receive that an event ended, if any.
type Ended<T, D> = Option<Outcome<T, <D as TagOffload>::Eager, <D as TagOffload>::Offer>>;

impl<T, D: TagOffload> ShadowList<T, D> {
    /// Empty queues on top of a card. Receives with buffers shorter than `min_len` bytes stay in
    /// software, where a small copy is cheaper than a command to the card.
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

    /// Cancels a receive, immediately if it is in software.
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

    /// Takes one event from the card; `None` if there is none. Otherwise returns the outcome of the
    /// receive that the event ended, if it ended one.
    ///
    /// # Errors
    ///
    /// [`Breach`] if the card breaks its promises. Messages may be out of order then, and the card
    /// cannot be used any more.
    pub fn progress(&mut self) -> Result<Option<Ended<T, D>>, Breach> {
        let Some(event) = self.device.poll() else {
            return Ok(None);
        };
        let ended = self.handle(event)?;
        self.promote();
        Ok(Some(ended))
    }

    /// The messages that wait for receives; used by probes.
    #[must_use]
    pub fn unexpected(&self) -> &UnexpectedQueue<Handed<D>> {
        &self.unexpected
    }

    /// Takes a message that a probe has found.
    pub fn take(&mut self, id: UnexpectedId) -> Option<(Envelope, Handed<D>)> {
        self.unexpected.take(id)
    }

    /// The receives that have not ended, earliest first. For diagnostics only: it allocates and
    /// sorts.
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

    /// How many of them are only in software.
    #[must_use]
    pub fn in_software(&self) -> usize {
        self.kept.len() + self.waiting.len()
    }

    /// Counts of what has happened so far.
    #[must_use]
    pub const fn counters(&self) -> &ShadowCounters {
        &self.counters
    }

    /// The card.
    #[must_use]
    pub const fn device(&self) -> &D {
        &self.device
    }

    /// The card, for sending through it or stepping it. Only this list may post, cancel and poll.
    pub const fn device_mut(&mut self) -> &mut D {
        &mut self.device
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
}
