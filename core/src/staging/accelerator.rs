//! What a driver of memory has to do.

use crate::buffer::MemoryKind;

/// The driver of one kind of memory.
///
/// Its methods may be called by any thread.
///
/// # Safety
/// A copy that has succeeded has written all of its bytes, and one that is over, well or not,
/// touches none of its memory any more. [`owns`](Self::owns) is true only of memory of its kind.
pub unsafe trait Accelerator: Send + Sync {
    /// Which kind of memory it is.
    fn kind(&self) -> MemoryKind;

    /// Whether this address is in such memory.
    fn owns(&self, address: *const u8) -> bool;

    /// Whether the processor loads and stores this address of such memory, too, which the driver
    /// moves for it (CUDA's managed memory). Nobody has to ask the driver for copies then: it
    /// counts as the host's, unless the program says what it is.
    fn is_shared(&self, address: *const u8) -> bool {
        let _ = address;
        false
    }

    /// The number of the device to which an address belongs, as its driver counts.
    fn device(&self, address: *const u8) -> i32 {
        let _ = address;
        0
    }

    /// Copies to the host, and returns when that is done; an error in the driver's words.
    ///
    /// # Safety
    /// `len` bytes at `source` must be readable memory of this kind, and at `target` writable
    /// memory of the host.
    unsafe fn fetch(&self, source: *const u8, target: *mut u8, len: usize) -> Result<(), String>;

    /// Copies from the host, and returns when that is done; an error in the driver's words.
    ///
    /// # Safety
    /// `len` bytes at `target` must be writable memory of this kind, and at `source` readable
    /// memory of the host.
    unsafe fn store(&self, target: *mut u8, source: *const u8, len: usize) -> Result<(), String>;

    /// Starts to copy to the host; `None` if that is done already, as it is where the driver copies
    /// only while it is called.
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

    /// Starts to copy from the host: [`start_fetch`](Self::start_fetch).
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

    /// Prepares memory of the host for many copies from and to the device to which `near` belongs:
    /// locks its pages, so that the device reads and writes them by itself. What comes back undoes
    /// that when it is dropped; `None` if the driver does nothing of the kind.
    ///
    /// # Safety
    /// `len` bytes at `start` must stay memory of the host until the result has been dropped.
    unsafe fn pin(&self, near: *const u8, start: *mut u8, len: usize) -> Option<Box<dyn Send>> {
        let _ = (near, start, len);
        None
    }
}

/// A copy that is under way. Whoever has it finishes it before its memory goes.
///
/// After an error nobody knows whether it is over: its memory of the host must never be used for
/// anything else.
///
/// # Safety
/// When it says that it is over, it touches its memory no more.
pub unsafe trait Copying: Send {
    /// Whether it is over. Is not asked again after that, or after an error.
    ///
    /// # Errors
    /// In the driver's words; the copy has failed, and may still be under way.
    fn is_over(&mut self) -> Result<bool, String>;

    /// Returns when it is over.
    ///
    /// # Errors
    /// As [`is_over`](Self::is_over).
    fn finish(&mut self) -> Result<(), String>;
}
