//! Copying out of cache lines that two processors hand to each other.
//!
//! A line that one processor has written and another has read is in both caches. Before the first
//! may write it again the other has to give it up, and on some processors that is by far the
//! dearest step of all: 7 to 9 ns a line on Zen 4, one line behind the other, where reading a line
//! that was just written takes 1.5. If the reader has written into the line, the line is in one
//! cache only, and goes back to the first writer for 1.1 to 1.5 ns. So a reader *takes* what it has
//! read: it stores a byte into each line while that is still at hand, which costs it 0.6 ns.
//!
//! How lines are copied matters as well. From about 2 KiB on the C library copies by `rep movsb`,
//! which takes lines for writing without fetching them first, and needs a while before it begins.
//! Many messages behind each other gain by it; a short one, or one that is alone, is copied sooner
//! [by words](copy_by_words), on processors where that has been measured.

use crate::config::{Settings, Switch};

/// Bytes of a line.
pub const LINE: usize = 64;
/// Bytes that are copied before their lines are taken: few enough to stay in the first cache, and
/// to be copied by loads and stores rather than by `rep movsb`, which such processors are slow at.
const BLOCK: usize = 1 << 10;

/// Longest copy that no C library makes by `rep movsb`.
const WORDS: usize = 2 << 10;
/// Longest message that is better copied by loads and stores, and the same of one that is alone.
/// (Two processes that copy all so: alone, 2.2, 3, 4 and 6 KiB, 0.81, 0.85, 0.84 and 1.24 of the
/// time; 64 of 2.2, 3 and 4 KiB behind each other move 1.39, 0.76 and 0.53 as much.)
const LONGEST: usize = 2560;
const LONGEST_ALONE: usize = 4 << 10;

/// Whether messages on this processor are better copied by words where that is said of their
/// length: AMD's family 1Ah (of which Zen 5 was measured).
#[must_use]
pub fn better_by_words() -> bool {
    family() == Some(0x1a)
}

/// Whether a message of `len` bytes is copied sooner [by words](copy_by_words), on a processor
/// where [some are](better_by_words). `alone` if no other is copied right before or behind it.
#[inline]
#[must_use]
pub fn is_for_words(len: usize, alone: bool) -> bool {
    len > WORDS && len <= if alone { LONGEST_ALONE } else { LONGEST }
}

/// Copies `len` bytes by loads and stores, of whatever length.
///
/// # Safety
/// `len` bytes at `from` are readable, as many at `to` writable, and the two do not overlap.
#[inline(never)]
pub unsafe fn copy_by_words(from: *const u8, to: *mut u8, len: usize) {
    for start in (0..len).step_by(WORDS) {
        let now = WORDS.min(len - start);
        // SAFETY: the caller's promise; `start + now` is at most `len`.
        unsafe { std::ptr::copy_nonoverlapping(from.add(start), to.add(start), now) };
    }
}

/// Whether this processor is one on which lines are better taken by who has read them: AMD's Zen 3
/// and Zen 4 (family 19h).
#[must_use]
pub fn better_taken() -> bool {
    family() == Some(0x19)
}

/// Whether the ranks of a job with these settings take lines: `TAKE_LINES`, or what is better here.
#[must_use]
pub fn taken(settings: &Settings) -> bool {
    match settings.take_lines() {
        Switch::Auto => better_taken(),
        choice => choice == Switch::On,
    }
}

/// The family of a processor of AMD's design.
#[cfg(not(target_arch = "x86_64"))]
fn family() -> Option<u32> {
    None
}

/// The family of a processor of AMD's design.
#[cfg(target_arch = "x86_64")]
fn family() -> Option<u32> {
    use std::arch::x86_64::__cpuid;
    // SAFETY: every x86-64 processor has the instruction, and these two leaves.
    #[allow(unused_unsafe, reason = "safe from Rust 1.90 on")]
    let (vendor, version) = unsafe { (__cpuid(0), __cpuid(1).eax) };
    let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
    let base = (version >> 8) & 0xf;
    let extended = (version >> 20) & 0xff;
    let family = if base == 0xf { base + extended } else { base };
    matches!(name.as_flattened(), b"AuthenticAMD" | b"HygonGenuine").then_some(family)
}

/// Copies `len` bytes and takes the lines in which they lay: what is there afterwards is
/// unspecified.
///
/// # Safety
/// `len` bytes at `from` are readable and writable, as many at `to` writable, and the two do not
/// overlap. Nobody needs what is at `from` any more.
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

/// Takes the lines of `len` bytes: a byte of each is overwritten.
///
/// # Safety
/// `len` bytes at `at` are writable, and nobody needs them any more.
#[inline]
pub unsafe fn take(at: *mut u8, len: usize) {
    for start in (0..len).step_by(LINE) {
        // SAFETY: the caller's promise. Volatile, or nobody would see a reason to store what nobody
        // reads.
        unsafe { at.add(start).write_volatile(0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_copied_by_words() {
        for len in [
            0,
            1,
            WORDS,
            WORDS + 1,
            LONGEST,
            LONGEST_ALONE,
            3 * WORDS + 7,
        ] {
            let sent: Vec<u8> = (0..len).map(|at| (at / 3) as u8).collect();
            let mut copy = vec![0; len + 1];
            // SAFETY: two vectors of as many bytes and more.
            unsafe { copy_by_words(sent.as_ptr(), copy.as_mut_ptr(), len) };
            assert_eq!((&copy[..len], copy[len]), (&sent[..], 0));
        }
    }

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
        let by_words = |alone| lengths.map(|len| is_for_words(len, alone));
        assert_eq!(by_words(false), [false, true, true, false, false, false]);
        assert_eq!(by_words(true), [false, true, true, true, true, false]);
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
