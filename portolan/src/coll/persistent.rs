//! Collective operations that are planned once and started many times. They own their buffers.

use std::fmt;

use portolan_core::comm::NoUnwind;
use portolan_core::level::{Level, Single};
use portolan_core::{Device, ErrorKind, Request, Result};

use super::call::{Buffers, Collective, Look, View};
use super::forms::any_bits;
use super::ground::{Ground, Plan};
use super::sides::{Private, Sides};
use crate::any::AnyDevice;
use crate::comm::{AnyRequest, Comm, Failed, Host, Sealed, abandon};

impl<L: Level, D: Device> Comm<L, D> {
    /// Plans a collective operation that can be started again and again (MPI-4 section 6.13,
    /// `MPI_Allreduce_init` and similar). It owns its buffers, and sends nothing of them before the
    /// first start. As MPI allows, the first such call on a communicator may wait until all ranks
    /// have made it.
    ///
    /// All ranks plan the same operations on a communicator in the same order. The type must be one
    /// for which every bit pattern is valid; that is checked when the program is compiled. An
    /// operator of the program's own runs within any call that makes progress, and must not make
    /// such calls itself.
    ///
    /// ```
    /// use portolan::coll::Allreduce;
    /// use portolan::Op;
    ///
    /// portolan::try_threads(3, |world| {
    ///     let comm = world.comm();
    ///     let mut sum = comm.persistent(Allreduce::new(vec![0u64], vec![0u64], Op::SUM))?;
    ///     for step in 0..5 {
    ///         let (mine, _) = sum.buffers_mut()?;
    ///         mine[0] = step + u64::from(comm.rank());
    ///         sum.start()?;
    ///         // … compute …
    ///         sum.wait()?;
    ///         let (_, total) = sum.buffers()?;
    ///         assert_eq!(total, [3 * step + 3]);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run) before any message is sent; [`PeerFailed`](ErrorKind::PeerFailed). The
    /// error gives the buffers back.
    #[doc(alias = "MPI_Allreduce_init")]
    pub fn persistent<C: Collective + Send + 'static>(
        &self,
        call: C,
    ) -> Result<PersistentCollective<C, L, D>, Failed<Buffers<C>>> {
        const {
            any_bits::<C>();
        };
        PersistentCollective::plan(self, call)
    }
}

/// A collective operation that can be started again and again ([`Comm::persistent`]).
///
/// Dropping an active one does not stop the operation, because the other ranks take part in it.
#[must_use = "a persistent operation does nothing unless it is started"]
pub struct PersistentCollective<
    C: Collective + Send + 'static,
    L: Level = Single,
    D: Device = AnyDevice<L>,
> {
    comm: Comm<L, D>,
    plan: Plan<D>,
    request: Request,
    /// Taken when the operation is given up.
    call: Option<C>,
    /// Started and not yet known to be complete: the device uses the buffers.
    active: bool,
}

impl<C: Collective + Send + 'static, L: Level, D: Device> fmt::Debug
    for PersistentCollective<C, L, D>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PersistentCollective")
            .field("comm", &self.comm)
            .field("active", &self.active)
            .finish_non_exhaustive()
    }
}

impl<C: Collective + Send + 'static, L: Level, D: Device> PersistentCollective<C, L, D> {
    pub(super) fn plan(
        ground: &impl Ground<Level = L, Device = D>,
        call: C,
    ) -> Result<Self, Failed<Buffers<C>>> {
        match ground.plan(&call) {
            Ok(plan) => Ok(Self {
                comm: ground.comm().clone(),
                plan,
                request: Request::NULL,
                call: Some(call),
                active: false,
            }),
            Err(error) => Err(Failed {
                buf: call.into_sides().into_buffers(),
                error: ground.comm().fail(error),
            }),
        }
    }

    /// Starts the operation (MPI-4 section 3.9, `MPI_Start`). All ranks must start it equally
    /// often. Several persistent operations may be started in any order.
    ///
    /// # Errors
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) if it is active,
    /// [`Exhausted`](ErrorKind::Exhausted) when too many requests are active,
    /// [`PeerFailed`](ErrorKind::PeerFailed).
    #[doc(alias = "MPI_Start")]
    pub fn start(&mut self) -> Result<()> {
        self.check_idle("start")?;
        let guard = NoUnwind::new("the start of a collective operation");
        // SAFETY: the operation was checked when it was planned. Its buffers are held here, and no
        // other code can reach them while it is active; any bits are valid values in them.
        let started = unsafe { self.plan.start() };
        guard.done();
        self.request = self.comm.raise(started)?;
        self.active = true;
        Ok(())
    }

    /// Waits until this rank's part in the operation is complete (MPI-4 section 3.7.3, `MPI_Wait`).
    /// Returns at once if it was not started.
    ///
    /// # Errors
    /// As [`Comm::run`] where ranks disagree or fail; the operation is complete then.
    #[doc(alias = "MPI_Wait")]
    pub fn wait(&mut self) -> Result<()> {
        if !self.active {
            return Ok(());
        }
        let outcome = self.comm.hosted().wait(self.request);
        self.active = false;
        self.comm.raise(outcome.map(drop))
    }

    /// Whether this rank's part in the operation is complete (MPI-4 section 3.7.3, `MPI_Test`).
    /// Makes progress. Unlike [a receive's](crate::PersistentRecv::test), it has no status, because
    /// there is no single message with a sender, a tag and a length.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    #[doc(alias = "MPI_Test")]
    pub fn test(&mut self) -> Result<bool> {
        if !self.active {
            return Ok(true);
        }
        let outcome = self.comm.hosted().test(self.request);
        self.active = matches!(outcome, Ok(None));
        self.comm.raise(outcome.map(|status| status.is_some()))
    }

    /// The values, for reading, while the operation is not active: a slice, or one for each of two
    /// buffers.
    ///
    /// # Errors
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) if it is active.
    pub fn buffers(&self) -> Result<Look<'_, C>> {
        self.check_idle("look into the buffers of")?;
        let call = self
            .call
            .as_ref()
            .expect("the buffers are held until the operation is given up");
        // SAFETY: the operation is not active, and cannot be started during the look, which borrows
        // `self`.
        Ok(unsafe { call.sides().look() })
    }

    /// The values, for writing, while the operation is not active; those of shared buffers
    /// (`Arc<[T]>`) for reading only.
    ///
    /// # Errors
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) if it is active.
    pub fn buffers_mut(&mut self) -> Result<View<'_, C>> {
        self.check_idle("change the buffers of")?;
        let call = self
            .call
            .as_mut()
            .expect("the buffers are held until the operation is given up");
        // SAFETY: the operation is not active, and cannot be started during the view, which borrows
        // `self`.
        Ok(unsafe { call.sides_mut().view() })
    }

    /// Gives the buffers back, after waiting for the operation if it is active.
    ///
    /// # Errors
    /// That of the operation, with the buffers.
    pub fn into_buffers(mut self) -> Result<Buffers<C>, Failed<Buffers<C>>> {
        let outcome = self.wait();
        let call = self
            .call
            .take()
            .expect("the buffers are held until the operation is given up");
        let buf = call.into_sides().into_buffers();
        match outcome {
            Ok(()) => Ok(buf),
            Err(error) => Err(Failed { buf, error }),
        }
    }

    fn check_idle(&self, what: &str) -> Result<()> {
        if !self.active {
            return Ok(());
        }
        self.comm.raise(Err(self.comm.inner.error(
            ErrorKind::InvalidRequest,
            format!("cannot {what} a persistent collective operation that is active"),
            "wait for it first",
        )))
    }
}

impl<C: Collective + Send + 'static, L: Level, D: Device> Sealed for PersistentCollective<C, L, D> {
    fn host(&self) -> Option<&dyn Host> {
        self.active.then(|| self.comm.hosted() as &dyn Host)
    }

    fn is_over(&self) -> bool {
        // The next call returns an error.
        self.active && !matches!(self.comm.hosted().peek(self.request), Ok(None))
    }
}

impl<C: Collective + Send + 'static, L: Level, D: Device> AnyRequest
    for PersistentCollective<C, L, D>
{
}

impl<C: Collective + Send + 'static, L: Level, D: Device> Drop for PersistentCollective<C, L, D> {
    fn drop(&mut self) {
        if self.active
            && let Some(mut call) = self.call.take()
        {
            call.sides_mut().abandon();
            abandon(self.comm.hosted(), self.request, call, false);
        }
    }
}
