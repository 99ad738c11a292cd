//! Data that only its driver reaches.

use std::sync::{Arc, OnceLock};

use portolan_datatype::{Layout, MsgRep};

use super::accelerator::Accelerator;
use super::unsupported;
use crate::buffer::MemoryKind;
use crate::error::{Error, ErrorKind, Result};

/// `count` items of a layout without gaps in memory that only its driver reaches.
#[derive(Clone)]
pub struct DrivenBuf {
    /// Who copies from and to it.
    pub driver: Arc<dyn Accelerator>,
    /// Address of the first byte.
    pub ptr: *mut u8,
    /// Number of items.
    pub count: usize,
    /// What one item is.
    pub layout: Layout,
}

// SAFETY: a description; the unsafe entries of `Device` that take it make their callers promise
// that the memory may be used by whatever thread makes progress.
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
    /// Whether the driver says that the first byte and the last one are its own. Of none it need
    /// not.
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

/// The buffer of an operation, and what its driver has said against it.
#[derive(Clone, Debug)]
pub struct Driven {
    pub(crate) buf: DrivenBuf,
    /// Bytes of all items: in memory, and of the packed stream.
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

    /// The same memory, with nothing said against it.
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

    /// What the driver has said when it failed.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.get().map(String::as_str)
    }

    /// Notes an error of the driver. The first one counts.
    pub(crate) fn note<R>(&self, result: std::result::Result<R, String>) -> Option<R> {
        result
            .map_err(|why| {
                crate::log!(ERROR, why, "a copy from or to a device has failed");
                let _ = self.fault.set(why);
            })
            .ok()
    }

    /// Copies bytes to the host; `None` if the driver fails, which is noted.
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

    /// Copies a part of the packed stream to the host. If the driver fails that is noted, and zeros
    /// are there.
    ///
    /// # Safety
    /// As for `Data::read`, but for what the processor can do.
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

    /// Copies a part of a packed stream from the host. If the driver fails that is noted.
    ///
    /// # Safety
    /// As for `Data::write`, but for what the processor can do.
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
                        // Of items that come in two pieces the other part is there.
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

    /// Memory of the host for the items in which a range lies: where they begin, and how many they
    /// are.
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
