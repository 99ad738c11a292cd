//! Builds a world from the settings and the environment of the process.

use std::io::Write;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use portolan_core::config::{OnFailure, Origin, Settings};
#[cfg(any(feature = "memory", feature = "ofi", feature = "shm"))]
use portolan_core::engine::Engine;
use portolan_core::engine::StuckHook;
use portolan_core::job::{self, Bootstrap, JobError};
use portolan_core::level::{Level, Multiple, Single};
use portolan_core::{Error, ErrorKind, Result, Waiting, log};
#[cfg(feature = "t3e-sim")]
use portolan_t3e_sim::T3e;

use crate::World;
use crate::any::AnyDevice;
use crate::choose::{Choice, Eager, Place, Vote, agree, candidates, decide};
use crate::hosted::{Ending, Hosted, Launcher};
#[cfg(feature = "t3e-sim")]
use crate::one_thread::OneThread;

/// Joins the job that this process was started for, as a single-threaded rank (MPI-4 section
/// 11.2.1, `MPI_Init`). A process that was started by hand becomes a job of one rank.
///
/// # Errors
/// [`Job`](ErrorKind::Job) if the launcher does not answer,
/// [`InvalidSetting`](ErrorKind::InvalidSetting),
/// [`TransportUnavailable`](ErrorKind::TransportUnavailable).
#[doc(alias = "MPI_Init")]
pub fn init() -> Result<World> {
    Builder::new().build()
}

/// Configures how a rank joins its job, or how a job is started within this process.
///
/// Settings given here override the environment.
///
/// ```
/// let worlds = portolan::Builder::new()
///     .transport("shm")
///     .multiple()
///     .threads(2, |world| world.comm().transport())?;
/// assert_eq!(worlds, ["shm", "shm"]);
/// # Ok::<(), portolan::Error>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct Builder<L: Level = Single> {
    given: Vec<(String, String)>,
    level: PhantomData<fn() -> L>,
}

impl<L: Level> Clone for Builder<L> {
    fn clone(&self) -> Self {
        Self {
            given: self.given.clone(),
            level: PhantomData,
        }
    }
}

impl Default for Builder<Single> {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder<Single> {
    /// Takes all settings from the environment; one thread per rank.
    pub fn new() -> Self {
        Self {
            given: Vec::new(),
            level: PhantomData,
        }
    }

    /// Lets any thread use the rank's communicators at any time (MPI-4 section 11.2.1,
    /// `MPI_THREAD_MULTIPLE`): they are `Send` and `Sync`.
    #[doc(alias = "MPI_THREAD_MULTIPLE")]
    pub fn multiple(self) -> Builder<Multiple> {
        Builder {
            given: self.given,
            level: PhantomData,
        }
    }
}

impl<L: Level> Builder<L> {
    /// Uses this transport; joining the job fails if it is not usable.
    pub fn transport(self, name: &str) -> Self {
        self.setting("TRANSPORT", name)
    }

    /// Chooses what happens when a rank dies: the whole job ends, or calls that need the dead rank
    /// fail.
    pub fn on_failure(self, what: OnFailure) -> Self {
        self.setting("ON_FAILURE", &what.to_string())
    }

    /// Sets any setting, by its name without `PORTOLAN_`. `docs/settings.md` lists them.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.given.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Joins the job that this process was started for (MPI-4 section 11.2.1,
    /// `MPI_Init_thread`).
    ///
    /// # Errors
    /// As [`init`].
    #[doc(alias = "MPI_Init_thread")]
    pub fn build(self) -> Result<World<L>> {
        World::host(self.device()?)
    }

    /// Joins the job as [`build`](Self::build) does, but returns the bare device: for programs and
    /// libraries that use the device interface alone and need no communicator (`MPID_Init` of the
    /// paper; `portolan-core` has its other routines).
    ///
    /// [`Device::end`](crate::Device::end) leaves the job. Dropping the device leaves it too, and
    /// waits for the other ranks, so a program that gives up calls
    /// [`Device::abort`](crate::Device::abort) instead.
    ///
    /// # Errors
    /// As [`init`].
    pub fn device(self) -> Result<Hosted<AnyDevice<L>>> {
        self.join(&mut None)
    }

    /// Like [`device`](Self::device), but on failure the connection to the launcher stays in
    /// `connection`. Launchers such as Hydra kill the whole job when the connection closes, so the
    /// caller must report its error before it drops the connection.
    pub(crate) fn join(
        self,
        connection: &mut Option<Box<dyn Bootstrap>>,
    ) -> Result<Hosted<AnyDevice<L>>> {
        let settings = self.settings()?;
        let bootstrap = connection
            .insert(job::from_environment(settings.allow_singleton()).map_err(job_error)?);
        let choice = agree(bootstrap.as_mut(), &settings)?;
        let (rank, size, kind) = (bootstrap.rank(), bootstrap.size(), bootstrap.kind());
        if rank == 0 {
            announce(&settings, &choice, size, kind);
        }
        let device = open::<L>(&choice, bootstrap.as_mut(), &settings)?;
        let launcher: Launcher = Arc::new(Mutex::new(connection.take()));
        device.on_stuck(report_to(&launcher));
        let ending = Ending {
            together: true,
            fatal_failures: settings.on_failure() == OnFailure::Abort,
            launcher,
        };
        Ok(Hosted::chosen(device, &settings, ending))
    }

    /// The devices of a job of `n` ranks within this process.
    pub(crate) fn devices(&self, n: u32, place: Place) -> Result<(Vec<AnyDevice<L>>, Settings)> {
        if n == 0 {
            return Err(
                Error::new(ErrorKind::InvalidArgument, "a job of 0 ranks was asked for")
                    .remedy("ask for one rank or more"),
            );
        }
        let mut settings = self.settings()?;
        if settings.origin("ON_FAILURE") == Some(Origin::Default) {
            // The process outlives a rank that fails, so it can still report the failure.
            settings.set("ON_FAILURE", "return")?;
        }
        let vote = Vote::new(&settings, &candidates(place, &settings, Eager::No));
        let mut choice = decide(&[Arc::new(vote)])?;
        // What cannot join the ranks of one process is no surprise.
        choice.passed_over.clear();
        announce(&settings, &choice, n, place.name());
        let devices = open_all::<L>(&choice, n, &settings)?;
        Ok((devices, settings))
    }

    fn settings(&self) -> Result<Settings> {
        let mut settings = Settings::from_env()?;
        for (name, value) in &self.given {
            settings.set(name, value)?;
        }
        // From the beginning, so that messages logged while the job starts are printed too.
        log::to_stderr(settings.log());
        Ok(settings)
    }
}

/// Makes the hook that tells the launcher what this rank has been waiting for too long. The
/// launcher builds its picture of which rank waits for which from these reports.
fn report_to(launcher: &Launcher) -> StuckHook {
    let launcher = Arc::clone(launcher);
    Box::new(move |waits| {
        let mut launcher = launcher.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bootstrap) = launcher.as_mut() {
            bootstrap.report("waiting", &Waiting::encode(waits));
        }
    })
}

/// Opens the chosen transport as one process of the job.
#[allow(unused_variables, reason = "without features there is nothing to open")]
fn open<L: Level>(
    choice: &Choice,
    bootstrap: &mut dyn Bootstrap,
    settings: &Settings,
) -> Result<AnyDevice<L>> {
    match choice.name.as_str() {
        #[cfg(feature = "shm")]
        "shm" => {
            let transport = portolan_shm::open(bootstrap, settings)?;
            Ok(AnyDevice::Shm(Engine::new(transport, settings)?))
        }
        #[cfg(feature = "ofi")]
        "ofi" => {
            let transport = portolan_ofi::open(bootstrap, settings)?;
            over_ofi(transport, settings)
        }
        #[cfg(feature = "t3e-sim")]
        "t3e-sim" => {
            OneThread::<T3e, L>::check("t3e-sim")?;
            let config = portolan_t3e_sim::device::config(bootstrap.size(), settings)?;
            let pe = portolan_t3e_sim::open(bootstrap, &config)?;
            let device = T3e::new(pe, settings, true)?;
            Ok(AnyDevice::T3e(OneThread::new("t3e-sim", device)?))
        }
        name => Err(not_here(name)),
    }
}

/// Opens the chosen transport for all ranks of a job within this process.
#[allow(unused_variables, reason = "without features there is nothing to open")]
fn open_all<L: Level>(choice: &Choice, n: u32, settings: &Settings) -> Result<Vec<AnyDevice<L>>> {
    match choice.name.as_str() {
        #[cfg(feature = "shm")]
        "shm" => portolan_shm::in_process(n, settings)?
            .into_iter()
            .map(|transport| Ok(AnyDevice::Shm(Engine::new(transport, settings)?)))
            .collect(),
        #[cfg(feature = "ofi")]
        "ofi" => portolan_ofi::in_process(n, settings)?
            .into_iter()
            .map(|transport| over_ofi(transport, settings))
            .collect(),
        #[cfg(feature = "memory")]
        "memory" => portolan_core::transport::memory::network(n)
            .into_iter()
            .map(|transport| Ok(AnyDevice::InMemory(Engine::new(transport, settings)?)))
            .collect(),
        #[cfg(feature = "t3e-sim")]
        "t3e-sim" => {
            OneThread::<T3e, L>::check("t3e-sim")?;
            let config = portolan_t3e_sim::device::config(n, settings)?;
            let device = |pe| {
                let device = T3e::new(pe, settings, false)?;
                Ok(AnyDevice::T3e(OneThread::new("t3e-sim", device)?))
            };
            let all = portolan_t3e_sim::in_process(n, &config)?;
            all.into_iter().map(device).collect()
        }
        name => Err(not_here(name)),
    }
}

/// The device over libfabric: the native one if the endpoint was opened with matching by the
/// provider, else the engine.
#[cfg(feature = "ofi")]
fn over_ofi<L: Level>(transport: portolan_ofi::Ofi, settings: &Settings) -> Result<AnyDevice<L>> {
    Ok(if transport.matches() {
        AnyDevice::OfiNative(portolan_ofi::Native::new(transport, settings)?)
    } else {
        AnyDevice::Ofi(Engine::new(transport, settings)?)
    })
}

#[cold]
fn not_here(name: &str) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("transport {name} was chosen but cannot be opened"),
    )
    .remedy("please report it; until then choose another with PORTOLAN_TRANSPORT")
}

/// Prints warnings, for misspelt settings and for a transport that is not the one to be expected,
/// and the line that `PORTOLAN_REPORT` asks for.
fn announce(settings: &Settings, choice: &Choice, size: u32, kind: &str) {
    let mut text = String::new();
    for unknown in settings.unknown() {
        text.push_str(&format!("portolan: warning: {unknown}\n"));
    }
    let Choice {
        name,
        why,
        passed_over,
    } = choice;
    if !passed_over.is_empty() {
        text.push_str(&format!(
            "portolan: warning: the transport is {name}, because a better one cannot be used: {} \
             (PORTOLAN_TRANSPORT={name} asks for it without this warning)\n",
            passed_over.join("; ")
        ));
    }
    if settings.report() {
        let version = env!("CARGO_PKG_VERSION");
        text.push_str(&format!(
            "portolan {version}: {size} rank(s) ({kind}), transport {name} ({why})\n"
        ));
    }
    // Without a standard error the text has no reader, so a failure is ignored.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

#[cold]
fn job_error(error: JobError) -> Error {
    Error::new(ErrorKind::Job, error.to_string()).caused_by(error)
}
