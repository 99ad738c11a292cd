//! The context that libfabric hands back with a completion.

use std::ffi::c_void;
use std::ptr::NonNull;

use libfabric_sys::fi_context2;

/// What an operation was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A packet from the small slots.
    Short,
    /// A packet from the large slots.
    Bulk,
    /// A receive buffer.
    Receive,
    /// A read of a piece of a peer's buffer.
    Read,
    /// An operation that the provider matches.
    Tagged,
    /// An operation on memory that a peer has registered.
    Remote,
}

/// The space that a provider may use while an operation is under way, and a description of the
/// operation.
#[repr(C)]
pub(crate) struct Op {
    /// The provider's (`FI_CONTEXT`, `FI_CONTEXT2`).
    scratch: fi_context2,
    pub(crate) kind: Kind,
    /// Its index among those of its kind.
    pub(crate) index: u32,
    /// The peer that it concerns; meaningless for receives.
    pub(crate) peer: u32,
    /// Bytes.
    pub(crate) len: u32,
}

/// The operations of a kind. They do not move, because the provider has their addresses.
#[derive(Debug)]
pub(crate) struct Ops(NonNull<[Op]>);

// SAFETY: the scratch belongs to the provider, which belongs to no thread; the rest is plain data.
unsafe impl Send for Ops {}

impl Ops {
    /// `count` operations of a kind, numbered.
    pub(crate) fn new(kind: Kind, count: usize) -> Self {
        Self::from(kind, 0, count)
    }

    /// `count` operations of a kind, numbered from `first` on.
    pub(crate) fn from(kind: Kind, first: usize, count: usize) -> Self {
        let op = |index| Op {
            // SAFETY: pointers without meaning, for which null is a value.
            scratch: unsafe { std::mem::zeroed() },
            kind,
            index,
            peer: 0,
            len: 0,
        };
        let all: Box<[Op]> = (first as u32..(first + count) as u32).map(op).collect();
        Self(NonNull::from(Box::leak(all)))
    }

    /// One operation of a kind, with this number.
    pub(crate) fn one(kind: Kind, number: usize) -> Self {
        let ops = Self::new(kind, 1);
        // SAFETY: just made, and nothing else has it.
        unsafe { (*ops.at(0)).index = number as u32 };
        ops
    }

    fn at(&self, index: usize) -> *mut Op {
        assert!(index < self.0.len(), "there is no operation {index}");
        // SAFETY: inside the allocation, as was just checked.
        unsafe { self.0.as_ptr().cast::<Op>().add(index) }
    }

    /// The operation's context for libfabric's functions.
    #[inline]
    pub(crate) fn context(&self, index: usize) -> *mut c_void {
        self.at(index).cast()
    }

    /// Notes what operation `index` is about to do.
    #[inline]
    pub(crate) fn note(&mut self, index: usize, peer: u32, len: usize) {
        let op = self.at(index);
        // SAFETY: these fields are this crate's; the provider only knows of the scratch.
        unsafe {
            (*op).peer = peer;
            (*op).len = len as u32;
        }
    }

    /// The peer and the bytes that were noted.
    #[inline]
    pub(crate) fn noted(&self, index: usize) -> (u32, usize) {
        let op = self.at(index);
        // SAFETY: as above.
        unsafe { ((*op).peer, (*op).len as usize) }
    }

    /// The kind and index in a completion's context.
    ///
    /// # Safety
    /// It must come from [`context`](Self::context) of operations that are still there.
    #[inline]
    pub(crate) unsafe fn of(context: *mut c_void) -> (Kind, usize) {
        let op = context.cast::<Op>();
        // SAFETY: the caller's promise.
        unsafe { ((*op).kind, (*op).index as usize) }
    }
}

impl Drop for Ops {
    fn drop(&mut self) {
        // SAFETY: leaked by `new`; the endpoint is closed, so the provider no longer uses it.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
