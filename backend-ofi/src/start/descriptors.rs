//! Descriptors: a provider with a socket for each connection needs as many as there are ranks to
//! talk to, twice.
//!
//! It notices too late that there are none left. A connection that a rank cannot accept leaves the
//! peer waiting for ever, and one that it cannot open looks like the peer's fault. So the limit is
//! raised when a rank starts, and a job that does not fit into it does not start.

use portolan_core::{Error, ErrorKind};

use crate::caps;
use crate::start::info::Info;

/// Descriptors for each rank: if two ranks begin to talk at the same time, each opens a connection,
/// and only later one of the two is closed.
const OF_A_RANK: u64 = 2;

/// Descriptors of an endpoint: what it listens on and sleeps on, a bell, and so on.
const OF_AN_ENDPOINT: u64 = 16;

/// How many more the soft limit leaves for the program where it is raised.
const SPARE: u64 = 64;

/// The limit does not suffice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Short {
    open: u64,
    needed: u64,
    limit: u64,
}

/// Raises this process's limit so that it can open `endpoints` and reach `size` ranks by each, as
/// far as the system permits. Whether that is enough shows later.
pub(crate) fn prepare(info: &Info, endpoints: u32, size: u32) {
    if caps::connects(info) {
        let of_ranks = u64::from(size) * (OF_A_RANK + 1); // Each process of the node is watched.
        let _ = reserve(u64::from(endpoints) * (OF_AN_ENDPOINT + of_ranks));
    }
}

/// Makes sure that this rank, which has opened everything else, can connect to all ranks of the
/// job.
///
/// # Errors
/// Its limit of descriptors is too low.
pub(crate) fn suffice(info: &Info, size: u32) -> Result<(), Error> {
    if !caps::connects(info) {
        return Ok(());
    }
    let reserved = reserve(OF_A_RANK * u64::from(size));
    reserved.map_err(|short| too_few(short, &info.provider(), size))
}

fn too_few(short: Short, provider: &str, size: u32) -> Error {
    let Short {
        open,
        needed,
        limit,
    } = short;
    Error::new(
        ErrorKind::TransportUnavailable,
        format!(
            "a process may open {limit} descriptors, and needs {needed} over provider {provider}: {open} are \
             open, and there may be {OF_A_RANK} for each of {size} ranks"
        ),
    )
    .remedy("raise the hard limit of open files (ulimit -n) on each node, or start fewer ranks")
}

/// Makes sure that this process may open so many descriptors more: raises its soft limit, up to the
/// hard one.
fn reserve(more: u64) -> Result<(), Short> {
    // Where `/proc` is hidden, nothing is known.
    let Some(open) = std::fs::read_dir("/proc/self/fd").ok().map(Iterator::count) else {
        return Ok(());
    };
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: `limit` is writable. The call fails only for resources that do not exist.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let (soft, hard) = (limit.rlim_cur, limit.rlim_max);
    let planned = plan(open as u64, more, soft, hard);
    limit.rlim_cur = planned.unwrap_or(hard);
    // SAFETY: a limit that is readable.
    let raise = || unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    if limit.rlim_cur > soft && raise() != 0 {
        return plan(open as u64, more, soft, soft).map(drop);
    }
    planned.map(drop)
}

/// The soft limit with which a process that has `open` descriptors may open so many more.
fn plan(open: u64, more: u64, soft: u64, hard: u64) -> Result<u64, Short> {
    let needed = open + more;
    if needed > hard {
        return Err(Short {
            open,
            needed,
            limit: hard,
        });
    }
    Ok(if needed > soft {
        (needed + SPARE).min(hard)
    } else {
        soft
    })
}

/// What a rank can do that has no descriptors left.
pub(crate) const REMEDY: &str = "raise the limit of open files (ulimit -n)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_raised_as_far_as_is_needed_and_possible() {
        assert_eq!(plan(20, 100, 1024, 4096), Ok(1024), "it suffices");
        assert_eq!(plan(24, 1000, 1024, 4096), Ok(1024), "just so");
        assert_eq!(plan(25, 1000, 1024, 4096), Ok(1025 + SPARE));
        assert_eq!(plan(25, 1000, 1024, 1030), Ok(1030));
        assert_eq!(plan(25, 1000, 1024, libc::RLIM_INFINITY), Ok(1025 + SPARE));
        let short = Short {
            open: 25,
            needed: 1025,
            limit: 1024,
        };
        assert_eq!(plan(25, 1000, 1024, 1024), Err(short));
    }

    #[test]
    fn a_job_that_does_not_fit_says_what_it_needs() {
        let short = plan(18, 2 * 700, 1024, 1024).unwrap_err();
        let error = too_few(short, "tcp;ofi_rxm", 700).to_string();
        for part in [
            "1024 descr",
            "1418",
            "18 are",
            "700",
            "ulimit -n",
            "tcp;ofi_rxm",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn what_is_open_is_counted() {
        assert_eq!(reserve(1), Ok(()));
        let short = reserve(1 << 40).map_err(|short| short.needed - short.open);
        assert!(short == Ok(()) || short == Err(1 << 40));
    }
}
