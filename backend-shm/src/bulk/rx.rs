//! The receiver's half of a bulk area.

use super::{ALIGN, Descriptor, ahead};
use crate::line::{LINE, prefetch};
use crate::ring::Ends;
use crate::segment::Segment;
use crate::sync::Ordering::Release;

/// Longest piece after which a receiver prefetches the lines of the next one. It does so at each
/// poll, and must not take lines away from the sender while the sender writes them.
const HINTED_RX: usize = 4 * LINE;

/// The receiver's half: the area that the sender last named, after checks.
#[derive(Debug, Default)]
pub(crate) struct BulkRx {
    area: u64,
    log_size: u16,
    base: usize,
    /// Address at which the next piece may begin; `ahead` is how many bytes of it to prefetch.
    next: usize,
    ahead: usize,
}

impl BulkRx {
    /// Finds the bytes that a descriptor names. `None` if they are more than `longest`, or do not
    /// lie inside an area of at most `limit` bytes in the allocated part of the segment.
    #[inline]
    pub(crate) fn find(
        &mut self,
        segment: &Segment,
        descriptor: &Descriptor,
        limit: u64,
        longest: usize,
    ) -> Option<(*const u8, usize)> {
        if descriptor.area != self.area || descriptor.log_size != self.log_size || self.base == 0 {
            self.adopt(segment, descriptor, limit)?;
        }
        let (size, len) = (1_u64 << self.log_size, descriptor.len as usize);
        let at = descriptor.start & (size - 1);
        if len > longest || at + len as u64 > size {
            return None;
        }
        Some((
            std::ptr::with_exposed_provenance(self.base + at as usize),
            len,
        ))
    }

    #[cold]
    fn adopt(&mut self, segment: &Segment, descriptor: &Descriptor, limit: u64) -> Option<()> {
        let size = 1_u64
            .checked_shl(u32::from(descriptor.log_size))
            .filter(|size| *size <= limit)?;
        if !descriptor.area.is_multiple_of(ALIGN) || size < ALIGN {
            return None;
        }
        self.base = segment
            .at(descriptor.area, size as usize)?
            .expose_provenance();
        (self.area, self.log_size) = (descriptor.area, descriptor.log_size);
        segment.touch(descriptor.area & !4095, size);
        Some(())
    }

    /// Prefetches the first lines of the next piece, if the last message was a piece.
    #[inline(always)]
    pub(crate) fn prefetch_next(&self) {
        if self.ahead != 0 {
            self.prefetch_ahead();
        }
    }

    /// (A call, because the loop takes a dozen instructions before it finds that there is nothing.)
    #[inline(never)]
    fn prefetch_ahead(&self) {
        for at in (0..self.ahead).step_by(LINE) {
            prefetch(std::ptr::without_provenance::<u8>(self.next + at));
        }
    }

    /// Notes that the last message lay in its cell.
    #[inline(always)]
    pub(crate) fn unused(&mut self) {
        if self.ahead != 0 {
            self.ahead = 0;
        }
    }

    /// Moves past a piece that has been read, and publishes the position.
    #[inline]
    pub(crate) fn done(&mut self, descriptor: &Descriptor, ends: &Ends) {
        let end = descriptor
            .start
            .wrapping_add(u64::from(descriptor.len).next_multiple_of(ALIGN));
        self.next = self.base + (end & ((1 << self.log_size) - 1)) as usize;
        self.ahead = ahead(descriptor.len as usize, HINTED_RX);
        // SYNC 1: pairs with the Acquire load in `BulkTx::piece`.
        ends.bulk_consumed.store(end, Release);
    }
}
