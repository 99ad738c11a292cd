//! Buffers in memory that the ranks of a node share.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use portolan_core::device::{Caps, Region};
use portolan_core::level::{Level, Single};
use portolan_core::{Device, Error, ErrorKind, Result};
use portolan_datatype::Datatype;

use super::Comm;
use super::raw::any_bits;
use crate::any::AnyDevice;
use crate::hosted::Hosted;

/// Values in memory from which other ranks can copy a message without this rank's help:
/// [`Comm::alloc`] makes it. It is used like a slice.
///
/// The values are this rank's. Other ranks on the node read them while they receive a message that
/// is being sent from here, write them while they send one that is being received here, and touch
/// them at no other time. (Their processes map the memory, so a wild pointer there may reach it.)
pub struct Memory<T: Datatype, D: Device = AnyDevice<Single>> {
    place: Place<T, D>,
    values: PhantomData<T>,
}

enum Place<T, D: Device> {
    /// In memory of the device.
    Shared {
        device: Arc<Hosted<D>>,
        region: Region,
        first: NonNull<T>,
        count: usize,
    },
    /// On the heap: the device has no such memory.
    Own(Box<[T]>),
}

// SAFETY: the values are `Send`, and reached only through this handle.
unsafe impl<T: Datatype, D: Device + Send + Sync> Send for Memory<T, D> {}
// SAFETY: the values are `Sync`; a shared handle gives out only shared references.
unsafe impl<T: Datatype, D: Device + Send + Sync> Sync for Memory<T, D> {}

impl<L: Level, D: Device> Comm<L, D> {
    /// Allocates `count` values, all bytes zero, where long messages are sent from the fastest
    /// (MPI-4 section 9.2, `MPI_Alloc_mem`).
    ///
    /// Ranks that share a node copy a message twice: the sender into memory that both see, the
    /// receiver out of it. From such memory the receiver copies the message itself, once, and the
    /// sender's processor is free meanwhile. (Messages of up to 4 KiB are copied all the same,
    /// because that takes less time than the sender's wait for its receiver.) A blocking send of a
    /// longer message from here therefore returns when it has been received. A message of 256 KiB
    /// or more that is received into such memory as well is copied by both ranks, half by each, if
    /// the sender is in a call.
    ///
    /// Where the device has no such memory, this is ordinary memory. It belongs to this rank, not
    /// to the communicator, and is freed when it is dropped. On a node all of it comes from the
    /// job's shared memory (`PORTOLAN_SHM_MAX`). A process that this one forks sees the same
    /// memory, until it executes another program.
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
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) if there is not so much memory.
    #[doc(alias = "MPI_Alloc_mem")]
    pub fn alloc<T: Datatype>(&self, count: usize) -> Result<Memory<T, D>> {
        const {
            any_bits::<T>();
        };
        let place = match self.hosted().attributes().caps.contains(Caps::DIRECT) {
            true => self.alloc_shared(count),
            false => alloc_own(count).map(Place::Own),
        };
        let place = self.raise(place)?;
        Ok(Memory {
            place,
            values: PhantomData,
        })
    }

    fn alloc_shared<T: Datatype>(&self, count: usize) -> Result<Place<T, D>> {
        let bytes = count
            .checked_mul(size_of::<T>())
            .ok_or_else(|| too_many::<T>(count))?;
        let device = self.inner.device_handle();
        let region = device.alloc_region(bytes)?;
        let first = NonNull::new(region.ptr.cast::<T>()).filter(|first| first.is_aligned());
        let Some(first) = first else {
            // SAFETY: nobody knows of the region.
            let _ = unsafe { device.free_region(region) };
            return alloc_own(count).map(Place::Own);
        };
        Ok(Place::Shared {
            device,
            region,
            first,
            count,
        })
    }
}

/// Values on the heap, all bytes zero.
fn alloc_own<T: Datatype>(count: usize) -> Result<Box<[T]>> {
    let mut values = Vec::new();
    values
        .try_reserve_exact(count)
        .map_err(|_| too_many::<T>(count))?;
    // SAFETY: every bit pattern is a value (`any_bits`).
    values.resize(count, unsafe { std::mem::zeroed() });
    Ok(values.into_boxed_slice())
}

#[cold]
fn too_many<T>(count: usize) -> Error {
    let what = format!(
        "there is no memory for {count} values of {} bytes",
        size_of::<T>()
    );
    Error::new(ErrorKind::Exhausted, what).remedy("ask for less")
}

impl<T: Datatype, D: Device> Deref for Memory<T, D> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.place {
            // SAFETY: the region has so many values, every bit pattern is one, and nobody else
            // writes them.
            Place::Shared { first, count, .. } => unsafe {
                std::slice::from_raw_parts(first.as_ptr(), *count)
            },
            Place::Own(values) => values,
        }
    }
}

impl<T: Datatype, D: Device> DerefMut for Memory<T, D> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.place {
            // SAFETY: as above. Nobody else reads them either, except for messages that borrow
            // them.
            Place::Shared { first, count, .. } => unsafe {
                std::slice::from_raw_parts_mut(first.as_ptr(), *count)
            },
            Place::Own(values) => values,
        }
    }
}

impl<T: Datatype, D: Device> Drop for Memory<T, D> {
    fn drop(&mut self) {
        if let Place::Shared { device, region, .. } = &self.place {
            // SAFETY: nobody has a reference to the values, and no peer was given the key.
            // (A device that has ended may have freed the region itself.)
            let _ = unsafe { device.free_region(*region) };
        }
    }
}

impl<T: Datatype + fmt::Debug, D: Device> fmt::Debug for Memory<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
