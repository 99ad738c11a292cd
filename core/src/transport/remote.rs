//! Operations on memory that a peer has registered, done by the network's own means.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub use crate::device::{AtomicOp, AtomicWidth};

/// The token of registered memory: opaque bytes of the transport that gave them. The engine takes a
/// peer's tokens from that peer alone, never from the program.
pub type Token = [u8; 32];

/// An operation on a peer's registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remote {
    /// Writes these bytes.
    Put {
        /// First byte.
        source: *const u8,
        /// How many.
        len: usize,
    },
    /// Reads into these bytes.
    Get {
        /// First byte.
        target: *mut u8,
        /// How many.
        len: usize,
    },
    /// Changes one naturally aligned integer; the former value comes with the end of the operation
    /// ([`TransportCaps::ATOMICS`](super::TransportCaps::ATOMICS)).
    Atomic {
        /// Its width.
        width: AtomicWidth,
        /// What is done to it.
        op: AtomicOp,
    },
}

// SAFETY: a description of memory; `Transport::begin_remote` says for how long the memory is the
// transport's, whatever the thread.
unsafe impl Send for Remote {}

impl Remote {
    /// Bytes of the peer's memory that it concerns.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Put { len, .. } | Self::Get { len, .. } => *len,
            Self::Atomic { width, .. } => width.bytes(),
        }
    }

    /// Whether it concerns no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it is an atomic operation.
    #[must_use]
    pub fn is_atomic(&self) -> bool {
        matches!(self, Self::Atomic { .. })
    }

    /// Whether it can change the peer's memory.
    #[must_use]
    pub fn changes(&self) -> bool {
        !matches!(self, Self::Get { .. })
    }

    /// What is left of it without its first `done` bytes. An atomic operation has no parts.
    #[must_use]
    pub fn after(self, done: usize) -> Self {
        match self {
            Self::Put { source, len } => Self::Put {
                source: source.wrapping_add(done),
                len: len - done,
            },
            Self::Get { target, len } => Self::Get {
                target: target.wrapping_add(done),
                len: len - done,
            },
            atomic @ Self::Atomic { .. } => atomic,
        }
    }
}

/// What became of a remote operation that was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Begun {
    /// Its first bytes, so many, are under way: at least one, all of them if it is atomic.
    /// [`Sink::finished`](super::Sink::finished) tells of their end.
    Bytes(usize),
    /// There is no room; nothing has begun.
    Full,
    /// The peer is dead, or about to be reported; nothing has begun.
    Gone,
    /// The network does not take it; nothing has begun.
    Refused,
}

/// Applies an atomic operation with the processor's own instructions and returns the former value.
///
/// # Safety
/// `at` must be valid for reads and writes and aligned for the width.
pub unsafe fn apply(at: *mut u8, width: AtomicWidth, op: AtomicOp) -> u64 {
    // Acquire-release on every operation: what the origin did before is visible to whoever sees the
    // new value, as one-sided programs expect of their flags. The partner is any other call of this
    // function on the same address, here or in a process that maps it.
    macro_rules! on {
        ($atomic:ty, $int:ty) => {{
            // SAFETY: the caller's promise.
            let cell = unsafe { <$atomic>::from_ptr(at.cast()) };
            let former = match op {
                AtomicOp::Load => cell.load(Ordering::Acquire),
                AtomicOp::Swap(value) => cell.swap(value as $int, Ordering::AcqRel),
                AtomicOp::CompareSwap { expected, new } => {
                    let (expected, new) = (expected as $int, new as $int);
                    cell.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire)
                        .unwrap_or_else(|former| former)
                }
                AtomicOp::MaskedSwap { mask, value } => {
                    let (mask, value) = (mask as $int, value as $int);
                    cell.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
                        Some(old & !mask | value & mask)
                    })
                    .unwrap_or_else(|former| former)
                }
                AtomicOp::Add(value) => cell.fetch_add(value as $int, Ordering::AcqRel),
                AtomicOp::And(value) => cell.fetch_and(value as $int, Ordering::AcqRel),
                AtomicOp::Or(value) => cell.fetch_or(value as $int, Ordering::AcqRel),
                AtomicOp::Xor(value) => cell.fetch_xor(value as $int, Ordering::AcqRel),
            };
            u64::from(former)
        }};
    }
    match width {
        AtomicWidth::W32 => on!(AtomicU32, u32),
        AtomicWidth::W64 => on!(AtomicU64, u64),
    }
}
