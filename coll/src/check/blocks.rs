//! Blocks: counts and displacements.

use std::fmt::{Display, Formatter};

use portolan_core::buffer::TypedBuf;
use portolan_core::{Device, ErrorKind, Result};

use super::overlaps::{
    Block, are_in_order, pair_of_overlapping, pair_that_reaches_into_another,
    pair_with_a_byte_in_common, pair_with_an_item_in_common,
};
use super::{Check, are_right};
use crate::args::Many;
use crate::state;

/// The ranks, or neighbours, for which there is one block each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) count: usize,
    /// The word for one of them in error messages.
    pub(super) one: &'static str,
}

impl Many<'_> {
    /// Whether these are valid blocks without gaps, one behind the other: the common case, which is
    /// quick to check.
    #[inline]
    fn are_plain(&self, places: Places) -> bool {
        let Self::Equal(buf) = self else { return false };
        let all = buf.count.checked_mul(places.count);
        all.is_some_and(|all| are_right(buf.ptr, all, buf.layout))
    }
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
    #[inline]
    pub(super) fn many(&self, which: &str, many: &Many<'_>, places: Places) -> Result<()> {
        match many.are_plain(places) {
            true => Ok(()),
            false => self.any_blocks(which, many, places),
        }
    }

    #[inline(never)]
    fn any_blocks(&self, which: &str, many: &Many<'_>, places: Places) -> Result<()> {
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
    /// gaps may be interleaved without sharing a byte. Comparing all their bytes would slow down
    /// calls that are right, so it is left to the debug mode, except where one layout serves for
    /// all blocks, its items reach into each other, and the blocks together are small. Otherwise
    /// only overlaps that are found more cheaply are an error: the same item in two blocks, or the
    /// first or last byte of one block inside another.
    #[inline]
    pub(super) fn target(&self, which: &str, many: &Many<'_>, places: Places) -> Result<()> {
        match many.are_plain(places) {
            true => Ok(()),
            false => self.any_target(which, many, places),
        }
    }

    #[inline(never)]
    fn any_target(&self, which: &str, many: &Many<'_>, places: Places) -> Result<()> {
        self.any_blocks(which, many, places)?;
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
            Many::Equal(buf) => pair_that_reaches_into_another(buf.layout, all.clone()),
            Many::Blocks(of) if !of.layout.is_contiguous() => pair_with_an_item_in_common(of)
                .or_else(|| pair_that_reaches_into_another(of.layout, all.clone())),
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
