//! Terminals: which process may read one, and how to write to one without blocking.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use super::check;

/// The major device numbers of the program's end (slave side) of a pseudoterminal.
const PSEUDOTERMINALS: std::ops::RangeInclusive<libc::c_uint> = 136..=143;

/// Whether that is this process's controlling terminal. It no longer is after a hang-up.
pub(crate) fn is_controlled_by(terminal: BorrowedFd<'_>) -> bool {
    foreground_of(terminal).is_some()
}

/// Whether this process may read from that terminal now. It always may if the terminal does not
/// control it: then a terminal that has hung up returns the end of input.
pub(crate) fn is_in_foreground(terminal: BorrowedFd<'_>) -> bool {
    // SAFETY: getpgrp touches no memory of this process.
    let own = unsafe { libc::getpgrp() };
    foreground_of(terminal).is_none_or(|group| group == own)
}

/// The terminal's foreground process group, which may read from it; `None` if this is not this
/// process's controlling terminal.
fn foreground_of(terminal: BorrowedFd<'_>) -> Option<i32> {
    // The error is ENOTTY without control of the terminal, and EIO after a hang-up.
    // SAFETY: tcgetpgrp touches no memory of this process.
    check(unsafe { libc::tcgetpgrp(terminal.as_raw_fd()) }).ok()
}

/// Opens the terminal behind a descriptor once more, for writes that take as much as there is room
/// for and never block. (`O_NONBLOCK` on the descriptor itself would affect the shell as well,
/// which shares the open file description.)
///
/// `None` for anything but the program's end of a pseudoterminal, and if the terminal may not be
/// opened: behind `su` it belongs to another user.
pub(crate) fn opened_without_waiting(descriptor: BorrowedFd<'_>) -> Option<File> {
    let same = File::from(descriptor.try_clone_to_owned().ok()?);
    // Opening the master side (`/dev/ptmx`) again would create a new terminal.
    if !PSEUDOTERMINALS.contains(&libc::major(same.metadata().ok()?.rdev())) {
        return None;
    }
    let mut options = OpenOptions::new();
    options
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    options
        .open(format!("/proc/self/fd/{}", same.as_raw_fd()))
        .ok()
}

/// Both ends of a pseudoterminal: the end for keyboard and screen, and the program's end. For
/// tests.
#[cfg(test)]
pub(crate) fn pseudoterminal() -> [std::os::fd::OwnedFd; 2] {
    use std::os::fd::{FromRawFd, OwnedFd};
    let mut ends = [-1; 2];
    let [one, other] = &mut ends;
    let null = std::ptr::null_mut();
    // SAFETY: there is room for both descriptors, and nothing else is asked for.
    check(unsafe { libc::openpty(one, other, null, null.cast(), null.cast()) })
        .expect("there is a terminal");
    // SAFETY: the call above has made both, and nobody else owns them.
    ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_terminal_that_does_not_control_this_process_may_be_read() {
        let [screen, terminal] = pseudoterminal();
        assert!(is_in_foreground(terminal.as_fd()));
        assert!(!is_controlled_by(terminal.as_fd()));
        // A hang-up: the other end is closed.
        drop(screen);
        assert!(is_in_foreground(terminal.as_fd()));
    }

    #[test]
    fn only_the_end_for_programs_is_opened_once_more() {
        let [screen, terminal] = pseudoterminal();
        let again = opened_without_waiting(terminal.as_fd()).unwrap();
        let number = |file: &File| file.metadata().unwrap().rdev();
        assert_eq!(number(&again), number(&File::from(terminal)));
        assert!(opened_without_waiting(screen.as_fd()).is_none());
        let (_reader, writer) = std::io::pipe().unwrap();
        assert!(opened_without_waiting(writer.as_fd()).is_none());
    }
}
