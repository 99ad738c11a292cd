//! A device for machines without one.

use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use portolan::device_memory::{Accelerator, MemoryKind};

/// Addresses that nobody may touch, and what the device has there.
pub(crate) struct Fake {
    start: *mut u8,
    bytes: Mutex<Vec<u8>>,
    len: usize,
}

// SAFETY: the addresses are numbers; what they stand for is behind the lock.
unsafe impl Send for Fake {}
// SAFETY: as above.
unsafe impl Sync for Fake {}

impl Fake {
    pub(crate) fn new(len: usize) -> Arc<Self> {
        let (flags, none) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_NONE);
        // SAFETY: a new mapping.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, none, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        Arc::new(Self {
            start: start.cast(),
            bytes: Mutex::new(vec![0; len]),
            len,
        })
    }

    pub(crate) fn address(&self, at: usize) -> u64 {
        (self.start.expose_provenance() + at) as u64
    }

    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        self.with(|all| all[at..at + bytes.len()].copy_from_slice(bytes));
    }

    pub(crate) fn read(&self, at: usize, len: usize) -> Vec<u8> {
        self.with(|all| all[at..at + len].to_vec())
    }

    fn with<R>(&self, body: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        body(&mut self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Where an address is, if `len` bytes from there are the device's.
    fn place(&self, address: *const u8, len: usize) -> Result<usize, String> {
        let at = (address as usize).checked_sub(self.start as usize);
        at.filter(|at| at + len <= self.len)
            .ok_or_else(|| "not of this device".to_owned())
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

impl Accelerator for Fake {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Cuda
    }

    fn owns(&self, address: *const u8) -> bool {
        self.place(address, 1).is_ok()
    }

    unsafe fn fetch(&self, source: *const u8, target: *mut u8, len: usize) -> Result<(), String> {
        let at = self.place(source, len)?;
        // SAFETY: the caller's promise of the target; the bytes are as many.
        self.with(|all| unsafe { ptr::copy_nonoverlapping(all[at..].as_ptr(), target, len) });
        Ok(())
    }

    unsafe fn store(&self, target: *mut u8, source: *const u8, len: usize) -> Result<(), String> {
        let at = self.place(target, len)?;
        // SAFETY: the caller's promise of the source; the room is as long.
        self.with(|all| unsafe { ptr::copy_nonoverlapping(source, all[at..].as_mut_ptr(), len) });
        Ok(())
    }
}
