//! Where the queues lie in symmetric memory: the same on every PE.

use super::header::HEADER;

/// Places of the queues.
///
/// Per PE that may talk to this one there is a block: its `smsg` queue here, its `rmsg` queue here,
/// and two words in which it tells how much of this PE's queues there it has done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Places {
    /// First byte of the blocks.
    pub base: u64,
    /// Headers in a queue: a power of two, at least 4.
    pub queue: u32,
}

/// Headers in a queue, unless a test wants fewer.
pub const QSIZE: u32 = 64;

impl Places {
    /// Queues of the usual length from `base` on.
    #[must_use]
    pub const fn new(base: u64) -> Self {
        Self { base, queue: QSIZE }
    }

    /// Bytes that the blocks of `size` PEs take.
    #[must_use]
    pub const fn bytes(&self, size: u32) -> u64 {
        self.block() * size as u64
    }

    const fn block(&self) -> u64 {
        2 * self.queue as u64 * HEADER + 16
    }

    /// The peer in whose block an address lies.
    #[must_use]
    pub fn peer_at(&self, at: u64) -> Option<u32> {
        let peer = at.checked_sub(self.base)? / self.block();
        u32::try_from(peer).ok()
    }

    /// The queue of headers from sender `peer`.
    pub(super) fn smsg(&self, peer: u32) -> u64 {
        self.base + self.block() * u64::from(peer)
    }

    /// The queue of headers from receiver `peer`.
    pub(super) fn rmsg(&self, peer: u32) -> u64 {
        self.smsg(peer) + u64::from(self.queue) * HEADER
    }

    /// Where `peer` tells how many headers it has deleted from this PE's `smsg` queue there.
    pub(super) fn smsg_told(&self, peer: u32) -> u64 {
        self.rmsg(peer) + u64::from(self.queue) * HEADER
    }

    /// The same for the `rmsg` queue.
    pub(super) fn rmsg_told(&self, peer: u32) -> u64 {
        self.smsg_told(peer) + 8
    }
}
