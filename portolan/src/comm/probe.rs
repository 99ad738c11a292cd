//! Looking at messages before they are received.

use portolan_core::comm::{Source, Tags};
use portolan_core::level::Level;
use portolan_core::{Device, Result, Status};

use super::{Comm, Message};

impl<L: Level, D: Device> Comm<L, D> {
    /// Waits for a message and returns its status without receiving it (MPI-4 section 3.8.1,
    /// `MPI_Probe`).
    ///
    /// Another thread may receive the message between this call and the caller's receive.
    /// [`match_recv`](Self::match_recv) has no such race.
    ///
    /// # Errors
    /// [`InvalidRank`](crate::ErrorKind::InvalidRank),
    /// [`InvalidTag`](crate::ErrorKind::InvalidTag), [`PeerFailed`](crate::ErrorKind::PeerFailed).
    #[doc(alias = "MPI_Probe")]
    pub fn probe(&self, source: impl Into<Source>, tag: impl Into<Tags>) -> Result<Status> {
        let pattern = self.inner.pattern(source.into(), tag.into());
        self.raise(pattern.and_then(|pattern| self.hosted().probe_unchecked(&pattern)))
    }

    /// As [`probe`](Self::probe), but returns `None` at once if there is no message (MPI-4 section
    /// 3.8.1, `MPI_Iprobe`). Makes progress.
    ///
    /// # Errors
    /// As [`probe`](Self::probe).
    #[doc(alias = "MPI_Iprobe")]
    pub fn iprobe(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tags>,
    ) -> Result<Option<Status>> {
        let pattern = self.inner.pattern(source.into(), tag.into());
        self.raise(pattern.and_then(|pattern| self.hosted().iprobe_unchecked(&pattern)))
    }

    /// Waits for a message and takes it (MPI-4 section 3.8.2, `MPI_Mprobe`): it is matched now, and
    /// its data is received later, when the program knows its length.
    ///
    /// ```
    /// portolan::try_threads(2, |world| {
    ///     let comm = world.comm();
    ///     if comm.rank() == 0 {
    ///         return comm.send(&[1u32, 2, 3], 1, 0);
    ///     }
    ///     let message = comm.match_recv(0, 0)?;
    ///     let mut buf = vec![0u32; message.count::<u32>().unwrap_or(0)];
    ///     message.recv_into(&mut buf)?;
    ///     assert_eq!(buf, [1, 2, 3]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`probe`](Self::probe).
    #[doc(alias = "MPI_Mprobe")]
    pub fn match_recv(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tags>,
    ) -> Result<Message<'_, L, D>> {
        let pattern = self.inner.pattern(source.into(), tag.into());
        let taken = pattern.and_then(|pattern| self.hosted().mprobe_unchecked(&pattern));
        let (handle, status) = self.raise(taken)?;
        Ok(Message::new(self, handle, status))
    }

    /// As [`match_recv`](Self::match_recv), but returns `None` at once if there is no message
    /// (MPI-4 section 3.8.2, `MPI_Improbe`). Makes progress.
    ///
    /// # Errors
    /// As [`probe`](Self::probe).
    #[doc(alias = "MPI_Improbe")]
    pub fn try_match_recv(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tags>,
    ) -> Result<Option<Message<'_, L, D>>> {
        let pattern = self.inner.pattern(source.into(), tag.into());
        let taken = pattern.and_then(|pattern| self.hosted().improbe_unchecked(&pattern));
        let taken = self.raise(taken)?;
        Ok(taken.map(|(handle, status)| Message::new(self, handle, status)))
    }
}
