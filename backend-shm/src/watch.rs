//! Noticing that a rank has died: one thread per process sleeps on descriptors of the other ranks'
//! processes.
//!
//! A pidfd becomes readable when its process ends, for whatever reason. A rank that leaves in an
//! orderly way says so in the segment first. Any other end is a death: the thread records it in the
//! segment and rings every bell, so that every sleeping rank finds out at once.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use portolan_core::{Error, ErrorKind, Result};

use crate::addr::Process;
use crate::segment::Segment;
use crate::segment::layout::Life;

/// The watching thread, and the descriptors that it watches.
#[derive(Debug)]
pub(crate) struct Watcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread.
    process: u32,
}

#[derive(Debug)]
struct Shared {
    segment: Arc<Segment>,
    /// The rank that watches.
    own: u32,
    /// By rank; `None` for this rank, and for ranks that were dead at the start.
    others: Vec<Option<OwnedFd>>,
    processes: Arc<[Process]>,
    /// Becomes readable when the watcher is to end.
    end: OwnedFd,
}

impl Watcher {
    /// Watches the processes of all ranks but `own`.
    pub(crate) fn start(
        segment: Arc<Segment>,
        own: u32,
        processes: Arc<[Process]>,
    ) -> Result<Self> {
        let mut others = Vec::with_capacity(processes.len());
        for (rank, &process) in processes.iter().enumerate() {
            let watched = if rank as u32 == own {
                None
            } else {
                descriptor(process)?
            };
            if watched.is_none() && rank as u32 != own {
                died(&segment, own, rank as u32, process);
            }
            others.push(watched);
        }
        // SAFETY: flags only.
        let end = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if end < 0 {
            return Err(failed("eventfd"));
        }
        // SAFETY: a descriptor that nobody else has.
        let end = unsafe { OwnedFd::from_raw_fd(end) };
        let shared = Arc::new(Shared {
            segment,
            own,
            others,
            processes,
            end,
        });
        let thread = spawn(Arc::clone(&shared))?;
        Ok(Self {
            shared,
            thread: Some(thread),
            process: std::process::id(),
        })
    }

    /// Asks the system whether the process of `rank` has ended.
    pub(crate) fn has_ended(&self, rank: u32) -> bool {
        let Some(fd) = &self.shared.others[rank as usize] else {
            return true;
        };
        let mut asked = libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry, no waiting.
        unsafe { libc::poll(&raw mut asked, 1, 0) > 0 }
    }

    /// Records that the process of `rank` has ended, if the thread has not yet done so.
    pub(crate) fn note_end(&self, rank: u32) {
        let process = self.shared.processes[rank as usize];
        died(&self.shared.segment, self.shared.own, rank, process);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // A child that has been forked has the descriptor of its parent, and no thread.
        if std::process::id() != self.process {
            std::mem::forget(self.thread.take());
            return;
        }
        let one = 1_u64;
        // SAFETY: the value has eight bytes. One write cannot overflow the counter.
        unsafe { libc::write(self.shared.end.as_raw_fd(), (&raw const one).cast(), 8) };
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Opens a pidfd of the process; `None` if the process has already ended.
fn descriptor(process: Process) -> Result<Option<OwnedFd>> {
    // SAFETY: two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process.pid as libc::pid_t, 0) };
    if fd < 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ESRCH) => Ok(None),
            _ => Err(failed("pidfd_open")),
        };
    }
    // SAFETY: a descriptor that nobody else has.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    // The descriptor refers to whichever process has this id now.
    Ok(process.is_current().then_some(fd))
}

/// Starts the thread with every signal blocked, so that the program's handlers run elsewhere.
fn spawn(shared: Arc<Shared>) -> Result<JoinHandle<()>> {
    // SAFETY: plain old data, filled by the calls below.
    let (mut all, mut before) = unsafe { std::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>() };
    // SAFETY: both sets are valid. The mask of this thread is restored below, as soon as the new
    // thread has inherited the full one.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    let thread = std::thread::Builder::new()
        .name("portolan-watch".into())
        .stack_size(64 << 10)
        .spawn(move || watch(&shared));
    // SAFETY: the mask that was there before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    thread.map_err(|error| {
        Error::new(
            ErrorKind::Exhausted,
            format!("the thread that watches the other ranks did not start: {error}"),
        )
        .remedy("raise the limit of processes (ulimit -u)")
        .on_device("shm")
    })
}

fn watch(shared: &Shared) {
    let entry = |fd: i32| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // poll(2) skips entries whose descriptor is negative.
    let mut entries: Vec<libc::pollfd> = shared
        .others
        .iter()
        .map(|fd| entry(fd.as_ref().map_or(-1, AsRawFd::as_raw_fd)))
        .collect();
    entries.push(entry(shared.end.as_raw_fd()));
    let end = entries.len() - 1;
    loop {
        // SAFETY: the pointer and the length are those of `entries`.
        let ready = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, -1) };
        if ready < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
        for (rank, entry) in entries[..end]
            .iter_mut()
            .enumerate()
            .filter(|(_, e)| e.revents != 0)
        {
            died(
                &shared.segment,
                shared.own,
                rank as u32,
                shared.processes[rank],
            );
            entry.fd = -1;
            entry.revents = 0;
        }
        if entries[end].revents != 0 {
            return;
        }
    }
}

/// Records that the process of `rank` has ended: a death, unless the rank had left.
fn died(segment: &Segment, own: u32, rank: u32, process: Process) {
    if segment.life(rank) != Life::Finished {
        let why = format!("the process of rank {rank} (pid {}) has died", process.pid);
        segment.died(own, rank, &why);
    }
}

fn failed(call: &str) -> Error {
    let error = io::Error::last_os_error();
    Error::new(
        ErrorKind::TransportUnavailable,
        format!("{call}, with which the death of a rank is noticed, failed: {error}"),
    )
    .remedy("this needs Linux 5.3, one descriptor per rank (ulimit -n) and no seccomp filter against it")
    .on_device("shm")
}
