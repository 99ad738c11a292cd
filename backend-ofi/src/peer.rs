//! What a rank knows of each other rank.

use libfabric_sys::FI_ADDR_NOTAVAIL;

/// Packets of a pair that may be under way: sent, and not known to have been delivered. It bounds what a
/// receiver that does not look has to keep, or its provider.
pub(crate) const WINDOW: u32 = 128;

/// Packets that are delivered before their sender is told, if nothing goes to it anyway.
pub(crate) const TELL: u32 = WINDOW / 2;

/// One peer. There is one of these for every rank of the job: it is kept small.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// In the provider's address vector; [`FI_ADDR_NOTAVAIL`] until the first packet to it.
    pub(crate) addr: u64,
    /// Number of the next packet to it.
    pub(crate) sent: u32,
    /// Number of the next packet from it.
    pub(crate) expected: u32,
    /// How many packets it has delivered, as far as is known here.
    pub(crate) acked: u32,
    /// How many packets it was told of.
    pub(crate) told: u32,
    /// Packets to it that the provider has not taken yet.
    pub(crate) waiting: u16,
    /// Something was injected since the last packet that completes: nobody will say that it has left.
    pub(crate) injected: bool,
    /// It is to hear of this rank, whatever there is to tell.
    pub(crate) greet: bool,
}

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
        }
    }
}

impl Peer {
    /// A packet has left, which said that so many of the peer's have been delivered.
    #[inline]
    pub(crate) fn has_left(&mut self, ack: u32) {
        self.sent = self.sent.wrapping_add(1);
        self.told = ack;
    }

    /// The peer says that it has delivered so many packets. `false` if that cannot be.
    #[inline]
    pub(crate) fn acknowledged(&mut self, ack: u32) -> bool {
        let (new, open) = (
            ack.wrapping_sub(self.acked),
            self.sent.wrapping_sub(self.acked),
        );
        if new > open {
            // Said before what has been heard since: packets may overtake each other.
            return self.acked.wrapping_sub(ack) < 1 << 31;
        }
        self.acked = ack;
        true
    }
}

const _: () = assert!(size_of::<Peer>() == 32);

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
