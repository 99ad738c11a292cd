//! The clock that all processes of a machine share.

/// Nanoseconds since a moment before any process of this machine started. All processes agree on
/// it.
pub(crate) fn monotonic_nanoseconds() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is writable. The call fails only for clocks that do not exist.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
