//! Late-bound receives: the message is matched first, the buffer comes with the data.

use portolan_core::level::{Level, Single};
use portolan_core::{Device, Result, Status, device};
use portolan_datatype::{Datatype, Layout};

use super::Comm;
use super::raw::{all_bytes, any_bits};
use crate::any::AnyDevice;

/// A matched message that waits for a buffer ([`Comm::match_recv`]).
///
/// No other receive can take it. Dropping it discards the message; forgetting it leaks the
/// message's memory. To keep it in a struct or a queue, or to give it to another thread, make it an
/// [`OwnedMessage`].
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
            let ptr = buf.as_mut_ptr().cast();
            // SAFETY: `buf` is writable, and whatever arrives is valid in it.
            return comm.raise(unsafe { comm.recv_taken(handle, ptr, buf.len(), &T::layout()) });
        }
        let received = comm.room_for::<T>(buf.len()).and_then(|mut aside| {
            // SAFETY: there is room for `buf.len()` values; those that arrived are copied if valid.
            unsafe {
                let ptr = aside.as_mut_ptr().cast();
                let status = comm.recv_taken(handle, ptr, buf.len(), &T::layout())?;
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
            comm.recv_taken(handle, values.as_mut_ptr().cast(), count, &T::layout())
                .and_then(|status| {
                    let whole = super::recv::whole::<T>(&status).min(count);
                    comm.check_values(values.as_ptr(), whole, &status)?;
                    values.set_len(whole);
                    Ok(status)
                })
        };
        comm.raise(received).map(|status| (values, status))
    }

    /// Receives the message into `count` items of a layout (MPI-4 section 3.8.3, `MPI_Mrecv` with a
    /// derived datatype). Its displacements count from the beginning of `base`. Memory that the
    /// layout does not cover stays as it is.
    ///
    /// # Errors
    /// As [`Comm::recv_layout`]. The message is gone either way.
    #[doc(alias = "MPI_Mrecv")]
    pub fn recv_layout<T: Datatype>(
        self,
        base: &mut [T],
        count: usize,
        layout: &Layout,
    ) -> Result<Status> {
        const {
            all_bytes::<T>();
            any_bits::<T>();
        };
        // If the items reach beyond the buffer, the message is dropped here, which discards it.
        let fits = self.comm.check_span(size_of_val(base), count, layout);
        self.comm.raise(fits)?;
        let (comm, handle) = self.open();
        let ptr = base.as_mut_ptr().cast();
        // SAFETY: the layout stays within `base`, in which any bits are valid.
        comm.raise(unsafe { comm.recv_taken(handle, ptr, count, layout) })
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

    /// The message with a handle of its communicator, so that it borrows nothing.
    ///
    /// ```
    /// use std::collections::VecDeque;
    ///
    /// portolan::try_threads(2, |world| {
    ///     let comm = world.comm();
    ///     let other = 1 - comm.rank();
    ///     comm.send(&[1u32, 2, 3], other, 0)?;
    ///     comm.send(&[4u32], other, 0)?;
    ///     let mut inbox = VecDeque::new();
    ///     for _ in 0..2 {
    ///         inbox.push_back(comm.match_recv(other, 0)?.into_owned());
    ///     }
    ///     drop(comm);
    ///     while let Some(message) = inbox.pop_back() {
    ///         let count = message.count::<u32>();
    ///         assert_eq!(Some(message.recv::<u32>()?.0.len()), count);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    pub fn into_owned(self) -> OwnedMessage<L, D> {
        let status = self.status;
        let (comm, handle) = self.open();
        OwnedMessage {
            comm: comm.clone(),
            handle: Some(handle),
            status,
        }
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

/// A matched message with a handle of its communicator ([`Message::into_owned`]). At level
/// [`Multiple`](crate::Multiple) it may go to another thread.
///
/// No other receive can take it. Dropping it discards the message; forgetting it leaks the
/// message's memory.
#[must_use = "a message that is dropped is lost"]
#[derive(Debug)]
pub struct OwnedMessage<L: Level = Single, D: Device = AnyDevice<L>> {
    comm: Comm<L, D>,
    /// Taken when the message is received.
    handle: Option<device::Message>,
    status: Status,
}

impl<L: Level, D: Device> OwnedMessage<L, D> {
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
    pub fn recv_into<T: Datatype>(mut self, buf: &mut [T]) -> Result<Status> {
        self.lend().recv_into(buf)
    }

    /// Receives the message into a vector of its length (MPI-4 section 3.8.3, `MPI_Mrecv`).
    ///
    /// # Errors
    /// As [`Comm::recv`]. The message is gone either way.
    #[doc(alias = "MPI_Mrecv")]
    pub fn recv<T: Datatype>(mut self) -> Result<(Vec<T>, Status)> {
        self.lend().recv()
    }

    /// As [`Message::recv_layout`].
    ///
    /// # Errors
    /// As [`Comm::recv_layout`]. The message is gone either way.
    #[doc(alias = "MPI_Mrecv")]
    pub fn recv_layout<T: Datatype>(
        mut self,
        base: &mut [T],
        count: usize,
        layout: &Layout,
    ) -> Result<Status> {
        self.lend().recv_layout(base, count, layout)
    }

    /// Discards the message: it counts as received.
    ///
    /// # Errors
    /// [`PeerFailed`](crate::ErrorKind::PeerFailed).
    pub fn discard(mut self) -> Result<Status> {
        self.lend().discard()
    }

    /// The message as one that borrows the communicator.
    fn lend(&mut self) -> Message<'_, L, D> {
        let handle = self.handle.take();
        let handle = handle.expect("a message is received once");
        Message::new(&self.comm, handle, self.status)
    }
}

impl<L: Level, D: Device> Drop for OwnedMessage<L, D> {
    fn drop(&mut self) {
        if self.handle.is_some() {
            drop(self.lend());
        }
    }
}
