//! What a rank shows in an operation of two ranks, and what it takes.

use portolan_core::buffer::TypedBuf;
use portolan_core::{Device, Result};
use portolan_datatype::{Elementwise, Layout, Op};

use crate::args::Operation;
use crate::direct::blocking::steps::{Steps, Way};
use crate::direct::blocking::{bcast, exchange};
use crate::direct::boards::board::{IN_CELL, Kind};
use crate::direct::data::{Items, Stream, copy_bytes};

/// One rank's part.
pub(super) trait Part {
    /// What its header says.
    const SHOWN: Kind;
    /// Whether the other rank waits for it.
    const WAKES: bool;

    /// Bytes of data, which fit in a cell.
    fn len(&self) -> usize;

    /// The layout of the items, if there are any.
    fn layout(&self) -> Option<&Layout>;

    /// Writes the data that the other rank wants.
    ///
    /// # Safety
    /// The buffers are the operation's; `to` is writable for [`len`](Self::len) bytes.
    unsafe fn write(&self, to: *mut u8);
}

/// The part of a rank that waits for the other.
pub(super) trait Awaits: Part {
    /// What the header of the other rank's part says.
    const AWAITED: Kind;
    /// Whether both ranks show their parts at about the same time, so that a rank does well to
    /// pause before it looks.
    const SETTLES: bool;

    /// Takes the other rank's data. This rank is rank `me`.
    ///
    /// # Safety
    /// The buffers are the operation's; `theirs` is readable for [`len`](Part::len) bytes.
    unsafe fn take(&self, me: u32, theirs: *const u8);

    /// Ends a blocking operation in which this rank has shown its part, whatever the other shows.
    ///
    /// # Safety
    /// The buffers are the operation's.
    unsafe fn finish<D: Device>(&self, steps: Steps<'_, D>) -> Result<Way>;
}

/// What is done with a part.
pub(super) trait Visitor {
    type Outcome;

    /// For a part that only shows something.
    ///
    /// # Safety
    /// The part's buffers are the operation's.
    unsafe fn shows<P: Part>(self, part: P) -> Option<Self::Outcome>;

    /// For one that also waits.
    ///
    /// # Safety
    /// As [`shows`](Self::shows).
    unsafe fn awaits<P: Awaits>(self, part: P) -> Option<Self::Outcome>;
}

/// Passes the part of rank `me` in an operation to the visitor; `None` if the operation is not one
/// of these.
///
/// # Safety
/// As [`crate::run()`].
#[inline(always)]
pub(super) unsafe fn part<V: Visitor>(
    operation: &Operation<'_>,
    me: u32,
    visitor: V,
) -> Option<V::Outcome> {
    // SAFETY: from the caller, for all of it.
    unsafe {
        match operation {
            Operation::Barrier => visitor.awaits(Barrier),
            Operation::Bcast { data, root } if *root < 2 => {
                let len = len_of(data)?;
                match *root == me {
                    true => visitor.shows(Moved::<true> { data, len }),
                    false => visitor.awaits(Moved::<false> { data, len }),
                }
            }
            Operation::Allreduce { send, recv, op } => {
                let len = len_of(recv)?;
                let from = match send {
                    None => recv.ptr,
                    Some(send) if is_alike(send, recv) => send.ptr,
                    Some(_) => return None,
                };
                visitor.awaits(Reduced {
                    combine: op.elementwise(recv.layout)?,
                    op,
                    from,
                    to: recv,
                    len,
                })
            }
            _ => None,
        }
    }
}

/// Bytes of valid items that lie side by side and fit in a cell.
#[inline(always)]
fn len_of(items: &TypedBuf<'_>) -> Option<usize> {
    let len = items.count.checked_mul(items.layout.size())?;
    let is_quick = len <= IN_CELL && len > 0 && items.layout.is_contiguous();
    (is_quick && !items.ptr.is_null()).then_some(len)
}

/// Whether the contribution to a reduction has the form of its result.
#[inline(always)]
fn is_alike(send: &TypedBuf<'_>, recv: &TypedBuf<'_>) -> bool {
    send.count == recv.count && !send.ptr.is_null() && std::ptr::eq(send.layout, recv.layout)
}

/// A barrier.
pub(super) struct Barrier;

impl Part for Barrier {
    const SHOWN: Kind = Kind::Barrier;
    const WAKES: bool = true;

    #[inline(always)]
    fn len(&self) -> usize {
        0
    }

    #[inline(always)]
    fn layout(&self) -> Option<&Layout> {
        None
    }

    #[inline(always)]
    unsafe fn write(&self, _: *mut u8) {}
}

impl Awaits for Barrier {
    const AWAITED: Kind = Kind::Barrier;
    const SETTLES: bool = true;

    #[inline(always)]
    unsafe fn take(&self, _: u32, _: *const u8) {}

    unsafe fn finish<D: Device>(&self, steps: Steps<'_, D>) -> Result<Way> {
        exchange::end_begun_barrier(steps)
    }
}

/// A rank's part in a broadcast: the root sends, the other rank receives.
pub(super) struct Moved<'a, const SENDS: bool> {
    data: &'a TypedBuf<'a>,
    len: usize,
}

impl<const SENDS: bool> Part for Moved<'_, SENDS> {
    const SHOWN: Kind = if SENDS {
        Kind::Bcast
    } else {
        Kind::BcastAwaited
    };
    const WAKES: bool = SENDS;

    #[inline(always)]
    fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn layout(&self) -> Option<&Layout> {
        Some(self.data.layout)
    }

    #[inline(always)]
    unsafe fn write(&self, to: *mut u8) {
        if SENDS {
            // SAFETY: from the caller.
            unsafe { copy_bytes(self.data.ptr, to, self.len) };
        }
    }
}

impl Awaits for Moved<'_, false> {
    const AWAITED: Kind = Kind::Bcast;
    const SETTLES: bool = false;

    #[inline(always)]
    unsafe fn take(&self, _: u32, theirs: *const u8) {
        // SAFETY: from the caller.
        unsafe { copy_bytes(theirs, self.data.ptr, self.len) };
    }

    unsafe fn finish<D: Device>(&self, steps: Steps<'_, D>) -> Result<Way> {
        let root = 1 - steps.rank();
        // SAFETY: from the caller.
        unsafe { bcast::end_begun(steps, &Stream::of(self.data), root) }
    }
}

/// A rank's part in an allreduce, which is in place if `from` is where `to` is.
pub(super) struct Reduced<'a> {
    combine: Elementwise,
    op: &'a Op,
    from: *const u8,
    to: &'a TypedBuf<'a>,
    len: usize,
}

impl Part for Reduced<'_> {
    const SHOWN: Kind = Kind::Allreduce;
    const WAKES: bool = true;

    #[inline(always)]
    fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn layout(&self) -> Option<&Layout> {
        Some(self.to.layout)
    }

    #[inline(always)]
    unsafe fn write(&self, to: *mut u8) {
        // SAFETY: from the caller.
        unsafe { copy_bytes(self.from, to, self.len) };
    }
}

impl Awaits for Reduced<'_> {
    const AWAITED: Kind = Kind::Allreduce;
    const SETTLES: bool = true;

    /// Combines the contributions, rank 0's on the left. This rank's is not read from its cell: the
    /// other rank has just taken the cache line, and it would have to come back.
    #[inline(always)]
    unsafe fn take(&self, me: u32, theirs: *const u8) {
        let (from, to, len) = (self.from, self.to.ptr, self.len);
        let in_place = std::ptr::eq(from, to);
        // SAFETY: from the caller; `aside` has room for as much as a cell.
        unsafe {
            if me == 1 {
                if !in_place {
                    copy_bytes(from, to, len);
                }
                self.combine.apply(theirs, to, len);
            } else if in_place {
                let mut aside = [0u8; IN_CELL];
                copy_bytes(from, aside.as_mut_ptr(), len);
                copy_bytes(theirs, to, len);
                self.combine.apply(aside.as_ptr(), to, len);
            } else {
                copy_bytes(theirs, to, len);
                self.combine.apply(from, to, len);
            }
        }
    }

    unsafe fn finish<D: Device>(&self, steps: Steps<'_, D>) -> Result<Way> {
        let items = Items::new(self.op, self.to.layout, self.to.count);
        // SAFETY: from the caller.
        unsafe { exchange::end_begun(steps, &items, Kind::Allreduce, self.from, self.to.ptr) }
    }
}
