//! Regions, puts and gets with accelerator memory.

use std::collections::VecDeque;
use std::sync::Arc;

use portolan_datatype::{Layout, Primitive};

use super::{Back, DrivenBuf, Staging, fetched, keep};
use crate::buffer::{ContigBuf, MemoryKind};
use crate::device::{Caps, Device, ProcId, Region, RegionKey};
use crate::error::{ErrorKind, Result};
use crate::request::Request;

/// Bytes per piece of a long operation.
const PIECE: usize = 1 << 20;
/// Most pieces under way at once.
const UNDER_WAY: usize = 3;

impl Staging {
    /// Lets peers access memory of any kind, by [`register_region`](Device::register_region) or
    /// [`register_driven`](Device::register_driven).
    ///
    /// # Errors
    /// [`UnsupportedMemory`](ErrorKind::UnsupportedMemory) if there is no driver, or the device
    /// does not support such regions.
    ///
    /// # Safety
    /// As for [`register_region`](Device::register_region), with memory of that kind.
    pub unsafe fn register<D: Device>(&self, device: &D, memory: &ContigBuf) -> Result<Region> {
        if memory.memory == MemoryKind::Host {
            // SAFETY: the caller's promise.
            return unsafe { device.register_region(memory.ptr, memory.len) };
        }
        // SAFETY: the caller's promise.
        unsafe { device.register_driven(self.bytes(memory)?) }
    }

    /// Writes bytes from memory of any kind to a peer's region, and returns when they are there.
    /// Long operations go in pieces. Where they are copied through the host, one piece is copied
    /// while another is under way.
    ///
    /// # Errors
    /// As [`put`](Self::put). Some of the bytes may have been written.
    ///
    /// # Safety
    /// As for [`put`](Self::put), until this returns.
    pub unsafe fn put_all<D: Device>(
        &self,
        device: &D,
        peer: ProcId,
        key: &RegionKey,
        offset: u64,
        source: &ContigBuf,
    ) -> Result<()> {
        // SAFETY: the caller's promise, for each piece.
        let put = |at: u64, piece: &ContigBuf| unsafe {
            self.put(device, peer, key, offset.saturating_add(at), piece)
        };
        in_pieces(device, source, put)?;
        device.flush(peer)
    }

    /// Reads bytes of a peer's region into memory of any kind, and returns when they are there, in
    /// pieces like [`put_all`](Self::put_all).
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// # Safety
    /// As for [`get`](Self::get), until this returns.
    pub unsafe fn get_all<D: Device>(
        &self,
        device: &D,
        peer: ProcId,
        key: &RegionKey,
        offset: u64,
        target: &ContigBuf,
    ) -> Result<()> {
        // SAFETY: the caller's promise, for each piece.
        let get = |at: u64, piece: &ContigBuf| unsafe {
            self.get(device, peer, key, offset.saturating_add(at), piece)
        };
        in_pieces(device, target, get)
    }

    /// Starts to write bytes from memory of any kind to a peer's region.
    ///
    /// # Errors
    /// As [`isend`](Self::isend), and those of [`put`](Device::put).
    ///
    /// # Safety
    /// As for [`put`](Device::put), with memory of that kind.
    pub unsafe fn put<D: Device>(
        &self,
        device: &D,
        peer: ProcId,
        key: &RegionKey,
        offset: u64,
        source: &ContigBuf,
    ) -> Result<Request> {
        let (ptr, len) = (source.ptr, source.len);
        if source.memory == MemoryKind::Host {
            // SAFETY: the caller's promise.
            return unsafe { device.put(peer, key, offset, ptr, len) };
        }
        if device.attributes().caps.contains(Caps::DRIVEN) {
            // SAFETY: the caller's promise.
            let put = unsafe { device.put_driven(peer, key, offset, self.bytes(source)?) };
            if !needs_copy(&put) {
                return put;
            }
        }
        // SAFETY: the caller vouches for `len` bytes of that memory.
        let host = unsafe { fetched(&**self.driver(source.memory)?, ptr, len)? };
        // SAFETY: the host copy is attached to the request, which keeps it until the operation is
        // over.
        let request = unsafe { device.put(peer, key, offset, host.as_ptr(), len)? };
        keep(device, request, host)
    }

    /// Starts to read bytes of a peer's region into memory of any kind.
    ///
    /// # Errors
    /// As [`irecv`](Self::irecv), and those of [`get`](Device::get).
    ///
    /// # Safety
    /// As for [`get`](Device::get), with memory of that kind.
    pub unsafe fn get<D: Device>(
        &self,
        device: &D,
        peer: ProcId,
        key: &RegionKey,
        offset: u64,
        target: &ContigBuf,
    ) -> Result<Request> {
        let (ptr, len) = (target.ptr, target.len);
        if target.memory == MemoryKind::Host {
            // SAFETY: the caller's promise.
            return unsafe { device.get(peer, key, offset, ptr, len) };
        }
        if device.attributes().caps.contains(Caps::DRIVEN) {
            // SAFETY: the caller's promise.
            let got = unsafe { device.get_driven(peer, key, offset, self.bytes(target)?) };
            if !needs_copy(&got) {
                return got;
            }
        }
        let mut back = Back::new(self.driver(target.memory)?, ptr, len)?;
        back.all = true;
        // SAFETY: the host copy is attached to the request, which keeps it until the operation is
        // over.
        let request = unsafe { device.get(peer, key, offset, back.host.as_mut_ptr(), len)? };
        back.attach(device, request)
    }

    fn bytes(&self, buf: &ContigBuf) -> Result<DrivenBuf> {
        Ok(DrivenBuf {
            driver: Arc::clone(self.driver(buf.memory)?),
            ptr: buf.ptr,
            count: buf.len,
            layout: Layout::primitive(Primitive::U8),
        })
    }
}

/// Whether the device reports that it needs a copy through the host for this.
fn needs_copy(started: &Result<Request>) -> bool {
    let kind = started.as_ref().err().map(crate::Error::kind);
    kind == Some(ErrorKind::UnsupportedMemory)
}

/// Runs an operation on each piece of a buffer, a few at a time. When this returns, none is under
/// way.
fn in_pieces<D: Device>(
    device: &D,
    buf: &ContigBuf,
    start: impl Fn(u64, &ContigBuf) -> Result<Request>,
) -> Result<()> {
    // Checks that the end is inside of the region before anything is changed.
    let end = ContigBuf {
        ptr: buf.ptr,
        len: 0,
        ..*buf
    };
    device.wait(start(buf.len as u64, &end)?)?;
    let mut under_way = VecDeque::new();
    let mut outcome = Ok(());
    let mut at = 0;
    loop {
        let len = (buf.len - at).min(PIECE);
        let piece = ContigBuf {
            ptr: buf.ptr.wrapping_add(at),
            len,
            ..*buf
        };
        match start(at as u64, &piece) {
            Ok(request) => under_way.push_back(request),
            Err(error) => outcome = Err(error),
        }
        at += len;
        let over = at == buf.len || outcome.is_err();
        while under_way.len() >= UNDER_WAY || (over && !under_way.is_empty()) {
            let ended = under_way.pop_front().map(|request| device.wait(request));
            if let Some(Err(error)) = ended {
                outcome = outcome.and(Err(error));
            }
        }
        if over || outcome.is_err() {
            break;
        }
    }
    for request in under_way {
        let _ = device.wait(request);
    }
    outcome
}
