//! A process that outlives the launcher by a moment, to end what it leaves behind.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::{check, retry};

/// Leads the process group of the ranks, and kills that group when the launcher is gone.
///
/// The kernel kills a rank when the launcher dies (`PR_SET_PDEATHSIG`), but not what the rank has
/// started in turn. The guard does: it waits for the end of a pipe whose other end only the
/// launcher holds, then kills its own group. As the group's leader it also keeps the group's
/// number from being used again, however many ranks have come and gone.
pub(crate) struct Guard {
    pid: i32,
    alive: Option<OwnedFd>,
}

impl Guard {
    /// Starts the guard. Only a process with a single thread may do this.
    pub(crate) fn start() -> io::Result<Self> {
        let mut ends: [RawFd; 2] = [0; 2];
        // SAFETY: `ends` has room for two descriptors.
        check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
        // SAFETY: the call above has made both, and nobody else owns them.
        let [read, write] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: this process has one thread, so the child's copy of memory is consistent; the
        // child only makes system calls and never returns from `watch`.
        match check(unsafe { libc::fork() })? {
            0 => watch(read.as_raw_fd()),
            pid => {
                // Both sides set the group, so that it is there whoever runs first.
                // SAFETY: setpgid touches no memory.
                unsafe { libc::setpgid(pid, pid) };
                Ok(Self {
                    pid,
                    alive: Some(write),
                })
            }
        }
    }

    /// The guard's own process, and the number of the group it leads.
    pub(crate) fn group(&self) -> i32 {
        self.pid
    }

    /// Ends every process that is still in the group, and waits until the guard itself has gone.
    pub(crate) fn finish(mut self) {
        self.alive = None;
        // SAFETY: no status is asked for. Whoever reaped the guard before has ended it: fine too.
        let _ = retry(|| unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) });
    }
}

/// The guard's life, between fork and end.
fn watch(pipe: RawFd) -> ! {
    // SAFETY: system calls only, on numbers and on memory of this frame. Blocking every signal
    // leaves SIGKILL, which cannot be blocked, and which is how the guard ends. Closing the other
    // descriptors is part of its job: held open here they would keep pipes and sockets from
    // ending. Nothing that owned them runs in this process again.
    unsafe {
        libc::setpgid(0, 0);
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, c"portolan-guard".as_ptr());
        // The pipe's number is positive, so both conversions keep it.
        libc::syscall(libc::SYS_close_range, 0, pipe as libc::c_uint - 1, 0);
        libc::syscall(
            libc::SYS_close_range,
            pipe as libc::c_uint + 1,
            libc::c_uint::MAX,
            0,
        );
        let mut byte = 0_u8;
        while libc::read(pipe, (&raw mut byte).cast(), 1) == -1 {}
        libc::kill(0, libc::SIGKILL);
        libc::_exit(0)
    }
}
