//! The first failure of a job, and the message about it.

use std::io::{self, Write};

use super::pmi::StuckFence;
use crate::os::{Status, signal_name};

/// The first failure of a job: the launcher's message and exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// The launcher's exit code.
    pub(super) code: u8,
    /// The message, without what happened to the other ranks.
    pub(super) text: String,
}

/// A rank's number, with the pid that identifies it in other tools.
pub(super) fn name(rank: u32, pid: i32) -> String {
    format!("rank {rank} (pid {pid}, node {})", node())
}

fn node() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

impl Failure {
    /// The failure of a process that ended with `status`; `None` if that is no failure.
    ///
    /// `passed_on` is the signal with which somebody has ended the job from outside.
    pub(super) fn of_status(
        rank: u32,
        pid: i32,
        status: Status,
        passed_on: Option<i32>,
    ) -> Option<Self> {
        let who = name(rank, pid);
        match status {
            Status::Code(0) => None,
            // The kernel has already truncated exit codes above 255.
            Status::Code(code) => Some(Self {
                code: u8::try_from(code).unwrap_or(1),
                text: format!("{who} exited with code {code}"),
            }),
            Status::Signal { signal, core } => {
                let by = format!("signal {signal} ({})", signal_name(signal));
                let text = if passed_on == Some(signal) {
                    format!("the job was ended by {by}, which was passed on to every rank")
                } else {
                    let dumped = if core { ", core dumped" } else { "" };
                    format!("{who} was killed by {by}{dumped}")
                };
                Some(Self {
                    code: signal_code(signal),
                    text,
                })
            }
        }
    }

    /// A rank that asked for the end of the job.
    pub(super) fn abort(rank: u32, pid: i32, code: i32, reason: Option<&str>) -> Self {
        let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        Self {
            // An abort is never a success, whatever code the rank gave.
            code: u8::try_from(code & 0xff)
                .ok()
                .filter(|&code| code != 0)
                .unwrap_or(1),
            text: format!(
                "{} aborted the job with code {code}{reason}",
                name(rank, pid)
            ),
        }
    }

    /// The failure of a rank that violates the protocol on its PMI connection.
    pub(super) fn violation(rank: u32, pid: i32, why: &str) -> Self {
        let text = format!("{} does not speak PMI-1 on PMI_FD: {why}", name(rank, pid));
        Self { code: 1, text }
    }

    /// The failure of a rank for which another waits in vain.
    pub(super) fn missing(stuck: &StuckFence, pid: i32) -> Self {
        let StuckFence {
            missing,
            has_left,
            waiting,
        } = *stuck;
        let what = if has_left {
            "has left the job"
        } else {
            "exited without leaving the job"
        };
        let who = name(missing, pid);
        let text = format!("{who} {what}, and rank {waiting} waits for it in a fence");
        Self { code: 1, text }
    }

    /// The failure of a job that took too long.
    pub(super) fn timeout(seconds: f64, running: &[u32]) -> Self {
        let text = format!("the job did not end within {seconds} s (--timeout)");
        let list = running
            .iter()
            .take(16)
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ");
        let more = if running.len() > 16 { ", …" } else { "" };
        Self {
            code: 124,
            text: format!(
                "{text}; still running: {} {list}{more}",
                ranks(running.len())
            ),
        }
    }

    /// The failure of a job that was asked to end for the second time.
    pub(super) fn killed_on_request(signal: i32) -> Self {
        let name = signal_name(signal);
        Self {
            code: signal_code(signal),
            text: format!("got {name} again and killed the job"),
        }
    }

    /// The failure of a job that was asked to end before all of its ranks had been started.
    pub(super) fn not_started(signal: i32, started: u32, of: u32) -> Self {
        let name = signal_name(signal);
        Self {
            code: signal_code(signal),
            text: format!(
                "got {name} when {started} of {of} ranks had been started, and ended them"
            ),
        }
    }

    /// The failure of a launcher that cannot continue.
    pub(super) fn launcher(what: &str) -> Self {
        Self {
            code: 125,
            text: what.to_owned(),
        }
    }
}

/// `the other 3 ranks`, `the other rank`.
pub(super) fn others(count: usize) -> String {
    if count == 1 {
        "the other rank".to_owned()
    } else {
        format!("the other {count} ranks")
    }
}

fn ranks(count: usize) -> &'static str {
    if count == 1 { "rank" } else { "ranks" }
}

fn signal_code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// Prints a message before there is a job. A write error is ignored.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "portolan run: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_culprit_is_named_with_what_happened() {
        let status = Status::Signal {
            signal: 9,
            core: false,
        };
        let failure = Failure::of_status(2, 4711, status, None).unwrap();
        let node = node();
        assert_eq!(failure.code, 137);
        assert_eq!(
            failure.text,
            format!("rank 2 (pid 4711, node {node}) was killed by signal 9 (SIGKILL)")
        );
        assert_eq!(Failure::of_status(0, 1, Status::Code(0), None), None);
        assert_eq!(
            Failure::of_status(0, 1, Status::Code(42), None)
                .unwrap()
                .code,
            42
        );
    }

    #[test]
    fn an_abort_is_never_a_success() {
        for (given, code) in [(3, 3), (0, 1), (256, 1), (-1, 255)] {
            assert_eq!(Failure::abort(0, 1, given, None).code, code);
        }
        let text = Failure::abort(1, 5, 3, Some("no luck")).text;
        assert!(
            text.ends_with("aborted the job with code 3: no luck"),
            "{text}"
        );
    }

    #[test]
    fn a_signal_that_was_passed_on_is_nobodys_fault() {
        let status = Status::Signal {
            signal: 2,
            core: false,
        };
        let failure = Failure::of_status(0, 1, status, Some(2)).unwrap();
        assert_eq!(failure.code, 130);
        assert!(!failure.text.contains("rank 0"), "{}", failure.text);
    }
}
