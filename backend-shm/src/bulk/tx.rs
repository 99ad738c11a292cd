//! The sender's half of a bulk area.
//!
//! Positions count the bytes since the pair began and never decrease. A position modulo the size of
//! the area is a place in it.
//!
//! ```text
//!             read           pos                    limit = read + size
//! ─────────────┼──────────────┼───────────────────────┼────────▶ positions
//!   read by    │ filled, and  │ free: the next piece  │ the same places as those
//!   the peer   │ perhaps read │ goes here             │ from `read` on: may be unread
//! ```
//!
//! The receiver publishes its position. `read` is that position when the sender last looked: a look
//! may cost the transfer of a cache line, so `piece` looks only if a piece would end behind
//! `limit`. A piece that would wrap begins at the next multiple of the size instead (`place`), and
//! the bytes before it are skipped.
//!
//! **Beginning anew.** If everything has been read, the sender may skip the rest of the area and go
//! on at its front: `pos` and `begun` become the next multiple of the size, and `limit` is one size
//! beyond that. `read` stays where the receiver is, so `limit` is then more than `read + size`.
//!
//! Three fields say what an area does beyond that:
//!
//! | area | `until` | `restart_at` |
//! | --- | --- | --- |
//! | small, to be replaced | 4 sizes, and what `settle` adds | |
//! | full size, or small for want of memory (`stays`) | never | |
//! | of a sender that starts over | | 8 KiB after it last looked |
//! | of any other sender | | never |
//!
//! - `until`: at this position the sender finds no room in a small area any more, and its caller
//!   moves it to an area of full size (`moved_to`). Bytes for which a small area is good enough
//!   postpone that (`settle`): those of short pieces that are read one by one, and those of a
//!   sender that starts over.
//! - `restart_at`: from this position on, the sender of a short piece looks whether everything has
//!   been read, and begins anew if so (`restart`).
//! - `begun`: where the area was last begun anew. `settle` counts from there or from `read`,
//!   whichever is later, so that no byte is counted twice.
//!
//! An area that is not replaced also begins anew if a piece of more than half of its size fits in
//! no other way (`is_empty_for_good`). Otherwise such a piece could wait for ever behind the bytes
//! that it has to skip.

use bytemuck::Zeroable;

use super::{ALIGN, Descriptor, ahead, place};
use crate::line::{LINE, prefetch_for_write};
use crate::optional::Present;
use crate::ring::Ends;
use crate::segment::Segment;
use crate::sync::Ordering::Acquire;

/// Longest piece after which a sender prefetches the lines of the next one. A longer piece is
/// usually copied by `rep movsb`, which takes whole lines without fetching them first; prefetched
/// lines would only be in its way, and in the way of what follows. (Whether they are also in the
/// way of a copy by words has not been measured.)
const HINTED_TX: usize = 2 << 10;
/// The same for a sender that starts over: for longer pieces the prefetches cost more than they
/// save.
const HINTED_RESTARTING: usize = 4 * LINE;
/// Longest piece for which a sender starts over. (Half a round trip of 2.5, 3 and 3.5 KiB, near,
/// takes 0.85, 0.84 and 0.83 of the time with this, and would take 1.11 at 4 KiB.)
const RESTARTING: u64 = 3584;
/// Bytes after which such a sender starts over.
pub(super) const BEGINNING: u64 = 8 << 10;
/// Pieces of at most this many bytes that go one at a time need no larger area, however often they
/// fill the small one: a larger area would be cold for a whole lap, and no faster afterwards.
const SETTLED: u64 = 4 * LINE as u64;

/// The sender's half.
#[derive(Debug, Zeroable)]
pub(crate) struct BulkTx {
    base: *mut u8,
    area: u64,
    size: u64,
    pub(super) pos: u64,
    /// The receiver's published position when the sender last looked.
    read: u64,
    /// The first position that may not be written: the end of what was read (and of what was
    /// skipped with it), plus the size.
    limit: u64,
    /// From this position on, the sender wants a larger area; `u64::MAX` if it keeps this one.
    until: u64,
    /// Bytes of the next piece to prefetch.
    ahead: usize,
    /// Longest piece after which the sender prefetches.
    hinted: usize,
    /// The position at which the sender checks whether it may start over; `u64::MAX` if it never
    /// does.
    restart_at: u64,
    /// The position at which the area was last begun anew.
    begun: u64,
}

// SAFETY: the pointer leads into the segment. There is only one sender's half, and it may move to
// another thread.
unsafe impl Send for BulkTx {}

/// A piece of the area that the sender may fill.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) ptr: *mut u8,
    pub(crate) descriptor: Descriptor,
}

/// The position that the receiver has published makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

impl Present for BulkTx {
    #[inline(always)]
    fn is_present(&self) -> bool {
        !self.base.is_null()
    }
}

impl BulkTx {
    /// Makes the sender's half of the area of `size` bytes (a power of two) at `area` in the
    /// segment. With `restarts`, the sender goes back to the area's beginning as long as short
    /// pieces are read before the next ones come.
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

    /// Like `new`, for an area that is to be replaced by a larger one after it has been filled a
    /// few times.
    pub(crate) fn small(segment: &Segment, area: u64, size: u64, restarts: bool) -> Option<Self> {
        Some(Self {
            until: 4 * size,
            ..Self::new(segment, area, size, restarts)?
        })
    }

    /// Continues this half in a larger area.
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

    /// Keeps this area for good, because there is no memory for a larger one. Each piece that is
    /// not longer than the area finds room once everything before it has been read.
    pub(crate) fn stays(&mut self) {
        self.until = u64::MAX;
    }

    /// Whether a larger area may take its place.
    pub(crate) fn may_grow(&self) -> bool {
        self.until != u64::MAX
    }

    /// Finds room for `len` bytes, if there is any. Nothing is taken until
    /// [`advance`](Self::advance).
    ///
    /// Always inlined: as a call, windows of 1 KiB move 0.88 of what they do.
    #[inline(always)]
    pub(crate) fn piece(&mut self, len: usize, ends: &Ends) -> Result<Option<Piece>, Broken> {
        let room = (len as u64).next_multiple_of(ALIGN);
        if room > self.size || self.pos >= self.until {
            return Ok(None);
        }
        if self.pos >= self.restart_at && room <= RESTARTING {
            self.restart(ends);
        }
        let mut start = place(self.pos, room, self.size);
        if start + room > self.limit {
            // SYNC 1: pairs with the receiver's Release in `BulkRx::done`, which came after its
            // reads.
            let read = ends.bulk_consumed.load(Acquire);
            if read < self.read || read > self.pos {
                return Err(Broken);
            }
            if room <= SETTLED && self.pos - read <= SETTLED {
                self.settle(read);
            }
            self.read_to(read);
            if start + room > self.limit {
                if !self.is_empty_for_good(read) {
                    return Ok(None);
                }
                start = self.pos;
            }
        }
        let at = (start & (self.size - 1)) as usize;
        // `place` saw to it that `at + len` is at most the size of the area.
        let ptr = self.base.wrapping_add(at);
        let log_size = self.size.trailing_zeros() as u16;
        let descriptor = Descriptor {
            area: self.area,
            start,
            len: len as u32,
            log_size,
            first: 0,
        };
        Ok(Some(Piece { ptr, descriptor }))
    }

    /// Begins an area that [stays](Self::stays) at its front, if the receiver has read everything
    /// before `read`, which is all of it. A piece that finds no room then is longer than half of
    /// the area, and only the bytes that it would skip are in its way.
    #[cold]
    fn is_empty_for_good(&mut self, read: u64) -> bool {
        let is_empty = read == self.pos && !self.may_grow();
        if is_empty {
            self.begin_anew();
        }
        is_empty
    }

    /// Does not count the bytes filled up to position `to` as a reason for a larger area.
    fn settle(&mut self, to: u64) {
        let since = self.read.max(self.begun);
        self.until = self.until.saturating_add(to.saturating_sub(since));
    }

    /// Notes that the receiver has read everything before position `read`.
    fn read_to(&mut self, read: u64) {
        self.read = read;
        self.limit = self.limit.max(read + self.size);
    }

    /// Starts over if the receiver has read everything: the lines used a moment ago are still in
    /// the first-level caches of both sides.
    #[cold]
    #[inline(never)]
    fn restart(&mut self, ends: &Ends) {
        // SYNC 1: as in `piece`.
        if ends.bulk_consumed.load(Acquire) == self.pos {
            // A sender that makes do with the beginning needs no larger area.
            self.settle(self.pos.next_multiple_of(self.size));
            self.begin_anew();
        }
        self.restart_at = self.pos + BEGINNING;
    }

    /// Continues at the beginning of the area, all of which has been read.
    fn begin_anew(&mut self) {
        let next = self.pos.next_multiple_of(self.size);
        self.read = self.pos;
        (self.pos, self.begun) = (next, next);
        self.limit = next + self.size;
    }

    /// Whether `len` bytes, in pieces of `piece` bytes each, would find room in this area now.
    pub(crate) fn fits(&mut self, len: usize, piece: usize, ends: &Ends) -> bool {
        if self.pos >= self.until {
            return false;
        }
        let (len, piece) = (len as u64, (piece as u64).next_multiple_of(ALIGN));
        let left = self.size - (self.pos & (self.size - 1));
        let skipped = if left < len { left % piece.max(1) } else { 0 };
        let end = self.pos + skipped + len.next_multiple_of(ALIGN);
        if end > self.limit && self.until == u64::MAX {
            // SYNC 1: as in `piece`, which also reports a position that makes no sense.
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

    /// Prefetches the first lines of the next piece.
    #[inline(always)]
    pub(crate) fn prefetch_next(&self) {
        if self.ahead != 0 {
            self.prefetch_ahead();
        }
    }

    /// (A call, as in `BulkRx`.)
    #[inline(never)]
    fn prefetch_ahead(&self) {
        let next = self
            .base
            .wrapping_add((self.pos & (self.size - 1)) as usize);
        for at in (0..self.ahead).step_by(LINE) {
            prefetch_for_write(next.wrapping_add(at));
        }
    }
}
