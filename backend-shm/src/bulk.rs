//! The bulk area of a pair: where payloads lie that are too long for the ring.
//!
//! A ring of bytes. The sender takes the next piece, has it filled, and sends a descriptor through
//! the pair's ring of cells, so the order of a pair is that of its cells. A piece never wraps:
//! what is left at the end is skipped. The receiver publishes its position after each piece.
//!
//! ```text
//! descriptor: offset of the area in the segment | position of the piece | its length
//! ```

use crate::ring::Ends;
use crate::segment::Segment;
use crate::sync::Ordering::{Acquire, Release};

/// Pieces begin at multiples of this.
pub(crate) const ALIGN: u64 = 64;

/// What travels through the ring of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Descriptor {
    /// Offset of the area in the segment.
    area: u64,
    /// Position of the piece, in bytes since the start; the place is this modulo the area's size.
    start: u64,
    /// Bytes.
    len: u64,
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

/// The sender's half.
#[derive(Debug)]
pub(crate) struct BulkTx {
    base: *mut u8,
    area: u64,
    size: u64,
    pos: u64,
    consumed: u64,
}

// SAFETY: the pointer leads into the segment; there is one sender's half, and it may move.
unsafe impl Send for BulkTx {}

/// A piece that may be filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) ptr: *mut u8,
    pub(crate) descriptor: Descriptor,
}

/// The receiver's position makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

impl BulkTx {
    /// The sender's half of the area of `size` bytes (a power of two) at `area` in the segment.
    pub(crate) fn new(segment: &Segment, area: u64, size: u64) -> Option<Self> {
        let base = segment.at(area, size as usize)?;
        Some(Self {
            base,
            area,
            size,
            pos: 0,
            consumed: 0,
        })
    }

    /// Room for `len` bytes, if there is; nothing is taken until [`advance`](Self::advance).
    #[inline]
    pub(crate) fn piece(&mut self, len: usize, ends: &Ends) -> Result<Option<Piece>, Broken> {
        let start = place(self.pos, (len as u64).next_multiple_of(ALIGN), self.size);
        let end = start + (len as u64).next_multiple_of(ALIGN);
        if end - self.consumed > self.size {
            // SYNC 1: the receiver's Release in `BulkRx::done` came after its reads.
            let consumed = ends.bulk_consumed.load(Acquire);
            if consumed < self.consumed || consumed > self.pos {
                return Err(Broken);
            }
            self.consumed = consumed;
            if end - consumed > self.size {
                return Ok(None);
            }
        }
        let at = (start & (self.size - 1)) as usize;
        // `place` saw to it that `at + len` is at most the size of the area.
        let ptr = self.base.wrapping_add(at);
        Ok(Some(Piece {
            ptr,
            descriptor: Descriptor {
                area: self.area,
                start,
                len: len as u64,
            },
        }))
    }

    /// Takes a piece that has been filled.
    #[inline]
    pub(crate) fn advance(&mut self, piece: &Piece) {
        self.pos = piece.descriptor.start + piece.descriptor.len.next_multiple_of(ALIGN);
    }
}

/// The receiver's half: the area that the sender named last, checked.
#[derive(Debug, Default)]
pub(crate) struct BulkRx {
    area: u64,
    base: usize,
}

impl BulkRx {
    /// Where the bytes are that a descriptor names: inside of an area of `size` bytes that lies
    /// in the allocated part of the segment, or nowhere.
    #[inline]
    pub(crate) fn find(
        &mut self,
        segment: &Segment,
        descriptor: &Descriptor,
        size: u64,
        longest: usize,
    ) -> Option<(*const u8, usize)> {
        let at = descriptor.start & (size - 1);
        if descriptor.len > longest as u64 || at + descriptor.len > size {
            return None;
        }
        if descriptor.area != self.area || self.base == 0 {
            self.adopt(segment, descriptor.area, size)?;
        }
        Some((
            (self.base + at as usize) as *const u8,
            descriptor.len as usize,
        ))
    }

    #[cold]
    fn adopt(&mut self, segment: &Segment, area: u64, size: u64) -> Option<()> {
        if !area.is_multiple_of(ALIGN) {
            return None;
        }
        self.base = segment.at(area, size as usize)?.expose_provenance();
        self.area = area;
        segment.touch(area & !4095, size);
        Some(())
    }

    /// Goes past a piece that has been read.
    #[inline]
    pub(crate) fn done(&self, descriptor: &Descriptor, ends: &Ends) {
        let end = descriptor
            .start
            .wrapping_add(descriptor.len.next_multiple_of(ALIGN));
        // SYNC 1: pairs with the Acquire load in `BulkTx::piece`.
        ends.bulk_consumed.store(end, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn a_piece_never_wraps() {
        assert_eq!(place(0, 64, 256), 0);
        assert_eq!(place(192, 64, 256), 192);
        assert_eq!(place(192, 128, 256), 256);
        assert_eq!(place(256 + 64, 192, 256), 256 + 64);
        assert_eq!(place(256 + 64, 256, 256), 512);
    }
}
