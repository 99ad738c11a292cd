//! Late-bound receives: the message is matched first, the buffer comes with the data.

use portolan_core::level::{Level, Single};
use portolan_core::{Device, Result, Status, device};
use portolan_datatype::Datatype;

use super::Comm;
use crate::any::AnyDevice;

/// A matched message that waits for a buffer ([`Comm::match_recv`]).
///
/// No other receive can take it. Dropping it discards the message; forgetting it leaks the
/// message's memory.
#[must_use = "a message that is dropped is lost"]
#[derive(Debug)]
pub struct Message<'c, L: Level = Single, D: Device = AnyDevice<L>> {
    comm: &'c Comm<L, D>,
    handle: device::Message,
    status: Status,
}

impl<'c, L: Level, D: Device> Message<'c, L, D> {
    pub(super) fn new(comm: &'c Comm<L, D>, handle: device::Message, status: Status) -> Self {
        Self {
            comm,
            handle,
            status,
        }
    }

    /// The message's source, tag and length in bytes.
    #[must_use]
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// How many values of `T` the message holds; `None` if it is not a whole number of them (MPI-4
    /// section 3.2.5, `MPI_Get_count`).
    #[doc(alias = "MPI_Get_count")]
    #[must_use]
    pub fn count<T: Datatype>(&self) -> Option<usize> {
        self.status.count::<T>()
    }

    /// Receives the message into `buf` (MPI-4 section 3.8.3, `MPI_Mrecv`).
    ///
    /// # Errors
    /// As [`Comm::recv_into`]. The message is gone either way.
    #[doc(alias = "MPI_Mrecv")]
    pub fn recv_into<T: Datatype>(self, buf: &mut [T]) -> Result<Status> {
        let (comm, handle) = self.open();
        if T::ANY_BITS {
            // SAFETY: `buf` is writable, and whatever arrives is valid in it.
            return comm.raise(unsafe { comm.recv_taken(handle, buf.as_mut_ptr(), buf.len()) });
        }
        let received = comm.room_for::<T>(buf.len()).and_then(|mut aside| {
            // SAFETY: there is room for `buf.len()` values; those that arrived are copied if valid.
            unsafe {
                let status = comm.recv_taken(handle, aside.as_mut_ptr(), buf.len())?;
                let whole = super::recv::whole::<T>(&status).min(buf.len());
                comm.check_values(aside.as_ptr(), whole, &status)?;
                buf.as_mut_ptr()
                    .copy_from_nonoverlapping(aside.as_ptr(), whole);
                Ok(status)
            }
        });
        comm.raise(received)
    }

    /// Receives the message into a vector of its length (MPI-4 section 3.8.3, `MPI_Mrecv`).
    ///
    /// # Errors
    /// As [`Comm::recv`]. The message is gone either way.
    #[doc(alias = "MPI_Mrecv")]
    pub fn recv<T: Datatype>(self) -> Result<(Vec<T>, Status)> {
        let expected = self.status;
        let comm = self.comm;
        let Some(count) = expected.count::<T>() else {
            return comm.raise(Err(
                comm.not_whole::<T>(&expected, "a whole number of values")
            ));
        };
        // If there is no memory, the message is dropped here, which discards it.
        let mut values = comm.raise(comm.room_for::<T>(count))?;
        let (comm, handle) = self.open();
        // SAFETY: there is room for `count` values, and those that arrived become part of the
        // vector if they are valid.
        let received = unsafe {
            comm.recv_taken(handle, values.as_mut_ptr(), count)
                .and_then(|status| {
                    let whole = super::recv::whole::<T>(&status).min(count);
                    comm.check_values(values.as_ptr(), whole, &status)?;
                    values.set_len(whole);
                    Ok(status)
                })
        };
        comm.raise(received).map(|status| (values, status))
    }

    /// Discards the message: it counts as received.
    ///
    /// # Errors
    /// [`PeerFailed`](crate::ErrorKind::PeerFailed).
    pub fn discard(self) -> Result<Status> {
        let status = self.status;
        let (comm, handle) = self.open();
        comm.raise(comm.hosted().discard(handle)).map(|()| status)
    }

    /// Takes out the handle, which the caller must now give back to the device.
    fn open(self) -> (&'c Comm<L, D>, device::Message) {
        let parts = (self.comm, self.handle);
        std::mem::forget(self);
        parts
    }
}

impl<L: Level, D: Device> Drop for Message<'_, L, D> {
    fn drop(&mut self) {
        // A stale handle means that the device has ended, and the message with it.
        let _ = self.comm.hosted().discard(self.handle);
    }
}
