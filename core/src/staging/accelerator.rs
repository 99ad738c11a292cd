//! The interface of a driver of accelerator memory.

use crate::buffer::MemoryKind;

/// The driver of one kind of memory.
///
/// Any thread may call its methods.
///
/// # Safety
/// A copy that succeeds has written all of its bytes. A copy that is over, successfully or not, no
/// longer accesses any of its memory. [`owns`](Self::owns) is true only for memory of this kind.
pub unsafe trait Accelerator: Send + Sync {
    /// The kind of memory.
    fn kind(&self) -> MemoryKind;

    /// Whether this address is in memory of this kind.
    fn owns(&self, address: *const u8) -> bool;

    /// Whether the processor can load and store this address, too, because the driver migrates the
    /// memory on demand (CUDA's managed memory). Copies of it need no driver, so it counts as the
    /// host's, unless the program states its kind.
    fn is_shared(&self, address: *const u8) -> bool {
        let _ = address;
        false
    }

    /// The accelerator to which an address belongs, in the driver's numbering.
    fn device(&self, address: *const u8) -> i32 {
        let _ = address;
        0
    }

    /// Prepares the allocation that contains an address for libraries that make copies of their own
    /// with the driver's synchronous calls: from now on, such a call returns only when the copy is
    /// done, also between two accelerators. This is not undone. `false`, and nothing changes, if
    /// the driver cannot promise it, or if the processor can access the memory, too
    /// ([`is_shared`](Self::is_shared)).
    fn synchronise(&self, address: *const u8) -> bool {
        let _ = address;
        false
    }

    /// Copies to the host, and returns when the copy is done. Errors are in the driver's words.
    ///
    /// # Safety
    /// `len` bytes at `source` must be readable memory of this kind, and at `target` writable
    /// memory of the host.
    unsafe fn fetch(&self, source: *const u8, target: *mut u8, len: usize) -> Result<(), String>;

    /// Copies from the host, and returns when the copy is done. Errors are in the driver's words.
    ///
    /// # Safety
    /// `len` bytes at `target` must be writable memory of this kind, and at `source` readable
    /// memory of the host.
    unsafe fn store(&self, target: *mut u8, source: *const u8, len: usize) -> Result<(), String>;

    /// Starts a copy to the host. `None` if it is done already, as with a driver that copies only
    /// inside its calls.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    ///
    /// # Safety
    /// As for [`fetch`](Self::fetch), until the copy is over.
    unsafe fn start_fetch(
        &self,
        source: *const u8,
        target: *mut u8,
        len: usize,
    ) -> Result<Option<Box<dyn Copying>>, String> {
        // SAFETY: the caller's promise.
        unsafe { self.fetch(source, target, len) }.map(|()| None)
    }

    /// Starts a copy from the host, like [`start_fetch`](Self::start_fetch).
    ///
    /// # Errors
    /// As [`store`](Self::store).
    ///
    /// # Safety
    /// As for [`store`](Self::store), until the copy is over.
    unsafe fn start_store(
        &self,
        target: *mut u8,
        source: *const u8,
        len: usize,
    ) -> Result<Option<Box<dyn Copying>>, String> {
        // SAFETY: the caller's promise.
        unsafe { self.store(target, source, len) }.map(|()| None)
    }

    /// Prepares host memory for many copies from and to the accelerator that `near` belongs to. It
    /// locks the pages, so that the accelerator can read and write them by itself. Dropping the
    /// result undoes this. `None` if the driver does not support it.
    ///
    /// # Safety
    /// `len` bytes at `start` must stay host memory until the result has been dropped.
    unsafe fn pin(&self, near: *const u8, start: *mut u8, len: usize) -> Option<Box<dyn Send>> {
        let _ = (near, start, len);
        None
    }
}

/// A copy that is under way. The owner must finish it before the memory is freed.
///
/// After an error it is unknown whether the copy is over, so its host memory must never be used for
/// anything else.
///
/// # Safety
/// Once it says that it is over, it no longer accesses its memory.
pub unsafe trait Copying: Send {
    /// Whether the copy is over. Not called again once it has returned true or an error.
    ///
    /// # Errors
    /// In the driver's words. The copy has failed, and may still be under way.
    fn is_over(&mut self) -> Result<bool, String>;

    /// Waits until the copy is over.
    ///
    /// # Errors
    /// As [`is_over`](Self::is_over).
    fn finish(&mut self) -> Result<(), String>;
}
