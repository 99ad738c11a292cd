//! An accelerator for machines without one. Its memory faults when the processor accesses it.

use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::accelerator::{Accelerator, Copying};
use crate::buffer::MemoryKind;

/// An accelerator for tests: addresses that must not be accessed, and the bytes that are there as
/// far as the accelerator is concerned.
///
/// ```
/// use portolan_core::staging::{Accelerator, Fake, Staging};
/// use portolan_core::MemoryKind;
///
/// let fake = Fake::new(4096);
/// let staging = Staging::new(vec![fake.clone()]);
/// assert_eq!(staging.kind_of(fake.at(17)), MemoryKind::Cuda);
/// fake.write(16, b"ahoy");
/// let mut text = [0; 4];
/// // SAFETY: four bytes of the device, four of the host.
/// unsafe { fake.fetch(fake.at(16), text.as_mut_ptr(), 4) }.unwrap();
/// assert_eq!(&text, b"ahoy");
/// ```
pub struct Fake {
    inner: Arc<Inner>,
}

struct Inner {
    start: *mut u8,
    len: usize,
    /// The bytes; `None` if they are really at the addresses.
    bytes: Mutex<Option<Vec<u8>>>,
    /// Number of times that a copy must be asked about before it is made.
    delay: AtomicUsize,
    /// Number of copies under way.
    moving: AtomicUsize,
    most_moving: AtomicUsize,
    copies: AtomicUsize,
    pinned: AtomicUsize,
    /// Number of copies that still succeed before all fail.
    good: AtomicUsize,
}

// SAFETY: the addresses are only numbers; the bytes are behind the lock.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fake({} bytes)", self.inner.len)
    }
}

impl Fake {
    /// An accelerator whose memory is zeroed.
    ///
    /// # Panics
    /// If the address range cannot be mapped.
    #[must_use]
    pub fn new(len: usize) -> Arc<Self> {
        Self::made(len, libc::PROT_NONE)
    }

    /// An accelerator, with zeroed memory that a network can read and write by itself. In truth it
    /// is host memory, and that is its [`kind`](Accelerator::kind).
    ///
    /// ```
    /// use portolan_core::MemoryKind;
    /// use portolan_core::staging::{Accelerator, Fake};
    ///
    /// assert_eq!(Fake::reachable(8).kind(), MemoryKind::Host);
    /// ```
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[must_use]
    pub fn reachable(len: usize) -> Arc<Self> {
        Self::made(len, libc::PROT_READ | libc::PROT_WRITE)
    }

    fn made(len: usize, protection: i32) -> Arc<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let start = unsafe { libc::mmap(ptr::null_mut(), len.max(1), protection, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED, "addresses for a device");
        let inner = Inner {
            start: start.cast(),
            len,
            bytes: Mutex::new((protection == libc::PROT_NONE).then(|| vec![0; len])),
            delay: AtomicUsize::new(0),
            moving: AtomicUsize::new(0),
            most_moving: AtomicUsize::new(0),
            copies: AtomicUsize::new(0),
            pinned: AtomicUsize::new(0),
            good: AtomicUsize::new(usize::MAX),
        };
        Arc::new(Self {
            inner: Arc::new(inner),
        })
    }

    /// The address of a byte.
    #[must_use]
    pub fn at(&self, offset: usize) -> *mut u8 {
        self.inner.start.wrapping_add(offset)
    }

    /// The address of a byte, as a number.
    #[must_use]
    pub fn address(&self, offset: usize) -> u64 {
        (self.inner.start.expose_provenance() + offset) as u64
    }

    /// Writes bytes at an offset.
    ///
    /// # Panics
    /// If they go beyond the end of the memory.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        self.inner
            .with(|all| all[at..at + bytes.len()].copy_from_slice(bytes));
    }

    /// Reads bytes at an offset.
    ///
    /// # Panics
    /// If they go beyond the end of the memory.
    #[must_use]
    pub fn read(&self, at: usize, len: usize) -> Vec<u8> {
        self.inner.with(|all| all[at..at + len].to_vec())
    }

    /// Delays copies that are started from now on: each is made once it has been asked about
    /// `questions` times, or when it is waited for. 0 means immediately.
    pub fn delay_copies(&self, questions: usize) {
        self.inner.delay.store(questions, Ordering::Relaxed);
    }

    /// Makes all copies fail after `copies` more, which succeed.
    pub fn fail_after(&self, copies: usize) {
        self.inner.good.store(copies, Ordering::Relaxed);
    }

    /// Number of copies that were made or that failed.
    #[must_use]
    pub fn copies(&self) -> usize {
        self.inner.copies.load(Ordering::Relaxed)
    }

    /// Number of copies that have been started and are not over.
    #[must_use]
    pub fn moving(&self) -> usize {
        self.inner.moving.load(Ordering::Relaxed)
    }

    /// The highest number of copies ever under way at once.
    #[must_use]
    pub fn most_moving(&self) -> usize {
        self.inner.most_moving.load(Ordering::Relaxed)
    }

    /// Number of ranges of host memory that are prepared for copies.
    #[must_use]
    pub fn pinned(&self) -> usize {
        self.inner.pinned.load(Ordering::Relaxed)
    }
}

impl Inner {
    fn with<R>(&self, body: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *bytes {
            Some(bytes) => body(bytes),
            // SAFETY: the mapping of `made`, which is readable and writable. A test does not access
            // it while a network uses it.
            None => body(unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }),
        }
    }

    fn is_reachable(&self) -> bool {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        bytes.is_none()
    }

    /// The offset of an address, if the `len` bytes from there on belong to this accelerator.
    fn place(&self, address: *const u8, len: usize) -> Result<usize, String> {
        let at = (address as usize).checked_sub(self.start as usize);
        at.filter(|at| at.checked_add(len).is_some_and(|end| end <= self.len))
            .ok_or_else(|| "not of this device".to_owned())
    }

    /// # Safety
    /// `len` bytes at `host` must be readable, and writable if the copy is to the host.
    unsafe fn copy(
        &self,
        device: *const u8,
        host: *mut u8,
        len: usize,
        to_host: bool,
    ) -> Result<(), String> {
        let at = self.place(device, len)?;
        self.copies.fetch_add(1, Ordering::Relaxed);
        let good = self.good.load(Ordering::Relaxed);
        if good == 0 {
            return Err("the device has been lost".to_owned());
        }
        if good < usize::MAX {
            self.good.store(good - 1, Ordering::Relaxed);
        }
        self.with(|all| {
            let there = &mut all[at..at + len];
            // SAFETY: the caller's promise; the accelerator has `len` bytes there.
            unsafe {
                if to_host {
                    ptr::copy_nonoverlapping(there.as_ptr(), host, len);
                } else {
                    ptr::copy_nonoverlapping(host, there.as_mut_ptr(), len);
                }
            }
        });
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the mapping of `made`.
        unsafe { libc::munmap(self.start.cast(), self.len.max(1)) };
    }
}

/// A copy that is made once it has been asked about often enough.
struct Slow {
    inner: Arc<Inner>,
    device: *const u8,
    host: *mut u8,
    len: usize,
    to_host: bool,
    /// Questions left before the copy is made; `None` if it has been made.
    left: Option<usize>,
}

// SAFETY: the caller that started the copy leaves both addresses to it.
unsafe impl Send for Slow {}

// SAFETY: the copy is made in the call that reports that it is over.
unsafe impl Copying for Slow {
    fn is_over(&mut self) -> Result<bool, String> {
        match self.left {
            Some(left) if left > 0 => {
                self.left = Some(left - 1);
                Ok(false)
            }
            _ => self.finish().map(|()| true),
        }
    }

    fn finish(&mut self) -> Result<(), String> {
        if self.left.take().is_none() {
            return Ok(());
        }
        self.inner.moving.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the caller that started the copy leaves the memory to it until it is over.
        unsafe {
            self.inner
                .copy(self.device, self.host, self.len, self.to_host)
        }
    }
}

impl Fake {
    /// # Safety
    /// As for `Accelerator::start_fetch`, or `start_store`.
    unsafe fn start(
        &self,
        device: *const u8,
        host: *mut u8,
        len: usize,
        to_host: bool,
    ) -> Result<Option<Box<dyn Copying>>, String> {
        let inner = &self.inner;
        inner.place(device, len)?;
        let delay = inner.delay.load(Ordering::Relaxed);
        if delay == 0 {
            // SAFETY: the caller's promise.
            return unsafe { inner.copy(device, host, len, to_host) }.map(|()| None);
        }
        let moving = inner.moving.fetch_add(1, Ordering::Relaxed) + 1;
        inner.most_moving.fetch_max(moving, Ordering::Relaxed);
        Ok(Some(Box::new(Slow {
            inner: Arc::clone(inner),
            device,
            host,
            len,
            to_host,
            left: Some(delay),
        })))
    }
}

/// A range of host memory that is prepared; it is merely counted.
struct Pin(Arc<Inner>);

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.pinned.fetch_sub(1, Ordering::Relaxed);
    }
}

// SAFETY: its memory is the host's, and it knows its own addresses. Copies are over when they
// return, or when `Slow` says so.
unsafe impl Accelerator for Fake {
    fn kind(&self) -> MemoryKind {
        match self.inner.is_reachable() {
            true => MemoryKind::Host,
            false => MemoryKind::Cuda,
        }
    }

    fn owns(&self, address: *const u8) -> bool {
        self.inner.place(address, 1).is_ok()
    }

    unsafe fn fetch(&self, source: *const u8, target: *mut u8, len: usize) -> Result<(), String> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.copy(source, target, len, true) }
    }

    unsafe fn store(&self, target: *mut u8, source: *const u8, len: usize) -> Result<(), String> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.copy(target, source.cast_mut(), len, false) }
    }

    unsafe fn start_fetch(
        &self,
        source: *const u8,
        target: *mut u8,
        len: usize,
    ) -> Result<Option<Box<dyn Copying>>, String> {
        // SAFETY: the caller's promise.
        unsafe { self.start(source, target, len, true) }
    }

    unsafe fn start_store(
        &self,
        target: *mut u8,
        source: *const u8,
        len: usize,
    ) -> Result<Option<Box<dyn Copying>>, String> {
        // SAFETY: the caller's promise.
        unsafe { self.start(target, source.cast_mut(), len, false) }
    }

    unsafe fn pin(&self, _: *const u8, _: *mut u8, _: usize) -> Option<Box<dyn Send>> {
        self.inner.pinned.fetch_add(1, Ordering::Relaxed);
        Some(Box::new(Pin(Arc::clone(&self.inner))))
    }
}
