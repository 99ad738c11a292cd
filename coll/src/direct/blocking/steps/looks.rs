//! What a rank sees of the others in a step: their headers, and whether those do what it does.

use std::sync::atomic::Ordering;

use portolan_core::{Device, Result};
use portolan_datatype::Layout;

use super::Steps;
use crate::counters::Counters;
use crate::direct::agree::counts;
use crate::direct::agree::sort::Sort;
use crate::direct::boards::board::{Header, Kind, Place};
use crate::run::Started;

/// Pauses between posting and the first look, where all post at about the same time. (A pause takes
/// 24 ns on an EPYC of family 26, where barriers of two ranks one behind the other take 82, 62, 88,
/// 112 and 138 ns with none to four.)
const SETTLE: u32 = 1;
/// The same where this rank looked at nobody in the operation before: others may have waited for
/// it, and are behind. (Broadcast and barrier there, 172 ns with one pause, 120 with two, 154 with
/// three.)
const SETTLE_AHEAD: u32 = 2;

/// Looks at the other of two ranks before this one begins to wait for it.
const CLOSELY: u32 = 32;

impl<D: Device> Steps<'_, D> {
    /// Begins to look at some of the others: if one of those has not shown this step, and one on
    /// this rank's processor has not either, the latter runs first. It may not be one of them, but
    /// somebody elsewhere may wait for it, in whose turn this rank's own sources come.
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

    /// The header of a rank that shows in this step what this one expects.
    #[inline]
    pub(in crate::direct) fn expected(&self, kind: Kind, len: usize) -> Header {
        Header::new(self.step, kind, self.sorts.taken, len)
    }

    /// Waits for a rank's cell of this step.
    #[inline]
    pub(in crate::direct) fn header_of(&mut self, rank: u32) -> Result<Header> {
        self.header_such(rank, |_| true)
    }

    /// Waits until a rank's cell of this step has such a header.
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

    /// The same for one that is not there at the first look.
    #[inline(never)]
    fn header_later(&mut self, rank: u32, such: impl Fn(Header) -> bool) -> Result<Header> {
        // SAFETY: a board of this communicator, mapped as long as it lives.
        let cell = unsafe { self.boards.map.header(self.boards.board(rank), self.step) };
        let (mut header, step) = (Header(0), self.step);
        let ready = || {
            // Acquire: pairs with the Release store in `post`.
            header = Header(cell.load(Ordering::Acquire));
            header.step() == step && such(header)
        };
        self.wait(rank, ready)?;
        Ok(header)
    }

    /// A rank's header of this step, if it is there.
    #[inline]
    pub(in crate::direct) fn seen_of(&self, rank: u32) -> Option<Header> {
        // SAFETY: a board of this communicator, mapped as long as it lives.
        let cell = unsafe { self.boards.map.header(self.boards.board(rank), self.step) };
        // Acquire: pairs with the Release store in `post`.
        let header = Header(cell.load(Ordering::Acquire));
        (header.step() == self.step).then_some(header)
    }

    /// Waits for the header of this step of the rank at the other end of a message, or until the
    /// message is over.
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

    /// The length that a header that was waited for tells.
    #[inline]
    pub(in crate::direct) fn len_of(&self, rank: u32, header: Header) -> u64 {
        if header.len() < Header::LONG {
            return header.len() as u64;
        }
        // SAFETY: the cell has been posted with the length in its data.
        unsafe { self.at(rank, Place::Cell).cast::<u64>().read_unaligned() }
    }

    /// Waits for a rank's cell, and notes if it is doing something else, or with another length.
    #[inline]
    pub(in crate::direct) fn expect(&mut self, rank: u32, kind: Kind, len: usize) -> Result<()> {
        let header = self.header_of(rank)?;
        if !self.does(rank, header, kind, len) {
            self.note(rank, header);
        }
        Ok(())
    }

    /// Whether a rank that has shown this does the same. Items of another sort are noted.
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

    /// Whether a rank that has shown this does the same, as far as a header tells. Items of another
    /// sort are noted.
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

    /// Of what items are that this rank takes, as far as ranks look.
    #[inline]
    pub(in crate::direct) fn sort_of(&self, layout: &Layout) -> Sort {
        match self.boards.types {
            true => Sort::of_layout(layout),
            false => Sort::ANY,
        }
    }

    /// Lets a moment pass before this rank looks at all others.
    #[inline]
    pub(in crate::direct) fn settle(&self) {
        // Ranks that come here together should not look at once. Whoever looks before the other's
        // store is there takes its line away for nothing: the store has to fetch the line back, and
        // the look is to be done again, which makes the one who was late the early one next time.
        // (A barrier of two ranks takes the time of two lines or three without this, and of one
        // with it: 272 and 129 ns, where a line takes 125.)
        let ahead = !self.looked && self.boards.ahead.load(Ordering::Relaxed);
        let pauses = if ahead { SETTLE_AHEAD } else { SETTLE };
        (0..pauses).for_each(|_| std::hint::spin_loop());
    }

    /// Looks at a rank again and again, without a pause, for about as long as it takes to show its
    /// part at the same time as this one does. Who has data to show and to combine is at it for so
    /// long that pauses lose more than looks that come too soon (an allreduce of two ranks 127 ns
    /// so and 147 with them, on an EPYC of family 26). Long operations, of which this is a small
    /// part, do it as well.
    #[inline]
    fn look_closely(&self, rank: u32) {
        if !self.take_turns() {
            let _ = (0..CLOSELY).any(|_| self.seen_of(rank).is_some());
        }
    }

    /// Waits for the cells of all others, which proves that they have all steps before behind them.
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

    /// Notes if another rank shows another checksum. To be called when all others' cells were seen,
    /// and as expected.
    #[inline]
    pub(in crate::direct) fn expect_checksum(&mut self, sum: u64, kind: Kind, len: usize) {
        for rank in self.others() {
            // SAFETY: whoever does this operation has written one.
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

    /// A step without data, in which all see whether they agree.
    pub(in crate::direct) fn announce(&mut self, kind: Kind, len: usize) -> Result<()> {
        self.room(Place::Cell)?;
        self.post(kind, len);
        self.expect_all(kind, len)?;
        self.next();
        Ok(())
    }

    /// What is known after this rank has, directly or not, seen all others in step `step` or later.
    #[inline]
    pub(in crate::direct) fn all_reached(&mut self, step: u32) {
        self.proved = step;
    }
}
