//! CUDA's driver, opened at run time: a program runs with it and without.

mod driver;

use std::sync::Arc;

use self::driver::{
    Address, Code, Context, Driver, Event, NOT_READY, PORTABLE, Stream, WITHOUT_TIMES,
};
use super::{Accelerator, Copying};
use crate::buffer::MemoryKind;

/// CUDA's driver (`libcuda.so.1`), as far as it is needed here.
///
/// The library stays open: it has threads of its own. Copies go to a stream of this driver's in
/// each context, behind what is in the context's default stream; graphs that the program captures
/// meanwhile do not notice. Memory that belongs to no context (`cuMemAllocAsync`) is copied in the
/// primary context of its device, which is kept until the driver goes. Memory of the host is locked
/// for the context of the address with which it is first used, and for all others; a program that
/// destroys contexts does so when its worlds have ended.
pub struct Cuda {
    driver: Arc<Driver>,
}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cuda")
    }
}

impl Cuda {
    /// Opens the driver; `None` if there is none, or no device.
    #[must_use]
    pub fn open() -> Option<Self> {
        let driver = Arc::new(Driver::open()?);
        Some(Self { driver })
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
            // SAFETY: room for an event, in a current context.
            driver.check(unsafe { (driver.create_event)(&raw mut event, WITHOUT_TIMES) })?;
            let under_way = UnderWay {
                driver: Arc::clone(driver),
                context,
                event,
            };
            let started = driver.check(copy(stream));
            // SAFETY: an event of this context, and a stream of it.
            let record = || driver.check(unsafe { (driver.record_event)(event, stream) });
            let Err(why) = started.and_then(|()| record()) else {
                return Ok(Some(Box::new(under_way) as Box<dyn Copying>));
            };
            // An error may be of something before, and no event tells about the copy: the stream is
            // waited for. SAFETY: a stream of this context.
            match driver.check(unsafe { (driver.synchronize_stream)(stream) }) {
                Ok(()) => Err(why),
                Err(_) => Ok(Some(Box::new(Unknown(why)) as Box<dyn Copying>)),
            }
        })
    }
}

/// A copy of which nobody can tell whether it is over, or was ever begun.
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

/// A copy that was started, and the event behind it.
struct UnderWay {
    driver: Arc<Driver>,
    context: Context,
    event: Event,
}

// SAFETY: contexts and events belong to no thread.
unsafe impl Send for UnderWay {}

// SAFETY: the driver says when it is over.
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
        // SAFETY: an event of this context, which nobody uses any more.
        let destroy = || driver.check(unsafe { (driver.destroy_event)(*event) });
        let _ = driver.within(self.context, destroy);
    }
}

/// Memory of the host that the driver has locked.
struct Pinned {
    driver: Arc<Driver>,
    context: Context,
    start: *mut u8,
}

// SAFETY: contexts belong to no thread, and the address is only handed back.
unsafe impl Send for Pinned {}

impl Drop for Pinned {
    fn drop(&mut self) {
        let Self { driver, start, .. } = self;
        // SAFETY: registered, once, and still memory.
        let undo = || driver.check(unsafe { (driver.unregister_host)(start.cast()) });
        if let Err(why) = driver.within(self.context, undo) {
            crate::log!(DEBUG, why, "memory could not be unlocked");
        }
    }
}

// SAFETY: the driver tells whose an address is; a copy is over when its call returns, or the event
// behind it in its stream has come.
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

    unsafe fn fetch(&self, source: *const u8, target: *mut u8, len: usize) -> Result<(), String> {
        // `cuMemcpyDtoH` would go through the default stream, and with it through whatever is being
        // captured. SAFETY: the caller's promise, until the copy is over, which is awaited.
        let copying = unsafe { self.start_fetch(source, target, len)? };
        copying.map_or(Ok(()), |mut copying| copying.finish())
    }

    unsafe fn store(&self, target: *mut u8, source: *const u8, len: usize) -> Result<(), String> {
        // `cuMemcpyHtoD` may return before bytes that are not locked are there: the event tells
        // when they are. SAFETY: the caller's promise, until the copy is over, which is awaited.
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
        // SAFETY: as many bytes, which stay until the result is dropped, as the caller promised.
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
