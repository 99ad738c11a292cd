//! Blocks: counts, displacements, overlaps.

use std::fmt::{Display, Formatter};
use std::ops::Range;

use portolan_core::buffer::TypedBuf;
use portolan_core::{Device, ErrorKind, Result};
use portolan_datatype::{Layout, MsgRep};

use super::Check;
use crate::args::{BlocksArg, Many};
use crate::state;

/// The ranks, or neighbours, for which there is one block each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) count: usize,
    /// The word for one of them in error messages.
    pub(super) one: &'static str,
}

/// A block, as error messages name it. The text is only formatted if there is an error, because
/// every call passes here.
#[derive(Clone, Copy)]
struct BlockOf<'a> {
    /// The word for the owner of the block, and the owner's index.
    one: &'a str,
    at: usize,
    /// The word for the buffer.
    which: &'a str,
}

impl Display for BlockOf<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { one, at, which } = self;
        write!(f, "the block of {one} {at} in {which}")
    }
}

impl<D: Device> Check<'_, D> {
    /// One block per rank.
    pub(super) fn ranks(&self) -> Places {
        Places {
            count: self.comm.size() as usize,
            one: "rank",
        }
    }

    /// Checks blocks that are read.
    pub(super) fn many(&self, which: &str, many: &Many<'_>, places: Places) -> Result<()> {
        let Places { count: size, one } = places;
        let listed = |counts: &[usize], displacements: &[isize], layouts: usize| {
            if (counts.len(), displacements.len(), layouts) == (size, size, size) {
                return Ok(());
            }
            let what = format!(
                "{which} has {} count(s) and {} displacement(s) for {size} {one}(s)",
                counts.len(),
                displacements.len()
            );
            Err(self.wrong(&what, &format!("give one of each for every {one}")))
        };
        match many {
            Many::Equal(buf) => {
                let Some(all) = buf.count.checked_mul(size) else {
                    let what = format!(
                        "{which} of {} items for each of {size} {one}(s) overflows",
                        buf.count
                    );
                    return Err(self.wrong(&what, "use fewer items"));
                };
                self.items(which, buf.ptr, all, buf.layout)
            }
            Many::Blocks(of) => {
                listed(of.counts, of.displacements, size)?;
                let block = |at: usize| {
                    let which = BlockOf { one, at, which };
                    self.items(which, of.ptr, of.counts[at], of.layout)?;
                    self.place(which, of.displacements[at], of.layout.extent())?;
                    Ok(of.counts[at] * of.layout.size())
                };
                self.total(which, (0..size).map(block))
            }
            Many::Layouts(of) => {
                listed(of.counts, of.displacements, of.layouts.len())?;
                let block = |at: usize| {
                    let which = BlockOf { one, at, which };
                    self.items(which, of.ptr, of.counts[at], &of.layouts[at])?;
                    self.place(which, of.displacements[at], 1)?;
                    Ok(of.counts[at] * of.layouts[at].size())
                };
                self.total(which, (0..size).map(block))
            }
        }
    }

    /// The blocks together must have no more bytes than the address space. (Blocks that are read
    /// may overlap, or have items that overlap; but memory into which they are copied needs room
    /// for each.)
    #[inline]
    fn total(&self, which: &str, blocks: impl Iterator<Item = Result<usize>>) -> Result<()> {
        let mut total = 0_usize;
        for bytes in blocks {
            total = total.saturating_add(bytes?);
        }
        if total <= isize::MAX as usize {
            return Ok(());
        }
        let what = format!("all blocks in {which} together are longer than the address space");
        Err(self.wrong(&what, "use fewer items"))
    }

    fn place(&self, which: impl Display, displacement: isize, unit: isize) -> Result<()> {
        if displacement.checked_mul(unit).is_some() {
            return Ok(());
        }
        let what = format!("displacement {displacement} of {which} overflows");
        Err(self.wrong(&what, "use displacements within the buffer"))
    }

    /// Checks blocks that are written, of which none may overlap another. Blocks of layouts with
    /// gaps may be interleaved without sharing a byte. For those, only overlaps that are found
    /// without looking at all bytes are an error: the same item in two blocks, or the first or last
    /// byte of one block inside another. In the debug mode such blocks are compared byte by byte.
    pub(super) fn target(&self, which: &str, many: &Many<'_>, places: Places) -> Result<()> {
        self.many(which, many, places)?;
        if let Many::Equal(buf) = many
            && buf.layout.is_contiguous()
        {
            return Ok(());
        }
        let all = (0..places.count).map(|at| Block::of(many, at));
        if are_in_order(all.clone()) {
            return Ok(());
        }
        let found = match many {
            // No item is in two of the blocks.
            Many::Equal(_) => None,
            Many::Blocks(of) if !of.layout.is_contiguous() => pair_with_an_item_in_common(of),
            Many::Blocks(_) | Many::Layouts(_) => pair_of_overlapping(all.clone()),
        };
        let in_bytes = || {
            let exact = state::of_job(self.comm).options.compare;
            let has_gaps = all.clone().any(|block| !block.layout.is_contiguous());
            let blocks = (exact && has_gaps).then(|| all.collect::<Vec<_>>())?;
            pair_with_a_byte_in_common(&blocks)
        };
        let Some((one, two)) = found.or_else(in_bytes) else {
            return Ok(());
        };
        let what = format!(
            "the blocks of {}s {one} and {two} overlap in {which}",
            places.one
        );
        Err(self.wrong(&what, "give each of them a place of its own"))
    }

    /// Layouts per rank are for alltoall only; lengths per rank only for calls in which all ranks
    /// declare them.
    pub(super) fn form(&self, many: &Many<'_>, uneven: bool) -> Result<()> {
        let (what, remedy) = match many {
            Many::Equal(_) => return Ok(()),
            Many::Blocks(_) if uneven => return Ok(()),
            Many::Blocks(_) => (
                "counts per rank where all ranks take part with one length",
                "set `uneven` on all ranks",
            ),
            Many::Layouts(_) => (
                "layouts per rank, which this operation does not have",
                "use one layout for all blocks",
            ),
        };
        Err(self.error(ErrorKind::InvalidArgument, what, remedy))
    }

    /// The block that a rank sends to itself must be as long as the block that it expects.
    pub(super) fn own_block(
        &self,
        own: Option<&TypedBuf<'_>>,
        many: &Many<'_>,
        which: &str,
    ) -> Result<()> {
        let Some(own) = own else { return Ok(()) };
        let rank = self.comm.rank();
        let (has, block) = (own.count * own.layout.size(), bytes_of(many, rank));
        if has == block {
            return Ok(());
        }
        let what = format!(
            "{which} of rank {rank} has {has} bytes, its block in the other buffer {block}"
        );
        Err(self.wrong(&what, "use equal lengths for both"))
    }

    pub(super) fn to_itself(&self, send: &Many<'_>, recv: &Many<'_>) -> Result<()> {
        let rank = self.comm.rank();
        let (sent, expected) = (bytes_of(send, rank), bytes_of(recv, rank));
        if sent == expected {
            return Ok(());
        }
        let what =
            format!("rank {rank} sends {sent} bytes to itself and expects {expected} from itself");
        Err(self.wrong(&what, "use equal lengths for both"))
    }

    pub(super) fn same_form(&self, send: &Many<'_>, recv: &Many<'_>) -> Result<()> {
        let same = std::mem::discriminant(send) == std::mem::discriminant(recv);
        if same {
            return Ok(());
        }
        let what = "the send and the receive buffer are described in different forms";
        Err(self.error(
            ErrorKind::InvalidArgument,
            what,
            "use the same form for both",
        ))
    }
}

/// Bytes of data in a rank's block; lists and lengths have been checked.
fn bytes_of(many: &Many<'_>, rank: u32) -> usize {
    let rank = rank as usize;
    match many {
        Many::Equal(buf) => buf.count * buf.layout.size(),
        Many::Blocks(of) => of.counts[rank] * of.layout.size(),
        Many::Layouts(of) => of.counts[rank] * of.layouts[rank].size(),
    }
}

/// A block that has been checked on its own, so that nothing overflows.
#[derive(Clone, Copy)]
struct Block<'a> {
    layout: &'a Layout,
    count: usize,
    /// Offset of displacement 0 of its first item from its buffer's address, in bytes.
    first: isize,
}

impl<'a> Block<'a> {
    /// The block with index `at`.
    fn of(many: &Many<'a>, at: usize) -> Self {
        match many {
            Many::Equal(buf) => Self {
                layout: buf.layout,
                count: buf.count,
                // All items together have been checked, so nothing overflows.
                first: (at * buf.count) as isize * buf.layout.extent(),
            },
            Many::Blocks(of) => Self {
                layout: of.layout,
                count: of.counts[at],
                first: of.displacements[at] * of.layout.extent(),
            },
            Many::Layouts(of) => Self {
                layout: &of.layouts[at],
                count: of.counts[at],
                first: of.displacements[at],
            },
        }
    }

    /// Bytes of data.
    fn bytes(&self) -> usize {
        self.layout.size() * self.count
    }

    /// Bytes that certainly contain data: all bytes of a block without gaps, otherwise the first
    /// and the last.
    fn certain(&self) -> [Range<isize>; 2] {
        let Range { start, end } = self.reach();
        match self.layout.is_contiguous() || end.saturating_sub(start) < 2 {
            true => [start..end, end..end],
            false => [start..start + 1, end - 1..end],
        }
    }

    /// The range of bytes in which all of it lies, relative to its buffer.
    fn reach(&self) -> Range<isize> {
        // This has been computed before without an overflow.
        let reach = self.layout.span(self.count).unwrap_or(0..0);
        reach.start.saturating_add(self.first)..reach.end.saturating_add(self.first)
    }
}

/// Whether each block begins after the end of the one before. The blocks of a program usually do,
/// and then none overlap.
fn are_in_order<'a>(blocks: impl Iterator<Item = Block<'a>>) -> bool {
    let mut end = isize::MIN;
    let mut filled = blocks.filter(|block| block.bytes() > 0);
    filled.all(|block| {
        let reach = block.reach();
        reach.start >= std::mem::replace(&mut end, reach.end)
    })
}

/// Two blocks that overlap in bytes that certainly contain data, the lower index first.
fn pair_of_overlapping<'a>(
    blocks: impl Iterator<Item = Block<'a>> + Clone,
) -> Option<(usize, usize)> {
    let filled = blocks.enumerate().filter(|(_, block)| block.bytes() > 0);
    let certain = filled.flat_map(|(at, block)| block.certain().map(|range| (range, at)));
    pair_of_ranges(certain)
}

/// Two blocks of one layout that have an item in the same place, the lower index first. Places are
/// counted in items; if the items do not reach into each other, blocks cannot overlap in any other
/// way.
fn pair_with_an_item_in_common(of: &BlocksArg<'_>) -> Option<(usize, usize)> {
    if of.layout.size() == 0 {
        return None;
    }
    let blocks = of.counts.iter().zip(of.displacements);
    let items = |(&count, &first): (&usize, &isize)| first..first.saturating_add_unsigned(count);
    pair_of_ranges(blocks.map(items).zip(0..))
}

/// Two owners of ranges that overlap, the lower index first.
fn pair_of_ranges(
    ranges: impl Iterator<Item = (Range<isize>, usize)> + Clone,
) -> Option<(usize, usize)> {
    let ranges = ranges.filter(|(range, _)| !range.is_empty());
    let mut end = isize::MIN;
    let ascend =
        |(range, _): (Range<isize>, usize)| range.start >= std::mem::replace(&mut end, range.end);
    if ranges.clone().all(ascend) {
        return None;
    }
    let mut ranges: Vec<_> = ranges
        .map(|(range, at)| (range.start, range.end, at))
        .collect();
    ranges.sort_unstable();
    let pair = ranges.windows(2).find(|pair| pair[1].0 < pair[0].1)?;
    Some((pair[0].2.min(pair[1].2), pair[0].2.max(pair[1].2)))
}

/// Two blocks that have a byte in common, the lower index first; `None` also if there is no memory
/// to find out.
fn pair_with_a_byte_in_common(blocks: &[Block<'_>]) -> Option<(usize, usize)> {
    let two = first_that_meets_another(blocks)?;
    let meets = |&one: &usize| first_that_meets_another(&[blocks[one], blocks[two]]).is_some();
    Some(((0..two).find(meets)?, two))
}

/// The first block that has a byte in common with one before it.
fn first_that_meets_another(blocks: &[Block<'_>]) -> Option<usize> {
    // Blocks without data may be anywhere.
    let filled = || blocks.iter().filter(|block| block.bytes() > 0);
    let low = filled().map(|block| block.reach().start).min()?;
    let high = filled().map(|block| block.reach().end).max()?;
    let mut taken = zeros(usize::try_from(high.checked_sub(low)?).ok()?)?;
    blocks.iter().position(|block| {
        let len = block.bytes();
        if len == 0 {
            return false;
        }
        let Some(mut data) = zeros(len) else {
            return false;
        };
        let (layout, count) = (block.layout, block.count);
        let at = taken.as_mut_ptr().wrapping_offset(block.first - low);
        // SAFETY: `taken` covers the reach of every block that has data, relative to `low`, and
        // `data` has the length of this block.
        unsafe { layout.pack_range(at, count, 0, data.as_mut_ptr(), len, MsgRep::Native) };
        let meets = data.iter().any(|&byte| byte != 0);
        data.fill(1);
        // SAFETY: as above.
        unsafe { layout.unpack_range(at, count, 0, data.as_ptr(), len, MsgRep::Native) };
        meets
    })
}

/// The largest range of bytes, from the first of all blocks to the last, that is examined byte by
/// byte: the check allocates and writes that much memory.
const EXACT_MAX: usize = 256 << 20;

/// `len` zeros, if that is not too many and there is memory for them.
fn zeros(len: usize) -> Option<Vec<u8>> {
    if len > EXACT_MAX {
        return None;
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).ok()?;
    bytes.resize(len, 0);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_in_order_do_not_overlap() {
        let byte = Layout::of::<u8>();
        let block = |(first, count)| Block {
            layout: &byte,
            count,
            first,
        };
        let in_order = |places: &[(isize, usize)]| are_in_order(places.iter().copied().map(block));
        assert!(in_order(&[]) && in_order(&[(0, 4), (4, 2), (9, 1)]));
        assert!(in_order(&[(5, 2), (0, 0), (7, 1)]));
        assert!(!in_order(&[(0, 4), (3, 2)]) && !in_order(&[(4, 4), (0, 2)]));
        // After the block before it, and yet inside another.
        assert!(!in_order(&[(0, 4), (4, 4), (2, 1), (3, 1)]));
    }

    #[test]
    fn what_overlaps_for_sure_is_found_without_looking_at_bytes() {
        let word = Layout::of::<u32>();
        let column = Layout::vector(3, 1, 4, &word).unwrap();
        let narrow = Layout::resized(&column, 0, 4).unwrap();
        let items = |layout, counts: &[usize], displacements: &[isize]| {
            let ptr = std::ptr::dangling_mut();
            pair_with_an_item_in_common(&BlocksArg {
                ptr,
                counts,
                displacements,
                layout,
            })
        };
        // Columns side by side are interleaved, in any order; a column that is in two blocks is an
        // overlap.
        assert_eq!(items(&narrow, &[1, 2, 1], &[3, 0, 2]), None);
        assert_eq!(items(&narrow, &[1, 2, 1], &[3, 0, 1]), Some((1, 2)));
        assert_eq!(items(&column, &[2, 0, 1], &[-1, -1, 0]), Some((0, 2)));
        let block = |layout, count, first| Block {
            layout,
            count,
            first,
        };
        let pair = |blocks: &[Block<'_>]| pair_of_overlapping(blocks.iter().copied());
        let woven = [
            block(&column, 1, 4),
            block(&column, 1, 0),
            block(&word, 1, 8),
        ];
        assert_eq!(pair(&woven), None);
        // A word on the first or last word of a column.
        for (first, found) in [(0, (1, 2)), (32, (1, 2)), (4, (0, 2)), (36, (0, 2))] {
            let on = [woven[0], woven[1], block(&word, 1, first)];
            assert_eq!(pair(&on), Some(found), "{first}");
        }
        assert_eq!(pair(&[woven[0], woven[2], woven[0]]), Some((0, 2)));
        // In a gap of one block and on the middle of another: only a look at the bytes finds this.
        let middle = [woven[0], woven[1], block(&word, 1, 16)];
        assert_eq!(
            (pair(&middle), pair_with_a_byte_in_common(&middle)),
            (None, Some((1, 2)))
        );
    }

    #[test]
    fn blocks_without_data_may_be_anywhere() {
        let column = Layout::vector(3, 1, 4, &Layout::of::<u32>()).unwrap();
        let block = |count, first| Block {
            layout: &column,
            count,
            first,
        };
        for nowhere in [isize::MIN, isize::MAX] {
            let woven = [block(1, 8), block(0, nowhere), block(1, 4)];
            assert_eq!(pair_with_a_byte_in_common(&woven), None);
            let overlapping = [block(0, nowhere), block(1, 8), block(1, 8)];
            assert_eq!(pair_with_a_byte_in_common(&overlapping), Some((1, 2)));
        }
    }

    #[test]
    fn blocks_that_are_too_far_apart_are_not_looked_at() {
        let column = Layout::vector(3, 1, 4, &Layout::of::<u32>()).unwrap();
        let block = |first| Block {
            layout: &column,
            count: 1,
            first,
        };
        let far = [block(8), block(8), block(EXACT_MAX as isize)];
        assert_eq!(pair_with_a_byte_in_common(&far), None);
    }
}
