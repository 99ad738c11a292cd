//! Addresses in a PE's memory.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An address in the memory of a PE, in bytes. A header in a message queue can carry it.
///
/// Below [`ARENA`](Self::ARENA) it is an offset in the symmetric heap, the same on every PE. From
/// there on it lies in memory that one PE allocated for itself.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Addr(pub u64);

impl Addr {
    /// The first address of the memory that each PE allocates for itself.
    pub const ARENA: u64 = 1 << 44;

    /// Whether it lies in the symmetric heap.
    #[must_use]
    pub const fn is_symmetric(self) -> bool {
        self.0 < Self::ARENA
    }
}

impl std::ops::Add<usize> for Addr {
    type Output = Self;

    /// The address so many bytes further on. An address that would wrap becomes one that does not
    /// exist.
    fn add(self, bytes: usize) -> Self {
        Self(self.0.saturating_add(bytes as u64))
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_symmetric() {
            write!(f, "symmetric heap + {}", self.0)
        } else {
            write!(f, "arena + {:#x}", self.0 - Self::ARENA)
        }
    }
}
