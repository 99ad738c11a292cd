//! The state that a PE keeps about a peer.

use std::collections::VecDeque;

use super::header::{Inbound, Label, Outbound};
use super::place::Places;
use super::queue::{Position, Reader, Writer};

/// Queues to and from one peer.
#[derive(Clone, Debug, Hash)]
pub(super) struct Peer {
    /// The queue of headers that the peer sends: `smsg[peer]`.
    pub(super) smsg: Reader,
    /// The queue of headers that the peer writes as a receiver: `rmsg[peer]`.
    pub(super) rmsg: Reader,
    /// The `smsg` queue of this PE in the peer's memory.
    pub(super) to_smsg: Writer,
    /// The `rmsg` queue of this PE in the peer's memory.
    pub(super) to_rmsg: Writer,
    /// Sends that `MP_ASend` has left to `MP_Wait`, in order.
    pub(super) pending: VecDeque<u32>,
    /// `slog[peer]`: sends that have left, and that may still match a prepost made in the gap.
    pub(super) log: VecDeque<Logged>,
    /// Headers for `rmsg` that wait for room.
    pub(super) owed: VecDeque<Outbound>,
    /// Answers to the peer, for `smsg`, that wait for room (extension).
    pub(super) replies: VecDeque<Inbound>,
    /// Parts of announced messages that wait for room in the queue (extension).
    pub(super) takes: VecDeque<Take>,
    /// The number of receives that are preposted at the peer.
    pub(super) preposts: u32,
    /// The peer is dead (extension).
    pub(super) failed: bool,
}

/// A receiver's request for a part of an announced message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Take {
    pub(super) message: u32,
    pub(super) at: u64,
    pub(super) room: u32,
    pub(super) receive: u32,
}

/// An entry of the send log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Logged {
    /// A message that left in its header, at this position of the queue. Cleared when the receiver
    /// has seen that position.
    Small { label: Label, position: Position },
    /// A message that waits in a send buffer. Cleared by the `recv_done` signal.
    Buffered {
        label: Label,
        at: u64,
        len: u64,
        /// The synchronous send, if it is one, which is complete only then.
        synchronous: Option<u32>,
    },
    /// A message that was announced at this position of the queue (extension). Cleared when its
    /// receiver has all that it wants.
    Announced {
        label: Label,
        position: Position,
        /// Bytes that the receiver has taken.
        taken: u64,
        /// The send; `None` once it has ended without its receiver.
        send: Option<u32>,
    },
    /// One of the device's own packets, in a buffer (extension). Matches nothing.
    Packet { at: u64 },
}

impl Logged {
    /// The label that a prepost would have to match.
    pub(super) fn label(&self) -> Option<Label> {
        match *self {
            Self::Small { label, .. }
            | Self::Buffered { label, .. }
            | Self::Announced { label, .. } => Some(label),
            Self::Packet { .. } => None,
        }
    }

    /// The send buffer of the entry.
    pub(super) fn buffer(&self) -> Option<u64> {
        match *self {
            Self::Small { .. } | Self::Announced { .. } => None,
            Self::Buffered { at, .. } | Self::Packet { at } => Some(at),
        }
    }
}

impl Peer {
    pub(super) fn new(me: u32, peer: u32, places: &Places) -> Self {
        let queue = places.queue;
        Self {
            smsg: Reader::new(places.smsg(peer), queue),
            rmsg: Reader::new(places.rmsg(peer), queue),
            to_smsg: Writer::new(places.smsg(me), queue, places.smsg_told(peer)),
            to_rmsg: Writer::new(places.rmsg(me), queue, places.rmsg_told(peer)),
            pending: VecDeque::new(),
            log: VecDeque::new(),
            owed: VecDeque::new(),
            replies: VecDeque::new(),
            takes: VecDeque::new(),
            preposts: 0,
            failed: false,
        }
    }

    /// Whether nothing waits to be sent to this peer.
    pub(super) fn is_idle(&self) -> bool {
        let quiet = self.owed.is_empty() && self.replies.is_empty() && self.takes.is_empty();
        quiet && self.pending.is_empty()
    }

    /// Forgets a send that has ended although it still waits or has not been received.
    pub(super) fn forget_send(&mut self, id: u32) {
        self.pending.retain(|&pending| pending != id);
        for entry in &mut self.log {
            match entry {
                Logged::Buffered {
                    synchronous: send, ..
                }
                | Logged::Announced { send, .. }
                    if *send == Some(id) =>
                {
                    *send = None;
                }
                _ => {}
            }
        }
    }

    /// Forgets the small messages among the first `seen` headers, which the peer has seen: a
    /// prepost that the peer writes from then on cannot be meant for them.
    pub(super) fn clear_seen(&mut self, seen: u16) {
        self.log.retain(|entry| match entry {
            Logged::Small { position, .. } => {
                // Fewer than 2^15 headers are under way, so the low halves are enough.
                (seen.wrapping_sub(*position as u16) as i16) <= 0
            }
            _ => true,
        });
    }

    /// The same by a full position.
    pub(super) fn clear_deleted(&mut self, told: Position) {
        self.log.retain(|entry| match entry {
            Logged::Small { position, .. } => told.wrapping_sub(*position).cast_signed() <= 0,
            _ => true,
        });
    }
}
