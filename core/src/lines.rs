//! Copying data out of cache lines that pass back and forth between two processors.
//!
//! When one processor has written a cache line and another has read it, both caches hold the line.
//! Before the first processor can write the line again, the second must give up its copy. On some
//! processors this is by far the most expensive step: on Zen 4 it takes 7 to 9 ns per line, for one
//! line after another, whereas reading a line that was just written takes 1.5 ns. If the reader has
//! also written to the line, however, only the reader's cache holds it, and it returns to the first
//! writer in 1.1 to 1.5 ns. So the reader *takes* the lines that it has read: it stores a byte into
//! each one while it is still in its cache, which costs 0.6 ns.
//!
//! How lines are copied matters as well. From about 2 KiB on, the C library copies with
//! `rep movsb`, which takes destination lines for writing without fetching them first, but is slow
//! to start. That pays off for many messages in a row, and between processors that are far apart. A
//! short message, or one on its own between near processors, is copied faster [by
//! words](copy_by_words), on the processors where that has been measured.

pub use portolan_datatype::bytes::{copy, copy_apart_or_not, copy_by_words};

use portolan_datatype::bytes::WORDS;

use crate::config::{Settings, Switch};

/// Bytes of a cache line.
pub const LINE: usize = 64;
/// Bytes that are copied before their lines are taken: few enough to stay in the first-level cache,
/// and to be copied by loads and stores rather than by `rep movsb`, which is slow on the processors
/// in question.
const BLOCK: usize = 1 << 10;

/// Longest message that is copied faster by loads and stores, in a row of messages, and alone
/// between near processors. Measured between two processes that copy everything this way, relative
/// to the C library: a message alone of 2.2, 3, 4 and 6 KiB takes 0.81, 0.85, 0.84 and 1.24 of the
/// time; 64 messages in a row of 2.2, 3 and 4 KiB have 1.39, 0.76 and 0.53 of the throughput.
const LONGEST: usize = 2560;
const LONGEST_ALONE: usize = 4 << 10;

/// Whether this processor copies messages of certain lengths faster by words: AMD's family 1Ah, of
/// which Zen 5 was measured. [`is_for_words`] says which lengths.
#[must_use]
pub fn better_by_words() -> bool {
    family() == Some(0x1a)
}

/// Whether a message of `len` bytes in a row of messages is copied faster [by
/// words](copy_by_words), on a processor where [some are](better_by_words).
#[inline]
#[must_use]
pub fn is_for_words(len: usize) -> bool {
    len > WORDS && len <= LONGEST
}

/// Whether a message of `len` bytes that is alone may be copied faster [by words](copy_by_words),
/// on a processor where [some are](better_by_words). It is if the two processors are near each
/// other.
#[inline]
#[must_use]
pub fn may_be_for_words(len: usize) -> bool {
    len > WORDS && len <= LONGEST_ALONE
}

/// Whether the reader should take lines on this processor: AMD's Zen 3 and Zen 4 (family 19h).
#[must_use]
pub fn better_taken() -> bool {
    family() == Some(0x19)
}

/// Whether the ranks of a job with these settings take lines: as `TAKE_LINES` says, or whatever is
/// better on this processor.
#[must_use]
pub fn taken(settings: &Settings) -> bool {
    match settings.take_lines() {
        Switch::Auto => better_taken(),
        choice => choice == Switch::On,
    }
}

/// The family of a processor of AMD's design; `None` for any other.
#[cfg(not(target_arch = "x86_64"))]
fn family() -> Option<u32> {
    None
}

/// The family of a processor of AMD's design; `None` for any other.
#[cfg(target_arch = "x86_64")]
fn family() -> Option<u32> {
    use std::arch::x86_64::__cpuid;
    #[allow(unused_unsafe, reason = "safe from Rust 1.90 on")]
    // SAFETY: every x86-64 processor has the instruction, and these two leaves.
    let (vendor, version) = unsafe { (__cpuid(0), __cpuid(1).eax) };
    let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
    let base = (version >> 8) & 0xf;
    let extended = (version >> 20) & 0xff;
    let family = if base == 0xf { base + extended } else { base };
    matches!(name.as_flattened(), b"AuthenticAMD" | b"HygonGenuine").then_some(family)
}

/// Copies `len` bytes and takes the lines that they were in. The source's contents are unspecified
/// afterwards.
///
/// # Safety
/// `len` bytes at `from` are readable and writable, `len` bytes at `to` are writable, and the two
/// do not overlap. The bytes at `from` are no longer needed.
#[inline]
pub unsafe fn copy_and_take(from: *mut u8, to: *mut u8, len: usize) {
    for start in (0..len).step_by(BLOCK) {
        let now = BLOCK.min(len - start);
        // SAFETY: the caller's promise; `start + now` is at most `len`.
        unsafe {
            let block = from.add(start);
            std::ptr::copy_nonoverlapping(block, to.add(start), now);
            take(block, now);
        }
    }
}

/// Takes the lines of `len` bytes by overwriting a byte in each.
///
/// # Safety
/// `len` bytes at `at` are writable and no longer needed.
#[inline]
pub unsafe fn take(at: *mut u8, len: usize) {
    for start in (0..len).step_by(LINE) {
        // SAFETY: the caller's promise. The store is volatile because the compiler could otherwise
        // drop it: nothing reads the value.
        unsafe { at.add(start).write_volatile(0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_for_the_short_and_the_lonely() {
        let lengths = [
            WORDS,
            WORDS + 1,
            LONGEST,
            LONGEST + 1,
            LONGEST_ALONE,
            8 << 10,
        ];
        let (in_a_row, alone) = (lengths.map(is_for_words), lengths.map(may_be_for_words));
        assert_eq!(in_a_row, [false, true, true, false, false, false]);
        assert_eq!(alone, [false, true, true, true, true, false]);
    }

    #[test]
    fn what_is_taken_was_copied_before() {
        for len in [0, 1, 63, 64, 65, 1000, BLOCK, BLOCK + 1, 5000] {
            let sent: Vec<u8> = (0..len).map(|at| at as u8 | 1).collect();
            let mut lines = sent.clone();
            let mut copy = vec![0; len];
            // SAFETY: three vectors of `len` bytes.
            unsafe { copy_and_take(lines.as_mut_ptr(), copy.as_mut_ptr(), len) };
            assert_eq!(copy, sent);
            let taken =
                |(at, byte): (usize, &u8)| (*byte == 0) == (at % BLOCK).is_multiple_of(LINE);
            assert!(lines.iter().enumerate().all(taken), "{len}");
        }
    }
}
