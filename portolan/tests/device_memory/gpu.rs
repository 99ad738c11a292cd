//! The first GPU of this machine, through CUDA's driver.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::io::Write;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::one_sided;
use portolan::device_memory::{Accelerator, Cuda, MemoryKind, Slice, SliceMut};
use portolan::{Builder, ErrorKind};
use portolan_core::staging::Staging;

type Code = c_int;

/// A function of the driver, if there is one.
fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: names that end with a zero; the library's initialisers are the driver's.
    let symbol = unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        if library.is_null() {
            return None;
        }
        libc::dlsym(library, name.as_ptr())
    };
    (!symbol.is_null()).then_some(symbol)
}

macro_rules! function {
    ($name:literal: $type:ty) => {{
        let symbol = symbol($name).expect("a function of CUDA's driver");
        // SAFETY: the function of this name has this type (cuda.h).
        unsafe { std::mem::transmute::<*mut c_void, $type>(symbol) }
    }};
}

/// Makes the first device's context this thread's.
fn context() {
    let get = function!(c"cuDeviceGet": unsafe extern "C" fn(*mut c_int, c_int) -> Code);
    let retain = function!(c"cuDevicePrimaryCtxRetain": unsafe extern "C" fn(*mut *mut c_void, c_int) -> Code);
    let set = function!(c"cuCtxSetCurrent": unsafe extern "C" fn(*mut c_void) -> Code);
    let (mut device, mut context) = (0, ptr::null_mut());
    // SAFETY: the driver has been initialised (`Cuda::open`); there is room for the results.
    unsafe {
        assert_eq!(get(&raw mut device, 0), 0, "cuDeviceGet");
        assert_eq!(
            retain(&raw mut context, device),
            0,
            "cuDevicePrimaryCtxRetain"
        );
        assert_eq!(set(context), 0, "cuCtxSetCurrent");
    }
}

/// Memory of the GPU.
struct Buffer(u64);

impl Buffer {
    /// Managed memory, which moves to the processor or GPU that uses it.
    fn managed(len: usize) -> Self {
        const GLOBAL: c_uint = 1;
        type Alloc = unsafe extern "C" fn(*mut u64, usize, c_uint) -> Code;
        let alloc = function!(c"cuMemAllocManaged": Alloc);
        let mut address = 0;
        // SAFETY: a current context, room for the address.
        let allocated = unsafe { alloc(&raw mut address, len, GLOBAL) };
        assert_eq!(allocated, 0, "managed memory of {len} bytes");
        Self(address)
    }

    /// Allocated in the context, or from the GPU's pool, which belongs to no context.
    fn new(len: usize, pool: bool) -> Self {
        type FromPool = unsafe extern "C" fn(*mut u64, usize, *mut c_void) -> Code;
        let alloc = function!(c"cuMemAlloc_v2": unsafe extern "C" fn(*mut u64, usize) -> Code);
        let from_pool = pool.then(|| function!(c"cuMemAllocAsync": FromPool));
        let fill = function!(c"cuMemsetD8_v2": unsafe extern "C" fn(u64, c_uint, usize) -> Code);
        let mut address = 0;
        // SAFETY: a current context, room for the address, as many bytes as were given.
        unsafe {
            let allocated = match from_pool {
                Some(from_pool) => from_pool(&raw mut address, len, ptr::null_mut()),
                None => alloc(&raw mut address, len),
            };
            assert_eq!(allocated, 0, "memory of {len} bytes");
            assert_eq!(fill(address, 0xAA, len), 0, "cuMemsetD8");
        }
        Self(address)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let free = function!(c"cuMemFree_v2": unsafe extern "C" fn(u64) -> Code);
        // SAFETY: allocated by `new`, and not used any more.
        unsafe { free(self.0) };
    }
}

/// A stream that is being captured into a graph: no thread may do anything that could disturb the
/// capture.
struct Capture(*mut c_void);

impl Capture {
    fn begin() -> Self {
        type Create = unsafe extern "C" fn(*mut *mut c_void, c_uint) -> Code;
        let create = function!(c"cuStreamCreate": Create);
        let begin =
            function!(c"cuStreamBeginCapture_v2": unsafe extern "C" fn(*mut c_void, c_int) -> Code);
        let mut stream = ptr::null_mut();
        // SAFETY: a current context, room for the stream.
        unsafe {
            assert_eq!(create(&raw mut stream, 0), 0, "cuStreamCreate");
            assert_eq!(begin(stream, 0), 0, "cuStreamBeginCapture");
        }
        Self(stream)
    }

    /// Asserts that the capture has not been disturbed.
    fn end(self) {
        type End = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> Code;
        let end = function!(c"cuStreamEndCapture": End);
        let destroy = function!(c"cuStreamDestroy_v2": unsafe extern "C" fn(*mut c_void) -> Code);
        let mut graph = ptr::null_mut();
        // SAFETY: a stream that is being captured; room for the graph.
        unsafe {
            assert_eq!(end(self.0, &raw mut graph), 0, "cuStreamEndCapture");
            assert_eq!(destroy(self.0), 0, "cuStreamDestroy");
        }
    }
}

/// Tests of one process take turns: while one of them captures a stream, the driver forbids some
/// calls of all threads, such as allocations.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why no GPU is tested.
const NONE: &str = "there is no CUDA driver, or no device, on this machine";

/// Reports that something is not tested.
pub(crate) fn skipped(what: &str, why: &str) {
    let _ = writeln!(std::io::stdout(), "skipped: {what}: {why}");
}

/// Managed memory is both the host's and the GPU's. A program that does not say which is told that
/// it is the host's; if it says that it is the GPU's, the driver copies.
pub(crate) fn managed() {
    const LEN: usize = 100_000;
    let Some(cuda) = Cuda::open() else {
        return skipped("managed memory of a GPU", NONE);
    };
    let _turn = alone();
    context();
    let cuda = Arc::new(cuda);
    let staging = Staging::new(vec![Arc::clone(&cuda) as _]);
    let at = |buffer: &Buffer| ptr::with_exposed_provenance_mut::<u8>(buffer.0 as usize);
    let (both, device) = (Buffer::managed(LEN), Buffer::new(LEN, false));
    let host = vec![3_u8; LEN];
    assert!(cuda.owns(at(&both)) && cuda.owns(at(&device)));
    assert!(cuda.synchronise(at(&device)) && !cuda.synchronise(at(&both)));
    assert!(!cuda.synchronise(host.as_ptr()));
    assert_eq!(staging.kind_of(at(&both)), MemoryKind::Host);
    assert_eq!(staging.place_of(at(&both)), (MemoryKind::Host, 0));
    assert_eq!(staging.kind_of(at(&device)), MemoryKind::Cuda);
    assert_eq!(staging.kind_of(host.as_ptr()), MemoryKind::Host);
    portolan::try_threads(1, |world| {
        let comm = world.comm();
        // SAFETY: buffers of as many bytes, which no other code uses meanwhile; the processor
        // writes and reads the managed one only while the driver copies nothing.
        unsafe {
            at(&both).write_bytes(5, LEN);
            let mine = Slice::<u8>::cuda(both.0, LEN);
            comm.send_device(&mine, 0, 1)?;
            at(&both).write_bytes(0, LEN);
            comm.recv_device(&mut SliceMut::<u8>::cuda(both.0, LEN), 0, 1)?;
            let bytes = std::slice::from_raw_parts(at(&both), LEN);
            assert!(bytes.iter().all(|&byte| byte == 5), "other bytes");
        }
        Ok(())
    })
    .expect("a rank");
}

/// Between two ranks with buffers on a GPU, and between a GPU and the host, up to 64 MiB, with
/// these settings; `capturing`, while a thread captures a stream.
pub(crate) fn between_gpus(settings: &[(&str, &str)], capturing: bool) {
    let Some(cuda) = Cuda::open() else {
        return skipped("memory of a GPU", NONE);
    };
    let _turn = alone();
    let given = settings.iter();
    let job = given.fold(Builder::new(), |job, (name, value)| {
        job.setting(name, value)
    });
    if let Err(why) = job.clone().threads(1, |_| ()) {
        assert_eq!(why.kind(), ErrorKind::TransportUnavailable, "{why}");
        let why = why.to_string().replace('\n', " ");
        return skipped(&format!("memory of a GPU over {settings:?}"), &why);
    }
    job.try_threads(2, |world| {
        context();
        let comm = world.comm();
        let (me, other) = (comm.rank(), 1 - comm.rank());
        let lengths = [1, 1000, 16 << 10, 1 << 20, 64 << 20];
        let turns = lengths.map(|len| (len, false));
        for (len, pool) in turns.into_iter().chain([(1000, true), (3 << 20, true)]) {
            let pattern = |rank: u32| -> Vec<u8> {
                (0..len)
                    .map(|n| ((n + 5 * rank as usize) * 31 / 7) as u8)
                    .collect()
            };
            let (mine, theirs) = (Buffer::new(len, pool), Buffer::new(len, pool));
            let (sent, expected) = (pattern(me), pattern(other));
            let mut back = vec![0_u8; len];
            let at = |buffer: &Buffer| ptr::with_exposed_provenance_mut::<u8>(buffer.0 as usize);
            // SAFETY: buffers of `len` bytes on both sides, which live until the end of the turn.
            let (data, mut room) = unsafe {
                cuda.store(at(&mine), sent.as_ptr(), len)
                    .expect("cuMemcpyHtoD");
                assert!(cuda.owns(at(&mine)) && !cuda.owns(sent.as_ptr()));
                (
                    Slice::<u8>::cuda(mine.0, len),
                    SliceMut::<u8>::cuda(theirs.0, len),
                )
            };
            comm.barrier()?;
            let capture = (me == 0 && capturing).then(Capture::begin);
            comm.sendrecv_device(&data, other, 1, &mut room, other, 1)?;
            // SAFETY: as above.
            unsafe { cuda.fetch(at(&theirs), back.as_mut_ptr(), len) }.expect("cuMemcpyDtoH");
            assert!(back == expected, "{len} bytes from GPU to GPU");
            back.fill(0);
            comm.scope(|s| {
                let incoming = s.recv(&mut back, other, 2)?;
                s.send_device(data, other, 2)?;
                incoming.wait().map(drop)
            })?;
            assert!(back == expected, "{len} bytes from GPU to host");
            comm.barrier()?;
            if let Some(capture) = capture {
                capture.end();
            }
            comm.barrier()?;
            let both = Buffer::new(2 * len, pool);
            // SAFETY: a buffer of two halves, which live until the end of the turn.
            unsafe {
                cuda.store(at(&both), sent.as_ptr(), len)
                    .expect("cuMemcpyHtoD");
                let driver = Arc::new(Cuda::open().expect("it is there"));
                one_sided::there_and_back(&comm, driver, both.0, len)?;
                let second = at(&both).wrapping_add(len);
                cuda.fetch(second, back.as_mut_ptr(), len)
                    .expect("cuMemcpyDtoH");
            }
            let arrived = if me == 0 { sent } else { vec![0xAA; len] };
            assert!(back == arrived, "{len} bytes put and got");
            let places = [mine.0, theirs.0, both.0];
            // SAFETY: buffers of at least `len` bytes, which live until the end of the turn.
            unsafe {
                one_sided::to_the_right(&comm, MemoryKind::Cuda, places, len)?;
                for (buffer, what) in [(&theirs, "put"), (&both, "got")] {
                    cuda.fetch(at(buffer), back.as_mut_ptr(), len)
                        .expect("cuMemcpyDtoH");
                    let expected = pattern(if what == "put" { other } else { me });
                    assert!(back == expected, "{len} bytes {what} on a GPU");
                }
            }
        }
        Ok(())
    })
    .expect("a job with a GPU");
}
