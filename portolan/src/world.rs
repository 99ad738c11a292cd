//! A rank's place in its job.

use std::sync::{Mutex, PoisonError};

use portolan_core::config::Settings;
use portolan_core::level::{Level, Single};
use portolan_core::{Device, Result};

use crate::Comm;
use crate::any::AnyDevice;
use crate::hosted::{Ending, Hosted, Launcher, Leave};

/// One rank of a job. It hands out the communicator of all ranks, and ends the rank's part in the
/// job.
///
/// # Ending
/// [`finalize`](Self::finalize) ends it in good order: the rank completes every operation that it
/// has started, and all ranks wait for each other. Dropping the last handle (world, communicators,
/// requests, messages, buffers of [`Comm::alloc`]) does the same, with two exceptions:
/// - a panic is under way;
/// - a call of this rank has returned an error, other than that another rank has failed. The
///   program may be on its way out by `?`, and the operations that it had started are lost. The
///   kind of error does not matter: another rank may be waiting for a message that was not sent
///   because its rank or its buffer was invalid. A program that goes on after an error calls
///   `finalize`.
///
/// In both cases the drop waits for no rank, because the others may be waiting for a message that
/// will never come. Instead it declares this rank failed to them.
///
/// Errors of the program's own (a missing file, say) are not seen here. A program that may have
/// some passes its body to [`run`](crate::run), which treats all errors alike.
#[must_use = "the rank leaves the job when its last handle is dropped"]
#[derive(Debug)]
pub struct World<L: Level = Single, D: Device = AnyDevice<L>> {
    comm: Comm<L, D>,
    /// The communicator of this rank alone, once the program has asked for it.
    own: Mutex<Option<Comm<L, D>>>,
}

impl<L: Level, D: Device> World<L, D> {
    pub(crate) fn host(hosted: Hosted<D>) -> Result<Self> {
        Ok(Self {
            comm: Comm::world(hosted)?,
            own: Mutex::new(None),
        })
    }

    /// Makes a world on a device that the caller supplies: a third party's backend, or one that was
    /// put together by hand. A transport becomes a device by `portolan_core::Engine`;
    /// `examples/src/bin/own_transport.rs` in the repository is a program with its own.
    ///
    /// ```
    /// use std::thread;
    ///
    /// use portolan::{Result, Settings, Single, World};
    /// use portolan_core::Engine;
    /// use portolan_core::transport::memory;
    ///
    /// let settings = Settings::from_env()?;
    /// thread::scope(|scope| -> Result<()> {
    ///     let ranks: Vec<_> = memory::network(2)
    ///         .into_iter()
    ///         .map(|transport| {
    ///             scope.spawn(|| -> Result<()> {
    ///                 let device = Engine::<_, Single>::new(transport, &settings)?;
    ///                 // SAFETY: no other code uses the device, and the level is `Single`.
    ///                 let world = unsafe { World::<Single, _>::from_device(device, &settings) }?;
    ///                 let comm = world.comm();
    ///                 match comm.rank() {
    ///                     0 => comm.send(b"ahoy", 1, 0)?,
    ///                     _ => assert_eq!(comm.recv::<u8>(0, 0)?.0, b"ahoy"),
    ///                 }
    ///                 world.finalize().map(drop)
    ///             })
    ///         })
    ///         .collect();
    ///     ranks.into_iter().try_for_each(|rank| rank.join().expect("no panic"))
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidCommunicator`](crate::ErrorKind::InvalidCommunicator) if the device has a
    /// communicator already.
    ///
    /// # Safety
    /// No other code completes, frees or cancels requests on the device. If `L` is
    /// [`Multiple`](crate::Multiple), several threads may use the device at once.
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

    /// The communicator of this rank alone (MPI-4 section 7.2.4, `MPI_COMM_SELF`). Every call
    /// returns the same one. Making it involves no other rank, and collective operations on it send
    /// nothing.
    ///
    /// Its attributes are deleted, in the reverse of the order in which they were set, when this
    /// value is dropped or [finalized](Self::finalize), before anything else of this rank ends
    /// (MPI-4 section 11.2.4). A delete hook may therefore still communicate. It is also called
    /// when a panic drops the world, however, and then the other ranks may not answer.
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
    /// Those of the device when it makes another communicator.
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

    /// The number of this rank: at least 0, below [`size`](Self::size).
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

    /// What the rank is waiting for and what its queues hold, one line each: for finding out why a
    /// job hangs.
    #[must_use]
    pub fn describe_state(&self) -> Vec<String> {
        self.comm.hosted().describe_state()
    }

    /// The device's counters, by name.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.comm.hosted().counters()
    }

    /// Ends this rank's part in the job (MPI-4 section 11.2.2, `MPI_Finalize`): completes every
    /// operation that was started, waits for the other ranks, and reports what the program has left
    /// behind. Handles that still exist afterwards can only be dropped, except buffers of
    /// [`Comm::alloc`], which stay usable.
    ///
    /// # Errors
    /// [`PeerFailed`](crate::ErrorKind::PeerFailed) if a rank died instead;
    /// [`Job`](crate::ErrorKind::Job) if the launcher could not be told.
    #[doc(alias = "MPI_Finalize")]
    pub fn finalize(mut self) -> Result<Leaks> {
        self.end_own();
        let communicators = self.comm.live() - 1;
        self.comm.leave(Leave::Orderly)?;
        let leaks = Leaks {
            communicators,
            // Counted now: the end has completed sends whose requests were dropped.
            buffers: self.comm.hosted().allocated(),
        };
        if leaks != Leaks::default() {
            portolan_core::log!(WARN, rank = self.rank(), %leaks, "left behind");
        }
        Ok(leaks)
    }

    pub(crate) fn keep(&self) -> Comm<L, D> {
        self.comm.clone()
    }

    /// Ends the communicator of this rank alone, unless the program still holds another handle of
    /// it.
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

/// What the program still held when it called [`World::finalize`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leaks {
    /// Communicators besides the world's that are still alive.
    pub communicators: u32,
    /// Buffers of [`Comm::alloc`] that are still there, if they are in memory that the ranks of a
    /// node share. Their values can still be used.
    pub buffers: usize,
}

impl std::fmt::Display for Leaks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            communicators,
            buffers,
        } = self;
        match buffers {
            0 => write!(f, "{communicators} communicator(s) not dropped"),
            _ => write!(
                f,
                "{communicators} communicator(s) and {buffers} buffer(s) not dropped"
            ),
        }
    }
}
