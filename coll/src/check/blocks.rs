//! Blocks: counts, displacements, overlaps.

use portolan_core::buffer::TypedBuf;
use portolan_core::{Device, ErrorKind, Result};
use portolan_datatype::Layout;

use super::Check;
use crate::args::Many;

/// For whom there is one block each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) count: usize,
    /// What one of them is called.
    pub(super) one: &'static str,
}

impl<D: Device> Check<'_, D> {
    /// One block per rank.
    pub(super) fn ranks(&self) -> Places {
        Places {
            count: self.comm.size() as usize,
            one: "rank",
        }
    }

    /// Blocks that are read.
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
                (0..size).try_for_each(|at| {
                    let which = format!("the block of {one} {at} in {which}");
                    self.items(&which, of.ptr, of.counts[at], of.layout)?;
                    self.place(&which, of.displacements[at], of.layout.extent())
                })
            }
            Many::Layouts(of) => {
                listed(of.counts, of.displacements, of.layouts.len())?;
                (0..size).try_for_each(|at| {
                    let which = format!("the block of {one} {at} in {which}");
                    self.items(&which, of.ptr, of.counts[at], &of.layouts[at])?;
                    self.place(&which, of.displacements[at], 1)
                })
            }
        }
    }

    fn place(&self, which: &str, displacement: isize, unit: isize) -> Result<()> {
        if displacement.checked_mul(unit).is_some() {
            return Ok(());
        }
        let what = format!("displacement {displacement} of {which} overflows");
        Err(self.wrong(&what, "use displacements within the buffer"))
    }

    /// Blocks that are written: none may overlap another.
    pub(super) fn target(&self, which: &str, many: &Many<'_>, places: Places) -> Result<()> {
        self.many(which, many, places)?;
        // Blocks of layouts with gaps may be woven into each other without sharing a byte: only those of
        // layouts without gaps are compared.
        let mut reaches: Vec<(isize, isize, usize)> = match many {
            Many::Blocks(of) if of.layout.is_contiguous() => {
                let places = of.counts.iter().zip(of.displacements).enumerate();
                let reach = |(at, (&count, &first)): (usize, (&usize, &isize))| {
                    reach(of.layout, count, first * of.layout.extent(), at)
                };
                places.map(reach).collect()
            }
            Many::Layouts(of) if of.layouts.iter().all(Layout::is_contiguous) => {
                let reach =
                    |at: usize| reach(&of.layouts[at], of.counts[at], of.displacements[at], at);
                (0..places.count).map(reach).collect()
            }
            _ => return Ok(()),
        };
        reaches.retain(|(low, high, _)| low < high);
        reaches.sort_unstable();
        match reaches.windows(2).find(|pair| pair[1].0 < pair[0].1) {
            None => Ok(()),
            Some(pair) => {
                let (one, two) = (pair[0].2.min(pair[1].2), pair[0].2.max(pair[1].2));
                let what = format!(
                    "the blocks of {}s {one} and {two} overlap in {which}",
                    places.one
                );
                Err(self.wrong(&what, "give each of them a place of its own"))
            }
        }
    }

    /// Layouts per rank are for alltoall only, lengths per rank only where all ranks have said so.
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

    /// What a rank sends to itself is as long as what it expects.
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

/// Bytes of data of a rank's block; lists and lengths have been checked.
fn bytes_of(many: &Many<'_>, rank: u32) -> usize {
    let rank = rank as usize;
    match many {
        Many::Equal(buf) => buf.count * buf.layout.size(),
        Many::Blocks(of) => of.counts[rank] * of.layout.size(),
        Many::Layouts(of) => of.counts[rank] * of.layouts[rank].size(),
    }
}

/// The bytes that a block touches, relative to its buffer, and its number.
fn reach(layout: &Layout, count: usize, first: isize, number: usize) -> (isize, isize, usize) {
    // The reach was computed before, without overflow.
    let reach = layout.span(count).unwrap_or(0..0);
    let (low, high) = (
        reach.start.saturating_add(first),
        reach.end.saturating_add(first),
    );
    (low, high, number)
}
