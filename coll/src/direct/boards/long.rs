//! Places for what is longer than a chunk.
//!
//! Where only neighbours know how long something is, it has to be shown in one step, whatever its
//! length: ranks that took several would get out of step with the others. Boards have no room for
//! that. A rank that has something so long to show takes memory for as many of that length as there
//! are chunks, and says in the cell of the step where it is ([`Card`]). If something longer comes
//! it takes more; what it had before stays until the board itself is free, because somebody may
//! still read there.
//!
//! A rank that gets no memory says that, too, and sends messages.

use std::ptr::NonNull;
use std::sync::Mutex;

use portolan_core::device::{Region, RegionKey};
use portolan_core::{Device, Error, ErrorKind, ProcId, Result};

use crate::direct::boards::board::{CHUNK, CHUNKS, Header, IN_CELL};
use crate::direct::boards::setup::Pool;
use crate::state::lock;

/// Bytes of a long place, at most. What is longer finds no cache, and messages are as fast.
pub(in crate::direct) const LONG: usize = 16 * CHUNK;
/// The same along the edges of a topology, where all ranks show something at a time. On the EPYC,
/// near, the time of an allgather around a ring to that by messages was 0.57, 0.58 and 0.63 for 256
/// KiB, 512 KiB and 1 MiB (two ranks), 0.30, 0.36 and 0.4 to 1.5 (four on two cores), 0.27, 0.27
/// and 0.8 to 1.45 (eight); of an alltoall with two such blocks 0.91, 0.94 and 1.20, 0.49, 0.46 and
/// 1.0, 0.41, 1.12 and 1.21.
pub(in crate::direct) const LONG_ALONG: usize = LONG / 2;

/// What a cell says of a long place.
#[repr(C)]
#[derive(Clone, Copy)]
struct Card {
    /// Zeros if there is none.
    key: RegionKey,
    /// Where it begins in the region.
    offset: u64,
}

const _: () = assert!(size_of::<Card>() <= IN_CELL);
const _: () = assert!(
    LONG < Header::LONG,
    "the cell has no room for the length as well"
);

/// The key of no region: a region's generations begin with 1.
const NONE: RegionKey = RegionKey([0; 56]);

/// The long places of a board, and what this rank knows of the others'.
#[derive(Debug)]
pub(in crate::direct) struct Long {
    /// Of this rank: the last one is in use.
    own: Mutex<Vec<Region>>,
    /// By rank: the last key that was seen, and where that region is here.
    theirs: Mutex<Box<[Option<Seen>]>>,
}

type Seen = (RegionKey, NonNull<u8>);

// SAFETY: the addresses are only handed out; accesses are by the protocol of `steps`, as those to
// boards.
unsafe impl Send for Long {}
// SAFETY: as above; what threads share is under locks.
unsafe impl Sync for Long {}

impl Long {
    pub(in crate::direct) fn new(ranks: u32) -> Self {
        Self {
            own: Mutex::default(),
            theirs: Mutex::new((0..ranks).map(|_| None).collect()),
        }
    }

    /// This rank's long place of a step, for so many bytes, and writes to `cell` where it is;
    /// `None`, which that says as well, if there is no memory.
    ///
    /// # Safety
    /// `cell` is the data of this rank's cell of the step, and free; as the chunk of the step would
    /// be.
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
        let fits = own.last().filter(|region| each(region) >= len).copied();
        let region = fits.or_else(|| {
            if len > LONG {
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
        // SAFETY: from the caller; it fits.
        unsafe { cell.cast::<Card>().write_unaligned(card) };
        Some(region?.ptr.wrapping_add(offset?))
    }

    /// Where the long place is of which a rank's cell tells; `None` if it had no memory.
    ///
    /// # Errors
    /// [`PeerMisbehaved`](ErrorKind::PeerMisbehaved) if there is no such memory: that of a board's
    /// owner can be reached as the board can.
    ///
    /// # Safety
    /// `cell` is the data of a cell of that rank, which has been posted with a long place.
    pub(in crate::direct) unsafe fn find<D: Device>(
        &self,
        device: &D,
        (rank, process): (u32, ProcId),
        cell: *const u8,
    ) -> Result<Option<*mut u8>> {
        // SAFETY: from the caller; any bytes are a card.
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

    /// What this rank has taken, which it does not use any more.
    pub(in crate::direct) fn take_own(&self) -> Vec<Region> {
        std::mem::take(&mut lock(&self.own))
    }

    /// What it has taken.
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
pub(in crate::direct) use scarce::{there_is_memory, without_memory};

/// For tests: ranks, which are threads there, that get no memory.
#[cfg(test)]
mod scarce {
    use std::cell::Cell;

    thread_local! {
        static NONE_LEFT: Cell<bool> = const { Cell::new(false) };
    }

    pub(in crate::direct) fn there_is_memory() -> bool {
        !NONE_LEFT.get()
    }

    /// Does something on a rank that gets no memory for long places meanwhile.
    pub(in crate::direct) fn without_memory(body: impl FnOnce()) {
        NONE_LEFT.set(true);
        body();
        NONE_LEFT.set(false);
    }
}
