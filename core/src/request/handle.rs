//! The handle that callers hold.

use std::fmt;

/// Bits of the index in both packed forms.
const INDEX_BITS: u32 = 20;
/// Bits of the generation that the 32-bit form keeps.
const SHORT_GENERATION_BITS: u32 = 12;

/// A handle to an operation in progress: channel, index and generation of a slot.
///
/// Handles can be copied. Using a stale one is an error
/// ([`InvalidRequest`](crate::ErrorKind::InvalidRequest)), never undefined behaviour. A handle
/// packs into 64 bits ([`to_bits`](Self::to_bits)) or 32 bits ([`to_short`](Self::to_short)). Apart
/// from the null request, both forms are at least 4096, so that C layers have room for their
/// predefined constants.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request(u64);

impl Request {
    /// Largest number of requests that can be active at once on one channel.
    pub const MAX_ACTIVE: usize = 1 << INDEX_BITS;

    /// The null request: complete, with an empty status.
    pub const NULL: Self = Self(0);

    /// A request that is complete from the beginning, with an empty status, and stays so. It stands
    /// for an operation that finishes in the call that starts it. Unlike the null request, it
    /// counts as a completed request ([`Adi::wait_any`](crate::device::Adi::wait_any)). It takes no
    /// slot, and completing or freeing it has no effect.
    pub const DONE: Self = Self(1 << 32);

    /// The low 12 bits of `generation` are never 0, which keeps every packed form at or above 2^20.
    pub(crate) fn new(channel: u8, index: u32, generation: u32) -> Self {
        debug_assert!(index < 1 << INDEX_BITS && generation & 0xfff != 0);
        Self(u64::from(generation) << 32 | u64::from(channel) << INDEX_BITS | u64::from(index))
    }

    /// Whether this is [`NULL`](Self::NULL).
    #[inline]
    #[must_use]
    pub fn is_null(self) -> bool {
        self.0 == 0
    }

    /// Whether this is [`NULL`](Self::NULL) or [`DONE`](Self::DONE), for which there is nothing to
    /// wait for and nothing to free.
    #[inline]
    #[must_use]
    pub fn is_settled(self) -> bool {
        self.0 & !Self::DONE.0 == 0
    }

    #[inline]
    pub(crate) fn index(self) -> u32 {
        (self.0 & ((1 << INDEX_BITS) - 1)) as u32
    }

    #[inline]
    pub(crate) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The handle as 64 bits: 0 for the null request, otherwise at least 2^32.
    #[inline]
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The handle with these bits.
    ///
    /// # Safety
    /// Any bits are allowed: a device rejects handles that it did not give out. But if a request
    /// with these bits is active, then the caller is one of those who may complete, free or cancel
    /// it. A call that waits for a request of its own, and has lent it a buffer, would otherwise
    /// return while the buffer is still in use.
    #[inline]
    #[must_use]
    pub unsafe fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The handle as 32 bits: the index and the low 12 bits of the generation. 0 for the null
    /// request, otherwise at least 2^20.
    #[inline]
    #[must_use]
    pub fn to_short(self) -> u32 {
        self.index() | (self.generation() & 0xfff) << INDEX_BITS
    }

    #[inline]
    pub(crate) fn short_index(short: u32) -> u32 {
        short & ((1 << INDEX_BITS) - 1)
    }

    #[inline]
    pub(crate) fn short_generation(short: u32) -> u32 {
        short >> INDEX_BITS
    }

    /// The generation after `generation`. Skips those whose short form is 0.
    #[inline]
    pub(crate) fn next_generation(generation: u32) -> u32 {
        let next = generation.wrapping_add(1);
        if next & ((1 << SHORT_GENERATION_BITS) - 1) == 0 {
            next.wrapping_add(1)
        } else {
            next
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_null() {
            return f.write_str("Request(null)");
        }
        if *self == Self::DONE {
            return f.write_str("Request(done)");
        }
        write!(f, "Request({}.{})", self.index(), self.generation())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_forms_stay_above_4096() {
        let mut generation = 0;
        for _ in 0..10_000 {
            generation = Request::next_generation(generation);
            let request = Request::new(0, 0, generation);
            assert!(request.to_bits() >= 4096 && request.to_short() >= 4096);
            // SAFETY: no device has given it out.
            let again = unsafe { Request::from_bits(request.to_bits()) };
            assert_eq!(again, request);
        }
    }

    #[test]
    fn what_is_settled_is_null_or_done() {
        assert!(Request::NULL.is_settled() && Request::DONE.is_settled());
        assert_eq!(Request::DONE, Request::new(0, 0, 1));
        for (index, generation) in [(1, 1), (0, 2), (0, 3)] {
            assert!(!Request::new(0, index, generation).is_settled());
        }
    }

    #[test]
    fn generations_wrap_around_without_zero() {
        assert_eq!(Request::next_generation(u32::MAX), 1);
        assert_eq!(Request::next_generation(0xfff), 0x1001);
    }
}
