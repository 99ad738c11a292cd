//! Whole jobs inside one process: a thread per rank, or one thread that steps all of them.

use std::any::Any;
use std::error::Error as AnyError;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use portolan_core::level::{Level, Single};
use portolan_core::{Error, ErrorKind, Result};

use crate::choose::Place;
use crate::hosted::{Ending, Hosted, Launcher, Leave};
use crate::{Builder, ProgramError, World};

/// Runs a job whose ranks are `n` threads of this process; the results are in the order of ranks.
///
/// Tests, benchmarks and examples use it: it needs no launcher, and each rank is a full rank.
///
/// The value that `body` returns does not say whether the rank has failed. So when a rank returns
/// after one of its calls has returned an error, and it has not called [`World::finalize`], it is
/// declared failed to the others, and its messages that are still under way are lost ([`World`]
/// says why). A rank that has dealt with the error calls `finalize`, or uses [`try_threads`], which
/// goes by the result of `body`. An error of the program's own that is in the value is not seen, so
/// other ranks may wait for ever for a rank that returns one: use [`run_threads`].
///
/// ```
/// let ranks = portolan::threads(3, |world| world.rank())?;
/// assert_eq!(ranks, [0, 1, 2]);
/// # Ok::<(), portolan::Error>(())
/// ```
///
/// # Errors
/// As [`Builder::threads`].
///
/// # Panics
/// If a rank does; the panic's message names the rank. Ranks that wait for it get
/// [`PeerFailed`](ErrorKind::PeerFailed).
pub fn threads<R: Send>(n: u32, body: impl Fn(World) -> R + Sync) -> Result<Vec<R>> {
    Builder::new().threads(n, body)
}

/// Runs a job whose ranks are `n` threads of this process and may fail.
///
/// A rank that returns an error is declared failed to the others, so that none of them waits for
/// it. The job's error is the one that came first. A rank that returns `Ok` ends in good order,
/// whatever errors it has dealt with.
///
/// `body` returns the errors of this crate. If it has others, use [`run_threads`].
///
/// ```
/// let error = portolan::try_threads(2, |world| {
///     let comm = world.comm();
///     match comm.rank() {
///         0 => comm.send(&[1.5], 9, 0), // there is no rank 9
///         _ => comm.recv_one::<f64>(0, 0).map(drop), // does not hang
///     }
/// })
/// .unwrap_err();
/// assert_eq!(error.kind(), portolan::ErrorKind::InvalidRank);
/// ```
///
/// # Errors
/// The first error of a rank, or those of [`Builder::threads`].
///
/// # Panics
/// If a rank does; the panic's message names the rank.
pub fn try_threads<R: Send>(n: u32, body: impl Fn(World) -> Result<R> + Sync) -> Result<Vec<R>> {
    Builder::new().try_threads(n, body)
}

/// Runs a job whose ranks are `n` threads of this process and may fail with any error: what
/// [`run`](crate::run) runs as a process, a test can run with this.
///
/// It is [`try_threads`] for other types of errors. The one that `body` returns has to be known
/// where `body` is written; [`ProgramError`] says which types it may be.
///
/// ```
/// use std::error::Error;
///
/// fn program(world: portolan::World) -> Result<u32, Box<dyn Error>> {
///     let comm = world.comm();
///     if comm.rank() == 0 {
///         let number: u32 = "seven".parse()?;
///         comm.send_one(&number, 1, 0)?;
///     }
///     Ok(comm.recv_one(0, 0)?.0) // does not hang
/// }
///
/// let error = portolan::run_threads(2, program).unwrap_err();
/// assert_eq!(error.to_string(), "invalid digit found in string");
/// ```
///
/// # Errors
/// The first error of a rank, or those of [`Builder::threads`]. An error that can be sent to
/// another thread keeps its type, so that a test can downcast it.
///
/// # Panics
/// If a rank does; the panic's message names the rank.
pub fn run_threads<R: Send, E, Kind>(
    n: u32,
    body: impl Fn(World) -> Result<R, E> + Sync,
) -> Result<Vec<R>, Box<dyn AnyError + Send + Sync>>
where
    E: ProgramError<Kind>,
{
    Builder::new().run_threads(n, body)
}

/// Makes the `n` ranks of a job for one thread, which steps them in an order of its choosing: for
/// deterministic tests, fuzzing and counting instructions.
///
/// Only calls that do not wait for another rank are useful here, because a blocking call would wait
/// for a rank that the thread is not stepping. Each rank leaves the job when it is dropped.
///
/// ```
/// let worlds = portolan::in_process(2)?;
/// let (zero, one) = (worlds[0].comm(), worlds[1].comm());
/// let incoming = one.irecv_owned(vec![0u8; 4], 0, 0)?;
/// zero.isend_owned(b"ahoy".to_vec(), 1, 0)?.wait()?;
/// assert!(incoming.is_complete());
/// assert_eq!(incoming.wait()?.buf, b"ahoy");
/// # Ok::<(), portolan::Error>(())
/// ```
///
/// # Errors
/// As [`Builder::threads`].
pub fn in_process(n: u32) -> Result<Vec<World>> {
    Builder::new().in_process(n)
}

impl<L: Level> Builder<L> {
    /// Makes the `n` ranks of a job for one thread, which steps them. See [`in_process`].
    ///
    /// # Errors
    /// As [`threads`](Self::threads).
    pub fn in_process(self, n: u32) -> Result<Vec<World<L>>> {
        let (devices, settings) = self.devices(n, Place::OneThread)?;
        devices
            .into_iter()
            .map(|device| {
                let ending = Ending {
                    together: false,
                    fatal_failures: false,
                    launcher: Launcher::default(),
                };
                World::host(Hosted::new(device, &settings, ending))
            })
            .collect()
    }

    /// Runs a job whose ranks are `n` threads of this process. See [`threads`], also for a rank
    /// that returns after an error.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if `n` is 0,
    /// [`InvalidSetting`](ErrorKind::InvalidSetting),
    /// [`TransportUnavailable`](ErrorKind::TransportUnavailable),
    /// [`Exhausted`](ErrorKind::Exhausted) when memory or threads are short.
    ///
    /// # Panics
    /// If a rank does; the panic's message names the rank.
    pub fn threads<R: Send>(self, n: u32, body: impl Fn(World<L>) -> R + Sync) -> Result<Vec<R>>
    where
        crate::AnyDevice<L>: Send,
    {
        self.run_all(n, &body, &|_| Leave::Dropped)
    }

    /// Runs a job whose ranks are `n` threads of this process and may fail. See [`try_threads`].
    ///
    /// # Errors
    /// The first error of a rank, or those of [`threads`](Self::threads).
    ///
    /// # Panics
    /// If a rank does; the panic's message names the rank.
    pub fn try_threads<R: Send>(
        self,
        n: u32,
        body: impl Fn(World<L>) -> Result<R> + Sync,
    ) -> Result<Vec<R>>
    where
        crate::AnyDevice<L>: Send,
    {
        self.fallible(n, body)
    }

    /// Runs a job whose ranks are `n` threads of this process and may fail with any error. See
    /// [`run_threads`].
    ///
    /// # Errors
    /// The first error of a rank, or those of [`threads`](Self::threads).
    ///
    /// # Panics
    /// If a rank does; the panic's message names the rank.
    pub fn run_threads<R: Send, E, Kind>(
        self,
        n: u32,
        body: impl Fn(World<L>) -> Result<R, E> + Sync,
    ) -> Result<Vec<R>, Box<dyn AnyError + Send + Sync>>
    where
        E: ProgramError<Kind>,
        crate::AnyDevice<L>: Send,
    {
        self.fallible(n, |world| body(world).map_err(ProgramError::into_boxed))
    }

    /// Runs `body` on every rank. One that returns an error has failed; the first error is the
    /// job's.
    fn fallible<R: Send, E: From<Error> + Send>(
        self,
        n: u32,
        body: impl Fn(World<L>) -> Result<R, E> + Sync,
    ) -> Result<Vec<R>, E>
    where
        crate::AnyDevice<L>: Send,
    {
        let failures = AtomicU32::new(0);
        let numbered = |world| {
            // Relaxed: the order among ranks that fail at the same time does not matter.
            body(world).map_err(|error| (failures.fetch_add(1, Ordering::Relaxed), error))
        };
        let leave = |outcome: &Result<R, _>| match outcome {
            Ok(_) => Leave::Orderly,
            Err(_) => Leave::Failed,
        };
        let mut results = Vec::new();
        let mut first: Option<(u32, E)> = None;
        for outcome in self.run_all(n, &numbered, &leave)? {
            match outcome {
                Ok(result) => results.push(result),
                Err(error) if first.as_ref().is_none_or(|first| error.0 < first.0) => {
                    first = Some(error);
                }
                Err(_) => {}
            }
        }
        match first {
            Some((_, error)) => Err(error),
            None => Ok(results),
        }
    }

    /// Runs `body` on every rank; `leave` derives from its result how the rank leaves.
    fn run_all<R: Send>(
        self,
        n: u32,
        body: &(impl Fn(World<L>) -> R + Sync),
        leave: &(impl Fn(&R) -> Leave + Sync),
    ) -> Result<Vec<R>>
    where
        crate::AnyDevice<L>: Send,
    {
        let (devices, settings) = self.devices(n, Place::Process)?;
        let panics = Panics::default();
        let run = |device| {
            let ending = Ending {
                together: true,
                fatal_failures: false,
                launcher: Launcher::default(),
            };
            let world = World::host(Hosted::chosen(device, &settings, ending))?;
            let rank = world.rank();
            // Keeps the device, so that the rank ends here even if the program leaks its handles.
            let kept = world.keep();
            let outcome = catch_unwind(AssertUnwindSafe(|| body(world)));
            let how = match &outcome {
                Ok(result) => leave(result),
                Err(payload) => {
                    panics.add(rank, payload.as_ref());
                    Leave::Panicked
                }
            };
            match kept.leave(how) {
                Ok(()) => {}
                // The result of the job is the failed rank's error or panic, so this one is only
                // logged.
                Err(error) if error.kind() == ErrorKind::PeerFailed => {
                    portolan_core::log!(DEBUG, rank, %error, "it has heard of a failure at its end");
                }
                Err(error) => {
                    portolan_core::log!(WARN, rank, %error, "the rank did not end in good order");
                }
            }
            Ok(outcome.ok())
        };
        let outcomes = thread::scope(|scope| start(scope, devices, &run))?;
        if let Some(first) = panics.first() {
            resume_unwind(Box::new(first));
        }
        let results = outcomes.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(results.into_iter().flatten().collect())
    }
}

/// Starts a thread per device and waits for all of them.
fn start<'scope, D: Send + 'scope, R: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    devices: Vec<D>,
    run: &'scope (impl Fn(D) -> Result<R> + Sync),
) -> Result<Vec<Result<R>>> {
    let mut threads = Vec::with_capacity(devices.len());
    for (rank, device) in devices.into_iter().enumerate() {
        let name = format!("rank {rank}");
        let spawned = thread::Builder::new()
            .name(name)
            .spawn_scoped(scope, move || run(device));
        match spawned {
            Ok(thread) => threads.push(thread),
            // The ranks that run already end with an error, because the devices of the others are
            // gone.
            Err(error) => {
                return Err(Error::new(
                    ErrorKind::Exhausted,
                    format!("cannot start a thread for rank {rank}: {error}"),
                )
                .remedy("ask for fewer ranks, or raise the limit on threads"));
            }
        }
    }
    Ok(threads
        .into_iter()
        .map(|thread| thread.join().unwrap_or_else(|p| resume_unwind(p)))
        .collect())
}

/// The panics of a job's ranks, in the order in which they happened.
#[derive(Default)]
struct Panics(Mutex<Vec<String>>);

impl Panics {
    fn add(&self, rank: u32, payload: &(dyn Any + Send)) {
        let what = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("with something that is not a text");
        let text = format!("rank {rank} panicked: {what}");
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(text);
    }

    /// The first panic: the later ones may be consequences of it.
    fn first(&self) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .first()
            .cloned()
    }
}

const _: fn() = || {
    fn sendable<T: Send>() {}
    sendable::<crate::AnyDevice<Single>>();
};
