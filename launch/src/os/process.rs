//! Processes: how they ended, how to end them, whose they are.

use std::{fs, io};

use super::{check, retry};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// By itself, with this code.
    Code(i32),
    /// By this signal, with a core file or without.
    Signal {
        /// Its number.
        signal: i32,
        /// Whether a core file was written.
        core: bool,
    },
}

/// The next child that has ended, if there is one; it is gone after this.
pub(crate) fn reap() -> Option<(i32, Status)> {
    let mut raw = 0;
    // SAFETY: `raw` is a valid place for the status.
    let pid = retry(|| unsafe { libc::waitpid(-1, &raw mut raw, libc::WNOHANG) });
    // 0: children there are, but none has ended; −1 (ECHILD): there are none.
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

/// Sends a signal to a child that has not been reaped. That it has ended meanwhile is no error.
pub(crate) fn kill(pid: i32, signal: i32) {
    debug_assert!(pid > 1);
    // SAFETY: kill touches no memory of this process.
    unsafe { libc::kill(pid, signal) };
}

/// Waits until a child has ended, and leaves it to be reaped.
pub(crate) fn await_end(pid: i32) {
    await_change(pid, libc::WEXITED);
}

/// Stops a child, and waits until it has stopped, or ended.
pub(crate) fn stop(pid: i32) {
    kill(pid, libc::SIGSTOP);
    await_change(pid, libc::WSTOPPED | libc::WEXITED);
}

/// Waits for one of these changes of a child, and leaves what it tells to whoever reaps it.
fn await_change(pid: i32, changes: libc::c_int) {
    debug_assert!(pid > 1);
    // SAFETY: a siginfo_t is numbers and pointers, for which zero is valid.
    let mut told: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `told` is a valid place for what is told. That there is no such child is as good as
    // its end.
    let _ = retry(|| unsafe {
        libc::waitid(
            libc::P_PID,
            pid.unsigned_abs(),
            &raw mut told,
            changes | libc::WNOWAIT,
        )
    });
}

/// Ends a child and waits until it has gone. One that has become another user's cannot be ended,
/// and is not waited for.
pub(crate) fn kill_and_wait(pid: i32) {
    debug_assert!(pid > 1);
    // SAFETY: as in `kill`.
    if check(unsafe { libc::kill(pid, libc::SIGKILL) }).is_err() {
        return;
    }
    // SAFETY: no status is asked for.
    let _ = retry(|| unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) });
}

/// Sends a signal to a process group. That it is empty is no error.
pub(crate) fn kill_group(group: i32, signal: i32) {
    debug_assert!(group > 1);
    // SAFETY: as in `kill`.
    unsafe { libc::kill(-group, signal) };
}

/// The process group of a process, if it is there.
pub(crate) fn group_of(pid: i32) -> Option<i32> {
    // SAFETY: getpgid touches no memory of this process.
    check(unsafe { libc::getpgid(pid) }).ok()
}

/// Processes whose parent dies become children of this one, so that it can end them.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    // SAFETY: this option takes one number and touches no memory.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }).map(drop)
}

/// The children of this process as they are now, zombies included.
///
/// Empty where the kernel does not tell.
pub(crate) fn adopted_children() -> Vec<i32> {
    let me = std::process::id();
    children_of(&format!("/proc/{me}/task/{me}"))
}

/// Whether a process has begun with that in its environment (`NAME=VALUE`). Nothing is known of one
/// that may not be looked at, as another user's.
pub(crate) fn was_given(pid: i32, variable: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut variables = environment.split(|&byte| byte == 0);
    variables.any(|one| one == variable.as_bytes())
}

/// No more descendants than about so many are looked for: no script of a rank has as many.
const MANY: usize = 256;

/// The processes that have come of one, as they are now. Empty where the kernel does not tell.
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

/// The children that a thread has started or taken in.
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

/// Whether a process has begun to end, which others may see of it before it can be reaped.
pub(crate) fn is_exiting(pid: i32) -> bool {
    /// `PF_EXITING` of the kernel.
    const EXITING: u64 = 4;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in parentheses, may hold anything; the flags are the ninth field.
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let flags = after_name.split(' ').nth(6);
    let flags = flags.and_then(|flags| flags.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & EXITING != 0)
}

/// Whether there is no process with this pid, or one that only waits to be reaped.
pub(crate) fn has_gone(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Without such a file there is no process; the state comes behind the name.
    let state = stat.rsplit_once(") ").map_or("X", |(_, rest)| rest);
    state.starts_with(['Z', 'X'])
}

/// Whether this process may do anything.
pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid touches no memory of this process.
    unsafe { libc::geteuid() == 0 }
}

/// Stops this process until somebody continues it, as the shell's Ctrl-Z does.
pub(crate) fn stop_self() {
    // SAFETY: raise touches no memory; SIGSTOP needs no handler.
    unsafe { libc::raise(libc::SIGSTOP) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As what `sudo` starts in a script of a rank.
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
            // The system call makes this thread alone somebody else, who has no rights.
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
