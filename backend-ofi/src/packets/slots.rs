//! Packets under way: each lies in a slot until the provider reports that it has left.

use portolan_core::transport::Sent;

use crate::endpoint::Domain;
use crate::endpoint::op::{Kind, Ops};
use crate::endpoint::slab::Slab;

/// Slots of one size. Free slots are reused last in, first out, because the last one used is still
/// in the caches.
#[derive(Debug)]
pub(crate) struct Slots {
    pub(crate) ops: Ops,
    pub(crate) slab: Slab,
    free: Vec<u32>,
    count: usize,
}

impl Slots {
    /// Makes `count` slots for packets of `bytes` bytes, headers included.
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

    /// The free slot that `take` takes.
    #[inline]
    pub(crate) fn next(&self) -> Result<usize, Sent> {
        self.free
            .last()
            .map(|&slot| slot as usize)
            .ok_or(Sent::Full)
    }

    /// Whether at least `count` slots are free.
    #[inline]
    pub(crate) fn has(&self, count: usize) -> bool {
        self.free.len() >= count
    }

    /// Takes the slot that [`next`](Self::next) gave.
    #[inline]
    pub(crate) fn take(&mut self) {
        self.free.pop();
    }

    /// Frees a slot that the provider has no more use for.
    #[inline]
    pub(crate) fn give_back(&mut self, slot: usize) {
        self.free.push(slot as u32);
    }

    /// Whether a packet is under way to one of these peers.
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
