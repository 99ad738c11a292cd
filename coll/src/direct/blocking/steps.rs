//! Taking steps: the protocol between the boards of a communicator.
//!
//! In each step of an operation a rank writes its own cell (and chunk), then posts it by writing
//! the header last. A rank that needs the data waits for the header. All ranks post in every step,
//! whether or not any rank is going to look. So ranks that do not agree about an operation notice
//! the disagreement instead of waiting. With more than [`RADIX`] ranks, every operation takes as
//! many steps as an exchange among them has rounds, or a multiple of that ([`exchange::fill`]). So
//! ranks that called different operations are in step again afterwards.
//!
//! **When a cell may be written again.** Once all ranks have finished the step in which it was used
//! last. A rank infers that from what it sees: a cell that another rank posted in step `s` proves
//! that the other rank has finished all steps before `s`. If an operation shows this rank no cells
//! (a root that only sends, for instance), it looks at the others' `done` words. A rank writes its
//! `done` word after every step with a chunk in which not all ranks look at all others, and after
//! every fourth step in any case. That is often enough for a rank that waits for one, because a
//! rank is never [`CHUNKS`] steps ahead of such a word's owner. A rank with data for a long place
//! looks at those words, too, without waiting, to use a place again as soon as possible.
//!
//! **How a step begins and ends.** Every step begins with a call that waits for its place, and ends
//! with one that counts it:
//!
//! | in the step | begins with | ends with |
//! | --- | --- | --- |
//! | ranks use cells only | [`room`](Steps::room) of a cell | [`next`](Steps::next) |
//! | ranks read chunks, and each looks at the cells of all others | `room` of a chunk | [`seen_all`](Steps::seen_all), `next` |
//! | ranks read chunks, and some do not look at all others | `room` of a chunk, by a rank that only reads of a cell | [`next_published`](Steps::next_published), by a rank that only writes `next` |
//! | each rank reads two chunks of all others | [`room_wide`](Steps::room_wide) | `seen_all`, twice `next` |
//! | the data may lie in a long place | [`my_place`](Steps::my_place) | as for a chunk |
//! | a round among more than [`RADIX`] ranks | `room` of its place | `next`; after the last round [`all_reached`](Steps::all_reached) |
//!
//! [`seen_all`](Steps::seen_all), which [`expect_all`](Steps::expect_all) calls, and
//! [`all_reached`](Steps::all_reached) spare this rank looks at `done` words later. The first may
//! be called when this rank has waited for the cells of all others in this very step. The second is
//! for rounds in which a rank hears of all others through some of them. It names the first round,
//! and must not be called if any rank disagreed: such a rank may not have waited for others.

mod looks;
mod noted;

use std::sync::atomic::Ordering;

use portolan_core::comm::Communicator;
use portolan_core::{Device, ProcId, Result};

use crate::counters::Counters;
use crate::direct::agree::counts;
use crate::direct::agree::odd::{Odd, disagreement, mismatch};
use crate::direct::agree::sort::{Sort, Sorts};
use crate::direct::blocking::beside::Beside;
use crate::direct::blocking::choice::Choice;
use crate::direct::blocking::exchange::{self, RADIX};
use crate::direct::boards::board::{CELLS, CHUNKS, Header, Kind, Place};
use crate::direct::boards::edges::Edges;
use crate::direct::boards::view::Boards;
use crate::state::State;

/// The steps of one operation.
pub(in crate::direct) struct Steps<'a, D: Device> {
    pub(in crate::direct) comm: &'a Communicator<D>,
    pub(in crate::direct) state: &'a State,
    boards: &'a Boards,
    /// The current step.
    step: u32,
    /// All ranks have finished the steps before this one.
    proved: u32,
    /// The first rank that was seen to disagree; if there is none, the first that showed items of
    /// another sort.
    odd: Option<Odd>,
    disagree: bool,
    /// The sorts of this rank's items. Items of another sort at other ranks do not change the
    /// steps.
    sorts: Sorts,
    beside: Beside,
    /// Whether this rank has given its processor away to another rank that runs there.
    gave_way: bool,
    /// Whether this rank has looked at another rank.
    looked: bool,
}

/// What remains to be done for an operation after its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::direct) enum Way {
    /// Nothing.
    Done,
    /// All ranks have agreed to do it by messages.
    Messages,
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

    /// Records, where ranks take turns, whether this rank waits in the operation for ranks that do
    /// not wait for it.
    pub(in crate::direct) fn waits_alone(&self, waits: bool) {
        self.boards.waits_alone.store(waits, Ordering::Relaxed);
    }

    /// Leaves a barrier. If the next operation is like the last one, this rank will wait for ranks
    /// on its own processor, so it lets those leave first. If it gave the processor away during the
    /// barrier, they are ahead already.
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

    /// Records that this rank looks at another.
    #[inline]
    fn note_look(&mut self) {
        self.state.count(Counters::Looks, 1);
        self.looked = true;
    }

    /// Waits for a rank until `ready` holds, which that rank makes true.
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

    /// Whether this rank takes the cache lines of data that it alone reads.
    #[inline]
    pub(in crate::direct) fn takes(&self) -> bool {
        self.boards.takes
    }

    /// The same for data that its owner shows to all others: only with two ranks is there a single
    /// reader. The owner then must not look at the data either, once it has posted.
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

    /// Bytes of two chunks when a step uses both.
    pub(in crate::direct) fn wide(&self) -> usize {
        self.boards.map.wide_len()
    }

    /// Waits until this rank may write its cell or its chunk of this step.
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

    /// Waits until this rank may write two chunks at once, those of this step and the next. Such a
    /// step takes two numbers, the first one even; the caller ends it with two calls of
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

    /// Waits until all ranks have finished the steps before `wanted`.
    #[cold]
    fn await_done(&mut self, wanted: u32) -> Result<()> {
        let (boards, mut least) = (self.boards, self.step);
        for rank in self.others() {
            let mut seen = 0;
            let ready = || {
                // SAFETY: a board of this communicator, mapped as long as it lives. Acquire: pairs
                // with the Release store in `publish`; all of the rank's reads of this rank's cells
                // and chunks happened before it.
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

    /// Waits until this rank may write `len` bytes in this step, and returns where: in the cell, in
    /// the chunk, or in a longer place, which the cell then names. `None` if `len` is more than
    /// `limit`, up to which readers look for a longer place, or if there is no memory for one,
    /// which the cell then says. The chunk is free in either case.
    ///
    /// # Safety
    /// If `len` is more than a chunk holds, the cell contains nothing else but a length, in its
    /// first word.
    #[inline]
    pub(in crate::direct) unsafe fn my_place(
        &mut self,
        len: usize,
        limit: usize,
    ) -> Result<Option<*mut u8>> {
        let place = Place::of(len);
        self.room(place)?;
        if len <= self.chunk() {
            return Ok(Some(self.mine(place)));
        }
        if len <= limit {
            self.look_at_done();
        }
        let (device, pool, cell) = (
            self.comm.device(),
            &self.boards.pool,
            self.mine(Place::Cell),
        );
        let (steps, room) = ((self.step, self.proved), (len, limit));
        // SAFETY: the cell is this rank's, and free as the chunk is.
        Ok(unsafe { self.boards.long.show((device, pool), steps, room, cell) })
    }

    /// Where a rank has written its `len` bytes; `None` if it had no memory for them.
    ///
    /// # Errors
    /// [`PeerMisbehaved`](portolan_core::ErrorKind::PeerMisbehaved) if the rank names memory that
    /// is not there.
    ///
    /// # Safety
    /// The rank has posted that it shows `len` bytes, and if they are more than a chunk holds, a
    /// cell that names a longer place.
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

    /// Where this rank will write in the next step. To be called once it has seen all others in
    /// this step, because that place is free then.
    #[inline]
    pub(in crate::direct) fn ahead(&self, place: Place) -> *mut u8 {
        debug_assert_eq!(self.proved, self.step);
        self.on(self.boards.own(), place, self.step.wrapping_add(1))
    }

    /// Where a rank's data is, once the rank has posted.
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

    /// Posts this rank's cell, and wakes the ranks that wait for it.
    #[inline]
    pub(in crate::direct) fn post(&mut self, kind: Kind, len: usize) {
        self.post_for_few(kind, len);
        self.wake_all();
    }

    /// Posts this rank's cell in a step in which no rank waits for it, unless something is wrong,
    /// except for rank `but`, which this rank looks at or wakes itself. A rank that does not agree
    /// about the operation may sleep until it sees this cell, so the others are woken too if they
    /// are few. Waking many would take too long.
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

    /// Posts this rank's cell in a step in which no rank waits for it, or only ranks that are woken
    /// by [`wake`](Self::wake).
    #[inline]
    pub(in crate::direct) fn post_for_few(&mut self, kind: Kind, len: usize) {
        self.post_as(self.sorts.shown, kind, len);
    }

    /// The same, with a sort that may not be this rank's own, for data that it received from
    /// another rank and hands on.
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
        let cells = [self.step, self.step.wrapping_add(1)].map(|step| self.boards.map.cell(step));
        self.boards.show(cells[0], cells[1], header);
        self.state.count(Counters::Signals, 1);
    }

    /// Wakes a rank that waits for what this rank has posted.
    #[inline]
    pub(in crate::direct) fn wake(&self, rank: u32) {
        self.comm.device().notify(self.process(rank));
    }

    #[inline]
    fn wake_all(&self) {
        self.boards.wake_all(self.comm.device());
    }

    /// The process of a rank.
    #[inline]
    pub(in crate::direct) fn process(&self, rank: u32) -> ProcId {
        self.boards.processes[rank as usize]
    }

    /// Writes a checksum of counts to the cell that is posted next ([`counts`]).
    ///
    /// # Safety
    /// The cell has room, and nothing else is written there.
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

    /// The other ranks that run on this rank's processor. They cannot show anything before this
    /// rank gives the processor away.
    #[inline]
    pub(in crate::direct) fn beside(&self) -> Beside {
        self.beside
    }

    /// The measurements by which ranks choose between boards and messages.
    pub(in crate::direct) fn choice(&self) -> &'a Choice {
        &self.boards.choice
    }

    /// Whether ranks may copy from each other's buffers, as far as is known. All ranks know the
    /// same.
    pub(in crate::direct) fn may_pull(&self) -> bool {
        self.boards.pulls.load(Ordering::Relaxed)
    }

    /// Ranks have found that they may not. All of them say so in the same operation. (Relaxed, as
    /// above: only this rank reads it, in its next operations, which are one after the other.)
    pub(in crate::direct) fn pull_no_more(&self) {
        self.boards.pulls.store(false, Ordering::Relaxed);
        self.boards.choice.pull_no_more(self.size());
    }

    /// The parts of a scatter that a rank wants as messages, as far as this rank has heard.
    pub(in crate::direct) fn wishes_of(&self, rank: u32) -> u32 {
        let boards = self.boards;
        // SAFETY: a board of this communicator. Relaxed, as below: whatever the word is, the rank
        // that reads it decides, and says so in its cell.
        unsafe { boards.map.wishes(boards.board(rank)) }.load(Ordering::Relaxed)
    }

    /// Says which parts of a scatter this rank wants as messages.
    pub(in crate::direct) fn wish(&self, wishes: u32) {
        // SAFETY: as above.
        let word = unsafe { self.boards.map.wishes(self.boards.own()) };
        if word.load(Ordering::Relaxed) != wishes {
            word.store(wishes, Ordering::Relaxed);
        }
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

    /// Publishes how many steps this rank has finished.
    fn publish(&self) {
        self.boards.publish(self.comm.device(), self.step);
    }

    /// Ends an operation that is done. (By reference: a copy of the steps would be read in larger
    /// parts than they have just been written in, for which a processor waits.)
    ///
    /// # Errors
    /// As [`end_by`](Self::end_by).
    #[inline]
    pub(in crate::direct) fn end(&mut self, kind: Kind, len: usize) -> Result<Way> {
        self.end_by(Way::Done, kind, len)
    }

    /// Ends the part of the operation that uses the boards.
    ///
    /// # Errors
    /// [`InvalidCount`](portolan_core::ErrorKind::InvalidCount) if a rank was seen to disagree
    /// about its length, [`InvalidArgument`](portolan_core::ErrorKind::InvalidArgument) if about
    /// which operation it is, [`TypeMismatch`](portolan_core::ErrorKind::TypeMismatch) if a rank
    /// showed items of another sort.
    #[inline]
    pub(in crate::direct) fn end_by(&mut self, way: Way, kind: Kind, len: usize) -> Result<Way> {
        if let Some(odd) = self.odd {
            crate::direct::blocking::bcast::pass_pieces(self, odd.header)?;
        }
        if self.size() > RADIX {
            // (Relaxed: this thread stored it, at the end of the operation before.)
            let begin = self.boards.step.load(Ordering::Relaxed);
            let taken = self.step.wrapping_sub(begin);
            exchange::fill(self, kind, taken)?;
        }
        self.boards.step.store(self.step, Ordering::Relaxed);
        self.boards.proved.store(self.proved, Ordering::Relaxed);
        self.boards.ahead.store(!self.looked, Ordering::Relaxed);
        match self.odd {
            None => Ok(way),
            Some(odd) if self.disagree || odd.other_root => {
                Err(disagreement(self.comm, (kind, len), odd))
            }
            // Messages check types themselves. Besides, a rank with bytes, which match everything,
            // has already gone on to the messages.
            Some(_) if way == Way::Messages => Ok(way),
            Some(odd) => Err(mismatch(self.comm, kind, odd)),
        }
    }
}
