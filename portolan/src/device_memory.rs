//! Memory that the processor cannot load and store: that of an accelerator, such as a GPU.
//!
//! A [`Slice`] or [`SliceMut`] describes values in such memory. Making one is unsafe, because this
//! crate cannot know whether the address is good; sending and receiving it is safe.
//! [`Comm::send_device`], [`Comm::recv_device`], [`Comm::sendrecv_device`], [`Scope::send_device`]
//! and [`Scope::recv_device`] accept them, for types without padding. With [`Comm::share_device`],
//! [`Comm::put_device`] and [`Comm::get_device`] ranks write to and read from each other's
//! accelerator memory. The other side sees no difference: one rank may send from a GPU what another
//! receives into a `Vec`.
//!
//! Where the network can access such memory itself (a provider of libfabric with `FI_HMEM`), long
//! messages go there directly. Elsewhere they go through a few chunks of host memory that the
//! driver has locked. One chunk is copied while the transport moves another, and no message takes
//! more chunks, however long it is. The driver of the memory is found automatically (CUDA's
//! `libcuda.so.1` is opened at the first use and never linked), or given to
//! [`World::set_accelerators`]. Without a driver for a kind of memory, calls fail with
//! [`UnsupportedMemory`](crate::ErrorKind::UnsupportedMemory).
//!
//! Portolan's own copies do not affect CUDA graphs that the program captures meanwhile. Those of a
//! provider with `FI_HMEM` do: the capture fails, and a message may arrive with wrong bytes,
//! because libfabric (2.1) reports the failed copy as a success. A program that captures graphs
//! while messages of GPUs are under way sets `PORTOLAN_OFI_HMEM=off`.
//!
//! The following example uses a CUDA crate that gives addresses as integers (here `x.address()`; in
//! `cudarc` it is the `CUdeviceptr` of `device_ptr`):
//!
//! ```no_run
//! use portolan::device_memory::{Slice, SliceMut};
//! # struct Buffer;
//! # impl Buffer {
//! #     fn address(&self) -> u64 { 0 }
//! #     fn len(&self) -> usize { 0 }
//! # }
//! # struct Stream;
//! # impl Stream { fn synchronize(&self) {} }
//! # let (mine, theirs, stream) = (Buffer, Buffer, Stream);
//!
//! portolan::try_threads(2, |world| {
//!     let comm = world.comm();
//!     # let (mine, theirs, stream) = (Buffer, Buffer, Stream);
//!     stream.synchronize(); // What computes `mine` has ended.
//!     // SAFETY: both are alive until the call returns, hold as many values, and nothing that runs on the
//!     // device uses them meanwhile.
//!     let (data, mut room) = unsafe {
//!         (
//!             Slice::<f32>::cuda(mine.address(), mine.len()),
//!             SliceMut::<f32>::cuda(theirs.address(), theirs.len()),
//!         )
//!     };
//!     let other = 1 - comm.rank();
//!     let status = comm.sendrecv_device(&data, other, 7, &mut room, other, 7)?;
//!     assert_eq!(status.bytes, 4 * mine.len() as u64);
//!     Ok(())
//! })?;
//! # Ok::<(), portolan::Error>(())
//! ```

mod regions;

use std::marker::PhantomData;
use std::sync::Arc;

use portolan_core::comm::{NoUnwind, Source, Tag, Tags};
use portolan_core::level::{Level, Single};
use portolan_core::matching::Pattern;
use portolan_core::staging::Staging;
use portolan_core::{
    Device, Error, ErrorKind, Request, Result, SendArgs, SendMode, Status, TypedBuf,
};
use portolan_datatype::{Datatype, Layout};

pub use regions::Key;

pub use portolan_core::MemoryKind;
pub use portolan_core::staging::{Accelerator, Cuda};

use crate::any::AnyDevice;
use crate::comm::raw::{all_bytes, any_bits};
use crate::comm::{Comm, Registered, Scope, any_request};
use crate::world::World;

/// Values in accelerator memory, to send.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a, T> {
    address: u64,
    len: usize,
    kind: MemoryKind,
    life: PhantomData<&'a [T]>,
}

/// Values in accelerator memory, to receive into.
#[derive(Debug)]
pub struct SliceMut<'a, T> {
    address: u64,
    len: usize,
    kind: MemoryKind,
    life: PhantomData<&'a mut [T]>,
}

macro_rules! constructors {
    ($what:literal) => {
        /// `len` values that begin at an address of CUDA memory, a `CUdeviceptr`.
        ///
        /// # Safety
        /// As for [`new`](Self::new), and CUDA's driver has been initialised.
        #[must_use]
        pub unsafe fn cuda(address: u64, len: usize) -> Self {
            // SAFETY: the caller's promise.
            unsafe { Self::new(MemoryKind::Cuda, address, len) }
        }

        /// `len` values that begin at an address of memory of any kind, including the host's.
        ///
        /// # Safety
        #[doc = concat!("For the lifetime, as many values must be there, aligned, ", $what)]
        #[must_use]
        pub unsafe fn new(kind: MemoryKind, address: u64, len: usize) -> Self {
            Self {
                address,
                len,
                kind,
                life: PhantomData,
            }
        }

        /// Number of values.
        #[must_use]
        pub fn len(&self) -> usize {
            self.len
        }

        /// Whether there are none.
        #[must_use]
        pub fn is_empty(&self) -> bool {
            self.len == 0
        }

        /// The kind of memory that they are in.
        #[must_use]
        pub fn kind(&self) -> MemoryKind {
            self.kind
        }
    };
}

impl<T: Datatype> Slice<'_, T> {
    constructors!(
        "and nobody may write there: what the device computes there has ended (its stream has been \
         synchronized)."
    );
}

impl<T: Datatype> SliceMut<'_, T> {
    constructors!(
        "and nobody else may read or write there: what the device does there has ended (its stream has \
         been synchronized)."
    );
}

fn buf(kind: MemoryKind, address: u64, count: usize, layout: &Layout) -> TypedBuf<'_> {
    TypedBuf {
        ptr: std::ptr::with_exposed_provenance_mut(address as usize),
        count,
        layout,
        memory: kind,
    }
}

impl<L: Level, D: Device> World<L, D> {
    /// Uses these drivers for accelerator memory, instead of those that would be found
    /// automatically. Returns `false`, without effect, if such memory has been used already or if
    /// this has been called before.
    ///
    /// ```
    /// let world = portolan::in_process(1)?.remove(0);
    /// assert!(world.set_accelerators(vec![])); // None: such memory is refused.
    /// # Ok::<(), portolan::Error>(())
    /// ```
    #[must_use = "`false` means that the drivers are not used"]
    pub fn set_accelerators(&self, drivers: Vec<Arc<dyn Accelerator>>) -> bool {
        let comm = self.comm();
        comm.hosted().staging.set(Staging::new(drivers)).is_ok()
    }
}

impl<L: Level, D: Device> Comm<L, D> {
    /// Sends values in accelerator memory, as [`send`](Self::send) does, and returns when they may
    /// be changed again. The [module](crate::device_memory) has an example.
    ///
    /// # Errors
    /// As [`send`](Self::send), and [`UnsupportedMemory`](ErrorKind::UnsupportedMemory) if there is
    /// no driver for the memory, or the driver does not know the address.
    pub fn send_device<T: Datatype>(
        &self,
        data: &Slice<'_, T>,
        dest: u32,
        tag: impl Into<Tag>,
    ) -> Result<()> {
        let guard = NoUnwind::new("a send from a device");
        let sent = self.send_staged(data, dest, tag.into());
        guard.done();
        self.raise(sent)
    }

    /// Receives into accelerator memory, as [`recv_into`](Self::recv_into) does. The type must be
    /// one for which every bit pattern is valid.
    ///
    /// # Errors
    /// As [`recv_into`](Self::recv_into), and [`UnsupportedMemory`](ErrorKind::UnsupportedMemory).
    pub fn recv_device<T: Datatype>(
        &self,
        room: &mut SliceMut<'_, T>,
        source: impl Into<Source>,
        tag: impl Into<Tags>,
    ) -> Result<Status> {
        let pattern = self.raise(self.inner.pattern(source.into(), tag.into()))?;
        let guard = NoUnwind::new("a receive into a device");
        let received = self.start_device_recv(room, &pattern);
        let received = received.and_then(|request| self.hosted().wait(request));
        guard.done();
        self.raise(received)
    }

    /// Sends and receives at the same time, as [`sendrecv`](Self::sendrecv) does.
    ///
    /// # Errors
    /// Those of [`send_device`](Self::send_device) and of [`recv_device`](Self::recv_device).
    pub fn sendrecv_device<S: Datatype, R: Datatype>(
        &self,
        data: &Slice<'_, S>,
        dest: u32,
        send_tag: impl Into<Tag>,
        room: &mut SliceMut<'_, R>,
        source: impl Into<Source>,
        recv_tag: impl Into<Tags>,
    ) -> Result<Status> {
        let pattern = self.raise(self.inner.pattern(source.into(), recv_tag.into()))?;
        let guard = NoUnwind::new("a send-receive of a device");
        // The receive starts first, because it can be cancelled if the send does not start, for
        // want of a driver, say.
        let started = self.start_device_recv(room, &pattern);
        let outcome = started.and_then(|incoming| {
            let outgoing = match self.start_device_send(data, dest, send_tag.into()) {
                Ok(outgoing) => outgoing,
                Err(error) => {
                    let _ = self.hosted().cancel(incoming);
                    let _ = self.hosted().wait(incoming);
                    return Err(error);
                }
            };
            let received = self.hosted().wait(incoming);
            let dead =
                |error: &Error| matches!(error.kind(), ErrorKind::PeerFailed | ErrorKind::Aborted);
            if received.as_ref().is_err_and(dead) {
                // The rank that should receive this message may never do so. After other errors,
                // such as a driver's, it still waits for the message.
                let _ = self.hosted().cancel(outgoing);
            }
            let sent = self.hosted().wait(outgoing);
            let status = received?;
            sent.map(|_| status)
        });
        guard.done();
        self.raise(outcome)
    }

    /// A blocking send. A rank that sends to itself has no other thread of control to receive
    /// meanwhile, so the send does not wait: the values are copied.
    fn send_staged<T: Datatype>(&self, data: &Slice<'_, T>, dest: u32, tag: Tag) -> Result<()> {
        if data.kind == MemoryKind::Host {
            let args = self.device_send_args::<T>(dest, tag)?;
            let layout = T::layout();
            let values = buf(data.kind, data.address, data.len, &layout);
            // SAFETY: as in `start_device_send`, and the call returns when the send is complete.
            return unsafe { self.hosted().send_datatype_unchecked(&args, values) };
        }
        if dest == self.rank() {
            let args = self.device_send_args::<T>(dest, tag)?;
            let layout = T::layout();
            let values = buf(data.kind, data.address, data.len, &layout);
            // SAFETY: as in `start_device_send`; they are copied before this returns.
            let request = unsafe { self.staging().isend_copied(self.hosted(), &args, values)? };
            return self.hosted().free(request);
        }
        let request = self.start_device_send(data, dest, tag)?;
        self.hosted().wait(request).map(drop)
    }

    pub(crate) fn staging(&self) -> &Staging {
        self.hosted().staging.get_or_init(Staging::detected)
    }

    fn device_send_args<T: Datatype>(&self, dest: u32, tag: Tag) -> Result<SendArgs> {
        const {
            all_bytes::<T>();
        };
        self.inner.send_args(SendMode::Standard, dest, tag)
    }

    /// The caller keeps the values borrowed until the request is complete.
    fn start_device_send<T: Datatype>(
        &self,
        data: &Slice<'_, T>,
        dest: u32,
        tag: Tag,
    ) -> Result<Request> {
        let args = self.device_send_args::<T>(dest, tag)?;
        let layout = T::layout();
        let values = buf(data.kind, data.address, data.len, &layout);
        // SAFETY: the arguments are this communicator's. The maker of the slice promised the values
        // for its lifetime, and the callers complete the request within that.
        unsafe { self.staging().isend(self.hosted(), &args, values) }
    }

    /// As [`start_device_send`](Self::start_device_send).
    fn start_device_recv<T: Datatype>(
        &self,
        room: &mut SliceMut<'_, T>,
        pattern: &Pattern,
    ) -> Result<Request> {
        const {
            all_bytes::<T>();
            any_bits::<T>();
        };
        let layout = T::layout();
        let values = buf(room.kind, room.address, room.len, &layout);
        // SAFETY: the pattern is this communicator's; for the rest, as above, and every bit pattern
        // is a value.
        unsafe { self.staging().irecv(self.hosted(), pattern, values) }
    }
}

impl<'scope, 'env, L: Level, D: Device> Scope<'scope, 'env, L, D> {
    /// Starts a send from accelerator memory, as [`Comm::send_device`] does. The memory must stay
    /// as it is until the scope ends.
    ///
    /// # Errors
    /// As [`Comm::send_device`].
    pub fn send_device<T: Datatype>(
        &'scope self,
        data: Slice<'scope, T>,
        dest: u32,
        tag: impl Into<Tag>,
    ) -> Result<ScopedTransfer<'scope, L, D>> {
        let started = self.comm().start_device_send(&data, dest, tag.into());
        self.register(started).map(ScopedTransfer)
    }

    /// Starts a receive into accelerator memory, as [`Comm::recv_device`] does. The memory belongs
    /// to the receive until the scope ends.
    ///
    /// ```
    /// use portolan::device_memory::{MemoryKind, Slice, SliceMut};
    ///
    /// portolan::try_threads(2, |world| {
    ///     let comm = world.comm();
    ///     let other = 1 - comm.rank();
    ///     let (mine, mut theirs) = ([comm.rank(); 3], [7_u32; 3]);
    ///     // SAFETY: memory of the host, for want of a GPU; both arrays outlive the scope.
    ///     let (data, room) = unsafe {
    ///         (
    ///             Slice::<u32>::new(MemoryKind::Host, mine.as_ptr() as u64, 3),
    ///             SliceMut::<u32>::new(MemoryKind::Host, theirs.as_mut_ptr() as u64, 3),
    ///         )
    ///     };
    ///     comm.scope(|s| {
    ///         let incoming = s.recv_device(room, other, 0)?;
    ///         s.send_device(data, other, 0)?;
    ///         assert_eq!(incoming.wait()?.bytes, 12);
    ///         Ok(())
    ///     })?;
    ///     assert_eq!(theirs, [other; 3]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Comm::recv_device`].
    pub fn recv_device<T: Datatype>(
        &'scope self,
        mut room: SliceMut<'scope, T>,
        source: impl Into<Source>,
        tag: impl Into<Tags>,
    ) -> Result<ScopedTransfer<'scope, L, D>> {
        let pattern = self.comm().inner.pattern(source.into(), tag.into());
        let started =
            pattern.and_then(|pattern| self.comm().start_device_recv(&mut room, &pattern));
        self.register(started).map(ScopedTransfer)
    }
}

/// A send or receive of accelerator memory in a [`Scope`]. Dropping it leaves it to the scope.
#[derive(Debug)]
pub struct ScopedTransfer<'scope, L: Level = Single, D: Device = AnyDevice<L>>(
    Registered<'scope, L, D>,
);

any_request!(['scope, L: Level, D: Device] ScopedTransfer<'scope, L, D>, 0);

impl<L: Level, D: Device> ScopedTransfer<'_, L, D> {
    /// Waits until the operation is complete (MPI-4 section 3.7.3, `MPI_Wait`).
    ///
    /// # Errors
    /// As [`Comm::send_device`] and [`Comm::recv_device`].
    #[doc(alias = "MPI_Wait")]
    pub fn wait(self) -> Result<Status> {
        self.0.wait()
    }

    /// Whether [`wait`](Self::wait) would return at once. Makes progress.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.0.is_complete()
    }
}
