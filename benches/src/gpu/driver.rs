//! The functions of CUDA's driver that buffers on a GPU need. The library is opened at run time, so
//! that the benches build and run without it.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

use portolan::{Error, ErrorKind, Result};

/// A result of the driver: 0 is success (`CUresult`).
type Code = c_int;
type Context = *mut c_void;
/// `CUdeviceptr`.
pub(super) type Address = u64;

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: Code = 2;
/// Buffers begin at page boundaries, as those in the host's memory do.
const ALIGNMENT: usize = 4096;

type Init = unsafe extern "C" fn(c_uint) -> Code;
type CountDevices = unsafe extern "C" fn(*mut c_int) -> Code;
type GetDevice = unsafe extern "C" fn(*mut c_int, c_int) -> Code;
type DeviceName = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Code;
type RetainContext = unsafe extern "C" fn(*mut Context, c_int) -> Code;
type SetContext = unsafe extern "C" fn(Context) -> Code;
type Synchronize = unsafe extern "C" fn() -> Code;
type Allocate = unsafe extern "C" fn(*mut Address, usize) -> Code;
type Fill = unsafe extern "C" fn(Address, c_uint, usize) -> Code;
type Free = unsafe extern "C" fn(Address) -> Code;
type ErrorName = unsafe extern "C" fn(Code, *mut *const c_char) -> Code;

/// The library's functions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Driver {
    count_devices: CountDevices,
    get_device: GetDevice,
    device_name: DeviceName,
    retain_context: RetainContext,
    set_context: SetContext,
    synchronize: Synchronize,
    allocate: Allocate,
    fill: Fill,
    free: Free,
    error_name: ErrorName,
}

/// The error if there is no driver or no GPU.
fn needed(why: &str) -> Error {
    Error::new(ErrorKind::UnsupportedMemory, why.to_owned()).remedy(
        "--cuda needs CUDA's driver (libcuda.so.1) and a GPU: run this where both are, or leave --cuda out",
    )
}

/// The last error of `dlopen` or `dlsym`.
fn loader_error() -> String {
    // SAFETY: the text belongs to this thread until its next call of the loader.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader does not say why".to_owned();
    }
    // SAFETY: the loader's texts end with a zero.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

impl Driver {
    /// Opens the library, and initialises the driver.
    pub(super) fn open() -> Result<Self> {
        // SAFETY: the name ends with a zero. The library's initialisers are the driver's own.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            let why = loader_error();
            return Err(needed(&format!("CUDA's driver cannot be opened: {why}")));
        }
        let symbol = |name: &CStr| {
            // SAFETY: the library is open, and the name ends with a zero.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            if symbol.is_null() {
                let why = loader_error();
                return Err(needed(&format!("CUDA's driver lacks a function: {why}")));
            }
            Ok(symbol)
        };
        macro_rules! function {
            ($name:literal: $type:ty) => {{
                let symbol = symbol($name)?;
                // SAFETY: the function of this name has this type (cuda.h).
                unsafe { std::mem::transmute::<*mut c_void, $type>(symbol) }
            }};
        }
        let init = function!(c"cuInit": Init);
        let driver = Self {
            count_devices: function!(c"cuDeviceGetCount": CountDevices),
            get_device: function!(c"cuDeviceGet": GetDevice),
            device_name: function!(c"cuDeviceGetName": DeviceName),
            retain_context: function!(c"cuDevicePrimaryCtxRetain": RetainContext),
            set_context: function!(c"cuCtxSetCurrent": SetContext),
            synchronize: function!(c"cuCtxSynchronize": Synchronize),
            allocate: function!(c"cuMemAlloc_v2": Allocate),
            fill: function!(c"cuMemsetD8_v2": Fill),
            free: function!(c"cuMemFree_v2": Free),
            error_name: function!(c"cuGetErrorName": ErrorName),
        };
        // SAFETY: no flags are defined.
        let code = unsafe { init(0) };
        if code != 0 {
            // Such as CUDA_ERROR_NO_DEVICE: there is no GPU.
            let why = driver.name_of(code);
            return Err(needed(&format!("CUDA's driver does not start: {why}")));
        }
        Ok(driver)
    }

    /// The number of GPUs, which is not zero.
    fn count(&self) -> Result<u32> {
        let mut count = 0;
        // SAFETY: there is room for the number.
        let code = unsafe { (self.count_devices)(&raw mut count) };
        self.check("cuDeviceGetCount", code)?;
        match u32::try_from(count) {
            Ok(count) if count > 0 => Ok(count),
            _ => Err(needed("CUDA's driver has no GPU")),
        }
    }

    /// The GPU for the rank with this number among those of its node: they take turns if there are
    /// fewer GPUs than ranks.
    fn gpu_of(&self, rank: u32) -> Result<c_int> {
        let ordinal = (rank % self.count()?) as c_int;
        let mut device = 0;
        // SAFETY: there is room for the device.
        let code = unsafe { (self.get_device)(&raw mut device, ordinal) };
        self.check("cuDeviceGet", code)?;
        Ok(device)
    }

    fn check(&self, call: &str, code: Code) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let what = format!("CUDA's {call} failed: {}", self.name_of(code));
        let error = Error::new(ErrorKind::UnsupportedMemory, what);
        Err(error.remedy("look whether the GPU is in order, and free for this job (nvidia-smi)"))
    }

    /// The driver's name for an error.
    fn name_of(&self, code: Code) -> String {
        let mut name: *const c_char = ptr::null();
        // SAFETY: there is room for a pointer to a constant of the library.
        let known = unsafe { (self.error_name)(code, &raw mut name) } == 0 && !name.is_null();
        if !known {
            return format!("error {code}");
        }
        // SAFETY: the driver's strings end with a zero and live as long as the library.
        unsafe { CStr::from_ptr(name) }
            .to_string_lossy()
            .into_owned()
    }
}

/// Some memory of a GPU.
///
/// It is in the primary context of the GPU, as the memory of most programs is. The context is
/// retained and never released: the communicator's driver keeps streams and locked memory in it
/// until the job ends.
#[derive(Debug)]
pub(super) struct Memory {
    driver: Driver,
    context: Context,
    device: c_int,
    /// What was allocated, and the first page in it.
    allocated: Address,
    start: Address,
    bytes: usize,
}

impl Memory {
    /// `bytes` bytes of zeros that begin at a page boundary, on the GPU of a rank of this node. Its
    /// context becomes this thread's current one.
    pub(super) fn new(rank: u32, bytes: usize) -> Result<Self> {
        let driver = Driver::open()?;
        let device = driver.gpu_of(rank)?;
        let mut context: Context = ptr::null_mut();
        // SAFETY: a GPU of the driver, and room for the context.
        let code = unsafe { (driver.retain_context)(&raw mut context, device) };
        driver.check("cuDevicePrimaryCtxRetain", code)?;
        // SAFETY: a context that was retained.
        let code = unsafe { (driver.set_context)(context) };
        driver.check("cuCtxSetCurrent", code)?;
        let exhausted = || {
            let what = format!("no memory for {bytes} bytes of buffers on GPU {device}");
            Error::new(ErrorKind::Exhausted, what).remedy("measure smaller messages")
        };
        let with_margin = bytes.checked_add(ALIGNMENT).ok_or_else(exhausted)?;
        let mut allocated: Address = 0;
        // SAFETY: a context is current, and there is room for the address.
        let code = unsafe { (driver.allocate)(&raw mut allocated, with_margin) };
        if code == OUT_OF_MEMORY {
            return Err(exhausted());
        }
        driver.check("cuMemAlloc", code)?;
        let memory = Self {
            driver,
            context,
            device,
            allocated,
            start: allocated.next_multiple_of(ALIGNMENT as Address),
            bytes,
        };
        memory.fill(0, bytes, 0)?;
        Ok(memory)
    }

    /// Fills `len` bytes from `position` on, and waits until they are there.
    pub(super) fn fill(&self, position: usize, len: usize, value: u8) -> Result<()> {
        debug_assert!(position + len <= self.bytes);
        if len == 0 {
            return Ok(());
        }
        let Self { driver, .. } = self;
        // SAFETY: the GPU's context is current on the thread that made the memory, and as many
        // bytes are there.
        let code = unsafe { (driver.fill)(self.at(position), c_uint::from(value), len) };
        driver.check("cuMemsetD8", code)?;
        // The driver may fill later than it returns. SAFETY: as above.
        let code = unsafe { (driver.synchronize)() };
        driver.check("cuCtxSynchronize", code)
    }

    /// The address of a byte.
    pub(super) fn at(&self, position: usize) -> Address {
        self.start + position as Address
    }

    /// The GPU's name.
    pub(super) fn name(&self) -> Result<String> {
        let mut name = [0_u8; 256];
        let room = name.len() as c_int;
        // SAFETY: there is room for as many bytes, the last of which will be a zero.
        let code =
            unsafe { (self.driver.device_name)(name.as_mut_ptr().cast(), room, self.device) };
        self.driver.check("cuDeviceGetName", code)?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(name.to_string_lossy().into_owned())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // The program may have made another context current since. SAFETY: the context is
        // retained. The memory was allocated once, and its borrowers have ended with their borrows.
        unsafe {
            if (self.driver.set_context)(self.context) == 0 {
                let _ = (self.driver.free)(self.allocated);
            }
        }
    }
}
