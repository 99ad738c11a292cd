//! Memory of the device's own for what the provider matches: it never gets the program's.
//!
//! A provider cannot be told to let go of a message that has begun to move, and does not always say
//! when it has: what libfabric's TCP provider sends to a rank that dies may never complete, nor a
//! receive into which a message of that rank was arriving. The program's buffers could then not be
//! given back. Memory of the device's own can wait for the provider for as long as the endpoint is
//! open, whatever has become of the request.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Shortest memory that is made.
const LEAST: usize = 256;
/// Bytes of unused memory that are kept. What is longer than a quarter of it is not kept at all.
const KEPT: usize = 16 << 20;
/// Lengths are powers of two; so many of them are kept.
const CLASSES: usize = (KEPT / 4 / LEAST).ilog2() as usize + 1;

/// Memory for one message.
#[derive(Debug)]
pub(super) struct Buffer(NonNull<[MaybeUninit<u8>]>);

// SAFETY: plain memory, which belongs to whoever has the buffer, or to the provider meanwhile.
unsafe impl Send for Buffer {}

impl Buffer {
    fn new(len: usize) -> Self {
        // A raw pointer from now on: the provider writes there while the buffer is moved about.
        Self(NonNull::from(Box::leak(Box::new_uninit_slice(len))))
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    /// The first byte.
    pub(super) fn start(&self) -> *mut u8 {
        self.0.as_ptr().cast()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: leaked by `new`, and of no use to anybody any more: whoever has given it to the
        // provider keeps it until the provider has said that it is done, or the endpoint is closed.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Memory that is not in use, by length.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    free: [Vec<Buffer>; CLASSES],
    /// Bytes of it.
    kept: usize,
}

/// Of which length memory for `len` bytes is, as an index; `None` if such memory is not kept.
fn class(len: usize) -> Option<usize> {
    let class = len.max(LEAST).next_power_of_two().ilog2() - LEAST.ilog2();
    Some(class as usize).filter(|&class| class < CLASSES)
}

impl Buffers {
    /// Memory for `len` bytes, or a little more.
    pub(super) fn take(&mut self, len: usize) -> Buffer {
        let Some(class) = class(len) else {
            return Buffer::new(len);
        };
        match self.free[class].pop() {
            Some(buffer) => {
                self.kept -= buffer.len();
                buffer
            }
            None => Buffer::new(LEAST << class),
        }
    }

    /// Memory that the provider has no more use for.
    pub(super) fn give_back(&mut self, buffer: Buffer) {
        let len = buffer.len();
        if self.kept + len <= KEPT
            && let Some(class) = class(len)
        {
            self.kept += len;
            self.free[class].push(buffer);
        }
    }

    /// Bytes that are kept.
    pub(super) fn kept(&self) -> usize {
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_has_room() {
        let mut buffers = Buffers::default();
        for len in [1, 255, 256, 257, 4095, 4096, KEPT / 4] {
            let buffer = buffers.take(len);
            assert!(buffer.len() >= len && buffer.len() < 2 * len.max(LEAST));
            let start = buffer.start();
            buffers.give_back(buffer);
            let again = buffers.take(len);
            assert_eq!(again.start(), start, "{len} bytes");
        }
        assert_eq!(buffers.kept(), 0);
    }

    #[test]
    fn no_more_is_kept_than_said() {
        let mut buffers = Buffers::default();
        let many: Vec<Buffer> = (0..40).map(|_| buffers.take(1 << 20)).collect();
        for buffer in many {
            buffers.give_back(buffer);
        }
        assert_eq!(buffers.kept(), KEPT);
        let long = buffers.take(KEPT);
        assert_eq!(long.len(), KEPT);
        buffers.give_back(long);
        assert_eq!(buffers.kept(), KEPT, "what is so long is not kept");
    }
}
