//! What a card with tag matching offers, and the promises that make it usable.

use crate::matching::envelope::{Envelope, Pattern};
use crate::matching::slab::Id;

/// Names one posting of one receive, to the device and to the shadow list's caller.
///
/// It is never given out twice for different receives (short of 2³² receives in between).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct ReceiveId(pub(super) Id);

impl ReceiveId {
    /// The id as the word that a foreign library carries for its caller.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// The id that [`to_bits`](Self::to_bits) made into this word.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(Id::from_bits(bits))
    }
}

/// What a device can hold in its list.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct OffloadCaps {
    /// Receives the list holds. [`Refusal::NoRoom`] has the last word.
    pub list_size: usize,
    /// The shortest buffer it takes, in bytes.
    pub min_len: usize,
    /// The longest buffer it takes, in bytes.
    pub max_len: usize,
    /// Whether it can match receives from any source.
    pub any_source: bool,
    /// Whether it can match receives with any tag.
    pub any_tag: bool,
}

impl OffloadCaps {
    /// A device without limits; a start for struct update syntax.
    pub const ALL: Self = Self {
        list_size: usize::MAX,
        min_len: 0,
        max_len: usize::MAX,
        any_source: true,
        any_tag: true,
    };

    /// Whether the device could hold such a receive, if it had room.
    #[must_use]
    pub const fn admits(&self, pattern: &Pattern, len: usize) -> bool {
        self.min_len <= len
            && len <= self.max_len
            && (self.any_source || pattern.source.is_some())
            && (self.any_tag || pattern.tag.is_some())
    }
}

/// Why a device did not take a receive. The receive then stays with the software.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The list, or the queue of commands to it, is full: worth another try later.
    NoRoom,
    /// It will never take this receive: its memory is not registered, already in the list, or of
    /// a kind the device cannot write.
    Unsupported,
}

/// A message whose bytes the software still has to move.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message<E, O> {
    /// The data came with the envelope.
    Eager(E),
    /// The data is fetched from the sender by this offer.
    Rendezvous(O),
}

/// What a device has to tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<E, O> {
    /// The list now holds this receive.
    Added(ReceiveId),
    /// The list does not take this receive, because the device had handed up more messages than
    /// the software had seen when it posted it. The last event of the receive.
    Refused(ReceiveId),
    /// A message has matched this receive, which has left the list.
    Consumed {
        /// The receive.
        receive: ReceiveId,
        /// The message's envelope.
        envelope: Envelope,
    },
    /// The message is in the receive's buffer. The last event of the receive.
    Completed {
        /// The receive.
        receive: ReceiveId,
        /// The message's envelope.
        envelope: Envelope,
        /// The message's length in bytes. Where it is more than the buffer's, the rest is lost.
        len: usize,
        /// Data that came in the completion itself and is still to be copied to the buffer.
        inline: Option<E>,
    },
    /// The receive has matched a rendezvous that the device leaves to the software. The last event
    /// of the receive.
    Offered {
        /// The receive.
        receive: ReceiveId,
        /// The message's envelope.
        envelope: Envelope,
        /// How to fetch the data.
        offer: O,
    },
    /// A message that matched nothing in the list is handed up.
    Unexpected {
        /// The message's envelope.
        envelope: Envelope,
        /// The message.
        message: Message<E, O>,
    },
    /// This receive has left the list unmatched, as was asked. The last event of the receive.
    Cancelled(ReceiveId),
}

/// A device that matches messages with receives in a list of its own.
///
/// Posting and cancelling are commands: they return before the device has carried them out. The
/// shadow list relies on these promises:
///
/// * Commands are carried out in the order in which they were given; events are reported in the
///   order in which what they report happened.
/// * A message gets the first receive of the list that matches; it is handed up only if none does.
/// * **The handshake.** The device counts the messages that it hands up. It adds a receive to its
///   list only if [`seen`](Self::post), the software's count at the time of posting, equals its
///   own; otherwise it answers [`Event::Refused`]. So a receive never enters the list while an
///   earlier message that it might match is on its way to the software.
/// * Each receive it took is answered by `Added` or `Refused`, and if added by exactly one of
///   `Completed`, `Offered` (either of them after `Consumed`, if that is reported) and
///   `Cancelled`; by none of these after a forced cancel.
pub trait TagOffload {
    /// Where a receive's message goes: an address and the key of its registration, say.
    type Buffer;
    /// The data of an eager message.
    type Eager;
    /// What the software needs to fetch the data of a rendezvous.
    type Offer;

    /// What the device can hold. Does not change.
    fn caps(&self) -> OffloadCaps;

    /// Asks for a receive to be added at the end of the list.
    ///
    /// The buffer has `len` bytes and stays the device's until the receive's last event. `seen` is
    /// the number of [`Event::Unexpected`] polled so far.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the device does not take the command; no event will follow.
    fn post(
        &mut self,
        receive: ReceiveId,
        pattern: &Pattern,
        buffer: &Self::Buffer,
        len: usize,
        seen: u64,
    ) -> Result<(), Refusal>;

    /// Asks for a receive to be taken out of the list.
    ///
    /// It races with messages: if one has matched the receive, or the receive was refused, the
    /// cancel does nothing and is not answered; otherwise the answer is [`Event::Cancelled`].
    /// With `force` the caller knows that no message can match the receive any more and forgets
    /// it: there is no answer.
    fn cancel(&mut self, receive: ReceiveId, force: bool);

    /// The next event, if there is one.
    fn poll(&mut self) -> Option<Event<Self::Eager, Self::Offer>>;
}
