//! The shortest operations of two ranks, in few instructions.
//!
//! Two ranks need the transfer of one cache line for a barrier, or for a broadcast or an allreduce
//! of a few bytes. What can be saved besides are instructions. Here everything is known that is
//! decided at run time elsewhere: one step, one cell, one other rank, items side by side, an
//! operator that is a loop over elements. (Two ranks near each other on an EPYC of family 26, 8
//! bytes, one operation right behind the other: allreduce 61 ns in place of 105, broadcast 23 in
//! place of 43, barrier 49 in place of 58: `benches/examples/in_a_row.rs`.)
//!
//! - [`parts`]: what a rank shows and takes in each of these operations
//! - [`blocking`]: blocking calls
//! - [`started`]: the start of nonblocking ones
//!
//! This is the same protocol as that of the [general](crate::direct::blocking)
//! [ways](crate::direct::tracks), and the other rank may be there. An operation of which anything
//! is unusual is left to them before this rank has shown anything. If the other rank does not show
//! what is expected within a few looks, the operation is left to them in the middle of its step.
//!
//! All functions are inlined: an operation that has begun would otherwise go through memory, and
//! would be read in larger parts than it was written in, for which a processor waits.

pub(super) mod blocking;
mod parts;
pub(super) mod started;

use portolan_core::Device;

use crate::direct::agree::sort::Sort;
use crate::direct::boards::board::{Header, data_of};
use crate::direct::boards::view::Boards;
use parts::{Awaits, Part};

/// A step of two ranks, in which each shows its part in a cell.
struct Step<'a, D: Device> {
    device: &'a D,
    boards: &'a Boards,
    number: u32,
    /// Offsets of the cell of this step in each board, and of the next one's.
    cell: usize,
    next: usize,
    sort: Sort,
}

impl<D: Device> Step<'_, D> {
    #[inline(always)]
    fn other(&self) -> u32 {
        1 - self.boards.rank
    }

    /// The data of a rank's cell.
    #[inline(always)]
    fn data_of(&self, rank: u32) -> *mut u8 {
        data_of(self.boards.board(rank), self.cell)
    }

    /// Shows this rank's part.
    ///
    /// # Safety
    /// As [`Part::write`]; the cell is free.
    #[inline(always)]
    unsafe fn show<P: Part>(&self, part: &P) {
        #[cfg(test)]
        crate::direct::tests::quick::note();
        // SAFETY: from the caller; a part is no longer than the data of a cell.
        unsafe { part.write(self.data_of(self.boards.rank)) };
        let header = Header::new(self.number, P::SHOWN, self.sort, part.len());
        self.boards.show(self.cell, self.next, header);
        if P::WAKES {
            let other = self.boards.processes[self.other() as usize];
            self.device.notify(other);
        }
    }

    /// Whether the other rank shows what this one awaits.
    #[inline(always)]
    fn sees<P: Awaits>(&self, part: &P) -> bool {
        let awaited = Header::new(self.number, P::AWAITED, self.sort, part.len());
        self.boards.header(self.other(), self.cell) == awaited
    }

    /// Takes what the other rank has shown.
    ///
    /// # Safety
    /// As [`Awaits::take`]; the other rank has been [seen](Self::sees).
    #[inline(always)]
    unsafe fn take<P: Awaits>(&self, part: &P) {
        // SAFETY: from the caller.
        unsafe { part.take(self.boards.rank, self.data_of(self.other())) };
    }
}
