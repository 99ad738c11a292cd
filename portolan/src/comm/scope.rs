//! Borrowed buffers and overlapping operations, in the manner of `std::thread::scope`.
//!
//! A leaked request cannot end a borrow: the scope waits for the requests on its own list, and no
//! borrow by the scope ends before the scope does. Handles carry raw pointers, never references,
//! because the device uses the memory meanwhile.
//!
//! Budget: no allocation for up to 32 requests at a time, no system call, no lock and no locked
//! instruction above the device.

mod registry;

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;

use portolan_core::comm::{NoUnwind, Source, Tag, Tags};
use portolan_core::level::{Level, Single};
use portolan_core::{Device, Error, Request, Result, SendMode, Status};
use portolan_datatype::{Datatype, Layout};

use super::raw::{all_bytes, any_bits};
use super::{Comm, Host, Sealed, any_request};
use crate::any::AnyDevice;
use crate::hosted::Leave;
use registry::Registry;

impl<L: Level, D: Device> Comm<L, D> {
    /// Runs `body`, in which operations on borrowed buffers may overlap with each other and with
    /// computation. All of them are complete when this call returns.
    ///
    /// If `body` succeeds, the scope waits for the operations that it left unfinished. If it fails
    /// or panics, the scope cancels those that can be cancelled and waits for the rest.
    ///
    /// A collective operation cannot be cancelled (MPI-4 section 3.8.4). If `body` returns an
    /// error, the scope waits until the other ranks have done their part in it. If those first wait
    /// for something that this rank has not sent, the job deadlocks. If `body` panics, this rank is
    /// declared failed to the others, for good, and the operation ends on all ranks with
    /// [`PeerFailed`](crate::ErrorKind::PeerFailed).
    ///
    /// ```
    /// portolan::try_threads(4, |world| {
    ///     let comm = world.comm();
    ///     let (me, n) = (comm.rank(), comm.size());
    ///     let (mine, mut theirs) = ([me; 100], [0; 100]);
    ///     comm.scope(|s| {
    ///         let incoming = s.recv(&mut theirs, (me + n - 1) % n, 7)?;
    ///         s.send(&mine, (me + 1) % n, 7)?;
    ///         // … compute …
    ///         let (values, status) = incoming.wait()?;
    ///         assert_eq!((values[99], status.bytes), ((me + n - 1) % n, 400));
    ///         Ok(())
    ///     })
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// `body` returns the errors of this crate. If it has others, use
    /// [`try_scope`](Self::try_scope). A scope belongs to one thread at every thread level.
    ///
    /// # Errors
    /// That of `body`, or else the first error of an operation that was left unfinished.
    ///
    /// # Panics
    /// If `body` does. A panic that comes out of the device itself (from a handler of the program)
    /// while buffers are in use ends the process.
    #[inline]
    pub fn scope<'env, F, R>(&'env self, body: F) -> Result<R>
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env, L, D>) -> Result<R>,
    {
        self.try_scope(body)
    }

    /// As [`scope`](Self::scope), but `body` may fail with an error of the program's own, to which
    /// errors of this crate convert. Whatever the error is, the scope cancels the operations that
    /// can be cancelled. (An error that leaves [`scope`](Self::scope) within `Ok` cancels nothing:
    /// the scope then waits for messages that may never come.)
    ///
    /// The type of the error has to be known where `body` is written.
    ///
    /// ```
    /// use std::error::Error;
    ///
    /// fn step(comm: &portolan::Comm, number: &str) -> Result<u64, Box<dyn Error>> {
    ///     let mut ghost = [0.0; 8];
    ///     comm.try_scope(|s| {
    ///         let incoming = s.recv(&mut ghost, comm.rank(), 7)?;
    ///         let number = number.parse()?; // if this fails, the receive is cancelled
    ///         s.send(&[1.0; 8], comm.rank(), 7)?;
    ///         incoming.wait()?;
    ///         Ok(number)
    ///     })
    /// }
    ///
    /// portolan::run_threads(2, |world| -> Result<(), Box<dyn Error>> {
    ///     assert!(step(&world.comm(), "seven").is_err());
    ///     assert_eq!(step(&world.comm(), "7")?, 7);
    ///     Ok(())
    /// })
    /// .unwrap();
    /// ```
    ///
    /// # Errors
    /// That of `body`, or else the first error of an operation that was left unfinished.
    ///
    /// # Panics
    /// As [`scope`](Self::scope).
    pub fn try_scope<'env, F, R, E>(&'env self, body: F) -> Result<R, E>
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env, L, D>) -> Result<R, E>,
        E: From<Error>,
    {
        let scope = Scope {
            comm: self,
            registry: Registry::new(),
            scope: PhantomData,
            env: PhantomData,
            bound: Cell::new(false),
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| body(&scope)));
        let mut finished = Ok(());
        if !scope.registry.is_empty() {
            let guard = NoUnwind::new("the end of a scope");
            finished = scope.finish(match &outcome {
                Ok(Ok(_)) => End::Orderly,
                Ok(Err(_)) => End::Failed,
                Err(_) => End::Panicked,
            });
            guard.done();
        }
        match outcome {
            Ok(Ok(value)) => Ok(self.raise(finished).map(|()| value)?),
            Ok(Err(error)) => Err(error),
            Err(panic) => resume_unwind(panic),
        }
    }
}

/// Where operations on borrowed buffers are started ([`Comm::scope`]).
///
/// `'scope` is the lifetime of the scope, during which its buffers stay borrowed; `'env` is the
/// lifetime of what the scope borrows.
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope, L: Level = Single, D: Device = AnyDevice<L>> {
    comm: &'env Comm<L, D>,
    registry: Registry,
    // Invariant in both, as `std::thread::Scope` is: neither lifetime can be shortened or extended.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
    /// An operation was started that cannot be cancelled and depends on other ranks.
    bound: Cell<bool>,
}

/// How the body of a scope ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Orderly,
    Failed,
    Panicked,
}

impl<'scope, 'env, L: Level, D: Device> Scope<'scope, 'env, L, D> {
    /// Starts a send of values that stay borrowed until the scope ends (MPI-4 section 3.7.2,
    /// `MPI_Isend`).
    ///
    /// # Errors
    /// As [`Comm::send`], and [`Exhausted`](crate::ErrorKind::Exhausted) when too many requests are
    /// active.
    #[doc(alias = "MPI_Isend")]
    pub fn send<T: Datatype>(
        &'scope self,
        data: &'scope [T],
        dest: u32,
        tag: impl Into<Tag>,
    ) -> Result<ScopedSend<'scope, L, D>> {
        self.send_in_mode(SendMode::Standard, data, dest, tag.into())
    }

    /// As [`send`](Self::send), but the send is complete only after a receive has matched it (MPI-4
    /// section 3.7.2, `MPI_Issend`).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    #[doc(alias = "MPI_Issend")]
    pub fn ssend<T: Datatype>(
        &'scope self,
        data: &'scope [T],
        dest: u32,
        tag: impl Into<Tag>,
    ) -> Result<ScopedSend<'scope, L, D>> {
        self.send_in_mode(SendMode::Synchronous, data, dest, tag.into())
    }

    fn send_in_mode<T: Datatype>(
        &'scope self,
        mode: SendMode,
        data: &'scope [T],
        dest: u32,
        tag: Tag,
    ) -> Result<ScopedSend<'scope, L, D>> {
        let started = self.comm.inner.send_args(mode, dest, tag).and_then(|args| {
            // SAFETY: the arguments are the communicator's. `data` is borrowed for the lifetime of
            // the scope, which does not end before the request is complete, because it is
            // registered.
            unsafe { self.comm.start_send(&args, data.as_ptr(), data.len()) }
        });
        self.register(started).map(ScopedSend)
    }

    /// Starts a send of `count` items of a layout within `base` (see [`Comm::send_layout`]).
    ///
    /// # Errors
    /// As [`send`](Self::send), and [`InvalidBuffer`](crate::ErrorKind::InvalidBuffer) if the
    /// layout leaves `base`.
    pub fn send_layout<T: Datatype>(
        &'scope self,
        base: &'scope [T],
        count: usize,
        layout: &Layout,
        dest: u32,
        tag: impl Into<Tag>,
    ) -> Result<ScopedSend<'scope, L, D>> {
        let to = (dest, tag.into());
        self.send_layout_in_mode(SendMode::Standard, base, (count, layout), to)
    }

    /// As [`send_layout`](Self::send_layout), but the send is complete only after a receive has
    /// matched it (MPI-4 section 3.7.2, `MPI_Issend` with a derived datatype).
    ///
    /// # Errors
    /// As [`send_layout`](Self::send_layout).
    #[doc(alias = "MPI_Issend")]
    pub fn ssend_layout<T: Datatype>(
        &'scope self,
        base: &'scope [T],
        count: usize,
        layout: &Layout,
        dest: u32,
        tag: impl Into<Tag>,
    ) -> Result<ScopedSend<'scope, L, D>> {
        let to = (dest, tag.into());
        self.send_layout_in_mode(SendMode::Synchronous, base, (count, layout), to)
    }

    fn send_layout_in_mode<T: Datatype>(
        &'scope self,
        mode: SendMode,
        base: &'scope [T],
        (count, layout): (usize, &Layout),
        (dest, tag): (u32, Tag),
    ) -> Result<ScopedSend<'scope, L, D>> {
        const {
            all_bytes::<T>();
        };
        let comm = self.comm;
        comm.raise(comm.check_span(size_of_val(base), count, layout))?;
        let args = comm.inner.send_args(mode, dest, tag);
        let started = args.and_then(|args| {
            // SAFETY: the arguments are the communicator's; the layout stays within `base`, all
            // bytes of which are data, and which is borrowed until the request is complete.
            unsafe { comm.start_send_items(&args, base.as_ptr().cast(), count, layout) }
        });
        self.register(started).map(ScopedSend)
    }

    /// Starts a receive into values that stay borrowed until [`ScopedRecv::wait`] gives them back
    /// or the scope ends (MPI-4 section 3.7.2, `MPI_Irecv`).
    ///
    /// The type must be one for which every bit pattern is valid; that is checked when the program
    /// is compiled.
    ///
    /// # Errors
    /// [`InvalidRank`](crate::ErrorKind::InvalidRank),
    /// [`InvalidTag`](crate::ErrorKind::InvalidTag), [`Exhausted`](crate::ErrorKind::Exhausted)
    /// when too many requests are active.
    #[doc(alias = "MPI_Irecv")]
    pub fn recv<T: Datatype>(
        &'scope self,
        buf: &'scope mut [T],
        source: impl Into<Source>,
        tag: impl Into<Tags>,
    ) -> Result<ScopedRecv<'scope, T, L, D>> {
        const {
            any_bits::<T>();
        };
        let (ptr, len) = (NonNull::from(&mut *buf).cast::<T>(), buf.len());
        let started = self
            .comm
            .inner
            .pattern(source.into(), tag.into())
            .and_then(|pattern| {
                // SAFETY: the pattern is the communicator's; `buf` is borrowed for the lifetime of
                // the scope, which does not end before the request is complete, because it is
                // registered. All bits are valid.
                unsafe { self.comm.start_recv(&pattern, ptr.as_ptr(), len) }
            });
        let pending = self.register(started)?;
        Ok(ScopedRecv {
            pending,
            ptr,
            len,
            buf: PhantomData,
        })
    }

    /// Starts a receive into `count` items of a layout within `base` (see [`Comm::recv_layout`]).
    ///
    /// # Errors
    /// As [`recv`](Self::recv), and [`InvalidBuffer`](crate::ErrorKind::InvalidBuffer) if the
    /// layout leaves `base`.
    pub fn recv_layout<T: Datatype>(
        &'scope self,
        base: &'scope mut [T],
        count: usize,
        layout: &Layout,
        source: impl Into<Source>,
        tag: impl Into<Tags>,
    ) -> Result<ScopedRecv<'scope, T, L, D>> {
        const {
            all_bytes::<T>();
            any_bits::<T>();
        };
        let comm = self.comm;
        comm.raise(comm.check_span(size_of_val(base), count, layout))?;
        let (ptr, len) = (NonNull::from(&mut *base).cast::<T>(), base.len());
        let started = comm
            .inner
            .pattern(source.into(), tag.into())
            .and_then(|pattern| {
                // SAFETY: as in `recv`; the layout stays within `base`.
                unsafe { comm.start_recv_items(&pattern, ptr.as_ptr().cast(), count, layout) }
            });
        let pending = self.register(started)?;
        Ok(ScopedRecv {
            pending,
            ptr,
            len,
            buf: PhantomData,
        })
    }

    pub(crate) fn comm(&self) -> &'env Comm<L, D> {
        self.comm
    }

    /// Registers a request, for which the scope waits before it ends.
    #[inline]
    pub(crate) fn register(
        &'scope self,
        started: Result<Request>,
    ) -> Result<Registered<'scope, L, D>> {
        let request = self.comm.raise(started)?;
        let place = (!request.is_settled()).then(|| self.registry.add(request));
        Ok(Registered {
            comm: self.comm,
            registry: &self.registry,
            request,
            place,
        })
    }

    /// As [`register`](Self::register), for a collective operation.
    #[inline]
    pub(crate) fn register_bound(
        &'scope self,
        started: Result<Request>,
    ) -> Result<Registered<'scope, L, D>> {
        let registered = self.register(started)?;
        // Most operations of a few bytes are complete already and need nothing more.
        if registered.place.is_some() {
            self.bound.set(true);
        }
        Ok(registered)
    }

    /// Completes every registered request; returns the first of their errors. Most scopes have no
    /// request left here.
    #[inline(never)]
    fn finish(&self, end: End) -> Result<()> {
        let device = self.comm.hosted();
        let mut outcome: Result<(), Error> = Ok(());
        let cancel_all = || {
            // The completion of the request shows whether the cancel took effect.
            self.registry.each(|request| drop(device.cancel(request)));
        };
        if end != End::Orderly {
            cancel_all();
        }
        if end == End::Panicked && self.bound.get() && self.has_active() {
            // The other ranks may be waiting for a message that this rank will not send any more,
            // and so never take part. Leave the job, as a dropped world does during a panic. An
            // error would only say that the rank has left already.
            let _ = device.leave(Leave::Panicked);
        }
        self.registry.each(|request| {
            if let Err(error) = device.wait(request)
                && outcome.is_ok()
            {
                outcome = Err(error);
                // The remaining operations may depend on the one that failed.
                cancel_all();
            }
        });
        outcome
    }

    fn has_active(&self) -> bool {
        let mut active = false;
        self.registry
            .each(|request| active |= matches!(self.comm.hosted().peek(request), Ok(None)));
        active
    }
}

/// A handle on a registered request.
#[derive(Debug)]
pub(crate) struct Registered<'scope, L: Level, D: Device> {
    comm: &'scope Comm<L, D>,
    registry: &'scope Registry,
    request: Request,
    /// `None` if the request was complete when it was registered.
    place: Option<usize>,
}

impl<L: Level, D: Device> Registered<'_, L, D> {
    #[inline]
    pub(crate) fn wait(self) -> Result<Status> {
        let Some(place) = self.place else {
            return Ok(Status::EMPTY);
        };
        // If the device panics, the request stays registered, and the scope completes it.
        let outcome = self.comm.hosted().wait(self.request);
        self.registry.remove(place);
        self.comm.raise(outcome)
    }

    #[inline]
    pub(crate) fn is_complete(&self) -> bool {
        !matches!(self.comm.hosted().peek(self.request), Ok(None))
    }

    fn cancel(&self) -> Result<()> {
        self.comm.raise(self.comm.hosted().cancel(self.request))
    }
}

impl<L: Level, D: Device> Sealed for Registered<'_, L, D> {
    fn host(&self) -> Option<&dyn Host> {
        Some(self.comm.hosted())
    }

    fn is_over(&self) -> bool {
        self.is_complete()
    }
}

any_request!(['scope, L: Level, D: Device] ScopedSend<'scope, L, D>, 0);
any_request!(['scope, T, L: Level, D: Device] ScopedRecv<'scope, T, L, D>, pending);

/// A send in a [`Scope`]. Dropping it leaves the send to the scope.
#[derive(Debug)]
pub struct ScopedSend<'scope, L: Level = Single, D: Device = AnyDevice<L>>(
    Registered<'scope, L, D>,
);

impl<L: Level, D: Device> ScopedSend<'_, L, D> {
    /// Waits until the send is complete (MPI-4 section 3.7.3, `MPI_Wait`).
    ///
    /// # Errors
    /// [`PeerFailed`](crate::ErrorKind::PeerFailed).
    #[doc(alias = "MPI_Wait")]
    pub fn wait(self) -> Result<Status> {
        self.0.wait()
    }

    /// Whether [`wait`](Self::wait) would return at once. Makes progress.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.0.is_complete()
    }

    /// Asks for the send to be cancelled (MPI-4 section 3.8.4, `MPI_Cancel`); the status of
    /// [`wait`](Self::wait) says whether it was.
    ///
    /// # Errors
    /// [`Finalized`](crate::ErrorKind::Finalized).
    #[doc(alias = "MPI_Cancel")]
    pub fn cancel(&self) -> Result<()> {
        self.0.cancel()
    }
}

/// A receive in a [`Scope`]. Dropping it leaves the receive to the scope.
#[derive(Debug)]
pub struct ScopedRecv<'scope, T, L: Level = Single, D: Device = AnyDevice<L>> {
    pending: Registered<'scope, L, D>,
    ptr: NonNull<T>,
    len: usize,
    buf: PhantomData<&'scope mut [T]>,
}

impl<'scope, T, L: Level, D: Device> ScopedRecv<'scope, T, L, D> {
    /// Waits until the message has arrived (MPI-4 section 3.7.3, `MPI_Wait`) and gives the whole
    /// buffer back, to be used again within the scope.
    ///
    /// # Errors
    /// As [`Comm::recv_into`]; the buffer then stays borrowed until the scope ends.
    #[doc(alias = "MPI_Wait")]
    pub fn wait(self) -> Result<(&'scope mut [T], Status)> {
        let status = self.pending.wait()?;
        // SAFETY: these are pointer and length of the `&'scope mut [T]` that the receive was given,
        // which no other code can use; the device is done with it, and any bits are valid.
        let buf = unsafe { NonNull::slice_from_raw_parts(self.ptr, self.len).as_mut() };
        Ok((buf, status))
    }

    /// Whether [`wait`](Self::wait) would return at once. Makes progress.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.pending.is_complete()
    }

    /// Asks for the receive to be cancelled (MPI-4 section 3.8.4, `MPI_Cancel`); the status of
    /// [`wait`](Self::wait) says whether it was.
    ///
    /// # Errors
    /// [`Finalized`](crate::ErrorKind::Finalized).
    #[doc(alias = "MPI_Cancel")]
    pub fn cancel(&self) -> Result<()> {
        self.pending.cancel()
    }
}
