//! What the shadow list tells its caller.

use super::device::{Message, ReceiveId};
use crate::matching::envelope::Envelope;

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
    /// It waits, in software or in the device; its outcome comes from
    /// [`ShadowList::progress`](super::ShadowList::progress).
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
    /// The receive was cancelled, as [`ShadowList::cancel`](super::ShadowList::cancel) had started
    /// to.
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

/// A device that did not keep the promises of [`TagOffload`](super::TagOffload): the order of
/// messages is lost.
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
    /// It gave a message to a receive although an earlier one matches it.
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
