//! Packets under way: each lies in a slot until the provider says that it has left.

use portolan_core::transport::Sent;

use crate::endpoint::Domain;
use crate::endpoint::op::{Kind, Ops};
use crate::endpoint::slab::Slab;

/// Slots of one size. Those that are free are used again last in, first out: they are in the
/// caches.
#[derive(Debug)]
pub(crate) struct Slots {
    pub(crate) ops: Ops,
    pub(crate) slab: Slab,
    free: Vec<u32>,
    count: usize,
}

impl Slots {
    /// `count` slots for packets of `bytes`, whatever goes in front of them included.
    pub(crate) fn new(
        domain: &Domain,
        kind: Kind,
        count: usize,
        bytes: usize,
    ) -> Result<Self, String> {
        Ok(Self {
            ops: Ops::new(kind, count),
            slab: Slab::new(domain, count, bytes, kind as u64)?,
            free: (0..count as u32).rev().collect(),
            count,
        })
    }

    /// The slot that would be taken next.
    #[inline]
    pub(crate) fn next(&self) -> Result<usize, Sent> {
        self.free
            .last()
            .map(|&slot| slot as usize)
            .ok_or(Sent::Full)
    }

    /// Whether so many are free.
    #[inline]
    pub(crate) fn has(&self, count: usize) -> bool {
        self.free.len() >= count
    }

    /// Takes the slot that [`next`](Self::next) gave.
    #[inline]
    pub(crate) fn take(&mut self) {
        self.free.pop();
    }

    /// The provider has no more use for a slot.
    #[inline]
    pub(crate) fn give_back(&mut self, slot: usize) {
        self.free.push(slot as u32);
    }

    /// Whether something is under way to such a peer.
    pub(crate) fn concern(&self, peers: impl Fn(u32) -> bool) -> bool {
        if self.free.len() == self.count {
            return false;
        }
        let mut used = vec![true; self.count];
        for &slot in &self.free {
            used[slot as usize] = false;
        }
        let used = (0..self.count).filter(|&slot| used[slot]);
        used.into_iter().any(|slot| peers(self.ops.noted(slot).0))
    }
}
