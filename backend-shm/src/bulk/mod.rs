//! The bulk area of a pair: where payloads lie that are too long for the ring.
//!
//! A ring of bytes. The sender takes the next piece, has it filled, and sends a descriptor through
//! the pair's ring of cells, so the order of a pair is that of its cells. A piece never wraps:
//! what is left at the end is skipped. The receiver publishes its position after each piece.
//!
//! A pair begins with a small area and gets one of full size when that proves too small, or was
//! used for a while (reusing memory too soon means taking it out of the receiver's first-level
//! cache); positions go on counting, and each descriptor names its area, so pieces in both may be
//! under way.
//!
//! **Starting over.** As in the ring ([`ring`](crate::ring)): where that is faster, a sender of
//! short pieces whose pieces have all been read begins at the area's beginning again. The receiver
//! follows the descriptors.
//!
//! ```text
//! descriptor: offset of the area in the segment | position of the piece | its length | size of the area
//! ```

mod rx;
mod tx;

pub(crate) use rx::BulkRx;
pub(crate) use tx::{BulkTx, Piece};

/// Pieces begin at multiples of this.
pub(crate) const ALIGN: u64 = 64;

/// Bytes to ask for ahead after a piece of `len` bytes: the next one may be as long.
#[inline(always)]
fn ahead(len: usize, hinted: usize) -> usize {
    if len <= hinted { len } else { 0 }
}

/// What travels through the ring of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Descriptor {
    /// Offset of the area in the segment.
    area: u64,
    /// Position of the piece, in bytes since the start; the place is this modulo the area's size.
    start: u64,
    /// Bytes.
    len: u32,
    /// Binary logarithm of the area's size.
    log_size: u32,
}

impl Descriptor {
    /// The descriptor that these bytes are.
    #[inline]
    pub(crate) fn from_bytes(bytes: [u8; DESCRIPTOR]) -> Self {
        // SAFETY: three integers without padding; every bit pattern is a descriptor.
        unsafe { std::mem::transmute::<[u8; DESCRIPTOR], Self>(bytes) }
    }
}

/// Bytes of a descriptor.
pub(crate) const DESCRIPTOR: usize = size_of::<Descriptor>();

/// Where a piece of `len` bytes goes that comes next after `pos`.
#[inline]
fn place(pos: u64, len: u64, size: u64) -> u64 {
    let at = pos & (size - 1);
    if at + len > size {
        pos + (size - at)
    } else {
        pos
    }
}

#[cfg(test)]
mod tests;
