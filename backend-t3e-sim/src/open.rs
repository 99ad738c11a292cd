//! Making PEs: one PE of a job of processes, or all PEs of a job inside one process.
//!
//! # How processes come together
//! 1. The process of PE 0 builds the machine, starts a thread that emulates it, and publishes its
//!    address.
//! 2. Fence. Every PE joins the machine, PE 0 included.
//! 3. Fence. All PEs have joined; if one could not, all know it.

use std::thread;

use portolan_core::job::{Bootstrap, JobError};
use portolan_core::{Error, ErrorKind, Result};

use crate::config::Config;
use crate::drive::{self, Host};
use crate::shmem::Shmem;

/// The key under which PE 0 publishes its machine's address.
const MACHINE_KEY: &str = "t3e.machine";

/// Bytes of a PE's stack in [`run`]. This is address space: the host allocates only the pages that
/// are touched.
const STACK: usize = 256 << 10;

/// Makes this process's PE of a job. Collective.
///
/// # Errors
/// [`Job`](ErrorKind::Job) if the job fails to start,
/// [`TransportUnavailable`](ErrorKind::TransportUnavailable) if PE 0 cannot be reached, and the
/// errors of [`Config::machine`], on every PE.
pub fn open(job: &mut dyn Bootstrap, config: &Config) -> Result<Shmem> {
    let (pe, pes) = (job.rank(), job.size());
    // Declared first so that it is dropped after the link in every case: dropping it waits for the
    // links.
    let mut host = None;
    let said = if pe == 0 {
        let built = config
            .machine(pes)
            .and_then(|machine| Host::start(machine, config.watchdog));
        let said = match &built {
            Ok(host) => format!("at {}", host.address()),
            Err(error) => format!("error {error}"),
        };
        job.put(MACHINE_KEY, &said).map_err(job_failed)?;
        host = Some(built);
        Some(said)
    } else {
        None
    };
    job.fence().map_err(job_failed)?;
    let host = host.transpose()?;
    let said = match said {
        Some(said) => said,
        None => job.get(MACHINE_KEY).map_err(job_failed)?,
    };
    let link = match said.split_once(' ') {
        Some(("at", address)) => drive::join(address, pe)?,
        Some(("error", why)) => {
            let what = format!("PE 0 could not build the machine: {why}");
            return Err(Error::new(ErrorKind::TransportUnavailable, what).on_rank(pe));
        }
        _ => {
            let what = format!("PE 0 said {said:?} about its machine");
            return Err(Error::new(ErrorKind::Job, what)
                .remedy("start all ranks from builds of one version")
                .on_rank(pe));
        }
    };
    job.fence().map_err(job_failed)?;
    Ok(Shmem::hosted(link, host))
}

/// Makes all PEs of a job inside this process. Each belongs in a thread of its own: the first call
/// of a PE waits for the first calls of all others.
///
/// # Errors
/// The errors of [`Config::machine`]; [`Exhausted`](ErrorKind::Exhausted) if no thread can be
/// started.
pub fn in_process(pes: u32, config: &Config) -> Result<Vec<Shmem>> {
    let machine = config.machine(pes)?;
    let links = drive::threads(machine, config.watchdog)?;
    Ok(links.into_iter().map(Shmem::new).collect())
}

/// Runs `body` on every PE of a machine, each in a thread with a small stack. Returns the results
/// in the order of the PEs.
///
/// ```
/// use portolan_t3e_sim::{Config, run};
///
/// let times = run(4, &Config::default(), |pe| {
///     pe.barrier_all().unwrap();
///     pe.clock()
/// })?;
/// assert!(times.iter().all(|time| *time == times[0]));
/// # Ok::<(), portolan_core::Error>(())
/// ```
///
/// # Errors
/// As [`in_process`].
///
/// # Panics
/// If `body` panics on a PE.
pub fn run<R: Send>(
    pes: u32,
    config: &Config,
    body: impl Fn(&mut Shmem) -> R + Sync,
) -> Result<Vec<R>> {
    run_owned(pes, config, |mut shmem| body(&mut shmem))
}

/// Like [`run`], for a `body` that takes the PE itself: to make a device of it, say.
///
/// # Errors
/// As [`in_process`].
///
/// # Panics
/// If `body` panics on a PE.
pub fn run_owned<R: Send>(
    pes: u32,
    config: &Config,
    body: impl Fn(Shmem) -> R + Sync,
) -> Result<Vec<R>> {
    let body = &body;
    let all = in_process(pes, config)?;
    thread::scope(|scope| {
        let mut threads = Vec::with_capacity(all.len());
        for shmem in all {
            let started = thread::Builder::new()
                .name(format!("PE {}", shmem.my_pe()))
                .stack_size(STACK)
                .spawn_scoped(scope, move || body(shmem));
            threads.push(started.map_err(no_thread)?);
        }
        let join = |thread: thread::ScopedJoinHandle<'_, R>| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        Ok(threads.into_iter().map(join).collect())
    })
}

/// The error of a thread that did not start. The threads that did start wait for the missing ones,
/// and give up as the missing PEs' handles are dropped.
#[cold]
fn no_thread(error: std::io::Error) -> Error {
    Error::new(
        ErrorKind::Exhausted,
        format!("a thread for a PE did not start: {error}"),
    )
    .remedy("run fewer PEs, or raise the limits of threads and memory (ulimit -u, ulimit -v)")
    .on_device("t3e-sim")
}

#[cold]
fn job_failed(error: JobError) -> Error {
    Error::new(ErrorKind::Job, error.to_string())
}

/// Checks whether a job of processes can be emulated here: builds a machine of one PE and joins it.
///
/// # Errors
/// A text that says what is missing.
pub fn probe() -> Result<(), String> {
    let tried = || -> Result<()> {
        let config = Config::default();
        let host = Host::start(config.machine(1)?, config.watchdog)?;
        let link = drive::join(&host.address(), 0)?;
        let mut shmem = Shmem::hosted(link, Some(host));
        let place = shmem.malloc(8)?;
        shmem.put(0, place, b"one word")?;
        shmem.quiet()?;
        let mut word = [0; 8];
        shmem.load(place, &mut word)?;
        if word == *b"one word" {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Internal,
            format!("a message came back as {word:?}"),
        ))
    };
    tried().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_works_here() {
        assert_eq!(probe(), Ok(()));
    }
}
