//! Collective operations that own their buffers: they may outlive the function that started them.

use std::fmt;
use std::future::IntoFuture;
use std::task::Waker;

use portolan_core::level::{Level, Single};
use portolan_core::{Device, Request, Result};

use super::call::{Buffers, Collective};
use super::forms::any_bits;
use super::ground::Ground;
use super::sides::{Private, Sides};
use crate::any::AnyDevice;
use crate::comm::{
    AnyRequest, Comm, Completion, Failed, Host, OwnedRequest, RequestFuture, Sealed, abandon,
};
use crate::wakers::Suspended;

impl<L: Level, D: Device> Comm<L, D> {
    /// Starts a collective operation that owns its buffers until it is complete (MPI-4 section
    /// 6.12, `MPI_Iallreduce` and similar).
    ///
    /// All ranks start the same operations on a communicator in the same order; any number may be
    /// under way. The type must be one for which every bit pattern is valid; that is checked when
    /// the program is compiled. An operator of the program's own runs within any call that makes
    /// progress, and must not make such calls itself.
    ///
    /// ```
    /// use portolan::coll::{Allreduce, Bcast};
    /// use portolan::Op;
    ///
    /// portolan::try_threads(3, |world| {
    ///     let comm = world.comm();
    ///     let sum = comm.start_owned(Allreduce::new(vec![comm.rank()], vec![0], Op::SUM))?;
    ///     let text = comm.start_owned(Bcast::new(vec![comm.rank() as u8; 4], 2))?;
    ///     // … compute …
    ///     assert_eq!(text.wait()?.buf, [2; 4]);
    ///     let (_mine, sum) = sum.wait()?.buf;
    ///     assert_eq!(sum, [3]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run) before any message is sent, and
    /// [`Exhausted`](crate::ErrorKind::Exhausted) when too many requests are active. The error
    /// gives the buffers back.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    #[doc(alias = "MPI_Iallreduce")]
    pub fn start_owned<C: Collective + Send + 'static>(
        &self,
        call: C,
    ) -> Result<CollectiveRequest<C, L, D>, Failed<Buffers<C>>> {
        const {
            any_bits::<C>();
        };
        CollectiveRequest::start(self, call)
    }
}

/// A collective operation that owns its buffers ([`Comm::start_owned`]).
///
/// Dropping an incomplete one does not stop the operation, because the other ranks take part in it:
/// the runtime keeps the buffers until it is complete. Forgetting one leaks the buffers.
#[must_use = "dropping a request gives its result up"]
pub struct CollectiveRequest<
    C: Collective + Send + 'static,
    L: Level = Single,
    D: Device = AnyDevice<L>,
> {
    comm: Comm<L, D>,
    request: Request,
    /// Taken when the operation is complete.
    call: Option<C>,
}

impl<C: Collective + Send + 'static, L: Level, D: Device> fmt::Debug
    for CollectiveRequest<C, L, D>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectiveRequest")
            .field("comm", &self.comm)
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

impl<C: Collective + Send + 'static, L: Level, D: Device> CollectiveRequest<C, L, D> {
    pub(super) fn start(
        ground: &impl Ground<Level = L, Device = D>,
        call: C,
    ) -> Result<Self, Failed<Buffers<C>>> {
        // SAFETY: the request keeps the buffers until it is complete, or leaves them to the device;
        // the callers have checked that any bits are valid values.
        match unsafe { ground.start(&call) } {
            Ok(request) => Ok(Self {
                comm: ground.comm().clone(),
                request,
                call: Some(call),
            }),
            Err(error) => Err(Failed {
                buf: call.into_sides().into_buffers(),
                error: ground.comm().fail(error),
            }),
        }
    }

    /// Waits until this rank's part in the operation is complete (MPI-4 section 3.7.3, `MPI_Wait`)
    /// and gives the buffers back.
    ///
    /// # Errors
    /// As [`Comm::run`] where ranks disagree or fail, with the buffers.
    #[doc(alias = "MPI_Wait")]
    pub fn wait(mut self) -> Result<Completion<Buffers<C>>, Failed<Buffers<C>>> {
        // If the device panics, `call` is still set, and `drop` deals with it.
        let outcome = self.comm.hosted().wait(self.request);
        let call = self
            .call
            .take()
            .expect("the buffers are held until the operation is over");
        let buf = call.into_sides().into_buffers();
        match outcome {
            Ok(status) => Ok(Completion { buf, status }),
            Err(error) => Err(Failed {
                buf,
                error: self.comm.fail(error),
            }),
        }
    }

    /// Whether [`wait`](Self::wait) would return at once (MPI-4 section 3.7.3,
    /// `MPI_Request_get_status`). Makes progress.
    #[doc(alias = "MPI_Request_get_status")]
    #[must_use]
    pub fn is_complete(&self) -> bool {
        // An error means that the next call returns it, so that counts as complete too.
        !matches!(self.comm.hosted().peek(self.request), Ok(None))
    }
}

impl<C: Collective + Send + 'static, L: Level, D: Device> Drop for CollectiveRequest<C, L, D> {
    fn drop(&mut self) {
        let Some(mut call) = self.call.take() else {
            return;
        };
        call.sides_mut().abandon();
        abandon(self.comm.hosted(), self.request, call, false);
    }
}

impl<C: Collective + Send + 'static, L: Level, D: Device> Sealed for CollectiveRequest<C, L, D> {
    fn host(&self) -> Option<&dyn Host> {
        Some(self.comm.hosted())
    }

    fn is_over(&self) -> bool {
        self.is_complete()
    }

    fn suspend(&self, waker: &Waker) -> Option<Suspended> {
        self.comm.hosted().suspend(self.request, waker)
    }
}

impl<C: Collective + Send + 'static, L: Level, D: Device> AnyRequest
    for CollectiveRequest<C, L, D>
{
}

impl<C: Collective + Send + 'static, L: Level, D: Device> OwnedRequest
    for CollectiveRequest<C, L, D>
{
    type Buf = Buffers<C>;

    fn wait(self) -> Result<Completion<Buffers<C>>, Failed<Buffers<C>>> {
        self.wait()
    }

    fn is_complete(&self) -> bool {
        self.is_complete()
    }
}

impl<C: Collective + Send + 'static, L: Level, D: Device> IntoFuture
    for CollectiveRequest<C, L, D>
{
    type Output = Result<Completion<Buffers<C>>, Failed<Buffers<C>>>;
    type IntoFuture = RequestFuture<Self>;

    fn into_future(self) -> RequestFuture<Self> {
        RequestFuture::new(self)
    }
}
