//! The steps of a rank's process between `fork` and `exec`.

use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::{CpuSet, SignalMask};

/// Prepares the process of one rank.
pub(crate) struct ChildSetup {
    /// The process group to join.
    pub(crate) group: i32,
    /// Descriptors of the launcher that the program keeps, under the same numbers.
    pub(crate) keep: Vec<RawFd>,
    /// The signals that are blocked in it.
    pub(crate) mask: SignalMask,
    /// The processors it may run on; `None` leaves them alone.
    pub(crate) cpus: Option<CpuSet>,
}

impl ChildSetup {
    /// Adds the preparation to a command that has not been started.
    pub(crate) fn apply(self, command: &mut Command) {
        command.process_group(self.group);
        let launcher = std::process::id();
        let prepare = move || {
            end_with(launcher, libc::SIGKILL)?;
            for &fd in &self.keep {
                keep_across_exec(fd)?;
            }
            self.cpus.as_ref().map_or(Ok(()), CpuSet::bind_self)?;
            self.mask.apply()
        };
        // SAFETY: the closure runs between fork and exec. It makes system calls and reads memory
        // that it owns; it allocates nothing and takes no lock (io::Error from errno is a number).
        unsafe { command.pre_exec(prepare) };
    }
}

/// Makes the kernel send a signal to the process that `command` starts when the calling thread
/// ends. A process for which nothing waits must not outlive this one, however this one ends: so the
/// signal is SIGKILL, or SIGTERM for a launcher, which has ranks and files of its own to remove.
pub(crate) fn end_with_this_process(command: &mut Command, signal: libc::c_int) {
    let parent = std::process::id();
    // SAFETY: the closure runs between fork and exec, makes system calls and reads two numbers.
    unsafe { command.pre_exec(move || end_with(parent, signal)) };
}

/// Binds the program of a command to a set of processors. If that fails, the program does not
/// start.
pub(crate) fn bind(command: &mut Command, set: CpuSet) {
    // SAFETY: the closure runs between fork and exec and makes one system call.
    unsafe { command.pre_exec(move || set.bind_self()) };
}

/// Makes the kernel send this process a signal when the thread of its parent ends that started it.
fn end_with(parent: u32, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: this option takes one number and touches no memory.
    super::check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) })?;
    // The parent may have ended before the call above; then the kernel would send no signal.
    if std::os::unix::process::parent_id() != parent {
        // SAFETY: ends the process at once, without running anything of this copy.
        unsafe { libc::_exit(1) };
    }
    Ok(())
}

fn keep_across_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: changes one flag of a descriptor; memory is not touched. An fd that is not open
    // gives an error.
    super::check(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }).map(drop)
}
