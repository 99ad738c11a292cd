//! What a card with tag matching offers, and the promises that it must keep.

use crate::matching::envelope::{Envelope, Pattern};
use crate::matching::slab::Id;

/// Names one posting of one receive, to the card and to the caller of the shadow list.
///
/// An id is not used again for another receive (until 2³² receives later).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct ReceiveId(pub(super) Id);

impl ReceiveId {
    /// The id as a word that a foreign library can carry for its caller.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// The id that [`to_bits`](Self::to_bits) turned into this word.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(Id::from_bits(bits))
    }
}

/// What a card's list can hold.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct OffloadCaps {
    /// Number of receives that the list holds. [`Refusal::NoRoom`] is authoritative.
    pub list_size: usize,
    /// Length of the shortest buffer that it takes, in bytes.
    pub min_len: usize,
    /// Length of the longest buffer that it takes, in bytes.
    pub max_len: usize,
    /// Whether it can match receives from any source.
    pub any_source: bool,
    /// Whether it can match receives with any tag.
    pub any_tag: bool,
}

impl OffloadCaps {
    /// A card without limits; a base for struct update syntax.
    pub const ALL: Self = Self {
        list_size: usize::MAX,
        min_len: 0,
        max_len: usize::MAX,
        any_source: true,
        any_tag: true,
    };

    /// Whether the card could hold such a receive if it had room.
    #[must_use]
    pub const fn admits(&self, pattern: &Pattern, len: usize) -> bool {
        self.min_len <= len
            && len <= self.max_len
            && (self.any_source || pattern.source.is_some())
            && (self.any_tag || pattern.tag.is_some())
    }
}

/// Why a card did not take a receive. The receive then stays in software.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The list, or the queue of commands to it, is full. Trying again later may succeed.
    NoRoom,
    /// The card can never take this receive: its memory is not registered, is in the list already,
    /// or is of a kind that the card cannot write.
    Unsupported,
}

/// A message whose bytes the software still has to move.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message<E, O> {
    /// The data came with the envelope.
    Eager(E),
    /// The software fetches the data from the sender, with this offer.
    Rendezvous(O),
}

/// An event that a card reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<E, O> {
    /// The list now holds this receive.
    Added(ReceiveId),
    /// The list has not taken this receive, because the card had handed up more messages than the
    /// software had seen when it posted the receive. The receive's last event.
    Refused(ReceiveId),
    /// A message has matched this receive, which is no longer in the list.
    Consumed {
        /// The receive.
        receive: ReceiveId,
        /// The message's envelope.
        envelope: Envelope,
    },
    /// The message is in the receive's buffer. The receive's last event.
    Completed {
        /// The receive.
        receive: ReceiveId,
        /// The message's envelope.
        envelope: Envelope,
        /// The message's length in bytes. If it is longer than the buffer, the rest is lost.
        len: usize,
        /// Data that came with the completion itself and must still be copied to the buffer.
        inline: Option<E>,
    },
    /// The receive has matched a rendezvous that the card leaves to the software. The receive's
    /// last event.
    Offered {
        /// The receive.
        receive: ReceiveId,
        /// The message's envelope.
        envelope: Envelope,
        /// How to fetch the data.
        offer: O,
    },
    /// A message matched nothing in the list and is handed up to the software.
    Unexpected {
        /// The message's envelope.
        envelope: Envelope,
        /// The message.
        message: Message<E, O>,
    },
    /// This receive has left the list without a match, as requested. The receive's last event.
    Cancelled(ReceiveId),
}

/// A card that matches messages with receives in a list of its own.
///
/// Posting and cancelling are commands: the calls return before the card has carried them out. The
/// shadow list relies on these promises:
///
/// * The card carries out commands in the order in which they were given, and reports events in the
///   order in which they happened.
/// * A message gets the first receive in the list that matches. It is handed up only if none
///   matches.
/// * **The handshake.** The card counts the messages that it hands up. It adds a receive to its
///   list only if its count equals [`seen`](Self::post), the software's count when it posted the
///   receive. Otherwise it answers [`Event::Refused`]. So a receive never enters the list while an
///   earlier message that might match it is on its way to the software.
/// * Each receive that the card took is answered by `Added` or `Refused`. An added receive ends
///   with exactly one of `Completed`, `Offered` (either may follow a `Consumed`, if the card
///   reports it) and `Cancelled`. After a forced cancel there is none of these.
pub trait TagOffload {
    /// The destination of a receive's message: an address and the key of its registration, say.
    type Buffer;
    /// The data of an eager message.
    type Eager;
    /// What the software needs to fetch the data of a rendezvous.
    type Offer;

    /// What the card's list can hold. Never changes.
    fn caps(&self) -> OffloadCaps;

    /// Asks the card to add a receive at the end of its list.
    ///
    /// The buffer has `len` bytes and belongs to the card until the receive's last event. `seen` is
    /// the number of [`Event::Unexpected`] polled so far.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the card does not take the command; no event will follow.
    fn post(
        &mut self,
        receive: ReceiveId,
        pattern: &Pattern,
        buffer: &Self::Buffer,
        len: usize,
        seen: u64,
    ) -> Result<(), Refusal>;

    /// Asks the card to remove a receive from its list.
    ///
    /// This races with messages. If a message has matched the receive, or the card refused it, the
    /// cancel does nothing and is not answered. Otherwise the answer is [`Event::Cancelled`]. With
    /// `force`, the caller knows that no message can match the receive any more, and forgets it:
    /// there is no answer.
    fn cancel(&mut self, receive: ReceiveId, force: bool);

    /// The next event, if there is one.
    fn poll(&mut self) -> Option<Event<Self::Eager, Self::Offer>>;
}
