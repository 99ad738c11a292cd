//! What a rank knows about each other rank.

use std::ops::{Deref, DerefMut};

use libfabric_sys::FI_ADDR_NOTAVAIL;
use portolan_core::transport::Header;

/// Most packets of a pair that may be under way: sent, but not known to have been delivered. It
/// bounds how much a receiver that does not poll, or its provider, has to keep.
pub(crate) const WINDOW: u32 = 128;

/// Packets delivered before their sender is told in a packet of its own, if none goes to it anyway.
pub(crate) const TELL: u32 = WINDOW / 2;

/// One peer. There is one of these for every rank of the job, so it is kept small.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Its number in the provider's address vector; [`FI_ADDR_NOTAVAIL`] until the first packet to
    /// it.
    pub(crate) addr: u64,
    /// Number of the next packet to it.
    pub(crate) sent: u32,
    /// Number of the next packet from it.
    pub(crate) expected: u32,
    /// How many packets it has delivered, as far as this rank knows.
    pub(crate) acked: u32,
    /// How many packets it was told have been delivered here.
    pub(crate) told: u32,
    /// Packets to it that the provider has not accepted yet.
    pub(crate) waiting: u16,
    /// A packet was injected since the last one that completes, so no completion will show that it
    /// has left.
    pub(crate) injected: bool,
    /// It is to hear from this rank, even if there is nothing to acknowledge.
    pub(crate) greet: bool,
    /// Index of the headers that both ranks remember, among those of all pairs; [`NO_HEADERS`]
    /// before there are any.
    headers: u32,
}

const NO_HEADERS: u32 = u32::MAX;

impl Default for Peer {
    fn default() -> Self {
        Self {
            addr: FI_ADDR_NOTAVAIL,
            sent: 0,
            expected: 0,
            acked: 0,
            told: 0,
            waiting: 0,
            injected: false,
            greet: false,
            headers: NO_HEADERS,
        }
    }
}

impl Peer {
    /// Notes that a packet has left which acknowledged `ack` of the peer's packets.
    #[inline]
    pub(crate) fn has_left(&mut self, ack: u32) {
        self.sent = self.sent.wrapping_add(1);
        self.told = ack;
    }

    /// Notes that the peer says it has delivered `ack` packets. `false` if that is impossible.
    #[inline]
    pub(crate) fn acknowledged(&mut self, ack: u32) -> bool {
        let (new, open) = (
            ack.wrapping_sub(self.acked),
            self.sent.wrapping_sub(self.acked),
        );
        if new > open {
            // An older acknowledgement than the last one: packets may overtake each other.
            return self.acked.wrapping_sub(ack) < 1 << 31;
        }
        self.acked = ack;
        true
    }
}

const _: () = assert!(size_of::<Peer>() == 32);

/// The last headers of a pair, one in each direction: the next packet with the same header may go
/// without it.
#[derive(Clone, Copy, Debug, Default)]
struct Headers {
    /// As words, which are compared in one go.
    left: Option<[u64; 3]>,
    came: Option<Header>,
}

/// All peers, by rank.
#[derive(Debug)]
pub(crate) struct Peers {
    all: Box<[Peer]>,
    /// The headers of pairs that have exchanged packets.
    headers: Vec<Headers>,
}

impl Peers {
    /// The peers in a job of `size` ranks.
    pub(crate) fn new(size: u32) -> Self {
        Self {
            all: vec![Peer::default(); size as usize].into(),
            headers: Vec::new(),
        }
    }

    /// Whether the last packet to a peer that both sides remember had this header.
    #[inline]
    pub(crate) fn remembers(&self, peer: u32, header: &Header) -> bool {
        let headers = self.headers.get(self.all[peer as usize].headers as usize);
        headers.is_some_and(|headers| headers.left == Some(header.to_words()))
    }

    /// Notes that a packet with this header, which both sides remember, has left.
    #[inline]
    pub(crate) fn has_left_with(&mut self, peer: u32, header: &Header) {
        self.headers_of(peer).left = Some(header.to_words());
    }

    /// The header of the last packet from a peer that both sides remember.
    #[inline]
    pub(crate) fn came_with(&self, peer: u32) -> Option<&Header> {
        let headers = self.headers.get(self.all[peer as usize].headers as usize)?;
        headers.came.as_ref()
    }

    /// Notes that a packet with this header, which both sides remember, has arrived.
    #[inline]
    pub(crate) fn has_come_with(&mut self, peer: u32, header: &Header) {
        self.headers_of(peer).came = Some(*header);
    }

    #[inline]
    fn headers_of(&mut self, peer: u32) -> &mut Headers {
        let index = &mut self.all[peer as usize].headers;
        if *index == NO_HEADERS {
            *index = self.headers.len() as u32;
            self.headers.push(Headers::default());
        }
        &mut self.headers[*index as usize]
    }
}

impl Deref for Peers {
    type Target = [Peer];

    #[inline]
    fn deref(&self) -> &[Peer] {
        &self.all
    }
}

impl DerefMut for Peers {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Peer] {
        &mut self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_go_forward_and_stay_possible() {
        let mut peer = Peer {
            sent: 10,
            acked: u32::MAX - 5,
            ..Peer::default()
        };
        assert!(peer.acknowledged(3), "across the end of the numbers");
        assert!(peer.acknowledged(1), "one that was overtaken");
        assert_eq!(peer.acked, 3);
        assert!(!peer.acknowledged(11), "more than was sent");
        assert!(peer.acknowledged(10));
    }
}
