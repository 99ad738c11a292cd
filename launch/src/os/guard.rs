//! A process that outlives the launcher briefly, to end what the launcher leaves behind.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::panic::catch_unwind;

use super::{check, has_gone, retry, was_given};

/// How often the guard checks, once a millisecond, whether the ranks have gone. The limit is for a
/// kernel that cannot end a process, and for ranks that have left the group.
const LOOKS: u32 = 2000;

/// Leads the process group of the ranks, and kills that group when the launcher is gone.
///
/// When the launcher dies, the kernel kills the ranks (`PR_SET_PDEATHSIG`), but not their children.
/// The guard does that: it waits for the end of a pipe whose other end only the launcher holds,
/// then kills its own group. As the group's leader it also keeps the group's number from being
/// reused, however many ranks have come and gone.
///
/// Through the same pipe the launcher tells the guard the pid of each rank. So the guard can remove
/// the files that ranks leave behind, if the launcher was killed and cannot do it.
pub(crate) struct Guard {
    pid: i32,
    alive: Option<File>,
}

/// Called with the ranks' pids after they have gone.
pub(crate) type CleanUp = fn(&[i32]);

impl Guard {
    /// Starts the guard. `mark` (`NAME=VALUE`) is in the environment of everything that ranks
    /// start. The calling process must have a single thread.
    pub(crate) fn start(clean_up: CleanUp, mark: &str) -> io::Result<Self> {
        let mut ends: [RawFd; 2] = [0; 2];
        // SAFETY: `ends` has room for two descriptors.
        check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
        // SAFETY: the call above has made both, and nobody else owns them.
        let [read, write] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: this process has one thread, so the child's copy of memory is consistent, the
        // allocator's too; the child never returns from `watch`.
        match check(unsafe { libc::fork() })? {
            0 => {
                // If the guard itself held the write end, the pipe would never end.
                drop(write);
                watch(read.as_raw_fd(), clean_up, mark)
            }
            pid => {
                // Both sides set the group, so that it exists whichever runs first.
                // SAFETY: setpgid touches no memory.
                unsafe { libc::setpgid(pid, pid) };
                Ok(Self {
                    pid,
                    alive: Some(write.into()),
                })
            }
        }
    }

    /// The guard's own process, and the number of the group it leads.
    pub(crate) fn group(&self) -> i32 {
        self.pid
    }

    /// Tells the guard the pid of a process that a rank's script has started.
    pub(crate) fn tell_of_inner(&self, pid: i32) {
        self.tell(-pid);
    }

    /// Tells the guard the pid of a rank that has been started.
    pub(crate) fn tell(&self, pid: i32) {
        // If the guard has been killed, the write fails; the job runs all the same.
        let _ = self
            .alive
            .as_ref()
            .map(|mut pipe| pipe.write_all(&pid.to_ne_bytes()));
    }

    /// Ends every process that is still in the group, and waits until the guard itself has gone.
    pub(crate) fn finish(mut self) {
        self.alive = None;
        // SAFETY: no status is requested. An error means that the guard has been reaped already,
        // which is fine too.
        let _ = retry(|| unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) });
    }
}

/// The guard's whole run, from fork to exit.
fn watch(pipe: RawFd, clean_up: CleanUp, mark: &str) -> ! {
    // SAFETY: system calls only, on numbers and on memory of this frame. Blocking every signal
    // leaves SIGKILL, which cannot be blocked, and which is how the guard ends.
    unsafe {
        libc::setpgid(0, 0);
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, c"portolan-guard".as_ptr());
    }
    close_all_but(pipe);
    // A panic must not unwind into the launcher's frames, of which this process has a copy.
    let _ = catch_unwind(|| {
        let told = told_until_the_end(pipe);
        end(&told, mark);
        let pids: Vec<i32> = told.iter().map(|pid| pid.abs()).collect();
        clean_up(&pids);
    });
    // SAFETY: neither touches memory of this process.
    unsafe {
        libc::kill(0, libc::SIGKILL);
        libc::_exit(0)
    }
}

/// Closes all descriptors except `pipe`. The guard's copies would keep the launcher's pipes and
/// sockets from ending.
fn close_all_but(pipe: RawFd) {
    // The pipe's number is positive, so the conversion keeps it.
    let number = pipe as libc::c_uint;
    let ranges = [(0, number - 1), (number + 1, libc::c_uint::MAX)];
    // SAFETY: a system call on numbers. Nothing that owned the descriptors runs in this process
    // again.
    let close = |(first, last): (libc::c_uint, libc::c_uint)| unsafe {
        libc::syscall(libc::SYS_close_range, first, last, 0)
    };
    if ranges.into_iter().all(|range| close(range) == 0) {
        return;
    }
    // `close_range` exists since Linux 5.9, and some containers forbid it.
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let names = open.flatten().map(|entry| entry.file_name());
    let open: Vec<RawFd> = names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect();
    for fd in open.into_iter().filter(|&fd| fd != pipe) {
        // SAFETY: as above. The folder's own descriptor is closed already, and to close it again is
        // an error without effect.
        unsafe { libc::close(fd) };
    }
}

/// Collects the pids that the launcher sends, until the launcher has gone or closes the pipe. Pids
/// of processes that a rank's script has started are negative.
fn told_until_the_end(pipe: RawFd) -> Vec<i32> {
    let mut told = Vec::new();
    loop {
        let mut pid = 0_i32.to_ne_bytes();
        // SAFETY: `pid` has room for its length. The launcher writes each pid in one piece, so it
        // is read in one piece.
        let read = retry(|| unsafe {
            // At most 4, so the conversion keeps it.
            libc::read(pipe, pid.as_mut_ptr().cast(), pid.len()) as libc::c_int
        });
        if !read.is_ok_and(|read| read == 4) {
            return told;
        }
        told.push(i32::from_ne_bytes(pid));
    }
}

/// Kills the job's processes, in this group and outside of it, and waits until they and all ranks
/// have gone.
fn end(told: &[i32], mark: &str) {
    let mut awaited = Vec::new();
    for &told in told {
        let pid = told.abs();
        // SAFETY: none of these touches memory of this process.
        let in_group = unsafe { libc::getpgid(pid) == libc::getpgrp() };
        // A pid that has been reused since belongs to another group, and that process does not have
        // the mark. Ranks die with the launcher in any group (`PR_SET_PDEATHSIG`), but the
        // processes that their scripts have started do not.
        let ours = in_group || was_given(pid, mark);
        if ours {
            // SAFETY: as above.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        if ours || told > 0 {
            awaited.push(pid);
        }
    }
    let mut looks = 0..LOOKS;
    while !awaited.iter().all(|&pid| has_gone(pid)) && looks.next().is_some() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
