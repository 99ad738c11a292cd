//! The job's shared memory: one file without a name, handed to every rank.

use std::io;
use std::os::fd::OwnedFd;

/// Variable with the descriptor's number, for the ranks.
pub(super) const VARIABLE: &str = "PORTOLAN_SHM_FD";

/// The file, empty.
///
/// The launcher only creates it: how large it has to be and when it is sealed is the shared-memory
/// transport's to say, which the ranks do together when they open it. It has no name, so whoever
/// dies when, nothing is left in `/dev/shm`: the file goes with its last user.
pub(super) fn create() -> io::Result<OwnedFd> {
    crate::os::memory_file(c"portolan")
}
