//! The atomics and cells of the lock-free structures: those of std, or loom's for model checking.
//!
//! `ring`, `inbox` and `bell` use nothing but this module and each other, so that
//! `RUSTFLAGS="--cfg loom"` builds and explores them alone.

#[cfg(not(loom))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence, fence};

    /// A cell that is read and written through raw pointers. Loom's has the same methods.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        #[inline(always)]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

#[cfg(loom)]
mod real {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    /// Does nothing: loom does not model the reordering that a compiler fence prevents.
    pub(crate) fn compiler_fence(_: Ordering) {}
}

pub(crate) use real::*;
