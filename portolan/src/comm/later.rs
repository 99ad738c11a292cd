//! Duplicates of communicators that are made in the background.

use std::fmt;
use std::marker::PhantomData;

use portolan_coll::{Creation, start_comparing, start_comparing_inter};
use portolan_core::comm::{PendingDup, PendingInterDup};
use portolan_core::level::{Level, Single};
use portolan_core::{Device, Result};

use super::{AnyRequest, Comm, Host, InterComm, Sealed};
use crate::any::AnyDevice;
use crate::hosted::Hosted;

impl<L: Level, D: Device> Comm<L, D> {
    /// Starts to make another communicator with the same ranks (MPI-4 section 7.4.2,
    /// `MPI_Comm_idup`), as [`dup`](Self::dup) does. It inherits what this communicator has now.
    /// Collective: every rank calls it in the same order among the collective calls on this
    /// communicator. Any number of duplications may be under way. A blocking creation never waits
    /// for one; a duplication of another communicator may, if the two have a rank in common.
    ///
    /// ```
    /// portolan::try_threads(3, |world| {
    ///     let comm = world.comm();
    ///     let duplicate = comm.idup()?;
    ///     // … compute, communicate, make other communicators …
    ///     let duplicate = duplicate.wait()?;
    ///     assert_eq!(duplicate.size(), 3);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`dup`](Self::dup), and [`Exhausted`](crate::ErrorKind::Exhausted) when too many requests
    /// are active.
    #[doc(alias = "MPI_Comm_idup")]
    pub fn idup(&self) -> Result<DupRequest<L, D>> {
        // The debug mode first compares the calls of all ranks.
        let compare = || start_comparing(&self.inner, Creation::Dup);
        let inner = self.raise(self.inner.idup_after(compare))?;
        Ok(DupRequest {
            inner,
            level: PhantomData,
        })
    }
}

/// A communicator that is being made ([`Comm::idup`]).
///
/// Dropping it gives the communicator up without disturbing the other ranks.
#[must_use = "dropping it gives the communicator up"]
pub struct DupRequest<L: Level = Single, D: Device = AnyDevice<L>> {
    inner: PendingDup<Hosted<D>>,
    level: PhantomData<fn() -> L>,
}

impl<L: Level, D: Device> DupRequest<L, D> {
    /// Waits until the communicator is made (MPI-4 section 3.7.3, `MPI_Wait`).
    ///
    /// # Errors
    /// As [`Comm::dup`].
    #[doc(alias = "MPI_Wait")]
    pub fn wait(self) -> Result<Comm<L, D>> {
        let parent = Comm::<L, D>::wrap(self.inner.parent().clone());
        parent.raise(self.inner.wait()).map(Comm::wrap)
    }

    /// Whether [`wait`](Self::wait) would return at once. Makes progress.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.inner.is_complete()
    }
}

impl<L: Level, D: Device> Sealed for DupRequest<L, D> {
    fn host(&self) -> Option<&dyn Host> {
        let device: &Hosted<D> = self.inner.parent().device();
        Some(device)
    }

    fn is_over(&self) -> bool {
        self.is_complete()
    }
}

impl<L: Level, D: Device> AnyRequest for DupRequest<L, D> {}

impl<L: Level, D: Device> fmt::Debug for DupRequest<L, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DupRequest").field(&self.inner).finish()
    }
}

impl<L: Level, D: Device> InterComm<L, D> {
    /// Starts to make another intercommunicator of the same groups (MPI-4 section 7.4.2,
    /// `MPI_Comm_idup`), as [`dup`](Self::dup) does. It inherits what this intercommunicator has
    /// now. Collective over both groups: every rank calls it in the same order among the collective
    /// calls on this intercommunicator. Any number of duplications may be under way.
    ///
    /// ```
    /// use portolan::RemoteLeader;
    ///
    /// portolan::try_threads(3, |world| {
    ///     let all = world.comm();
    ///     let first = all.rank() == 0;
    ///     let own = all.split(u32::from(first), 0)?.expect("everybody has a side");
    ///     let remote = RemoteLeader { peer: &all, rank: u32::from(first), tag: 1.into() };
    ///     let inter = own.intercomm_create(0, Some(remote))?;
    ///     let duplicate = inter.idup()?;
    ///     // … compute, communicate, make other communicators …
    ///     let duplicate = duplicate.wait()?;
    ///     assert_eq!(duplicate.remote_size(), if first { 2 } else { 1 });
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Comm::idup`].
    #[doc(alias = "MPI_Comm_idup")]
    pub fn idup(&self) -> Result<InterDupRequest<L, D>> {
        let compare = || start_comparing_inter(&self.inner, Creation::Dup);
        let inner = self.remote().raise(self.inner.idup_after(compare))?;
        Ok(InterDupRequest {
            inner,
            level: PhantomData,
        })
    }
}

/// An intercommunicator that is being made ([`InterComm::idup`]).
///
/// Dropping it gives the intercommunicator up without disturbing the other ranks.
#[must_use = "dropping it gives the intercommunicator up"]
pub struct InterDupRequest<L: Level = Single, D: Device = AnyDevice<L>> {
    inner: PendingInterDup<Hosted<D>>,
    level: PhantomData<fn() -> L>,
}

impl<L: Level, D: Device> InterDupRequest<L, D> {
    /// Waits until the intercommunicator is made (MPI-4 section 3.7.3, `MPI_Wait`).
    ///
    /// # Errors
    /// As [`InterComm::dup`].
    #[doc(alias = "MPI_Wait")]
    pub fn wait(self) -> Result<InterComm<L, D>> {
        let parent = Comm::<L, D>::wrap(self.inner.parent().messages().clone());
        parent.raise(self.inner.wait()).map(InterComm::wrap)
    }

    /// Whether [`wait`](Self::wait) would return at once. Makes progress.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.inner.is_complete()
    }
}

impl<L: Level, D: Device> Sealed for InterDupRequest<L, D> {
    fn host(&self) -> Option<&dyn Host> {
        let device: &Hosted<D> = self.inner.parent().messages().device();
        Some(device)
    }

    fn is_over(&self) -> bool {
        self.is_complete()
    }
}

impl<L: Level, D: Device> AnyRequest for InterDupRequest<L, D> {}

impl<L: Level, D: Device> fmt::Debug for InterDupRequest<L, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InterDupRequest").field(&self.inner).finish()
    }
}
