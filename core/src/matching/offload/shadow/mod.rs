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

use super::device::{Message, ReceiveId, TagOffload};
use super::outcome::{Breach, Cancel, Outcome, Posting, ShadowCounters};
use super::overlap::Overlaps;
use crate::matching::envelope::{Envelope, Pattern};
use crate::matching::posted::{PostedId, PostedQueue};
use crate::matching::slab::{NIL, Slab};
use crate::matching::unexpected::{UnexpectedId, UnexpectedQueue};

mod events;
mod placing;

/// Where a receive is, besides the software's posted queue.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Place {
    /// In software until a message takes it: the device cannot hold it.
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

/// The posted and unexpected queues of a rank whose device matches too.
///
/// Every message must come through the device; a message by another way could be meant for a
/// receive that the device is about to fill.
pub struct ShadowList<T, D: TagOffload> {
    device: D,
    min_len: usize,
    receives: Slab<Receive<T, D::Buffer>>,
    posted: PostedQueue<u32>,
    unexpected: UnexpectedQueue<Handed<D>>,
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

/// A message that a device has handed up.
type Handed<D> = Message<<D as TagOffload>::Eager, <D as TagOffload>::Offer>;

/// What an event ended, if it ended something.
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
    pub fn unexpected(&self) -> &UnexpectedQueue<Handed<D>> {
        &self.unexpected
    }

    /// Takes a message that a probe has found.
    pub fn take(&mut self, id: UnexpectedId) -> Option<(Envelope, Handed<D>)> {
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
