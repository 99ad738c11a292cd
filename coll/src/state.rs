//! The state that this crate keeps per communicator, and per rank of a job.

mod tags;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use portolan_core::comm::{Communicator, Neighbours, OneWay, Slot, Topology};
use portolan_core::device::Check;
use portolan_core::{Device, Result};

use self::tags::InUse;
pub(crate) use self::tags::{Held, OwnTags, Tags};

use crate::counters::{Counters, Totals};
use crate::direct::{Direct, Pool};
use crate::levels::Levels;
use crate::options::Options;
use crate::run::Started;
use crate::schedule::Schedule;
use crate::scratch::{Scratch, Scratches};
use crate::start::Progress;

/// The state of one communicator.
#[derive(Debug)]
pub(crate) struct State {
    /// Number of operations started. It is the same on all ranks, because all start operations in
    /// the same order.
    started: AtomicU32,
    /// Number of persistent operations made.
    reserved: AtomicU32,
    tags: Tags,
    in_use: Arc<InUse>,
    counters: [AtomicU64; Counters::COUNT],
    spare: Mutex<Vec<Spare>>,
    /// Which ranks share a node, if that makes a difference.
    levels: OnceLock<Option<Arc<Levels>>>,
    /// This rank's edges in the communicator's topology.
    neighbours: OnceLock<Result<Neighbours, Unfit>>,
    /// Memory that the members share.
    pub(crate) direct: Direct,
    /// The counters are added to these totals when the communicator ends.
    totals: Arc<Totals>,
}

/// Why neighbour collectives cannot use a communicator. It is the same on all ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unfit {
    NoTopology,
    /// Its graph has edges for which none, or too few, lead back.
    OneWay(OneWay),
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
    /// Long scratch memory that is not in use.
    pub(crate) scratches: Arc<Scratches>,
    /// Boards of communicators that have ended.
    pub(crate) boards: Arc<Pool>,
    /// Counters of communicators that have ended.
    pub(crate) totals: Arc<Totals>,
}

impl Job {
    pub(crate) fn new(options: Options) -> Self {
        let scratches = Arc::default();
        Self {
            boards: Arc::new(Pool::new(&options)),
            options,
            progress: Progress::new(Arc::clone(&scratches)),
            scratches,
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

/// This rank's edges, or why neighbour collectives cannot use the communicator's.
#[cold]
fn edges_of<D: Device>(comm: &Communicator<D>) -> Result<Neighbours, Unfit> {
    let one_way = match comm.topology() {
        Some(Topology::Graph(graph)) => graph.one_way(),
        // Grids are even, and of a distributed graph no rank knows more than its own edges.
        _ => None,
    };
    match one_way {
        Some(edges) => Err(Unfit::OneWay(edges)),
        None => comm.neighbours().ok_or(Unfit::NoTopology),
    }
}

impl State {
    fn new(tag_ub: u32, totals: Arc<Totals>) -> Self {
        Self {
            started: AtomicU32::new(0),
            reserved: AtomicU32::new(0),
            tags: Tags::new(tag_ub),
            in_use: Arc::default(),
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

    /// This rank's edges in the communicator's topology, if neighbour collectives can use it. Only
    /// the first call looks at the topology.
    #[inline]
    pub(crate) fn neighbours<D: Device>(
        &self,
        comm: &Communicator<D>,
    ) -> Result<&Neighbours, Unfit> {
        let neighbours = self.neighbours.get_or_init(|| edges_of(comm));
        neighbours.as_ref().map_err(|&unfit| unfit)
    }

    /// The number of an operation that starts now. Operations on one communicator are started one
    /// after the other (MPI-4 section 6.14), so no atomic read-modify-write is needed.
    ///
    /// Three series of numbers run side by side, each the same on all ranks:
    /// - the numbers of operations, from which tags follow: this one, and that of persistent
    ///   operations ([`reserve`](Self::reserve)). Every operation that is not persistent takes one,
    ///   because another rank may do it by messages. A blocking operation that begins on the boards
    ///   and is left to messages takes two, one in `direct/mod.rs` and one in `blocking.rs`: the
    ///   ranks have agreed to leave it, so each of them does, even one without memory for it;
    /// - the steps of the boards (`Boards::step`), of which a blocking operation takes one or more;
    /// - the steps of each track (`Turns`), of which an operation takes one.
    #[inline]
    pub(crate) fn begin(&self) -> u32 {
        let number = self.started.load(Ordering::Relaxed);
        self.started
            .store(number.wrapping_add(1), Ordering::Relaxed);
        number
    }

    /// The number that [`begin`](Self::begin) gives next.
    #[inline]
    pub(crate) fn upcoming(&self) -> u32 {
        self.started.load(Ordering::Relaxed)
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

    /// Takes the tags of the operation that [`begin`](Self::begin) begins next; `None` if an
    /// operation is still under way to which they belong, too. To wait for that operation is no
    /// choice for a nonblocking one: it may wait for a rank that waits for this rank's next call.
    pub(crate) fn hold_started(&self) -> Option<Held> {
        self.in_use.hold(self.tags.started(self.upcoming()))
    }

    /// Takes the tags of the persistent operation that is made next; `None` if a persistent
    /// operation is still alive to which they belong, too.
    pub(crate) fn hold_reserved(&self) -> Option<Held> {
        let number = self.reserved.load(Ordering::Relaxed);
        self.in_use.hold(self.tags.reserved(number))
    }

    /// Waits until no operation under way holds these tags, for a blocking operation that is to use
    /// them. Every rank calls the operation under way before this one, and takes part in it while
    /// it waits here or in this one.
    ///
    /// # Errors
    /// [`Aborted`](ErrorKind::Aborted) when the job ends.
    #[inline]
    pub(crate) fn await_tags<D: Device>(&self, device: &D, tags: OwnTags) -> Result<()> {
        match self.in_use.has(tags) {
            false => Ok(()),
            true => self.await_held(device, tags),
        }
    }

    #[cold]
    fn await_held<D: Device>(&self, device: &D, tags: OwnTags) -> Result<()> {
        loop {
            // An operation gives its tags back before it completes its request, and that changes
            // the epoch.
            let epoch = device.completion_epoch();
            if !self.in_use.has(tags) {
                return Ok(());
            }
            device.device_check(Check::Blocking(epoch))?;
        }
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

    /// Returns memory for reuse: long memory to the rank, what is left to this communicator.
    pub(crate) fn keep_spare(&self, scratches: &Scratches, mut spare: Spare) {
        scratches.keep(&mut spare.scratch);
        let mut kept = lock(&self.spare);
        if kept.len() < 2 {
            kept.push(spare);
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
