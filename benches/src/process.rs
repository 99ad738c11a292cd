//! What the system knows about this process.

use std::{fs, io};

/// Nanoseconds since a moment before any process of this machine started. All processes agree on
/// it.
#[must_use]
pub fn monotonic_nanoseconds() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is writable. The call fails only for clocks that do not exist.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Selects whose processor time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// All threads of this process.
    Process,
    /// The children for which this process has waited, and those for which they have waited.
    Children,
}

/// Processor time in seconds, in the kernel and in user mode.
#[must_use]
pub fn processor_seconds(whose: Whose) -> f64 {
    let who = match whose {
        Whose::Process => libc::RUSAGE_SELF,
        Whose::Children => libc::RUSAGE_CHILDREN,
    };
    // SAFETY: an rusage is numbers, for which zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is writable. The call fails only for an unknown `who`.
    unsafe { libc::getrusage(who, &raw mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Makes this process the leader of a session of its own, as if another user had started it: the
/// kernel shares processors between sessions. A process that leads its group already stays in its
/// session.
pub fn begin_session() {
    // SAFETY: setsid touches no memory of this process. It fails where this is a session already.
    unsafe { libc::setsid() };
}

/// Memory of this process in KiB, without copies of files: its private memory, and its share of
/// what it shares with other processes.
///
/// # Errors
/// If the system does not tell (`/proc/self/smaps_rollup`).
pub fn proportional_kib() -> io::Result<f64> {
    let text = fs::read_to_string("/proc/self/smaps_rollup")?;
    own_and_shared(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn own_and_shared(rollup: &str) -> Option<f64> {
    let field = |name: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    Some(field("Pss_Anon:")? + field("Pss_Shmem:")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_and_shared_memory_are_added_up() {
        let text = "00400000-7fff ---p 0 00:00 0 [rollup]\nRss: 9 kB\nPss_Anon: 100 kB\n\
                    Pss_File: 900 kB\nPss_Shmem: 20 kB\n";
        assert_eq!(own_and_shared(text), Some(120.0));
        assert_eq!(own_and_shared("Pss_Anon: 100 kB\n"), None);
    }

    #[test]
    fn this_process_has_memory_and_has_run() {
        assert!(proportional_kib().unwrap() > 100.0);
        let before = processor_seconds(Whose::Process);
        let mut least = before;
        // Spins until the clock of the processor time has moved.
        while least == before {
            least = processor_seconds(Whose::Process);
        }
        assert!(least > before && processor_seconds(Whose::Children) >= 0.0);
        assert!(monotonic_nanoseconds() > 0);
    }
}
