//! Writing a contribution to an operation on a track, and taking what the others show.

use std::ops::Range;

use portolan_core::Result;

use super::{Call, What};
use crate::direct::agree::counts;
use crate::direct::blocking::exchange::{combine, combine_and_take, or_own};
use crate::direct::blocking::moves::index_of;
use crate::direct::blocking::pair::combine_pair;
use crate::direct::blocking::scan;
use crate::direct::boards::board::{Header, Kind, Place};
use crate::direct::data::{Items, Stream};

impl Call<'_> {
    /// The ranks whose items a reduction combines.
    #[inline]
    fn operands(&self) -> Range<u32> {
        match self.kind {
            Kind::Scan => 0..self.rank + 1,
            Kind::Exscan => 0..self.rank,
            _ => 0..self.size,
        }
    }

    /// Bytes of the place that lie in front of the data.
    #[inline]
    fn skip(&self) -> usize {
        match self.place {
            Some(Place::Cell) if self.sum.is_some() => counts::TAKEN,
            _ => 0,
        }
    }

    /// Writes the contribution, and copies the block that this rank has for itself to where it
    /// belongs.
    ///
    /// # Safety
    /// The buffers are the operation's; `to` is this rank's place of the step, and free.
    #[inline]
    pub(in crate::direct) unsafe fn show(&self, to: *mut u8) {
        // SAFETY: from the caller.
        unsafe { self.write(to, true) }
    }

    /// Writes the contribution. `keeps` says whether to call [`keep_own`](Self::keep_own), too,
    /// where there is such a block.
    ///
    /// # Safety
    /// As [`show`](Self::show).
    #[inline(always)]
    pub(in crate::direct) unsafe fn write(&self, to: *mut u8, keeps: bool) {
        // SAFETY: from the caller, for all of them. Places have the room, because they were chosen
        // by it.
        unsafe {
            match &self.what {
                What::Nothing => {}
                What::Bcast { data, root } => {
                    if self.rank == *root {
                        data.read(0, to, self.len);
                    }
                }
                What::Reduce { items, from, .. } => {
                    items.copy(*from, items.on_board(to.wrapping_add(self.skip())));
                }
                What::Allgather { send, recv, .. } => {
                    let own = send.unwrap_or_else(|| Stream::block(recv, self.rank));
                    own.read(0, to, self.len);
                    if keeps {
                        self.keep_own();
                    }
                }
                What::Alltoall { send, recv } => {
                    let from = send.unwrap_or(recv);
                    for rank in (0..self.size).filter(|&rank| rank != self.rank) {
                        let to = to.wrapping_add(index_of(self.rank, rank) * self.len);
                        Stream::block(from, rank).read(0, to, self.len);
                    }
                    if keeps {
                        self.keep_own();
                    }
                }
                What::Along(along) => along.show(to),
                What::Listed(part) => part.show(to),
            }
        }
    }

    /// Copies the block that this rank has for itself to where it belongs.
    ///
    /// # Safety
    /// The buffers are the operation's.
    #[inline]
    pub(in crate::direct) unsafe fn keep_own(&self) {
        let own = |recv| Stream::block(recv, self.rank);
        // SAFETY: from the caller.
        unsafe {
            match &self.what {
                What::Allgather {
                    send: Some(send),
                    recv,
                    ..
                } => send.copy_to(&own(recv)),
                What::Alltoall {
                    send: Some(send),
                    recv,
                } => Stream::block(send, self.rank).copy_to(&own(recv)),
                _ => {}
            }
        }
    }

    /// Takes the data that this rank wants from what the others show. `at` says where a rank has
    /// shown it, and `header` with which header. `takes` says whether to take the lines of data
    /// that it alone reads.
    ///
    /// # Errors
    /// If the operator does not know the layout, which has been checked.
    ///
    /// # Safety
    /// All that this rank looks at have shown contributions of the required lengths, and leave them
    /// there; the buffers are the operation's, and their values are valid for the operator.
    #[inline]
    pub(in crate::direct) unsafe fn take(
        &self,
        at: impl Fn(u32, Place) -> *mut u8,
        header: impl Fn(u32) -> Header,
        takes: bool,
    ) -> Result<()> {
        let takes_from_all = takes && self.size == 2;
        match &self.what {
            What::Nothing => {}
            What::Bcast { data, root } => {
                if self.rank != *root {
                    // SAFETY: from the caller.
                    unsafe {
                        data.take(0, at(*root, Place::of(self.len)), self.len, takes_from_all);
                    }
                }
            }
            What::Reduce {
                items,
                from,
                part,
                to,
            } => {
                if let Some(to) = *to {
                    let (place, skip) = (self.place.unwrap_or(Place::Chunk), self.skip());
                    let shown = |rank| {
                        let all = items.on_board(at(rank, place).wrapping_add(skip));
                        items.nth(all, part.start)
                    };
                    let now = items.with(part.len());
                    // SAFETY: from the caller.
                    unsafe {
                        if place == Place::Cell {
                            combine(self.operands(), &now, shown, to)?;
                        } else {
                            let own = items.nth(*from, part.start);
                            self.combine_chunks(&now, own, shown, to, takes)?;
                        }
                    }
                }
            }
            What::Allgather { recv, .. } => {
                for rank in (0..self.size).filter(|&rank| rank != self.rank) {
                    let block = Stream::block(recv, rank);
                    let len = block.len();
                    // SAFETY: from the caller.
                    unsafe { block.take(0, at(rank, Place::of(len)), len, takes_from_all) };
                }
            }
            What::Alltoall { recv, .. } => {
                let place = self.place.unwrap_or(Place::Chunk);
                for rank in (0..self.size).filter(|&rank| rank != self.rank) {
                    let from = at(rank, place).wrapping_add(index_of(rank, self.rank) * self.len);
                    // SAFETY: from the caller.
                    unsafe { Stream::block(recv, rank).take(0, from, self.len, takes) };
                }
            }
            // SAFETY: from the caller.
            What::Along(along) => unsafe { along.take(at, header, takes)? },
            // SAFETY: as above.
            What::Listed(part) => unsafe { part.take(at, header, takes) },
        }
        Ok(())
    }

    /// A reduction from chunks. `takes` says whether to take the lines of those that nobody else
    /// reads.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    ///
    /// # Safety
    /// As [`take`](Self::take); this rank's own items are readable at `from`.
    #[inline(never)]
    unsafe fn combine_chunks(
        &self,
        items: &Items<'_>,
        from: *mut u8,
        shown: impl Fn(u32) -> *mut u8,
        to: *mut u8,
        takes: bool,
    ) -> Result<()> {
        let (me, ranks) = (self.rank, self.operands());
        // SAFETY: from the caller. If both of two ranks read the data, each takes only the other's
        // lines, and neither reads its own part there.
        unsafe {
            match self.kind {
                Kind::Allreduce if self.size == 2 => {
                    combine_pair(me, items, from, (shown(1 - me), takes), to)
                }
                Kind::Scan | Kind::Exscan if takes && self.size == 2 => {
                    scan::pair(me, items, from, shown(0), to, self.kind == Kind::Exscan)
                }
                Kind::Allreduce | Kind::Scan | Kind::Exscan => combine(ranks, items, shown, to),
                // In place, the result of a reduce-scatter may overlap this rank's own part.
                Kind::ReduceScatter | Kind::ReduceScatterUneven => {
                    combine_and_take(ranks, items, shown, |rank| takes && rank != me, to)
                }
                // Only one rank reads the contributions to a reduction, or to a part of it.
                _ => {
                    let shown = or_own(me, from, to, shown);
                    combine_and_take(ranks, items, shown, |rank| takes && rank != me, to)
                }
            }
        }
    }
}
