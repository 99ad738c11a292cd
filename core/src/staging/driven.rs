//! Data that only its driver can access.

use std::sync::{Arc, OnceLock};

use portolan_datatype::{Layout, MsgRep};

use super::accelerator::Accelerator;
use super::unsupported;
use crate::buffer::MemoryKind;
use crate::error::{Error, ErrorKind, Result};

/// `count` items of a layout without gaps, in memory that only its driver can access.
#[derive(Clone)]
pub struct DrivenBuf {
    /// The driver that copies from and to the memory.
    pub driver: Arc<dyn Accelerator>,
    /// Address of the first byte.
    pub ptr: *mut u8,
    /// Number of items.
    pub count: usize,
    /// The layout of one item.
    pub layout: Layout,
}

// SAFETY: it is only a description. The unsafe methods of `Device` that take it make their callers
// promise that any thread that makes progress may use the memory.
unsafe impl Send for DrivenBuf {}

impl std::fmt::Debug for DrivenBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DrivenBuf")
            .field("kind", &self.driver.kind())
            .field("ptr", &self.ptr)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl DrivenBuf {
    /// Checks that the driver owns the first and the last byte. A buffer of no bytes passes.
    ///
    /// # Errors
    /// [`UnsupportedMemory`](ErrorKind::UnsupportedMemory) if it does not.
    pub fn check(&self) -> Result<()> {
        let len = Driven::new(self.clone())?.bytes;
        let ends = [self.ptr, self.ptr.wrapping_add(len.saturating_sub(1))];
        if len == 0 || ends.iter().all(|&end| self.driver.owns(end)) {
            return Ok(());
        }
        let what = format!(
            "{len} bytes at {:p} are not {:?} memory, its driver says",
            self.ptr,
            self.driver.kind()
        );
        Err(Error::new(ErrorKind::UnsupportedMemory, what)
            .remedy("look whether the pointer is the device's, and how long its buffer is"))
    }
}

/// The buffer of an operation, and the first error of its driver.
#[derive(Clone, Debug)]
pub struct Driven {
    pub(crate) buf: DrivenBuf,
    /// Bytes of all items, both in memory and in the packed stream.
    pub(crate) bytes: usize,
    fault: Arc<OnceLock<String>>,
}

impl Driven {
    /// # Errors
    /// [`UnsupportedMemory`](ErrorKind::UnsupportedMemory) if the layout has gaps,
    /// [`InvalidCount`](ErrorKind::InvalidCount) if there are too many bytes.
    pub(crate) fn new(buf: DrivenBuf) -> Result<Self> {
        if !buf.layout.is_contiguous() {
            return Err(unsupported(buf.driver.kind(), "a layout with gaps in it"));
        }
        let bytes = buf.layout.packed_size(buf.count, MsgRep::Native)?;
        Ok(Self {
            buf,
            bytes,
            fault: Arc::default(),
        })
    }

    /// The same memory, without an error.
    pub(crate) fn afresh(&self) -> Self {
        Self {
            fault: Arc::default(),
            ..self.clone()
        }
    }

    pub(crate) fn driver(&self) -> &dyn Accelerator {
        &*self.buf.driver
    }

    pub(crate) fn kind(&self) -> MemoryKind {
        self.buf.driver.kind()
    }

    /// Address of a byte.
    pub(crate) fn at(&self, position: usize) -> *mut u8 {
        self.buf.ptr.wrapping_add(position)
    }

    /// The driver's error, if it has failed.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.get().map(String::as_str)
    }

    /// Records an error of the driver. Only the first one is kept.
    pub(crate) fn note<R>(&self, result: std::result::Result<R, String>) -> Option<R> {
        result
            .map_err(|why| {
                crate::log!(ERROR, why, "a copy from or to a device has failed");
                let _ = self.fault.set(why);
            })
            .ok()
    }

    /// Copies bytes to the host; `None` if the driver fails, which is recorded.
    ///
    /// # Safety
    /// As for [`Accelerator::fetch`].
    pub(crate) unsafe fn fetch(&self, position: usize, target: *mut u8, len: usize) -> Option<()> {
        debug_assert!(position + len <= self.bytes);
        if len == 0 {
            return Some(());
        }
        // SAFETY: the caller's promise.
        self.note(unsafe { self.driver().fetch(self.at(position), target, len) })
    }

    /// Copies part of the packed stream to the host. If the driver fails, the error is recorded and
    /// the target is filled with zeros.
    ///
    /// # Safety
    /// As for `Data::read`, except that the processor need not be able to access the source.
    pub(crate) unsafe fn read(&self, position: usize, target: *mut u8, len: usize, rep: MsgRep) {
        debug_assert!(position + len <= self.bytes);
        if len == 0 {
            return;
        }
        // SAFETY: the caller vouches for the target, and for the range in the driver's memory.
        unsafe {
            let fetched = match rep {
                MsgRep::Native => self.driver().fetch(self.at(position), target, len),
                _ => self
                    .around(position, len)
                    .and_then(|(first, count, mut items)| {
                        let layout = &self.buf.layout;
                        self.driver()
                            .fetch(self.at(first), items.as_mut_ptr(), items.len())?;
                        layout.pack_range(
                            items.as_ptr(),
                            count,
                            position - first,
                            target,
                            len,
                            rep,
                        );
                        Ok(())
                    }),
            };
            if self.note(fetched).is_none() {
                target.write_bytes(0, len);
            }
        }
    }

    /// Copies part of a packed stream from the host. If the driver fails, the error is recorded.
    ///
    /// # Safety
    /// As for `Data::write`, except that the processor need not be able to access the target.
    pub(crate) unsafe fn write(&self, position: usize, source: *const u8, len: usize, rep: MsgRep) {
        debug_assert!(position + len <= self.bytes);
        if len == 0 {
            return;
        }
        // SAFETY: the caller vouches for the source, and for the range in the driver's memory.
        let stored = unsafe {
            match rep {
                MsgRep::Native => self.driver().store(self.at(position), source, len),
                _ => self
                    .around(position, len)
                    .and_then(|(first, count, mut items)| {
                        let layout = &self.buf.layout;
                        // If an item arrives in two parts, this fetches the part that is there
                        // already.
                        self.driver()
                            .fetch(self.at(first), items.as_mut_ptr(), items.len())?;
                        layout.unpack_range(
                            items.as_mut_ptr(),
                            count,
                            position - first,
                            source,
                            len,
                            rep,
                        );
                        self.driver()
                            .store(self.at(first), items.as_ptr(), items.len())
                    }),
            }
        };
        let _ = self.note(stored);
    }

    /// Host memory for the items that contain a range, with the position of the first and their
    /// number.
    fn around(
        &self,
        position: usize,
        len: usize,
    ) -> std::result::Result<(usize, usize, Vec<u8>), String> {
        let size = self.buf.layout.size().max(1);
        let (first, end) = (position / size, (position + len).div_ceil(size));
        let mut items = Vec::new();
        let bytes = (end - first) * size;
        items
            .try_reserve_exact(bytes)
            .map_err(|error| error.to_string())?;
        items.resize(bytes, 0);
        Ok((first * size, end - first, items))
    }
}
