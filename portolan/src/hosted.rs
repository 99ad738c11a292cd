//! A device together with the job it belongs to; the job is left when the last handle is dropped.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;

use portolan_coll::{Counters, Options, Totals};
use portolan_core::comm::Errors;
use portolan_core::config::Settings;
use portolan_core::device::{Device, delegate_device};
use portolan_core::job::Bootstrap;
use portolan_core::level::{Level, Multiple};
use portolan_core::staging::Staging;
use portolan_core::{Error, ErrorKind, Request, Result};

use crate::any::AnyDevice;
use crate::comm::{Budget, Freed};
use crate::wakers::{Suspended, Wakers};

/// A device in its job. It passes every call on to the device, and leaves the job when it is
/// dropped.
///
/// Communicators, requests, messages and buffers of [`Comm::alloc`](crate::Comm::alloc) hold it, so
/// no handle outlives the runtime.
pub struct Hosted<D: Device> {
    device: D,
    /// The connection to the launcher, until the job is left.
    launcher: Launcher,
    /// The rank has left the job, in any way.
    left: AtomicBool,
    /// The process that joined the job.
    process: u32,
    /// A call returned an error that may be about to end the program.
    troubled: AtomicBool,
    /// A call told the program that another rank has failed, and the program went on.
    told: AtomicBool,
    /// See [`Ending`].
    together: bool,
    fatal_failures: bool,
    /// Counters are printed at the end.
    counters: bool,
    /// Memory for buffered sends.
    pub(crate) budget: Arc<Budget>,
    /// Memory that is to be freed. Buffers in memory of the device hold it, too.
    pub(crate) freed: Arc<Freed>,
    /// The settings of collective operations, until the world's communicator is made.
    pub(crate) collectives: Option<Result<Options>>,
    /// The cost of collective operations on communicators that have been dropped; set once there is
    /// a communicator.
    pub(crate) totals: OnceLock<Arc<Totals>>,
    /// The accelerators' drivers. They are found at the first use, unless the program has given
    /// them.
    pub(crate) staging: OnceLock<Staging>,
    /// The tasks that await requests.
    wakers: Wakers,
    /// The device as one that a thread of the runtime may use beside the program's, if it is one.
    shared: fn(&D) -> Option<&AnyDevice<Multiple>>,
}

/// How the job around a device ends.
pub(crate) struct Ending {
    /// Leaving waits for the other ranks. False where one thread steps all of them.
    pub(crate) together: bool,
    /// The job ends when the program discovers that a rank has died.
    pub(crate) fatal_failures: bool,
    pub(crate) launcher: Launcher,
}

/// The connection to the launcher; `None` without a launcher or once the job has been left. The
/// device shares it, to report long waits.
pub(crate) type Launcher = Arc<Mutex<Option<Box<dyn Bootstrap>>>>;

/// How a rank leaves its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Completes the operations that were started, and waits for the others.
    Orderly,
    /// The last handle was dropped; as far as can be seen, the program finished.
    Dropped,
    /// The program reported that it failed.
    Failed,
    /// A panic is under way, or ended the rank's thread.
    Panicked,
}

impl<L: Level> Hosted<AnyDevice<L>> {
    /// A device that is polled by whoever uses it. Where several threads may, the runtime has one
    /// of its own for tasks that await requests.
    pub(crate) fn chosen(device: AnyDevice<L>, settings: &Settings, ending: Ending) -> Self {
        let mut hosted = Self::new(device, settings, ending);
        hosted.shared = AnyDevice::for_threads;
        hosted
    }
}

impl<D: Device> Hosted<D> {
    pub(crate) fn new(device: D, settings: &Settings, ending: Ending) -> Self {
        Self {
            device,
            launcher: ending.launcher,
            left: AtomicBool::new(false),
            process: std::process::id(),
            troubled: AtomicBool::new(false),
            told: AtomicBool::new(false),
            together: ending.together,
            fatal_failures: ending.fatal_failures,
            counters: settings.counters(),
            budget: Arc::new(Budget::new(settings.buffer_max())),
            freed: Arc::default(),
            collectives: Some(Options::from_settings(settings)),
            totals: OnceLock::new(),
            staging: OnceLock::new(),
            wakers: Wakers::default(),
            shared: |_| None,
        }
    }

    /// Adds this rank and device to an error, and applies the error mode of the communicator with
    /// this name.
    #[cold]
    pub(crate) fn judge(
        &self,
        error: Error,
        errors: Errors,
        name: impl FnOnce() -> String,
    ) -> Error {
        let attributes = self.device.attributes();
        let error = error
            .on_rank(attributes.world_rank)
            .on_device(attributes.name);
        if errors == Errors::Abort && error.kind() != ErrorKind::MayBlock {
            self.abort_because_of(&error, Some(&name()));
        }
        self.note_error(&error);
        error
    }

    /// Remembers an error that is about to be returned to the program (see [`World`](crate::World)
    /// on ending), or ends the job if the job does not survive such errors.
    #[cold]
    pub(crate) fn note_error(&self, error: &Error) {
        if self.fatal_failures && error.kind() == ErrorKind::PeerFailed {
            self.abort_because_of(error, None);
        }
        if error.kind() == ErrorKind::PeerFailed {
            self.told.store(true, Ordering::Relaxed);
        }
        // These say nothing of this rank: either the job is known to be broken, or nothing is
        // wrong.
        let elsewhere = [
            ErrorKind::Aborted,
            ErrorKind::Finalized,
            ErrorKind::MayBlock,
            ErrorKind::PeerFailed,
        ];
        if !elsewhere.contains(&error.kind()) {
            self.troubled.store(true, Ordering::Relaxed);
        }
    }

    /// Ends the job because of an error. If that is the failure of a rank, the launcher is told
    /// which, so that it blames that one.
    fn abort_because_of(&self, error: &Error, facility: Option<&str>) -> ! {
        let text = error.to_string();
        let failed = error
            .peer()
            .filter(|_| error.kind() == ErrorKind::PeerFailed);
        if let Some(mut bootstrap) = self.take_bootstrap() {
            match failed {
                Some(failed) => bootstrap.abort_because_of(failed, 1, &text),
                None => bootstrap.abort(1, &text),
            }
        }
        self.device.abort(1, facility, Some(&text))
    }

    /// Whether the program has been told that a rank has failed.
    pub(crate) fn was_told(&self) -> bool {
        self.told.load(Ordering::Relaxed)
    }

    /// Has a task woken, once, when a request is complete. `None` if that cannot be promised. The
    /// request may have become complete before this call, so the caller has to look again.
    pub(crate) fn suspend(&self, request: Request, waker: &Waker) -> Option<Suspended> {
        let device = (self.shared)(&self.device)?;
        self.wakers.suspend(device, request, waker)
    }

    /// Leaves the job, once; later calls do nothing.
    pub(crate) fn leave(&self, how: Leave) -> Result<()> {
        self.leave_with(how, |_| 0)
    }

    /// As [`leave`](Self::leave); `live` returns the cost of collective operations on communicators
    /// that still exist.
    pub(crate) fn leave_with(&self, how: Leave, live: impl Fn(Counters) -> u64) -> Result<()> {
        // A child that has been forked has its parent's rings and connections, but is not the rank.
        if std::process::id() != self.process {
            if let Some(bootstrap) = self.take_bootstrap() {
                std::mem::forget(bootstrap);
            }
            self.left.store(true, Ordering::Relaxed);
            return Ok(());
        }
        if let Some(device) = (self.shared)(&self.device) {
            self.wakers.end(device);
        }
        // Relaxed: the flag carries no data, it only lets one caller in.
        if self.left.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let troubled = self.troubled.load(Ordering::Relaxed);
        let why = match how {
            Leave::Panicked => Some("it panicked"),
            // The process is about to end, and the job with it. The launcher is to learn of that
            // from this rank's exit code, and not first from another rank that was told of the
            // failure.
            Leave::Failed if self.fatal_failures => {
                self.device.end_silently();
                return Ok(());
            }
            Leave::Failed => Some("it ended with an error"),
            Leave::Dropped if troubled => Some("it left after an error, without World::finalize"),
            Leave::Dropped | Leave::Orderly => None,
        };
        if let Some(why) = why {
            if how == Leave::Dropped {
                let rank = self.device.attributes().world_rank;
                portolan_core::log!(
                    WARN,
                    rank,
                    "declared failed: {why}; what it had started is lost"
                );
            }
            self.device.declare_self_failed(why);
            return Ok(());
        }
        let ended = if self.together {
            self.device.end()
        } else {
            Ok(())
        };
        if self.counters {
            self.print_counters(live);
        }
        let bootstrap = self.take_bootstrap();
        ended?;
        match bootstrap {
            Some(mut bootstrap) => bootstrap
                .finalize()
                .map_err(|error| Error::new(ErrorKind::Job, error.to_string()).caused_by(error)),
            None => Ok(()),
        }
    }

    fn take_bootstrap(&self) -> Option<Box<dyn Bootstrap>> {
        self.launcher
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Prints the counters; `live` returns those of communicators that still exist.
    fn print_counters(&self, live: impl Fn(Counters) -> u64) {
        let rank = self.device.attributes().world_rank;
        let mut text = String::new();
        for (name, value) in self.device.counters() {
            text.push_str(&format!("portolan: rank {rank}: {name} {value}\n"));
        }
        for what in Counters::ALL {
            let gone = self.totals.get().map_or(0, |totals| totals.of(what));
            let (name, value) = (what.text(), gone + live(what));
            text.push_str(&format!(
                "portolan: rank {rank}: collective_{name} {value}\n"
            ));
        }
        // A program that asked for counters and closed standard error does not want them.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}

impl<D: Device> Drop for Hosted<D> {
    fn drop(&mut self) {
        let how = if std::thread::panicking() {
            Leave::Panicked
        } else {
            Leave::Dropped
        };
        if let Err(error) = self.leave(how) {
            portolan_core::log!(WARN, rank = self.device.attributes().world_rank, %error, "the job did not end in good order");
        }
    }
}

impl<D: Device> std::fmt::Debug for Hosted<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let attributes = self.device.attributes();
        f.debug_struct("Hosted")
            .field("device", &attributes.name)
            .field("rank", &attributes.world_rank)
            .field("left", &self.left.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

macro_rules! inner {
    ($self:ident, $device:ident => $call:expr) => {{
        let $device = &$self.device;
        $call
    }};
}

// SAFETY: every call is passed on to a device that keeps the contract.
unsafe impl<D: Device> Device for Hosted<D> {
    delegate_device! { inner:
        lifecycle, contiguous, datatypes, driven, persistent, queues, requests, packing, active_messages,
        registrations, one_sided, stores,
    }

    fn end(&self) -> Result<()> {
        self.leave(Leave::Orderly)
    }

    /// Tells the launcher first, so that it learns the code even if this process then dies.
    fn abort(&self, code: i32, facility: Option<&str>, message: Option<&str>) -> ! {
        if let Some(mut bootstrap) = self.take_bootstrap() {
            bootstrap.abort(code, message.unwrap_or("the program ended the job"));
        }
        self.device.abort(code, facility, message)
    }
}
