//! Puts and gets between accelerator memory and a region of another rank, through the layer below
//! the facade.

use std::sync::Arc;

use portolan::device_memory::{Accelerator, Key, MemoryKind, Slice, SliceMut};
use portolan::{Comm, Result};
use portolan_core::device::RegionKey;
use portolan_core::staging::Staging;
use portolan_core::{ContigBuf, Device, ProcId};

/// Rank 0 of two puts `len` bytes of CUDA memory at an address into rank 1's region, and gets them
/// back to the second half, `len` bytes further on.
///
/// # Safety
/// `2 * len` bytes of the driver's memory must be at `address`, and no other code may use them.
pub(crate) unsafe fn there_and_back(
    comm: &Comm,
    driver: Arc<dyn Accelerator>,
    address: u64,
    len: usize,
) -> Result<()> {
    // SAFETY: only requests that are made here are completed.
    let device = unsafe { comm.communicator() }.device();
    if comm.rank() == 1 {
        let region = device.alloc_region(len)?;
        comm.send(&region.key.0, 0, 8)?;
        let _ = comm.recv_one::<u8>(0, 9)?;
        // SAFETY: rank 0 has said that it has made its last access.
        return unsafe { device.free_region(region) };
    }
    let staging = Staging::new(vec![driver]);
    let mut key = [0_u8; 56];
    comm.recv_into(&mut key, 1, 8)?;
    let (key, to) = (RegionKey(key), ProcId::new(1));
    let half = |at: usize| ContigBuf {
        ptr: std::ptr::with_exposed_provenance_mut(address as usize + at),
        len,
        memory: MemoryKind::Cuda,
        ..ContigBuf::from_bytes(&[])
    };
    // SAFETY: the caller's promise; each request is over before the next begins.
    unsafe {
        device.wait(staging.put(device, to, &key, 0, &half(0))?)?;
        device.flush(to)?;
        device.wait(staging.get(device, to, &key, 0, &half(len))?)?;
    }
    comm.send_one(&1_u8, 1, 9)
}

/// Every rank shares `len` bytes at `shared`. Each writes its bytes at `mine` to its right
/// neighbour, and reads them from there to `back`.
///
/// # Safety
/// As many bytes of the kind must be at each address, and no other code may use them.
pub(crate) unsafe fn to_the_right(
    comm: &Comm,
    kind: MemoryKind,
    [mine, shared, back]: [u64; 3],
    len: usize,
) -> Result<()> {
    let (me, n) = (comm.rank(), comm.size());
    let (left, right) = ((me + n - 1) % n, (me + 1) % n);
    let in_turn = |tag: u32| {
        let mut token = [0_u8];
        comm.sendrecv(&[1_u8], right, tag, &mut token, left, tag)
            .map(drop)
    };
    // SAFETY: the caller's promise.
    let (data, shared, mut back) = unsafe {
        (
            Slice::<u8>::new(kind, mine, len),
            SliceMut::<u8>::new(kind, shared, len),
            SliceMut::<u8>::new(kind, back, len),
        )
    };
    comm.share_device(shared, |key| {
        let mut theirs = [0; Key::LEN];
        comm.sendrecv(&key.to_bytes(), left, 1, &mut theirs, right, 1)?;
        // SAFETY: the other rank has sent a key's bytes.
        let theirs = unsafe { Key::from_bytes(&theirs) };
        comm.put_device(&data, &theirs, 0)?;
        in_turn(2)?;
        comm.get_device(&mut back, &theirs, 0)?;
        in_turn(3)?;
        if len > 0 {
            let beyond = comm.put_device(&data, &theirs, 1).unwrap_err();
            assert_eq!(beyond.kind(), portolan::ErrorKind::RemoteAccess, "{beyond}");
        }
        Ok(())
    })
}
