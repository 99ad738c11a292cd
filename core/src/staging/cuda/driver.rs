//! The functions of CUDA's driver, and the context, stream and capture mode that calls need.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, PoisonError};

/// A result of the driver: 0 is success (`CUresult`).
pub(super) type Code = c_int;
pub(super) type Context = *mut c_void;
pub(super) type Stream = *mut c_void;
pub(super) type Event = *mut c_void;
pub(super) type Address = u64;

/// `CU_POINTER_ATTRIBUTE_CONTEXT`, `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`,
/// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`, `CU_POINTER_ATTRIBUTE_IS_MANAGED`,
/// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`.
const CONTEXT: c_int = 1;
const MEMORY_TYPE: c_int = 2;
const SYNC_MEMOPS: c_int = 6;
const IS_MANAGED: c_int = 8;
const DEVICE_ORDINAL: c_int = 9;
/// `CU_MEMORYTYPE_HOST`, `CU_MEMORYTYPE_DEVICE`.
const HOST: c_uint = 1;
const DEVICE: c_uint = 2;
/// `CUDA_ERROR_NOT_READY`.
pub(super) const NOT_READY: Code = 600;
/// `CU_EVENT_DISABLE_TIMING`.
pub(super) const WITHOUT_TIMES: c_uint = 2;
/// `CU_MEMHOSTREGISTER_PORTABLE`: locked for all contexts.
pub(super) const PORTABLE: c_uint = 1;
/// `CU_STREAM_DEFAULT`: work in such a stream starts only after earlier work in the program's
/// default stream.
const ORDERED: c_uint = 0;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: this thread's calls do not affect captures in other streams.
const RELAXED: c_int = 2;

type Init = unsafe extern "C" fn(c_uint) -> Code;
type PointerAttribute = unsafe extern "C" fn(*mut c_void, c_int, Address) -> Code;
type SetPointerAttribute = unsafe extern "C" fn(*const c_void, c_int, Address) -> Code;
type PushContext = unsafe extern "C" fn(Context) -> Code;
type PopContext = unsafe extern "C" fn(*mut Context) -> Code;
type GetDevice = unsafe extern "C" fn(*mut c_int, c_int) -> Code;
type RetainContext = unsafe extern "C" fn(*mut Context, c_int) -> Code;
type ReleaseContext = unsafe extern "C" fn(c_int) -> Code;
type ExchangeMode = unsafe extern "C" fn(*mut c_int) -> Code;
type CreateStream = unsafe extern "C" fn(*mut Stream, c_uint) -> Code;
type OfStream = unsafe extern "C" fn(Stream) -> Code;
type StartToHost = unsafe extern "C" fn(*mut c_void, Address, usize, Stream) -> Code;
type StartToDevice = unsafe extern "C" fn(Address, *const c_void, usize, Stream) -> Code;
type CreateEvent = unsafe extern "C" fn(*mut Event, c_uint) -> Code;
type RecordEvent = unsafe extern "C" fn(Event, Stream) -> Code;
type OfEvent = unsafe extern "C" fn(Event) -> Code;
type RegisterHost = unsafe extern "C" fn(*mut c_void, usize, c_uint) -> Code;
type UnregisterHost = unsafe extern "C" fn(*mut c_void) -> Code;
type ErrorName = unsafe extern "C" fn(Code, *mut *const c_char) -> Code;

/// The library's functions, and the objects made with them.
pub(super) struct Driver {
    pointer_attribute: PointerAttribute,
    set_pointer_attribute: Option<SetPointerAttribute>,
    push_context: PushContext,
    pop_context: PopContext,
    get_device: GetDevice,
    retain_context: RetainContext,
    release_context: ReleaseContext,
    /// Missing from libraries before CUDA 10.1, which have no captures that calls could disturb.
    exchange_mode: Option<ExchangeMode>,
    create_stream: CreateStream,
    destroy_stream: OfStream,
    pub(super) synchronize_stream: OfStream,
    pub(super) start_to_host: StartToHost,
    pub(super) start_to_device: StartToDevice,
    pub(super) create_event: CreateEvent,
    pub(super) record_event: RecordEvent,
    pub(super) query_event: OfEvent,
    pub(super) synchronize_event: OfEvent,
    pub(super) destroy_event: OfEvent,
    pub(super) register_host: RegisterHost,
    pub(super) unregister_host: UnregisterHost,
    error_name: ErrorName,
    made: Mutex<Made>,
}

/// Objects that the driver has made or retained until it is dropped.
#[derive(Default)]
struct Made {
    /// Primary contexts by accelerator, for memory that belongs to no context.
    contexts: BTreeMap<c_int, Context>,
    /// One stream for each context. The program never captures it.
    streams: BTreeMap<Context, Stream>,
}

// SAFETY: contexts and streams are tied to no thread.
unsafe impl Send for Made {}

impl Driver {
    /// Opens the library; `None` if there is no library or no accelerator.
    pub(super) fn open() -> Option<Self> {
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL;
        // SAFETY: the name ends with a zero. The library's initialisers are the driver's own.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), flags) };
        if library.is_null() {
            return None;
        }
        let symbol = |name: &CStr| {
            // SAFETY: the library is open, and the name ends with a zero.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!symbol.is_null()).then_some(symbol)
        };
        macro_rules! function {
            ($name:literal: $type:ty) => {
                symbol($name).map(|symbol| {
                    // SAFETY: the function of this name has had this type ever since it exists
                    // (cuda.h).
                    unsafe { std::mem::transmute::<*mut c_void, $type>(symbol) }
                })
            };
        }
        let init = function!(c"cuInit": Init)?;
        let driver = Self {
            pointer_attribute: function!(c"cuPointerGetAttribute": PointerAttribute)?,
            set_pointer_attribute: function!(c"cuPointerSetAttribute": SetPointerAttribute),
            push_context: function!(c"cuCtxPushCurrent_v2": PushContext)?,
            pop_context: function!(c"cuCtxPopCurrent_v2": PopContext)?,
            get_device: function!(c"cuDeviceGet": GetDevice)?,
            retain_context: function!(c"cuDevicePrimaryCtxRetain": RetainContext)?,
            release_context: function!(c"cuDevicePrimaryCtxRelease_v2": ReleaseContext)
                .or(function!(c"cuDevicePrimaryCtxRelease": ReleaseContext))?,
            exchange_mode: function!(c"cuThreadExchangeStreamCaptureMode": ExchangeMode),
            create_stream: function!(c"cuStreamCreate": CreateStream)?,
            destroy_stream: function!(c"cuStreamDestroy_v2": OfStream)?,
            synchronize_stream: function!(c"cuStreamSynchronize": OfStream)?,
            start_to_host: function!(c"cuMemcpyDtoHAsync_v2": StartToHost)?,
            start_to_device: function!(c"cuMemcpyHtoDAsync_v2": StartToDevice)?,
            create_event: function!(c"cuEventCreate": CreateEvent)?,
            record_event: function!(c"cuEventRecord": RecordEvent)?,
            query_event: function!(c"cuEventQuery": OfEvent)?,
            synchronize_event: function!(c"cuEventSynchronize": OfEvent)?,
            destroy_event: function!(c"cuEventDestroy_v2": OfEvent)?,
            register_host: function!(c"cuMemHostRegister_v2": RegisterHost)?,
            unregister_host: function!(c"cuMemHostUnregister": UnregisterHost)?,
            error_name: function!(c"cuGetErrorName": ErrorName)?,
            made: Mutex::default(),
        };
        // SAFETY: no flags are defined. Fails if there is no accelerator.
        (unsafe { init(0) } == 0).then_some(driver)
    }

    /// Whether an address is in accelerator memory.
    pub(super) fn owns(&self, address: *const u8) -> bool {
        self.number(MEMORY_TYPE, address) == Some(DEVICE)
    }

    /// Whether an address is in host memory that the driver has locked.
    pub(super) fn is_locked(&self, address: *const u8) -> bool {
        self.number(MEMORY_TYPE, address) == Some(HOST)
    }

    /// Whether an address is in managed memory (`cuMemAllocManaged`), which moves to the
    /// accelerator or the processor that uses it. [`owns`](Self::owns) is true for it as well.
    pub(super) fn is_managed(&self, address: *const u8) -> bool {
        self.number(IS_MANAGED, address).is_some_and(|is| is != 0)
    }

    /// Makes synchronous copies of the allocation at an address wait until the copy is done, which
    /// those between accelerators do not do otherwise. `false` for memory to which that cannot be
    /// done, such as a pool's.
    pub(super) fn synchronise(&self, address: *const u8) -> bool {
        let (Some(set), Ok(context)) = (self.set_pointer_attribute, self.context_of(address))
        else {
            return false;
        };
        let yes: c_uint = 1;
        let set = || {
            // SAFETY: the attribute's value has this type. For an address that the driver does not
            // know, it returns an error.
            let code = unsafe { set((&raw const yes).cast(), SYNC_MEMOPS, address as Address) };
            self.check(code)
        };
        self.within(context, set).is_ok()
    }

    /// The value of a numeric attribute; `None` if the driver does not know the address.
    fn number(&self, attribute: c_int, address: *const u8) -> Option<c_uint> {
        let mut number: c_uint = 0;
        // SAFETY: there is room for the attribute's value. For an address that the driver does not
        // know, it returns an error.
        let code = unsafe {
            (self.pointer_attribute)((&raw mut number).cast(), attribute, address as Address)
        };
        (code == 0).then_some(number)
    }

    /// The number of the accelerator to which an address belongs.
    pub(super) fn ordinal_of(&self, address: *const u8) -> Result<c_int, String> {
        let mut ordinal: c_int = 0;
        // SAFETY: there is room for the attribute's value.
        let code = unsafe {
            (self.pointer_attribute)(
                (&raw mut ordinal).cast(),
                DEVICE_ORDINAL,
                address as Address,
            )
        };
        self.check(code).map(|()| ordinal)
    }

    /// A context in which the memory at an address can be copied: its own context, or the primary
    /// context of its accelerator if it has none. Memory has no context if it was not allocated
    /// through one: from a pool (`cuMemAllocAsync`), or by mapping addresses (`cuMemMap`).
    pub(super) fn context_of(&self, address: *const u8) -> Result<Context, String> {
        let mut context: Context = std::ptr::null_mut();
        // SAFETY: there is room for the attribute's value, and any address may be asked about.
        let code = unsafe {
            (self.pointer_attribute)((&raw mut context).cast(), CONTEXT, address as Address)
        };
        if code == 0 && !context.is_null() {
            return Ok(context);
        }
        let ordinal = self.ordinal_of(address)?;
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&context) = made.contexts.get(&ordinal) {
            return Ok(context);
        }
        let mut device = 0;
        // SAFETY: there is room for a device handle.
        self.check(unsafe { (self.get_device)(&raw mut device, ordinal) })?;
        // SAFETY: as above; released when the driver is dropped.
        self.check(unsafe { (self.retain_context)(&raw mut context, device) })?;
        made.contexts.insert(ordinal, context);
        Ok(context)
    }

    /// The stream for copies in a context, which must be current.
    pub(super) fn stream_of(&self, context: Context) -> Result<Stream, String> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&stream) = made.streams.get(&context) {
            return Ok(stream);
        }
        let mut stream: Stream = std::ptr::null_mut();
        // SAFETY: there is room for a stream, and a context is current.
        self.check(unsafe { (self.create_stream)(&raw mut stream, ORDERED) })?;
        made.streams.insert(context, stream);
        Ok(stream)
    }

    /// Runs `what` in a context, without disturbing captures in other streams. Unless a thread
    /// declares that its calls have nothing to do with captures, some calls fail while another
    /// thread is capturing.
    pub(super) fn within<R>(
        &self,
        context: Context,
        what: impl FnOnce() -> Result<R, String>,
    ) -> Result<R, String> {
        // SAFETY: a context that has or had memory; the driver checks it.
        self.check(unsafe { (self.push_context)(context) })?;
        let mut mode = RELAXED;
        let exchange = |mode: &mut c_int| match self.exchange_mode {
            // SAFETY: there is room for a mode; the second call restores the old one.
            Some(exchange) => unsafe { exchange(mode) == 0 },
            None => false,
        };
        let exchanged = exchange(&mut mode);
        let result = what();
        if exchanged {
            exchange(&mut mode);
        }
        let mut popped: Context = std::ptr::null_mut();
        // SAFETY: pops the context that was pushed.
        let _ = unsafe { (self.pop_context)(&raw mut popped) };
        result
    }

    /// An error with the driver's name for it, unless `code` is a success.
    pub(super) fn check(&self, code: Code) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: there is room for a pointer to a constant of the library.
        let known = unsafe { (self.error_name)(code, &raw mut name) } == 0 && !name.is_null();
        if !known {
            return Err(format!("error {code} of CUDA"));
        }
        // SAFETY: the driver's strings end with a zero and live as long as the library.
        Err(unsafe { CStr::from_ptr(name) }
            .to_string_lossy()
            .into_owned())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let made = std::mem::take(self.made.get_mut().unwrap_or_else(PoisonError::into_inner));
        for (context, stream) in made.streams {
            // SAFETY: made for this context. Work in it is over, or is never asked about again.
            let destroy = || self.check(unsafe { (self.destroy_stream)(stream) });
            let _ = self.within(context, destroy);
        }
        for ordinal in made.contexts.into_keys() {
            let mut device = 0;
            // SAFETY: retained once for this accelerator.
            unsafe {
                if (self.get_device)(&raw mut device, ordinal) == 0 {
                    let _ = (self.release_context)(device);
                }
            }
        }
    }
}
