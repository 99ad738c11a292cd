//! Looking at messages before they are received.

use portolan_core::comm::{Source, Tags};
use portolan_core::level::Level;
use portolan_core::{Device, Result, Status};

use super::{Comm, Message};

impl<L: Level, D: Device> Comm<L, D> {
    /// Waits for a message and says what it is, without receiving it (MPI-4 section 3.8.1,
    /// `MPI_Probe`).
    ///
    /// Between this call and the receive another thread may take the message;
    /// [`match_recv`](Self::match_recv) cannot be overtaken.
    ///
    /// # Errors
    /// [`InvalidRank`](crate::ErrorKind::InvalidRank),
    /// [`InvalidTag`](crate::ErrorKind::InvalidTag), [`PeerFailed`](crate::ErrorKind::PeerFailed).
    #[doc(alias = "MPI_Probe")]
    pub fn probe(&self, source: impl Into<Source>, tag: impl Into<Tags>) -> Result<Status> {
        let pattern = self.inner.pattern(source.into(), tag.into());
        self.raise(pattern.and_then(|pattern| self.hosted().probe_unchecked(&pattern)))
    }

    /// What [`probe`](Self::probe) says, if a message is there (MPI-4 section 3.8.1,
    /// `MPI_Iprobe`). Makes progress.
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

    /// Waits for a message and takes it: it is matched now and its data received later, when its
    /// length is known (MPI-4 section 3.8.2, `MPI_Mprobe`).
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

    /// [`match_recv`](Self::match_recv), if a message is there (MPI-4 section 3.8.2,
    /// `MPI_Improbe`). Makes progress.
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
