//! What a message consists of: all values of a buffer, or the items of a layout within it.

use portolan_core::device::SendArgs;
use portolan_core::level::Level;
use portolan_core::matching::Pattern;
use portolan_core::{Device, Request, Result, Status};
use portolan_datatype::{Datatype, Layout};

use super::{Buffer, BufferMut, Comm, Held};

/// A buffer, and how many items of which layout in it a message consists of; without those, of all
/// values. Programs can neither make one nor look into it.
///
/// The layout is borrowed. If it were counted, even a message of all values would have to find out
/// at its end whether there is one.
#[derive(Debug)]
pub struct Part<'a, B: Buffer> {
    pub(crate) held: Held<B>,
    pub(crate) items: Option<(usize, &'a Layout)>,
}

impl<L: Level, D: Device> Comm<L, D> {
    /// Sends and returns when the buffer may be changed again.
    ///
    /// # Safety
    /// `args` came from this communicator.
    #[inline]
    pub(super) unsafe fn send_part<B: Buffer>(
        &self,
        args: &SendArgs,
        part: &Part<'_, B>,
    ) -> Result<()> {
        let ptr = part.held.ptr().cast_const();
        // SAFETY: the arguments are the caller's; the values are the buffer's, which nobody changes
        // during the call, and the items have been found to lie within it.
        unsafe {
            match self.items_of(part)? {
                None => self.send_values(args, std::slice::from_raw_parts(ptr, part.held.len())),
                Some((count, layout)) => self.send_items(args, ptr.cast(), count, layout),
            }
        }
    }

    /// Receives at most as much as the part has room for.
    ///
    /// # Safety
    /// `pattern` came from this communicator, and any bits are valid values.
    #[inline]
    pub(super) unsafe fn recv_part<B: BufferMut>(
        &self,
        pattern: &Pattern,
        part: &Part<'_, B>,
    ) -> Result<Status> {
        let ptr = part.held.ptr();
        // SAFETY: from the caller; the buffer may be written, and the items have been found to lie
        // within it.
        unsafe {
            match self.items_of(part)? {
                None => self.recv_values(pattern, ptr, part.held.len()),
                Some((count, layout)) => self.recv_items(pattern, ptr.cast(), count, layout),
            }
        }
    }

    /// Starts a send.
    ///
    /// # Safety
    /// `args` came from this communicator; the buffer is held until the request is complete.
    #[inline(always)]
    pub(super) unsafe fn start_send_part<B: Buffer>(
        &self,
        args: &SendArgs,
        part: &Part<'_, B>,
    ) -> Result<Request> {
        let ptr = part.held.ptr().cast_const();
        // SAFETY: from the caller; the items have been found to lie within the buffer.
        unsafe {
            match self.items_of(part)? {
                None => self.start_send(args, ptr, part.held.len()),
                Some((count, layout)) => self.start_send_items(args, ptr.cast(), count, layout),
            }
        }
    }

    /// Starts a receive.
    ///
    /// # Safety
    /// `pattern` came from this communicator; the buffer is held until the request is complete; any
    /// bits are valid values.
    #[inline(always)]
    pub(super) unsafe fn start_recv_part<B: BufferMut>(
        &self,
        pattern: &Pattern,
        part: &Part<'_, B>,
    ) -> Result<Request> {
        let ptr = part.held.ptr();
        // SAFETY: from the caller; the buffer may be written, and the items have been found to lie
        // within it.
        unsafe {
            match self.items_of(part)? {
                None => self.start_recv(pattern, ptr, part.held.len()),
                Some((count, layout)) => self.start_recv_items(pattern, ptr.cast(), count, layout),
            }
        }
    }

    /// Makes a persistent send.
    ///
    /// # Safety
    /// As [`start_send_part`](Self::start_send_part), from each start until the request is inactive
    /// again.
    pub(super) unsafe fn init_send_part<B: Buffer>(
        &self,
        args: &SendArgs,
        part: &Part<'_, B>,
    ) -> Result<Request> {
        let ptr = part.held.ptr().cast_const().cast();
        // SAFETY: from the caller; the items have been found to lie within the buffer.
        unsafe {
            match self.items_of(part)? {
                None => self.init_send_items(args, ptr, part.held.len(), &B::Item::layout()),
                Some((count, layout)) => self.init_send_items(args, ptr, count, layout),
            }
        }
    }

    /// Makes a persistent receive.
    ///
    /// # Safety
    /// As [`start_recv_part`](Self::start_recv_part), from each start until the request is inactive
    /// again.
    pub(super) unsafe fn init_recv_part<B: BufferMut>(
        &self,
        pattern: &Pattern,
        part: &Part<'_, B>,
    ) -> Result<Request> {
        let ptr = part.held.ptr().cast();
        // SAFETY: from the caller; the buffer may be written, and the items have been found to lie
        // within it.
        unsafe {
            match self.items_of(part)? {
                None => self.init_recv_items(pattern, ptr, part.held.len(), &B::Item::layout()),
                Some((count, layout)) => self.init_recv_items(pattern, ptr, count, layout),
            }
        }
    }

    /// The items of a part that is not all of its buffer, after checking that they lie within it.
    #[inline(always)]
    pub(super) fn items_of<'a, B: Buffer>(
        &self,
        part: &Part<'a, B>,
    ) -> Result<Option<(usize, &'a Layout)>> {
        if let Some((count, layout)) = part.items {
            // The values are in memory, so their size cannot overflow.
            let bytes = part.held.len() * size_of::<B::Item>();
            self.check_span(bytes, count, layout)?;
        }
        Ok(part.items)
    }
}
