//! Making the transport: for one rank of a job of processes, or for all ranks of a job inside one
//! process.
//!
//! # How processes come together
//! 1. Rank 0 makes the memory file, or takes the one that Portolan's launcher handed to every rank,
//!    and sizes and seals it. Every rank publishes its [`Address`]; rank 0 also publishes how to
//!    get the file.
//! 2. Fence. Every rank reads all addresses, and all come to the same verdict about them.
//! 3. The other ranks take the file, which they inherited or get through rank 0's socket. Each rank
//!    maps and checks it, and records its identity in it.
//! 4. Fence. No rank sends before it. Each rank then starts its watcher.

mod together;

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use portolan_core::config::Settings;
use portolan_core::job::{Bootstrap, JobError};
use portolan_core::transport::{Header, Payload, Sent, Sink, Transport};
use portolan_core::{Error, ErrorKind, Result};

use crate::addr::{Address, Process};
use crate::allocator;
use crate::bell;
use crate::config::Config;
use crate::hand_over::{self, Giver};
use crate::pull::{Exposed, Puller};
use crate::segment::layout::{Life, layout_hash};
use crate::segment::{PAGE, Segment, memory_file};
use crate::shm::Shm;
use crate::sync::Ordering::{Relaxed, Release};
use crate::watch::Watcher;
use together::{addresses, judge};

/// Most ranks that a job may have on one node.
const MAX_RANKS: u32 = 1 << 16;
/// Key under which rank 0 publishes how to get the file.
const FILE_KEY: &str = "shm.file";

/// Makes the transport of one rank in a job of processes. Collective: every rank of the job calls
/// it.
///
/// # Errors
/// [`Job`](ErrorKind::Job) if the launcher fails,
/// [`TransportUnavailable`](ErrorKind::TransportUnavailable) if the ranks cannot share memory (they
/// are on several nodes, from several builds, or the system refuses), with the ranks and the
/// reason; [`Exhausted`](ErrorKind::Exhausted) if there is too little memory.
pub fn open(job: &mut dyn Bootstrap, settings: &Settings) -> Result<Shm, Error> {
    let rank = job.rank();
    open_with(job, &Config::from_settings(settings)).map_err(|e| e.on_rank(rank).on_device("shm"))
}

/// Like [`open`], with the sizes and choices in `config`.
///
/// # Errors
/// As for [`open`].
pub fn open_with(job: &mut dyn Bootstrap, config: &Config) -> Result<Shm, Error> {
    let (rank, size) = (job.rank(), job.size());
    check_size(size)?;
    let own = Address::own(layout_hash());
    job.put(&address_key(rank), &own.to_text())
        .map_err(job_failed)?;
    let mut origin = if rank == 0 {
        Some(publish(job, size, config)?)
    } else {
        None
    };
    job.fence().map_err(job_failed)?;
    let everyone = addresses(job, size)?;
    judge(&own, &everyone)?;
    let segment = match &mut origin {
        Some(origin) => origin.share(&everyone)?,
        None => {
            let file = fetch(job, &everyone[0])?;
            Segment::attach(file, size)?
        }
    };
    let segment = Arc::new(segment);
    introduce(&segment, rank, own.process, config);
    job.fence().map_err(job_failed)?;
    let processes: Arc<[Process]> = everyone.iter().map(|address| address.process).collect();
    let watcher = Watcher::start(Arc::clone(&segment), rank, Arc::clone(&processes))?;
    let shm = Shm::new(
        Arc::clone(&segment),
        rank,
        config.clone(),
        Puller::across(processes),
        Some(watcher),
    )?;
    allocator::attach(&segment, config.alloc_min.max(PAGE as usize));
    Ok(shm)
}

/// Makes the transports of all ranks of a job inside this process: for ranks that are threads, or
/// that one thread steps. They use the same structures as a job of processes.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument) for no ranks or too many,
/// [`TransportUnavailable`](ErrorKind::TransportUnavailable) or [`Exhausted`](ErrorKind::Exhausted)
/// if the system refuses a memory file of that size.
pub fn in_process(n: u32, settings: &Settings) -> Result<Vec<Shm>, Error> {
    in_process_with(n, &Config::from_settings(settings))
}

/// Like [`in_process`], with the sizes and choices in `config`.
///
/// # Errors
/// As for [`in_process`].
pub fn in_process_with(n: u32, config: &Config) -> Result<Vec<Shm>, Error> {
    check_size(n)?;
    let segment = Arc::new(Segment::prepare(memory_file()?, n, config.geometry())?);
    let exposed = Arc::new(Exposed::default());
    for rank in 0..n {
        introduce(&segment, rank, Process::own(), config);
    }
    let ranks = (0..n).map(|rank| {
        let puller = Puller::Within(Arc::clone(&exposed));
        Shm::new(Arc::clone(&segment), rank, config.clone(), puller, None)
    });
    ranks.collect()
}

/// Checks whether shared memory works here: makes a small job inside this process and moves a
/// message through it.
///
/// # Errors
/// A text that says what went wrong, with the system's error.
pub fn probe() -> Result<(), String> {
    struct Heard(bool);
    impl Sink for Heard {
        fn accepts(&mut self, _peer: u32) -> bool {
            true
        }
        fn packet(&mut self, _peer: u32, _header: &Header, _payload: Payload<'_>) {
            self.0 = true;
        }
    }
    let config = Config {
        max: 64 << 20,
        ..Config::default()
    };
    let mut ranks = in_process_with(2, &config).map_err(|error| error.to_string())?;
    // SAFETY: rank 1 exists and is not rank 0; no bytes are read.
    let sent = unsafe { ranks[0].send_short(1, &Header::default(), std::ptr::null(), 0) };
    let mut heard = Heard(false);
    ranks[1].poll(&mut heard);
    match (sent, heard.0) {
        (Sent::Done, true) => Ok(()),
        (sent, heard) => Err(format!(
            "a message did not arrive ({sent:?}, heard: {heard})"
        )),
    }
}

fn check_size(n: u32) -> Result<()> {
    if n == 0 || n > MAX_RANKS {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("a job of {n} ranks cannot be made"),
        )
        .remedy(format!("use 1 to {MAX_RANKS} ranks")));
    }
    Ok(())
}

/// Records in the segment which process `rank` is, and whether it has no `membarrier`.
fn introduce(segment: &Segment, rank: u32, process: Process, config: &Config) {
    if config.fenced || !bell::register_barrier() {
        // Relaxed: the job's fence comes between this store and every load of it.
        segment.head().fenced.store(1, Relaxed);
    }
    let identity = &segment.rank(rank).identity;
    identity.pid.store(process.pid, Relaxed);
    identity.start.store(process.start, Relaxed);
    identity.probe_at.store(
        (&raw const identity.probe).expose_provenance() as u64,
        Relaxed,
    );
    // Release: pairs with the Acquire in `Segment::life`.
    identity.life.store(Life::Running as u32, Release);
}

fn address_key(rank: u32) -> String {
    format!("shm.rank.{rank}")
}

/// Rank 0's segment, and the socket through which the other ranks fetch the file, if they need one.
struct Origin {
    segment: Option<Segment>,
    giver: Option<Giver>,
}

impl Origin {
    /// Gives the file to every rank that has to fetch it.
    fn share(&mut self, everyone: &[Address]) -> Result<Segment> {
        let Some(segment) = self.segment.take() else {
            return Err(Error::new(
                ErrorKind::Internal,
                "the segment was shared twice",
            ));
        };
        if let Some(giver) = &self.giver {
            let others: Vec<(u32, Process)> = (1..)
                .zip(&everyone[1..])
                .map(|(rank, address)| (rank, address.process))
                .collect();
            giver.give(segment.fd(), &others, everyone[0].user)?;
        }
        Ok(segment)
    }
}

/// Rank 0: makes the segment and publishes how to get it. If that fails, publishes the reason, so
/// that every rank reports the same.
fn publish(job: &mut dyn Bootstrap, size: u32, config: &Config) -> Result<Origin> {
    let made = make(job, size, config);
    let text = match &made {
        Ok((_, how)) => how.clone(),
        Err(error) => format!("error {error}"),
    };
    job.put(FILE_KEY, &text).map_err(job_failed)?;
    match made {
        Ok((origin, _)) => Ok(origin),
        Err(error) => {
            // The fence lets the other ranks read the reason before this rank leaves.
            job.fence().map_err(job_failed)?;
            Err(error)
        }
    }
}

fn make(job: &dyn Bootstrap, size: u32, config: &Config) -> Result<(Origin, String)> {
    let geometry = config.geometry();
    if let Some(fd) = job.inherited("shm") {
        let segment = Segment::prepare(duplicate(fd)?, size, geometry)?;
        let how = format!("inherited {}", inode(segment.fd())?);
        return Ok((
            Origin {
                segment: Some(segment),
                giver: None,
            },
            how,
        ));
    }
    let segment = Some(Segment::prepare(memory_file()?, size, geometry)?);
    if size == 1 {
        return Ok((
            Origin {
                segment,
                giver: None,
            },
            "alone".into(),
        ));
    }
    let giver = Giver::new().map_err(|error| {
        Error::new(
            ErrorKind::TransportUnavailable,
            format!("an abstract socket could not be made: {error}"),
        )
        .remedy("start the program with `portolan run`, which hands the memory over without one")
    })?;
    let how = format!("socket {}", giver.name());
    Ok((
        Origin {
            segment,
            giver: Some(giver),
        },
        how,
    ))
}

/// Takes the file that rank 0 made.
fn fetch(job: &mut dyn Bootstrap, giver: &Address) -> Result<OwnedFd> {
    let how = job.get(FILE_KEY).map_err(job_failed)?;
    let unavailable = |why: String| Error::new(ErrorKind::TransportUnavailable, why);
    match how.split_once(' ') {
        Some(("inherited", expected)) => {
            let Some(fd) = job.inherited("shm") else {
                return Err(unavailable(
                    "rank 0 was given shared memory by the launcher, this rank was not".into(),
                )
                .remedy("do not close descriptors between the launcher and the program"));
            };
            let file = duplicate(fd)?;
            if inode(file.as_raw_fd())? != expected {
                return Err(unavailable(format!(
                    "descriptor {fd} is not the shared memory of this job"
                ))
                .remedy(
                    "unset PORTOLAN_SHM_FD, or do not reuse descriptors before the program starts",
                ));
            }
            Ok(file)
        }
        Some(("socket", name)) => {
            hand_over::take(name, giver.process, giver.user).map_err(|error| {
                unavailable(format!(
                    "fetching the shared memory from rank 0 (pid {}) failed: {error}",
                    giver.process.pid
                ))
                .remedy("run all ranks of a node as one user, in one container")
            })
        }
        Some(("error", why)) => Err(unavailable(format!(
            "rank 0 could not make the shared memory: {why}"
        ))),
        _ => Err(
            unavailable(format!("rank 0 said {how:?} about the shared memory"))
                .remedy("start all ranks from builds of one version"),
        ),
    }
}

fn duplicate(fd: RawFd) -> Result<OwnedFd> {
    // SAFETY: the bootstrap keeps its descriptor open during this call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    borrowed.try_clone_to_owned().map_err(|error| {
        Error::new(
            ErrorKind::TransportUnavailable,
            format!("descriptor {fd} of the launcher cannot be used: {error}"),
        )
        .remedy("do not close descriptors between the launcher and the program")
    })
}

/// Device and inode of a file, as text.
fn inode(fd: RawFd) -> Result<String> {
    // SAFETY: plain old data.
    let mut stat = unsafe { std::mem::zeroed::<libc::stat>() };
    // SAFETY: room for the result.
    if unsafe { libc::fstat(fd, &raw mut stat) } != 0 {
        let error = std::io::Error::last_os_error();
        return Err(Error::new(
            ErrorKind::TransportUnavailable,
            format!("descriptor {fd}: {error}"),
        ));
    }
    Ok(format!("{}:{}", stat.st_dev, stat.st_ino))
}

fn job_failed(error: JobError) -> Error {
    Error::new(ErrorKind::Job, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_sizes_are_refused() {
        for n in [0, MAX_RANKS + 1] {
            let error = in_process_with(n, &Config::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
    }

    #[test]
    fn it_works_here() {
        assert_eq!(probe(), Ok(()));
    }
}
