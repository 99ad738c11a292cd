//! Messages that have arrived before their receive: how they are stored, and how their memory is
//! bounded.
//!
//! Once the stored messages exceed `PORTOLAN_UNEXPECTED_MAX`, peers are told to hold: from then on
//! they announce every message and keep its data, so a slow receiver costs time, never the job.
//! Messages on their way when a peer is told to hold still arrive. They amount to at most what the
//! transport holds per peer, and the rest of a message that has begun.

use crate::engine::short::outgoing::Peer;
use crate::engine::state::Proto;
use crate::error::{ErrorKind, Result};
use crate::matching::Envelope;
use crate::transport::{Exposure, Header, PacketKind, Payload};

/// A message without a receive.
#[derive(Debug)]
pub(in crate::engine) enum Arrived {
    /// All of its data is here.
    Eager {
        peer: u32,
        header: Header,
        data: Stored,
    },
    /// Its data is still with the sender.
    Offer {
        peer: u32,
        header: Header,
        body: OfferBody,
        taken: bool,
    },
    /// This rank sent it to itself; the data is in the buffer of this send.
    Looped {
        send: u32,
        header: Header,
        bytes: usize,
    },
}

impl Arrived {
    /// Bytes of the message.
    pub(in crate::engine) fn bytes(&self) -> u64 {
        match self {
            Self::Eager { data, .. } => data.len() as u64,
            Self::Offer { body, .. } => body.total,
            Self::Looped { bytes, .. } => *bytes as u64,
        }
    }
}

/// The data of a stored message: in place if it is small, so that storing it allocates nothing.
pub(in crate::engine) enum Stored {
    Inline(u8, [u8; INLINE]),
    Heap(Box<[u8]>),
}

/// Largest message that is stored in place.
const INLINE: usize = 39;

impl Stored {
    pub(in crate::engine) fn new(payload: Payload<'_>) -> Self {
        let len = payload.len();
        if len > INLINE {
            return Self::Heap(payload.to_vec().into());
        }
        let mut bytes = [0_u8; INLINE];
        // SAFETY: the payload has `len` readable bytes and the array is fresh and long enough.
        unsafe { payload.copy_to(bytes.as_mut_ptr(), len) };
        Self::Inline(len as u8, bytes)
    }

    pub(in crate::engine) fn len(&self) -> usize {
        self.bytes().len()
    }

    pub(in crate::engine) fn bytes(&self) -> &[u8] {
        match self {
            Self::Inline(len, bytes) => &bytes[..usize::from(*len)],
            Self::Heap(bytes) => bytes,
        }
    }

    fn heap(&self) -> usize {
        match self {
            Self::Inline(..) => 0,
            Self::Heap(bytes) => bytes.len(),
        }
    }
}

impl std::fmt::Debug for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stored({} bytes)", self.len())
    }
}

/// Memory that one stored message takes besides its data.
const OVERHEAD: usize = size_of::<Arrived>() + 64;

/// What an offer contains besides its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct OfferBody {
    pub(in crate::engine) total: u64,
    pub(in crate::engine) word: Option<u32>,
    pub(in crate::engine) exposure: Option<Exposure>,
}

impl OfferBody {
    const LEN: usize = 8 + 8 + 32;
    /// Length if only the first word of the exposure is not zero. So short an offer fits into one
    /// cache line with its header.
    const LEN_SHORT: usize = 8 + 8 + 8;

    /// The body, and how many of its bytes are sent.
    pub(in crate::engine) fn to_bytes(self) -> ([u8; Self::LEN], usize) {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.total.to_le_bytes());
        let word = self.word.map_or(0, |word| u64::from(word) + 1);
        bytes[8..16].copy_from_slice(&word.to_le_bytes());
        if let Some(exposure) = self.exposure {
            bytes[16..].copy_from_slice(&exposure.0);
        }
        let short = bytes[Self::LEN_SHORT..] == [0; Self::LEN - Self::LEN_SHORT];
        (bytes, if short { Self::LEN_SHORT } else { Self::LEN })
    }

    /// The body as a peer sent it; `None` if it is too short or its word is not valid.
    pub(in crate::engine) fn parse(payload: Payload<'_>, exposed: bool) -> Option<Self> {
        let mut bytes = [0; Self::LEN];
        if payload.len() == Self::LEN_SHORT {
            bytes[..Self::LEN_SHORT].copy_from_slice(&payload.first::<{ Self::LEN_SHORT }>()?);
        } else {
            bytes = payload.first()?;
        }
        let field = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let word = match field(8) {
            0 => None,
            word => Some(u32::try_from(word - 1).ok()?),
        };
        let exposure = Exposure(bytes[16..].try_into().expect("32 bytes"));
        Some(Self {
            total: field(0),
            word,
            exposure: exposed.then_some(exposure),
        })
    }
}

/// Messages that a matched probe has taken out of matching, until they are received.
#[derive(Debug, Default)]
pub(in crate::engine) struct Taken {
    slots: Vec<(u32, Option<(Envelope, Arrived)>)>,
    free: Vec<u32>,
}

impl Taken {
    /// Stores a message and returns its handle, which is never 0.
    pub(in crate::engine) fn keep(&mut self, envelope: Envelope, arrived: Arrived) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((1, None));
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.1 = Some((envelope, arrived));
        u64::from(slot.0) << 32 | u64::from(index)
    }

    /// Removes and returns the message of a handle, which is stale afterwards.
    pub(in crate::engine) fn release(&mut self, handle: u64) -> Option<(Envelope, Arrived)> {
        let index = handle as u32;
        let slot = self.slots.get_mut(index as usize)?;
        if slot.0 != (handle >> 32) as u32 {
            return None;
        }
        let message = slot.1.take()?;
        slot.0 = slot.0.wrapping_add(1).max(1);
        self.free.push(index);
        Some(message)
    }

    pub(in crate::engine) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl Proto {
    /// Stores a message that no receive was posted for.
    #[cold]
    #[inline(never)]
    pub(in crate::engine) fn store(&mut self, peer: u32, header: &Header, data: Stored) {
        self.counters.unexpected += 1;
        if header.flags & crate::transport::packet::flags::READY != 0 {
            self.counters.ready_unposted += 1;
        }
        self.stored_bytes += data.heap() + OVERHEAD;
        if self.stored_bytes > self.stored_max {
            self.hold(peer);
        }
        self.unexpected.push(
            envelope(header),
            Arrived::Eager {
                peer,
                header: *header,
                data,
            },
        );
        self.shared.tell();
    }

    /// Updates the accounts for a stored message that leaves the queue.
    pub(in crate::engine) fn unstore(&mut self, arrived: &Arrived) {
        if let Arrived::Eager { data, .. } = arrived {
            self.stored_bytes -= data.heap() + OVERHEAD;
            if !self.holding.is_empty() && self.stored_bytes <= self.stored_max / 2 {
                self.resume();
            }
        }
    }

    /// Tells a peer to announce its messages instead of sending them.
    fn hold(&mut self, peer: u32) {
        if peer == self.me || self.holding.contains(&peer) {
            return;
        }
        self.holding.push(peer);
        self.counters.holds += 1;
        self.queue_control(peer, hold_header(1), &[]);
    }

    #[cold]
    fn resume(&mut self) {
        for peer in std::mem::take(&mut self.holding) {
            self.queue_control(peer, hold_header(0), &[]);
        }
    }

    /// A peer tells this rank to hold, or to resume.
    pub(in crate::engine) fn held_by(&mut self, peer: u32, header: &Header) {
        let flags = &mut self.peers[peer as usize].flags;
        if header.cookie == 0 {
            *flags &= !Peer::HOLD;
        } else {
            *flags |= Peer::HOLD;
        }
    }

    /// Removes a message by its matched-probe handle.
    pub(in crate::engine) fn release_taken(&mut self, handle: u64) -> Result<(Envelope, Arrived)> {
        self.taken.release(handle).ok_or_else(|| {
            self.error(
                ErrorKind::InvalidRequest,
                format!("message handle {handle:#x} is not of a message that waits"),
                "receive or discard a taken message once",
            )
        })
    }
}

fn hold_header(cookie: u32) -> Header {
    Header {
        kind: PacketKind::Hold as u8,
        cookie,
        ..Header::default()
    }
}

/// The envelope in a header.
#[inline]
pub(in crate::engine) fn envelope(header: &Header) -> Envelope {
    Envelope {
        context: header.context,
        source: header.source,
        tag: header.tag,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_survive_the_wire() {
        let body = OfferBody {
            total: 1 << 40,
            word: Some(0),
            exposure: Some(Exposure([7; 32])),
        };
        let (bytes, len) = body.to_bytes();
        assert_eq!(len, bytes.len());
        assert_eq!(
            OfferBody::parse(Payload::from_slice(&bytes), true),
            Some(body)
        );
        assert_eq!(
            OfferBody::parse(Payload::from_slice(&bytes[..40]), true),
            None
        );
        let plain = OfferBody {
            word: None,
            exposure: None,
            ..body
        };
        let mut first = [0; 32];
        first[7] = 1;
        let short = OfferBody {
            exposure: Some(Exposure(first)),
            ..body
        };
        for (body, exposed) in [(plain, false), (short, true)] {
            let (bytes, len) = body.to_bytes();
            assert_eq!(len, OfferBody::LEN_SHORT);
            let payload = Payload::from_slice(&bytes[..len]);
            assert_eq!(OfferBody::parse(payload, exposed), Some(body));
        }
    }

    #[test]
    fn taken_messages_are_released_once() {
        let mut taken = Taken::default();
        let envelope = Envelope {
            context: 1,
            source: 2,
            tag: 3,
        };
        let arrived = Arrived::Looped {
            send: 0,
            header: Header::default(),
            bytes: 0,
        };
        let handle = taken.keep(envelope, arrived);
        assert!(taken.release(handle).is_some());
        assert!(taken.release(handle).is_none());
        assert_eq!(taken.len(), 0);
    }
}
