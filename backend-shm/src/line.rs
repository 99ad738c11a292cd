//! Asking for cache lines before they are needed.
//!
//! A line that the receiver polls is handed over in two steps: the sender's store takes it away
//! from the receiver, whose next load fetches it back, and each step takes as long as the other.
//! Three hints take the first step off the way of a message, or let two lines travel at the same
//! time:
//! 1. Whoever has been given a message asks at once for the lines of its own next one, for
//!    writing: an answer usually follows, and is not polled for yet.
//! 2. A sender asks for a cell some way ahead.
//! 3. A receiver whose last message lay in the bulk area asks for the beginning of the next one
//!    when it looks at the cell that will tell where that is.
//!
//! (One way between two pinned processes, where a line takes 130 ns: 8 bytes 0.29 µs without and
//! 0.23 with them, 256 bytes 0.47 and 0.29, 1 KiB 0.65 and 0.52, 4 KiB 1.17 and 1.06.)

pub(crate) use portolan_core::ahead::prefetch;

/// Bytes of a line.
pub(crate) const LINE: usize = 64;

/// Asks for the line of `ptr` for writing.
#[inline(always)]
pub(crate) fn prefetch_for_write<T>(ptr: *const T) {
    // Every x86-64 processor takes the instruction, the oldest as one that does nothing; the
    // intrinsic would need to be told so at compile time.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which neither reads nor writes nor faults, whatever the address.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) ptr, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = ptr;
}
