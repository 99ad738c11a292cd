//! Threads that are bound to one processor.

use std::{fmt, io};

/// The error if a thread could not be bound to a processor.
#[derive(Debug)]
pub struct PinError {
    processor: usize,
    source: io::Error,
}

impl fmt::Display for PinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processor, source } = self;
        write!(f, "cannot run on processor {processor}: {source}")
    }
}

impl std::error::Error for PinError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// The processors that this thread may run on, in ascending order; empty if the system does not
/// tell.
#[must_use]
pub fn allowed_processors() -> Vec<usize> {
    // SAFETY: a cpu_set_t is an array of numbers, for which zero is valid: the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is writable, and its size is given.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) } != 0 {
        return Vec::new();
    }
    // SAFETY: every number asked about is within the set.
    (0..8 * size_of_val(&set))
        .filter(|&processor| unsafe { libc::CPU_ISSET(processor, &set) })
        .collect()
}

/// Binds the calling thread to a processor permanently.
///
/// # Errors
/// If the processor does not exist or is not allowed.
pub fn pin(processor: usize) -> Result<(), PinError> {
    // SAFETY: as in `allowed_processors`.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if processor < 8 * size_of_val(&set) {
        // SAFETY: the number is within the set.
        unsafe { libc::CPU_SET(processor, &mut set) };
    }
    // SAFETY: the set is initialised, and its size is given.
    match unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) } {
        0 => Ok(()),
        _ => Err(PinError {
            processor,
            source: io::Error::last_os_error(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_is_where_it_was_put() {
        let last = *allowed_processors().last().unwrap();
        let after = std::thread::spawn(move || {
            pin(last).unwrap();
            allowed_processors()
        });
        assert_eq!(after.join().unwrap(), [last]);
    }

    #[test]
    fn a_processor_that_is_not_there_is_refused() {
        for processor in [usize::MAX, 1023] {
            let error = pin(processor).unwrap_err().to_string();
            assert!(error.contains(&processor.to_string()), "{error}");
        }
    }
}
