//! What a PE keeps of one that it has to do with.

use std::collections::VecDeque;

use super::header::{Inbound, Label, Outbound};
use super::place::Places;
use super::queue::{Position, Reader, Writer};

/// Queues to and from one peer.
#[derive(Clone, Debug, Hash)]
pub(super) struct Peer {
    /// Headers that the peer sends: `smsg[peer]`.
    pub(super) smsg: Reader,
    /// Headers of what the peer receives: `rmsg[peer]`.
    pub(super) rmsg: Reader,
    /// The `smsg` queue of this PE in the peer's memory.
    pub(super) to_smsg: Writer,
    /// The `rmsg` queue of this PE in the peer's memory.
    pub(super) to_rmsg: Writer,
    /// Sends that `MP_ASend` has left to `MP_Wait`, in order.
    pub(super) pending: VecDeque<u32>,
    /// `slog[peer]`: sends that have left and may still match a prepost that was made in the gap.
    pub(super) log: VecDeque<Logged>,
    /// Headers for `rmsg` that wait for room.
    pub(super) owed: VecDeque<Outbound>,
    /// Headers for `smsg` that answer the peer and wait for room (extension).
    pub(super) replies: VecDeque<Inbound>,
    /// Parts of announced messages that wait for room in the queue (extension).
    pub(super) takes: VecDeque<Take>,
    /// Receives that are preposted at the peer.
    pub(super) preposts: u32,
    /// The peer is dead (extension).
    pub(super) failed: bool,
}

/// What a receiver wants of an announced message.
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
    /// Went in its header, at this position of the queue: cleared when the receiver has seen that.
    Small { label: Label, position: Position },
    /// Waits in a send buffer: cleared by the `recv_done` signal.
    Buffered {
        label: Label,
        at: u64,
        len: u64,
        /// The send that is complete only then.
        synchronous: Option<u32>,
    },
    /// Announced, at this position of the queue (extension): cleared when its receiver has all that
    /// it wants.
    Announced {
        label: Label,
        position: Position,
        /// Bytes that have been taken.
        taken: u64,
        /// The send; none once it has ended without its receiver.
        send: Option<u32>,
    },
    /// A packet of the device's in a buffer (extension). Matches nothing.
    Packet { at: u64 },
}

impl Logged {
    /// What a prepost would have to match.
    pub(super) fn label(&self) -> Option<Label> {
        match *self {
            Self::Small { label, .. }
            | Self::Buffered { label, .. }
            | Self::Announced { label, .. } => Some(label),
            Self::Packet { .. } => None,
        }
    }

    /// Its send buffer.
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

    /// Whether nothing waits to leave to this peer.
    pub(super) fn is_idle(&self) -> bool {
        let quiet = self.owed.is_empty() && self.replies.is_empty() && self.takes.is_empty();
        quiet && self.pending.is_empty()
    }

    /// Forgets a send that is over though it waits, or has not been received.
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

    /// Forgets small messages that the peer had seen when it had seen `seen` headers: whatever it
    /// preposts from then on cannot be for them.
    pub(super) fn clear_seen(&mut self, seen: u16) {
        self.log.retain(|entry| match entry {
            Logged::Small { position, .. } => {
                // Fewer than 2^15 headers are under way, so the low halves are enough.
                (seen.wrapping_sub(*position as u16) as i16) <= 0
            }
            _ => true,
        });
    }

    /// The same, by a whole position.
    pub(super) fn clear_deleted(&mut self, told: Position) {
        self.log.retain(|entry| match entry {
            Logged::Small { position, .. } => told.wrapping_sub(*position).cast_signed() <= 0,
            _ => true,
        });
    }
}
