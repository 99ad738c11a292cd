//! libfabric objects that are closed when they are dropped.

use std::ptr::NonNull;

use libfabric_sys::{
    Library, fi_close, fid, fid_av, fid_cq, fid_domain, fid_ep, fid_fabric, fid_mr,
};

/// A class of objects: a structure that begins with a `fid`.
pub(crate) trait Class {
    /// Name, for messages.
    const NAME: &'static str;
}

macro_rules! classes {
    ($($class:ident $name:literal,)*) => {$(
        impl Class for $class {
            const NAME: &'static str = $name;
        }
        // Every class of libfabric begins with its `fid` (fabric.h).
        const _: () = assert!(std::mem::offset_of!($class, fid) == 0);
    )*};
}

classes! {
    fid_fabric "fabric",
    fid_domain "domain",
    fid_cq "completion queue",
    fid_av "address vector",
    fid_ep "endpoint",
    fid_mr "memory region",
}

/// An open object. Objects that were opened from it must be closed first: fields are declared in
/// that order.
pub(crate) struct Fid<C: Class>(NonNull<C>);

// SAFETY: libfabric's objects belong to no thread. They are used by one thread at a time, under the
// engine's lock, except for the descriptors in a bell, which the system protects.
unsafe impl<C: Class> Send for Fid<C> {}

// SAFETY: a shared object gives access to nothing but its address. Using that is `unsafe`, and
// happens on one thread at a time.
unsafe impl<C: Class> Sync for Fid<C> {}

impl<C: Class> Fid<C> {
    /// Opens an object: `open` writes its address and returns libfabric's result.
    pub(crate) fn open(
        library: &Library,
        open: impl FnOnce(*mut *mut C) -> i32,
    ) -> Result<Self, String> {
        let mut object = std::ptr::null_mut();
        let result = open(&raw mut object);
        let failed = |why: &str| format!("opening the {} failed: {why}", C::NAME);
        if result != 0 {
            return Err(failed(&library.fi_strerror(i64::from(result))));
        }
        NonNull::new(object)
            .map(Self)
            .ok_or_else(|| failed("the provider gave none"))
    }

    /// Closes the object. If libfabric refuses, returns the object and libfabric's result.
    pub(crate) fn close(self) -> Result<(), (Self, i32)> {
        // SAFETY: open until now, and not used afterwards, unless it stays open.
        match unsafe { fi_close(self.fid()) } {
            0 => {
                std::mem::forget(self);
                Ok(())
            }
            code => Err((self, code)),
        }
    }

    /// The object, for libfabric's functions.
    #[inline(always)]
    pub(crate) fn get(&self) -> *mut C {
        self.0.as_ptr()
    }

    /// The object as a `fid`, with which every object begins.
    pub(crate) fn fid(&self) -> *mut fid {
        self.0.as_ptr().cast()
    }
}

impl<C: Class> Drop for Fid<C> {
    fn drop(&mut self) {
        // SAFETY: open until now; objects that depend on it have been dropped before.
        let result = unsafe { fi_close(self.fid()) };
        if result != 0 {
            portolan_core::log!(WARN, result, "closing the {} failed", C::NAME);
        }
    }
}

impl<C: Class> std::fmt::Debug for Fid<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {:p}", C::NAME, self.0)
    }
}
