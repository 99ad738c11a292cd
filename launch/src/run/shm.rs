//! The job's shared memory: one file without a name, passed to every rank.

use std::io;
use std::os::fd::OwnedFd;

/// The variable that tells the ranks the descriptor's number.
pub(super) const VARIABLE: &str = "PORTOLAN_SHM_FD";

/// Creates the file, empty.
///
/// The launcher does no more than that: the shared-memory transport decides how large the file is
/// and when it is sealed, and the ranks do both together when they open it. The file has no name,
/// so nothing is left in `/dev/shm`, whatever process dies when: it disappears with its last user.
pub(super) fn create() -> io::Result<OwnedFd> {
    crate::os::memory_file(c"portolan")
}
