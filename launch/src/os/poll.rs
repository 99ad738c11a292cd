//! Waits for several descriptors at once.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use super::check;

/// The event to wait for on a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Something to read, or the other end has closed.
    Read,
    /// Room to write at least one page, or the other end has closed.
    Write,
}

/// Waits until a descriptor is ready or the time is over, and returns the labels of the ready
/// descriptors.
///
/// A signal that is not blocked ends the wait early, with no labels.
pub(crate) fn poll<L: Copy>(
    watched: &[(BorrowedFd<'_>, Interest, L)],
    timeout: Option<Duration>,
) -> io::Result<Vec<L>> {
    let entry = |(fd, interest, _): &(BorrowedFd<'_>, Interest, L)| libc::pollfd {
        fd: fd.as_raw_fd(),
        events: match interest {
            Interest::Read => libc::POLLIN,
            Interest::Write => libc::POLLOUT,
        },
        revents: 0,
    };
    let mut entries: Vec<_> = watched.iter().map(entry).collect();
    // Rounded up: waking before a deadline would only mean waiting again.
    let milliseconds = timeout.map_or(-1, |time| {
        i32::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
    });
    let count = entries.len() as libc::nfds_t;
    // SAFETY: `entries` has `count` elements; their descriptors are borrowed for the call.
    match check(unsafe { libc::poll(entries.as_mut_ptr(), count, milliseconds) }) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Vec::new()),
        Err(error) => return Err(error),
    }
    let ready = entries
        .iter()
        .zip(watched)
        .filter(|(entry, _)| entry.revents != 0);
    Ok(ready.map(|(_, &(_, _, label))| label).collect())
}
