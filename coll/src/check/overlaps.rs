//! Which blocks overlap.

use std::ops::Range;

use portolan_datatype::{Contents, Layout, MsgRep};

use crate::args::{BlocksArg, Many};

/// A block that has been checked on its own, so that nothing overflows.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    pub(super) layout: &'a Layout,
    count: usize,
    /// Offset of displacement 0 of its first item from its buffer's address, in bytes.
    first: isize,
}

impl<'a> Block<'a> {
    /// The block with index `at`.
    pub(super) fn of(many: &Many<'a>, at: usize) -> Self {
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

    /// The same, unless it ends outside of the address space.
    fn exact_reach(&self) -> Option<Range<isize>> {
        let reach = self.layout.span(self.count).ok()?;
        Some(reach.start.checked_add(self.first)?..reach.end.checked_add(self.first)?)
    }
}

/// The first byte of all blocks that have data, and the number of bytes from there to the end of
/// the last. `None` if there is no such block, or if the bytes do not fit in the address space.
fn reach_of_all<'a>(mut blocks: impl Iterator<Item = Block<'a>>) -> Option<(isize, usize)> {
    let (low, high) = blocks.try_fold((isize::MAX, isize::MIN), |(low, high), block| {
        // Blocks without data may be anywhere.
        if block.bytes() == 0 {
            return Some((low, high));
        }
        let reach = block.exact_reach()?;
        Some((low.min(reach.start), high.max(reach.end)))
    })?;
    let len = usize::try_from(high.checked_sub(low)?).ok()?;
    Some((low, len))
}

/// Whether each block begins after the end of the one before. The blocks of a program usually do,
/// and then none overlap.
pub(super) fn are_in_order<'a>(blocks: impl Iterator<Item = Block<'a>>) -> bool {
    let mut end = isize::MIN;
    let mut filled = blocks.filter(|block| block.bytes() > 0);
    filled.all(|block| {
        let reach = block.reach();
        reach.start >= std::mem::replace(&mut end, reach.end)
    })
}

/// Two blocks that overlap in bytes that certainly contain data, the lower index first.
pub(super) fn pair_of_overlapping<'a>(
    blocks: impl Iterator<Item = Block<'a>> + Clone,
) -> Option<(usize, usize)> {
    let filled = blocks.enumerate().filter(|(_, block)| block.bytes() > 0);
    let certain = filled.flat_map(|(at, block)| block.certain().map(|range| (range, at)));
    pair_of_ranges(certain)
}

/// Two blocks of one layout that have an item in the same place, the lower index first. Places are
/// counted in items; if the items do not reach into each other, blocks cannot overlap in any other
/// way.
pub(super) fn pair_with_an_item_in_common(of: &BlocksArg<'_>) -> Option<(usize, usize)> {
    if of.layout.size() == 0 {
        return None;
    }
    let blocks = of.counts.iter().zip(of.displacements);
    let items = |(&count, &first): (&usize, &isize)| first..first.saturating_add_unsigned(count);
    pair_of_ranges(blocks.map(items).zip(0..))
}

/// Two blocks of one layout, with no item in common, that overlap nevertheless because items reach
/// into each other, the lower index first. Every overlap is found if the blocks together reach over
/// no more than [`SMALL`]; otherwise only one in the first or last byte of a block.
#[cold]
pub(super) fn pair_that_reaches_into_another<'a>(
    layout: &Layout,
    blocks: impl Iterator<Item = Block<'a>> + Clone,
) -> Option<(usize, usize)> {
    if layout.extent().unsigned_abs() >= layout.true_extent().unsigned_abs() {
        return None;
    }
    let reach = reach_of_all(blocks.clone()).map(|(_, len)| len);
    if reach.is_some_and(|len| are_side_by_side(layout, len)) {
        return None;
    }
    let in_bytes = || {
        reach.filter(|&len| len <= SMALL)?;
        pair_with_a_byte_in_common(&blocks.clone().collect::<Vec<_>>())
    };
    pair_of_overlapping(blocks.clone()).or_else(in_bytes)
}

/// Whether items of this layout that together reach over `reach` bytes are certain to share none
/// with another item in another place, as the columns of a matrix. This spares programs that
/// exchange columns in each step the look at the bytes.
///
/// Each item repeats one run of bytes at a stride. No two items share a byte if the runs are not
/// longer than the extent, and the second run of the lowest item begins after the first run of the
/// highest.
fn are_side_by_side(layout: &Layout, reach: usize) -> bool {
    let Some((run, stride)) = run_and_stride(layout) else {
        return false;
    };
    let from_first_to_last = reach.saturating_sub(layout.true_extent().unsigned_abs());
    run <= layout.extent().unsigned_abs() && from_first_to_last.saturating_add(run) <= stride
}

/// The bytes in each run of an item, and those from one run to the next, if the item is a vector of
/// contiguous parts.
fn run_and_stride(mut layout: &Layout) -> Option<(usize, usize)> {
    loop {
        let (blocklength, stride, unit, old) = match layout.contents() {
            Contents::Resized { old, .. } | Contents::Dup { old } => {
                layout = old;
                continue;
            }
            Contents::Vector {
                blocklength,
                stride,
                old,
                ..
            } => (blocklength, stride, old.size(), old),
            Contents::Hvector {
                blocklength,
                stride,
                old,
                ..
            } => (blocklength, stride, 1, old),
            _ => return None,
        };
        let run = blocklength.checked_mul(old.size())?;
        let stride = stride.unsigned_abs().checked_mul(unit)?;
        return old.is_contiguous().then_some((run, stride));
    }
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
/// to find out, or if a block ends outside of the address space.
pub(super) fn pair_with_a_byte_in_common(blocks: &[Block<'_>]) -> Option<(usize, usize)> {
    let two = first_that_meets_another(blocks)?;
    let meets = |&one: &usize| first_that_meets_another(&[blocks[one], blocks[two]]).is_some();
    Some(((0..two).find(meets)?, two))
}

/// The first block that has a byte in common with one before it.
fn first_that_meets_another(blocks: &[Block<'_>]) -> Option<usize> {
    let (low, len) = reach_of_all(blocks.iter().copied())?;
    let mut taken = zeros(len)?;
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

/// The largest range of bytes that is examined byte by byte outside of the debug mode, if items
/// reach into each other. It is small, because each call pays for it.
const SMALL: usize = 64 << 10;

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

    /// Blocks of `counts` items at `displacements`, counted in items.
    fn of_items<'a>(
        layout: &'a Layout,
        counts: &[usize],
        displacements: &[isize],
    ) -> Vec<Block<'a>> {
        let blocks = counts.iter().zip(displacements);
        let block = |(&count, &at): (&usize, &isize)| Block {
            layout,
            count,
            first: at * layout.extent(),
        };
        blocks.map(block).collect()
    }

    fn reaching(blocks: &[Block<'_>]) -> Option<(usize, usize)> {
        pair_that_reaches_into_another(blocks[0].layout, blocks.iter().copied())
    }

    #[test]
    fn every_overlap_of_small_items_that_reach_into_each_other_is_found() {
        let word = Layout::of::<u16>();
        let ragged = Layout::indexed(&[1, 3, 1], &[2, 7, -4], &word).unwrap();
        let column = Layout::vector(3, 1, 5, &word).unwrap();
        let nested = Layout::hvector(2, 1, 40, &column).unwrap();
        let wide = Layout::hvector(3, 2, -12, &word).unwrap();
        for item in [ragged, column, nested, wide] {
            let reach = item.true_extent();
            let (mut right, mut wrong) = (0, 0);
            for extent in -reach..=reach {
                let layout = Layout::resized(&item, 3, extent).unwrap();
                let lists: [(&[usize], &[isize]); 6] = [
                    (&[1, 1], &[0, 1]),
                    (&[1; 6], &[0, 1, 2, 3, 4, 5]),
                    (&[2; 3], &[0, 2, 4]),
                    (&[1, 0, 2, 1], &[4, 0, -1, 1]),
                    (&[1, 1, 1], &[0, 3, 6]),
                    (&[3, 1], &[-3, 5]),
                ];
                for (counts, displacements) in lists {
                    let blocks = of_items(&layout, counts, displacements);
                    let exact = pair_with_a_byte_in_common(&blocks);
                    let found = reaching(&blocks);
                    let case = format!("{item:?}, {extent}, {counts:?} at {displacements:?}");
                    assert_eq!(found.is_some(), exact.is_some(), "{case}");
                    match found {
                        Some(_) => wrong += 1,
                        None => right += 1,
                    }
                }
            }
            assert!(right > 10 && wrong > 10, "{right} and {wrong}");
        }
    }

    #[test]
    fn columns_of_a_matrix_need_no_look_at_their_bytes() {
        // The rows have 1000 words; all of them are more than is looked at.
        let word = Layout::of::<u32>();
        let column = Layout::vector(1000, 1, 1000, &word).unwrap();
        let reach = |columns: usize| 4 * (999 * 1000 + columns);
        for extent in [4, -4] {
            let narrow = Layout::resized(&column, 0, extent).unwrap();
            let narrow = narrow.dup().unwrap();
            assert!(are_side_by_side(&narrow, reach(1000)));
            assert!(!are_side_by_side(&narrow, reach(1001)));
            assert_eq!(reaching(&of_items(&narrow, &[1; 3], &[0, 1, 999])), None);
        }
        // Columns that begin within others, or where they are.
        for extent in [3, -3, 0] {
            let close = Layout::resized(&column, 0, extent).unwrap();
            assert!(!are_side_by_side(&close, reach(1)));
            let found = reaching(&of_items(&close, &[1; 3], &[0, 500, 1]));
            assert_eq!(found.is_some(), extent == 0, "{extent}");
        }
    }

    #[test]
    fn blocks_outside_of_the_address_space_are_not_looked_at() {
        let ragged = Layout::hindexed(&[1, 2], &[0, 7], &Layout::of::<u16>()).unwrap();
        let block = |first| Block {
            layout: &ragged,
            count: 1,
            first,
        };
        for first in [isize::MAX - 3, isize::MAX - 9, isize::MIN] {
            let blocks = [block(first), block(first.saturating_sub(3))];
            let found = pair_with_a_byte_in_common(&blocks);
            assert_eq!(found, (first == isize::MIN).then_some((0, 1)));
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
