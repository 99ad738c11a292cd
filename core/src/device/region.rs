//! Registered memory and the operations on it.

/// The token by which a peer reaches a region. Plain bytes: exchange it by any message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RegionKey(pub [u8; 56]);

/// Memory of this rank that peers may reach.
///
/// A description, not an owner: it is freed by [`Device::free_region`](super::Device::free_region).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First byte here.
    pub ptr: *mut u8,
    /// Length in bytes.
    pub len: usize,
    /// The token for peers.
    pub key: RegionKey,
}

// SAFETY: a description; access through `ptr` is unsafe wherever it happens.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// Width of the integer of an atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum AtomicWidth {
    /// 32 bits.
    W32,
    /// 64 bits.
    W64,
}

impl AtomicWidth {
    /// The width in bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::W32 => 4,
            Self::W64 => 8,
        }
    }
}

/// An atomic operation with its operands (the low half of them for 32 bits).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum AtomicOp {
    /// Reads.
    Load,
    /// Writes; the former value is fetched.
    Swap(u64),
    /// Writes `new` if the value is `expected`.
    CompareSwap {
        /// The value that must be there.
        expected: u64,
        /// The value to write in that case.
        new: u64,
    },
    /// Writes the bits of `value` under `mask` (the T3E's masked swap).
    MaskedSwap {
        /// The bits to write.
        mask: u64,
        /// The value to take them from.
        value: u64,
    },
    /// Adds, wrapping around.
    Add(u64),
    /// Bitwise and.
    And(u64),
    /// Bitwise or.
    Or(u64),
    /// Bitwise exclusive or.
    Xor(u64),
}
