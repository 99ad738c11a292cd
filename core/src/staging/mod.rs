//! Messages from and to memory that the processor cannot load and store, such as a GPU's.
//!
//! An [`Accelerator`] is the driver of one kind of such memory. It recognises its own addresses and
//! copies between them and the host. [`Staging`] uses drivers to send and receive, over any
//! [`Device`].
//!
//! A device with [`Caps::DRIVEN`] handles long messages itself. If the network can reach such
//! memory, the device lets it. If not, the device copies through a few chunks of host memory in
//! each direction, which the driver has locked; one chunk is copied while the transport moves
//! another. Short messages, and all messages over other devices, are copied as a whole: a send
//! before it leaves, a receive when it is complete, inside progress. Calls for memory without a
//! driver are refused ([`UnsupportedMemory`](ErrorKind::UnsupportedMemory)).
//!
//! ```
//! use portolan_core::MemoryKind;
//! use portolan_core::staging::Staging;
//!
//! // CUDA's driver, if there is one on this machine.
//! let staging = Staging::detected();
//! let host = [0_u8; 8];
//! assert_eq!(staging.kind_of(host.as_ptr()), MemoryKind::Host);
//! ```

mod accelerator;
mod chunks;
mod cuda;
mod driven;
mod fake;
mod locked;
mod one_sided;

use std::sync::Arc;

use portolan_datatype::MsgRep;

pub use accelerator::{Accelerator, Copying};
pub use cuda::Cuda;
pub use driven::DrivenBuf;
pub use fake::Fake;

pub(crate) use chunks::{CHUNK, Chunk, EACH, Moving, Pool};
pub(crate) use driven::Driven;

use crate::buffer::{MemoryKind, TypedBuf};
use crate::device::{Caps, Completion, Device, SendArgs, SendMode};
use crate::error::{Error, ErrorKind, Result};
use crate::matching::Pattern;
use crate::request::Request;
use crate::status::Status;

/// Sends and receives from and to memory of every kind that there is a driver for.
#[derive(Clone, Default)]
pub struct Staging {
    drivers: Vec<Arc<dyn Accelerator>>,
}

impl std::fmt::Debug for Staging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kinds = self.drivers.iter().map(|driver| driver.kind());
        f.debug_list().entries(kinds).finish()
    }
}

impl Staging {
    /// Makes a `Staging` with these drivers.
    #[must_use]
    pub fn new(drivers: Vec<Arc<dyn Accelerator>>) -> Self {
        Self { drivers }
    }

    /// Makes a `Staging` with the drivers of the accelerators in this machine. The drivers'
    /// libraries are opened at run time; without them, all memory is the host's.
    #[must_use]
    pub fn detected() -> Self {
        let cuda = Cuda::open().map(|cuda| Arc::new(cuda) as Arc<dyn Accelerator>);
        Self::new(cuda.into_iter().collect())
    }

    /// The kind of memory that an address is in. It is the host's if no driver claims the address,
    /// or if the processor [can access it as well](Accelerator::is_shared).
    #[must_use]
    pub fn kind_of(&self, address: *const u8) -> MemoryKind {
        self.driver_of(address)
            .map_or(MemoryKind::Host, |driver| driver.kind())
    }

    /// The kind of memory that an address is in, and the number of its accelerator.
    #[must_use]
    pub fn place_of(&self, address: *const u8) -> (MemoryKind, i32) {
        self.driver_of(address)
            .map_or((MemoryKind::Host, 0), |driver| {
                (driver.kind(), driver.device(address))
            })
    }

    /// Has the driver of an address make its synchronous copies wait until they are done, for good
    /// ([`Accelerator::synchronise`]). `false` if there is none, or it cannot.
    #[must_use]
    pub fn synchronise(&self, address: *const u8) -> bool {
        self.driver_of(address)
            .is_some_and(|driver| driver.synchronise(address))
    }

    /// The kinds of memory that there are drivers for.
    #[must_use]
    pub fn kinds(&self) -> Vec<MemoryKind> {
        self.drivers.iter().map(|driver| driver.kind()).collect()
    }

    /// Whether there is no driver: all memory is the host's.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.drivers.is_empty()
    }

    /// Starts a send from memory of the kind `buf.memory`.
    ///
    /// # Errors
    /// [`UnsupportedMemory`](ErrorKind::UnsupportedMemory) if there is no driver, the driver fails,
    /// the layout has gaps, or the mode is buffered; otherwise those of
    /// [`isend_datatype_unchecked`](Device::isend_datatype_unchecked).
    ///
    /// # Safety
    /// As for [`isend_datatype_unchecked`](Device::isend_datatype_unchecked), with memory of that
    /// kind.
    pub unsafe fn isend<D: Device>(
        &self,
        device: &D,
        args: &SendArgs,
        buf: TypedBuf<'_>,
    ) -> Result<Request> {
        if buf.memory == MemoryKind::Host {
            // SAFETY: the caller's promise.
            return unsafe { device.isend_datatype_unchecked(args, buf) };
        }
        if args.mode == SendMode::Buffered {
            return Err(unsupported(buf.memory, "a buffered send from it"));
        }
        let (driver, len) = (self.driver(buf.memory)?, contiguous(&buf)?);
        let attributes = device.attributes();
        if len > attributes.eager_max
            && args.rep == MsgRep::Native
            && attributes.caps.contains(Caps::DRIVEN)
        {
            // SAFETY: the caller's promise.
            return unsafe { device.isend_driven_unchecked(args, driven(driver, &buf)) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.isend_copied(device, args, buf) }
    }

    /// Like [`isend`](Self::isend), but copies the whole buffer at once. The memory belongs to the
    /// caller again when this returns.
    ///
    /// # Errors
    /// As [`isend`](Self::isend).
    ///
    /// # Safety
    /// As for [`isend`](Self::isend), but only until this returns.
    pub unsafe fn isend_copied<D: Device>(
        &self,
        device: &D,
        args: &SendArgs,
        buf: TypedBuf<'_>,
    ) -> Result<Request> {
        let (driver, len) = (self.driver(buf.memory)?, contiguous(&buf)?);
        // SAFETY: the caller vouches for `len` bytes of that memory.
        let mut host = unsafe { fetched(&**driver, buf.ptr, len)? };
        let staged = TypedBuf {
            ptr: host.as_mut_ptr(),
            memory: MemoryKind::Host,
            ..buf
        };
        // SAFETY: the host copy is attached to the request, which keeps it until the operation is
        // over.
        let request = unsafe { device.isend_datatype_unchecked(args, staged)? };
        keep(device, request, host)
    }

    /// Starts a receive into memory of the kind `buf.memory`.
    ///
    /// # Errors
    /// As [`isend`](Self::isend). If the driver fails after the message has arrived, the receive
    /// ends with [`UnsupportedMemory`](ErrorKind::UnsupportedMemory).
    ///
    /// # Safety
    /// As for [`irecv_datatype_unchecked`](Device::irecv_datatype_unchecked), with memory of that
    /// kind.
    pub unsafe fn irecv<D: Device>(
        &self,
        device: &D,
        from: &Pattern,
        buf: TypedBuf<'_>,
    ) -> Result<Request> {
        if buf.memory == MemoryKind::Host {
            // SAFETY: the caller's promise.
            return unsafe { device.irecv_datatype_unchecked(from, buf) };
        }
        let (driver, len) = (self.driver(buf.memory)?, contiguous(&buf)?);
        if device.attributes().caps.contains(Caps::DRIVEN) {
            // SAFETY: the caller's promise.
            return unsafe { device.irecv_driven_unchecked(from, driven(driver, &buf)) };
        }
        let mut back = Back::new(driver, buf.ptr, len)?;
        let staged = TypedBuf {
            ptr: back.host.as_mut_ptr(),
            memory: MemoryKind::Host,
            ..buf
        };
        // SAFETY: the host copy is attached to the request, which keeps it until the operation is
        // over.
        let request = unsafe { device.irecv_datatype_unchecked(from, staged)? };
        back.attach(device, request)
    }

    fn driver_of(&self, address: *const u8) -> Option<&Arc<dyn Accelerator>> {
        let drivers = &mut self.drivers.iter();
        let driver = drivers.find(|driver| driver.owns(address));
        driver.filter(|driver| !driver.is_shared(address))
    }

    fn driver(&self, kind: MemoryKind) -> Result<&Arc<dyn Accelerator>> {
        let driver = self.drivers.iter().find(|driver| driver.kind() == kind);
        driver.ok_or_else(|| {
            let what =
                format!("the buffer is in memory of kind {kind:?}, for which no driver was found");
            Error::new(ErrorKind::UnsupportedMemory, what)
                .remedy("install the device's driver library, or copy the data to the host")
        })
    }
}

/// Copies the data of a completed receive or get from the host to its destination.
struct Back {
    driver: Arc<dyn Accelerator>,
    target: *mut u8,
    host: Vec<u8>,
    /// Set for operations whose status does not count bytes: without an error, all of them are
    /// there.
    all: bool,
}

// SAFETY: the caller of the unsafe routine leaves the target to the operation until it is over,
// whichever thread makes progress.
unsafe impl Send for Back {}

impl Back {
    fn new(driver: &Arc<dyn Accelerator>, target: *mut u8, len: usize) -> Result<Self> {
        Ok(Self {
            driver: Arc::clone(driver),
            target,
            host: zeroed(len)?,
            all: false,
        })
    }

    fn attach<D: Device>(self, device: &D, request: Request) -> Result<Request> {
        if request.is_null() {
            // The operation was over at once, so there is no slot to attach to.
            let status = self.finish(Status::EMPTY);
            return match status.error {
                None => Ok(request),
                Some(kind) => Err(Error::new(kind, "the driver could not store what was read")),
            };
        }
        let completion = Completion {
            keep: Box::new(self),
            then: Some(|back, status| match back.downcast_ref::<Self>() {
                Some(back) => back.finish(status),
                None => status,
            }),
        };
        device.attach(request, completion)?;
        Ok(request)
    }

    fn finish(&self, status: Status) -> Status {
        let arrived =
            matches!(status.error, None | Some(ErrorKind::Truncated)) && !status.cancelled;
        let bytes = usize::try_from(status.bytes).unwrap_or(usize::MAX);
        let len = if self.all {
            self.host.len()
        } else {
            bytes.min(self.host.len())
        };
        if !arrived || len == 0 {
            return status;
        }
        // SAFETY: the target belongs to the operation until it is over, and has at least `len`
        // bytes.
        match unsafe { self.driver.store(self.target, self.host.as_ptr(), len) } {
            Ok(()) => status,
            Err(why) => {
                crate::log!(ERROR, why, "what was received could not be stored");
                Status {
                    error: Some(ErrorKind::UnsupportedMemory),
                    bytes: 0,
                    ..status
                }
            }
        }
    }
}

fn keep<D: Device>(device: &D, request: Request, host: Vec<u8>) -> Result<Request> {
    if !request.is_null() {
        let completion = Completion {
            keep: Box::new(host),
            then: None,
        };
        device.attach(request, completion)?;
    }
    Ok(request)
}

/// # Safety
/// `len` bytes at `source` must be readable memory of the driver's kind.
unsafe fn fetched(driver: &dyn Accelerator, source: *const u8, len: usize) -> Result<Vec<u8>> {
    let mut host = zeroed(len)?;
    if len > 0 {
        // SAFETY: the caller's promise; the host copy has `len` bytes.
        let result = unsafe { driver.fetch(source, host.as_mut_ptr(), len) };
        if let Err(why) = result {
            // The driver may not have stopped writing.
            std::mem::forget(host);
            let what = format!(
                "{len} bytes of {:?} memory could not be read: {why}",
                driver.kind()
            );
            return Err(Error::new(ErrorKind::UnsupportedMemory, what)
                .remedy("look whether the pointer is the device's, and its driver in order"));
        }
    }
    Ok(host)
}

fn zeroed(len: usize) -> Result<Vec<u8>> {
    let mut host = Vec::new();
    host.try_reserve_exact(len).map_err(|_| {
        let what = format!("there is no memory on the host for a copy of {len} bytes");
        Error::new(ErrorKind::Exhausted, what).remedy("send less at once")
    })?;
    host.resize(len, 0);
    Ok(host)
}

fn driven(driver: &Arc<dyn Accelerator>, buf: &TypedBuf<'_>) -> DrivenBuf {
    DrivenBuf {
        driver: Arc::clone(driver),
        ptr: buf.ptr,
        count: buf.count,
        layout: buf.layout.clone(),
    }
}

/// Bytes of a buffer, which must not have gaps.
fn contiguous(buf: &TypedBuf<'_>) -> Result<usize> {
    let size = buf.layout.size().checked_mul(buf.count);
    match size.filter(|_| buf.layout.is_contiguous()) {
        Some(size) => Ok(size),
        None => Err(unsupported(buf.memory, "a layout with gaps in it")),
    }
}

/// The error for memory that is not the host's and cannot be used.
pub(crate) fn unsupported(memory: MemoryKind, what: &str) -> Error {
    let what = format!("{what} cannot be served: the buffer is in memory of kind {memory:?}");
    Error::new(ErrorKind::UnsupportedMemory, what).remedy(
        "send contiguous data of a device through portolan_core::staging, or copy it to the host first",
    )
}

#[cfg(test)]
mod tests;
