//! Memory that peers load and store directly.

use std::alloc::Layout;
use std::ptr::NonNull;

/// Page-aligned, zeroed memory.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) ptr: NonNull<u8>,
    /// Bytes allocated; at least one page.
    pub(super) len: usize,
    /// Bytes that were requested.
    pub(super) asked: usize,
}

/// Alignment of a [`Block`] in bytes.
pub(super) const PAGE: usize = 4096;

impl Block {
    /// At least `asked` bytes; `None` if there is no memory for them.
    pub(super) fn new(asked: usize) -> Option<Self> {
        let len = asked.max(1).checked_next_multiple_of(PAGE)?;
        let layout = Layout::from_size_align(len, PAGE).ok()?;
        // SAFETY: `len` is not 0.
        let ptr = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        Some(Self { ptr, len, asked })
    }

    /// Whether these bytes are in it.
    pub(super) fn holds(&self, data: *const u8, len: usize) -> bool {
        let offset = data.addr().wrapping_sub(self.ptr.addr().get());
        offset < self.asked && len <= self.asked - offset
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let layout = Layout::from_size_align(self.len, PAGE).expect("the layout it was made with");
        // SAFETY: allocated by `new` with this layout, and freed once, here.
        unsafe { std::alloc::dealloc(self.ptr.as_ptr(), layout) };
    }
}

// SAFETY: a block owns its memory, which no thread is tied to.
unsafe impl Send for Block {}
