//! The program's buffers as operations over boards see them.

use portolan_core::buffer::TypedBuf;
use portolan_core::{Error, ErrorKind, Result, lines};
use portolan_datatype::{Layout, MsgRep, Op, bytes};

use crate::args::Many;
use crate::direct::blocking::exchange::ASIDE;
use crate::direct::boards::board::{CHUNK, Header};
use crate::schedule::{Base, Builder, Span};

/// A buffer as the stream of its packed bytes, for operations that move data.
#[derive(Clone, Copy, Debug)]
pub(in crate::direct) struct Stream<'a> {
    ptr: *mut u8,
    count: usize,
    layout: &'a Layout,
}

impl<'a> Stream<'a> {
    #[inline]
    pub(in crate::direct) fn of(buf: &TypedBuf<'a>) -> Self {
        Self {
            ptr: buf.ptr,
            count: buf.count,
            layout: buf.layout,
        }
    }

    /// A rank's block of a buffer.
    #[inline]
    pub(in crate::direct) fn block(many: &Many<'a>, rank: u32) -> Self {
        let rank = rank as usize;
        match many {
            Many::Equal(buf) => {
                let at = (rank * buf.count) as isize * buf.layout.extent();
                Self {
                    ptr: buf.ptr.wrapping_offset(at),
                    ..Self::of(buf)
                }
            }
            Many::Blocks(of) => Self {
                ptr: of
                    .ptr
                    .wrapping_offset(of.displacements[rank] * of.layout.extent()),
                count: of.counts[rank],
                layout: of.layout,
            },
            Many::Layouts(of) => Self {
                ptr: of.ptr.wrapping_offset(of.displacements[rank]),
                count: of.counts[rank],
                layout: &of.layouts[rank],
            },
        }
    }

    /// Bytes in a rank's block.
    #[inline]
    pub(in crate::direct) fn block_len(many: &Many<'_>, rank: u32) -> usize {
        let rank = rank as usize;
        match many {
            Many::Equal(buf) => buf.count * buf.layout.size(),
            Many::Blocks(of) => of.counts[rank] * of.layout.size(),
            Many::Layouts(of) => of.counts[rank] * of.layouts[rank].size(),
        }
    }

    /// Bytes of packed data.
    #[inline]
    pub(in crate::direct) fn len(&self) -> usize {
        self.count * self.layout.size()
    }

    /// Whether the stream is the memory from [`address`](Self::address) on.
    pub(in crate::direct) fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// Number of items.
    pub(in crate::direct) fn count(&self) -> usize {
        self.count
    }

    /// Layout of an item.
    pub(in crate::direct) fn layout(&self) -> &'a Layout {
        self.layout
    }

    /// The address of displacement 0 of the first item.
    pub(in crate::direct) fn address(&self) -> *mut u8 {
        self.ptr
    }

    /// The same buffer as a span of a schedule in which `base` begins at `origin`.
    pub(in crate::direct) fn span(&self, b: &mut Builder, base: Base, origin: *mut u8) -> Span {
        let offset = (self.ptr as isize).wrapping_sub(origin as isize);
        b.span(base, offset, self.count, self.layout)
    }

    /// Copies bytes `at..at + len` of the stream to `to`, or fewer if the stream ends before that.
    ///
    /// # Safety
    /// The buffer is readable, `to` is writable for `len` bytes, and they do not overlap.
    #[inline]
    pub(in crate::direct) unsafe fn read(&self, at: usize, to: *mut u8, len: usize) {
        if len > 0 {
            // SAFETY: from the caller.
            unsafe {
                self.layout
                    .pack_range(self.ptr, self.count, at, to, len, MsgRep::Native);
            }
        }
    }

    /// Copies `len` bytes from `from` into the stream at position `at`, or fewer if the stream ends
    /// before that.
    ///
    /// # Safety
    /// The buffer is writable, `from` is readable for `len` bytes, and they do not overlap.
    #[inline]
    pub(in crate::direct) unsafe fn write(&self, at: usize, from: *const u8, len: usize) {
        if len > 0 {
            // SAFETY: from the caller.
            unsafe {
                self.layout
                    .unpack_range(self.ptr, self.count, at, from, len, MsgRep::Native);
            }
        }
    }

    /// As [`write`](Self::write), from a board. `takes` says whether to take the cache lines read,
    /// which is right if no other rank reads them.
    ///
    /// # Safety
    /// As [`write`](Self::write). Lines that are taken are writable and have no other reader.
    #[inline]
    pub(in crate::direct) unsafe fn take(&self, at: usize, from: *mut u8, len: usize, takes: bool) {
        // SAFETY: from the caller.
        unsafe {
            if !takes || len <= lines::LINE {
                self.write(at, from, len);
            } else if self.layout.is_contiguous() {
                lines::copy_and_take(from, self.ptr.add(at), len.min(self.len() - at));
            } else {
                self.write(at, from, len);
                lines::take(from, len);
            }
        }
    }

    /// Copies the whole stream to another of the same length.
    ///
    /// # Safety
    /// This buffer is readable, the other writable, and they do not overlap.
    pub(in crate::direct) unsafe fn copy_to(&self, to: &Self) {
        let len = self.len().min(to.len());
        // SAFETY: from the caller. If the items of one layout are their own packed stream, that
        // buffer is read or written directly as the stream.
        unsafe {
            if self.layout.is_contiguous() {
                to.write(0, self.ptr, len);
            } else if to.layout.is_contiguous() {
                self.read(0, to.ptr, len);
            } else {
                in_parts(len, |at, part, now| {
                    self.read(at, part, now);
                    to.write(at, part, now);
                });
            }
        }
    }
}

/// Copies bytes. A few bytes are copied inline, because the call of the general copy routine takes
/// longer than moving them.
///
/// # Safety
/// `from` is readable and initialised and `to` writable for `len` bytes, and they do not overlap.
#[inline]
pub(in crate::direct) unsafe fn copy_bytes(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: from the caller. The second word ends where the bytes end, and both words are loaded
    // before either is stored.
    unsafe {
        match len {
            4..=7 => {
                let last = len - 4;
                let words = [from, from.add(last)].map(|at| at.cast::<u32>().read_unaligned());
                to.cast::<u32>().write_unaligned(words[0]);
                to.add(last).cast::<u32>().write_unaligned(words[1]);
            }
            8..=16 => {
                let last = len - 8;
                let words = [from, from.add(last)].map(|at| at.cast::<u64>().read_unaligned());
                to.cast::<u64>().write_unaligned(words[0]);
                to.add(last).cast::<u64>().write_unaligned(words[1]);
            }
            _ => bytes::copy(from, to, len),
        }
    }
}

/// Processes `len` bytes through a small buffer: `copy` receives the position, the buffer, and the
/// number of bytes to move in this call.
fn in_parts(len: usize, mut copy: impl FnMut(usize, *mut u8, usize)) {
    let mut part = [0u8; 4096];
    for at in (0..len).step_by(part.len()) {
        let now = part.len().min(len - at);
        copy(at, part.as_mut_ptr(), now);
    }
}

/// Bytes combined before their lines are taken: few enough that they are still in the L1 cache.
const COMBINED: usize = 4 << 10;

/// Items to be reduced.
///
/// On a board the items lie as in the program's buffers, gaps included, because user-defined
/// operators know no other form.
#[derive(Clone, Copy, Debug)]
pub(in crate::direct) struct Items<'a> {
    op: &'a Op,
    layout: &'a Layout,
    pub(in crate::direct) count: usize,
    /// Whether the data is one run of bytes that begins at displacement 0.
    contiguous: bool,
}

impl<'a> Items<'a> {
    #[inline]
    pub(in crate::direct) fn new(op: &'a Op, layout: &'a Layout, count: usize) -> Self {
        Self {
            op,
            layout,
            count,
            contiguous: layout.is_contiguous(),
        }
    }

    /// Whether boards can hold such items. An item must be short enough that a chunk, divided among
    /// `ranks` ranks, has room for it in each part. Items must also not overlap: overlapping items
    /// would occupy less room than the length that ranks show for them.
    #[inline]
    pub(in crate::direct) fn fit_boards(layout: &Layout, ranks: u32) -> bool {
        if layout.extent().unsigned_abs() < layout.size() {
            return false;
        }
        let item = layout.true_extent().unsigned_abs() + layout.extent().unsigned_abs();
        // Each part begins at a cache line.
        (item + 64).saturating_mul(ranks as usize) <= CHUNK
    }

    /// Bytes of packed data.
    #[inline]
    pub(in crate::direct) fn len(&self) -> usize {
        self.count * self.layout.size()
    }

    /// The operator.
    pub(in crate::direct) fn op(&self) -> &'a Op {
        self.op
    }

    /// Whether the data is one run of bytes that begins at displacement 0.
    pub(in crate::direct) fn is_contiguous(&self) -> bool {
        self.contiguous
    }

    /// The length that ranks show, and compare. Items with gaps, or out of order, lie on a board as
    /// they lie in memory. Ranks whose items lie in different ways would combine what does not
    /// belong together, or even take different numbers of steps. So such items have a length of
    /// their own, which no other items are likely to have.
    #[inline]
    pub(in crate::direct) fn shown_len(&self) -> usize {
        match self.contiguous {
            true => self.len(),
            false => self.mark(),
        }
    }

    /// The same, where there is room for a short length only: at most [`ASIDE`] bytes, or as much
    /// again for items with gaps.
    #[inline]
    pub(in crate::direct) fn shown_len_beside_root(&self) -> usize {
        match self.contiguous {
            true => self.len(),
            false => match self.mark() {
                0 => 0,
                mark => ASIDE + 1 + mark % (ASIDE - 1),
            },
        }
    }

    /// The length that stands for items with gaps ([`Header::GAPS`]).
    #[inline(never)]
    fn mark(&self) -> usize {
        let (len, reach) = (self.len(), self.reach());
        if len == 0 {
            return 0;
        }
        let layout = self.layout;
        let facts = [
            len as u64,
            reach.start as u64,
            reach.end as u64,
            layout.extent() as u64,
            layout.size() as u64,
        ];
        // The golden ratio, in 64 bits: its products differ in their upper halves.
        let mix =
            |sum: u64, fact: u64| (sum.rotate_left(23) ^ fact).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = facts.into_iter().fold(1, mix) >> 32;
        Header::GAPS.start + (hash as usize) % Header::GAPS.len()
    }

    /// The range of bytes that the items reach over, relative to displacement 0 of the first.
    #[inline]
    fn reach(&self) -> std::ops::Range<isize> {
        if self.contiguous {
            return 0..self.len() as isize;
        }
        // `check` has computed this before without an overflow.
        self.layout.span(self.count).unwrap_or(0..0)
    }

    /// Bytes that the items need on a board.
    #[inline]
    pub(in crate::direct) fn room(&self) -> usize {
        let reach = self.reach();
        (reach.end - reach.start) as usize
    }

    /// How many items fit in `bytes` bytes, which hold at least one.
    pub(in crate::direct) fn per(&self, bytes: usize) -> usize {
        let more = bytes.saturating_sub(self.layout.true_extent().unsigned_abs());
        let each = self.layout.extent().unsigned_abs();
        more.checked_div(each).map_or(usize::MAX, |more| more + 1)
    }

    /// The address of displacement 0 of the first item, if the items lie at `place` on a board.
    #[inline]
    pub(in crate::direct) fn on_board(&self, place: *mut u8) -> *mut u8 {
        place.wrapping_offset(-self.reach().start)
    }

    /// The same kind of items, `count` of them.
    #[inline]
    pub(in crate::direct) fn with(&self, count: usize) -> Self {
        Self { count, ..*self }
    }

    /// The address of item number `index`, if the first is at `first`.
    #[inline]
    pub(in crate::direct) fn nth(&self, first: *mut u8, index: usize) -> *mut u8 {
        first.wrapping_offset(index as isize * self.layout.extent())
    }

    /// Copies all items.
    ///
    /// # Safety
    /// The items are readable and initialised at `from` and writable at `to`, and the two do not
    /// overlap.
    #[inline]
    pub(in crate::direct) unsafe fn copy(&self, from: *const u8, to: *mut u8) {
        // SAFETY: from the caller, for all of it.
        unsafe {
            if self.contiguous {
                copy_bytes(from, to, self.len());
            } else {
                let from = Stream {
                    ptr: from.cast_mut(),
                    count: self.count,
                    layout: self.layout,
                };
                from.copy_to(&Stream { ptr: to, ..from });
            }
        }
    }

    /// Copies all items from a board. `takes` says whether to take their cache lines, which is
    /// right if no other rank reads them.
    ///
    /// # Safety
    /// As [`copy`](Self::copy). Lines that are taken are writable and have no other reader.
    #[inline]
    pub(in crate::direct) unsafe fn copy_shown(&self, from: *mut u8, to: *mut u8, takes: bool) {
        // SAFETY: from the caller.
        unsafe {
            if self.are_taken(takes) {
                lines::copy_and_take(from, to, self.len());
            } else {
                self.copy(from, to);
            }
        }
    }

    /// `right = left op right`, with `left` on a board; `takes` as in
    /// [`copy_shown`](Self::copy_shown).
    ///
    /// # Errors
    /// As [`combine`](Self::combine).
    ///
    /// # Safety
    /// As [`combine`](Self::combine) and [`copy_shown`](Self::copy_shown).
    #[inline]
    pub(in crate::direct) unsafe fn combine_shown(
        &self,
        left: *mut u8,
        right: *mut u8,
        takes: bool,
    ) -> Result<()> {
        if !self.are_taken(takes) {
            // SAFETY: from the caller.
            return unsafe { self.combine(left, right) };
        }
        let each = self.per(COMBINED);
        for first in (0..self.count).step_by(each) {
            let now = self.with(each.min(self.count - first));
            let left = self.nth(left, first);
            // SAFETY: from the caller, for some of them.
            unsafe {
                now.combine(left, self.nth(right, first))?;
                lines::take(left, now.len());
            }
        }
        Ok(())
    }

    /// Whether to take the lines of these items, given `takes`.
    #[inline]
    fn are_taken(&self, takes: bool) -> bool {
        takes && self.contiguous && self.len() > lines::LINE
    }

    /// `right = left op right`.
    ///
    /// # Errors
    /// If the operator does not know the layout, which has been checked.
    ///
    /// # Safety
    /// Both are readable, the right one writable, they do not overlap, and hold values that are
    /// valid for the operator.
    #[inline]
    pub(in crate::direct) unsafe fn combine(&self, left: *const u8, right: *mut u8) -> Result<()> {
        // SAFETY: from the caller.
        let done = unsafe { self.op.apply(self.layout, self.count, left, right) };
        done.map_err(|error| Error::new(ErrorKind::InvalidLayout, error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_bytes_are_copied_and_no_more() {
        let from: Vec<u8> = (1..=64).collect();
        for len in 0..=from.len() {
            let mut to = vec![0; from.len() + 1];
            // SAFETY: both are as long, and apart.
            unsafe { copy_bytes(from.as_ptr(), to.as_mut_ptr(), len) };
            assert_eq!(to[..len], from[..len]);
            assert!(to[len..].iter().all(|&byte| byte == 0), "{len}");
        }
    }
}
