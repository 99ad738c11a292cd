//! Waiting for several requests. Each request has its own result, and an error loses none of them.

use std::task::Waker;

use portolan_core::device::Check;
use portolan_core::{Device, Request, Result};

use super::{Completion, Failed};
use crate::hosted::Hosted;
use crate::wakers::Suspended;

/// The part of a request that the functions of this module need.
///
/// Code with a bound on a public trait can call the methods of its private supertraits too. So
/// these methods expose neither the device nor the handle, with which safe code could free a
/// request that its owner still holds.
pub trait Sealed {
    /// The device that makes progress; `None` if there is nothing to wait for.
    fn host(&self) -> Option<&dyn Host>;

    /// Whether there was something to wait for, and it is complete. Makes progress.
    fn is_over(&self) -> bool;

    /// Has the task woken, once, when the request is complete. `None` if that cannot be promised.
    /// The request may have become complete before this call, so the caller has to look again.
    fn suspend(&self, waker: &Waker) -> Option<Suspended> {
        let _ = waker;
        None
    }
}

/// The part of a device that waiting needs.
pub trait Host {
    /// See [`Device::completion_epoch`].
    fn epoch(&self) -> u64;

    /// See [`Device::device_check`].
    fn check(&self, check: Check) -> Result<()>;

    /// See [`Sealed::suspend`].
    fn suspend(&self, request: Request, waker: &Waker) -> Option<Suspended>;
}

impl<D: Device> Host for Hosted<D> {
    fn epoch(&self) -> u64 {
        self.completion_epoch()
    }

    fn check(&self, check: Check) -> Result<()> {
        self.device_check(check)
    }

    fn suspend(&self, request: Request, waker: &Waker) -> Option<Suspended> {
        self.suspend(request, waker)
    }
}

/// A request of any kind: [`wait_any_of`] accepts requests of different types together.
///
/// Sealed. It is implemented by requests that own their buffers, by those in a
/// [`Scope`](crate::Scope), by persistent ones (which are waited for only while they are active),
/// by communicators that are being made, and by an `Option` of any of these, whose `None` is MPI's
/// null request.
pub trait AnyRequest: Sealed {}

impl<R: Sealed> Sealed for Option<R> {
    fn host(&self) -> Option<&dyn Host> {
        self.as_ref()?.host()
    }

    fn is_over(&self) -> bool {
        self.as_ref().is_some_and(R::is_over)
    }
}

impl<R: AnyRequest> AnyRequest for Option<R> {}

/// Implements the private traits for a request type through the field that is waited for.
macro_rules! any_request {
    ([$($generics:tt)*] $request:ty, $field:tt) => {
        impl<$($generics)*> $crate::comm::Sealed for $request {
            fn host(&self) -> Option<&dyn $crate::comm::Host> {
                $crate::comm::Sealed::host(&self.$field)
            }

            fn is_over(&self) -> bool {
                $crate::comm::Sealed::is_over(&self.$field)
            }

            fn suspend(&self, waker: &std::task::Waker) -> Option<$crate::wakers::Suspended> {
                $crate::comm::Sealed::suspend(&self.$field, waker)
            }
        }

        impl<$($generics)*> $crate::AnyRequest for $request {}
    };
}

pub(crate) use any_request;

/// A request that owns its buffers: [`SendRequest`](super::SendRequest),
/// [`RecvRequest`](super::RecvRequest) or [`CollectiveRequest`](crate::coll::CollectiveRequest).
pub trait OwnedRequest: AnyRequest + Sized {
    /// The buffer, or the buffers.
    type Buf;

    /// Waits until the operation is complete.
    ///
    /// # Errors
    /// That of the operation, with the buffer.
    fn wait(self) -> Result<Completion<Self::Buf>, Failed<Self::Buf>>;

    /// Whether [`wait`](Self::wait) would return at once. Makes progress.
    fn is_complete(&self) -> bool;
}

/// The result of a request.
type Outcome<R> = Result<Completion<<R as OwnedRequest>::Buf>, Failed<<R as OwnedRequest>::Buf>>;

/// Waits for all requests (MPI-4 section 3.7.5, `MPI_Waitall`). The results are in the order of the
/// requests.
///
/// ```
/// portolan::try_threads(3, |world| {
///     let comm = world.comm();
///     if comm.rank() != 0 {
///         return comm.send(&[comm.rank()], 0, 0);
///     }
///     let mut requests = Vec::new();
///     for source in 1..comm.size() {
///         requests.push(comm.irecv_owned(vec![0u32], source, 0)?);
///     }
///     for outcome in portolan::wait_all(requests) {
///         let done = outcome?;
///         assert_eq!(done.buf, [done.status.source]);
///     }
///     Ok(())
/// })?;
/// # Ok::<(), portolan::Error>(())
/// ```
#[doc(alias = "MPI_Waitall")]
#[must_use = "each request has its own result, which may be an error"]
pub fn wait_all<R: OwnedRequest>(requests: impl IntoIterator<Item = R>) -> Vec<Outcome<R>> {
    // Waiting for one makes progress on all.
    requests.into_iter().map(R::wait).collect()
}

/// Waits until one of the requests is complete, removes it, and returns its former index and its
/// result (MPI-4 section 3.7.5, `MPI_Waitany`); `None` if there are no requests. The others keep
/// their order.
///
/// For requests of different types use [`wait_any_of`].
///
/// # Errors
/// [`Aborted`](crate::ErrorKind::Aborted) when the job ends; the requests stay as they are.
#[doc(alias = "MPI_Waitany")]
pub fn wait_any<R: OwnedRequest>(requests: &mut Vec<R>) -> Result<Option<(usize, Outcome<R>)>> {
    let found = wait_for(requests.iter())?;
    Ok(found.map(|index| (index, requests.remove(index).wait())))
}

/// Waits until one of the requests, which may be of different types, is complete (MPI-4 section
/// 3.7.5, `MPI_Waitany`). Returns its index, or the lowest if several are complete; that request's
/// own `wait` then returns its result at once. `None` if there is nothing to wait for.
///
/// ```
/// use portolan::coll::Allreduce;
/// use portolan::{Op, wait_any_of};
///
/// portolan::try_threads(2, |world| {
///     let comm = world.comm();
///     let other = 1 - comm.rank();
///     let mut values = Some(comm.irecv_owned(vec![0.0; 3], other, 0)?);
///     let mut text = Some(comm.isend_owned(b"ahoy".to_vec(), other, 1)?);
///     let mut sum = Some(comm.start_owned(Allreduce::new(vec![1], vec![0], Op::SUM))?);
///     comm.send(&[1.0, 2.0, 3.0], other, 0)?;
///     while let Some(index) = wait_any_of(&[&values, &text, &sum])? {
///         match index {
///             0 => assert_eq!(values.take().expect("it was there").wait()?.buf, [1.0, 2.0, 3.0]),
///             1 => drop(text.take().expect("it was there").wait()?),
///             _ => assert_eq!(sum.take().expect("it was there").wait()?.buf.1, [2]),
///         }
///     }
///     assert_eq!(comm.recv::<u8>(other, 1)?.0, b"ahoy");
///     Ok(())
/// })?;
/// # Ok::<(), portolan::Error>(())
/// ```
///
/// # Errors
/// [`Aborted`](crate::ErrorKind::Aborted) when the job ends.
#[doc(alias = "MPI_Waitany")]
pub fn wait_any_of(requests: &[&dyn AnyRequest]) -> Result<Option<usize>> {
    wait_for(requests.iter().copied())
}

/// Waits until at least one of the requests is complete, removes all that are, and returns their
/// former indices and results (MPI-4 section 3.7.5, `MPI_Waitsome`); empty if there are no
/// requests. The others keep their order.
///
/// # Errors
/// [`Aborted`](crate::ErrorKind::Aborted) when the job ends; the requests stay as they are.
#[doc(alias = "MPI_Waitsome")]
pub fn wait_some<R: OwnedRequest>(requests: &mut Vec<R>) -> Result<Vec<(usize, Outcome<R>)>> {
    wait_for(requests.iter())?;
    let (mut done, mut rest) = (Vec::new(), Vec::with_capacity(requests.len()));
    for (index, request) in requests.drain(..).enumerate() {
        if request.is_complete() {
            done.push((index, request.wait()));
        } else {
            rest.push(request);
        }
    }
    *requests = rest;
    Ok(done)
}

/// Makes progress until a request is complete, and returns the first such request; `None` if there
/// is nothing to wait for.
fn wait_for<'r, R: Sealed + ?Sized + 'r>(
    requests: impl Iterator<Item = &'r R> + Clone,
) -> Result<Option<usize>> {
    let mut hosts = requests.clone().filter_map(R::host);
    let Some(host) = hosts.next() else {
        return Ok(None);
    };
    // If one thread holds requests of several ranks, it must not sleep on one device: it would not
    // hear of completions on the others.
    let alone = hosts.all(|other| std::ptr::addr_eq(other, host));
    loop {
        let epoch = host.epoch();
        if let Some(found) = requests.clone().position(R::is_over) {
            return Ok(Some(found));
        }
        host.check(if alone {
            Check::Blocking(epoch)
        } else {
            Check::NonBlocking
        })?;
    }
}
