//! The untyped communicator: a group, a place in it, and context ids of its own, on a device.
//!
//! A [`Communicator`] is what `portolan::Comm`, `coll` and `rma` are built on. It turns ranks of
//! its group into processes of the device, checks ranks and tags once ([`Communicator::send_args`],
//! [`Communicator::pattern`]), and keeps what MPI hangs on a communicator: a name, an error mode,
//! attributes. It is a counted handle: clones are the same communicator.
//!
//! **Creation** ([`Communicator::dup`], [`Communicator::create`]) is collective over the parent,
//! which agrees on the context ids (`context.rs` says how). **Freeing** is local: dropping the last
//! handle never communicates. The id goes back to this rank's set of free ids at once, and is used
//! again only when every rank of some later creation has it free.
//!
//! The few collectives here ([`barrier`](Communicator::barrier), [`bcast`](Communicator::bcast),
//! [`and_words`](Communicator::and_words)) are what creation needs; the real ones are `coll`'s.

mod attributes;
mod collective;
mod context;
mod extension;
mod guard;
mod select;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use attributes::Key;
pub use collective::Binomial;
pub use extension::Slot;
pub use guard::NoUnwind;
pub use select::{Source, Tag, Tags};

use crate::device::{CommView, Device, SendArgs, SendMode};
use crate::error::{Error, ErrorKind, Result};
use crate::group::Group;
use crate::matching::Pattern;
use attributes::Attributes;
use extension::{Extensions, Job};

/// What becomes of an error on a communicator (MPI-4 section 9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Errors {
    /// The call returns it (`MPI_ERRORS_RETURN`).
    #[default]
    Return,
    /// The job ends with the error's text (`MPI_ERRORS_ARE_FATAL`).
    Abort,
}

/// A communicator on a device. See the [module](self).
///
/// Threads may share it where they may share the device.
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
    /// Context id of point-to-point messages; collectives have the next one.
    context: u32,
    errors: AtomicU8,
    job: Arc<Job<D>>,
    extensions: Extensions<D>,
    name: Mutex<String>,
    attributes: Mutex<Attributes>,
}

/// Context ids that one communicator uses: point-to-point and collective.
const CONTEXTS: u32 = 2;

impl<D: Device> Communicator<D> {
    /// The communicator of all processes of the device (`MPI_COMM_WORLD`). Local; make it once per
    /// device.
    ///
    /// # Errors
    /// [`InvalidCommunicator`](ErrorKind::InvalidCommunicator) if the device has one already.
    pub fn world(device: Arc<D>) -> Result<Self> {
        let attributes = device.attributes();
        let (rank, size) = (attributes.world_rank, attributes.world_size);
        let job = Arc::new(Job::new(Arc::clone(&device)));
        let context = job.pool.reserve_first();
        Self::build(
            device,
            None,
            Group::world(size),
            rank,
            context,
            job,
            Errors::Return,
            "world",
        )
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the one place where a communicator is made"
    )]
    fn build(
        device: Arc<D>,
        parent: Option<&Self>,
        group: Group,
        rank: u32,
        context: u32,
        job: Arc<Job<D>>,
        errors: Errors,
        name: &str,
    ) -> Result<Self> {
        let tag_ub = device.attributes().tag_ub;
        let view = CommView {
            context,
            contexts: CONTEXTS,
            group: group.clone(),
            rank,
        };
        if let Err(error) = device.comm_init(parent.map(Self::view).as_ref(), &view) {
            job.pool.release(context);
            return Err(error);
        }
        Ok(Self(Arc::new(Inner {
            device,
            group,
            rank,
            tag_ub,
            context,
            errors: AtomicU8::new(errors as u8),
            job,
            extensions: Extensions::default(),
            name: Mutex::new(name.to_owned()),
            attributes: Mutex::new(Attributes::default()),
        })))
    }

    /// A communicator with the same group and contexts of its own (`MPI_Comm_dup`): messages on
    /// one never match receives on the other. Attributes are copied as their keys say, the error
    /// mode is inherited.
    ///
    /// Collective. Like all collectives on one communicator, creations are called in the same
    /// order on every rank; creations from *different* communicators may run in several threads
    /// at once.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted), on every rank, when no context id is free on all of
    /// them; [`PeerFailed`](ErrorKind::PeerFailed).
    pub fn dup(&self) -> Result<Self> {
        let new = self.derive(self.0.group.clone(), self.0.rank)?;
        let copies = lock(&self.0.attributes).copy();
        *lock(&new.0.attributes) = copies;
        Ok(new)
    }

    /// A communicator of some of this one's processes (`MPI_Comm_create`); `None` on ranks that
    /// are not in `group`. Collective over this communicator, with the same `group` everywhere.
    ///
    /// # Errors
    /// As [`dup`](Self::dup), and [`InvalidArgument`](ErrorKind::InvalidArgument) if `group` has a
    /// member that this communicator does not have.
    pub fn create(&self, group: &Group) -> Result<Option<Self>> {
        if let Some(alien) = group.iter().find(|&p| self.0.group.rank_of(p).is_none()) {
            return Err(self.error(
                ErrorKind::InvalidArgument,
                format!(
                    "process {} of the new group is not in the communicator",
                    alien.index()
                ),
                "take the members from the parent's group",
            ));
        }
        let me = self.0.group.process(self.0.rank);
        match me.and_then(|me| group.rank_of(me)) {
            Some(rank) => self.derive(group.clone(), rank).map(Some),
            None => {
                let context = self.agree()?;
                self.0.job.pool.release(context);
                Ok(None)
            }
        }
    }

    fn derive(&self, group: Group, rank: u32) -> Result<Self> {
        let context = self.agree()?;
        let name = format!("{}+", self.name());
        let (device, job) = (Arc::clone(&self.0.device), Arc::clone(&self.0.job));
        Self::build(
            device,
            Some(self),
            group,
            rank,
            context,
            job,
            self.errors(),
            &name,
        )
    }

    // ---- What it is ---------------------------------------------------------------------------

    /// The caller's rank: at least 0, below [`size`](Self::size) (`MPI_Comm_rank`).
    #[inline]
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.0.rank
    }

    /// Number of ranks (`MPI_Comm_size`).
    #[inline]
    #[must_use]
    pub fn size(&self) -> u32 {
        self.0.group.size()
    }

    /// The members, by rank (`MPI_Comm_group`).
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.0.group
    }

    /// The device under it.
    #[inline]
    #[must_use]
    pub fn device(&self) -> &D {
        &self.0.device
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

    /// Whether two handles are of the same communicator (`MPI_IDENT`).
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// How many communicators of this rank are alive on the device, this one included.
    #[must_use]
    pub fn live(&self) -> u32 {
        self.0.job.pool.live()
    }

    /// The name that people see (`MPI_Comm_get_name`).
    #[must_use]
    pub fn name(&self) -> String {
        lock(&self.0.name).clone()
    }

    /// Gives it a name (`MPI_Comm_set_name`).
    pub fn set_name(&self, name: impl Into<String>) {
        *lock(&self.0.name) = name.into();
    }

    // ---- Errors -------------------------------------------------------------------------------

    /// What becomes of errors (`MPI_Comm_get_errhandler`).
    #[must_use]
    pub fn errors(&self) -> Errors {
        if self.0.errors.load(Ordering::Relaxed) == Errors::Abort as u8 {
            Errors::Abort
        } else {
            Errors::Return
        }
    }

    /// Says what becomes of errors from now on (`MPI_Comm_set_errhandler`).
    pub fn set_errors(&self, errors: Errors) {
        self.0.errors.store(errors as u8, Ordering::Relaxed);
    }

    /// An error of this rank, on this device.
    #[cold]
    #[must_use]
    pub fn error(&self, kind: ErrorKind, what: String, remedy: &str) -> Error {
        let attributes = self.0.device.attributes();
        Error::new(kind, what)
            .remedy(remedy)
            .on_rank(attributes.world_rank)
            .on_device(attributes.name)
    }

    // ---- Arguments: validated once, here --------------------------------------------------------

    /// The device's arguments of a send to rank `dest` of this communicator.
    ///
    /// # Errors
    /// [`InvalidRank`](ErrorKind::InvalidRank), [`InvalidTag`](ErrorKind::InvalidTag).
    #[inline]
    pub fn send_args(&self, mode: SendMode, dest: u32, tag: Tag) -> Result<SendArgs> {
        self.args_on(self.0.context, mode, dest, tag)
    }

    /// The same for messages of collectives, which are apart from the program's.
    ///
    /// # Errors
    /// As [`send_args`](Self::send_args).
    #[inline]
    pub fn collective_args(&self, dest: u32, tag: Tag) -> Result<SendArgs> {
        self.args_on(self.0.context + 1, SendMode::Standard, dest, tag)
    }

    /// What a receive or probe on this communicator asks for.
    ///
    /// # Errors
    /// [`InvalidRank`](ErrorKind::InvalidRank), [`InvalidTag`](ErrorKind::InvalidTag).
    #[inline]
    pub fn pattern(&self, source: Source, tag: Tags) -> Result<Pattern> {
        self.pattern_on(self.0.context, source, tag)
    }

    /// The same for messages of collectives.
    ///
    /// # Errors
    /// As [`pattern`](Self::pattern).
    #[inline]
    pub fn collective_pattern(&self, source: u32, tag: Tag) -> Result<Pattern> {
        self.pattern_on(self.0.context + 1, Source::Rank(source), Tags::Is(tag))
    }

    /// Whether there is a rank `rank`.
    ///
    /// # Errors
    /// [`InvalidRank`](ErrorKind::InvalidRank).
    #[inline]
    pub fn check_rank(&self, what: &str, rank: u32) -> Result<()> {
        if rank < self.size() {
            Ok(())
        } else {
            Err(self.no_such_rank(what, rank))
        }
    }

    #[inline]
    fn args_on(&self, context: u32, mode: SendMode, dest: u32, tag: Tag) -> Result<SendArgs> {
        let Some(process) = self.0.group.process(dest) else {
            return Err(self.no_such_rank("destination", dest));
        };
        if tag.0 > self.0.tag_ub {
            return Err(self.no_such_tag(tag));
        }
        Ok(SendArgs::new(process, context, self.0.rank, tag.0).mode(mode))
    }

    #[inline]
    fn pattern_on(&self, context: u32, source: Source, tag: Tags) -> Result<Pattern> {
        if let Source::Rank(rank) = source
            && rank >= self.size()
        {
            return Err(self.no_such_rank("source", rank));
        }
        if let Tags::Is(tag) = tag
            && tag.0 > self.0.tag_ub
        {
            return Err(self.no_such_tag(tag));
        }
        Ok(Pattern {
            context,
            source: source.rank(),
            tag: tag.value(),
        })
    }

    #[cold]
    #[inline(never)]
    fn no_such_rank(&self, what: &str, rank: u32) -> Error {
        let size = self.size();
        let remedy = match size {
            1 => "only rank 0 is there; was the program started with more ranks?".to_owned(),
            _ => format!("use ranks 0 to {}", size - 1),
        };
        let what = format!("{what} {rank} is outside of a communicator of {size} rank(s)");
        self.error(ErrorKind::InvalidRank, what, &remedy)
    }

    #[cold]
    #[inline(never)]
    fn no_such_tag(&self, tag: Tag) -> Error {
        let what = format!("tag {} is over the largest tag of this device", tag.0);
        self.error(
            ErrorKind::InvalidTag,
            what,
            &format!("use tags 0 to {}", self.0.tag_ub),
        )
    }

    // ---- Attributes -----------------------------------------------------------------------------

    /// Hangs a value on the communicator (`MPI_Comm_set_attr`); a value that was there under this
    /// key is deleted as the key says.
    pub fn set_attribute<T: Send + Sync + 'static>(&self, key: &Key<T>, value: T) {
        let old = lock(&self.0.attributes).set(key, value);
        // Hooks are the program's: they run without the lock.
        drop(old);
    }

    /// The value under a key (`MPI_Comm_get_attr`).
    #[must_use]
    pub fn attribute<T: Send + Sync + 'static>(&self, key: &Key<T>) -> Option<Arc<T>> {
        lock(&self.0.attributes).get(key)
    }

    /// Deletes the value under a key (`MPI_Comm_delete_attr`); says whether there was one.
    pub fn delete_attribute<T: Send + Sync + 'static>(&self, key: &Key<T>) -> bool {
        let old = lock(&self.0.attributes).remove(key);
        old.is_some()
    }
}

impl<D: Device> Inner<D> {
    fn view(&self) -> CommView {
        CommView {
            context: self.context,
            contexts: CONTEXTS,
            group: self.group.clone(),
            rank: self.rank,
        }
    }
}

impl<D: Device> Drop for Inner<D> {
    /// Local: the device forgets the contexts, the id is free here.
    fn drop(&mut self) {
        drop(std::mem::take(
            self.attributes
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner),
        ));
        self.extensions.close(&self.device);
        self.device.comm_free(&self.view());
        self.job.pool.release(self.context);
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

/// The lock, whether or not a hook panicked while it was held: nothing is ever half done in it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
