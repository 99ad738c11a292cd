//! A rank's place in its job.

use std::sync::{Mutex, PoisonError};

use portolan_core::config::Settings;
use portolan_core::level::{Level, Single};
use portolan_core::{Device, Result};

use crate::Comm;
use crate::any::AnyDevice;
use crate::hosted::{Ending, Hosted, Launcher, Leave};

/// One rank of a job: gives the communicator of all ranks, and ends the rank's part in the job.
///
/// # Ending
/// [`finalize`](Self::finalize) ends it in good order: what was started is completed, and all ranks
/// wait for each other. Dropping the last handle (world, communicators, requests) does the same,
/// with two exceptions in which nobody is waited for, because the others may wait for a message
/// that will never come, and the rank is declared failed to them instead:
/// - a panic is under way;
/// - a call of this rank has returned an error (other than that another rank has failed): the
///   program may be on its way out by `?`, and what it had started is lost. A program that goes on
///   after an error calls `finalize`. The kind does not matter: a message that was not sent for its
///   rank, or its buffer, is one that another rank waits for.
///
/// Errors of the program's own (a file that is missing) are not seen here: a program that may have
/// some leaves its body to [`run`](crate::run), which treats all errors alike.
#[must_use = "the rank leaves the job when its last handle is dropped"]
#[derive(Debug)]
pub struct World<L: Level = Single, D: Device = AnyDevice<L>> {
    comm: Comm<L, D>,
    /// The communicator of this rank alone, once it has been asked for.
    own: Mutex<Option<Comm<L, D>>>,
}

impl<L: Level, D: Device> World<L, D> {
    pub(crate) fn host(hosted: Hosted<D>) -> Result<Self> {
        Ok(Self {
            comm: Comm::world(hosted)?,
            own: Mutex::new(None),
        })
    }

    /// A world on a device of somebody else's: a third party's backend, or one put together by
    /// hand.
    ///
    /// # Errors
    /// [`InvalidCommunicator`](crate::ErrorKind::InvalidCommunicator) if the device has a
    /// communicator already.
    ///
    /// # Safety
    /// Nobody else completes, frees or cancels requests on the device. If `L` is
    /// [`Multiple`](crate::Multiple), it may be used by several threads at once.
    pub unsafe fn from_device(device: D, settings: &Settings) -> Result<Self> {
        let ending = Ending {
            together: true,
            fatal_failures: false,
            launcher: Launcher::default(),
        };
        Self::host(Hosted::new(device, settings, ending))
    }

    /// The communicator of all ranks (`MPI_COMM_WORLD`).
    #[doc(alias = "MPI_COMM_WORLD")]
    pub fn comm(&self) -> Comm<L, D> {
        self.comm.clone()
    }

    /// The communicator of this rank alone (MPI-4 section 7.2.4, `MPI_COMM_SELF`): the same one in
    /// every call. Nobody is asked for it, and collective operations on it send nothing.
    ///
    /// Its attributes are deleted when this value is dropped or [finalized](Self::finalize), before
    /// anything else of this rank ends, the last that was set first (MPI-4 section 11.2.4): what a
    /// delete hook does there may still communicate, but it is also called when a panic drops the
    /// world, and the others may not answer then.
    ///
    /// ```
    /// portolan::try_threads(2, |world| {
    ///     let own = world.own()?;
    ///     assert_eq!((own.rank(), own.size()), (0, 1));
    ///     assert_eq!(own.allreduce_one(7, &portolan::Op::SUM)?, 7);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// What the device says of another communicator.
    #[doc(alias = "MPI_COMM_SELF")]
    pub fn own(&self) -> Result<Comm<L, D>> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if own.is_none() {
            *own = Some(self.comm.raise(self.comm.alone())?);
        }
        match &*own {
            Some(own) => Ok(own.clone()),
            None => unreachable!("it was made just now"),
        }
    }

    /// This rank: at least 0, below [`size`](Self::size).
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.comm.rank()
    }

    /// Number of ranks in the job.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.comm.size()
    }

    /// Seconds since a fixed moment in the past (MPI-4 section 9.6, `MPI_Wtime`).
    #[doc(alias = "MPI_Wtime")]
    #[must_use]
    pub fn wtime(&self) -> f64 {
        self.comm.wtime()
    }

    /// What the rank is waiting for and what waits in its queues, one line each: for people who
    /// look for a hang.
    #[must_use]
    pub fn describe_state(&self) -> Vec<String> {
        self.comm.hosted().describe_state()
    }

    /// The device's counters, by name.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.comm.hosted().counters()
    }

    /// Ends this rank's part in the job (MPI-4 section 11.2.2, `MPI_Finalize`): completes what was
    /// started, waits for the other ranks, and says what the program has left behind. Handles that
    /// are left are good for nothing but dropping.
    ///
    /// # Errors
    /// [`PeerFailed`](crate::ErrorKind::PeerFailed) if a rank died instead;
    /// [`Job`](crate::ErrorKind::Job) if the launcher could not be told.
    #[doc(alias = "MPI_Finalize")]
    pub fn finalize(mut self) -> Result<Leaks> {
        self.end_own();
        let leaks = Leaks {
            communicators: self.comm.live() - 1,
        };
        self.comm.leave(Leave::Orderly)?;
        if leaks != Leaks::default() {
            portolan_core::log!(WARN, rank = self.rank(), %leaks, "left behind");
        }
        Ok(leaks)
    }

    pub(crate) fn keep(&self) -> Comm<L, D> {
        self.comm.clone()
    }

    /// Ends the communicator of this rank alone, as far as nobody has another handle of it.
    fn end_own(&mut self) {
        let own = self.own.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = own.take() {
            own.delete_attributes();
        }
    }
}

impl<L: Level, D: Device> Drop for World<L, D> {
    fn drop(&mut self) {
        self.end_own();
    }
}

/// What a program had left when it called [`World::finalize`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leaks {
    /// Communicators besides the world's that are still alive.
    pub communicators: u32,
}

impl std::fmt::Display for Leaks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} communicator(s) not dropped", self.communicators)
    }
}
