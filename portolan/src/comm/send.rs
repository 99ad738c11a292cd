//! Blocking sends, and sending while receiving.
//!
//! Budget: no allocation, no system call, no lock and no locked instruction above the device.

use portolan_core::comm::{NoUnwind, Source, Tag, Tags};
use portolan_core::level::Level;
use portolan_core::{Device, ErrorKind, Request, Result, SendMode, Status};
use portolan_datatype::Datatype;

use super::Comm;

impl<L: Level, D: Device> Comm<L, D> {
    /// Sends values and returns when they may be changed again (MPI-4 section 3.2.1, `MPI_Send`). A
    /// short message leaves at once; the send of a long one waits for the matching receive.
    ///
    /// ```
    /// portolan::try_threads(2, |world| {
    ///     let comm = world.comm();
    ///     if comm.rank() == 0 {
    ///         comm.send(&[1.5, 2.5], 1, 7)?;
    ///     } else {
    ///         let (values, status) = comm.recv::<f64>(0, 7)?;
    ///         assert_eq!((values.as_slice(), status.source), (&[1.5, 2.5][..], 0));
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidRank`](ErrorKind::InvalidRank), [`InvalidTag`](ErrorKind::InvalidTag),
    /// [`PeerFailed`](ErrorKind::PeerFailed); [`Exhausted`](ErrorKind::Exhausted) if there is no
    /// memory for one more request; [`Finalized`](ErrorKind::Finalized) after the end of this rank.
    #[doc(alias = "MPI_Send")]
    #[inline]
    pub fn send<T: Datatype>(&self, data: &[T], dest: u32, tag: impl Into<Tag>) -> Result<()> {
        self.send_in_mode(SendMode::Standard, data, dest, tag.into())
    }

    /// Sends one value: [`send`](Self::send) of a slice of one.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    #[inline]
    pub fn send_one<T: Datatype>(&self, value: &T, dest: u32, tag: impl Into<Tag>) -> Result<()> {
        self.send_in_mode(
            SendMode::Standard,
            std::slice::from_ref(value),
            dest,
            tag.into(),
        )
    }

    /// Sends values and returns only after a receive has matched them (MPI-4 section 3.4,
    /// `MPI_Ssend`).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    #[doc(alias = "MPI_Ssend")]
    #[inline]
    pub fn ssend<T: Datatype>(&self, data: &[T], dest: u32, tag: impl Into<Tag>) -> Result<()> {
        self.send_in_mode(SendMode::Synchronous, data, dest, tag.into())
    }

    /// Sends values whose receive is known to be posted (MPI-4 section 3.4, `MPI_Rsend`). If it is
    /// not, the message is delivered all the same, and a counter records it.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    #[doc(alias = "MPI_Rsend")]
    #[inline]
    pub fn rsend<T: Datatype>(&self, data: &[T], dest: u32, tag: impl Into<Tag>) -> Result<()> {
        self.send_in_mode(SendMode::Ready, data, dest, tag.into())
    }

    #[inline]
    fn send_in_mode<T: Datatype>(
        &self,
        mode: SendMode,
        data: &[T],
        dest: u32,
        tag: Tag,
    ) -> Result<()> {
        // SAFETY: the arguments are this communicator's.
        let sent = |args| unsafe { self.send_values(&args, data) };
        self.raise(self.inner.send_args(mode, dest, tag).and_then(sent))
    }

    /// Sends and receives at the same time, so that a ring of ranks cannot wait for each other
    /// (MPI-4 section 3.10, `MPI_Sendrecv`). Types and lengths may differ.
    ///
    /// # Errors
    /// Those of [`send`](Self::send) and of [`recv_into`](Self::recv_into).
    #[doc(alias = "MPI_Sendrecv")]
    pub fn sendrecv<S: Datatype, R: Datatype>(
        &self,
        data: &[S],
        dest: u32,
        send_tag: impl Into<Tag>,
        buf: &mut [R],
        source: impl Into<Source>,
        recv_tag: impl Into<Tags>,
    ) -> Result<Status> {
        let args = self.raise(
            self.inner
                .send_args(SendMode::Standard, dest, send_tag.into()),
        )?;
        let pattern = self.raise(self.inner.pattern(source.into(), recv_tag.into()))?;
        // SAFETY: the arguments are this communicator's. `data` is borrowed for the length of the
        // call, at whose end the send is complete.
        let outcome = unsafe {
            self.both(
                || self.start_send(&args, data.as_ptr(), data.len()),
                || self.recv_checked(&pattern, buf),
            )
        };
        self.raise(outcome)
    }

    /// Receives while a send is under way.
    ///
    /// # Safety
    /// What is sent stays readable and unchanged until this function returns. It returns only after
    /// the send is complete (`wait` completes it whatever it returns), and lets no panic past.
    #[inline]
    pub(super) unsafe fn both(
        &self,
        start: impl FnOnce() -> Result<Request>,
        receive: impl FnOnce() -> Result<Status>,
    ) -> Result<Status> {
        let guard = NoUnwind::new("a send-receive");
        let outcome = start().and_then(|request| {
            let received = receive();
            if received
                .as_ref()
                .is_err_and(|error| error.kind() != ErrorKind::Truncated)
            {
                // The receive failed, so the job is in trouble: the rank that should receive this
                // message may never do so.
                let _ = self.hosted().cancel(request);
            }
            let sent = self.hosted().wait(request);
            let status = received?;
            sent.map(|_| status)
        });
        guard.done();
        outcome
    }

    /// Sends `data` and replaces it by the message received (MPI-4 section 3.10,
    /// `MPI_Sendrecv_replace`). Copies the data once.
    ///
    /// # Errors
    /// Those of [`send`](Self::send) and of [`recv_into`](Self::recv_into).
    #[doc(alias = "MPI_Sendrecv_replace")]
    pub fn sendrecv_replace<T: Datatype>(
        &self,
        data: &mut [T],
        dest: u32,
        send_tag: impl Into<Tag>,
        source: impl Into<Source>,
        recv_tag: impl Into<Tags>,
    ) -> Result<Status> {
        let copy = data.to_vec();
        self.sendrecv(&copy, dest, send_tag, data, source, recv_tag)
    }
}
