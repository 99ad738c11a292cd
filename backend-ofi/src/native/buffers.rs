//! Memory of the device for what the provider matches: the provider is never given the program's.
//!
//! A provider cannot be made to release a message that has begun to move, and does not always
//! report when it has. A message that libfabric's TCP provider sends to a rank that dies may never
//! complete, nor may a receive into which a message of that rank was arriving. The program's
//! buffers could then never be returned. The device's own memory can wait for the provider as long
//! as the endpoint is open, whatever has become of the request.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use portolan_core::{Error, ErrorKind};

/// Length of the shortest buffer.
const LEAST: usize = 256;
/// Most bytes of unused memory that are kept. A buffer longer than a quarter of this is not kept at
/// all.
const KEPT: usize = 16 << 20;
/// How many lengths there are of kept buffers: they are powers of two.
const CLASSES: usize = (KEPT / 4 / LEAST).ilog2() as usize + 1;

/// There is no memory for a message of this many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoMemory(pub(crate) usize);

impl From<NoMemory> for Error {
    fn from(NoMemory(len): NoMemory) -> Self {
        let what = format!("there is no memory for a copy of a message of {len} bytes");
        Self::new(ErrorKind::Exhausted, what)
            .remedy("send less at once, or let Portolan match (PORTOLAN_MATCH=software)")
    }
}

/// Memory of this length for `T`s, without values.
fn room<T>(len: usize) -> Result<Vec<T>, NoMemory> {
    let mut room = Vec::new();
    let bytes = len.saturating_mul(size_of::<T>());
    room.try_reserve_exact(len).map_err(|_| NoMemory(bytes))?;
    Ok(room)
}

/// Zeros.
pub(super) fn zeros(len: usize) -> Result<Box<[u8]>, NoMemory> {
    let mut zeros = room(len)?;
    zeros.resize(len, 0);
    Ok(zeros.into())
}

/// Memory for one message.
#[derive(Debug)]
pub(super) struct Buffer(NonNull<[MaybeUninit<u8>]>);

// SAFETY: plain memory, which belongs to the owner of the buffer, or meanwhile to the provider.
unsafe impl Send for Buffer {}

impl Buffer {
    fn new(len: usize) -> Result<Self, NoMemory> {
        let mut bytes: Vec<MaybeUninit<u8>> = room(len)?;
        // SAFETY: there is room for as many, and they need no values.
        unsafe { bytes.set_len(len) };
        // A raw pointer from now on, because the provider writes there while the buffer is moved
        // about.
        Ok(Self(NonNull::from(Box::leak(bytes.into_boxed_slice()))))
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
        // SAFETY: leaked by `new`, and not used any more: code that gives a buffer to the provider
        // keeps it until the provider has finished with it, or the endpoint is closed.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Unused buffers, by length.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    free: [Vec<Buffer>; CLASSES],
    /// Their total bytes.
    kept: usize,
}

/// The length class of a buffer for `len` bytes; `None` if such buffers are not kept.
fn class(len: usize) -> Option<usize> {
    let class = len.max(LEAST).next_power_of_two().ilog2() - LEAST.ilog2();
    Some(class as usize).filter(|&class| class < CLASSES)
}

impl Buffers {
    /// Takes a buffer for at least `len` bytes.
    pub(super) fn take(&mut self, len: usize) -> Result<Buffer, NoMemory> {
        let Some(class) = class(len) else {
            return Buffer::new(len);
        };
        match self.free[class].pop() {
            Some(buffer) => {
                self.kept -= buffer.len();
                Ok(buffer)
            }
            None => Buffer::new(LEAST << class),
        }
    }

    /// Returns a buffer that the provider has finished with.
    pub(super) fn give_back(&mut self, buffer: Buffer) {
        let len = buffer.len();
        if self.kept + len <= KEPT
            && let Some(class) = class(len)
        {
            self.kept += len;
            self.free[class].push(buffer);
        }
    }

    /// Total bytes of the unused buffers.
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
            let buffer = buffers.take(len).unwrap();
            assert!(buffer.len() >= len && buffer.len() < 2 * len.max(LEAST));
            let start = buffer.start();
            buffers.give_back(buffer);
            let again = buffers.take(len).unwrap();
            assert_eq!(again.start(), start, "{len} bytes");
        }
        assert_eq!(buffers.kept(), 0);
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let mut buffers = Buffers::default();
        for len in [1 << 50, isize::MAX as usize] {
            assert_eq!(buffers.take(len).err(), Some(NoMemory(len)));
            assert_eq!(zeros(len).err(), Some(NoMemory(len)));
        }
    }

    #[test]
    fn no_more_is_kept_than_said() {
        let mut buffers = Buffers::default();
        let many: Vec<Buffer> = (0..40).map(|_| buffers.take(1 << 20).unwrap()).collect();
        for buffer in many {
            buffers.give_back(buffer);
        }
        assert_eq!(buffers.kept(), KEPT);
        let long = buffers.take(KEPT).unwrap();
        assert_eq!(long.len(), KEPT);
        buffers.give_back(long);
        assert_eq!(buffers.kept(), KEPT, "what is so long is not kept");
    }
}
