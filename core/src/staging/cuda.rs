//! CUDA's driver, opened at run time: a program runs with it and without.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::Accelerator;
use crate::buffer::MemoryKind;

/// A result of the driver: 0 is success (`CUresult`).
type Code = c_int;
type Context = *mut c_void;
type Address = u64;

/// `CU_POINTER_ATTRIBUTE_CONTEXT`, `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`, `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`.
const CONTEXT: c_int = 1;
const MEMORY_TYPE: c_int = 2;
const DEVICE_ORDINAL: c_int = 9;
/// `CU_MEMORYTYPE_DEVICE`.
const DEVICE: c_uint = 2;

type Init = unsafe extern "C" fn(c_uint) -> Code;
type PointerAttribute = unsafe extern "C" fn(*mut c_void, c_int, Address) -> Code;
type PushContext = unsafe extern "C" fn(Context) -> Code;
type PopContext = unsafe extern "C" fn(*mut Context) -> Code;
type CopyToHost = unsafe extern "C" fn(*mut c_void, Address, usize) -> Code;
type CopyToDevice = unsafe extern "C" fn(Address, *const c_void, usize) -> Code;
type ErrorName = unsafe extern "C" fn(Code, *mut *const c_char) -> Code;

/// CUDA's driver (`libcuda.so.1`), as far as it is needed here.
///
/// The library stays open: it has threads of its own.
pub struct Cuda {
    pointer_attribute: PointerAttribute,
    push_context: PushContext,
    pop_context: PopContext,
    copy_to_host: CopyToHost,
    copy_to_device: CopyToDevice,
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
                // SAFETY: the function of this name has this type since CUDA 4 (cuda.h).
                unsafe { std::mem::transmute::<*mut c_void, $type>(symbol) }
            }};
        }
        let init = function!(c"cuInit": Init);
        let driver = Self {
            pointer_attribute: function!(c"cuPointerGetAttribute": PointerAttribute),
            push_context: function!(c"cuCtxPushCurrent_v2": PushContext),
            pop_context: function!(c"cuCtxPopCurrent_v2": PopContext),
            copy_to_host: function!(c"cuMemcpyDtoH_v2": CopyToHost),
            copy_to_device: function!(c"cuMemcpyHtoD_v2": CopyToDevice),
            error_name: function!(c"cuGetErrorName": ErrorName),
        };
        // SAFETY: no flags are defined. Without a device this fails.
        (unsafe { init(0) } == 0).then_some(driver)
    }

    /// Does something in the context to which an address belongs.
    fn within(&self, address: *const u8, what: impl FnOnce() -> Code) -> Result<(), String> {
        let mut context: Context = std::ptr::null_mut();
        // SAFETY: room for what the attribute is. Any address may be asked about.
        let code = unsafe {
            (self.pointer_attribute)((&raw mut context).cast(), CONTEXT, address as Address)
        };
        self.check(code)?;
        // SAFETY: a live context, because memory of it is.
        self.check(unsafe { (self.push_context)(context) })?;
        let result = self.check(what());
        // SAFETY: the one that was pushed.
        let _ = unsafe { (self.pop_context)(&raw mut context) };
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

impl Accelerator for Cuda {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Cuda
    }

    fn owns(&self, address: *const u8) -> bool {
        let mut kind: c_uint = 0;
        // SAFETY: room for what the attribute is. Addresses that the driver does not know are an error.
        let code = unsafe {
            (self.pointer_attribute)((&raw mut kind).cast(), MEMORY_TYPE, address as Address)
        };
        code == 0 && kind == DEVICE
    }

    fn device(&self, address: *const u8) -> i32 {
        let mut ordinal: c_int = 0;
        // SAFETY: room for what the attribute is; it stays 0 if the driver does not know the address.
        let code = unsafe {
            (self.pointer_attribute)(
                (&raw mut ordinal).cast(),
                DEVICE_ORDINAL,
                address as Address,
            )
        };
        if code == 0 { ordinal } else { 0 }
    }

    unsafe fn fetch(&self, source: *const u8, target: *mut u8, len: usize) -> Result<(), String> {
        // SAFETY: the caller's promise.
        self.within(source, || unsafe {
            (self.copy_to_host)(target.cast(), source as Address, len)
        })
    }

    unsafe fn store(&self, target: *mut u8, source: *const u8, len: usize) -> Result<(), String> {
        // SAFETY: the caller's promise.
        self.within(target, || unsafe {
            (self.copy_to_device)(target as Address, source.cast(), len)
        })
    }
}
