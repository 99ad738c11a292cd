//! Memory of a device that peers write to and read from by themselves.

use portolan_core::comm::NoUnwind;
use portolan_core::device::{Region, RegionKey};
use portolan_core::level::Level;
use portolan_core::{ContigBuf, Device, ProcId, Result};
use portolan_datatype::Datatype;

use super::{MemoryKind, Slice, SliceMut};
use crate::comm::Comm;
use crate::comm::raw::{all_bytes, any_bits};

/// What lets ranks reach memory that another one shares. It is worth as much as its bytes: they may
/// be sent as a message. One of memory that is not shared any more is an error where it is used,
/// and touches nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    region: RegionKey,
    owner: ProcId,
}

impl Key {
    /// Bytes of a key.
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

    /// The key of which [`to_bytes`](Self::to_bytes) gave these bytes.
    ///
    /// # Safety
    /// They must be what [`to_bytes`](Self::to_bytes) has given of a key that a rank of this job
    /// was given by [`share_device`](Comm::share_device): made-up ones may name memory that was
    /// never shared.
    #[must_use]
    pub unsafe fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        Self {
            region: RegionKey(std::array::from_fn(|n| bytes[n])),
            owner: ProcId::new(u32::from_le_bytes(std::array::from_fn(|n| bytes[56 + n]))),
        }
    }
}

/// Ends a registration, whatever happens.
struct Registration<'c, L: Level, D: Device> {
    comm: &'c Comm<L, D>,
    region: Option<Region>,
}

impl<L: Level, D: Device> Registration<'_, L, D> {
    fn end(&mut self) -> Result<()> {
        match self.region.take() {
            // SAFETY: memory that was registered, to which no pointer was given.
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
    /// Lets other ranks write to and read from memory of a device while `body` runs:
    /// [`put_device`](Self::put_device), [`get_device`](Self::get_device). Whoever is given the key
    /// may; what several do at once to the same values comes in any order, and mixed. `body`
    /// returns when everybody has made its last access, which is for the program to know, by a
    /// barrier, say: later ones are errors on their side. They are served whenever this rank is in
    /// a call.
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
        // SAFETY: whoever made the slice promised the values for its life, in which the
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

    /// Writes values of a device's memory to memory that a rank shares, from its value number `at`
    /// on, and returns when they are there. Long ones go in pieces where they go through the host,
    /// one of which is copied while another is under way.
    ///
    /// # Errors
    /// [`RemoteAccess`](crate::ErrorKind::RemoteAccess) if they do not fit, or the memory is not
    /// shared any more; [`UnsupportedMemory`](crate::ErrorKind::UnsupportedMemory) as
    /// [`send_device`](Self::send_device). A part of the values may be there.
    pub fn put_device<T: Datatype>(&self, data: &Slice<'_, T>, key: &Key, at: usize) -> Result<()> {
        const {
            all_bytes::<T>();
        };
        let memory = bytes::<T>(data.kind, data.address, data.len);
        let guard = NoUnwind::new("a put from a device");
        let (owner, region, offset) = (key.owner, &key.region, offset::<T>(at));
        // SAFETY: whoever made the slice promised the values for its life, and nothing is under way
        // when this returns.
        let put = unsafe {
            self.staging()
                .put_all(self.hosted(), owner, region, offset, &memory)
        };
        guard.done();
        self.raise(put)
    }

    /// Reads values that a rank shares, from its value number `at` on, into memory of a device:
    /// [`put_device`](Self::put_device).
    ///
    /// # Errors
    /// As there.
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

/// Bytes in front of a value; more than any region has if that overflows.
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
