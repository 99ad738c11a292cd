//! Waiting for several owned requests. Each has its own result; nothing is lost on an error.

use portolan_core::device::Check;
use portolan_core::{Device, Request, Result};

use super::{Completion, Failed};

/// What the functions of this module need of a request.
pub trait Sealed {
    /// The device that knows the request.
    type Device: Device;

    /// The device and its handle on the request.
    fn parts(&self) -> (&Self::Device, Request);
}

/// A request that owns its buffers: [`SendRequest`](super::SendRequest),
/// [`RecvRequest`](super::RecvRequest) or [`CollectiveRequest`](crate::coll::CollectiveRequest).
pub trait OwnedRequest: Sealed + Sized {
    /// The buffer, or the buffers.
    type Buf;

    /// Waits until the operation is over.
    ///
    /// # Errors
    /// That of the operation, with the buffer.
    fn wait(self) -> Result<Completion<Self::Buf>, Failed<Self::Buf>>;

    /// Whether [`wait`](Self::wait) would return at once. Makes progress.
    fn is_complete(&self) -> bool;
}

/// What became of a request.
type Outcome<R> = Result<Completion<<R as OwnedRequest>::Buf>, Failed<<R as OwnedRequest>::Buf>>;

/// Waits for all requests (MPI-4 section 3.7.5, `MPI_Waitall`); results are in their order.
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
pub fn wait_all<R: OwnedRequest>(requests: impl IntoIterator<Item = R>) -> Vec<Outcome<R>> {
    // Waiting for one makes progress on all.
    requests.into_iter().map(R::wait).collect()
}

/// Waits until one of the requests is complete, removes it and returns its former index and result
/// (MPI-4 section 3.7.5, `MPI_Waitany`). The others keep their order; `None` if there are none.
///
/// # Errors
/// [`Aborted`](crate::ErrorKind::Aborted) when the job ends; the requests stay as they are.
pub fn wait_any<R: OwnedRequest>(requests: &mut Vec<R>) -> Result<Option<(usize, Outcome<R>)>> {
    let found = wait_for(requests, |requests| {
        requests.iter().position(R::is_complete)
    })?;
    Ok(found.map(|index| (index, requests.remove(index).wait())))
}

/// Waits until at least one of the requests is complete, removes all that are and returns their
/// former indices and results (MPI-4 section 3.7.5, `MPI_Waitsome`). The others keep their order;
/// empty if there are none.
///
/// # Errors
/// [`Aborted`](crate::ErrorKind::Aborted) when the job ends; the requests stay as they are.
pub fn wait_some<R: OwnedRequest>(requests: &mut Vec<R>) -> Result<Vec<(usize, Outcome<R>)>> {
    wait_for(requests, |requests| {
        requests.iter().position(R::is_complete)
    })?;
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

/// Makes progress until `find` finds something, or there is nothing to wait for.
fn wait_for<R: OwnedRequest, T>(
    requests: &[R],
    find: impl Fn(&[R]) -> Option<T>,
) -> Result<Option<T>> {
    let Some((device, _)) = requests.first().map(R::parts) else {
        return Ok(None);
    };
    // Requests of several ranks in one thread: sleeping on one device would not hear of the others.
    let alone = requests
        .iter()
        .all(|request| std::ptr::eq(request.parts().0, device));
    loop {
        let epoch = device.completion_epoch();
        if let Some(found) = find(requests) {
            return Ok(Some(found));
        }
        device.device_check(if alone {
            Check::Blocking(epoch)
        } else {
            Check::NonBlocking
        })?;
    }
}
