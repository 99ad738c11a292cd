//! Blocking calls and calls in a scope.

use std::fmt;

use portolan_core::level::{Level, Single};
use portolan_core::{Device, ErrorKind, Result};

use super::blocks::wrong;
use super::call::{Buffers, Collective};
use super::ground::Ground;
use super::sides::{Private, Sides};
use crate::any::AnyDevice;
use crate::comm::{Comm, InterComm, Registered, Scope, any_request};

/// Refuses at compile time to receive in the background into a type with invalid bit patterns.
pub(super) const fn any_bits<C: Collective>() {
    assert!(
        <C::Sides as Private>::ANY_BITS,
        "not every bit pattern is a value of this type: use the blocking form (Comm::run)"
    );
}

/// Refuses at compile time a buffer that the handle would own.
const fn borrowed<C: Collective>() {
    assert!(
        <C::Sides as Private>::BORROWED,
        "operations in a scope borrow their buffers: use Comm::start_owned for buffers of their own"
    );
}

impl<L: Level, D: Device> Comm<L, D> {
    /// Runs a collective operation and returns when this rank's part in it is complete (MPI-4
    /// chapter 6). Gives the buffers back.
    ///
    /// All ranks call the same operations on a communicator in the same order. Values of types with
    /// invalid bit patterns (`bool`, `char`, enums) are received into a temporary buffer and
    /// checked before they are copied.
    ///
    /// ```
    /// use portolan::coll::Allreduce;
    /// use portolan::Op;
    ///
    /// portolan::try_threads(4, |world| {
    ///     let comm = world.comm();
    ///     let (mine, mut sum) = ([u64::from(comm.rank()), 1], [0; 2]);
    ///     comm.run(Allreduce::new(&mine, &mut sum, Op::SUM))?;
    ///     assert_eq!(sum, [6, 4]);
    ///     comm.run(Allreduce::in_place(&mut sum, Op::MAX))?;
    ///     assert_eq!(sum, [6, 4]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// Before any message is sent: [`InvalidRank`](crate::ErrorKind::InvalidRank) for a root
    /// outside of the communicator, [`InvalidCount`](crate::ErrorKind::InvalidCount) for lengths,
    /// counts and displacements that do not fit each other or their buffer,
    /// [`InvalidBuffer`](crate::ErrorKind::InvalidBuffer) for a layout that reaches beyond its
    /// buffer or a buffer that is missing, [`InvalidLayout`](crate::ErrorKind::InvalidLayout) for a
    /// type that the operator does not support.
    ///
    /// Later, where ranks disagree: [`InvalidCount`](crate::ErrorKind::InvalidCount),
    /// [`Truncated`](crate::ErrorKind::Truncated),
    /// [`TypeMismatch`](crate::ErrorKind::TypeMismatch),
    /// [`InvalidValue`](crate::ErrorKind::InvalidValue); and
    /// [`PeerFailed`](crate::ErrorKind::PeerFailed). Every rank's part is complete then, and the
    /// contents of its receive buffer are unspecified. Buffers that were given away are dropped.
    ///
    /// # Panics
    /// If an operator panics while other ranks wait for its result, the process ends. An operator
    /// that itself makes calls panics while the device is at work.
    pub fn run<C: Collective>(&self, call: C) -> Result<Buffers<C>> {
        self.raise(self.run_checked(call))
    }

    /// Runs an operation on borrowed buffers without moving it: it is large, and moving it takes a
    /// good part of a short operation.
    #[inline]
    pub(super) fn lend<C: Collective>(&self, call: &mut C) -> Result<()> {
        self.raise(self.run_lent(call))
    }
}

impl<'scope, 'env, L: Level, D: Device> Scope<'scope, 'env, L, D> {
    /// Starts a collective operation on buffers that stay borrowed until [`ScopedCollective::wait`]
    /// gives them back or the scope ends (MPI-4 section 6.12, `MPI_Iallreduce` and similar).
    ///
    /// All ranks start the same operations on a communicator in the same order; any number may be
    /// under way. The type must be one for which every bit pattern is valid; that is checked when
    /// the program is compiled. An operator of the program's own runs within any call that makes
    /// progress, and must not make such calls itself.
    ///
    /// ```
    /// use portolan::coll::Allreduce;
    /// use portolan::Op;
    ///
    /// portolan::try_threads(3, |world| {
    ///     let comm = world.comm();
    ///     let (mine, mut sum, mut most) = ([comm.rank()], [0], [comm.rank()]);
    ///     comm.scope(|s| {
    ///         let sum = s.start(Allreduce::new(&mine, &mut sum, Op::SUM))?;
    ///         s.start(Allreduce::in_place(&mut most, Op::MAX))?;
    ///         // … compute …
    ///         let (_mine, sum) = sum.wait()?;
    ///         assert_eq!(*sum, [3]);
    ///         Ok(())
    ///     })?;
    ///     assert_eq!(most, [2]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Comm::run`] before any message is sent, and [`Exhausted`](crate::ErrorKind::Exhausted)
    /// when too many requests are active. Later errors are returned by [`ScopedCollective::wait`]
    /// or at the end of the scope.
    #[doc(alias = "MPI_Iallreduce")]
    #[inline]
    pub fn start<C: Collective + 'scope>(
        &'scope self,
        call: C,
    ) -> Result<ScopedCollective<'scope, C, L, D>> {
        const {
            any_bits::<C>();
            borrowed::<C>();
        };
        self.start_on(self.comm(), call)
    }

    /// As [`start`](Self::start), between the two groups of an intercommunicator of the same job.
    ///
    /// # Errors
    /// As [`start`](Self::start) and [`InterComm::run`];
    /// [`InvalidCommunicator`](ErrorKind::InvalidCommunicator) for an intercommunicator of another
    /// job.
    pub fn start_between<C: Collective + 'scope>(
        &'scope self,
        inter: &InterComm<L, D>,
        call: C,
    ) -> Result<ScopedCollective<'scope, C, L, D>> {
        const {
            any_bits::<C>();
            borrowed::<C>();
        };
        let comm = self.comm();
        if !std::ptr::eq(inter.remote().hosted(), comm.hosted()) {
            let what = "the intercommunicator is of another job than the scope";
            let remedy = "open the scope on a communicator of the same job";
            let kind = ErrorKind::InvalidCommunicator;
            return comm.raise(Err(wrong(comm, "collective operation", kind, what, remedy)));
        }
        self.start_on(inter, call)
    }

    /// Starts an operation on the scope's device.
    ///
    /// This function and [`ScopedCollective::wait`] are always inlined, because the call is large.
    /// Moving it right after the stores that built it stalls the processor for longer than it takes
    /// to start a broadcast of a few bytes.
    #[inline(always)]
    fn start_on<C: Collective + 'scope>(
        &'scope self,
        ground: &impl Ground,
        call: C,
    ) -> Result<ScopedCollective<'scope, C, L, D>> {
        // SAFETY: the buffers are borrowed for the lifetime of the scope. The scope does not end
        // before the request is complete, because the request is registered. Dropping or forgetting
        // the handle ends no borrow and frees nothing.
        let started = unsafe { ground.start(&call) };
        let pending = self.register_bound(started)?;
        Ok(ScopedCollective { pending, call })
    }
}

/// A collective operation in a [`Scope`]. Dropping it leaves the operation to the scope.
pub struct ScopedCollective<'scope, C, L: Level = Single, D: Device = AnyDevice<L>> {
    pending: Registered<'scope, L, D>,
    call: C,
}

any_request!(['scope, C, L: Level, D: Device] ScopedCollective<'scope, C, L, D>, pending);

impl<C, L: Level, D: Device> fmt::Debug for ScopedCollective<'_, C, L, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedCollective").finish_non_exhaustive()
    }
}

impl<C: Collective, L: Level, D: Device> ScopedCollective<'_, C, L, D> {
    /// Waits until this rank's part in the operation is complete (MPI-4 section 3.7.3, `MPI_Wait`)
    /// and gives the buffers back, to be used again within the scope.
    ///
    /// # Errors
    /// As [`Comm::run`] where ranks disagree or fail; the buffers then stay borrowed until the
    /// scope ends.
    #[doc(alias = "MPI_Wait")]
    #[inline(always)]
    pub fn wait(self) -> Result<Buffers<C>> {
        self.pending.wait()?;
        Ok(self.call.into_sides().into_buffers())
    }

    /// Whether [`wait`](Self::wait) would return at once. Makes progress.
    #[must_use]
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.pending.is_complete()
    }
}
