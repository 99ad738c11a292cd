//! The typed communicator.

mod buffered;
mod create;
mod exchange;
mod inter;
mod late;
mod later;
mod memory;
mod owned;
mod part;
mod parts;
mod persistent;
mod probe;
pub(crate) mod raw;
mod recv;
mod scope;
mod send;
mod strided;
pub mod topology;
mod wait;

use std::marker::PhantomData;
use std::sync::Arc;

use portolan_coll::Counters;
#[cfg(doc)]
use portolan_core::ErrorKind;
use portolan_core::comm::{Communicator, Errors, Key};
use portolan_core::level::{Level, Single};
use portolan_core::{Device, Error, Result};

use crate::any::AnyDevice;
use crate::hosted::{Hosted, Leave};

pub(crate) use buffered::Budget;
pub(crate) use memory::Freed;
pub(crate) use owned::abandon;
pub(crate) use part::Part;
pub(crate) use parts::Held;
pub(crate) use scope::Registered;
pub(crate) use wait::{Host, Sealed, any_request};

pub use inter::{InterComm, RemoteLeader};
pub use late::{Message, OwnedMessage};
pub use later::{DupRequest, InterDupRequest};
pub use memory::Memory;
pub use owned::{Completion, Failed, RecvRequest, RequestFuture, SendRequest};
pub use parts::{Buffer, BufferMut, Parts, StableBuf, StableBufMut};
pub use persistent::{PersistentRecv, PersistentSend};
pub use scope::{Scope, ScopedRecv, ScopedSend};
pub use topology::CartComm;
pub use wait::{AnyRequest, OwnedRequest, wait_all, wait_any, wait_any_of, wait_some};

/// A communicator: a set of ranks of the job, and messages that stay among them.
///
/// A `Comm` is a cheap counted handle; clones are the same communicator.
/// [`World::comm`](crate::World::comm) returns the one of all ranks. [`dup`](Self::dup) makes
/// another with the same ranks, whose messages do not mix with this one's.
///
/// The thread level is part of the type: a `Comm<Single>` stays in its thread, a `Comm<Multiple>`
/// is `Send` and `Sync`.
///
/// # Calls
/// | | blocking | in a [`scope`](Self::scope) | owning the buffer | persistent |
/// | --- | --- | --- | --- | --- |
/// | send | [`send`](Self::send), [`ssend`](Self::ssend), [`rsend`](Self::rsend), [`bsend`](Self::bsend) | [`Scope::send`] | [`isend_owned`](Self::isend_owned) | [`send_init`](Self::send_init) |
/// | receive | [`recv_into`](Self::recv_into), [`recv`](Self::recv) | [`Scope::recv`] | [`irecv_owned`](Self::irecv_owned) | [`recv_init`](Self::recv_init) |
/// | both | [`sendrecv`](Self::sendrecv), [`exchange`](Self::exchange) | | | |
/// | strided | [`send_layout`](Self::send_layout), [`ssend_layout`](Self::ssend_layout), [`recv_layout`](Self::recv_layout), [`sendrecv_layout`](Self::sendrecv_layout) | [`Scope::send_layout`], [`Scope::ssend_layout`], [`Scope::recv_layout`] | with a [`strided`](crate::coll::strided) buffer | with a [`strided`](crate::coll::strided) buffer |
/// | a GPU's memory | [`send_device`](Self::send_device), [`recv_device`](Self::recv_device), [`sendrecv_device`](Self::sendrecv_device) | [`Scope::send_device`], [`Scope::recv_device`] | | |
/// | together | [`run`](Self::run), [`bcast`](Self::bcast), [`allreduce`](Self::allreduce) and so on | [`Scope::start`] | [`start_owned`](Self::start_owned) | [`persistent`](Self::persistent) |
/// | look first | [`probe`](Self::probe), [`iprobe`](Self::iprobe), [`match_recv`](Self::match_recv) | | | |
///
/// Long messages to ranks of the same node are sent fastest from memory of [`alloc`](Self::alloc).
///
/// New communicators are made from this one: by [`dup`](Self::dup), [`idup`](Self::idup),
/// [`split`](Self::split), [`create`](Self::create) and [`create_group`](Self::create_group); on
/// grids and graphs by [`cart_create`](Self::cart_create) and similar calls
/// ([`topology`](crate::topology)); between two groups by
/// [`intercomm_create`](Self::intercomm_create). Every rank makes the collective calls on a
/// communicator, including those that make communicators, in the same order. Several threads may
/// make collective calls on different communicators at once.
///
/// # In libraries
/// `&Comm` in a signature is `&Comm<Single, AnyDevice<Single>>`, which a program at level
/// [`Multiple`](crate::Multiple) or on a device of its own cannot pass. A library takes a
/// communicator of any level and device:
///
/// ```
/// use portolan::{Comm, Device, Level, Op, Result};
///
/// pub fn norm<L: Level, D: Device>(comm: &Comm<L, D>, mine: &[f64]) -> Result<f64> {
///     let squares: f64 = mine.iter().map(|x| x * x).sum();
///     Ok(comm.allreduce_one(squares, &Op::SUM)?.sqrt())
/// }
/// ```
///
/// A library that keeps a communicator keeps one of its own ([`dup`](Self::dup)), in a struct with
/// the same two parameters.
///
/// # Errors
/// Every error says what went wrong, on which rank, and what to try, and has a
/// [`kind`](Error::kind). [`set_errors`](Self::set_errors) makes errors end the job instead.
#[must_use = "a communicator ends when its last handle is dropped"]
pub struct Comm<L: Level = Single, D: Device = AnyDevice<L>> {
    pub(crate) inner: Communicator<Hosted<D>>,
    level: PhantomData<fn() -> L>,
}

impl<L: Level, D: Device> Clone for Comm<L, D> {
    fn clone(&self) -> Self {
        Self::wrap(self.inner.clone())
    }
}

impl<L: Level, D: Device> std::fmt::Debug for Comm<L, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Comm")
            .field("name", &self.inner.name())
            .field("rank", &self.inner.rank())
            .field("size", &self.inner.size())
            .finish_non_exhaustive()
    }
}

impl<L: Level, D: Device> Comm<L, D> {
    /// The communicator of all ranks. Its collective operations work as the settings say.
    pub(crate) fn world(mut hosted: Hosted<D>) -> Result<Self> {
        let collectives = hosted.collectives.take().transpose()?;
        let inner = Communicator::world(Arc::new(hosted))?;
        portolan_coll::configure(&inner, collectives.unwrap_or_default())?;
        // Cannot fail: this is the first communicator, so nothing has set the totals before.
        let _ = inner.device().totals.set(portolan_coll::totals(&inner));
        Ok(Self::wrap(inner))
    }

    fn wrap(inner: Communicator<Hosted<D>>) -> Self {
        Self {
            inner,
            level: PhantomData,
        }
    }

    /// The communicator of this rank alone.
    pub(crate) fn alone(&self) -> Result<Self> {
        self.inner.alone().map(Self::wrap)
    }

    #[inline]
    pub(crate) fn hosted(&self) -> &Hosted<D> {
        self.inner.device()
    }

    /// Leaves the job, once; later calls on the device fail.
    pub(crate) fn leave(&self, how: Leave) -> Result<()> {
        let counted = |what| self.counted(what);
        let outcome = self.hosted().leave_with(how, counted);
        self.inner.end_all();
        outcome
    }

    pub(crate) fn live(&self) -> u32 {
        self.inner.live()
    }

    /// This rank: at least 0, below [`size`](Self::size) (MPI-4 section 7.4.1, `MPI_Comm_rank`).
    #[doc(alias = "MPI_Comm_rank")]
    #[inline]
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.inner.rank()
    }

    /// Number of ranks (MPI-4 section 7.4.1, `MPI_Comm_size`).
    #[doc(alias = "MPI_Comm_size")]
    #[inline]
    #[must_use]
    pub fn size(&self) -> u32 {
        self.inner.size()
    }

    /// The largest tag that the device supports (MPI-4 section 9.1.2, `MPI_TAG_UB`): at least
    /// 32767, the same on all ranks of a job.
    #[doc(alias = "MPI_TAG_UB")]
    #[must_use]
    pub fn tag_ub(&self) -> u32 {
        self.hosted().attributes().tag_ub
    }

    /// Makes another communicator with the same ranks (MPI-4 section 7.4.2, `MPI_Comm_dup`). A
    /// library that makes its own cannot catch its caller's messages. Collective; dropping the
    /// result is not.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) when too many communicators are alive,
    /// [`PeerFailed`](ErrorKind::PeerFailed), that of a [copy hook](Key::try_on_copy) on this rank.
    #[doc(alias = "MPI_Comm_dup")]
    pub fn dup(&self) -> Result<Self> {
        self.before(portolan_coll::Creation::Dup)?;
        self.raise(self.inner.dup().map(Self::wrap))
    }

    /// Whether two handles refer to the same communicator (MPI-4 section 7.4.1, `MPI_IDENT`).
    #[doc(alias = "MPI_IDENT")]
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        self.inner.same_as(&other.inner)
    }

    /// The name shown in messages (MPI-4 section 7.8, `MPI_Comm_get_name`).
    #[doc(alias = "MPI_Comm_get_name")]
    #[must_use]
    pub fn name(&self) -> String {
        self.inner.name()
    }

    /// Gives the communicator a name (MPI-4 section 7.8, `MPI_Comm_set_name`).
    #[doc(alias = "MPI_Comm_set_name")]
    pub fn set_name(&self, name: impl Into<String>) {
        self.inner.set_name(name);
    }

    /// How errors are handled (MPI-4 section 9.3, `MPI_Comm_get_errhandler`).
    #[doc(alias = "MPI_Comm_get_errhandler")]
    #[must_use]
    pub fn errors(&self) -> Errors {
        self.inner.errors()
    }

    /// Sets how errors are handled from now on (MPI-4 section 9.3, `MPI_Comm_set_errhandler`):
    /// calls return them, which is the default, or they end the job.
    #[doc(alias = "MPI_Comm_set_errhandler")]
    pub fn set_errors(&self, errors: Errors) {
        self.inner.set_errors(errors);
    }

    /// Attaches a value to the communicator (MPI-4 section 7.7.2, `MPI_Comm_set_attr`).
    #[doc(alias = "MPI_Comm_set_attr")]
    pub fn set_attribute<T: Send + Sync + 'static>(&self, key: &Key<T>, value: T) {
        self.inner.set_attribute(key, value);
    }

    /// Like [`set_attribute`](Self::set_attribute), for a value that may not leave its thread, such
    /// as a communicator at level [`Single`].
    ///
    /// Only the calling thread finds, copies and removes it. (At level
    /// [`Multiple`](crate::Multiple) other threads may have values of their own under
    /// the same key, and if one of them drops the last handle of the communicator, the value is
    /// leaked.)
    ///
    /// A library keeps its own duplicate of its caller's communicator like this, so that its
    /// messages and the caller's never meet:
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use portolan::{Comm, Key, Result};
    ///
    /// /// What the library keeps for each communicator that it is called with.
    /// struct State {
    ///     comm: Comm,
    /// }
    ///
    /// struct Library(Key<State>);
    ///
    /// impl Library {
    ///     fn state(&self, caller: &Comm) -> Result<Arc<State>> {
    ///         if let Some(state) = caller.attribute(&self.0) {
    ///             return Ok(state);
    ///         }
    ///         let comm = caller.dup()?;
    ///         caller.set_thread_attribute(&self.0, State { comm });
    ///         Ok(caller.attribute(&self.0).expect("it was just set"))
    ///     }
    ///
    ///     fn largest(&self, caller: &Comm, value: f64) -> Result<f64> {
    ///         self.state(caller)?.comm.allreduce_one(value, &portolan::Op::MAX)
    ///     }
    /// }
    ///
    /// portolan::try_threads(2, |world| {
    ///     let (library, comm) = (Library(Key::new()), world.comm());
    ///     for round in 0..3 {
    ///         let mine = f64::from(comm.rank() + round);
    ///         assert_eq!(library.largest(&comm, mine)?, f64::from(round + 1));
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    pub fn set_thread_attribute<T: 'static>(&self, key: &Key<T>, value: T) {
        self.inner.set_thread_attribute(key, value);
    }

    /// The value that is attached to the communicator under a key (MPI-4 section 7.7.2,
    /// `MPI_Comm_get_attr`).
    #[doc(alias = "MPI_Comm_get_attr")]
    #[must_use]
    pub fn attribute<T: 'static>(&self, key: &Key<T>) -> Option<Arc<T>> {
        self.inner.attribute(key)
    }

    /// Removes a value from the communicator (MPI-4 section 7.7.2, `MPI_Comm_delete_attr`); returns
    /// whether there was one.
    #[doc(alias = "MPI_Comm_delete_attr")]
    pub fn delete_attribute<T: 'static>(&self, key: &Key<T>) -> bool {
        self.inner.delete_attribute(key)
    }

    /// Removes all values, in the reverse of the order in which they were set.
    pub(crate) fn delete_attributes(&self) {
        self.inner.delete_attributes();
    }

    /// Seconds since a fixed moment in the past (MPI-4 section 9.6, `MPI_Wtime`).
    #[doc(alias = "MPI_Wtime")]
    #[must_use]
    pub fn wtime(&self) -> f64 {
        self.hosted().wtime()
    }

    /// Name of the transport that carries this rank's messages, as in `PORTOLAN_TRANSPORT`.
    #[must_use]
    pub fn transport(&self) -> &'static str {
        self.hosted().attributes().name
    }

    /// What this rank's collective operations on this communicator have cost so far. The
    /// setting `PORTOLAN_COUNTERS` prints the sums over the rank's communicators when it ends.
    ///
    /// ```
    /// use portolan::coll::Counters;
    ///
    /// portolan::try_threads(2, |world| {
    ///     let comm = world.comm();
    ///     comm.barrier()?;
    ///     comm.barrier()?;
    ///     assert_eq!(comm.counted(Counters::Operations), 2);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    #[must_use]
    pub fn counted(&self, what: Counters) -> u64 {
        portolan_coll::counted(&self.inner, what)
    }

    /// Ends the whole job at once with this exit code (MPI-4 section 9.7, `MPI_Abort`).
    ///
    /// Of the code `portolan run` returns the low eight bits, and 1 if these are 0. The process of
    /// this rank ends here, and no destructor runs. In a job of threads that is the process of all
    /// ranks.
    #[doc(alias = "MPI_Abort")]
    pub fn abort(&self, code: i32) -> ! {
        self.hosted().abort(code, Some(&self.name()), None)
    }

    /// The underlying communicator, for libraries on the device interface.
    ///
    /// # Safety
    /// The caller leaves alone requests of the device that it has not made: freeing one through the
    /// device would let its owner believe that its buffer is no longer in use. The same goes for
    /// messages.
    #[must_use]
    pub unsafe fn communicator(&self) -> &Communicator<Hosted<D>> {
        &self.inner
    }

    /// Applies this communicator's error mode to a result.
    #[inline]
    pub(crate) fn raise<T>(&self, result: Result<T>) -> Result<T> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => Err(self.fail(error)),
        }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn fail(&self, error: Error) -> Error {
        self.hosted().judge(error, self.errors(), || self.name())
    }
}
