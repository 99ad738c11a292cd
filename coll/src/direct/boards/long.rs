//! Places for data that is longer than a chunk.
//!
//! Where only neighbours know the length of a block, a rank has to show it in one step, whatever
//! the length: with several steps it would get out of step with the other ranks. Boards have no
//! room for that. So a rank with such a long block allocates memory for [`CHUNKS`] blocks of that
//! length, and says in the cell of the step where the block is ([`Card`]). Of the places that are
//! free it takes the one that it used last, which is still in a cache ([`Places`]). If a longer
//! block comes, the rank allocates more; it keeps the earlier memory until the board itself is
//! free, because another rank may still be reading there.
//!
//! A rank that gets no memory says so in the cell too, and sends messages instead.

use std::ptr::NonNull;
use std::sync::Mutex;

use portolan_core::device::{Region, RegionKey};
use portolan_core::{Device, Error, ErrorKind, ProcId, Result};

use crate::direct::boards::board::{CHUNK, CHUNKS, Header, IN_CELL};
use crate::direct::boards::setup::Pool;
use crate::state::lock;

/// Longest block, in bytes, for a long place of a rank that shows a block to a root, or the parts
/// of all ranks. Longer data does not stay in a cache, and messages are as fast.
pub(in crate::direct) const LONG: usize = 16 * CHUNK;
/// The same limit along the edges of a topology, where all ranks show data at the same time: blocks
/// of 2 MiB, or lists of two of half that length. (On an EPYC of family 26 with near cores, time
/// relative to messages. An allgather around a ring at 512 KiB, 1 MiB and 1.8 MB: with two ranks
/// 0.58, 0.47 and 0.66; with four on two cores 0.36, 0.36 and 0.71; with eight 0.27, 0.40 and 0.84.
/// An alltoall with two blocks of 256, 512 and 900 KiB: 0.91, 0.82 and 0.79; 0.49, 0.57 and 0.68;
/// 0.41, 0.56 and 0.84.)
pub(in crate::direct) const LONG_ALONG: usize = 2 * LONG;
/// The same limit where a message of a rank's vectors is copied once, and what a board shows twice:
/// the vectors of all ranks are memory that the others load where it is, and no ranks are known to
/// take turns on a processor. (Zen 4, near, two ranks, time relative to boards: allgather 0.73 at
/// 24 KiB, 0.57 at 32 KiB, 0.38 at 64 KiB, 0.56 at 256 KiB; alltoall 1.0 to 1.17, 0.92, 0.81 and
/// 0.70. Four ranks on two cores: alltoall 1.4 to 1.9, allgather 0.8 to 1.2.) Data elsewhere, on a
/// stack or strided, then takes longer than over boards.
pub(in crate::direct) const LONG_ALONG_SHARED: usize = 16 << 10;

/// What a cell says about a long place.
#[repr(C)]
#[derive(Clone, Copy)]
struct Card {
    /// The key of its region; all zeros if there is no memory.
    key: RegionKey,
    /// Offset of the place in the region.
    offset: u64,
}

/// Offset of the card in a cell. In front of it there is room for a length that a header cannot
/// hold.
const CARD: usize = size_of::<u64>();

const _: () = assert!(CARD + size_of::<Card>() <= IN_CELL);
const _: () = assert!(
    LONG < Header::LONG,
    "a root reads the length from the header alone"
);

/// A key that no region has: a region's generations begin with 1.
const NONE: RegionKey = RegionKey([0; 56]);

/// The long places of this rank's board, and what this rank knows of the others'.
#[derive(Debug)]
pub(in crate::direct) struct Long {
    own: Mutex<Own>,
    /// Indexed by rank: the last key that was seen, and the address of that region here.
    theirs: Mutex<Box<[Option<Seen>]>>,
}

/// This rank's regions, of which the last one is in use, and the places in that one.
#[derive(Debug, Default)]
struct Own {
    regions: Vec<Region>,
    places: Places,
}

/// The places of a region, and the step in which each was used last: the latest one first.
#[derive(Debug)]
pub(in crate::direct) struct Places([(usize, Option<u32>); CHUNKS as usize]);

impl Default for Places {
    fn default() -> Self {
        Self(std::array::from_fn(|place| (place, None)))
    }
}

impl Places {
    /// Takes a place for a step: the one used last of those that are free, because it is most
    /// likely in a cache. All ranks have finished the steps before `proved`, which is fewer than
    /// [`CHUNKS`] steps back, so one is free.
    pub(in crate::direct) fn take(&mut self, step: u32, proved: u32) -> usize {
        let open = step.wrapping_sub(proved);
        debug_assert!(open < CHUNKS, "step {step} has begun too early");
        let is_free = |used: u32| step.wrapping_sub(used) > open;
        let free = self.0.iter().position(|(_, used)| used.is_none_or(is_free));
        // A place that has not been used for four thousand million steps may look as if it were in
        // use. The last one is free in any case.
        let at = free.unwrap_or(self.0.len() - 1);
        self.0[..=at].rotate_right(1);
        self.0[0].1 = Some(step);
        self.0[0].0
    }
}

type Seen = (RegionKey, NonNull<u8>);

// SAFETY: this type only hands out the addresses. Memory there is accessed by the protocol of
// `steps`, as boards are.
unsafe impl Send for Long {}
// SAFETY: as above; state that threads share is under locks.
unsafe impl Sync for Long {}

impl Long {
    pub(in crate::direct) fn new(ranks: u32) -> Self {
        Self {
            own: Mutex::default(),
            theirs: Mutex::new((0..ranks).map(|_| None).collect()),
        }
    }

    /// This rank's long place in a step, for `len` bytes. Also writes to `cell` where the place is.
    /// If there is no memory, or if `len` is more than readers look for (`limit`), returns `None`
    /// and says so in `cell`. All ranks have finished the steps before `proved`.
    ///
    /// # Safety
    /// `cell` is the data of this rank's cell of the step. The cell is free, and so would the chunk
    /// of the step be. (Its first word is not written.)
    pub(in crate::direct) unsafe fn show<D: Device>(
        &self,
        (device, pool): (&D, &Pool),
        (step, proved): (u32, u32),
        (len, limit): (usize, usize),
        cell: *mut u8,
    ) -> Option<*mut u8> {
        let mut own = lock(&self.own);
        let place = (len <= limit).then(|| own.place((device, pool), (step, proved), (len, limit)));
        let (region, offset) = match place.flatten() {
            Some((region, offset)) => (Some(region), offset),
            None => (None, 0),
        };
        let card = Card {
            key: region.map_or(NONE, |region| region.key),
            offset: offset as u64,
        };
        // SAFETY: from the caller; a card fits in a cell.
        unsafe { cell.add(CARD).cast::<Card>().write_unaligned(card) };
        Some(region?.ptr.wrapping_add(offset))
    }

    /// The address of the long place that a rank's cell names; `None` if that rank had no memory.
    ///
    /// # Errors
    /// [`PeerMisbehaved`](ErrorKind::PeerMisbehaved) if the named memory cannot be reached. Whoever
    /// can reach a rank's board can also reach its other regions, so the cell must be wrong.
    ///
    /// # Safety
    /// `cell` is the data of a cell of that rank, which has been posted with a long place.
    pub(in crate::direct) unsafe fn find<D: Device>(
        &self,
        device: &D,
        (rank, process): (u32, ProcId),
        cell: *const u8,
    ) -> Result<Option<*mut u8>> {
        // SAFETY: from the caller; a card is valid for any bytes.
        let card = unsafe { cell.add(CARD).cast::<Card>().read_unaligned() };
        if card.key == NONE {
            return Ok(None);
        }
        let seen = &mut lock(&self.theirs)[rank as usize];
        let at = match *seen {
            Some((key, at)) if key == card.key => at,
            _ => {
                let Some(at) = device.direct(process, &card.key) else {
                    return Err(nothing_there(rank));
                };
                *seen = Some((card.key, at));
                at
            }
        };
        Ok(Some(at.as_ptr().wrapping_add(card.offset as usize)))
    }

    /// Takes the regions of this rank, which it does not use any more.
    pub(in crate::direct) fn take_own(&self) -> Vec<Region> {
        std::mem::take(&mut lock(&self.own).regions)
    }

    /// The regions of this rank.
    #[cfg(test)]
    pub(in crate::direct) fn own(&self) -> Vec<Region> {
        lock(&self.own).regions.clone()
    }
}

impl Own {
    /// A region with room for `len` bytes, and the offset of a place in it for this step; `None` if
    /// there is no memory. A region has twice the room of the one before, as far as there can be
    /// blocks of that length (`limit`), so that the earlier ones take no more memory than the last.
    fn place<D: Device>(
        &mut self,
        (device, pool): (&D, &Pool),
        (step, proved): (u32, u32),
        (len, limit): (usize, usize),
    ) -> Option<(Region, usize)> {
        let each = |region: &Region| region.len / CHUNKS as usize;
        let last = self.regions.last().copied();
        let region = match last.filter(|region| each(region) >= len) {
            Some(region) => region,
            None => {
                let twice = last.map_or(0, |region| 2 * each(&region));
                let room = len.max(twice.min(limit)).next_multiple_of(CHUNK);
                let all = room * CHUNKS as usize;
                let fresh = pool.take_long(device, all).filter(|_| there_is_memory())?;
                self.regions.push(fresh);
                self.places = Places::default();
                fresh
            }
        };
        Some((region, self.places.take(step, proved) * each(&region)))
    }
}

#[cold]
fn nothing_there(rank: u32) -> Error {
    let what = format!("rank {rank} has shown memory on its board that is not there");
    Error::new(ErrorKind::PeerMisbehaved, what)
        .remedy("look for writes of that rank beyond its own memory")
}

#[cfg(not(test))]
fn there_is_memory() -> bool {
    true
}

#[cfg(test)]
pub(in crate::direct) use pretended::{has_shared_vectors, pretend_shared_vectors};
#[cfg(test)]
pub(in crate::direct) use scarce::{there_is_memory, without_memory};

/// For tests: makes single ranks, which are threads, believe that their vectors are shared.
#[cfg(test)]
mod pretended {
    use std::cell::Cell;

    thread_local! {
        static SHARED: Cell<bool> = const { Cell::new(false) };
    }

    pub(in crate::direct) fn has_shared_vectors() -> bool {
        SHARED.get()
    }

    /// From now on, the boards that this rank makes are for vectors that are shared, or not.
    pub(in crate::direct) fn pretend_shared_vectors(shared: bool) {
        SHARED.set(shared);
    }
}

/// For tests: makes allocation fail for single ranks, which are threads in tests.
#[cfg(test)]
mod scarce {
    use std::cell::Cell;

    thread_local! {
        static NONE_LEFT: Cell<bool> = const { Cell::new(false) };
    }

    pub(in crate::direct) fn there_is_memory() -> bool {
        !NONE_LEFT.get()
    }

    /// Runs `body` on this rank, which meanwhile gets no memory for long places.
    pub(in crate::direct) fn without_memory(body: impl FnOnce()) {
        NONE_LEFT.set(true);
        body();
        NONE_LEFT.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::Random;

    #[test]
    fn a_place_that_somebody_may_read_is_not_taken() {
        let mut random = Random::new(7);
        let mut places = Places::default();
        let mut used = Vec::new();
        // Step numbers start over on the way.
        let mut step = 0u32.wrapping_sub(500);
        for _ in 0..1000 {
            // So many steps the slowest rank is behind.
            let proved = step.wrapping_sub(random.below(CHUNKS as usize) as u32);
            let place = places.take(step, proved);
            let is_open = |&&(_, when): &&(usize, u32)| when.wrapping_sub(proved) as i32 >= 0;
            let mut open = used.iter().rev().take(CHUNKS as usize).filter(is_open);
            assert!(open.all(|&(other, _)| other != place), "{step}: {used:?}");
            used.push((place, step));
            step = step.wrapping_add(1 + random.below(3) as u32);
        }
    }

    #[test]
    fn the_place_used_last_is_taken_again() {
        let mut places = Places::default();
        assert_eq!(places.take(10, 10), 0);
        assert_eq!(places.take(11, 11), 0);
        // Somebody is still in step 11, and then in step 12.
        assert_eq!(places.take(12, 11), 1);
        assert_eq!(places.take(13, 12), 0);
        assert_eq!(places.take(14, 13), 1);
        assert_eq!(places.take(15, 12), 2);
        assert_eq!(places.take(20, 20), 2);
    }
}
