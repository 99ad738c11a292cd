//! Reads signals from a descriptor instead of being interrupted by them.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use super::{check, retry};

/// Signals that the launcher reads instead of being stopped or interrupted by them.
///
/// `SIGTTIN` and `SIGTTOU` are blocked so that the use of the terminal from the background is an
/// error and does not stop the launcher.
const WATCHED: &[libc::c_int] = &[libc::SIGCHLD, libc::SIGCONT, libc::SIGTTIN, libc::SIGTTOU];

/// Signals that the launcher reads as well, unless its parent has made it ignore them, as `nohup`
/// does, or a shell that starts it in the background. (A blocked signal would be delivered for
/// reading even if it is ignored.)
const ASKED_FOR: &[libc::c_int] = &[
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGTSTP,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// The signals sent to this process, one [`next`](Self::next) after the other.
pub(crate) struct Signals {
    fd: OwnedFd,
    before: SignalMask,
}

/// A set of blocked signals.
#[derive(Clone, Copy)]
pub(crate) struct SignalMask(libc::sigset_t);

impl SignalMask {
    /// Makes this the mask of the calling thread. Usable between fork and exec.
    pub(super) fn apply(&self) -> io::Result<()> {
        // SAFETY: the set is initialised and outlives the call; the old mask is not asked for.
        check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) })
            .map(drop)
    }
}

impl Signals {
    /// Blocks the signals that are read here until this is dropped. Children inherit the blocking
    /// unless they [apply](SignalMask::apply) the mask from [before](Self::before).
    pub(crate) fn watch() -> io::Result<Self> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set that it is given.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        let asked_for = ASKED_FOR.iter().filter(|&&signal| !is_ignored(signal));
        for &signal in WATCHED.iter().chain(asked_for) {
            // SAFETY: the set has been initialised above; the signal numbers exist.
            unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
        }
        let mut before = MaybeUninit::uninit();
        // SAFETY: the set is initialised and outlives the call; there is room for the old mask.
        check(unsafe { libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) })?;
        // SAFETY: the call above has succeeded, so it has written the old mask.
        let before = SignalMask(unsafe { before.assume_init() });
        // SAFETY: the set is initialised; −1 asks for a new descriptor.
        let fd = check(unsafe {
            libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        })?;
        // SAFETY: the call above has made this descriptor, and nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, before })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The mask with which the launcher was started, and which its children should have.
    pub(crate) fn before(&self) -> SignalMask {
        self.before
    }

    /// A signal that asks for the end, if one has arrived. It stays where it is.
    pub(crate) fn end_is_asked_for(&self) -> Option<i32> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: there is room for the set.
        check(unsafe { libc::sigpending(set.as_mut_ptr()) }).ok()?;
        // SAFETY: the call has succeeded, so it has written the set.
        let pending = unsafe { set.assume_init() };
        let is_pending = |signal: &i32| {
            // SAFETY: the set is initialised; the signal numbers exist.
            unsafe { libc::sigismember(&raw const pending, *signal) == 1 }
        };
        [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM]
            .into_iter()
            .find(is_pending)
    }

    /// The next signal, if one has arrived.
    pub(crate) fn next(&self) -> io::Result<Option<i32>> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        let read = retry(|| {
            // SAFETY: `info` has room for `size` bytes.
            let n = unsafe { libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), size) };
            // At most the size of one record, which an int can hold.
            n as libc::c_int
        });
        match read {
            Ok(_) => {
                // SAFETY: a signalfd gives whole records, and one has been read.
                let info = unsafe { info.assume_init() };
                Ok(i32::try_from(info.ssi_signo).ok())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Makes the ends of children known to this process. If a parent has left `SIGCHLD` ignored, the
/// kernel reports no child's end to this process.
pub(crate) fn hear_of_children() {
    // SAFETY: no handler is set.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: nothing is changed; there is room for the present action.
    let told = check(unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) });
    // SAFETY: the call has succeeded, so it has written the action.
    told.is_ok() && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

impl Drop for Signals {
    /// Restores the mask from before. Signals that have not been read are delivered then.
    fn drop(&mut self) {
        // Cannot fail: the mask was in use before.
        let _ = self.before.apply();
    }
}

/// `SIGKILL` for 9; the number if the signal has no name.
pub(crate) fn signal_name(signal: i32) -> String {
    let name = match signal {
        libc::SIGABRT => "SIGABRT",
        libc::SIGALRM => "SIGALRM",
        libc::SIGBUS => "SIGBUS",
        libc::SIGCHLD => "SIGCHLD",
        libc::SIGCONT => "SIGCONT",
        libc::SIGFPE => "SIGFPE",
        libc::SIGHUP => "SIGHUP",
        libc::SIGILL => "SIGILL",
        libc::SIGINT => "SIGINT",
        libc::SIGIO => "SIGIO",
        libc::SIGKILL => "SIGKILL",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGPROF => "SIGPROF",
        libc::SIGPWR => "SIGPWR",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGSTKFLT => "SIGSTKFLT",
        libc::SIGSYS => "SIGSYS",
        libc::SIGTERM => "SIGTERM",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGVTALRM => "SIGVTALRM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}
