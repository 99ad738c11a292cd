//! Remote operations: operations on memory that a peer has registered, done by the network's own
//! means.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub use crate::device::{AtomicOp, AtomicWidth};

/// The token of registered memory: bytes that only the transport that made them interprets. The
/// engine takes a peer's tokens from that peer alone, never from the program.
pub type Token = [u8; 32];

/// An operation on a peer's registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remote {
    /// Writes these bytes.
    Put {
        /// First byte.
        source: *const u8,
        /// Number of bytes.
        len: usize,
    },
    /// Reads into these bytes.
    Get {
        /// First byte.
        target: *mut u8,
        /// Number of bytes.
        len: usize,
    },
    /// Changes one naturally aligned integer. The former value is reported with the end of the
    /// operation ([`TransportCaps::ATOMICS`](super::TransportCaps::ATOMICS)).
    Atomic {
        /// Its width.
        width: AtomicWidth,
        /// The operation and its operands.
        op: AtomicOp,
    },
}

// SAFETY: a description of memory; `Transport::begin_remote` says for how long the memory is the
// transport's, whatever the thread.
unsafe impl Send for Remote {}

impl Remote {
    /// Number of bytes of the peer's memory that the operation concerns.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Put { len, .. } | Self::Get { len, .. } => *len,
            Self::Atomic { width, .. } => width.bytes(),
        }
    }

    /// Whether the operation concerns no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the operation is atomic.
    #[must_use]
    pub fn is_atomic(&self) -> bool {
        matches!(self, Self::Atomic { .. })
    }

    /// Whether the operation can change the peer's memory.
    #[must_use]
    pub fn changes(&self) -> bool {
        !matches!(self, Self::Get { .. })
    }

    /// The rest of the operation without its first `done` bytes. An atomic operation has no parts.
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

/// The result of handing over a remote operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Begun {
    /// This many of its first bytes are under way: at least one, and all of them if the operation
    /// is atomic. [`Sink::finished`](super::Sink::finished) reports their end.
    Bytes(usize),
    /// There is no room; nothing has begun.
    Full,
    /// The peer is dead, or about to be reported; nothing has begun.
    Gone,
    /// The network does not accept the operation; nothing has begun.
    Refused,
}

/// Applies an atomic operation with the processor's own instructions and returns the former value.
///
/// # Safety
/// `at` must be valid for reads and writes and aligned for the width.
pub unsafe fn apply(at: *mut u8, width: AtomicWidth, op: AtomicOp) -> u64 {
    // Acquire-release on every operation: one-sided programs use such integers as flags, so what
    // the origin did before must be visible to every thread that sees the new value. The partner is
    // any other call of this function on the same address, here or in a process that maps it.
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
