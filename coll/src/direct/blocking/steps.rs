//! Taking steps: the protocol between the boards of a communicator.
//!
//! In each step of an operation a rank writes its own cell (and chunk), and posts it: header last.
//! Whoever needs it waits for the header. All ranks post in every step, whether or not anybody is
//! going to look, so that ranks that do not agree about an operation notice instead of waiting. All
//! operations of more than [`RADIX`] ranks take as many steps as an exchange among them has rounds,
//! or several times as many ([`exchange::fill`]): ranks in different ones are in step behind them.
//!
//! **When a cell may be written again.** When all ranks have the step behind them in which it was
//! used last. A rank knows that from what it sees: the cell of a rank in step `s` proves that this
//! rank has all steps before `s` behind it. Where operations show it nothing (a root that only
//! sends), it looks at the others' `done` words. They are written after every step with a chunk in
//! which not all look at all, and after every fourth step in any case: often enough for whoever
//! waits for one, because a rank never is [`CHUNKS`] steps ahead of such a word's owner.

mod looks;
mod noted;

use std::sync::atomic::Ordering;

use portolan_core::comm::Communicator;
use portolan_core::{Device, ProcId, Result};

use crate::counters::Counters;
use crate::direct::Boards;
use crate::direct::agree::counts;
use crate::direct::agree::odd::{Odd, disagreement, mismatch};
use crate::direct::agree::sort::{Sort, Sorts};
use crate::direct::blocking::beside::Beside;
use crate::direct::blocking::choice::Choice;
use crate::direct::blocking::exchange::{self, RADIX};
use crate::direct::boards::board::{CELLS, CHUNKS, Header, Kind, Place};
use crate::direct::boards::edges::Edges;
use crate::state::State;

/// The steps of one operation.
pub(in crate::direct) struct Steps<'a, D: Device> {
    pub(in crate::direct) comm: &'a Communicator<D>,
    pub(in crate::direct) state: &'a State,
    boards: &'a Boards,
    /// The step that is being taken.
    step: u32,
    /// All ranks have the steps before this one behind them.
    proved: u32,
    /// The first rank that was seen to disagree; or, if there is none, with items of another sort.
    odd: Option<Odd>,
    disagree: bool,
    /// Of what this rank's items are. That others' are something else changes nothing about the
    /// steps.
    sorts: Sorts,
    beside: Beside,
    /// Whether this rank has given its processor away for one beside it.
    gave_way: bool,
    /// Whether it has looked at another.
    looked: bool,
}

/// What becomes of an operation after its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::direct) enum Way {
    /// Nothing more.
    Done,
    /// All have agreed to do it by messages.
    Messages,
}

/// Asks for the line of `at` for writing.
#[inline]
pub(in crate::direct) fn want(at: *const u8) {
    // Every x86-64 processor takes the instruction, the oldest as one that does nothing; the
    // intrinsic would need to be told so at compile time.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which neither reads nor writes nor faults, whatever the address.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

impl<'a, D: Device> Steps<'a, D> {
    #[inline]
    pub(in crate::direct) fn new(
        comm: &'a Communicator<D>,
        state: &'a State,
        boards: &'a Boards,
        sorts: Sorts,
    ) -> Self {
        Self {
            comm,
            state,
            boards,
            step: boards.step.load(Ordering::Relaxed),
            proved: boards.proved.load(Ordering::Relaxed),
            odd: None,
            disagree: false,
            sorts,
            beside: Beside::of(comm.device(), boards),
            gave_way: false,
            looked: false,
        }
    }

    /// Whether ranks take turns on processors.
    #[inline]
    pub(in crate::direct) fn take_turns(&self) -> bool {
        self.beside.takes_turns()
    }

    /// Notes, where ranks take turns, whether this one waits in the operation for others that do
    /// not wait for it.
    pub(in crate::direct) fn waits_alone(&self, waits: bool) {
        self.boards.waits_alone.store(waits, Ordering::Relaxed);
    }

    /// Leaves a barrier: behind those on this processor for which this rank would wait if what
    /// comes next is like what was before. Who has given the processor away in the barrier is
    /// behind them already.
    #[inline]
    pub(in crate::direct) fn leave_barrier(&self) {
        if !self.take_turns() || !self.boards.waits_alone.load(Ordering::Relaxed) {
            return;
        }
        self.waits_alone(false);
        if !self.gave_way {
            self.comm.device().give_way();
        }
    }

    /// Notes that this rank looks at another.
    #[inline]
    fn note_look(&mut self) {
        self.state.count(Counters::Looks, 1);
        self.looked = true;
    }

    /// Waits for a rank: until `ready` holds, which that one makes true.
    #[inline]
    fn wait(&mut self, rank: u32, mut ready: impl FnMut() -> bool) -> Result<()> {
        self.note_look();
        let device = self.comm.device();
        if self.take_turns() && !ready() {
            self.gave_way |= self.beside.begin_wait(device, rank, &mut ready);
        }
        device.wait_for(self.comm.group(), ready)
    }

    #[inline]
    pub(in crate::direct) fn rank(&self) -> u32 {
        self.boards.rank
    }

    #[inline]
    pub(in crate::direct) fn size(&self) -> u32 {
        self.boards.size()
    }

    /// Whether the lines of what this rank alone reads are taken.
    #[inline]
    pub(in crate::direct) fn takes(&self) -> bool {
        self.boards.takes
    }

    /// The same for what is shown to all others. Its owner does not look at it then, either, once
    /// it has posted.
    #[inline]
    pub(in crate::direct) fn takes_from_all(&self) -> bool {
        self.boards.takes && self.size() == 2
    }

    /// The communicator's topology, if it has one.
    pub(in crate::direct) fn edges(&self) -> Option<&'a Edges> {
        self.boards.edges.as_ref()
    }

    /// Bytes of a chunk.
    #[inline]
    pub(in crate::direct) fn chunk(&self) -> usize {
        self.boards.map.chunk_len()
    }

    /// Bytes of two chunks that are used together.
    pub(in crate::direct) fn wide(&self) -> usize {
        self.boards.map.wide_len()
    }

    /// Waits until this rank may write its cell of this step, or its chunk.
    #[inline]
    pub(in crate::direct) fn room(&mut self, place: Place) -> Result<()> {
        let steps = match place {
            Place::Cell => CELLS,
            Place::Chunk => CHUNKS,
        };
        if self.step.wrapping_sub(self.proved) < steps {
            return Ok(());
        }
        self.await_done(self.step.wrapping_sub(steps).wrapping_add(1))
    }

    /// Waits until this rank may write two chunks at once, that of this step and of the next. Such
    /// a step takes two numbers, the first an even one, which are left behind by two
    /// [`next`](Self::next).
    pub(in crate::direct) fn room_wide(&mut self) -> Result<()> {
        if !self.step.is_multiple_of(2) {
            self.next();
        }
        if self.step.wrapping_add(1).wrapping_sub(self.proved) < CHUNKS {
            return Ok(());
        }
        self.await_done(self.step.wrapping_sub(CHUNKS).wrapping_add(2))
    }

    /// Waits until all ranks have the steps before `wanted` behind them.
    #[cold]
    fn await_done(&mut self, wanted: u32) -> Result<()> {
        let (boards, mut least) = (self.boards, self.step);
        for rank in self.others() {
            let mut seen = 0;
            let ready = || {
                // SAFETY: a board of this communicator, mapped as long as it lives. Acquire: pairs
                // with the Release store in `publish`: what the rank has read of this one's cells
                // and chunks was read before.
                seen = unsafe { boards.map.done(boards.board(rank)) }.load(Ordering::Acquire);
                seen.wrapping_sub(wanted) as i32 >= 0
            };
            self.wait(rank, ready)?;
            if (seen.wrapping_sub(least) as i32) < 0 {
                least = seen;
            }
        }
        self.proved = least;
        Ok(())
    }

    /// Waits until this rank may write so many bytes in this step, and says where: in the cell, the
    /// chunk, or a longer place, of which the cell tells. `None` if they are more than
    /// [`LONG`](crate::direct::boards::long::LONG), or if there is no memory for them, which the
    /// cell tells, too; the chunk is free.
    ///
    /// # Safety
    /// Of more than a chunk has, the cell has nothing else in it.
    #[inline]
    pub(in crate::direct) unsafe fn my_place(&mut self, len: usize) -> Result<Option<*mut u8>> {
        let place = Place::of(len);
        self.room(place)?;
        if len <= self.chunk() {
            return Ok(Some(self.mine(place)));
        }
        let (device, pool, cell) = (
            self.comm.device(),
            &self.boards.pool,
            self.mine(Place::Cell),
        );
        // SAFETY: the cell is this rank's, and free as the chunk is.
        Ok(unsafe { self.boards.long.show(device, pool, self.step, len, cell) })
    }

    /// Where a rank has written so many bytes; `None` if it had no memory for them.
    ///
    /// # Errors
    /// [`PeerMisbehaved`](portolan_core::ErrorKind::PeerMisbehaved) if it names memory that is not
    /// there.
    ///
    /// # Safety
    /// It has posted that it shows so many, at most [`LONG`](crate::direct::boards::long::LONG).
    #[inline]
    pub(in crate::direct) unsafe fn place_of(
        &self,
        rank: u32,
        len: u64,
    ) -> Result<Option<*mut u8>> {
        let len = len as usize;
        if len <= self.chunk() {
            return Ok(Some(self.at(rank, Place::of(len))));
        }
        let (device, whose) = (self.comm.device(), (rank, self.process(rank)));
        // SAFETY: from the caller.
        unsafe {
            self.boards
                .long
                .find(device, whose, self.at(rank, Place::Cell))
        }
    }

    /// Where this rank writes the data of this step.
    #[inline]
    pub(in crate::direct) fn mine(&self, place: Place) -> *mut u8 {
        self.on(self.boards.own(), place, self.step)
    }

    /// Where this rank will write in the next step, once it has seen all others in this one: its
    /// place is free then.
    #[inline]
    pub(in crate::direct) fn ahead(&self, place: Place) -> *mut u8 {
        debug_assert_eq!(self.proved, self.step);
        self.on(self.boards.own(), place, self.step.wrapping_add(1))
    }

    /// Where the data of a rank is, once it has posted.
    #[inline]
    pub(in crate::direct) fn at(&self, rank: u32, place: Place) -> *mut u8 {
        self.on(self.boards.board(rank), place, self.step)
    }

    #[inline]
    fn on(&self, board: *mut u8, place: Place, step: u32) -> *mut u8 {
        match place {
            Place::Cell => self.boards.map.data(board, step),
            Place::Chunk => self.boards.map.chunk(board, step),
        }
    }

    /// Shows this rank's cell, and wakes whoever waits for it.
    #[inline]
    pub(in crate::direct) fn post(&mut self, kind: Kind, len: usize) {
        self.post_for_few(kind, len);
        self.wake_all();
    }

    /// Shows this rank's cell where nobody will wait for it, unless something is wrong, but a rank
    /// that this one looks at or wakes itself: who does not agree may sleep for it. Few are woken
    /// all the same; of many that would take too long.
    #[inline]
    pub(in crate::direct) fn post_apart(&mut self, kind: Kind, len: usize, but: u32) {
        self.post_for_few(kind, len);
        if self.size() <= RADIX {
            let apart = |&rank: &u32| rank != but && rank != self.rank();
            (0..self.size())
                .filter(apart)
                .for_each(|rank| self.wake(rank));
        }
    }

    /// Shows this rank's cell where nobody, or only ranks that are woken by [`wake`](Self::wake),
    /// will wait for it.
    #[inline]
    pub(in crate::direct) fn post_for_few(&mut self, kind: Kind, len: usize) {
        self.post_as(self.sorts.shown, kind, len);
    }

    /// The same with items of another sort than this rank's own: what it has from others and hands
    /// on.
    #[inline]
    pub(in crate::direct) fn post_as(&mut self, sort: Sort, kind: Kind, len: usize) {
        let own = self.boards.own();
        if len >= Header::LONG {
            // SAFETY: the cell is this rank's, and `room` has found it free.
            unsafe {
                self.boards
                    .map
                    .data(own, self.step)
                    .cast::<u64>()
                    .write_unaligned(len as u64);
            }
        }
        let header = Header::new(self.step, kind, sort, len);
        // SAFETY: a board of this communicator.
        // Release: pairs with the Acquire load in `header_of`: the data is there with it.
        unsafe { self.boards.map.header(own, self.step) }.store(header.0, Ordering::Release);
        #[cfg(test)]
        crate::direct::tests::lingering::linger();
        // The others have the next cell's line since they last looked at it. It comes back while
        // this rank waits, instead of when it has something to show.
        want(self.boards.map.data(own, self.step.wrapping_add(1)));
        self.state.count(Counters::Signals, 1);
    }

    /// Wakes a rank that waits for what was posted.
    #[inline]
    pub(in crate::direct) fn wake(&self, rank: u32) {
        self.comm.device().notify(self.process(rank));
    }

    #[inline]
    fn wake_all(&self) {
        for (_, process) in self.boards.others() {
            self.comm.device().notify(process);
        }
    }

    #[inline]
    fn process(&self, rank: u32) -> ProcId {
        self.boards.processes[rank as usize]
    }

    /// Shows a checksum of counts in the cell that is posted next ([`counts`]).
    ///
    /// # Safety
    /// There is room in the cell, and nothing else is written there.
    #[inline]
    pub(in crate::direct) unsafe fn write_checksum(&self, sum: u64) {
        // SAFETY: from the caller.
        unsafe { counts::write(self.mine(Place::Cell), sum) };
    }

    /// The number of this step.
    #[inline]
    pub(in crate::direct) fn number(&self) -> u32 {
        self.step
    }

    /// The other ranks, in the order in which to look at them.
    #[inline]
    pub(in crate::direct) fn others(&self) -> impl Iterator<Item = u32> + use<D> {
        self.beside.others(self.rank(), self.size())
    }

    /// The others that run on this rank's processor, who cannot show anything before this rank
    /// gives it away.
    #[inline]
    pub(in crate::direct) fn beside(&self) -> Beside {
        self.beside
    }

    /// What is known about ways to go.
    pub(in crate::direct) fn choice(&self) -> &'a Choice {
        &self.boards.choice
    }

    /// Ends a step.
    #[inline]
    pub(in crate::direct) fn next(&mut self) {
        self.step = self.step.wrapping_add(1);
        if self.step.is_multiple_of(CHUNKS) {
            self.publish();
        }
    }

    /// Ends a step with data in chunks in which not every rank looks at every other.
    pub(in crate::direct) fn next_published(&mut self) {
        self.step = self.step.wrapping_add(1);
        self.publish();
    }

    /// Tells the others how many steps this rank has behind it.
    fn publish(&self) {
        let own = self.boards.own();
        // SAFETY: a board of this communicator. Release: pairs with the Acquire load in
        // `await_done`: whatever this rank has read, it read before.
        unsafe { self.boards.map.done(own) }.store(self.step, Ordering::Release);
        self.wake_all();
    }

    /// Ends the operation, which is done.
    ///
    /// # Errors
    /// As [`end_by`](Self::end_by).
    #[inline]
    pub(in crate::direct) fn end(self, kind: Kind, len: usize) -> Result<Way> {
        self.end_by(Way::Done, kind, len)
    }

    /// Ends the boards' part in the operation.
    ///
    /// # Errors
    /// [`InvalidCount`](portolan_core::ErrorKind::InvalidCount) if a rank was seen to disagree
    /// about its length, [`InvalidArgument`](portolan_core::ErrorKind::InvalidArgument) if about
    /// what operation it is, [`TypeMismatch`](portolan_core::ErrorKind::TypeMismatch) if one showed
    /// items of another sort.
    #[inline]
    pub(in crate::direct) fn end_by(mut self, way: Way, kind: Kind, len: usize) -> Result<Way> {
        if let Some(odd) = self.odd {
            crate::direct::blocking::bcast::pass_pieces(&mut self, odd.header)?;
        }
        if self.size() > RADIX {
            // (Relaxed: this thread's own, from the operation before.)
            let begin = self.boards.step.load(Ordering::Relaxed);
            let taken = self.step.wrapping_sub(begin);
            exchange::fill(&mut self, kind, taken)?;
        }
        self.boards.step.store(self.step, Ordering::Relaxed);
        self.boards.proved.store(self.proved, Ordering::Relaxed);
        self.boards.ahead.store(!self.looked, Ordering::Relaxed);
        match self.odd {
            None => Ok(way),
            Some(odd) if self.disagree || odd.other_root => {
                Err(disagreement(self.comm, (kind, len), odd))
            }
            // They see to types themselves; and a rank with bytes, which match everything, has left
            // for them.
            Some(_) if way == Way::Messages => Ok(way),
            Some(odd) => Err(mismatch(self.comm, kind, odd)),
        }
    }
}
