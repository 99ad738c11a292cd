//! Packets under way: each lies in a slot until the provider reports that it has left.
//!
//! All peers share the slots of a size. Over TCP a packet leaves only when its receiver's socket
//! has room for it, so the packets to a receiver that computes stay in their slots. To keep these
//! from stopping the packets to all other peers, some slots are a reserve: once only these are
//! free, a peer gets one only if few packets to it are under way.

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
    /// How many of the slots are the reserve.
    reserve: usize,
}

impl Slots {
    /// Makes `count` slots for packets of `bytes` bytes, headers included, and a reserve of
    /// `reserve`: at least as many as the longest packet takes.
    pub(crate) fn new(
        domain: &Domain,
        kind: Kind,
        (count, reserve): (usize, usize),
        bytes: usize,
    ) -> Result<Self, String> {
        let count = count + reserve;
        Ok(Self {
            ops: Ops::new(kind, count),
            slab: Slab::new(domain, count, bytes, kind as u64)?,
            free: (0..count as u32).rev().collect(),
            count,
            reserve,
        })
    }

    /// The free slot that `take` takes; one of the reserve, if no other is free.
    #[inline]
    pub(crate) fn next(&self) -> Result<usize, Sent> {
        self.free
            .last()
            .map(|&slot| slot as usize)
            .ok_or(Sent::Full)
    }

    /// The same, for a packet to `peer`: no slot of the reserve, unless the peer has few.
    #[inline]
    pub(crate) fn next_for(&self, peer: u32) -> Result<usize, Sent> {
        let free = self.free.len();
        if free > self.reserve {
            return Ok(self.free[free - 1] as usize);
        }
        match self.spares(peer, 1) {
            true => self.next(),
            false => Err(Sent::Full),
        }
    }

    /// Whether `count` slots are free for packets to `peer`.
    #[inline]
    pub(crate) fn has_for(&self, peer: u32, count: usize) -> bool {
        self.free.len() >= self.reserve + count || self.spares(peer, count)
    }

    /// Whether a peer may have `count` slots of the reserve: if it has none so far, or no more with
    /// these than would then be left. (So one peer after the other that does not poll gets fewer,
    /// and the next one still finds some.)
    #[cold]
    #[inline(never)]
    fn spares(&self, peer: u32, count: usize) -> bool {
        let free = self.free.len();
        let of_peer = |&slot: &usize| self.ops.noted(slot).0 == peer;
        // A free slot still has its last packet's peer.
        let stale = self.free.iter().map(|&slot| slot as usize);
        let used = (0..self.count).filter(of_peer).count() - stale.filter(of_peer).count();
        free >= count && (used == 0 || used + count <= free - count)
    }

    /// Takes the slot that [`next`](Self::next) or [`next_for`](Self::next_for) gave.
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

#[cfg(test)]
mod tests {
    use portolan_core::transport::{Header, Transport};

    use super::*;
    use crate::config::Config;
    use crate::ofi::Ofi;
    use crate::testing::{Count, opened_or_skipped};

    /// More polls than an arrival takes.
    const POLLS: u32 = 5_000_000;

    /// Sends a packet of `len` bytes from rank 0 to `to`, which arrives while only these two poll.
    fn arrives(ranks: &mut [Ofi], to: usize, len: usize) {
        let bytes = vec![7_u8; len];
        let (mut count, mut left) = (Count(0), false);
        for _ in 0..POLLS {
            if !left {
                left = sends(&mut ranks[0], to, &bytes) == Sent::Done;
            }
            ranks[0].poll(&mut Count(0));
            ranks[to].poll(&mut count);
            if count.0 > 0 {
                return;
            }
        }
        panic!("{len} bytes to rank {to} do not arrive");
    }

    fn sends(rank: &mut Ofi, to: usize, bytes: &[u8]) -> Sent {
        let (header, data, len) = (Header::default(), bytes.as_ptr(), bytes.len());
        let short = len <= rank.limits().short;
        // SAFETY: another rank, which exists; as many bytes are readable.
        unsafe {
            match short {
                true => rank.send_short(to as u32, &header, data, len),
                false => rank.send_bulk_from(to as u32, &header, data, len),
            }
        }
    }

    fn slots_of(rank: &mut Ofi, bulk: bool) -> &mut Slots {
        match bulk {
            true => &mut rank.link.large,
            false => &mut rank.link.small,
        }
    }

    /// Takes all slots that a peer gets, as if its packets stayed in them.
    fn taken_for(slots: &mut Slots, peer: u32) -> Vec<usize> {
        let mut taken = Vec::new();
        while let Ok(slot) = slots.next_for(peer) {
            slots.ops.note(slot, peer, 1);
            slots.take();
            taken.push(slot);
        }
        taken
    }

    #[test]
    fn who_does_not_poll_leaves_slots_to_the_others() {
        let config = Config {
            provider: Some("tcp".to_owned()),
            interface: Some("lo".to_owned()),
            ..Config::default()
        };
        let Some(mut ranks) = opened_or_skipped("slots for all peers", 4, &config) else {
            return; // The skip has been printed.
        };
        for to in 1..4 {
            arrives(&mut ranks, to, 8);
        }
        for bulk in [false, true] {
            let len = match bulk {
                true => ranks[0].limits().bulk,
                false => ranks[0].limits().short,
            };
            let first = taken_for(slots_of(&mut ranks[0], bulk), 1);
            let alone = if bulk { config.slots } else { 4 * config.slots };
            assert_eq!(first.len(), alone, "as many as if there were no others");
            let second = taken_for(slots_of(&mut ranks[0], bulk), 2);
            assert!((1..alone / 4).contains(&second.len()), "{}", second.len());
            for to in [1, 2] {
                assert_eq!(sends(&mut ranks[0], to, &vec![7; len]), Sent::Full);
            }
            arrives(&mut ranks, 3, len);
            for slot in first.into_iter().chain(second) {
                slots_of(&mut ranks[0], bulk).give_back(slot);
            }
            arrives(&mut ranks, 1, len);
        }
    }
}
