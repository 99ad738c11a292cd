//! From typed memory to the device's entries: the only file that calls the unchecked ones.
//!
//! Budget of the blocking and scoped paths above it: no allocation, no system call, no lock and no
//! locked instruction of their own. A type whose values are runs of one primitive takes the
//! contiguous entries. That branch depends on constants of the type only, so the compiler folds it
//! away.

use portolan_core::comm::NoUnwind;
use portolan_core::device::{self, SendArgs};
use portolan_core::level::Level;
use portolan_core::matching::Pattern;
use portolan_core::{ContigBuf, Device, MemoryKind, Request, Result, Status, TypedBuf};
use portolan_datatype::{Datatype, Layout, MsgRep, Signature};

use super::Comm;

/// Refuses at compile time to receive in the background into a type with invalid bit patterns:
/// nothing would check the values before the program reads them.
pub(crate) const fn any_bits<T: Datatype>() {
    assert!(
        T::ANY_BITS,
        "not every bit pattern is a value of this type: use recv or match_recv"
    );
}

/// Refuses at compile time to access a type with padding as bytes.
pub(crate) const fn all_bytes<T: Datatype>() {
    assert!(
        T::CONTIGUOUS,
        "the buffer's type has padding, whose bytes have no value"
    );
}

/// The signature of `T`'s values, if they can be sent as contiguous bytes of one primitive.
#[inline(always)]
const fn contiguous<T: Datatype>() -> Option<Signature> {
    match T::HOMOGENEOUS {
        Some(primitive) if T::CONTIGUOUS => Some(Signature::homogeneous(primitive)),
        _ => None,
    }
}

#[inline(always)]
fn contig<T>(ptr: *mut T, count: usize, signature: Signature) -> ContigBuf {
    // The values are in memory, so their size cannot overflow.
    let len = count * size_of::<T>();
    ContigBuf {
        ptr: ptr.cast(),
        len,
        signature,
        memory: MemoryKind::Host,
    }
}

#[inline(always)]
fn typed<T>(ptr: *mut T, count: usize, layout: &Layout) -> TypedBuf<'_> {
    TypedBuf {
        ptr: ptr.cast(),
        count,
        layout,
        memory: MemoryKind::Host,
    }
}

impl<L: Level, D: Device> Comm<L, D> {
    /// Sends and returns when the values may be changed again.
    ///
    /// # Safety
    /// `args` came from this communicator.
    #[inline]
    pub(super) unsafe fn send_values<T: Datatype>(
        &self,
        args: &SendArgs,
        values: &[T],
    ) -> Result<()> {
        let (ptr, count) = (values.as_ptr().cast_mut(), values.len());
        // SAFETY: the arguments are legal, and the values are borrowed for the length of the call.
        unsafe {
            match contiguous::<T>() {
                Some(signature) => self
                    .hosted()
                    .send_contig_unchecked(args, contig(ptr, count, signature)),
                None => self
                    .hosted()
                    .send_datatype_unchecked(args, typed(ptr, count, &T::layout())),
            }
        }
    }

    /// Starts a send.
    ///
    /// # Safety
    /// `args` came from this communicator; `count` values at `ptr` stay readable and unchanged
    /// until the request is complete.
    #[inline]
    pub(super) unsafe fn start_send<T: Datatype>(
        &self,
        args: &SendArgs,
        ptr: *const T,
        count: usize,
    ) -> Result<Request> {
        let ptr = ptr.cast_mut();
        // SAFETY: promised by the caller.
        unsafe {
            match contiguous::<T>() {
                Some(signature) => self
                    .hosted()
                    .isend_contig_unchecked(args, contig(ptr, count, signature)),
                None => self
                    .hosted()
                    .isend_datatype_unchecked(args, typed(ptr, count, &T::layout())),
            }
        }
    }

    /// Receives at most `count` values. The data of those that arrived is initialised, but not yet
    /// checked to be valid for `T`.
    ///
    /// # Safety
    /// `pattern` came from this communicator; `count` values at `ptr` are writable.
    #[inline]
    pub(super) unsafe fn recv_values<T: Datatype>(
        &self,
        pattern: &Pattern,
        ptr: *mut T,
        count: usize,
    ) -> Result<Status> {
        // SAFETY: promised by the caller, and the call keeps nothing.
        unsafe {
            match contiguous::<T>() {
                Some(signature) => self
                    .hosted()
                    .recv_contig_unchecked(pattern, contig(ptr, count, signature)),
                None => self
                    .hosted()
                    .recv_datatype_unchecked(pattern, typed(ptr, count, &T::layout())),
            }
        }
    }

    /// Starts a receive of at most `count` values.
    ///
    /// # Safety
    /// `pattern` came from this communicator; `count` values at `ptr` stay writable and are not
    /// read until the request is complete. If `T` has invalid bit patterns, they are not read as
    /// `T` before they have been checked.
    #[inline]
    pub(super) unsafe fn start_recv<T: Datatype>(
        &self,
        pattern: &Pattern,
        ptr: *mut T,
        count: usize,
    ) -> Result<Request> {
        // SAFETY: promised by the caller.
        unsafe {
            match contiguous::<T>() {
                Some(signature) => self
                    .hosted()
                    .irecv_contig_unchecked(pattern, contig(ptr, count, signature)),
                None => self
                    .hosted()
                    .irecv_datatype_unchecked(pattern, typed(ptr, count, &T::layout())),
            }
        }
    }

    /// Receives a message that has been matched and taken, into `count` items of a layout.
    ///
    /// # Safety
    /// The bytes that the layout covers from `ptr` on are writable.
    pub(super) unsafe fn recv_taken(
        &self,
        message: device::Message,
        ptr: *mut u8,
        count: usize,
        layout: &Layout,
    ) -> Result<Status> {
        let guard = NoUnwind::new("a matched receive");
        // SAFETY: the memory is the caller's until this function returns, and it returns only when
        // the request is complete (`wait` completes it whatever it returns); the guard lets no
        // panic past.
        let started = unsafe {
            self.hosted()
                .imrecv_unchecked(message, typed(ptr, count, layout))
        };
        if started.is_err() {
            // No other call has the handle, and the sender may be waiting. A stale handle means
            // that the device has ended, and the message with it.
            let _ = self.hosted().discard(message);
        }
        let status = started.and_then(|request| self.hosted().wait(request));
        guard.done();
        status
    }

    /// The bytes of `count` items of a layout, one behind the other.
    ///
    /// # Safety
    /// The bytes that the layout covers from `ptr` on are readable.
    pub(super) unsafe fn packed(
        &self,
        args: &SendArgs,
        ptr: *const u8,
        count: usize,
        layout: &Layout,
    ) -> Result<Vec<u8>> {
        let size = layout.packed_size(count, args.rep)?;
        let mut bytes = self.room_for::<u8>(size)?;
        // SAFETY: the items are readable, and there is room for the packed size of all of them.
        unsafe {
            let to = bytes.as_mut_ptr();
            let written = layout.pack_range(ptr, count, 0, to, size, MsgRep::Native);
            bytes.set_len(written);
        }
        Ok(bytes)
    }

    /// Sends `count` items of a layout.
    ///
    /// # Safety
    /// `args` came from this communicator; the bytes that the layout covers from `ptr` on are
    /// readable.
    pub(super) unsafe fn send_items(
        &self,
        args: &SendArgs,
        ptr: *const u8,
        count: usize,
        layout: &Layout,
    ) -> Result<()> {
        // SAFETY: promised by the caller, and the call keeps nothing.
        unsafe {
            self.hosted()
                .send_datatype_unchecked(args, typed(ptr.cast_mut(), count, layout))
        }
    }

    /// Starts a send of `count` items of a layout.
    ///
    /// # Safety
    /// As [`send_items`](Self::send_items), until the request is complete.
    pub(super) unsafe fn start_send_items(
        &self,
        args: &SendArgs,
        ptr: *const u8,
        count: usize,
        layout: &Layout,
    ) -> Result<Request> {
        // SAFETY: promised by the caller.
        unsafe {
            self.hosted()
                .isend_datatype_unchecked(args, typed(ptr.cast_mut(), count, layout))
        }
    }

    /// Receives into `count` items of a layout.
    ///
    /// # Safety
    /// `pattern` came from this communicator; the bytes that the layout covers from `ptr` on are
    /// writable, and any bits are valid in them.
    pub(super) unsafe fn recv_items(
        &self,
        pattern: &Pattern,
        ptr: *mut u8,
        count: usize,
        layout: &Layout,
    ) -> Result<Status> {
        // SAFETY: promised by the caller, and the call keeps nothing.
        unsafe {
            self.hosted()
                .recv_datatype_unchecked(pattern, typed(ptr, count, layout))
        }
    }

    /// Starts a receive into `count` items of a layout.
    ///
    /// # Safety
    /// As [`recv_items`](Self::recv_items), until the request is complete.
    pub(super) unsafe fn start_recv_items(
        &self,
        pattern: &Pattern,
        ptr: *mut u8,
        count: usize,
        layout: &Layout,
    ) -> Result<Request> {
        // SAFETY: promised by the caller.
        unsafe {
            self.hosted()
                .irecv_datatype_unchecked(pattern, typed(ptr, count, layout))
        }
    }

    /// Starts a send of packed bytes; they go out as the values themselves would.
    ///
    /// # Safety
    /// `args` came from this communicator; `bytes` stay readable until the request is complete.
    pub(super) unsafe fn start_send_packed(
        &self,
        args: &SendArgs,
        bytes: *const [u8],
        signature: Signature,
    ) -> Result<Request> {
        let buf = contig(bytes.cast::<u8>().cast_mut(), bytes.len(), signature);
        // SAFETY: promised by the caller.
        unsafe { self.hosted().isend_contig_unchecked(args, buf) }
    }

    /// Makes a persistent send of `count` items of a layout.
    ///
    /// # Safety
    /// As [`start_send_items`](Self::start_send_items), from each start until the request is
    /// inactive again.
    pub(super) unsafe fn init_send_items(
        &self,
        args: &SendArgs,
        ptr: *const u8,
        count: usize,
        layout: &Layout,
    ) -> Result<Request> {
        // SAFETY: promised by the caller.
        unsafe {
            self.hosted()
                .send_init_unchecked(args, typed(ptr.cast_mut(), count, layout))
        }
    }

    /// Makes a persistent receive into `count` items of a layout.
    ///
    /// # Safety
    /// As [`start_recv_items`](Self::start_recv_items), from each start until the request is
    /// inactive again.
    pub(super) unsafe fn init_recv_items(
        &self,
        pattern: &Pattern,
        ptr: *mut u8,
        count: usize,
        layout: &Layout,
    ) -> Result<Request> {
        // SAFETY: promised by the caller.
        unsafe {
            self.hosted()
                .recv_init_unchecked(pattern, typed(ptr, count, layout))
        }
    }
}
