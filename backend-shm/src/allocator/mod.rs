//! An allocator for programs whose long vectors other ranks may read where they are.
//!
//! ```text
//! SharedAllocator ── short, or no job ──▶ the allocator underneath (the system's)
//!       └── long ──▶ arena: dlmalloc ──▶ growth: extents of the segment
//! ```
//!
//! There is one arena per process, in the segment of the first job that the process joins. It stays
//! as long as the process, because a vector may outlive its job.
//!
//! What the arena calls may allocate (`segment` reads files of the system), and so may whoever
//! holds the locks that the arena takes. Such allocations have to come from the allocator
//! underneath: see [`aside`].

mod arena;
mod fork;
mod growth;

use std::alloc::{GlobalAlloc, Layout, System};

pub(crate) use arena::{aside, attach, held, is_aside, refusals, trim};

/// A global allocator whose long allocations lie in memory that the ranks of a node share, so that
/// receivers copy messages from there once, as from
/// [`Comm::alloc`](../portolan/struct.Comm.html#method.alloc).
///
/// Processes on one node otherwise copy a message twice: the sender into memory that both see, the
/// receiver out of it. With these two lines in a program every vector that is long enough is such
/// memory itself:
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: portolan_shm::SharedAllocator = portolan_shm::SharedAllocator::new();
/// # fn main() {}
/// ```
///
/// Allocations of `PORTOLAN_SHM_ALLOC_MIN` bytes (8 KiB) and more are shared, those of vectors,
/// boxes, tables and all else, if they are made after the process has joined its job. Shorter ones,
/// earlier ones, and those for which the segment has no room come from the allocator underneath:
/// the system's, or the one given to [`over`]. It is only the place of the values that differs:
/// they are the program's, and other ranks touch them only in messages. Nothing is shared if the
/// ranks are threads, if they use no shared memory, or in a second job of the same process.
///
/// What to expect:
/// - A blocking send of more than 4 KiB from such memory returns when the message has been received
///   ([`Comm::alloc`](../portolan/struct.Comm.html#method.alloc) says what follows from that).
/// - Such memory is there when an allocation returns, not page by page as it is used: a vector with
///   room for much more than its values takes the memory for all of it. If there is not so much,
///   the allocation comes from the allocator underneath. Of what has been freed, 64 MiB and some
///   more are kept for later allocations; the rest goes back to the system.
/// - All allocations from the arena take one lock, which is why short ones do not come from it. To
///   grow a block is to copy it; to shrink it is not.
/// - Memory is placed where the allocating thread runs, not where it is first used, and has no huge
///   pages unless the system has them for shared memory
///   (`/sys/kernel/mm/transparent_hugepage/shmem_enabled`).
/// - Memory that a process still has at its end stays in use until all processes of the job on this
///   node have ended.
/// - A wild write of another rank's process can reach these values.
/// - A process that this one forks has its own copy of the values: what it writes does not reach
///   this process. But what this process writes, until the child writes to the same page, appears
///   in the child. So a child that does not execute another program (as `std::process::Command`
///   does) should not use what was long before the fork. If the system refuses the copy (strict
///   accounting of memory), the child can only read it. (A process made by a bare `clone`, past the
///   C library, has no copy.)
///
/// [`over`]: Self::over
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedAllocator<A = System> {
    underneath: A,
}

impl SharedAllocator {
    /// Over the system's allocator.
    #[must_use]
    pub const fn new() -> Self {
        Self::over(System)
    }
}

impl<A> SharedAllocator<A> {
    /// Over another allocator, which serves what is not shared.
    ///
    /// ```
    /// use std::alloc::System; // or one from another crate
    ///
    /// #[global_allocator]
    /// static ALLOCATOR: portolan_shm::SharedAllocator = portolan_shm::SharedAllocator::over(System);
    /// # fn main() {}
    /// ```
    #[must_use]
    pub const fn over(underneath: A) -> Self {
        Self { underneath }
    }
}

// SAFETY: each block comes from the arena or from the allocator underneath, both of which keep the
// contract, and goes back to the one that it came from: the arena knows its addresses.
unsafe impl<A: GlobalAlloc> GlobalAlloc for SharedAllocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if arena::takes(layout.size())
            && let Some(block) = arena::alloc(layout)
        {
            return block.as_ptr();
        }
        // SAFETY: the caller's promise.
        unsafe { self.underneath.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if arena::takes(layout.size())
            && let Some(block) = arena::alloc(layout)
        {
            // Done here, where no other thread waits for it.
            // SAFETY: the block is new, and so long.
            unsafe { block.as_ptr().write_bytes(0, layout.size()) };
            return block.as_ptr();
        }
        // SAFETY: the caller's promise.
        unsafe { self.underneath.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if arena::holds(block) {
            // SAFETY: the caller's promise; no other allocator has addresses in the segment.
            unsafe { arena::free(block, layout) }
        } else {
            // SAFETY: the caller's promise; the block did not come from the arena.
            unsafe { self.underneath.dealloc(block, layout) }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (held, takes) = (arena::holds(block), arena::takes(size));
        if !held && !takes {
            // SAFETY: the caller's promise; the block did not come from the arena.
            return unsafe { self.underneath.realloc(block, layout, size) };
        }
        // SAFETY: the caller's promise.
        if held && takes && size <= layout.size() && unsafe { arena::shrink(block, layout, size) } {
            return block;
        }
        // SAFETY: the caller promises that the size is possible with this alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let shared = takes.then(|| arena::alloc(wanted)).flatten();
        let moved = match shared {
            Some(moved) => moved.as_ptr(),
            // SAFETY: the caller's promise; the block did not come from the arena.
            None if !held => return unsafe { self.underneath.realloc(block, layout, size) },
            // SAFETY: the caller's promise.
            None => unsafe { self.underneath.alloc(wanted) },
        };
        if !moved.is_null() {
            // SAFETY: both blocks have so many bytes, and are different ones.
            unsafe { portolan_core::lines::copy(block, moved, layout.size().min(size)) };
            // SAFETY: the caller's promise; nobody uses the old block any more.
            unsafe { self.dealloc(block, layout) };
        }
        moved
    }
}
