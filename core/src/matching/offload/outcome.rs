//! What the shadow list reports to its caller.

use super::device::{Message, ReceiveId};
use crate::matching::envelope::Envelope;

/// The outcome of posting a receive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Posting<T, E, O> {
    /// This message had been waiting.
    Matched {
        /// The receive's value.
        value: T,
        /// The message's envelope.
        envelope: Envelope,
        /// The message, whose bytes the caller moves.
        message: Message<E, O>,
    },
    /// The receive waits, in software or in the card.
    /// [`ShadowList::progress`](super::ShadowList::progress) will return its outcome.
    Posted(ReceiveId),
}

/// How a posted receive ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome<T, E, O> {
    /// The card has put a message into the receive's buffer.
    Delivered {
        /// The receive's value.
        value: T,
        /// The message's envelope.
        envelope: Envelope,
        /// The message's length in bytes. It may be longer than the buffer.
        len: usize,
        /// Data that must still be copied to the buffer.
        inline: Option<E>,
    },
    /// A message has matched. The caller moves its bytes.
    Matched {
        /// The receive's value.
        value: T,
        /// The message's envelope.
        envelope: Envelope,
        /// The message.
        message: Message<E, O>,
    },
    /// The receive was cancelled, as requested by
    /// [`ShadowList::cancel`](super::ShadowList::cancel).
    Cancelled(T),
}

/// The outcome of a request to cancel.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Cancel<T> {
    /// The receive was in software and has been removed.
    Done(T),
    /// The card has been asked. The receive's outcome tells whether the cancel or a message came
    /// first.
    Started,
    /// A message has taken the receive. The receive's outcome says so, or has said so.
    TooLate,
}

/// A card broke a promise of [`TagOffload`](super::TagOffload), so messages may be out of order.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Breach {
    /// It reported on a receive that it does not have.
    #[error(
        "the tag-matching device reported {event} for receive {receive:#x}, which is not with it: \
         messages may be out of order; switch tag-matching offload off on this device"
    )]
    NotWithDevice {
        /// The event that it reported.
        event: &'static str,
        /// [`ReceiveId::to_bits`] of the receive.
        receive: u64,
    },
    /// It gave a message to a receive although an earlier receive matches it.
    #[error(
        "the tag-matching device gave the message with tag {} from rank {} to receive \
         {receive:#x} although an earlier one matches it; switch tag-matching offload off on this \
         device", .envelope.tag, .envelope.source
    )]
    Overtaken {
        /// The message's envelope.
        envelope: Envelope,
        /// [`ReceiveId::to_bits`] of the receive that got it.
        receive: u64,
    },
    /// It handed up a message although a receive in its list matches it.
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

/// Counts of events, for diagnostics and for choosing settings.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct ShadowCounters {
    /// Receives given to the card.
    pub posted: u64,
    /// Receives that a message took in the card.
    pub matched: u64,
    /// Receives that the card refused because a message was passing by.
    pub refused: u64,
    /// Receives on their way to the card that a handed-up message matched first.
    pub raced: u64,
    /// Receives that had to wait because an earlier receive that overlaps was in software.
    pub blocked: u64,
    /// Receives that had to wait until the card answered receives posted at an earlier count.
    pub held_by_epoch: u64,
    /// Receives that had to wait for room in the card's list.
    pub no_room: u64,
    /// Receives that the card cannot hold.
    pub unsupported: u64,
}
