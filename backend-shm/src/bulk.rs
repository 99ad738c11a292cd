//! The bulk area of a pair: where payloads lie that are too long for the ring.
//!
//! A ring of bytes. The sender takes the next piece, has it filled, and sends a descriptor through
//! the pair's ring of cells, so the order of a pair is that of its cells. A piece never wraps:
//! what is left at the end is skipped. The receiver publishes its position after each piece.
//!
//! A pair begins with a small area and gets one of full size when that proves too small, or was used
//! for a while (reusing memory too soon means taking it out of the receiver's first-level cache); positions go
//! on counting, and each descriptor names its area, so pieces in both may be under way.
//!
//! ```text
//! descriptor: offset of the area in the segment | position of the piece | its length | size of the area
//! ```

use crate::line::{LINE, prefetch, prefetch_for_write};
use crate::ring::Ends;
use crate::segment::Segment;
use crate::sync::Ordering::{Acquire, Release};

/// Pieces begin at multiples of this.
pub(crate) const ALIGN: u64 = 64;
/// Longest piece after which a sender asks for the lines of the next one. What is longer is copied in a way that
/// takes whole lines without fetching them first (`rep movsb`); lines that were asked for would only be in
/// its way, and in that of what comes next.
const HINTED_TX: usize = 2 << 10;
/// The same for a receiver, who asks at each poll, and must not take from the sender what that is writing.
const HINTED_RX: usize = 4 * LINE;
/// Pieces of at most this many bytes that go one at a time need no larger area, however often it is filled: it
/// would be cold for a whole lap, and no faster afterwards.
const SETTLED: u64 = 4 * LINE as u64;

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

/// The sender's half.
#[derive(Debug)]
pub(crate) struct BulkTx {
    base: *mut u8,
    area: u64,
    size: u64,
    pos: u64,
    consumed: u64,
    /// The position from which on a larger area is wanted.
    until: u64,
    /// Bytes to ask for ahead.
    ahead: usize,
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
        debug_assert!(size.is_power_of_two());
        let base = segment.at(area, size as usize)?;
        Some(Self {
            base,
            area,
            size,
            pos: 0,
            consumed: 0,
            until: u64::MAX,
            ahead: 0,
        })
    }

    /// The same, to be replaced by a larger area after it was filled a few times.
    pub(crate) fn small(segment: &Segment, area: u64, size: u64) -> Option<Self> {
        Some(Self {
            until: 4 * size,
            ..Self::new(segment, area, size)?
        })
    }

    /// The same pair's half over a larger area.
    pub(crate) fn moved_to(&self, segment: &Segment, area: u64, size: u64) -> Option<Self> {
        let (pos, consumed) = (self.pos, self.consumed);
        Some(Self {
            pos,
            consumed,
            ..Self::new(segment, area, size)?
        })
    }

    /// Bytes of the area.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Room for `len` bytes, if there is; nothing is taken until [`advance`](Self::advance).
    #[inline]
    pub(crate) fn piece(&mut self, len: usize, ends: &Ends) -> Result<Option<Piece>, Broken> {
        let room = (len as u64).next_multiple_of(ALIGN);
        if room > self.size || self.pos >= self.until {
            return Ok(None);
        }
        let start = place(self.pos, room, self.size);
        let end = start + room;
        if end - self.consumed > self.size {
            // SYNC 1: the receiver's Release in `BulkRx::done` came after its reads.
            let consumed = ends.bulk_consumed.load(Acquire);
            if consumed < self.consumed || consumed > self.pos {
                return Err(Broken);
            }
            if room <= SETTLED && self.pos - consumed <= SETTLED {
                self.until = self.until.saturating_add(consumed - self.consumed);
            }
            self.consumed = consumed;
            if end - consumed > self.size {
                return Ok(None);
            }
        }
        let at = (start & (self.size - 1)) as usize;
        // `place` saw to it that `at + len` is at most the size of the area.
        let ptr = self.base.wrapping_add(at);
        let log_size = self.size.trailing_zeros();
        let descriptor = Descriptor {
            area: self.area,
            start,
            len: len as u32,
            log_size,
        };
        Ok(Some(Piece { ptr, descriptor }))
    }

    /// Whether `len` bytes in pieces of `piece` each would find room now, in this area.
    pub(crate) fn fits(&mut self, len: usize, piece: usize, ends: &Ends) -> bool {
        if self.pos >= self.until {
            return false;
        }
        let (len, piece) = (len as u64, (piece as u64).next_multiple_of(ALIGN));
        let left = self.size - (self.pos & (self.size - 1));
        let skipped = if left < len { left % piece.max(1) } else { 0 };
        let end = self.pos + skipped + len.next_multiple_of(ALIGN);
        if end - self.consumed > self.size && self.until == u64::MAX {
            // SYNC 1: as in `piece`, which also finds out what makes no sense.
            let consumed = ends.bulk_consumed.load(Acquire);
            if (self.consumed..=self.pos).contains(&consumed) {
                self.consumed = consumed;
            }
        }
        end - self.consumed <= self.size
    }

    /// Takes a piece that has been filled.
    #[inline]
    pub(crate) fn advance(&mut self, piece: &Piece) {
        self.pos = piece.descriptor.start + u64::from(piece.descriptor.len).next_multiple_of(ALIGN);
        self.ahead = ahead(piece.descriptor.len as usize, HINTED_TX);
    }

    /// Asks for the first lines of the next piece.
    #[inline(always)]
    pub(crate) fn prefetch_next(&self) {
        let next = self
            .base
            .wrapping_add((self.pos & (self.size - 1)) as usize);
        for at in (0..self.ahead).step_by(LINE) {
            prefetch_for_write(next.wrapping_add(at));
        }
    }
}

/// The receiver's half: the area that the sender named last, checked.
#[derive(Debug, Default)]
pub(crate) struct BulkRx {
    area: u64,
    log_size: u32,
    base: usize,
    /// Where the next piece may begin, and how many bytes of it to ask for ahead.
    next: usize,
    ahead: usize,
}

impl BulkRx {
    /// Where the bytes are that a descriptor names: at most `longest` of them, inside of an area of
    /// at most `limit` bytes that lies in the allocated part of the segment; or nowhere.
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
            .checked_shl(descriptor.log_size)
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

    /// Asks for the first lines of the next piece, if the last message was one.
    #[inline(always)]
    pub(crate) fn prefetch_next(&self) {
        for at in (0..self.ahead).step_by(LINE) {
            prefetch(std::ptr::without_provenance::<u8>(self.next + at));
        }
    }

    /// The last message lay in its cell.
    #[inline(always)]
    pub(crate) fn unused(&mut self) {
        if self.ahead != 0 {
            self.ahead = 0;
        }
    }

    /// Goes past a piece that has been read.
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::{ALIGN, BulkTx, place};
    use crate::ring::Ends;
    use crate::segment::{Geometry, Segment, memory_file};
    use crate::sync::Ordering::Relaxed;

    const AREA: u64 = 32 << 10;

    /// A small area of a pair, and the words that both sides share.
    fn pair() -> (Segment, u64, Box<Ends>) {
        let geometry = Geometry {
            ring_cells: 32,
            bulk_bytes: 256 << 10,
            total: 4 << 20,
        };
        let segment = Segment::prepare(memory_file().unwrap(), 1, geometry).unwrap();
        let (area, _) = segment.extend(AREA, "an area").unwrap();
        // SAFETY: the words are atomics, for which zero is legal.
        let ends: Box<Ends> = unsafe { crate::segment::layout::zeroed() };
        (segment, area, ends)
    }

    /// How many pieces of `len` bytes a small area takes before a larger one is wanted, of `at_most`, if the receiver
    /// is `behind` by so many of them.
    fn taken(len: usize, behind: u64, at_most: u64) -> u64 {
        let (segment, area, ends) = pair();
        let mut sender = BulkTx::small(&segment, area, AREA).unwrap();
        for number in 0..at_most {
            let Ok(Some(piece)) = sender.piece(len, &ends) else {
                return number;
            };
            sender.advance(&piece);
            let end = sender.pos.saturating_sub(behind * len as u64);
            ends.bulk_consumed.store(end, Relaxed);
        }
        at_most
    }

    #[test]
    fn short_pieces_that_go_one_at_a_time_need_no_larger_area() {
        let lap = AREA / ALIGN;
        assert_eq!(taken(64, 0, 20 * lap), 20 * lap);
        assert_eq!(taken(256, 0, 20 * lap), 20 * lap);
    }

    #[test]
    fn after_four_fillings_longer_ones_and_bursts_do() {
        assert_eq!(taken(1024, 0, 1000), 4 * AREA / 1024);
        assert_eq!(taken(64, 32, 10_000), 4 * AREA / 64);
    }

    /// Takes a message's pieces, as many as find room; returns whether all did. Where they end goes into `ends_of`.
    fn takes(
        sender: &mut BulkTx,
        len: usize,
        piece: usize,
        ends: &Ends,
        ends_of: &mut VecDeque<u64>,
    ) -> bool {
        (0..len).step_by(piece).all(|start| {
            let found = sender.piece(piece.min(len - start), ends).unwrap();
            found.is_some_and(|found| {
                sender.advance(&found);
                ends_of.push_back(sender.pos);
                true
            })
        })
    }

    #[test]
    fn what_fits_is_what_pieces_find_room_for() {
        let (segment, area, ends) = pair();
        let mut sender = BulkTx::new(&segment, area, AREA).unwrap();
        let (mut unread, mut seen, mut wraps) = (VecDeque::new(), [0; 2], 0);
        for step in 0..5000 {
            let len = [200, 4096, 5000, 10_000, 12_345, 16 << 10, 32 << 10, 40_000][step * 5 % 8];
            let piece = [256, 4096, 8192][step % 3];
            let before = sender.pos;
            let fits = sender.fits(len, piece, &ends);
            let all = takes(&mut sender, len, piece, &ends, &mut unread);
            assert_eq!(fits, all, "step {step}: {len} bytes at {before}");
            seen[usize::from(fits)] += 1;
            wraps +=
                usize::from(fits && sender.pos - before > (len as u64).next_multiple_of(ALIGN));
            let read = unread.len().min(step * 11 % 60);
            if let Some(end) = unread.drain(..read).next_back() {
                ends.bulk_consumed.store(end, Relaxed);
            }
        }
        assert!(seen.iter().all(|&times| times > 500), "{seen:?}");
        assert!(wraps > 50, "{wraps} messages had to skip the area's end");
    }

    #[test]
    fn a_piece_never_wraps() {
        assert_eq!(place(0, 64, 256), 0);
        assert_eq!(place(192, 64, 256), 192);
        assert_eq!(place(192, 128, 256), 256);
        assert_eq!(place(256 + 64, 192, 256), 256 + 64);
        assert_eq!(place(256 + 64, 256, 256), 512);
    }
}
