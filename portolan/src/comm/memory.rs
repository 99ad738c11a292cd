//! Buffers in memory that the ranks of a node share.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use portolan_core::device::{Caps, Region};
use portolan_core::level::{Level, Single};
use portolan_core::{Device, Error, ErrorKind, Result};
use portolan_datatype::Datatype;

use super::raw::any_bits;
use super::{Buffer, BufferMut, Comm, Parts};
use crate::any::AnyDevice;
use crate::hosted::Hosted;

/// Values in memory from which other ranks can copy a message without this rank's help:
/// [`Comm::alloc`] makes it. It is used like a slice, and can be given to requests that own their
/// buffers: it is a [`StableBuf`](crate::StableBuf).
///
/// The values are this rank's. Other ranks on the node read them while they receive a message that
/// is being sent from here, write them while they send one that is being received here, and touch
/// them at no other time. (Their processes map the memory, so a wild pointer there may reach it.)
///
/// It keeps the rank in the job, as communicators and requests do, and stays readable and writable
/// after [`World::finalize`](crate::World::finalize). It may go to another thread at every thread
/// level. If it is dropped there at level [`Single`], the rank can use its memory again from its
/// next [`alloc`](Comm::alloc) on.
pub struct Memory<T: Datatype, L: Level = Single, D: Device = AnyDevice<L>> {
    first: NonNull<T>,
    count: usize,
    /// `None` for values on the heap: the device has no such memory.
    place: Option<Box<Place<L, D>>>,
}

/// Memory of the device; it is freed when this is dropped.
pub struct Place<L: Level, D: Device> {
    /// Keeps the memory valid. `None` while the device keeps the buffer itself, for a send whose
    /// request was dropped: a device that kept itself would never end.
    device: Option<Arc<Hosted<D>>>,
    region: Region,
    freed: Arc<Freed>,
    /// The thread that may call the device, at level `Single`.
    home: ThreadId,
    level: PhantomData<fn() -> L>,
}

/// Regions that nobody uses any more and that the device is to free.
#[derive(Debug, Default)]
pub(crate) struct Freed(Mutex<Vec<Region>>);

impl Freed {
    fn add(&self, region: Region) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(region);
    }

    fn take(&self) -> Vec<Region> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<D: Device> Hosted<D> {
    /// Frees the memory of buffers that have been dropped.
    fn free_dropped(&self) {
        for region in self.freed.take() {
            // SAFETY: the buffer is gone, and no peer was given the key.
            let _ = unsafe { self.free_region(region) };
        }
    }

    /// The number of buffers in memory of the device that have not been dropped.
    pub(crate) fn allocated(&self) -> usize {
        Arc::strong_count(&self.freed) - 1
    }
}

impl<L: Level, D: Device> Drop for Place<L, D> {
    fn drop(&mut self) {
        self.freed.add(self.region);
        if let Some(device) = &self.device
            && (L::MULTIPLE || self.home == thread::current().id())
        {
            device.free_dropped();
        }
    }
}

// SAFETY: the values are `Send`, and reached only through this handle. At level `Multiple` any
// thread may call the device. At level `Single` another thread than the rank's does not call it
// (`Place::drop`); if it drops the last handle of the device, it has the device alone, and the
// device is `Send`.
unsafe impl<T: Datatype, L: Level, D: Device + Send> Send for Memory<T, L, D> {}
// SAFETY: the values are `Sync`, and a shared handle gives out no more than references to them.
unsafe impl<T: Datatype, L: Level, D: Device> Sync for Memory<T, L, D> {}

/// What hosts a device that is `Send` is `Send`, as the above needs.
const fn _a_host_can_be_sent<D: Device + Send>() {
    const fn sendable<T: Send>() {}
    sendable::<Hosted<D>>();
}

impl<L: Level, D: Device> Comm<L, D> {
    /// Allocates `count` values, all bytes zero, where long messages are sent from the fastest
    /// (MPI-4 section 9.2, `MPI_Alloc_mem`).
    ///
    /// Ranks that share a node copy a message twice: the sender into memory that both see, the
    /// receiver out of it. From such memory the receiver copies the message itself, once, and the
    /// sender's processor is free meanwhile. (Short messages are copied twice all the same, because
    /// that takes less time than the sender's wait for its receiver: those of up to 4 KiB, and of
    /// up to 16 KiB if the send is nonblocking.) A message of 256 KiB or more that is received into
    /// such memory as well is copied by both ranks, half by each, if the sender is in a call.
    ///
    /// A blocking send of more than 4 KiB from here returns when the message has been received. So
    /// two ranks that each send 8 KiB to the other and then receive deadlock, although they do not
    /// with a `Vec`: use [`sendrecv`](Self::sendrecv), a [`scope`](Self::scope) or owned requests,
    /// as for long messages.
    ///
    /// Where the device has no such memory, this is ordinary memory. It belongs to this rank, not
    /// to the communicator, and is freed when it is dropped. On a node all of it comes from the
    /// job's shared memory (`PORTOLAN_SHM_MAX`). That holds for ranks that are threads as well,
    /// although they gain nothing: they can load all memory, and messages from here take the same
    /// way as others. A process that this one forks sees the same memory, until it executes another
    /// program. (In a program with `SharedAllocator` it has a copy.)
    ///
    /// The type must be one for which every bit pattern is valid; that is checked when the program
    /// is compiled.
    ///
    /// ```
    /// portolan::try_threads(2, |world| {
    ///     let comm = world.comm();
    ///     if comm.rank() == 0 {
    ///         let mut field = comm.alloc::<f64>(100_000)?;
    ///         field.fill(1.5);
    ///         comm.send(&field[..], 1, 7)?;
    ///     } else {
    ///         let mut field = vec![0.0; 100_000];
    ///         comm.recv_into(&mut field, 0, 7)?;
    ///         assert_eq!(field[99_999], 1.5);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// A persistent send owns the memory, and its receiver reads it there at every start:
    ///
    /// ```
    /// portolan::try_threads(2, |world| {
    ///     let comm = world.comm();
    ///     let other = 1 - comm.rank();
    ///     let mut outgoing = comm.send_init(comm.alloc::<f64>(100_000)?, other, 7)?;
    ///     let mut incoming = comm.recv_init(comm.alloc::<f64>(100_000)?, other, 7)?;
    ///     for step in 0..3 {
    ///         outgoing.buf_mut()?.fill(f64::from(step));
    ///         incoming.start()?;
    ///         outgoing.start()?;
    ///         incoming.wait()?;
    ///         outgoing.wait()?;
    ///         assert_eq!(incoming.buf()?[99_999], f64::from(step));
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) if there is not so much memory.
    #[doc(alias = "MPI_Alloc_mem")]
    pub fn alloc<T: Datatype>(&self, count: usize) -> Result<Memory<T, L, D>> {
        const {
            any_bits::<T>();
        };
        self.hosted().free_dropped();
        let memory = match self.hosted().attributes().caps.contains(Caps::DIRECT) {
            true => self.alloc_shared(count),
            false => alloc_own(count),
        };
        self.raise(memory)
    }

    fn alloc_shared<T: Datatype>(&self, count: usize) -> Result<Memory<T, L, D>> {
        let bytes = count
            .checked_mul(size_of::<T>())
            .ok_or_else(|| too_many::<T>(count))?;
        let device = self.inner.device_handle();
        let region = device.alloc_region(bytes)?;
        let first = NonNull::new(region.ptr.cast::<T>()).filter(|first| first.is_aligned());
        let Some(first) = first else {
            // SAFETY: nobody knows of the region.
            let _ = unsafe { device.free_region(region) };
            return alloc_own(count);
        };
        let freed = Arc::clone(&device.freed);
        let place = Place {
            device: Some(device),
            region,
            freed,
            home: thread::current().id(),
            level: PhantomData,
        };
        Ok(Memory {
            first,
            count,
            place: Some(Box::new(place)),
        })
    }
}

/// Values on the heap, all bytes zero.
fn alloc_own<T: Datatype, L: Level, D: Device>(count: usize) -> Result<Memory<T, L, D>> {
    let mut values: Vec<T> = Vec::new();
    values
        .try_reserve_exact(count)
        .map_err(|_| too_many::<T>(count))?;
    // SAFETY: every bit pattern is a value (`any_bits`).
    values.resize(count, unsafe { std::mem::zeroed() });
    let first = Box::into_raw(values.into_boxed_slice()).cast::<T>();
    Ok(Memory {
        // SAFETY: a box's pointer is not null.
        first: unsafe { NonNull::new_unchecked(first) },
        count,
        place: None,
    })
}

#[cold]
fn too_many<T>(count: usize) -> Error {
    let what = format!(
        "there is no memory for {count} values of {} bytes",
        size_of::<T>()
    );
    Error::new(ErrorKind::Exhausted, what).remedy("ask for less")
}

impl<T: Datatype, L: Level, D: Device> Deref for Memory<T, L, D> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: so many values are there, every bit pattern is one, and nobody else writes them.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl<T: Datatype, L: Level, D: Device> DerefMut for Memory<T, L, D> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above. Nobody else reads them either, except for messages that borrow them.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.count) }
    }
}

impl<T: Datatype, L: Level, D: Device> Drop for Memory<T, L, D> {
    fn drop(&mut self) {
        // Nobody has a reference to the values.
        if self.place.take().is_none() {
            let values = std::ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.count);
            // SAFETY: they are a box that was taken apart in `alloc_own`.
            drop(unsafe { Box::from_raw(values) });
        }
    }
}

// SAFETY: the values are on the heap or in memory of the device. That stays valid until it is
// freed, even if the device has ended, and the parts keep the device. Only `Memory` gives out
// references to the values.
unsafe impl<T: Datatype, L: Level, D: Device> Buffer for Memory<T, L, D> {
    type Item = T;
    type Rest = Option<Box<Place<L, D>>>;
    type View<'a>
        = &'a mut [T]
    where
        Self: 'a;

    fn into_parts(self) -> Parts<T, Self::Rest> {
        let mut memory = ManuallyDrop::new(self);
        Parts {
            ptr: memory.first,
            len: memory.count,
            capacity: memory.count,
            rest: memory.place.take(),
        }
    }

    unsafe fn from_parts(parts: Parts<T, Self::Rest>) -> Self {
        Self {
            first: parts.ptr,
            count: parts.len,
            place: parts.rest,
        }
    }

    unsafe fn view<'a>(parts: &'a mut Parts<T, Self::Rest>) -> &'a mut [T]
    where
        Self: 'a,
    {
        // SAFETY: the caller promises that the values are there and that no other code uses them;
        // `parts` is borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(parts.ptr.as_ptr(), parts.len) }
    }

    fn abandon(parts: &mut Parts<T, Self::Rest>) {
        if let Some(place) = &mut parts.rest {
            place.device = None;
        }
    }
}

// SAFETY: the memory is the buffer's own.
unsafe impl<T: Datatype, L: Level, D: Device> BufferMut for Memory<T, L, D> {}

impl<T: Datatype, L: Level, D: Device> AsRef<[T]> for Memory<T, L, D> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T: Datatype, L: Level, D: Device> AsMut<[T]> for Memory<T, L, D> {
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}

impl<'m, T: Datatype, L: Level, D: Device> IntoIterator for &'m Memory<T, L, D> {
    type Item = &'m T;
    type IntoIter = std::slice::Iter<'m, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'m, T: Datatype, L: Level, D: Device> IntoIterator for &'m mut Memory<T, L, D> {
    type Item = &'m mut T;
    type IntoIter = std::slice::IterMut<'m, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<T: Datatype + fmt::Debug, L: Level, D: Device> fmt::Debug for Memory<T, L, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<L: Level, D: Device> fmt::Debug for Place<L, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}
