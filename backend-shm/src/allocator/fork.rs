//! Processes that this one forks: they are no ranks, and the arena stays their parent's.
//!
//! The segment is mapped shared, so a child would write into its parent's vectors, and both would
//! use the same free lists. A child therefore maps the segment as its own copy first of all, and
//! neither allocates from the arena nor frees what lies there.

use std::sync::Once;
use std::sync::atomic::AtomicBool;

use super::arena;
use crate::sync::Ordering::Relaxed;

/// Set in a child.
static CHILD: AtomicBool = AtomicBool::new(false);

/// Whether this process is a forked child of the one that has the arena.
#[inline]
pub(super) fn is_child() -> bool {
    // Relaxed: it was stored by the only thread that a child begins with.
    CHILD.load(Relaxed)
}

/// Sees to it that a child begins in [`child`]. Returns `false` if the system has no room for that.
pub(super) fn prepare() -> bool {
    static ONCE: Once = Once::new();
    static READY: AtomicBool = AtomicBool::new(false);
    ONCE.call_once(|| {
        // SAFETY: `child` makes only system calls and stores to atomics, as it must where other
        // threads may hold any lock.
        let refused = unsafe { libc::pthread_atfork(None, None, Some(child)) };
        READY.store(refused == 0, Relaxed);
    });
    READY.load(Relaxed)
}

unsafe extern "C" fn child() {
    // A child of a child inherits what is private already, with what its parent has written.
    if !CHILD.swap(true, Relaxed) {
        arena::leave_to_parent();
    }
}
