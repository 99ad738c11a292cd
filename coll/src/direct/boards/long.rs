//! Places for data that is longer than a chunk.
//!
//! Where only neighbours know the length of a block, a rank has to show it in one step, whatever
//! the length: with several steps it would get out of step with the other ranks. Boards have no
//! room for that. So a rank with such a long block allocates memory for [`CHUNKS`] blocks of that
//! length, and says in the cell of the step where the block is ([`Card`]). If a longer block comes,
//! the rank allocates more; it keeps the earlier memory until the board itself is free, because
//! another rank may still be reading there.
//!
//! A rank that gets no memory says so in the cell too, and sends messages instead.

use std::ptr::NonNull;
use std::sync::Mutex;

use portolan_core::device::{Region, RegionKey};
use portolan_core::{Device, Error, ErrorKind, ProcId, Result};

use crate::direct::boards::board::{CHUNK, CHUNKS, Header, IN_CELL};
use crate::direct::boards::setup::Pool;
use crate::state::lock;

/// Longest block, in bytes, for a long place. Longer data does not stay in a cache, and messages
/// are as fast.
pub(in crate::direct) const LONG: usize = 16 * CHUNK;
/// The same limit along the edges of a topology, where all ranks show data at the same time. (On
/// the EPYC with near cores, time relative to messages. An allgather around a ring at 256 KiB, 512
/// KiB and 1 MiB: 0.57, 0.58 and 0.63 with two ranks; 0.30, 0.36 and 0.4 to 1.5 with four on two
/// cores; 0.27, 0.27 and 0.8 to 1.45 with eight. An alltoall with two such blocks: 0.91, 0.94 and
/// 1.20; 0.49, 0.46 and 1.0; 0.41, 1.12 and 1.21.)
pub(in crate::direct) const LONG_ALONG: usize = LONG / 2;
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

const _: () = assert!(size_of::<Card>() <= IN_CELL);
const _: () = assert!(
    LONG < Header::LONG,
    "the cell has no room for the length as well"
);

/// A key that no region has: a region's generations begin with 1.
const NONE: RegionKey = RegionKey([0; 56]);

/// The long places of this rank's board, and what this rank knows of the others'.
#[derive(Debug)]
pub(in crate::direct) struct Long {
    /// This rank's regions: the last one is in use.
    own: Mutex<Vec<Region>>,
    /// Indexed by rank: the last key that was seen, and the address of that region here.
    theirs: Mutex<Box<[Option<Seen>]>>,
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
    /// If there is no memory, returns `None` and says so in `cell`.
    ///
    /// # Safety
    /// `cell` is the data of this rank's cell of the step. The cell is free, and so would the chunk
    /// of the step be.
    pub(in crate::direct) unsafe fn show<D: Device>(
        &self,
        device: &D,
        pool: &Pool,
        step: u32,
        len: usize,
        cell: *mut u8,
    ) -> Option<*mut u8> {
        let mut own = lock(&self.own);
        let each = |region: &Region| region.len / CHUNKS as usize;
        // Readers know that there is no place for more, however much memory a region has.
        let may = len <= LONG;
        let fits = own
            .last()
            .filter(|region| may && each(region) >= len)
            .copied();
        let region = fits.or_else(|| {
            if !may {
                return None;
            }
            let all = len.next_multiple_of(CHUNK) * CHUNKS as usize;
            let fresh = pool.take_long(device, all).filter(|_| there_is_memory())?;
            own.push(fresh);
            Some(fresh)
        });
        let offset = region.map(|region| (step % CHUNKS) as usize * each(&region));
        let card = Card {
            key: region.map_or(NONE, |region| region.key),
            offset: offset.unwrap_or(0) as u64,
        };
        // SAFETY: from the caller; a card fits in a cell.
        unsafe { cell.cast::<Card>().write_unaligned(card) };
        Some(region?.ptr.wrapping_add(offset?))
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
        let card = unsafe { cell.cast::<Card>().read_unaligned() };
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
        std::mem::take(&mut lock(&self.own))
    }

    /// The regions of this rank.
    #[cfg(test)]
    pub(in crate::direct) fn own(&self) -> Vec<Region> {
        lock(&self.own).clone()
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
