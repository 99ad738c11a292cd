//! The places of the queues in symmetric memory, which are the same on every PE.

use super::header::HEADER;

/// Places of the queues.
///
/// There is a block for each PE that may talk to this one. It holds that PE's `smsg` queue here,
/// its `rmsg` queue here, and two words. In these words, that PE tells how many headers it has
/// deleted from this PE's two queues in its own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Places {
    /// First byte of the blocks.
    pub base: u64,
    /// Headers in a queue: a power of two, at least 4.
    pub queue: u32,
}

/// Headers in a queue; tests use fewer.
pub const QSIZE: u32 = 64;

impl Places {
    /// Places for queues of the usual length, from `base` on.
    #[must_use]
    pub const fn new(base: u64) -> Self {
        Self { base, queue: QSIZE }
    }

    /// Bytes of the blocks of `size` PEs.
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

    /// The word in which `peer` tells how many headers it has deleted from this PE's `smsg` queue
    /// in its memory.
    pub(super) fn smsg_told(&self, peer: u32) -> u64 {
        self.rmsg(peer) + u64::from(self.queue) * HEADER
    }

    /// The same for the `rmsg` queue.
    pub(super) fn rmsg_told(&self, peer: u32) -> u64 {
        self.smsg_told(peer) + 8
    }
}
