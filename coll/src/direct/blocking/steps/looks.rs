//! What a rank sees of the others in a step: their headers, and whether they do the same operation.

use std::sync::atomic::Ordering;

use portolan_core::{Device, Result};
use portolan_datatype::Layout;

use super::Steps;
use crate::counters::Counters;
use crate::direct::agree::counts;
use crate::direct::agree::sort::Sort;
use crate::direct::boards::board::{Header, Kind, Place};
use crate::run::Started;

/// How often one of two ranks looks at the other before it begins to wait.
const CLOSELY: u32 = 32;

impl<D: Device> Steps<'_, D> {
    /// Prepares to look at some of the others. If any of them has not shown this step, and some
    /// rank on this rank's processor has not either, the rank on this processor runs first. It may
    /// not be one of `ranks`, but a rank elsewhere may wait for it, and this rank's own sources may
    /// be waiting for that rank in turn.
    pub(in crate::direct) fn begin_looks(&mut self, mut ranks: impl Iterator<Item = u32>) {
        if !self.take_turns() || !self.beside.is_any() {
            return;
        }
        let is_late = |rank: u32| rank != self.rank() && self.seen_of(rank).is_none();
        let beside = |&rank: &u32| self.beside.is_beside(rank);
        if ranks.any(is_late) && (0..self.size()).filter(beside).any(is_late) {
            self.comm.device().give_way();
            self.gave_way = true;
        }
    }

    /// The header of a rank that shows in this step what this rank expects.
    #[inline]
    pub(in crate::direct) fn expected(&self, kind: Kind, len: usize) -> Header {
        Header::new(self.step, kind, self.sorts.taken, len)
    }

    /// Waits for a rank's cell of this step.
    #[inline]
    pub(in crate::direct) fn header_of(&mut self, rank: u32) -> Result<Header> {
        self.header_such(rank, |_| true)
    }

    /// Waits until a rank's cell of this step has a header for which `such` holds.
    #[inline]
    pub(in crate::direct) fn header_such(
        &mut self,
        rank: u32,
        such: impl Fn(Header) -> bool,
    ) -> Result<Header> {
        match self.seen_of(rank) {
            Some(header) if such(header) => {
                self.note_look();
                Ok(header)
            }
            _ => self.header_later(rank, such),
        }
    }

    /// The same, if the header is not there at the first look.
    #[inline(never)]
    fn header_later(&mut self, rank: u32, such: impl Fn(Header) -> bool) -> Result<Header> {
        let (boards, cell) = (self.boards, self.boards.map.cell(self.step));
        let (mut header, step) = (Header(0), self.step);
        let ready = || {
            header = boards.header(rank, cell);
            header.step() == step && such(header)
        };
        self.wait(rank, ready)?;
        Ok(header)
    }

    /// A rank's header of this step, if it has been posted.
    #[inline]
    pub(in crate::direct) fn seen_of(&self, rank: u32) -> Option<Header> {
        self.boards.seen_of(rank, self.step)
    }

    /// Waits until the rank at the other end of a message has posted its header of this step, or
    /// until the message has completed.
    pub(in crate::direct) fn header_or(&mut self, message: &Started) -> Result<Option<Header>> {
        let device = self.comm.device();
        let over = || device.is_complete(message.request);
        if self.seen_of(message.peer).is_none() && !over() {
            self.state.count(Counters::Looks, 1);
            let peer = self.process(message.peer);
            let ready = || self.seen_of(message.peer).is_some() || over();
            device.wait_for_peer(self.comm.group(), peer, ready)?;
        }
        Ok(self.seen_of(message.peer).filter(|_| !over()))
    }

    /// Finds out which steps all ranks have finished, as far as they have said, without waiting.
    pub(super) fn look_at_done(&mut self) {
        let (boards, mut furthest) = (self.boards, 0);
        for (board, _) in boards.others() {
            // SAFETY: a board of this communicator, mapped as long as it lives. Acquire: pairs with
            // the Release store in `publish`; all of the rank's reads of this rank's places
            // happened before it.
            let done = unsafe { boards.map.done(board) }.load(Ordering::Acquire);
            // It may be ahead of this rank.
            let behind = (self.step.wrapping_sub(done) as i32).max(0) as u32;
            if behind >= self.step.wrapping_sub(self.proved) {
                // The cells have proved as much.
                return;
            }
            furthest = behind.max(furthest);
        }
        self.proved = self.step.wrapping_sub(furthest);
    }

    /// The length in a header that has been waited for.
    #[inline]
    pub(in crate::direct) fn len_of(&self, rank: u32, header: Header) -> u64 {
        if header.len() < Header::LONG {
            return header.len() as u64;
        }
        // SAFETY: the cell has been posted with the length in its data.
        unsafe { self.at(rank, Place::Cell).cast::<u64>().read_unaligned() }
    }

    /// Waits for a rank's cell, and records if the rank is doing something else or has another
    /// length.
    #[inline]
    pub(in crate::direct) fn expect(&mut self, rank: u32, kind: Kind, len: usize) -> Result<()> {
        let header = self.header_of(rank)?;
        if !self.does(rank, header, kind, len) {
            self.note(rank, header);
        }
        Ok(())
    }

    /// Whether a rank that has shown this header does the same operation with the same length.
    /// Items of another sort are recorded.
    #[inline]
    pub(in crate::direct) fn does(
        &mut self,
        rank: u32,
        header: Header,
        kind: Kind,
        len: usize,
    ) -> bool {
        self.agrees(rank, header, kind, len)
            && (len < Header::LONG || self.len_of(rank, header) == len as u64)
    }

    /// Whether a rank that has shown this header does the same operation, as far as the header
    /// tells. Items of another sort are recorded.
    #[inline]
    pub(in crate::direct) fn agrees(
        &mut self,
        rank: u32,
        header: Header,
        kind: Kind,
        len: usize,
    ) -> bool {
        header == self.expected(kind, len) || self.agrees_but_for_sort(rank, header, kind, len)
    }

    #[cold]
    fn agrees_but_for_sort(&mut self, rank: u32, header: Header, kind: Kind, len: usize) -> bool {
        let agrees = header.is_but_for_sort(self.expected(kind, len));
        if agrees && header.data_len() > 0 {
            self.see_sort(rank, header);
        }
        agrees
    }

    /// The sort of items of this layout, if ranks compare sorts.
    #[inline]
    pub(in crate::direct) fn sort_of(&self, layout: &Layout) -> Sort {
        self.boards.sort_of(Some(layout))
    }

    /// Pauses briefly before this rank looks at all others.
    #[inline]
    pub(in crate::direct) fn settle(&self) {
        self.boards.settle(self.looked);
    }

    /// Looks at a rank repeatedly, without a pause, for about as long as that rank needs to show
    /// its part if it arrives at the same time. A rank that has data to show and to combine is busy
    /// for so long that pauses cost more than looks that come too early (an allreduce of two ranks
    /// takes 127 ns this way and 147 with pauses, on an EPYC of family 26; with the fewer
    /// instructions of the [quick way](crate::direct::quick) a pause is better). Long operations,
    /// of which this is a small part, do it as well.
    #[inline]
    fn look_closely(&self, rank: u32) {
        if !self.take_turns() {
            let _ = (0..CLOSELY).any(|_| self.seen_of(rank).is_some());
        }
    }

    /// Waits for the cells of all others, which proves that they have finished all earlier steps.
    #[inline]
    pub(in crate::direct) fn expect_all(&mut self, kind: Kind, len: usize) -> Result<()> {
        if self.size() == 2 {
            let other = 1 - self.rank();
            match kind {
                Kind::Barrier => self.settle(),
                _ => self.look_closely(other),
            }
            self.expect(other, kind, len)?;
        } else {
            self.settle();
            for rank in self.others() {
                self.expect(rank, kind, len)?;
            }
        }
        self.seen_all();
        Ok(())
    }

    /// Records if another rank shows another checksum. To be called when the cells of all others
    /// have been seen, and were as expected.
    #[inline]
    pub(in crate::direct) fn expect_checksum(&mut self, sum: u64, kind: Kind, len: usize) {
        for rank in self.others() {
            // SAFETY: every rank that does this operation has written one.
            if unsafe { counts::read(self.at(rank, Place::Cell)) } != sum {
                let header = self.expected(kind, len);
                self.note_len(rank, header, len as u64);
            }
        }
    }

    /// To be called when this rank has waited for the cells of all others.
    #[inline]
    pub(in crate::direct) fn seen_all(&mut self) {
        self.proved = self.step;
    }

    /// Takes a step without data, in which all ranks see whether they agree.
    pub(in crate::direct) fn announce(&mut self, kind: Kind, len: usize) -> Result<()> {
        self.room(Place::Cell)?;
        self.post(kind, len);
        self.expect_all(kind, len)?;
        self.next();
        Ok(())
    }

    /// To be called when this rank has seen, directly or not, all others in step `step` or later.
    #[inline]
    pub(in crate::direct) fn all_reached(&mut self, step: u32) {
        self.proved = step;
    }
}
