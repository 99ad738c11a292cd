//! The state that this crate keeps per communicator, and per rank of a job.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use portolan_core::comm::{Communicator, FIRST_FREE_TAG, Neighbours, Slot, Tag};
use portolan_core::{Device, Error, ErrorKind, Result};

use crate::counters::{Counters, Totals};
use crate::direct::{Direct, Pool};
use crate::levels::Levels;
use crate::options::Options;
use crate::run::Started;
use crate::schedule::{LANES, Lane, Schedule};
use crate::start::Progress;

/// First tag of this crate on the collective context; the collectives of core use the tags below.
const FIRST_TAG: u32 = FIRST_FREE_TAG;

/// The state of one communicator.
#[derive(Debug)]
pub(crate) struct State {
    /// Number of operations started. It is the same on all ranks, because all start operations in
    /// the same order.
    started: AtomicU32,
    /// Number of persistent operations made.
    reserved: AtomicU32,
    tags: Tags,
    counters: [AtomicU64; Counters::COUNT],
    spare: Mutex<Vec<Spare>>,
    /// Which ranks share a node, if that makes a difference.
    levels: OnceLock<Option<Arc<Levels>>>,
    /// This rank's edges in the communicator's topology.
    neighbours: OnceLock<Option<Neighbours>>,
    /// Memory that the members share.
    pub(crate) direct: Direct,
    /// The counters are added to these totals when the communicator ends.
    totals: Arc<Totals>,
}

impl Drop for State {
    fn drop(&mut self) {
        let counted = Counters::ALL.map(|what| self.counted(what));
        self.totals.add(counted);
    }
}

/// Memory of a blocking call, kept for the next one.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    pub(crate) schedule: Schedule,
    pub(crate) scratch: Scratch,
    pub(crate) requests: Vec<Started>,
}

/// The state of one rank of a job, shared by all of its communicators.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) options: Options,
    pub(crate) progress: Progress,
    /// Boards of communicators that have ended.
    pub(crate) boards: Arc<Pool>,
    /// Counters of communicators that have ended.
    pub(crate) totals: Arc<Totals>,
}

impl Job {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            boards: Arc::new(Pool::new(&options)),
            options,
            progress: Progress::default(),
            totals: Arc::default(),
        }
    }
}

/// The state of a communicator.
#[inline]
pub(crate) fn of<D: Device>(comm: &Communicator<D>) -> &State {
    comm.extension(Slot::Coll, || {
        let totals = Arc::clone(&of_job(comm).totals);
        State::new(comm.device().attributes().tag_ub, totals)
    })
}

/// The state of the job.
#[inline]
pub(crate) fn of_job<D: Device>(comm: &Communicator<D>) -> &Job {
    comm.job_extension(Slot::Coll, || Job::new(Options::default()))
}

impl State {
    fn new(tag_ub: u32, totals: Arc<Totals>) -> Self {
        Self {
            started: AtomicU32::new(0),
            reserved: AtomicU32::new(0),
            tags: Tags::new(tag_ub),
            counters: std::array::from_fn(|_| AtomicU64::new(0)),
            spare: Mutex::default(),
            levels: OnceLock::new(),
            neighbours: OnceLock::new(),
            direct: Direct::default(),
            totals,
        }
    }

    /// Which ranks share a node; `None` if all of them do, or none.
    #[inline]
    pub(crate) fn levels<D: Device>(&self, comm: &Communicator<D>) -> Option<Arc<Levels>> {
        let levels = self.levels.get_or_init(|| {
            let nodes = comm
                .group()
                .iter()
                .map(|member| comm.device().node_of(member));
            let levels = Levels::new(nodes);
            levels.are_useful().then(|| Arc::new(levels))
        });
        levels.clone()
    }

    /// This rank's edges in the communicator's topology; `None` if it has no topology.
    #[inline]
    pub(crate) fn neighbours<D: Device>(&self, comm: &Communicator<D>) -> Option<&Neighbours> {
        self.neighbours.get_or_init(|| comm.neighbours()).as_ref()
    }

    /// The number of an operation that starts now. Operations on one communicator are started one
    /// after the other (MPI-4 section 6.14), so no atomic read-modify-write is needed.
    #[inline]
    pub(crate) fn begin(&self) -> u32 {
        let number = self.started.load(Ordering::Relaxed);
        self.started
            .store(number.wrapping_add(1), Ordering::Relaxed);
        number
    }

    /// A number for a persistent operation. It does not depend on the order in which such
    /// operations are started.
    pub(crate) fn reserve(&self) -> u32 {
        let number = self.reserved.load(Ordering::Relaxed);
        self.reserved
            .store(number.wrapping_add(1), Ordering::Relaxed);
        number
    }

    /// Takes back the last reserved number, because the operation was not made.
    pub(crate) fn unreserve(&self) {
        let number = self.reserved.load(Ordering::Relaxed);
        self.reserved
            .store(number.wrapping_sub(1), Ordering::Relaxed);
    }

    pub(crate) fn tags(&self) -> Tags {
        self.tags
    }

    /// Adds to a counter. Only one thread at a time runs an operation on the communicator, so no
    /// atomic read-modify-write is needed; a thread that reads the counter elsewhere may see the
    /// new value late.
    #[inline]
    pub(crate) fn count(&self, what: Counters, more: u64) {
        let counter = &self.counters[what as usize];
        counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    pub(crate) fn counted(&self, what: Counters) -> u64 {
        self.counters[what as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn take_spare(&self) -> Spare {
        lock(&self.spare).pop().unwrap_or_default()
    }

    /// Returns memory for reuse, unless it is large.
    pub(crate) fn keep_spare(&self, spare: Spare) {
        if spare.scratch.len() <= SPARE_MAX {
            let mut kept = lock(&self.spare);
            if kept.len() < 2 {
                kept.push(spare);
            }
        }
    }
}

/// How tags are assigned to a communicator's operations: half of the tags serve operations in the
/// order in which they are started, half persistent operations in the order in which they are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tags {
    /// The number of operations of one kind whose messages can be told apart.
    distinct: u32,
}

/// The tags of one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnTags(u32);

impl Tags {
    fn new(tag_ub: u32) -> Self {
        let room = (tag_ub.saturating_sub(FIRST_TAG) / LANES / 2).max(1);
        // A power of two, so that the sequence stays regular when the operation number wraps
        // around.
        Self {
            distinct: 1 << room.ilog2(),
        }
    }

    /// The tags of the operation that was started with this number.
    #[inline]
    pub(crate) fn started(self, number: u32) -> OwnTags {
        OwnTags(FIRST_TAG + number % self.distinct * LANES)
    }

    /// The tags of the persistent operation with this number.
    pub(crate) fn reserved(self, number: u32) -> OwnTags {
        OwnTags(FIRST_TAG + (self.distinct + number % self.distinct) * LANES)
    }
}

impl OwnTags {
    /// The tag of messages in a lane.
    #[inline]
    pub(crate) fn lane(self, lane: Lane) -> Tag {
        Tag(self.0 + u32::from(lane))
    }
}

/// The most bytes of scratch memory that are kept between calls.
pub(crate) const SPARE_MAX: usize = 8 << 20;

/// Initialised memory, aligned as [`crate::schedule::Builder`] requires.
#[derive(Default)]
pub(crate) struct Scratch(Vec<Line>);

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

const _: () = assert!(align_of::<Line>() == crate::schedule::ALIGN);

impl Scratch {
    /// At least `len` bytes, with unspecified contents.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) if there is no memory.
    pub(crate) fn at_least(&mut self, len: usize) -> Result<*mut u8> {
        let lines = len.div_ceil(size_of::<Line>());
        if self.0.len() < lines {
            // The old contents need not be copied.
            self.0 = Vec::new();
            let room = self.0.try_reserve_exact(lines);
            room.map_err(|_| no_memory(len))?;
            self.0.resize(lines, Line([0; 64]));
        }
        Ok(self.0.as_mut_ptr().cast())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len() * size_of::<Line>()
    }
}

#[cold]
fn no_memory(len: usize) -> Error {
    let what = format!("there is no memory for {len} bytes of a collective operation's own");
    Error::new(ErrorKind::Exhausted, what).remedy("take a vector in parts, or with fewer ranks")
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scratch({} bytes)", self.len())
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
