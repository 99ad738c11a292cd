//! Noticing that a process of this node has died: one thread, asleep on descriptors of the others.
//!
//! A pidfd becomes readable when its process ends, however it ends. A rank that has left in good order
//! has written so into the roster before; any other end is a death. Ranks of other nodes are the
//! launcher's to watch.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::addr::Process;
use crate::shared::Shared;

/// The thread that watches.
#[derive(Debug)]
pub(crate) struct Watcher {
    /// Becomes readable when the thread shall end.
    end: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// A process that is watched.
struct Watched {
    rank: u32,
    process: Process,
    /// `None` once it has ended.
    fd: Option<OwnedFd>,
}

impl Watcher {
    /// Watches these ranks' processes.
    pub(crate) fn start(
        shared: Arc<Shared>,
        processes: impl Iterator<Item = (u32, Process)>,
    ) -> Result<Self, String> {
        let mut watched = Vec::new();
        for (rank, process) in processes {
            let fd = descriptor(process)?;
            if fd.is_none() {
                ended(&shared, rank, process);
            }
            watched.push(Watched { rank, process, fd });
        }
        // SAFETY: flags only.
        let end = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if end < 0 {
            return Err(failed("eventfd"));
        }
        // SAFETY: a descriptor that nobody else has.
        let end = Arc::new(unsafe { OwnedFd::from_raw_fd(end) });
        let thread = spawn({
            let end = Arc::clone(&end);
            move || watch(&shared, &mut watched, &end)
        })?;
        Ok(Self {
            end,
            thread: Some(thread),
        })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let one = 1_u64;
        // SAFETY: eight bytes. The counter cannot overflow by one write.
        unsafe { libc::write(self.end.as_raw_fd(), (&raw const one).cast(), 8) };
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A descriptor of the process; `None` if it is gone already.
fn descriptor(process: Process) -> Result<Option<OwnedFd>, String> {
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
    // The descriptor holds on to whichever process has the number now.
    Ok(process.is_current().then_some(fd))
}

/// Starts the thread with every signal blocked, so that the program's handlers run elsewhere.
fn spawn(body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, String> {
    // SAFETY: plain old data, filled by the calls below.
    let (mut all, mut before) = unsafe { std::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>() };
    // SAFETY: valid sets; the mask of this thread is restored right after the new one has got its own.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    let builder = std::thread::Builder::new().name("portolan-watch".into());
    let thread = builder.stack_size(64 << 10).spawn(body);
    // SAFETY: the mask that was there before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    thread.map_err(|error| {
        format!("the thread that watches the other ranks did not start: {error} (ulimit -u)")
    })
}

fn watch(shared: &Shared, watched: &mut [Watched], end: &OwnedFd) {
    loop {
        // poll(2) skips entries whose descriptor is negative.
        let entry = |fd: i32| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let fd_of = |one: &Watched| one.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let mut entries: Vec<libc::pollfd> = watched.iter().map(|one| entry(fd_of(one))).collect();
        entries.push(entry(end.as_raw_fd()));
        // SAFETY: as many entries as said.
        let ready = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, -1) };
        if ready < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
        for (one, entry) in watched.iter_mut().zip(&entries) {
            if entry.revents != 0 {
                ended(shared, one.rank, one.process);
                one.fd = None;
            }
        }
        if entries.last().is_some_and(|end| end.revents != 0) {
            return;
        }
    }
}

/// The process of `rank` has ended: a death, unless it had left.
fn ended(shared: &Shared, rank: u32, process: Process) {
    if !shared.roster.has_left(rank) {
        let why = format!("the process of rank {rank} (pid {}) has died", process.pid);
        shared.deaths.declare(rank, &why);
    }
}

fn failed(call: &str) -> String {
    let error = io::Error::last_os_error();
    format!(
        "{call}, with which the death of a rank is noticed, failed: {error} (this needs Linux 5.3, and one \
         descriptor for each rank of the node: ulimit -n)"
    )
}
