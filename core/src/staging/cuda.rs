//! CUDA's driver, opened at run time, so that a program runs with and without it.

mod driver;

use std::sync::Arc;

use self::driver::{
    Address, Code, Context, Driver, Event, NOT_READY, PORTABLE, Stream, WITHOUT_TIMES,
};
use super::locked::{Blocks, is_long};
use super::{Accelerator, Copying};
use crate::buffer::MemoryKind;

/// CUDA's driver (`libcuda.so.1`), as far as it is needed here.
///
/// The library is never closed, because it has threads of its own. In each context, copies go to a
/// stream that belongs to this driver, and are ordered after the work in the context's default
/// stream. Graphs that the program captures meanwhile are not affected. Memory that belongs to no
/// context (`cuMemAllocAsync`) is copied in the primary context of its accelerator, which is
/// retained until the driver is dropped. Host memory is locked in the context of the address with
/// which it is first used, for use by all contexts. A program that destroys contexts must do so
/// after its worlds have ended, and after it has dropped drivers of its own.
pub struct Cuda {
    driver: Arc<Driver>,
    /// For blocking copies.
    blocks: Blocks,
}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cuda")
    }
}

impl Cuda {
    /// Opens the driver; `None` if there is no driver or no accelerator.
    #[must_use]
    pub fn open() -> Option<Self> {
        let driver = Arc::new(Driver::open()?);
        let blocks = Blocks::default();
        Some(Self { driver, blocks })
    }

    /// Starts a copy in the context to which an address belongs.
    fn start(
        &self,
        address: *const u8,
        copy: impl FnOnce(Stream) -> Code,
    ) -> Result<Option<Box<dyn Copying>>, String> {
        let driver = &self.driver;
        let context = driver.context_of(address)?;
        driver.within(context, || {
            let stream = driver.stream_of(context)?;
            let mut event: Event = std::ptr::null_mut();
            // SAFETY: there is room for an event, and a context is current.
            driver.check(unsafe { (driver.create_event)(&raw mut event, WITHOUT_TIMES) })?;
            let under_way = UnderWay {
                driver: Arc::clone(driver),
                context,
                event,
            };
            let started = driver.check(copy(stream));
            // SAFETY: event and stream belong to this context.
            let record = || driver.check(unsafe { (driver.record_event)(event, stream) });
            let Err(why) = started.and_then(|()| record()) else {
                return Ok(Some(Box::new(under_way) as Box<dyn Copying>));
            };
            // The error may come from earlier work, and there is no event that tells when this copy
            // is over, so this waits for the whole stream. SAFETY: a stream of this context.
            match driver.check(unsafe { (driver.synchronize_stream)(stream) }) {
                Ok(()) => Err(why),
                Err(_) => Ok(Some(Box::new(Unknown(why)) as Box<dyn Copying>)),
            }
        })
    }
}

/// A copy for which the driver cannot tell whether it is over, or ever began.
struct Unknown(String);

// SAFETY: it never says that it is over.
unsafe impl Copying for Unknown {
    fn is_over(&mut self) -> Result<bool, String> {
        Err(self.0.clone())
    }

    fn finish(&mut self) -> Result<(), String> {
        Err(self.0.clone())
    }
}

/// A copy that was started, and the event that follows it.
struct UnderWay {
    driver: Arc<Driver>,
    context: Context,
    event: Event,
}

// SAFETY: contexts and events are tied to no thread.
unsafe impl Send for UnderWay {}

// SAFETY: the driver reports when the copy is over.
unsafe impl Copying for UnderWay {
    fn is_over(&mut self) -> Result<bool, String> {
        let Self { driver, event, .. } = self;
        driver.within(self.context, || {
            // SAFETY: an event of this context.
            match unsafe { (driver.query_event)(*event) } {
                NOT_READY => Ok(false),
                code => driver.check(code).map(|()| true),
            }
        })
    }

    fn finish(&mut self) -> Result<(), String> {
        let Self { driver, event, .. } = self;
        // SAFETY: an event of this context.
        let wait = || driver.check(unsafe { (driver.synchronize_event)(*event) });
        driver.within(self.context, wait)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let Self { driver, event, .. } = self;
        // SAFETY: an event of this context, which is no longer used.
        let destroy = || driver.check(unsafe { (driver.destroy_event)(*event) });
        let _ = driver.within(self.context, destroy);
    }
}

/// Host memory that the driver has locked.
struct Pinned {
    driver: Arc<Driver>,
    context: Context,
    start: *mut u8,
}

// SAFETY: contexts are tied to no thread, and the address is only passed back to the driver.
unsafe impl Send for Pinned {}

impl Drop for Pinned {
    fn drop(&mut self) {
        let Self { driver, start, .. } = self;
        // SAFETY: the memory was registered once, and still exists.
        let undo = || driver.check(unsafe { (driver.unregister_host)(start.cast()) });
        if let Err(why) = driver.within(self.context, undo) {
            crate::log!(DEBUG, why, "memory could not be unlocked");
        }
    }
}

// SAFETY: the driver tells whether it owns an address. A copy is over when the call returns, or
// when the event after it in its stream has completed.
unsafe impl Accelerator for Cuda {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Cuda
    }

    fn owns(&self, address: *const u8) -> bool {
        self.driver.owns(address)
    }

    fn is_shared(&self, address: *const u8) -> bool {
        self.driver.is_managed(address)
    }

    fn device(&self, address: *const u8) -> i32 {
        self.driver.ordinal_of(address).unwrap_or(0)
    }

    fn synchronise(&self, address: *const u8) -> bool {
        !self.driver.is_managed(address) && self.driver.synchronise(address)
    }

    unsafe fn fetch(&self, source: *const u8, target: *mut u8, len: usize) -> Result<(), String> {
        if is_long(len)
            && !self.driver.is_locked(target)
            // SAFETY: the caller's promise.
            && let Some(fetched) = unsafe { self.blocks.fetch(self, source, target, len) }
        {
            return fetched;
        }
        // `cuMemcpyDtoH` would use the default stream, and so interfere with a capture in progress.
        // SAFETY: the caller's promise; this waits until the copy is over.
        let copying = unsafe { self.start_fetch(source, target, len)? };
        copying.map_or(Ok(()), |mut copying| copying.finish())
    }

    unsafe fn store(&self, target: *mut u8, source: *const u8, len: usize) -> Result<(), String> {
        if is_long(len)
            && !self.driver.is_locked(source)
            // SAFETY: the caller's promise.
            && let Some(stored) = unsafe { self.blocks.store(self, target, source, len) }
        {
            return stored;
        }
        // `cuMemcpyHtoD` may return before bytes from unlocked memory have arrived; the event tells
        // when they have. SAFETY: the caller's promise; this waits until the copy is over.
        let copying = unsafe { self.start_store(target, source, len)? };
        copying.map_or(Ok(()), |mut copying| copying.finish())
    }

    unsafe fn start_fetch(
        &self,
        source: *const u8,
        target: *mut u8,
        len: usize,
    ) -> Result<Option<Box<dyn Copying>>, String> {
        // SAFETY: the caller's promise, until the copy is over.
        self.start(source, |stream| unsafe {
            (self.driver.start_to_host)(target.cast(), source as Address, len, stream)
        })
    }

    unsafe fn start_store(
        &self,
        target: *mut u8,
        source: *const u8,
        len: usize,
    ) -> Result<Option<Box<dyn Copying>>, String> {
        // SAFETY: the caller's promise, until the copy is over.
        self.start(target, |stream| unsafe {
            (self.driver.start_to_device)(target as Address, source.cast(), len, stream)
        })
    }

    unsafe fn pin(&self, near: *const u8, start: *mut u8, len: usize) -> Option<Box<dyn Send>> {
        let driver = &self.driver;
        let context = driver.context_of(near).ok()?;
        // SAFETY: the caller promises that the `len` bytes exist until the result is dropped.
        let lock = || driver.check(unsafe { (driver.register_host)(start.cast(), len, PORTABLE) });
        match driver.within(context, lock) {
            Ok(()) => Some(Box::new(Pinned {
                driver: Arc::clone(driver),
                context,
                start,
            })),
            Err(why) => {
                crate::log!(
                    WARN,
                    why,
                    "memory for copies from and to a GPU could not be locked"
                );
                None
            }
        }
    }
}
