//! Accelerator memory that peers write to and read from directly.

use portolan_core::comm::NoUnwind;
use portolan_core::device::{Region, RegionKey};
use portolan_core::level::Level;
use portolan_core::{ContigBuf, Device, ProcId, Result};
use portolan_datatype::Datatype;

use super::{MemoryKind, Slice, SliceMut};
use crate::comm::Comm;
use crate::comm::raw::{all_bytes, any_bits};

/// Lets ranks reach memory that another rank shares. A key is plain data: its bytes may be sent as
/// a message. Using a key after the memory is no longer shared is an error, and touches no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    region: RegionKey,
    owner: ProcId,
}

impl Key {
    /// Length of a key in bytes.
    pub const LEN: usize = 60;

    /// The key as bytes.
    ///
    /// ```
    /// use portolan::device_memory::{Key, MemoryKind, SliceMut};
    ///
    /// portolan::try_threads(1, |world| {
    ///     let mut values = [0_u32; 100];
    ///     // SAFETY: memory of the host, for want of a GPU; the array is alive, and used by nobody else meanwhile.
    ///     let shared = unsafe { SliceMut::<u32>::new(MemoryKind::Host, values.as_mut_ptr() as u64, 100) };
    ///     world.comm().share_device(shared, |key| {
    ///         let bytes = key.to_bytes();
    ///         // SAFETY: the bytes of a key.
    ///         assert_eq!(unsafe { Key::from_bytes(&bytes) }, *key);
    ///         Ok(())
    ///     })
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..56].copy_from_slice(&self.region.0);
        bytes[56..].copy_from_slice(&self.owner.index().to_le_bytes());
        bytes
    }

    /// The key whose [`to_bytes`](Self::to_bytes) returned these bytes.
    ///
    /// # Safety
    /// They must be bytes that [`to_bytes`](Self::to_bytes) returned for a key that
    /// [`share_device`](Comm::share_device) gave to a rank of this job: made-up ones may name
    /// memory that was never shared.
    #[must_use]
    pub unsafe fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        Self {
            region: RegionKey(std::array::from_fn(|n| bytes[n])),
            owner: ProcId::new(u32::from_le_bytes(std::array::from_fn(|n| bytes[56 + n]))),
        }
    }
}

/// Ends a registration when it is dropped, whatever happens.
struct Registration<'c, L: Level, D: Device> {
    comm: &'c Comm<L, D>,
    region: Option<Region>,
}

impl<L: Level, D: Device> Registration<'_, L, D> {
    fn end(&mut self) -> Result<()> {
        match self.region.take() {
            // SAFETY: the region was registered here, and no pointer into it was given out.
            Some(region) => unsafe { self.comm.hosted().free_region(region) },
            None => Ok(()),
        }
    }
}

impl<L: Level, D: Device> Drop for Registration<'_, L, D> {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

impl<L: Level, D: Device> Comm<L, D> {
    /// Lets other ranks write to and read from accelerator memory while `body` runs, by
    /// [`put_device`](Self::put_device) and [`get_device`](Self::get_device). Any rank that is
    /// given the key may do so. Concurrent accesses to the same values happen in any order, and may
    /// mix. `body` must return only after every rank has made its last access, which the program
    /// ensures with a barrier, say; a later access is an error on the rank that makes it. Accesses
    /// are served whenever this rank is in a call.
    ///
    /// ```
    /// use portolan::device_memory::{Key, MemoryKind, Slice, SliceMut};
    ///
    /// portolan::try_threads(2, |world| {
    ///     let comm = world.comm();
    ///     let mut values = [0_u32; 100];
    ///     // SAFETY: memory of the host, for want of a GPU; the array is alive, and used by nobody else meanwhile.
    ///     let shared = unsafe { SliceMut::<u32>::new(MemoryKind::Host, values.as_mut_ptr() as u64, 100) };
    ///     if comm.rank() == 0 {
    ///         comm.share_device(shared, |key| {
    ///             comm.send(&key.to_bytes(), 1, 0)?;
    ///             comm.recv_one::<u8>(1, 1).map(drop)
    ///         })?;
    ///         assert_eq!(values[10..13], [0, 7, 7]);
    ///     } else {
    ///         let mut key = [0; Key::LEN];
    ///         comm.recv_into(&mut key, 0, 0)?;
    ///         let mine = [7_u32; 2];
    ///         // SAFETY: as above.
    ///         let mine = unsafe { Slice::<u32>::new(MemoryKind::Host, mine.as_ptr() as u64, 2) };
    ///         // SAFETY: what rank 0 has sent is a key's bytes.
    ///         let key = unsafe { Key::from_bytes(&key) };
    ///         comm.put_device(&mine, &key, 11)?;
    ///         comm.send_one(&1_u8, 0, 1)?;
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`UnsupportedMemory`](crate::ErrorKind::UnsupportedMemory) if there is no driver for the
    /// memory, or peers cannot reach it on this device; and those of `body`.
    pub fn share_device<T: Datatype, R>(
        &self,
        room: SliceMut<'_, T>,
        body: impl FnOnce(&Key) -> Result<R>,
    ) -> Result<R> {
        const {
            all_bytes::<T>();
            any_bits::<T>();
        };
        let memory = bytes::<T>(room.kind, room.address, room.len);
        // SAFETY: the maker of the slice promised the values for its lifetime, within which the
        // registration ends; every bit pattern is a value.
        let registered = unsafe { self.staging().register(self.hosted(), &memory) };
        let region = self.raise(registered)?;
        let key = Key {
            region: region.key,
            owner: ProcId::new(self.hosted().attributes().world_rank),
        };
        let mut registration = Registration {
            comm: self,
            region: Some(region),
        };
        let outcome = body(&key);
        let ended = registration.end();
        let outcome = outcome?;
        self.raise(ended)?;
        Ok(outcome)
    }

    /// Writes values in accelerator memory to memory that a rank shares, beginning at its value
    /// number `at`, and returns when they are there. Where long transfers go through the host, they
    /// go in pieces, one of which is copied while another is under way.
    ///
    /// # Errors
    /// [`RemoteAccess`](crate::ErrorKind::RemoteAccess) if the values do not fit, or the memory is
    /// no longer shared; [`UnsupportedMemory`](crate::ErrorKind::UnsupportedMemory) as for
    /// [`send_device`](Self::send_device). Some of the values may have been written.
    pub fn put_device<T: Datatype>(&self, data: &Slice<'_, T>, key: &Key, at: usize) -> Result<()> {
        const {
            all_bytes::<T>();
        };
        let memory = bytes::<T>(data.kind, data.address, data.len);
        let guard = NoUnwind::new("a put from a device");
        let (owner, region, offset) = (key.owner, &key.region, offset::<T>(at));
        // SAFETY: the maker of the slice promised the values for its lifetime, and no transfer is
        // under way when this returns.
        let put = unsafe {
            self.staging()
                .put_all(self.hosted(), owner, region, offset, &memory)
        };
        guard.done();
        self.raise(put)
    }

    /// Reads values that a rank shares, beginning at its value number `at`, into accelerator
    /// memory: the reverse of [`put_device`](Self::put_device).
    ///
    /// # Errors
    /// As for [`put_device`](Self::put_device).
    pub fn get_device<T: Datatype>(
        &self,
        room: &mut SliceMut<'_, T>,
        key: &Key,
        at: usize,
    ) -> Result<()> {
        const {
            all_bytes::<T>();
            any_bits::<T>();
        };
        let memory = bytes::<T>(room.kind, room.address, room.len);
        let guard = NoUnwind::new("a get into a device");
        let (owner, region, offset) = (key.owner, &key.region, offset::<T>(at));
        // SAFETY: as above, and every bit pattern is a value.
        let got = unsafe {
            self.staging()
                .get_all(self.hosted(), owner, region, offset, &memory)
        };
        guard.done();
        self.raise(got)
    }
}

/// The offset of a value in bytes; if that overflows, a number larger than any region.
fn offset<T>(at: usize) -> u64 {
    (at as u64).saturating_mul(size_of::<T>() as u64)
}

fn bytes<T>(memory: MemoryKind, address: u64, count: usize) -> ContigBuf {
    ContigBuf {
        ptr: std::ptr::with_exposed_provenance_mut(address as usize),
        // The values are in memory, so their size cannot overflow.
        len: count * size_of::<T>(),
        memory,
        ..ContigBuf::from_bytes(&[])
    }
}
