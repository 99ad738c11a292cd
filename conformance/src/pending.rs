//! Nonblocking operations that own their memory.

use portolan_core::Request;

/// A nonblocking operation under way, with the memory that the device uses for it.
///
/// If the operation is not completed, the memory is leaked, because the device may still use it. So
/// cases cannot cause undefined behaviour however they fail.
#[derive(Debug)]
#[must_use = "finish it, or its memory is leaked"]
pub struct Pending {
    /// The request.
    pub request: Request,
    memory: *mut [u8],
}

impl Pending {
    /// Gives memory to the device to use.
    pub(crate) fn lend(memory: Vec<u8>) -> *mut [u8] {
        Box::into_raw(memory.into_boxed_slice())
    }

    /// An operation on memory from [`lend`](Self::lend).
    pub(crate) fn new(request: Request, memory: *mut [u8]) -> Self {
        Self { request, memory }
    }

    /// Takes memory from [`lend`](Self::lend) back.
    ///
    /// # Safety
    /// The device must not use the memory any more, and it is taken back only once.
    pub(crate) unsafe fn take_back(memory: *mut [u8]) -> Vec<u8> {
        // SAFETY: `lend` made the pointer from a box; the caller says that it is unused.
        unsafe { Box::from_raw(memory) }.into_vec()
    }

    /// The memory of a completed operation.
    ///
    /// # Safety
    /// The request must be complete, or stale after it was completed.
    pub(crate) unsafe fn over(self) -> Vec<u8> {
        // SAFETY: the operation is over, so the device is done with the memory; `self` is consumed.
        unsafe { Self::take_back(self.memory) }
    }

    /// Changes the memory of a persistent operation while it is inactive.
    ///
    /// # Safety
    /// The request must be inactive.
    pub(crate) unsafe fn refill(&mut self, bytes: &[u8]) {
        // SAFETY: an inactive request does not use its memory.
        unsafe { &mut *self.memory }.copy_from_slice(bytes);
    }

    /// Reads the memory of a persistent operation while it is inactive.
    ///
    /// # Safety
    /// The request must be inactive.
    pub(crate) unsafe fn read(&self) -> &[u8] {
        // SAFETY: an inactive request does not use its memory.
        unsafe { &*self.memory }
    }
}
