//! Many operations at a time on one buffer, as in the OSU suite, or on several in turn.

use std::marker::PhantomData;

use portolan::Level;
use portolan::{Comm, Device, Result, Source, Tag, Tags};
use portolan_core::comm::NoUnwind;
use portolan_core::matching::Pattern;
use portolan_core::{ContigBuf, Request, SendArgs, SendMode};

/// A buffer for the messages of a window, and how operations on it are started.
pub(crate) trait Part: Copy {
    /// Starts a send from the buffer.
    ///
    /// # Safety
    /// As for [`Device::isend_contig_unchecked`].
    unsafe fn isend<D: Device>(self, device: &D, args: &SendArgs) -> Result<Request>;

    /// Starts a receive into the buffer.
    ///
    /// # Safety
    /// As for [`Device::irecv_contig_unchecked`].
    unsafe fn irecv<D: Device>(self, device: &D, from: &Pattern) -> Result<Request>;
}

impl Part for ContigBuf {
    #[inline]
    unsafe fn isend<D: Device>(self, device: &D, args: &SendArgs) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { device.isend_contig_unchecked(args, self) }
    }

    #[inline]
    unsafe fn irecv<D: Device>(self, device: &D, from: &Pattern) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { device.irecv_contig_unchecked(from, self) }
    }
}

/// Operations under way. Their messages come from several buffers in turn and go to as many others;
/// often it is one of each.
///
/// The typed interface needs a buffer of its own for every receive. The OSU suite, with whose
/// figures users compare, receives a whole window into one buffer. So this type calls the device
/// directly, as a C layer would, with the checks that the typed calls make. Windows of the typed
/// interface are measured if they are asked for ([`Setup::scoped`](crate::Setup::scoped)).
///
/// Budget: no allocation once a window has been filled. (Sends and receives of a GPU's memory
/// allocate.)
#[derive(Debug)]
pub(crate) struct Window<'a, L: Level, D: Device, P: Part = ContigBuf> {
    comm: &'a Comm<L, D>,
    messages: u32,
    // At least one buffer each.
    send: Vec<P>,
    receive: Vec<P>,
    active: Vec<Request>,
    // The buffers, borrowed until every request on them is complete, which `drop` ensures.
    buffers: PhantomData<(&'a [u8], &'a mut [u8])>,
}

impl<'a, L: Level, D: Device> Window<'a, L, D> {
    /// A window with at least one buffer in each direction.
    pub(crate) fn new(
        comm: &'a Comm<L, D>,
        messages: u32,
        send: impl IntoIterator<Item = &'a [u8]>,
        receive: impl IntoIterator<Item = &'a mut [u8]>,
    ) -> Self {
        let send = send.into_iter().map(ContigBuf::from_bytes).collect();
        let receive = receive.into_iter();
        let receive = receive.map(ContigBuf::from_bytes_mut).collect();
        // SAFETY: the slices are borrowed for as long.
        unsafe { Self::of_parts(comm, messages, send, receive) }
    }
}

impl<'a, L: Level, D: Device, P: Part> Window<'a, L, D, P> {
    /// A window with at least one buffer in each direction.
    ///
    /// # Safety
    /// Until the window is dropped, the buffers exist, nothing else writes the send buffers, and
    /// nothing else uses the receive buffers, for which any bytes are valid.
    pub(crate) unsafe fn of_parts(
        comm: &'a Comm<L, D>,
        messages: u32,
        send: Vec<P>,
        receive: Vec<P>,
    ) -> Self {
        Self {
            comm,
            messages,
            send,
            receive,
            active: Vec::with_capacity(2 * messages as usize),
            buffers: PhantomData,
        }
    }

    /// Starts a window of sends.
    #[inline]
    pub(crate) fn send(&mut self, dest: u32, tag: u32) -> Result<()> {
        self.send_each(dest, (0..self.messages).map(|_| tag))
    }

    /// Starts a send for each of these tags, the first from the first buffer.
    #[inline]
    pub(crate) fn send_each(&mut self, dest: u32, tags: impl Iterator<Item = u32>) -> Result<()> {
        // SAFETY: only requests that are made here are touched.
        let inner = unsafe { self.comm.communicator() };
        for (tag, &buffer) in tags.zip(self.send.iter().cycle()) {
            let args = inner.send_args(SendMode::Standard, dest, Tag::from(tag))?;
            // SAFETY: the arguments are the communicator's. The buffer is borrowed for the life of
            // this window, which is not over before the request is.
            let request = unsafe { buffer.isend(inner.device(), &args) }?;
            self.active.push(request);
        }
        Ok(())
    }

    /// Starts a window of receives. If several have a buffer in common, the last one wins.
    #[inline]
    pub(crate) fn receive(&mut self, source: u32, tag: u32) -> Result<()> {
        self.receive_each(source, (0..self.messages).map(|_| tag))
    }

    /// Starts a receive for each of these tags, from one source or from any, the first into the
    /// first buffer.
    #[inline]
    pub(crate) fn receive_each(
        &mut self,
        source: impl Into<Source>,
        tags: impl Iterator<Item = u32>,
    ) -> Result<()> {
        let source = source.into();
        // SAFETY: only requests that are made here are touched.
        let inner = unsafe { self.comm.communicator() };
        for (tag, &buffer) in tags.zip(self.receive.iter().cycle()) {
            let pattern = inner.pattern(source, Tags::from(Tag::from(tag)))?;
            // SAFETY: the pattern is the communicator's. The buffer is borrowed exclusively for the
            // life of this window, which is not over before the request is, and not read meanwhile;
            // that several receives write it leaves bytes of any of them, all of which are valid.
            let request = unsafe { buffer.irecv(inner.device(), &pattern) }?;
            self.active.push(request);
        }
        Ok(())
    }

    /// Waits for all operations that were started, and returns the first error.
    #[inline]
    pub(crate) fn wait(&mut self) -> Result<()> {
        // SAFETY: only requests that were made here are touched.
        let device = unsafe { self.comm.communicator() }.device();
        let mut outcome = Ok(());
        for request in self.active.drain(..) {
            // The request is complete whatever the result is.
            if let Err(error) = device.wait(request)
                && outcome.is_ok()
            {
                outcome = Err(error);
            }
        }
        outcome
    }
}

impl<L: Level, D: Device, P: Part> Drop for Window<'_, L, D, P> {
    fn drop(&mut self) {
        if self.active.is_empty() {
            return;
        }
        // Either an operation failed while the window was being filled, or the messages will never
        // come.
        let guard = NoUnwind::new("the end of a window");
        // SAFETY: only requests that were made here are touched.
        let device = unsafe { self.comm.communicator() }.device();
        for &request in &self.active {
            // Whether the cancellation succeeds shows when the request completes.
            let _ = device.cancel(request);
        }
        let _ = self.wait();
        guard.done();
    }
}
