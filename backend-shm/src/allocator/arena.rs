//! The arena of this process: which allocations it takes, and its lock.

use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use dlmalloc::Dlmalloc;
use portolan_core::comm::NoUnwind;

use super::fork;
use super::growth::Growth;
use crate::segment::Segment;
use crate::sync::Ordering::{Acquire, Relaxed, Release};

/// Blocks begin at a cache line, so that no two messages share one.
const ALIGNMENT: usize = 64;

/// After so many long blocks are freed, extents that are free as a whole are given back. (Free
/// space at the end of the last one is given back at once.)
const RELEASE: usize = 16;

/// After so many bytes are cut off a block, free space is given back, as `dlmalloc` does by itself
/// when blocks are freed.
const MUCH: usize = 2 << 20;

/// Values of [`SHORTEST`] that are no lengths.
const UNUSED: usize = 0;
const NONE: usize = usize::MAX;

/// Length of the shortest allocation that the arena takes. [`UNUSED`] until the program's allocator
/// asks for the first time, [`NONE`] until the process has joined a job, and in its children.
static SHORTEST: AtomicUsize = AtomicUsize::new(UNUSED);
/// Where the segment is mapped, and how much of it. `LEN` is written last.
static BASE: AtomicUsize = AtomicUsize::new(0);
static LEN: AtomicUsize = AtomicUsize::new(0);

static SEGMENT: OnceLock<Arc<Segment>> = OnceLock::new();
static ARENA: Mutex<Option<Dlmalloc<Growth>>> = Mutex::new(None);

/// Bytes of extents that the arena has.
pub(super) static HELD: AtomicU64 = AtomicU64::new(0);
/// Allocations for which the segment had no room.
static REFUSALS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread is in [`aside`].
    static ASIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the arena takes an allocation of `size` bytes.
#[inline]
pub(super) fn takes(size: usize) -> bool {
    // SYNC: Acquire pairs with the Release in `attach`, which publishes the arena.
    let shortest = SHORTEST.load(Acquire);
    if shortest == UNUSED {
        // Relaxed: it says only that a program has such an allocator.
        let _ = SHORTEST.compare_exchange(UNUSED, NONE, Relaxed, Relaxed);
        return false;
    }
    size >= shortest
}

/// Whether a block lies in the segment of the arena.
#[inline]
pub(super) fn holds(block: *mut u8) -> bool {
    // SYNC: Acquire pairs with the Release in `attach`: who sees the length sees the base.
    let len = LEN.load(Acquire);
    block.addr().wrapping_sub(BASE.load(Relaxed)) < len
}

/// Calls `does`; what it allocates comes from the allocator underneath.
///
/// Whoever holds a lock that the arena takes does what it does in here: an allocation would wait
/// for a lock that its own thread holds.
pub(crate) fn aside<R>(does: impl FnOnce() -> R) -> R {
    /// Ends it, even if `does` panics.
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            ASIDE.set(self.0);
        }
    }
    let _back = Back(ASIDE.replace(true));
    does()
}

/// Whether this thread is in [`aside`].
pub(crate) fn is_aside() -> bool {
    ASIDE.get()
}

/// Gives the arena a segment, if the program has such an allocator and no segment yet. Allocations
/// of at least `shortest` bytes come from there from now on.
pub(crate) fn attach(segment: &Arc<Segment>, shortest: usize) {
    if SHORTEST.load(Relaxed) != NONE || SEGMENT.set(Arc::clone(segment)).is_err() {
        return;
    }
    if !fork::prepare() {
        return;
    }
    let (base, len) = segment.range();
    let mut allocator = Dlmalloc::new_with_allocator(Growth::new(Arc::clone(segment)));
    allocator.set_max_release_check_rate(RELEASE);
    *arena() = Some(allocator);
    BASE.store(base, Relaxed);
    // SYNC: publishes the base to `holds`.
    LEN.store(len, Release);
    // SYNC: publishes the arena to `takes`.
    SHORTEST.store(shortest, Release);
}

/// Bytes of `segment` that the arena holds, for allocations and for later ones.
pub(crate) fn held(segment: &Arc<Segment>) -> u64 {
    let ours = SEGMENT.get().is_some_and(|own| Arc::ptr_eq(own, segment));
    if ours { HELD.load(Relaxed) } else { 0 }
}

/// The number of allocations for which the segment had no room.
pub(crate) fn refusals() -> u64 {
    REFUSALS.load(Relaxed)
}

/// In a child that has been forked: the arena is its parent's. The child allocates elsewhere, and
/// what it frees stays as it is.
pub(super) fn leave_to_parent() {
    SHORTEST.store(NONE, Relaxed);
    if let Some(segment) = SEGMENT.get() {
        segment.become_private();
    }
}

fn arena() -> MutexGuard<'static, Option<Dlmalloc<Growth>>> {
    ARENA.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets the arena work, unless this thread is in [`aside`]. A panic would unwind into code that
/// allocates, which must not be.
fn work<R>(does: impl FnOnce(&mut Dlmalloc<Growth>) -> R) -> Option<R> {
    if is_aside() || fork::is_child() {
        return None;
    }
    NoUnwind::during("the allocator of shared vectors", || {
        aside(|| arena().as_mut().map(does))
    })
}

fn allocate(does: impl FnOnce(&mut Dlmalloc<Growth>) -> *mut u8) -> Option<NonNull<u8>> {
    let block = NonNull::new(work(does)?);
    if block.is_none() {
        REFUSALS.fetch_add(1, Relaxed);
    }
    block
}

#[cold]
pub(super) fn alloc(layout: Layout) -> Option<NonNull<u8>> {
    // SAFETY: the size is not zero, because it is that of a long allocation, and the alignment is a
    // power of two.
    allocate(|arena| unsafe { arena.malloc(layout.size(), layout.align().max(ALIGNMENT)) })
}

/// Makes a block shorter, where it is. `false` leaves it as it was.
///
/// # Safety
/// The block is one of the arena with this layout, and nobody else uses it; `size` is not more than
/// the layout's.
#[cold]
pub(super) unsafe fn shrink(block: *mut u8, layout: Layout, size: usize) -> bool {
    debug_assert!(size <= layout.size());
    let shrunk = work(|arena| {
        // SAFETY: the caller's promise. A block that gets shorter stays where it is, and so keeps
        // its alignment.
        let at = unsafe { arena.c_realloc(block, size) };
        if layout.size() - size >= MUCH {
            // SAFETY: the arena is this process's, and locked.
            unsafe { arena.trim(0) };
        }
        at
    });
    shrunk.is_some_and(|at| std::ptr::eq(at, block))
}

/// # Safety
/// The block is one of the arena with this layout, and nobody uses it.
#[cold]
pub(super) unsafe fn free(block: *mut u8, layout: Layout) {
    if fork::is_child() {
        return;
    }
    let align = layout.align().max(ALIGNMENT);
    // SAFETY: the caller's promise; blocks are made with this alignment.
    let freed = work(|arena| unsafe { arena.free(block, layout.size(), align) });
    // A block that is freed aside stays as it is; nothing that works there has any.
    debug_assert!(freed.is_some());
}

/// Gives the memory that is kept for later allocations to the system.
pub(crate) fn trim() {
    work(|arena| {
        // SAFETY: the arena is this process's, and locked.
        unsafe { arena.trim(0) };
        arena.allocator().empty_all();
    });
}
