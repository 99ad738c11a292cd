//! The bulk area of a pair: it holds the payloads that are too long for a cell of the ring.
//!
//! The area is a ring of bytes. The sender takes the next piece, has it filled, and sends a
//! descriptor through the pair's ring of cells, so the order of a pair is the order of its cells. A
//! piece never wraps: the sender skips what is left at the end of the area. The receiver publishes
//! its position after each piece.
//!
//! A pair begins with a small area. It gets one of full size when the small one proves too small or
//! has been used for a while (memory that is reused too soon has to be taken out of the receiver's
//! first-level cache). Positions go on counting, and each descriptor names its area, so pieces in
//! both areas may be under way.
//!
//! **Starting over.** As in the ring ([`ring`](crate::ring)): where that is faster, a sender of
//! short pieces goes back to the beginning of the area once all of its pieces have been read. The
//! receiver follows the descriptors.
//!
//! ```text
//! descriptor: offset of the area in the segment | position of the piece | its length
//!             | size of the area | length of its first part, if it grows
//! ```

mod rx;
mod tx;

pub(crate) use rx::BulkRx;
pub(crate) use tx::{BulkTx, Piece};

/// Pieces begin at multiples of this.
pub(crate) const ALIGN: u64 = 64;

/// Bytes to prefetch after a piece of `len` bytes, because the next one may be as long; 0 after a
/// piece longer than `hinted`.
#[inline(always)]
fn ahead(len: usize, hinted: usize) -> usize {
    if len <= hinted { len } else { 0 }
}

/// The description of a piece, which travels through the ring of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Descriptor {
    /// Offset of the area in the segment.
    area: u64,
    /// Position of the piece, in bytes since the start. Its place in the area is this modulo the
    /// area's size.
    start: u64,
    /// Length of the piece in bytes.
    len: u32,
    /// Binary logarithm of the area's size.
    log_size: u16,
    /// Bytes of the first part of a packet that [grows](crate::grow), in units of [`ALIGN`]; 0 for
    /// any other packet, which is there as a whole.
    first: u16,
}

impl Descriptor {
    /// Reads a descriptor from its bytes.
    #[inline]
    pub(crate) fn from_bytes(bytes: [u8; DESCRIPTOR]) -> Self {
        // SAFETY: five integers without padding; every bit pattern is a descriptor.
        unsafe { std::mem::transmute::<[u8; DESCRIPTOR], Self>(bytes) }
    }

    /// The same for a packet that grows, of which the first `part` bytes are there.
    pub(crate) fn grows_from(self, part: usize) -> Self {
        debug_assert!(part.is_multiple_of(ALIGN as usize));
        Self {
            first: (part / ALIGN as usize) as u16,
            ..self
        }
    }

    /// Bytes of the first part of a packet that grows; 0 for any other.
    #[inline(always)]
    pub(crate) fn first(&self) -> usize {
        usize::from(self.first) * ALIGN as usize
    }

    /// Position of the packet.
    #[inline(always)]
    pub(crate) fn start(&self) -> u64 {
        self.start
    }
}

/// Where a descriptor says how it grows.
pub(crate) const FIRST_AT: usize = std::mem::offset_of!(Descriptor, first);

/// Bytes of a descriptor.
pub(crate) const DESCRIPTOR: usize = size_of::<Descriptor>();

/// The position of the next piece of `len` bytes when the sender is at `pos`.
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
