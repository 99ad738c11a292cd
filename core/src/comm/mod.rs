//! The untyped communicator: a group, the caller's rank in it, and context ids of its own, on a
//! device.
//!
//! `portolan::Comm`, `coll` and `rma` (to come) are built on [`Communicator`]. It translates ranks
//! of its group into processes of the device, checks ranks and tags once
//! ([`Communicator::send_args`], [`Communicator::pattern`]), and keeps what MPI attaches to a
//! communicator: a name, an error mode, attributes. It is a counted handle: clones are the same
//! communicator.
//!
//! **Creation** by [`dup`](Communicator::dup), [`split`](Communicator::split) or
//! [`create`](Communicator::create) is collective over the parent, whose ranks agree on the context
//! ids (`context.rs` explains how). [`create_group`](Communicator::create_group) is collective over
//! the new group only, and [`alone`](Communicator::alone) is local. **Freeing** is local: dropping
//! the last handle never waits for another rank, and pending operations still complete. Messages
//! that no receive has matched by then are discarded, except those of a rank's last communicator.
//! The id returns to this rank's set of free ids once no pending operation holds a [lease](Lease)
//! on it. It is used again only when it is free on every rank that takes part in a later creation.
//!
//! The few collectives here ([`barrier`](Communicator::barrier), [`bcast`](Communicator::bcast),
//! [`and_words`](Communicator::and_words), [`allgather_words`](Communicator::allgather_words)) are
//! the ones that creation needs; the full set is in `coll`. `tags.rs` assigns the tags on the
//! collective context.

mod among;
mod args;
mod attributes;
mod collective;
mod context;
mod create;
mod extension;
mod gate;
mod inter;
mod later;
mod meet;
mod select;
mod sweep;
mod tags;
#[cfg(test)]
mod tests;
mod topology;

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use crate::guard::NoUnwind;
pub use attributes::Key;
pub use collective::Binomial;
pub use context::Lease;
pub use create::SplitBy;
pub use extension::Slot;
pub use inter::{InterCommunicator, PendingInterDup, RemoteLeader};
pub use later::PendingDup;
pub use select::{Source, Tag, Tags};
pub use tags::FIRST_FREE_TAG;
pub use topology::{
    Cartesian, Dimension, DistGraph, Edges, Graph, Neighbour, Neighbours, OneWay, Shift, Topology,
    dims_create,
};

use crate::device::{CommView, Device};
use crate::error::{Error, ErrorKind, Result};
use crate::group::{Comparison, Group};
use attributes::Attributes;
use extension::{Extensions, Job};

/// How errors on a communicator are handled (MPI-4 section 9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Errors {
    /// The call returns it (`MPI_ERRORS_RETURN`).
    #[doc(alias = "MPI_ERRORS_RETURN")]
    #[default]
    Return,
    /// The job ends with the error's text (`MPI_ERRORS_ARE_FATAL`).
    #[doc(alias = "MPI_ERRORS_ARE_FATAL")]
    Abort,
}

/// A communicator on a device. See the [module](self).
///
/// Threads may share it if they may share the device.
#[derive(Debug)]
pub struct Communicator<D: Device>(Arc<Inner<D>>);

impl<D: Device> Clone for Communicator<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Inner<D: Device> {
    device: Arc<D>,
    group: Group,
    rank: u32,
    tag_ub: u32,
    /// The first of its contexts (`context.rs` lists them), that of point-to-point messages.
    context: u32,
    /// How many of them the device knows of: 1 for a communicator without collectives.
    contexts: u32,
    errors: AtomicU8,
    job: Arc<Job<D>>,
    extensions: Extensions<D>,
    topology: Option<Arc<Topology>>,
    name: Mutex<String>,
    attributes: Mutex<Attributes>,
    lease: Lease,
}

/// The parts of a new communicator.
struct New<'a, D: Device> {
    parent: Option<&'a Communicator<D>>,
    group: Group,
    rank: u32,
    context: u32,
    /// Whether its ranks perform collectives with each other. Not if `group` is the remote group of
    /// an intercommunicator.
    collective: bool,
    errors: Errors,
    name: String,
    topology: Option<Arc<Topology>>,
}

impl<D: Device> Communicator<D> {
    /// The communicator of all processes of the device (`MPI_COMM_WORLD`). Local; make it once per
    /// device.
    ///
    /// # Errors
    /// [`InvalidCommunicator`](ErrorKind::InvalidCommunicator) if the device has one already.
    #[doc(alias = "MPI_COMM_WORLD")]
    pub fn world(device: Arc<D>) -> Result<Self> {
        let attributes = device.attributes();
        let (rank, size) = (attributes.world_rank, attributes.world_size);
        let job = Arc::new(Job::new(Arc::clone(&device)));
        let context = job.pool.reserve_first();
        let new = New {
            parent: None,
            group: Group::world(size),
            rank,
            context,
            collective: true,
            errors: Errors::Return,
            name: "world".to_owned(),
            topology: None,
        };
        Self::build(device, job, new)
    }

    fn build(device: Arc<D>, job: Arc<Job<D>>, new: New<'_, D>) -> Result<Self> {
        let tag_ub = device.attributes().tag_ub;
        let contexts = if new.collective { context::KNOWN } else { 1 };
        let view = CommView {
            context: new.context,
            contexts,
            group: new.group.clone(),
            rank: new.rank,
        };
        if let Err(error) = device.comm_init(new.parent.map(Self::view).as_ref(), &view) {
            // Other ranks may have sent already.
            job.pool.release_unswept(new.context);
            return Err(error);
        }
        let lease = Lease::new(Arc::clone(&job.pool), new.context);
        Ok(Self(Arc::new(Inner {
            device,
            group: new.group,
            rank: new.rank,
            tag_ub,
            context: new.context,
            contexts,
            errors: AtomicU8::new(new.errors as u8),
            job,
            extensions: Extensions::default(),
            lease,
            topology: new.topology,
            name: Mutex::new(new.name),
            attributes: Mutex::new(Attributes::default()),
        })))
    }

    // ---- What it is ----------------------------------------------------------------------------

    /// The caller's rank: at least 0, below [`size`](Self::size) (`MPI_Comm_rank`).
    #[doc(alias = "MPI_Comm_rank")]
    #[inline]
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.0.rank
    }

    /// Number of ranks (`MPI_Comm_size`).
    #[doc(alias = "MPI_Comm_size")]
    #[inline]
    #[must_use]
    pub fn size(&self) -> u32 {
        self.0.group.size()
    }

    /// The members, by rank (`MPI_Comm_group`).
    #[doc(alias = "MPI_Comm_group")]
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.0.group
    }

    /// The device underneath.
    #[inline]
    #[must_use]
    pub fn device(&self) -> &D {
        &self.0.device
    }

    /// A handle of the device's own, which keeps it alive.
    #[must_use]
    pub fn device_handle(&self) -> Arc<D> {
        Arc::clone(&self.0.device)
    }

    /// The communicator as the device sees it.
    #[must_use]
    pub fn view(&self) -> CommView {
        self.0.view()
    }

    /// Context id of point-to-point messages; the one of collectives follows it.
    #[must_use]
    pub fn context(&self) -> u32 {
        self.0.context
    }

    /// Whether two handles refer to the same communicator (`MPI_IDENT`).
    #[doc(alias = "MPI_IDENT")]
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// How alike two communicators are (`MPI_Comm_compare`).
    #[doc(alias = "MPI_Comm_compare")]
    #[must_use]
    pub fn compare(&self, other: &Self) -> Comparison {
        match self.group().compare(other.group()) {
            Comparison::Identical if !self.same_as(other) => Comparison::Congruent,
            groups => groups,
        }
    }

    /// Whether both descend from the same world.
    fn of_job(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0.job, &other.0.job)
    }

    /// Returns a lease: for as long as it lives, even after the communicator's last handle is gone,
    /// the communicator's context ids are not used again.
    #[must_use]
    pub fn lease(&self) -> Lease {
        self.0.lease.clone()
    }

    /// How many communicators of this rank are alive on the device, this one included.
    #[must_use]
    pub fn live(&self) -> u32 {
        self.0.job.pool.live()
    }

    /// Marks this rank as having left the job. Afterwards its communicators serve only to finish
    /// the messages under way and to be dropped. Collective calls on them, creations included,
    /// return [`Finalized`](ErrorKind::Finalized), even where they would send nothing. Local.
    pub fn end_all(&self) {
        // Relaxed: it carries no data. A concurrent call in another thread may go either way.
        self.0.job.ended.store(true, Ordering::Relaxed);
    }

    /// The name for people to see (`MPI_Comm_get_name`).
    #[doc(alias = "MPI_Comm_get_name")]
    #[must_use]
    pub fn name(&self) -> String {
        lock(&self.0.name).clone()
    }

    /// Sets the name (`MPI_Comm_set_name`).
    #[doc(alias = "MPI_Comm_set_name")]
    pub fn set_name(&self, name: impl Into<String>) {
        *lock(&self.0.name) = name.into();
    }

    // ---- Errors --------------------------------------------------------------------------------

    /// How errors are handled (`MPI_Comm_get_errhandler`).
    #[doc(alias = "MPI_Comm_get_errhandler")]
    #[must_use]
    pub fn errors(&self) -> Errors {
        if self.0.errors.load(Ordering::Relaxed) == Errors::Abort as u8 {
            Errors::Abort
        } else {
            Errors::Return
        }
    }

    /// Sets how errors are handled from now on (`MPI_Comm_set_errhandler`).
    #[doc(alias = "MPI_Comm_set_errhandler")]
    pub fn set_errors(&self, errors: Errors) {
        self.0.errors.store(errors as u8, Ordering::Relaxed);
    }

    /// Makes an error that names this rank and this device.
    #[cold]
    #[must_use]
    pub fn error(&self, kind: ErrorKind, what: String, remedy: &str) -> Error {
        let attributes = self.0.device.attributes();
        Error::new(kind, what)
            .remedy(remedy)
            .on_rank(attributes.world_rank)
            .on_device(attributes.name)
    }
}

impl<D: Device> Inner<D> {
    fn view(&self) -> CommView {
        CommView {
            context: self.context,
            contexts: self.contexts,
            group: self.group.clone(),
            rank: self.rank,
        }
    }
}

impl<D: Device> Drop for Inner<D> {
    /// Local: the device forgets the contexts, and discards what waits in them, unless this is the
    /// last communicator of the job. The id becomes free on this rank when the last lease is
    /// dropped.
    fn drop(&mut self) {
        self.extensions.close(&self.device);
        self.device.comm_free(&self.view());
        // Discarding tells senders that their messages were received. If the rank is leaving, maybe
        // because of an error, they learn that instead. No later communicator needs the context.
        let leaving = self.job.ended.load(Ordering::Relaxed) || self.job.pool.live() == 1;
        if !leaving && !std::thread::panicking() {
            let (device, job, context) = (&self.device, &self.job, self.context);
            self.lease
                .sweep_if_last(|| sweep::discard(&**device, job, context));
        }
        // Last, because the delete hooks belong to the program and may panic. The lease is dropped
        // in any case and frees the id, so the device must have forgotten the contexts by then.
        let attributes = self.attributes.get_mut();
        attributes.unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl<D: Device> std::fmt::Debug for Inner<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Communicator")
            .field("name", &*lock(&self.name))
            .field("rank", &self.rank)
            .field("size", &self.group.size())
            .field("context", &self.context)
            .finish_non_exhaustive()
    }
}

/// Locks `mutex`, ignoring poison: a hook may have panicked while the lock was held, but no update
/// under it is ever left half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
