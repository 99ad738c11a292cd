//! Buffers of the program, as operations over boards see them.

use portolan_core::buffer::TypedBuf;
use portolan_core::{Error, ErrorKind, Result, lines};
use portolan_datatype::{Layout, MsgRep, Op};

use crate::args::Many;
use crate::direct::boards::board::CHUNK;
use crate::schedule::{Base, Builder, Span};

/// A buffer as the stream of its packed bytes: for what moves data.
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

    /// The block of a rank.
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

    /// Bytes of the block of a rank.
    #[inline]
    pub(in crate::direct) fn block_len(many: &Many<'_>, rank: u32) -> usize {
        let rank = rank as usize;
        match many {
            Many::Equal(buf) => buf.count * buf.layout.size(),
            Many::Blocks(of) => of.counts[rank] * of.layout.size(),
            Many::Layouts(of) => of.counts[rank] * of.layouts[rank].size(),
        }
    }

    /// Bytes of data.
    #[inline]
    pub(in crate::direct) fn len(&self) -> usize {
        self.count * self.layout.size()
    }

    /// Items of it.
    pub(in crate::direct) fn count(&self) -> usize {
        self.count
    }

    /// Of what it is.
    pub(in crate::direct) fn layout(&self) -> &'a Layout {
        self.layout
    }

    /// Where displacement 0 of the first item is.
    pub(in crate::direct) fn address(&self) -> *mut u8 {
        self.ptr
    }

    /// The same as a span of a schedule, whose memory `base` begins at `origin`.
    pub(in crate::direct) fn span(&self, b: &mut Builder, base: Base, origin: *mut u8) -> Span {
        let offset = (self.ptr as isize).wrapping_sub(origin as isize);
        b.span(base, offset, self.count, self.layout)
    }

    /// Copies bytes `at..at + len` of the stream to `to`; less, where it ends.
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

    /// Copies `len` bytes at `from` to the stream, from position `at` on; less, where it ends.
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

    /// The same from a board; `takes` says whether the lines are taken, because nobody else reads
    /// them.
    ///
    /// # Safety
    /// As [`write`](Self::write), and what is taken is writable, and has no other reader.
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
        // SAFETY: from the caller. A layout whose items are their own packed stream is read or
        // written as that.
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

/// Copies bytes, few of them without the call that copies many: that takes longer than moving them
/// does.
///
/// # Safety
/// `from` is readable and initialised and `to` writable for `len` bytes, and they do not overlap.
#[inline]
unsafe fn copy_bytes(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: from the caller; the second word ends where the bytes do, and is loaded before
    // anything is stored.
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
            _ => std::ptr::copy_nonoverlapping(from, to, len),
        }
    }
}

/// Goes through `len` bytes by way of a small buffer: `copy` gets the position, the buffer, and how
/// many bytes to move now.
fn in_parts(len: usize, mut copy: impl FnMut(usize, *mut u8, usize)) {
    let mut part = [0u8; 4096];
    for at in (0..len).step_by(part.len()) {
        let now = part.len().min(len - at);
        copy(at, part.as_mut_ptr(), now);
    }
}

/// Bytes that are combined before their lines are taken: few enough to be in the first cache still.
const COMBINED: usize = 4 << 10;

/// Items that are reduced.
///
/// On a board they lie as in the program's buffers, gaps included, because an operator of the
/// program knows no other form.
#[derive(Clone, Copy, Debug)]
pub(in crate::direct) struct Items<'a> {
    op: &'a Op,
    layout: &'a Layout,
    pub(in crate::direct) count: usize,
    /// Whether their data is one run of bytes that begins at displacement 0.
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

    /// Whether an item is so short that parts of chunks for `ranks` ranks have room for it, and
    /// takes a place of its own: many that lie over each other need less room than the length that
    /// is told of them.
    #[inline]
    pub(in crate::direct) fn fit_boards(layout: &Layout, ranks: u32) -> bool {
        if layout.extent().unsigned_abs() < layout.size() {
            return false;
        }
        let item = layout.true_extent().unsigned_abs() + layout.extent().unsigned_abs();
        // A part begins at a line.
        (item + 64).saturating_mul(ranks as usize) <= CHUNK
    }

    /// Bytes of data.
    #[inline]
    pub(in crate::direct) fn len(&self) -> usize {
        self.count * self.layout.size()
    }

    /// Bytes that they reach over, relative to displacement 0 of the first.
    #[inline]
    fn reach(&self) -> std::ops::Range<isize> {
        if self.contiguous {
            return 0..self.len() as isize;
        }
        // It has been computed before, by `check`.
        self.layout.span(self.count).unwrap_or(0..0)
    }

    /// Bytes that they need on a board.
    #[inline]
    pub(in crate::direct) fn room(&self) -> usize {
        let reach = self.reach();
        (reach.end - reach.start) as usize
    }

    /// How many such items fit so many bytes, which are enough for one.
    pub(in crate::direct) fn per(&self, bytes: usize) -> usize {
        let more = bytes.saturating_sub(self.layout.true_extent().unsigned_abs());
        let each = self.layout.extent().unsigned_abs();
        more.checked_div(each).map_or(usize::MAX, |more| more + 1)
    }

    /// Where displacement 0 of the first item is, if they lie at `place` on a board.
    #[inline]
    pub(in crate::direct) fn on_board(&self, place: *mut u8) -> *mut u8 {
        place.wrapping_offset(-self.reach().start)
    }

    /// So many items of the same kind.
    #[inline]
    pub(in crate::direct) fn with(&self, count: usize) -> Self {
        Self { count, ..*self }
    }

    /// Where item number `index` is, if the first is at `first`.
    #[inline]
    pub(in crate::direct) fn nth(&self, first: *mut u8, index: usize) -> *mut u8 {
        first.wrapping_offset(index as isize * self.layout.extent())
    }

    /// Copies all items.
    ///
    /// # Safety
    /// They are readable and initialised at `from` and writable at `to`, and do not overlap.
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

    /// Copies all items from a board; `takes` says whether their lines are taken, because nobody
    /// else reads them.
    ///
    /// # Safety
    /// As [`copy`](Self::copy), and what is taken is writable, and has no other reader.
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

    /// `right = left op right`, where `left` is on a board; `takes` as in
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

    /// Whether lines in which these lie are taken if `takes`.
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
