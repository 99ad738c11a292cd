//! Turns at allocating: one rank at a time checks how much memory is left and takes some of it.
//!
//! If two ranks checked first and both allocated afterwards, each would be told that there is
//! enough, although there is enough for one only; and the control group would answer with the OOM
//! killer.

use std::io;
use std::os::fd::RawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The right to allocate, until this is dropped. The system takes it back from a process that dies.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    fd: RawFd,
    refused: Option<io::Error>,
    /// Excludes other ranks of this process: a record lock belongs to the whole process, not to a
    /// thread.
    _threads: MutexGuard<'a, ()>,
}

impl<'a> Turn<'a> {
    /// Waits for the turn. Where the file cannot be locked, this does not wait for ranks of other
    /// processes, and the memory check is only as good as its margin.
    pub(super) fn take(threads: &'a Mutex<()>, fd: RawFd) -> Self {
        let guard = threads.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = lock(fd, libc::F_WRLCK as libc::c_short).err();
        Self {
            fd,
            refused,
            _threads: guard,
        }
    }

    /// Ends the turn; says why the file could not be locked, if it could not.
    pub(super) fn refused(mut self) -> Option<io::Error> {
        self.refused.take()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // An error does not matter: the file was then not locked in the first place.
        let _ = lock(self.fd, libc::F_UNLCK as libc::c_short);
    }
}

/// Locks or unlocks the first byte of the file for this process (POSIX record locks).
fn lock(fd: RawFd, kind: libc::c_short) -> io::Result<()> {
    // SAFETY: plain old data, for which zeros are legal.
    let mut region: libc::flock = unsafe { std::mem::zeroed() };
    region.l_type = kind;
    region.l_whence = libc::SEEK_SET as libc::c_short;
    region.l_len = 1;
    loop {
        // SAFETY: a descriptor and a record that lives as long as the call.
        if unsafe { libc::fcntl(fd, libc::F_SETLKW, &raw const region) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::sync::Mutex;

    use super::*;

    /// Whether another process could lock the file now.
    fn free_for_others(fd: RawFd) -> bool {
        // SAFETY: the child only makes system calls before it ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: plain old data, for which zeros are legal.
            let mut region: libc::flock = unsafe { std::mem::zeroed() };
            region.l_type = libc::F_WRLCK as libc::c_short;
            region.l_len = 1;
            // SAFETY: a descriptor and a record on the stack; `_exit` runs nothing else.
            unsafe { libc::_exit(libc::fcntl(fd, libc::F_SETLK, &raw const region)) }
        }
        let mut status = 0;
        // SAFETY: waits for the child above.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        libc::WEXITSTATUS(status) == 0
    }

    #[test]
    fn a_turn_keeps_other_processes_out_until_it_ends() {
        // SAFETY: a name and flags.
        let fd = unsafe { libc::memfd_create(c"turn".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: a descriptor that nobody else has.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        let threads = Mutex::new(());
        let turn = Turn::take(&threads, file.as_raw_fd());
        assert!(!free_for_others(file.as_raw_fd()));
        assert!(threads.try_lock().is_err());
        drop(turn);
        assert!(free_for_others(file.as_raw_fd()));
        assert!(threads.try_lock().is_ok());
    }
}
