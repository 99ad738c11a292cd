//! Terminals: who may read one, and how to write to one without waiting.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use super::check;

/// The major numbers of the devices that are the ends of pseudoterminals which programs have.
const PSEUDOTERMINALS: std::ops::RangeInclusive<libc::c_uint> = 136..=143;

/// Whether this process is controlled by that terminal. It is no longer when that has hung up.
pub(crate) fn is_controlled_by(terminal: BorrowedFd<'_>) -> bool {
    foreground_of(terminal).is_some()
}

/// Whether this process may read from that terminal now. Of one that does not control it, it may
/// always: one that has hung up says that this is the end.
pub(crate) fn is_in_foreground(terminal: BorrowedFd<'_>) -> bool {
    // SAFETY: getpgrp touches no memory of this process.
    let own = unsafe { libc::getpgrp() };
    foreground_of(terminal).is_none_or(|group| group == own)
}

/// The process group that may read from it, of those that it controls; `None` if this process is
/// none of these.
fn foreground_of(terminal: BorrowedFd<'_>) -> Option<i32> {
    // Without control the error is ENOTTY, after a hang-up EIO.
    // SAFETY: tcgetpgrp touches no memory of this process.
    check(unsafe { libc::tcgetpgrp(terminal.as_raw_fd()) }).ok()
}

/// The terminal behind a descriptor, opened once more for writing that takes what there is room for
/// and never waits. (To ask for that on the descriptor itself would ask for it in the shell's name,
/// too, which has the same.)
///
/// `None` for anything else than the end of a pseudoterminal that programs have, and where it may
/// not be opened: behind `su` it is another user's.
pub(crate) fn opened_without_waiting(descriptor: BorrowedFd<'_>) -> Option<File> {
    let same = File::from(descriptor.try_clone_to_owned().ok()?);
    // The other end, opened once more, would be a new terminal.
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

/// Both ends of a pseudoterminal: the one for keyboard and screen, the one for programs. For tests.
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
        // It has hung up: nobody is at its other end any more.
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
