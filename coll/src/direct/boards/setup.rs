//! How the ranks of a communicator make their boards, and how boards are reused.
//!
//! **Making.** At the first blocking or persistent collective operation each rank takes a board,
//! tells the others its key, and maps theirs. If any rank could not, no rank uses boards for as
//! long as the communicator lives.
//!
//! **Going.** Communicators are freed without synchronisation: other ranks may look at this rank's
//! board long after it has dropped the communicator. So a rank that drops the communicator says so
//! in a word of every other board, which is its last access there, and its own board goes to the
//! job's [`Pool`]. The board is reused, for another communicator, once all of its words are set.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use portolan_core::comm::Communicator;
use portolan_core::device::{Caps, Region};
use portolan_core::{Device, ProcId, Result};

use crate::direct::blocking::choice::Choice;
use crate::direct::boards::board::{CHUNK, CHUNK_IN_TURNS, Map, TRACKS};
use crate::direct::boards::edges::Edges;
#[cfg(test)]
use crate::direct::boards::long::has_shared_vectors;
use crate::direct::boards::long::{LONG_ALONG_SHARED, Long};
use crate::direct::boards::told::Told;
use crate::direct::boards::view::Boards;
use crate::direct::tracks::hope::Hope;
use crate::direct::tracks::lending::Wishes;
use crate::direct::tracks::turns::Turns;
use crate::options::Options;
use crate::state::lock;

/// Communicators with more ranks than this use messages, because one rank would have to look at
/// that many boards.
const MOST_RANKS: u32 = 256;

/// State that the boards of all of a rank's communicators share.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Boards of communicators that this rank has dropped.
    retired: Mutex<Vec<Retired>>,
    /// Memory of long places at which no rank looks any more.
    spare: Mutex<Vec<Region>>,
    /// Whether ranks check that the others' items are of the same sort.
    pub(in crate::direct) types: bool,
    /// Whether reductions give the same bits whatever the number of ranks.
    reproducible: bool,
    /// Whether this rank takes the lines of boards that it has read.
    takes: bool,
}

#[derive(Debug)]
struct Retired {
    region: Region,
    ranks: u32,
    /// The rank whose board it was.
    rank: u32,
    /// The memory of its long places.
    long: Vec<Region>,
}

impl Retired {
    /// Whether no rank will look at it any more.
    fn is_free(&self) -> bool {
        let map = Map::new(self.ranks, CHUNK);
        (0..self.ranks)
            .filter(|&reader| reader != self.rank)
            // SAFETY: the region was a board for this many ranks, and is not freed before the job
            // ends. Acquire: pairs with the Release store in `Drop for Boards`; all of the reader's
            // reads of the board happened before it.
            .all(|reader| unsafe { map.gone(self.region.ptr, reader) }.load(Ordering::Acquire) != 0)
    }
}

impl Pool {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            retired: Mutex::default(),
            spare: Mutex::default(),
            types: options.types,
            reproducible: options.reproducible,
            takes: options.takes,
        }
    }

    // No lock is held while the device is called, because boards are also retired from within its
    // progress.

    /// Memory for a board of at least `len` bytes.
    fn take<D: Device>(&self, device: &D, len: usize) -> Result<Region> {
        let fits = |old: &Retired| old.region.len >= len && old.is_free();
        let old = {
            let mut retired = lock(&self.retired);
            let index = retired.iter().position(fits);
            index.map(|index| retired.swap_remove(index))
        };
        match old {
            Some(old) => {
                lock(&self.spare).extend(old.long);
                Ok(old.region)
            }
            None => device.alloc_region(len),
        }
    }

    /// One region of at least `len` bytes for all long places of a board, if there is memory.
    pub(in crate::direct) fn take_long<D: Device>(&self, device: &D, len: usize) -> Option<Region> {
        let free: Vec<Region> = {
            let mut retired = lock(&self.retired);
            let free = retired.iter_mut().filter(|old| old.is_free());
            free.flat_map(|old| std::mem::take(&mut old.long)).collect()
        };
        let old = {
            let mut spare = lock(&self.spare);
            spare.extend(free);
            let fits = |(_, region): &(usize, &Region)| region.len >= len;
            let fit = spare.iter().enumerate().filter(fits);
            let least = fit.min_by_key(|(_, region)| region.len);
            least
                .map(|(index, _)| index)
                .map(|index| spare.swap_remove(index))
        };
        old.or_else(|| device.alloc_region(len).ok())
    }

    fn give(&self, retired: Retired) {
        lock(&self.retired).push(retired);
    }
}

/// Makes the boards of a communicator. Collective. `None`, on all ranks, unless every rank can load
/// and store all others' boards.
pub(in crate::direct) fn make<D: Device>(
    comm: &Communicator<D>,
    pool: &Arc<Pool>,
) -> Result<Option<Boards>> {
    let (rank, ranks) = (comm.rank(), comm.size());
    if !(2..=MOST_RANKS).contains(&ranks) {
        return Ok(None);
    }
    let chunk = match comm.device().processor() {
        Some(_) => CHUNK_IN_TURNS,
        None => CHUNK,
    };
    // A rank without a board says so below, and then no rank uses boards.
    let region = own_board(comm, pool, Map::new(ranks, chunk));
    let neighbours = comm.neighbours();
    let mine = Told {
        board: region.map(|region| region.key),
        edges: Edges::told(neighbours.as_ref()),
        gains: neighbours.is_some() && gains_by_messages(comm.device()),
        takes: pool.takes,
        chunk,
    };
    let words = match comm.allgather_words(&mine.to_words()) {
        Ok(words) => words,
        Err(error) => {
            // No rank uses boards before this rank has told that it can.
            if let Some(region) = region {
                retire_unused(pool, region, ranks, rank);
            }
            return Err(error);
        }
    };
    let (words, _) = words.as_chunks::<{ Told::WORDS }>();
    let told: Vec<Told> = words.iter().map(Told::from_words).collect();
    let boards = region.as_ref().and_then(|own| mapped(comm, own, &told));
    let mut all = [u64::from(boards.is_some())];
    if let Err(error) = comm.and_words(&mut all) {
        if let Some(region) = region {
            // The other ranks may have succeeded and look at the board from now on, so it is not
            // free before each of them has said that it has gone.
            pool.give(Retired {
                region,
                ranks,
                rank,
                long: Vec::new(),
            });
        }
        return Err(error);
    }
    match (boards, region) {
        (Some(boards), Some(region)) if all == [1] => {
            Ok(Some(assembled(comm, pool, region, boards, &told)))
        }
        (_, Some(region)) => {
            retire_unused(pool, region, ranks, rank);
            Ok(None)
        }
        _ => Ok(None),
    }
}

/// Memory for this rank's board, ready to be shown; `None` if there is none, or if not all ranks
/// could reach it.
fn own_board<D: Device>(comm: &Communicator<D>, pool: &Pool, map: Map) -> Option<Region> {
    if !shares_memory(comm) {
        return None;
    }
    let region = pool.take(comm.device(), map.len()).ok()?;
    // SAFETY: the region is this rank's, is at least this long, and no rank looks at it: it is new,
    // or was found free, and its key has not yet been given to others as a board of this
    // communicator.
    unsafe { std::ptr::write_bytes(region.ptr, 0, map.zeroed()) };
    Some(region)
}

/// The boards of a communicator all of whose ranks have one, from what they have told.
fn assembled<D: Device>(
    comm: &Communicator<D>,
    pool: &Arc<Pool>,
    region: Region,
    boards: Box<[NonNull<u8>]>,
    told: &[Told],
) -> Boards {
    let (ranks, device) = (comm.size(), comm.device());
    let least = told.iter().map(|told| told.chunk).min();
    let map = Map::new(ranks, least.unwrap_or(CHUNK));
    let caps = device.attributes().caps;
    let many_threads = caps.contains(Caps::THREAD_MULTIPLE);
    let gain = told.iter().all(|told| told.gains);
    let edges = |neighbours| Edges::new(neighbours, told.iter().map(|told| told.edges), gain);
    Boards {
        map,
        edges: comm.neighbours().map(edges),
        boards,
        processes: comm.group().iter().collect(),
        rank: comm.rank(),
        region,
        step: AtomicU32::new(FIRST_STEP),
        proved: AtomicU32::new(FIRST_STEP),
        tracks: std::array::from_fn::<_, TRACKS, _>(|track| {
            Turns::new(track, map.track(track), many_threads)
        }),
        hope: Hope::default(),
        waits_alone: AtomicBool::new(false),
        ahead: AtomicBool::new(false),
        busy: AtomicBool::new(false),
        many_threads,
        long: Long::new(ranks),
        choice: Choice::new(ranks, device.exposing().is_some()),
        pulls: AtomicBool::new(true),
        wishes: Wishes::new(),
        pool: Arc::clone(pool),
        is_quick: ranks == 2 && !pool.reproducible,
        types: pool.types,
        takes: told.iter().all(|told| told.takes),
    }
}

/// Not 0, because every cell contains 0 at the beginning.
const FIRST_STEP: u32 = 1;

/// Whether, as far as this rank knows, all ranks can reach each other's memory.
fn shares_memory<D: Device>(comm: &Communicator<D>) -> bool {
    let device = comm.device();
    let mut nodes = comm.group().iter().map(|member| device.node_of(member));
    let first = nodes.next();
    device.attributes().caps.contains(Caps::DIRECT) && nodes.all(|node| Some(node) == first)
}

/// Whether vectors that are too long for boards along edges should go as messages instead: peers
/// load them where they are, and this rank is not known to take turns on a processor with others.
/// (Messages need more turns.)
fn gains_by_messages<D: Device>(device: &D) -> bool {
    #[cfg(test)]
    if has_shared_vectors() {
        return true;
    }
    if device.processor().is_some() {
        return false;
    }
    let mut one = Vec::<u8>::new();
    let there = one.try_reserve_exact(LONG_ALONG_SHARED + 1).is_ok();
    there && device.shares(one.as_ptr(), one.capacity())
}

/// The local addresses of all boards, by rank, if every rank has one.
fn mapped<D: Device>(
    comm: &Communicator<D>,
    own: &Region,
    told: &[Told],
) -> Option<Box<[NonNull<u8>]>> {
    let device = comm.device();
    let board = |(member, told): (ProcId, &Told)| {
        let key = told.board?;
        match member.index() == device.attributes().world_rank {
            true => NonNull::new(own.ptr),
            false => device.direct(member, &key),
        }
    };
    comm.group().iter().zip(told).map(board).collect()
}

/// Returns a board whose key was told to others but which was never used: no rank looks at it.
fn retire_unused(pool: &Pool, region: Region, ranks: u32, rank: u32) {
    let map = Map::new(ranks, CHUNK);
    for reader in 0..ranks {
        // SAFETY: the region has room for one word per rank, and is this rank's alone.
        unsafe { map.gone(region.ptr, reader) }.store(1, Ordering::Relaxed);
    }
    pool.give(Retired {
        region,
        ranks,
        rank,
        long: Vec::new(),
    });
}

impl Drop for Boards {
    /// Says on all other boards that this rank has looked at them for the last time, and retires
    /// its own board for reuse.
    fn drop(&mut self) {
        for (board, _) in self.others() {
            // SAFETY: the board is mapped as long as the device lives, which the communicator keeps
            // alive, and its owner does not reuse it before it has read this word. Release: pairs
            // with `Retired::is_free`; all of this rank's reads of the board come before.
            unsafe { self.map.gone(board, self.rank) }.store(1, Ordering::Release);
        }
        self.pool.give(Retired {
            region: self.region,
            ranks: self.size(),
            rank: self.rank,
            long: self.long.take_own(),
        });
    }
}

#[cfg(test)]
mod tests {
    use portolan_core::ErrorKind;

    use super::*;
    use crate::direct::tests::on_some;

    #[test]
    fn memory_of_boards_that_could_not_be_made_is_used_again() {
        on_some(2, |world| {
            if world.rank() == 1 {
                world.device().declare_self_failed("on purpose");
                return;
            }
            let heard = world.device().wait_for(world.group(), || false);
            heard.unwrap_err();
            let pool = Arc::new(Pool::new(&Options::default()));
            let memory = || {
                let error = make(world, &pool).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
                let retired = lock(&pool.retired);
                assert!(retired.iter().all(Retired::is_free));
                retired.iter().map(|old| old.region.ptr).collect::<Vec<_>>()
            };
            let first = memory();
            assert_eq!(first.len(), 1);
            assert_eq!(memory(), first);
        });
    }
}
