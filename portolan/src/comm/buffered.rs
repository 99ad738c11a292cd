//! Buffered sends over the device's "may block": a message that cannot leave at once is copied.

use std::sync::{Mutex, MutexGuard, PoisonError};

use portolan_core::comm::{Errors, Tag};
use portolan_core::device::{Check, SendArgs};
use portolan_core::level::Level;
use portolan_core::{Device, Error, ErrorKind, Request, Result, SendMode};
use portolan_datatype::{Datatype, Layout};

use super::Comm;
use super::parts::Held;
use super::raw::all_bytes;
use crate::hosted::Hosted;

/// Copied messages that have not left yet, and how much memory they may take.
#[derive(Debug)]
pub(crate) struct Budget {
    /// The limit while the program has attached no buffer.
    automatic: usize,
    aside: Mutex<Aside>,
}

#[derive(Debug)]
struct Aside {
    attached: Option<usize>,
    used: usize,
    messages: Vec<Copied>,
    /// Why the first lost message was lost, until the program is told.
    lost: Option<Error>,
}

/// A message that was copied. It is dropped only when its request is complete, or with the device.
#[derive(Debug)]
struct Copied {
    request: Request,
    /// The destination, as the program gave it.
    dest: u32,
    bytes: Held<Vec<u8>>,
    /// The error mode of the communicator that the message was sent on. The loss is judged by it,
    /// because it is chance which communicator's call discovers the loss.
    errors: Errors,
    name: String,
}

impl Budget {
    pub(crate) fn new(automatic: usize) -> Self {
        let aside = Aside {
            attached: None,
            used: 0,
            messages: Vec::new(),
            lost: None,
        };
        Self {
            automatic,
            aside: Mutex::new(aside),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Aside> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Aside {
    /// Drops the messages that have left or never will. A buffered send is complete as soon as the
    /// call returns, so the next flush reports the messages that were lost. If an error ends the
    /// job, it does so here.
    fn reap<D: Device>(&mut self, device: &Hosted<D>) {
        let (used, lost) = (&mut self.used, &mut self.lost);
        self.messages.retain(|message| {
            if !device.is_complete(message.request) {
                return true;
            }
            let outcome = device.test(message.request);
            if matches!(outcome, Ok(None)) {
                return true;
            }
            let bytes = message.bytes.len();
            *used -= bytes;
            if let Err(error) = outcome {
                let dest = message.dest;
                let what = format!("a buffered message of {bytes} bytes to rank {dest} was lost");
                let error =
                    device.judge(error.during(what), message.errors, || message.name.clone());
                lost.get_or_insert(error);
            }
            false
        });
    }
}

impl<L: Level, D: Device> Comm<L, D> {
    /// Sends without waiting for the receiver (MPI-4 section 3.4, `MPI_Bsend`): a message that
    /// cannot leave at once is copied. The copies may take as much memory as was
    /// [attached](Self::attach_buffer), or else as the setting `PORTOLAN_BUFFER_MAX` says.
    ///
    /// # Errors
    /// As [`send`](Self::send), and [`Exhausted`](ErrorKind::Exhausted) when there is no room for
    /// the copy. These errors are about this message; [`flush_buffer`](Self::flush_buffer) reports
    /// an earlier copy that was lost because its receiver failed.
    #[doc(alias = "MPI_Bsend")]
    #[inline]
    pub fn bsend<T: Datatype>(&self, data: &[T], dest: u32, tag: impl Into<Tag>) -> Result<()> {
        let args = self.raise(self.inner.send_args(SendMode::Buffered, dest, tag.into()))?;
        // SAFETY: the arguments are this communicator's.
        match unsafe { self.send_values(&args, data) } {
            Ok(()) => Ok(()),
            Err(error) => {
                let items = (data.as_ptr().cast(), data.len(), &T::layout());
                // SAFETY: the arguments are this communicator's, and the values are readable.
                unsafe { self.send_aside(error, &args, dest, items) }
            }
        }
    }

    /// As [`bsend`](Self::bsend), of `count` items of a layout (MPI-4 section 3.4, `MPI_Bsend` with
    /// a derived datatype). Its displacements count from the beginning of `base`.
    ///
    /// # Errors
    /// As [`bsend`](Self::bsend), and [`InvalidBuffer`](ErrorKind::InvalidBuffer) if the items
    /// reach beyond `base`.
    #[doc(alias = "MPI_Bsend")]
    pub fn bsend_layout<T: Datatype>(
        &self,
        base: &[T],
        count: usize,
        layout: &Layout,
        dest: u32,
        tag: impl Into<Tag>,
    ) -> Result<()> {
        const {
            all_bytes::<T>();
        };
        self.raise(self.check_span(size_of_val(base), count, layout))?;
        let args = self.raise(self.inner.send_args(SendMode::Buffered, dest, tag.into()))?;
        let ptr = base.as_ptr().cast();
        // SAFETY: the arguments are this communicator's; the layout stays within `base`, all bytes
        // of which are data.
        unsafe {
            match self.send_items(&args, ptr, count, layout) {
                Ok(()) => Ok(()),
                Err(error) => self.send_aside(error, &args, dest, (ptr, count, layout)),
            }
        }
    }

    /// Sends a copy of what could not leave at once; any other error is reported.
    ///
    /// # Safety
    /// `args` came from this communicator; the bytes that the items of the layout cover from the
    /// pointer on are readable.
    #[cold]
    #[inline(never)]
    unsafe fn send_aside(
        &self,
        why: Error,
        args: &SendArgs,
        dest: u32,
        items: (*const u8, usize, &Layout),
    ) -> Result<()> {
        if why.kind() != ErrorKind::MayBlock {
            return Err(self.fail(why));
        }
        let args = args.mode(SendMode::Standard);
        // SAFETY: promised by the caller.
        self.raise(unsafe { self.send_copy(&args, dest, items) })
    }

    /// Copies a message and starts to send the copy.
    ///
    /// # Safety
    /// As [`send_aside`](Self::send_aside).
    unsafe fn send_copy(
        &self,
        args: &SendArgs,
        dest: u32,
        (ptr, count, layout): (*const u8, usize, &Layout),
    ) -> Result<()> {
        let size = layout.packed_size(count, args.rep)?;
        let device = self.hosted();
        let mut aside = device.budget.lock();
        aside.reap(device);
        let limit = aside.attached.unwrap_or(device.budget.automatic);
        if size > limit.saturating_sub(aside.used) {
            return Err(self.inner.error(
                ErrorKind::Exhausted,
                format!(
                    "no room to buffer {size} bytes for rank {dest}: {} of {limit} are in use",
                    aside.used
                ),
                "attach a larger buffer, set PORTOLAN_BUFFER_MAX, or let the receiver catch up",
            ));
        }
        // SAFETY: promised by the caller.
        let bytes = unsafe { self.packed(args, ptr, count, layout) }?;
        let bytes = Held::new(bytes);
        let slice = std::ptr::slice_from_raw_parts(bytes.ptr(), bytes.len());
        // SAFETY: the arguments are this communicator's; the bytes are kept until the request is
        // complete, or longer than the device.
        let request = unsafe { self.start_send_packed(args, slice, layout.signature(size)) }?;
        aside.used += bytes.len();
        aside.messages.push(Copied {
            request,
            dest,
            bytes,
            errors: self.errors(),
            name: self.name(),
        });
        aside.reap(device);
        Ok(())
    }

    /// Lets the copies of this rank's buffered sends take up to this many bytes (MPI-4 section 3.6,
    /// `MPI_Buffer_attach`). Memory is allocated per message: `bytes` is only a limit.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if a buffer is attached already.
    #[doc(alias = "MPI_Buffer_attach")]
    pub fn attach_buffer(&self, bytes: usize) -> Result<()> {
        let mut aside = self.hosted().budget.lock();
        if let Some(old) = aside.attached {
            let what = format!("a buffer of {old} bytes is attached already");
            drop(aside);
            return self.raise(Err(self.inner.error(
                ErrorKind::InvalidArgument,
                what,
                "detach it first",
            )));
        }
        aside.attached = Some(bytes);
        Ok(())
    }

    /// Waits until every buffered message has left, and returns to the automatic limit (MPI-4
    /// section 3.6, `MPI_Buffer_detach`). Returns how many bytes were attached.
    ///
    /// # Errors
    /// As [`flush_buffer`](Self::flush_buffer); the buffer is detached all the same.
    #[doc(alias = "MPI_Buffer_detach")]
    pub fn detach_buffer(&self) -> Result<usize> {
        let flushed = self.flush_buffer();
        let bytes = self.hosted().budget.lock().attached.take().unwrap_or(0);
        flushed.map(|()| bytes)
    }

    /// Waits until every buffered message of this rank has left (MPI-4.1 section 3.6,
    /// `MPI_Buffer_flush`), or is known to be lost.
    ///
    /// # Errors
    /// That of the first message that was lost since the last flush, usually
    /// [`PeerFailed`](ErrorKind::PeerFailed); [`Aborted`](ErrorKind::Aborted) when the job ends. If
    /// the lost message was sent on a communicator whose [errors end the job](Self::set_errors),
    /// its loss ends the job as soon as any call of this rank discovers it.
    #[doc(alias = "MPI_Buffer_flush")]
    pub fn flush_buffer(&self) -> Result<()> {
        let device = self.hosted();
        loop {
            // The epoch is read before the last look, so that the rank does not sleep through a
            // completion in between.
            let epoch = device.completion_epoch();
            let mut aside = device.budget.lock();
            aside.reap(device);
            if aside.messages.is_empty() {
                return aside.lost.take().map_or(Ok(()), Err);
            }
            drop(aside);
            self.raise(device.device_check(Check::Blocking(epoch)))?;
        }
    }
}
