//! Asking for a line of memory before it is needed.

/// Asks for the line of `ptr` for reading, so that a load that comes a little later does not wait
/// for it. A hint: nothing is read, whatever the address.
#[inline(always)]
pub fn prefetch<T>(ptr: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which neither reads nor writes nor faults, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(ptr.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = ptr;
}
