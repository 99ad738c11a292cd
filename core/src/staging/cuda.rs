//! CUDA's driver, opened at run time: a program runs with it and without.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use super::{Accelerator, Copying};
use crate::buffer::MemoryKind;

/// A result of the driver: 0 is success (`CUresult`).
type Code = c_int;
type Context = *mut c_void;
type Stream = *mut c_void;
type Event = *mut c_void;
type Address = u64;

/// `CU_POINTER_ATTRIBUTE_CONTEXT`, `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`, `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`.
const CONTEXT: c_int = 1;
const MEMORY_TYPE: c_int = 2;
const DEVICE_ORDINAL: c_int = 9;
/// `CU_MEMORYTYPE_DEVICE`.
const DEVICE: c_uint = 2;
/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: Code = 600;
/// `CU_EVENT_DISABLE_TIMING`.
const WITHOUT_TIMES: c_uint = 2;
/// `CU_MEMHOSTREGISTER_PORTABLE`: for all contexts.
const PORTABLE: c_uint = 1;
/// `CU_STREAM_PER_THREAD`, a stream that is there in every context.
const STREAM: usize = 2;

type Init = unsafe extern "C" fn(c_uint) -> Code;
type PointerAttribute = unsafe extern "C" fn(*mut c_void, c_int, Address) -> Code;
type PushContext = unsafe extern "C" fn(Context) -> Code;
type PopContext = unsafe extern "C" fn(*mut Context) -> Code;
type SynchronizeContext = unsafe extern "C" fn() -> Code;
type CopyToHost = unsafe extern "C" fn(*mut c_void, Address, usize) -> Code;
type StartToHost = unsafe extern "C" fn(*mut c_void, Address, usize, Stream) -> Code;
type StartToDevice = unsafe extern "C" fn(Address, *const c_void, usize, Stream) -> Code;
type CreateEvent = unsafe extern "C" fn(*mut Event, c_uint) -> Code;
type RecordEvent = unsafe extern "C" fn(Event, Stream) -> Code;
type OfEvent = unsafe extern "C" fn(Event) -> Code;
type RegisterHost = unsafe extern "C" fn(*mut c_void, usize, c_uint) -> Code;
type UnregisterHost = unsafe extern "C" fn(*mut c_void) -> Code;
type ErrorName = unsafe extern "C" fn(Code, *mut *const c_char) -> Code;

/// CUDA's driver (`libcuda.so.1`), as far as it is needed here.
///
/// The library stays open: it has threads of its own. Copies that are started go to the stream that each thread
/// has in each context (`CU_STREAM_PER_THREAD`). Memory of the host is locked for the context of the address with
/// which it is first used, and for all others; a program that destroys contexts does so when its worlds have ended.
pub struct Cuda {
    driver: Arc<Driver>,
}

struct Driver {
    pointer_attribute: PointerAttribute,
    push_context: PushContext,
    pop_context: PopContext,
    synchronize_context: SynchronizeContext,
    copy_to_host: CopyToHost,
    start_to_host: StartToHost,
    start_to_device: StartToDevice,
    create_event: CreateEvent,
    record_event: RecordEvent,
    query_event: OfEvent,
    synchronize_event: OfEvent,
    destroy_event: OfEvent,
    register_host: RegisterHost,
    unregister_host: UnregisterHost,
    error_name: ErrorName,
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
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL;
        // SAFETY: a name that ends with a zero; the library's initialisers are the driver's.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), flags) };
        if library.is_null() {
            return None;
        }
        let symbol = |name: &CStr| {
            // SAFETY: an open library, a name that ends with a zero.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!symbol.is_null()).then_some(symbol)
        };
        macro_rules! function {
            ($name:literal: $type:ty) => {{
                let symbol = symbol($name)?;
                // SAFETY: the function of this name has this type since CUDA 6.5 at the latest (cuda.h).
                unsafe { std::mem::transmute::<*mut c_void, $type>(symbol) }
            }};
        }
        let init = function!(c"cuInit": Init);
        let driver = Driver {
            pointer_attribute: function!(c"cuPointerGetAttribute": PointerAttribute),
            push_context: function!(c"cuCtxPushCurrent_v2": PushContext),
            pop_context: function!(c"cuCtxPopCurrent_v2": PopContext),
            synchronize_context: function!(c"cuCtxSynchronize": SynchronizeContext),
            copy_to_host: function!(c"cuMemcpyDtoH_v2": CopyToHost),
            start_to_host: function!(c"cuMemcpyDtoHAsync_v2": StartToHost),
            start_to_device: function!(c"cuMemcpyHtoDAsync_v2": StartToDevice),
            create_event: function!(c"cuEventCreate": CreateEvent),
            record_event: function!(c"cuEventRecord": RecordEvent),
            query_event: function!(c"cuEventQuery": OfEvent),
            synchronize_event: function!(c"cuEventSynchronize": OfEvent),
            destroy_event: function!(c"cuEventDestroy_v2": OfEvent),
            register_host: function!(c"cuMemHostRegister_v2": RegisterHost),
            unregister_host: function!(c"cuMemHostUnregister": UnregisterHost),
            error_name: function!(c"cuGetErrorName": ErrorName),
        };
        let driver = Arc::new(driver);
        // SAFETY: no flags are defined. Without a device this fails.
        (unsafe { init(0) } == 0).then_some(Self { driver })
    }

    /// Does something in the context to which an address belongs.
    fn at(&self, address: *const u8, what: impl FnOnce() -> Code) -> Result<(), String> {
        let context = self.driver.context_of(address)?;
        let checked = || self.driver.check(what());
        self.driver.within(context, checked)
    }

    /// Starts a copy in the context to which an address belongs.
    fn start(
        &self,
        address: *const u8,
        copy: impl FnOnce(Stream) -> Code,
    ) -> Result<Option<Box<dyn Copying>>, String> {
        let driver = &self.driver;
        let context = driver.context_of(address)?;
        let stream: Stream = std::ptr::without_provenance_mut(STREAM);
        driver.within(context, || {
            let mut event: Event = std::ptr::null_mut();
            // SAFETY: room for an event, in a current context.
            driver.check(unsafe { (driver.create_event)(&raw mut event, WITHOUT_TIMES) })?;
            let under_way = UnderWay {
                driver: Arc::clone(driver),
                context,
                event,
            };
            driver.check(copy(stream))?;
            // SAFETY: an event of this context, and a stream that every context has.
            let recorded = driver.check(unsafe { (driver.record_event)(event, stream) });
            if recorded.is_err() {
                // Nothing would tell when the copy is over: it is waited for, with everything else.
                // SAFETY: in a current context.
                let _ = unsafe { (driver.synchronize_context)() };
            }
            recorded.map(|()| Some(Box::new(under_way) as Box<dyn Copying>))
        })
    }
}

impl Driver {
    fn context_of(&self, address: *const u8) -> Result<Context, String> {
        let mut context: Context = std::ptr::null_mut();
        // SAFETY: room for what the attribute is. Any address may be asked about.
        let code = unsafe {
            (self.pointer_attribute)((&raw mut context).cast(), CONTEXT, address as Address)
        };
        self.check(code).map(|()| context)
    }

    fn within<R>(
        &self,
        context: Context,
        what: impl FnOnce() -> Result<R, String>,
    ) -> Result<R, String> {
        // SAFETY: a context in which there is memory, or was: the driver checks it.
        self.check(unsafe { (self.push_context)(context) })?;
        let result = what();
        let mut popped: Context = std::ptr::null_mut();
        // SAFETY: the one that was pushed.
        let _ = unsafe { (self.pop_context)(&raw mut popped) };
        result
    }

    fn check(&self, code: Code) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: room for a pointer to a constant of the library.
        let known = unsafe { (self.error_name)(code, &raw mut name) } == 0 && !name.is_null();
        if !known {
            return Err(format!("error {code} of CUDA"));
        }
        // SAFETY: the driver's strings end with a zero and live as long as it.
        Err(unsafe { CStr::from_ptr(name) }
            .to_string_lossy()
            .into_owned())
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

impl Copying for UnderWay {
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
            tracing::debug!(why, "memory could not be unlocked");
        }
    }
}

impl Accelerator for Cuda {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Cuda
    }

    fn owns(&self, address: *const u8) -> bool {
        let mut kind: c_uint = 0;
        // SAFETY: room for what the attribute is. Addresses that the driver does not know are an error.
        let code = unsafe {
            (self.driver.pointer_attribute)((&raw mut kind).cast(), MEMORY_TYPE, address as Address)
        };
        code == 0 && kind == DEVICE
    }

    fn device(&self, address: *const u8) -> i32 {
        let mut ordinal: c_int = 0;
        // SAFETY: room for what the attribute is; it stays 0 if the driver does not know the address.
        let code = unsafe {
            (self.driver.pointer_attribute)(
                (&raw mut ordinal).cast(),
                DEVICE_ORDINAL,
                address as Address,
            )
        };
        if code == 0 { ordinal } else { 0 }
    }

    unsafe fn fetch(&self, source: *const u8, target: *mut u8, len: usize) -> Result<(), String> {
        // SAFETY: the caller's promise.
        self.at(source, || unsafe {
            (self.driver.copy_to_host)(target.cast(), source as Address, len)
        })
    }

    unsafe fn store(&self, target: *mut u8, source: *const u8, len: usize) -> Result<(), String> {
        // `cuMemcpyHtoD` may return before bytes that are not locked are there: the event tells when they are.
        // SAFETY: the caller's promise, until the copy is over, which is awaited.
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
                tracing::warn!(
                    why,
                    "memory for copies from and to a GPU could not be locked"
                );
                None
            }
        }
    }
}
