//! Opens libfabric without letting it change how the process handles signals.

use libfabric_sys::Library;

use crate::config::Config;

/// Signals for which libraries below libfabric install handlers: its shm provider, to unlink files;
/// PSM's library, to print where a program crashed. The program's own handlers have to stay. Files
/// that a provider leaves behind when a rank dies are removed by the launcher.
const SIGNALS: [i32; 8] = [
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGINT,
    libc::SIGSEGV,
    libc::SIGTERM,
    libc::SIGHUP,
];

/// Opens the library that the configuration names.
pub(crate) fn open(config: &Config) -> Result<Library, String> {
    keeping_signals(|| Library::open(config.library.as_deref())).map_err(|error| error.to_string())
}

/// Runs `body`, which may make the library initialise its providers, and then restores the signal
/// handlers.
pub(crate) fn keeping_signals<R>(body: impl FnOnce() -> R) -> R {
    let before = SIGNALS.map(|signal| {
        // SAFETY: plain old data, which the call fills; a null action only queries.
        unsafe {
            let mut action = std::mem::zeroed::<libc::sigaction>();
            let known = libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0;
            (signal, known.then_some(action))
        }
    });
    let result = body();
    for (signal, action) in before {
        if let Some(action) = action {
            // SAFETY: the action that was installed when this call began.
            unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_are_what_they_were() {
        // SAFETY: the process' own handler for a signal that no test uses, put back at the end.
        unsafe {
            let before = libc::signal(libc::SIGTERM, libc::SIG_IGN);
            keeping_signals(|| libc::signal(libc::SIGTERM, libc::SIG_DFL));
            assert_eq!(libc::signal(libc::SIGTERM, before), libc::SIG_IGN);
        }
    }
}
