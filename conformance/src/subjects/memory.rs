//! Waiting on memory that peers store into.

use std::sync::atomic::{AtomicU64, Ordering};

use portolan_core::device::{AtomicOp, AtomicWidth, Region, RegionKey};
use portolan_core::{Device, Group, ProcId, Result};

use crate::bytes::{check, content};
use crate::case::Verdict;
use crate::rank::Rank;

/// Distance between two flags: each has its own cache lines.
const LINE: usize = 128;

/// Flags of this rank in a region, and the keys of all ranks.
pub(crate) struct Flags<'r, 'd, D: Device> {
    rank: &'r Rank<'d, D>,
    mine: Region,
    keys: Vec<RegionKey>,
    pub(crate) everybody: Group,
}

// SAFETY: a region is only accessed by atomics and through the device, which is `Sync` here.
unsafe impl<D: Device + Sync> Sync for Flags<'_, '_, D> {}

impl<'r, 'd, D: Device> Flags<'r, 'd, D> {
    /// `count` flags for each rank, zero at first.
    pub(crate) fn new(rank: &'r Rank<'d, D>, count: usize) -> Self {
        let mine = rank.device.alloc_region(count * LINE).expect("a region");
        let keys = rank.all_gather(&mine.key.0).into_iter();
        let keys = keys.map(|bytes| RegionKey(bytes.try_into().expect("a key")));
        Self {
            rank,
            mine,
            keys: keys.collect(),
            everybody: Group::world(rank.size()),
        }
    }

    /// A flag of this rank.
    pub(crate) fn get(&self, flag: usize) -> u64 {
        let place = self.mine.ptr.wrapping_add(flag * LINE).cast();
        // SAFETY: inside of the region, which lives as long as `self`, and aligned; all ranks use
        // atomics on it.
        unsafe { AtomicU64::from_ptr(place) }.load(Ordering::Acquire)
    }

    /// Stores into a flag of `peer`, directly where that is possible, and notifies the peer.
    pub(crate) fn set(&self, peer: u32, flag: usize, value: u64) {
        let (device, to) = (self.rank.device, ProcId::new(peer));
        let key = &self.keys[peer as usize];
        let offset = flag * LINE;
        match device.direct(to, key) {
            Some(base) => {
                let place = base.as_ptr().wrapping_add(offset).cast();
                // SAFETY: as in `get`; regions are freed when all ranks are done with them.
                unsafe { AtomicU64::from_ptr(place) }.store(value, Ordering::Release);
            }
            None => {
                let (width, op) = (AtomicWidth::W64, AtomicOp::Swap(value));
                let mut former = 0;
                let outcome =
                    // SAFETY: `former` lives until the request is complete.
                    unsafe { device.atomic(to, key, offset as u64, width, op, &raw mut former) };
                // A peer that has died in the meantime does not matter here.
                if let Ok(request) = outcome {
                    let _ = device.wait(request);
                }
            }
        }
        device.notify(to);
    }

    /// Waits until a flag of this rank has reached a value.
    pub(crate) fn reached(&self, flag: usize, value: u64) -> Result<()> {
        self.rank
            .device
            .wait_for(&self.everybody, || self.get(flag) >= value)
    }

    /// Frees the regions, when all ranks are done with them.
    pub(crate) fn free(self) {
        self.rank.barrier();
        // SAFETY: no rank uses the region after the barrier, and no pointer to it is left.
        unsafe { self.rank.device.free_region(self.mine) }.expect("freeing a region");
    }
}

/// Passes a token around the ring. Now and then a rank computes for a while before it passes the
/// token on, so that the others have time to fall asleep.
pub(crate) fn around<D: Device>(flags: &Flags<'_, '_, D>, laps: u64) {
    let rank = flags.rank;
    for lap in 1..=laps {
        if rank.me() == 0 {
            flags.set(rank.next(), 0, lap);
        }
        flags.reached(0, lap).expect("nobody dies");
        if rank.me() != 0 {
            if (lap + u64::from(rank.me())).is_multiple_of(16) {
                std::hint::black_box(content(lap, 200_000));
            }
            flags.set(rank.next(), 0, lap);
        }
    }
}

/// A token goes around by stores into the next rank's memory.
pub fn tokens<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let flags = Flags::new(rank, 1);
    around(&flags, 200);
    flags.free();
    Ok(())
}

/// All to all at once: a barrier by flags.
pub fn everybody<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let size = rank.size() as usize;
    let flags = Flags::new(rank, size);
    for round in 1..=50 {
        for peer in 0..rank.size() {
            flags.set(peer, rank.me() as usize, round);
        }
        let here = || (0..size).all(|peer| flags.get(peer) >= round);
        rank.device
            .wait_for(&flags.everybody, here)
            .expect("nobody dies");
    }
    flags.free();
    Ok(())
}

/// A wait for a condition that already holds returns at once, whatever the group, and notifying a
/// rank that does not sleep does no harm.
pub fn at_once<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let nobody = Group::new(Vec::<ProcId>::new());
    for _ in 0..3 {
        rank.device.notify(ProcId::new(rank.me()));
        rank.device.notify(ProcId::new(rank.next()));
        rank.device.wait_for(&nobody, || true).expect("it is true");
    }
    Ok(())
}

/// A waiting rank makes progress: the peer stores only when it has a message that needs both.
pub fn progress<D: Device>(rank: &Rank<'_, D>) -> Verdict {
    let flags = Flags::new(rank, 1);
    let received = rank.irecv(&rank.from(rank.previous(), 1), rank.long());
    for lap in 1..=4 {
        let seed = u64::from(rank.me()) + lap;
        let from = u64::from(rank.previous()) + lap;
        let tag = 10 + lap as u32;
        let sent = rank.isend(&rank.to(rank.next(), tag), content(seed, rank.long()));
        let partner = rank.irecv(&rank.from(rank.previous(), tag), rank.long());
        let complete = || rank.device.is_complete(partner.request);
        rank.device
            .wait_for(&flags.everybody, complete)
            .expect("nobody dies");
        flags.set(rank.previous(), 0, lap);
        flags.reached(0, lap).expect("nobody dies");
        check(
            &rank.done(partner).1,
            from,
            "a message that was received in a wait",
        );
        rank.done(sent);
    }
    rank.send(&rank.to(rank.next(), 1), &[])
        .expect("a small send");
    rank.done(received);
    flags.free();
    Ok(())
}
