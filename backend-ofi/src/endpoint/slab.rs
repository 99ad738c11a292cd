//! Memory for packets: mapped once, registered where the provider requires it, cut into equal
//! parts.

use std::ffi::c_void;
use std::ptr::NonNull;

use libfabric_sys::{FI_READ, FI_RECV, FI_SEND, FI_WRITE, fid_mr};

use crate::endpoint::objects::Fid;
use crate::endpoint::{Domain, desc};

/// Parts begin at multiples of this, so that no two share a cache line.
const LINE: usize = 64;

/// Memory cut into parts of one size.
#[derive(Debug)]
pub(crate) struct Slab {
    /// Dropped first: a region ends before its memory.
    region: Option<Fid<fid_mr>>,
    map: Map,
    part: usize,
}

#[derive(Debug)]
struct Map {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory, which belongs to the owner of the map.
unsafe impl Send for Map {}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `Slab::new` with this length; nothing uses it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

impl Slab {
    /// Maps `count` parts of at least `part` bytes. `key` is for providers that do not choose keys
    /// themselves, and must not be used twice in a domain.
    pub(crate) fn new(
        domain: &Domain,
        count: usize,
        part: usize,
        key: u64,
    ) -> Result<Self, String> {
        let part = part.next_multiple_of(LINE);
        let len = count * part;
        // SAFETY: a new mapping, which depends on nothing.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let failed = || format!("{len} bytes of memory for packets: {}", last_error());
        if start == libc::MAP_FAILED {
            return Err(failed());
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(failed)?;
        let map = Map { start, len };
        let region = domain.register_local(
            start.as_ptr(),
            len,
            FI_SEND | FI_RECV | FI_READ | FI_WRITE,
            key,
        )?;
        Ok(Self { region, map, part })
    }

    /// The start of a part.
    #[inline]
    pub(crate) fn part(&self, index: usize) -> *mut u8 {
        debug_assert!((index + 1) * self.part <= self.map.len);
        // SAFETY: inside the mapping, because indices are below the count.
        unsafe { self.map.start.as_ptr().add(index * self.part) }
    }

    /// Ends the registration: nothing is sent from the slab or received into it any more.
    pub(crate) fn unregister(&mut self) {
        self.region = None;
    }

    /// Whether the provider required registration.
    #[cfg(test)]
    pub(crate) fn is_registered(&self) -> bool {
        self.region.is_some()
    }

    /// Bytes of one part.
    pub(crate) fn part_len(&self) -> usize {
        self.part
    }

    /// Bytes of all parts.
    pub(crate) fn len(&self) -> usize {
        self.map.len
    }

    /// The descriptor for operations on this memory.
    #[inline]
    pub(crate) fn desc(&self) -> *mut c_void {
        desc(self.region.as_ref())
    }
}

fn last_error() -> std::io::Error {
    std::io::Error::last_os_error()
}
