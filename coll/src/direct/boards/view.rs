//! The boards of a communicator, and what a rank does with them.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use portolan_core::comm::Communicator;
use portolan_core::device::Region;
use portolan_core::{Device, Error, ErrorKind, ProcId, Result};
use portolan_datatype::Layout;

use super::board::{Header, Map, TRACKS, data_of, header_of};
use super::edges::Edges;
use super::long::Long;
use super::setup::Pool;
use crate::args::Operation;
use crate::direct::agree::sort::{Sort, Sorts};
use crate::direct::blocking::choice::Choice;
use crate::direct::tracks::hope::Hope;
use crate::direct::tracks::lending::Wishes;
use crate::direct::tracks::turns::Turns;

/// Pauses between posting and the first look in a step in which all ranks post at about the same
/// time. (A pause takes 24 ns on an EPYC of family 26; back-to-back barriers of two ranks take 82,
/// 62, 88, 112 and 138 ns there with none to four.)
const SETTLE: u32 = 1;
/// The same if this rank looked at no other in the previous operation. The others may have waited
/// for it then, and are behind. (Broadcast and barrier there: 172 ns with one pause, 120 with two,
/// 154 with three.)
const SETTLE_AHEAD: u32 = 2;

/// The boards of all ranks of a communicator, as seen by one of them.
#[derive(Debug)]
pub(in crate::direct) struct Boards {
    pub(in crate::direct) map: Map,
    /// The address of each rank's board, indexed by rank.
    pub(in crate::direct) boards: Box<[NonNull<u8>]>,
    pub(in crate::direct) processes: Box<[ProcId]>,
    pub(in crate::direct) rank: u32,
    /// The edges of the topology, if the communicator has one.
    pub(in crate::direct) edges: Option<Edges>,
    pub(in crate::direct) long: Long,
    /// The memory of this rank's own board.
    pub(in crate::direct) region: Region,
    /// The number of the next step. Every rank is known to have finished all steps before `proved`.
    /// Both are up to date between operations. Only one thread at a time uses them, because
    /// operations on one communicator do not overlap.
    pub(in crate::direct) step: AtomicU32,
    pub(in crate::direct) proved: AtomicU32,
    pub(in crate::direct) tracks: [Turns; TRACKS],
    /// How long the start of an operation polls for the other ranks.
    pub(in crate::direct) hope: Hope,
    /// Whether this rank waited in the last operation for ranks that did not wait for it
    /// ([`beside`](crate::direct::blocking::beside)).
    pub(in crate::direct) waits_alone: AtomicBool,
    /// Whether this rank looked at no other rank in the last operation.
    pub(in crate::direct) ahead: AtomicBool,
    /// Whether a blocking operation is using the boards.
    pub(in crate::direct) busy: AtomicBool,
    pub(in crate::direct) many_threads: bool,
    pub(in crate::direct) pool: Arc<Pool>,
    /// Whether short operations may take [the quick way](crate::direct::quick).
    pub(in crate::direct) is_quick: bool,
    /// Whether ranks check that the others' items are of the same sort.
    pub(in crate::direct) types: bool,
    /// Whether every rank takes the cache lines of board data that it alone reads
    /// ([`lines`](portolan_core::lines)).
    pub(in crate::direct) takes: bool,
    /// Which way (boards or messages) long operations take.
    pub(in crate::direct) choice: Choice,
    /// Whether ranks may copy from each other's buffers, as far as is known.
    pub(in crate::direct) pulls: AtomicBool,
    /// Which contributions to operations on tracks this rank wishes to be lent.
    pub(in crate::direct) wishes: Wishes,
}

// SAFETY: the addresses point to memory that is accessed in one of three ways: as atomics; by the
// protocol of `steps`, by the one operation that `busy` lets in; or by the protocol of tracks. In
// the last, a place belongs to its step, a step to one operation (the track gives out each step
// once, to one thread at a time), and an operation to one thread at a time.
unsafe impl Send for Boards {}
// SAFETY: as above.
unsafe impl Sync for Boards {}

impl Boards {
    #[inline]
    pub(in crate::direct) fn size(&self) -> u32 {
        self.boards.len() as u32
    }

    /// The sorts of the items that an operation moves at this rank.
    #[inline]
    pub(in crate::direct) fn sorts_of(&self, operation: &Operation<'_>) -> Sorts {
        match (self.types, operation) {
            (false, _) | (_, Operation::Barrier) => Sorts::ANY,
            _ => Sorts::of(operation, self.rank),
        }
    }

    #[inline]
    pub(in crate::direct) fn board(&self, rank: u32) -> *mut u8 {
        self.boards[rank as usize].as_ptr()
    }

    /// This rank's board.
    #[inline]
    pub(in crate::direct) fn own(&self) -> *mut u8 {
        self.region.ptr
    }

    /// The other ranks' boards, each with its rank's process.
    #[inline]
    pub(in crate::direct) fn others(&self) -> impl Iterator<Item = (*mut u8, ProcId)> + '_ {
        let others = |&(rank, _): &(u32, _)| rank != self.rank;
        let all = (0..).zip(self.boards.iter().zip(&self.processes));
        all.filter(others)
            .map(|(_, (board, process))| (board.as_ptr(), *process))
    }

    /// The sort of items of this layout, if there are items and ranks compare sorts.
    #[inline]
    pub(in crate::direct) fn sort_of(&self, layout: Option<&Layout>) -> Sort {
        match layout {
            Some(layout) if self.types => Sort::of_layout(layout),
            _ => Sort::ANY,
        }
    }

    /// Shows the header of this rank's cell at offset `cell` to the others. Data that belongs to it
    /// is on the board already. The cell of the next step is at offset `next`.
    #[inline]
    pub(in crate::direct) fn show(&self, cell: usize, next: usize, header: Header) {
        let own = self.own();
        // SAFETY: a board of this communicator. Release: pairs with the Acquire load in `header`;
        // the data is visible to a rank that sees the header.
        unsafe { header_of(own, cell) }.store(header.0, Ordering::Release);
        #[cfg(test)]
        crate::direct::tests::lingering::linger();
        // The others have had the line of the next cell since they last looked at it. Requesting it
        // here brings it back while this rank waits, rather than when it has something to show.
        want(data_of(own, next));
    }

    /// The header of a rank's cell at offset `cell`, which may be of an earlier step.
    #[inline]
    pub(in crate::direct) fn header(&self, rank: u32, cell: usize) -> Header {
        // SAFETY: a board of this communicator, mapped as long as it lives.
        let header = unsafe { header_of(self.board(rank), cell) };
        // Acquire: pairs with the Release store in `show`.
        Header(header.load(Ordering::Acquire))
    }

    /// A rank's header of a step, if it has been posted.
    #[inline]
    pub(in crate::direct) fn seen_of(&self, rank: u32, step: u32) -> Option<Header> {
        let header = self.header(rank, self.map.cell(step));
        (header.step() == step).then_some(header)
    }

    /// Pauses briefly before this rank looks at others that post at about the same time. `looked`
    /// says whether it has looked at any of them in this operation.
    #[inline]
    pub(in crate::direct) fn settle(&self, looked: bool) {
        // Ranks that arrive together should not look at once. A rank that looks before the other
        // has stored takes the other's line away for nothing: the store has to fetch the line back,
        // and the rank has to look again. That also makes the late rank the early one next time. (A
        // barrier of two ranks takes the time of two or three line transfers without the pause and
        // of one with it: 272 and 129 ns, where a line takes 125.)
        let ahead = !looked && self.ahead.load(Ordering::Relaxed);
        let pauses = if ahead { SETTLE_AHEAD } else { SETTLE };
        (0..pauses).for_each(|_| std::hint::spin_loop());
    }

    /// Publishes that this rank has finished all steps before `step`.
    pub(in crate::direct) fn publish<D: Device>(&self, device: &D, step: u32) {
        // SAFETY: a board of this communicator. Release: pairs with the Acquire loads in
        // `await_done` and `look_at_done`; all of this rank's reads come before it.
        unsafe { self.map.done(self.own()) }.store(step, Ordering::Release);
        self.wake_all(device);
    }

    /// Wakes the other ranks if they wait.
    #[inline]
    pub(in crate::direct) fn wake_all<D: Device>(&self, device: &D) {
        for (_, process) in self.others() {
            device.notify(process);
        }
    }

    /// Lets one operation in. Even a single-threaded rank can try to enter twice: a user-defined
    /// operator may call an operation on the communicator.
    #[inline]
    pub(in crate::direct) fn enter<D: Device>(&self, comm: &Communicator<D>) -> Result<()> {
        let busy = if self.many_threads {
            // Acquire: pairs with the Release store in `leave`, of another thread of this rank.
            self.busy.swap(true, Ordering::Acquire)
        } else {
            let busy = self.busy.load(Ordering::Relaxed);
            self.busy.store(true, Ordering::Relaxed);
            busy
        };
        match busy {
            false => Ok(()),
            true => Err(two_at_once(comm)),
        }
    }

    #[inline]
    pub(in crate::direct) fn leave(&self) {
        // Release: pairs with the Acquire swap in `enter`.
        self.busy.store(false, Ordering::Release);
    }
}

/// Requests the cache line of `at` for writing.
#[inline]
pub(in crate::direct) fn want(at: *const u8) {
    // Every x86-64 processor accepts the instruction (the oldest treat it as a no-op); the
    // intrinsic would need the feature to be enabled at compile time.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which neither reads nor writes nor faults, whatever the address.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

#[cold]
pub(in crate::direct) fn two_at_once<D: Device>(comm: &Communicator<D>) -> Error {
    comm.error(
        ErrorKind::InvalidCommunicator,
        "a collective operation is called on a communicator while another is at it: by a second thread, or by the other's operator"
            .to_owned(),
        "let threads take turns, or give each a communicator of its own (dup); operators must not communicate",
    )
}
