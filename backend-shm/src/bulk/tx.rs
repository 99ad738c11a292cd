//! The sender's half of a bulk area.

use super::{ALIGN, Descriptor, ahead, place};
use crate::line::{LINE, prefetch_for_write};
use crate::ring::Ends;
use crate::segment::Segment;
use crate::sync::Ordering::Acquire;

/// Longest piece after which a sender asks for the lines of the next one. What is longer is copied
/// in a way that takes whole lines without fetching them first (`rep movsb`), as a rule; lines that
/// were asked for would only be in its way, and in that of what comes next. (That they are not for
/// what is copied by words was not measured.)
const HINTED_TX: usize = 2 << 10;
/// The same for a sender that starts over: longer pieces cost more by the asking than by the
/// fetching.
const HINTED_RESTARTING: usize = 4 * LINE;
/// Longest piece with which a sender starts over.
const RESTARTING: u64 = 2 << 10;
/// Bytes after which a sender that does so starts over.
pub(super) const BEGINNING: u64 = 8 << 10;
/// Pieces of at most this many bytes that go one at a time need no larger area, however often it is
/// filled: it would be cold for a whole lap, and no faster afterwards.
const SETTLED: u64 = 4 * LINE as u64;

/// The sender's half.
#[derive(Debug)]
pub(crate) struct BulkTx {
    base: *mut u8,
    area: u64,
    size: u64,
    pub(super) pos: u64,
    /// What the receiver had published when this side looked last.
    read: u64,
    /// The first position that may not be written: what was read, or skipped with it, plus the
    /// size.
    limit: u64,
    /// The position from which on a larger area is wanted.
    until: u64,
    /// Bytes to ask for ahead.
    ahead: usize,
    /// Longest piece after which they are.
    hinted: usize,
    /// The position at which this side looks whether it may start over.
    restart_at: u64,
    /// Where it did so last.
    begun: u64,
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
    /// The sender's half of the area of `size` bytes (a power of two) at `area` in the segment. Who
    /// `restarts` uses its beginning again as long as short pieces are read before the next ones
    /// come.
    pub(crate) fn new(segment: &Segment, area: u64, size: u64, restarts: bool) -> Option<Self> {
        debug_assert!(size.is_power_of_two());
        let base = segment.at(area, size as usize)?;
        Some(Self {
            base,
            area,
            size,
            pos: 0,
            read: 0,
            limit: size,
            until: u64::MAX,
            ahead: 0,
            hinted: if restarts {
                HINTED_RESTARTING
            } else {
                HINTED_TX
            },
            restart_at: if restarts { BEGINNING } else { u64::MAX },
            begun: 0,
        })
    }

    /// The same, to be replaced by a larger area after it was filled a few times.
    pub(crate) fn small(segment: &Segment, area: u64, size: u64, restarts: bool) -> Option<Self> {
        Some(Self {
            until: 4 * size,
            ..Self::new(segment, area, size, restarts)?
        })
    }

    /// The same pair's half over a larger area.
    pub(crate) fn moved_to(&self, segment: &Segment, area: u64, size: u64) -> Option<Self> {
        let restarts = self.restart_at != u64::MAX;
        Some(Self {
            pos: self.pos,
            read: self.read,
            limit: self.limit - self.size + size,
            begun: self.begun,
            ..Self::new(segment, area, size, restarts)?
        })
    }

    /// There is no memory for a larger area: this one does for good. Each piece that is not longer
    /// than the area finds room once everything before it has been read.
    pub(crate) fn stays(&mut self) {
        self.until = u64::MAX;
    }

    /// Whether a larger area may take its place.
    pub(crate) fn may_grow(&self) -> bool {
        self.until != u64::MAX
    }

    /// Room for `len` bytes, if there is; nothing is taken until [`advance`](Self::advance).
    #[inline]
    pub(crate) fn piece(&mut self, len: usize, ends: &Ends) -> Result<Option<Piece>, Broken> {
        let room = (len as u64).next_multiple_of(ALIGN);
        if room > self.size || self.pos >= self.until {
            return Ok(None);
        }
        if self.pos >= self.restart_at && room <= RESTARTING {
            self.restart(ends);
        }
        let mut start = place(self.pos, room, self.size);
        let mut end = start + room;
        if end > self.limit {
            // SYNC 1: the receiver's Release in `BulkRx::done` came after its reads.
            let read = ends.bulk_consumed.load(Acquire);
            if read < self.read || read > self.pos {
                return Err(Broken);
            }
            if room <= SETTLED && self.pos - read <= SETTLED {
                self.settle(read);
            }
            self.read_to(read);
            if end > self.limit {
                if read != self.pos || self.may_grow() {
                    return Ok(None);
                }
                // More than half of the area, in the way of nothing but what is skipped.
                self.begin_anew();
                start = self.pos;
                end = start + room;
                debug_assert!(
                    end <= self.limit,
                    "an empty area has room for all of itself"
                );
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

    /// What was filled up to this position is no reason for a larger area.
    fn settle(&mut self, to: u64) {
        let since = self.read.max(self.begun);
        self.until = self.until.saturating_add(to.saturating_sub(since));
    }

    /// The receiver has read everything before this position.
    fn read_to(&mut self, read: u64) {
        self.read = read;
        self.limit = self.limit.max(read + self.size);
    }

    /// Starts over, if all has been read: lines that were used just now are still in both sides'
    /// first caches.
    #[cold]
    #[inline(never)]
    fn restart(&mut self, ends: &Ends) {
        // SYNC 1: as in `piece`.
        if ends.bulk_consumed.load(Acquire) == self.pos {
            // Who gets along with the beginning needs no larger area.
            self.settle(self.pos.next_multiple_of(self.size));
            self.begin_anew();
        }
        self.restart_at = self.pos + BEGINNING;
    }

    /// Goes on at the beginning of the area, all of which has been read.
    fn begin_anew(&mut self) {
        let next = self.pos.next_multiple_of(self.size);
        self.read = self.pos;
        (self.pos, self.begun) = (next, next);
        self.limit = next + self.size;
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
        if end > self.limit && self.until == u64::MAX {
            // SYNC 1: as in `piece`, which also finds out what makes no sense.
            let read = ends.bulk_consumed.load(Acquire);
            if (self.read..=self.pos).contains(&read) {
                self.read_to(read);
            }
        }
        end <= self.limit
    }

    /// Takes a piece that has been filled.
    #[inline]
    pub(crate) fn advance(&mut self, piece: &Piece) {
        self.pos = piece.descriptor.start + u64::from(piece.descriptor.len).next_multiple_of(ALIGN);
        self.ahead = ahead(piece.descriptor.len as usize, self.hinted);
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
