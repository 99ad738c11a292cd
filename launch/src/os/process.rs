//! Processes: how they ended, how to end them, which job they belong to.

use std::{fs, io};

use super::{check, retry};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal {
        /// Its number.
        signal: i32,
        /// Whether a core file was written.
        core: bool,
    },
}

/// Reaps the next child that has ended, if there is one.
pub(crate) fn reap() -> Option<(i32, Status)> {
    let mut raw = 0;
    // SAFETY: `raw` is a valid place for the status.
    let pid = retry(|| unsafe { libc::waitpid(-1, &raw mut raw, libc::WNOHANG) });
    // 0: there are children, but none has ended. −1 (ECHILD): there are no children.
    let pid = pid.ok().filter(|&pid| pid > 0)?;
    let status = if libc::WIFSIGNALED(raw) {
        Status::Signal {
            signal: libc::WTERMSIG(raw),
            core: libc::WCOREDUMP(raw),
        }
    } else {
        Status::Code(libc::WEXITSTATUS(raw))
    };
    Some((pid, status))
}

/// Sends a signal to a child that has not been reaped. It is no error if the child has ended.
pub(crate) fn kill(pid: i32, signal: i32) {
    debug_assert!(pid > 1);
    // SAFETY: kill touches no memory of this process.
    unsafe { libc::kill(pid, signal) };
}

/// Waits until a child has ended, without reaping it.
pub(crate) fn await_end(pid: i32) {
    await_change(pid, libc::WEXITED);
}

/// Stops a child, and waits until it has stopped or ended.
pub(crate) fn stop(pid: i32) {
    kill(pid, libc::SIGSTOP);
    await_change(pid, libc::WSTOPPED | libc::WEXITED);
}

/// Waits for one of these state changes of a child, without reaping it.
fn await_change(pid: i32, changes: libc::c_int) {
    debug_assert!(pid > 1);
    // SAFETY: a siginfo_t is numbers and pointers, for which zero is valid.
    let mut told: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `told` is a valid place for the result. An error means that there is no such child,
    // which is as good as its end.
    let _ = retry(|| unsafe {
        libc::waitid(
            libc::P_PID,
            pid.unsigned_abs(),
            &raw mut told,
            changes | libc::WNOWAIT,
        )
    });
}

/// Kills a child and waits until it has gone. A child that now runs as another user cannot be
/// killed, and is not waited for.
pub(crate) fn kill_and_wait(pid: i32) {
    debug_assert!(pid > 1);
    // SAFETY: as in `kill`.
    if check(unsafe { libc::kill(pid, libc::SIGKILL) }).is_err() {
        return;
    }
    // SAFETY: no status is asked for.
    let _ = retry(|| unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) });
}

/// Sends a signal to a process group. It is no error if the group is empty.
pub(crate) fn kill_group(group: i32, signal: i32) {
    debug_assert!(group > 1);
    // SAFETY: as in `kill`.
    unsafe { libc::kill(-group, signal) };
}

/// The process group of a process, if the process exists.
pub(crate) fn group_of(pid: i32) -> Option<i32> {
    // SAFETY: getpgid touches no memory of this process.
    check(unsafe { libc::getpgid(pid) }).ok()
}

/// Makes this process the new parent of descendants whose parent dies, so that it can end them.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    // SAFETY: this option takes one number and touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }).map(drop)
}

/// The present children of this process, zombies included.
///
/// Empty if the kernel does not tell.
pub(crate) fn adopted_children() -> Vec<i32> {
    let me = std::process::id();
    children_of(&format!("/proc/{me}/task/{me}"))
}

/// Whether the process was started with `variable` (`NAME=VALUE`) in its environment. `false` if
/// that cannot be read, for example because the process belongs to another user.
pub(crate) fn was_given(pid: i32, variable: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut variables = environment.split(|&byte| byte == 0);
    variables.any(|one| one == variable.as_bytes())
}

/// The search for descendants ends at about this many. No script of a rank has as many.
const MANY: usize = 256;

/// The present descendants of a process. Empty if the kernel does not tell.
pub(crate) fn descendants(pid: i32) -> Vec<i32> {
    let (mut all, mut next) = (vec![pid], 0);
    while next < all.len() && all.len() < MANY {
        let threads = fs::read_dir(format!("/proc/{}/task", all[next]));
        for thread in threads.into_iter().flatten().flatten() {
            all.extend(children_of(&thread.path().to_string_lossy()));
        }
        next += 1;
    }
    all.split_off(1)
}

/// The children of a thread, adopted ones included.
fn children_of(thread: &str) -> Vec<i32> {
    let list = fs::read_to_string(format!("{thread}/children")).unwrap_or_default();
    list.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Whether a process has a handler of its own for a signal.
pub(crate) fn catches(pid: i32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = caught
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// Whether a process has begun to exit. Other processes may notice that before it can be reaped.
pub(crate) fn is_exiting(pid: i32) -> bool {
    /// The kernel's flag `PF_EXITING`.
    const EXITING: u64 = 4;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in parentheses, may contain anything; the flags are the ninth field.
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let flags = after_name.split(' ').nth(6);
    let flags = flags.and_then(|flags| flags.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & EXITING != 0)
}

/// Whether there is no process with this pid, or only a zombie.
pub(crate) fn has_gone(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // If the file does not exist, there is no such process. The state follows the name.
    let state = stat.rsplit_once(") ").map_or("X", |(_, rest)| rest);
    state.starts_with(['Z', 'X'])
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid touches no memory of this process.
    unsafe { libc::geteuid() == 0 }
}

/// Stops this process until another process continues it, as the shell's Ctrl-Z does.
pub(crate) fn stop_self() {
    // SAFETY: raise touches no memory; SIGSTOP needs no handler.
    unsafe { libc::raise(libc::SIGSTOP) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process under another user, as `sudo` in a rank's script would start it.
    #[test]
    #[expect(clippy::print_stderr, reason = "a skip says why")]
    fn who_cannot_be_ended_is_not_waited_for() {
        if !is_root() {
            eprintln!("skipped: a child of another user: this process is not root");
            return;
        }
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let (send, returned) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // The raw system call changes only this thread's user, to one without rights.
            // SAFETY: it takes numbers, and touches no memory.
            let other = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
            if other == 0 {
                kill_and_wait(pid);
            } else {
                eprintln!("skipped: a child of another user: there is none here");
            }
            send.send(()).unwrap();
        });
        let returned = returned.recv_timeout(std::time::Duration::from_secs(60));
        let lived = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(returned.is_ok() && lived, "{returned:?}, {lived}");
    }

    #[test]
    fn what_a_process_was_given_is_compared_whole() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .env_clear()
            .envs([("ONE", "1"), ("TWO", "22")])
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let found = ["ONE=1", "TWO=22", "TWO=2", "NE=1", "ONE"].map(|one| was_given(pid, one));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, [true, true, false, false, false]);
        assert!(!was_given(pid, "ONE=1"), "it has gone");
    }
}
