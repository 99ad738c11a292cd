//! One-sided primitives.
//!
//! The engine implements them by packets, which the owner's progress serves. SHMEM's own puts and
//! gets could not implement them: the memory of a region belongs to the program, which loads and
//! stores it through pointers as it likes, whereas the machine's memory is inside the emulator,
//! where no pointer leads. (A put could be copied out when its owner makes a call. But a get would
//! have to see stores of which the machine was not told.) So `Caps::DIRECT` is not set, and an
//! access costs the virtual time of its packets. Programs that want the machine's own transfers use
//! [`Shmem`](crate::Shmem).

use std::ptr::NonNull;

use portolan_core::device::{AtomicOp, AtomicWidth, Region, RegionKey};
use portolan_core::{Device, ProcId, Request, Result};

use crate::device::T3e;

impl T3e {
    pub(crate) fn region_of(&self, peer: ProcId, key: &RegionKey) -> Option<NonNull<u8>> {
        self.engine().direct(peer, key)
    }

    pub(crate) fn new_region(&self, len: usize) -> Result<Region> {
        self.engine().alloc_region(len)
    }

    /// # Safety
    /// As [`Device::register_region`].
    pub(crate) unsafe fn add_region(&self, ptr: *mut u8, len: usize) -> Result<Region> {
        // SAFETY: the caller's promise.
        unsafe { self.engine().register_region(ptr, len) }
    }

    /// # Safety
    /// As [`Device::free_region`].
    pub(crate) unsafe fn remove_region(&self, region: Region) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.engine().free_region(region) }
    }

    /// # Safety
    /// As [`Device::put`].
    pub(crate) unsafe fn put_packets(
        &self,
        peer: ProcId,
        key: &RegionKey,
        offset: u64,
        source: *const u8,
        len: usize,
    ) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { self.engine().put(peer, key, offset, source, len) }
    }

    /// # Safety
    /// As [`Device::get`].
    pub(crate) unsafe fn get_packets(
        &self,
        peer: ProcId,
        key: &RegionKey,
        offset: u64,
        target: *mut u8,
        len: usize,
    ) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { self.engine().get(peer, key, offset, target, len) }
    }

    /// # Safety
    /// As [`Device::atomic`].
    pub(crate) unsafe fn atomic_packet(
        &self,
        peer: ProcId,
        key: &RegionKey,
        offset: u64,
        width: AtomicWidth,
        op: AtomicOp,
        fetched: *mut u64,
    ) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { self.engine().atomic(peer, key, offset, width, op, fetched) }
    }
}
