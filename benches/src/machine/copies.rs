//! How fast a processor gets data that another has just written.

use std::hint::black_box;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::turns::{TwoLines, on_two};
use crate::pin::PinError;

/// Number of copies for one figure.
const COPIES: u32 = 30;
/// Number of clock readings that determine how long a reading takes.
const READINGS: u32 = 100;

/// Seconds in which one processor copies `bytes` bytes that the other has just written, by loads
/// and stores: the shortest of several copies, without the time that a clock reading takes. The
/// transfer of all cache lines is included, also of the first.
///
/// # Errors
/// If a thread cannot be put on one of them.
pub fn copy_of_fresh_memory(one: usize, other: usize, bytes: usize) -> Result<f64, PinError> {
    taken(one, other, bytes, |from, to| {
        to.copy_from_slice(black_box(from));
        true
    })
}

/// As [`copy_of_fresh_memory`], but by `process_vm_readv`, as one process reads another's memory.
/// NaN if the system refuses that.
///
/// # Errors
/// If a thread cannot be put on one of them.
pub fn pull_of_fresh_memory(one: usize, other: usize, bytes: usize) -> Result<f64, PinError> {
    taken(one, other, bytes, |from, to| pull(from, to).is_ok())
}

/// The shortest time of `take`, which returns whether it worked.
fn taken(
    one: usize,
    other: usize,
    bytes: usize,
    take: impl Fn(&[u8], &mut [u8]) -> bool + Sync,
) -> Result<f64, PinError> {
    let turns = TwoLines::default();
    let shared = Mutex::new(vec![0_u8; bytes]);
    // Never contended: the turns determine which side uses the memory.
    let hold = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    let reader = || {
        let mut own = vec![1_u8; bytes];
        let reading = reading();
        let (mut least, mut all_well) = (f64::INFINITY, true);
        for turn in 1..=COPIES {
            turns.to_second.set(turn);
            turns.to_first.await_value(turn);
            let fresh = hold();
            let begun = Instant::now();
            all_well &= take(&fresh, &mut own);
            least = least.min(begun.elapsed().as_secs_f64());
            black_box(&mut own);
        }
        if all_well {
            without(least, reading)
        } else {
            f64::NAN
        }
    };
    let writer = || {
        for turn in 1..=COPIES {
            turns.to_second.await_value(turn);
            black_box(&mut *hold()).fill(turn as u8);
            turns.to_first.set(turn);
        }
    };
    on_two(one, other, reader, writer)
}

/// Seconds between two consecutive clock readings: the shortest of several.
fn reading() -> f64 {
    let between = |_| Instant::now().elapsed().as_secs_f64();
    (0..READINGS).map(between).fold(f64::INFINITY, f64::min)
}

/// A measured time without the clock readings around it. NaN if the clock is too coarse for it.
fn without(seconds: f64, reading: f64) -> f64 {
    if seconds > reading {
        seconds - reading
    } else {
        f64::NAN
    }
}

/// A copy by the kernel, from this process as if it were another.
fn pull(from: &[u8], to: &mut [u8]) -> io::Result<()> {
    let local = libc::iovec {
        iov_base: to.as_mut_ptr().cast(),
        iov_len: to.len(),
    };
    let remote = libc::iovec {
        iov_base: from.as_ptr().cast_mut().cast(),
        iov_len: from.len(),
    };
    // SAFETY: getpid has no conditions. The one vector is writable memory that is borrowed
    // exclusively, the other is only read.
    let copied = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    };
    match usize::try_from(copied) {
        Ok(copied) if copied == from.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_without_that_of_the_clock() {
        assert_eq!(without(5.0, 2.0), 3.0);
        assert!(without(2.0, 2.0).is_nan() && without(0.0, 0.0).is_nan());
        assert!(reading() < 1e-3);
    }

    #[test]
    fn the_kernel_copies_what_is_there() {
        let (from, mut to) = ([7_u8; 100], [0_u8; 100]);
        if let Err(error) = pull(&from, &mut to) {
            // Some containers forbid it.
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        } else {
            assert_eq!(from, to);
        }
    }
}
