//! Errors between a rank and its launcher.

use std::io;

/// Why a rank could not join, use or leave its job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// There is a launcher, but this process cannot speak its protocol.
    #[error(
        "this process was started by {launcher} ({sign}), and cannot learn its rank from it: \
         {reason}\n  fix: {remedy}, or use `portolan run -n N -- PROGRAM`; if a job of one rank is \
         what you want, set PORTOLAN_ALLOW_SINGLETON=1"
    )]
    ForeignLauncher {
        /// The launcher's usual name.
        launcher: &'static str,
        /// The variable and value that give it away.
        sign: String,
        /// Why it cannot be used.
        reason: &'static str,
        /// What to type instead.
        remedy: &'static str,
    },

    /// A variable that the launcher should have set has an impossible value.
    #[error("{name}={value} {why}\n  fix: {remedy}")]
    BadVariable {
        /// Name of the environment variable.
        name: String,
        /// Its value.
        value: String,
        /// What is wrong with it; completes the sentence "NAME=VALUE …".
        why: String,
        /// What to do about it.
        remedy: &'static str,
    },

    /// The connection to the launcher failed.
    #[error("rank {rank}: lost the launcher while {doing}: {source}")]
    Connection {
        /// The rank that saw it.
        rank: u32,
        /// What was being done.
        doing: &'static str,
        /// The operating system's reason.
        source: io::Error,
    },

    /// The launcher sent something that is not in the protocol.
    #[error("rank {rank}: the launcher does not speak PMI-1 while {doing}: {why}")]
    Protocol {
        /// The rank that saw it.
        rank: u32,
        /// What was being done.
        doing: &'static str,
        /// What was wrong with the answer.
        why: String,
    },

    /// The launcher understood a request and turned it down.
    #[error("rank {rank}: the launcher refused while {doing}: {reason}")]
    Refused {
        /// The rank that asked.
        rank: u32,
        /// What was being done.
        doing: &'static str,
        /// The launcher's reason.
        reason: String,
    },

    /// A key that cannot be exchanged.
    #[error(
        "rank {rank}: key `{key}` cannot be exchanged: {why} (1 to 48 characters from A-Z a-z 0-9 . _ -)"
    )]
    BadKey {
        /// The rank that used it.
        rank: u32,
        /// The key.
        key: String,
        /// What is wrong with it.
        why: &'static str,
    },

    /// A key was put twice.
    #[error("rank {rank}: key `{key}` was put already; keys are written once")]
    DuplicateKey {
        /// The rank that put it again.
        rank: u32,
        /// The key.
        key: String,
    },

    /// No rank put this key before the last fence.
    #[error("rank {rank}: no rank has put key `{key}` before the last fence")]
    KeyMissing {
        /// The rank that asked.
        rank: u32,
        /// The key.
        key: String,
    },

    /// A rank ended without taking part in a fence, so the fence can never complete.
    #[error("rank {rank}: rank {gone} ended before the fence that this rank waits in")]
    RankGone {
        /// The rank that waited.
        rank: u32,
        /// The rank that ended.
        gone: u32,
    },

    /// A rank ended the job.
    #[error("rank {rank}: rank {by} aborted the job with code {code}: {message}")]
    Aborted {
        /// The rank that received the news.
        rank: u32,
        /// The rank that aborted the job.
        by: u32,
        /// The exit code that it asked for.
        code: i32,
        /// Its reason.
        message: String,
    },

    /// The bootstrap was used after `finalize`.
    #[error("rank {rank}: has left the job already (used after finalize)")]
    Finalized {
        /// The rank.
        rank: u32,
    },
}
