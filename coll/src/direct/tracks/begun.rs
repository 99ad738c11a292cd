//! Operations under way on tracks: a rank shows its part when it starts one, and takes the result
//! when all ranks have shown theirs.
//!
//! The call that starts an operation writes the rank's contribution and looks whether the others
//! have written theirs; often that is all. If the operation is not over then, the looks continue
//! inside progress (`pending.rs`). If the place of the step is not free yet, the contribution is
//! also written there.
//!
//! An operation that goes by messages takes a step all the same, without data. Until its messages
//! are over it watches the others' cells for the step. So it sees a rank that has another length,
//! and so does not take part in the messages, and ends. An operation of which only the long blocks
//! are messages does both: it shows the short blocks, and drops those messages that would have no
//! counterpart. A rank that has seen others disagree wakes all ranks, because any of them may be
//! looking at a rank that had no reason to wake it.
//!
//! Between two ranks a contribution may be lent instead of shown ([`lending`](super::lending)); the
//! step then ends when the other rank has read it (`begun/lent.rs`).
//!
//! Budget of an operation that is over when it starts: one load of the cell of each rank that it
//! looks at, and one store to its own; with several threads, a lock for the step, its place and its
//! end; once in as many steps as there are cells, a load of one word of each other rank.

mod lent;

use std::sync::atomic::Ordering;

use portolan_core::Result;
use portolan_core::comm::NoUnwind;

use crate::direct::agree::counts;
use crate::direct::agree::odd::{Odd, described};
use crate::direct::agree::sort::Sort;
use crate::direct::agree::verdict::{Refused, Verdict, Wrong};
use crate::direct::boards::board::{Header, NONBLOCKING, Place, data_of};
use crate::direct::boards::view::Boards;
use crate::direct::tracks::call::Call;
use crate::direct::tracks::hands::Hands;
use crate::direct::tracks::listed::AT_ROOT;

/// An operation's step of a track, while it is under way.
pub(in crate::direct) struct Begun {
    pub(in crate::direct) track: usize,
    pub(in crate::direct) step: u32,
    /// Offset of its cell in each board.
    cell: usize,
    /// The place in which its part is shown, and whether the place was free when it began.
    place: Place,
    was_free: bool,
    /// Mask of the ranks whose cells have not been seen.
    waiting: u32,
    pub(in crate::direct) shown: bool,
    /// Boxed, so that an operation without any of it, which is the usual case, is cheap to move.
    more: Option<Box<More>>,
}

/// What this rank has seen of ranks that do not agree, and what it lends.
#[derive(Default)]
struct More {
    /// The first disagreement, and the length that this rank has there.
    odd: Option<(Odd, usize)>,
    /// Messages without a counterpart, about which the operation has not been told yet.
    refused: Vec<Refused>,
    /// The contribution, while it is lent.
    lent: Option<lent::Lent>,
}

impl Begun {
    /// Takes the next step of a track.
    #[inline(always)]
    pub(in crate::direct) fn new(boards: &Boards, track: usize, call: &Call<'_>) -> Self {
        let turns = &boards.tracks[track];
        let place = call.place.unwrap_or(Place::Cell);
        let turn = turns.enter();
        let step = turns.take();
        let was_free = turns.has_room(step, place, || boards.least_behind(track));
        drop(turn);
        Self {
            track,
            step,
            cell: turns.map.cell(step),
            place,
            was_free,
            waiting: call.looks,
            shown: false,
            more: None,
        }
    }

    /// A step of the track of nonblocking operations in which this rank has shown its part, in a
    /// cell, and waits for the ranks `waiting`.
    #[inline]
    pub(in crate::direct) fn of_shown(boards: &Boards, step: u32, waiting: u32) -> Self {
        Self {
            track: NONBLOCKING,
            step,
            cell: boards.tracks[NONBLOCKING].map.cell(step),
            place: Place::Cell,
            was_free: true,
            waiting,
            shown: true,
            more: None,
        }
    }

    /// Shows the contribution, if there is room for it. Returns whether it is shown.
    ///
    /// # Safety
    /// The buffers of `call` are the operation's.
    #[inline(always)]
    pub(in crate::direct) unsafe fn show(
        &mut self,
        boards: &Boards,
        call: &Call<'_>,
        hands: &mut dyn Hands,
    ) -> bool {
        if self.shown {
            return true;
        }
        if !(self.was_free || self.has_room(boards)) {
            return false;
        }
        let own = boards.own();
        let header = call.shown.of_step(self.step);
        if call.may_lend {
            // SAFETY: from the caller; the place is free.
            unsafe { self.show_or_lend(boards, call, hands) };
        } else if call.place.is_some() && call.has_data() {
            // SAFETY: as above.
            unsafe { call.show(self.place_on(boards, boards.own(), self.place)) };
        }
        if header.is_by_messages() {
            let data = data_of(own, self.cell).cast::<u64>();
            // SAFETY: the cell is this rank's, free, and long enough.
            unsafe {
                data.write(call.len as u64);
                data.byte_add(AT_ROOT).write(call.root().into());
            }
        }
        if let Some(sum) = call.sum {
            // SAFETY: as above; data in the cell begins after the checksum.
            unsafe { counts::write(data_of(own, self.cell), sum) };
        }
        let next = self.step.wrapping_add(1);
        let next = boards.tracks[self.track].map.cell(next);
        boards.show(self.cell, next, header);
        boards.wake(call.wakes, hands);
        self.shown = true;
        true
    }

    /// Whether the place of the step may be written.
    #[inline]
    fn has_room(&self, boards: &Boards) -> bool {
        let turns = &boards.tracks[self.track];
        let _turn = turns.enter();
        turns.has_room(self.step, self.place, || boards.least_behind(self.track))
    }

    /// Whether the operation may get further, so that it is worth rebuilding the call.
    #[inline]
    pub(in crate::direct) fn may_move(&self, boards: &Boards) -> bool {
        if !self.shown {
            return self.has_room(boards);
        }
        if self.waiting == 0 {
            return self.may_end(boards);
        }
        let rank = self.waiting.trailing_zeros();
        self.header_of(boards, rank).step() == self.step
    }

    /// The same for an operation that goes by messages, which looks at all ranks that it has not
    /// seen.
    pub(in crate::direct) fn may_see(&self, boards: &Boards) -> bool {
        let mut left = self.waiting;
        while left != 0 {
            let rank = left.trailing_zeros();
            left &= left - 1;
            if self.header_of(boards, rank).step() == self.step {
                return true;
            }
        }
        !self.shown
    }

    /// Where a rank's data is.
    #[inline]
    fn place_of(&self, boards: &Boards, rank: u32, place: Place) -> *mut u8 {
        self.place_on(boards, boards.board(rank), place)
    }

    #[inline]
    fn place_on(&self, boards: &Boards, board: *mut u8, place: Place) -> *mut u8 {
        match place {
            Place::Cell => data_of(board, self.cell),
            Place::Chunk => board.wrapping_add(boards.tracks[self.track].map.chunk(self.step)),
        }
    }

    #[inline]
    fn header_of(&self, boards: &Boards, rank: u32) -> Header {
        boards.header(rank, self.cell)
    }

    /// Looks at the ranks that have not been seen; returns whether all have shown their parts.
    #[inline]
    pub(in crate::direct) fn look(
        &mut self,
        boards: &Boards,
        call: &Call<'_>,
        hands: &mut dyn Hands,
    ) -> bool {
        // Most headers equal the expected one in every bit.
        if let Some(wanted) = call.wanted {
            let wanted = wanted.of_step(self.step);
            while self.waiting != 0 {
                let rank = self.waiting.trailing_zeros();
                let header = self.header_of(boards, rank);
                if header != wanted {
                    if header.step() != self.step {
                        return false;
                    }
                    break;
                }
                self.waiting &= self.waiting - 1;
            }
            if self.waiting == 0 {
                return true;
            }
        }
        self.look_closely(boards, call, hands)
    }

    /// The same, whatever the ranks show.
    #[inline(never)]
    fn look_closely(&mut self, boards: &Boards, call: &Call<'_>, hands: &mut dyn Hands) -> bool {
        let mut left = self.waiting;
        while left != 0 {
            let rank = left.trailing_zeros();
            left &= left - 1;
            let header = self.header_of(boards, rank);
            if header.step() != self.step {
                // An operation without messages needs the data of all ranks, so it can stop here.
                // One with messages also looks at ranks after a late one: some of them may not take
                // part in its messages, and may never wake it again.
                if !call.has_messages {
                    return false;
                }
                continue;
            }
            self.waiting &= !(1 << rank);
            let told = || self.told(boards, rank, header);
            let at = |place| self.place_of(boards, rank, place);
            // SAFETY: the rank has shown its part.
            if let Some(verdict) = unsafe { call.judge(rank, header, told, at) } {
                if verdict.wrong.is_some() {
                    self.note_verdict(boards, call, (rank, header), verdict);
                    boards.wake(boards.others_mask(), hands);
                }
                continue;
            }
            let agrees = match call.place {
                Some(_) => {
                    let len = call.len_of(rank);
                    let wanted = Header::new(self.step, call.kind, call.sorts.taken, len);
                    header == wanted
                        || header.is_but_for_sort(wanted)
                            && (len == 0 || call.sorts.taken.matches(header.sort()))
                }
                None => {
                    header.is_by_messages()
                        && header.kind() == Some(call.kind)
                        && self.len_agrees(boards, call, rank)
                        && self.root_agrees(boards, call, rank)
                }
            };
            let cell = data_of(boards.board(rank), self.cell);
            // SAFETY: every rank that does this operation has shown one.
            let counts_agree = |sum| unsafe { counts::read(cell) } == sum;
            if !(agrees && call.sum.is_none_or(counts_agree)) {
                self.note(boards, call, rank, header);
                boards.wake(boards.others_mask(), hands);
            }
        }
        if self.waiting != 0 {
            return false;
        }
        if let Some(wrong) = call.judge_itself() {
            let own = (boards.rank, call.shown.of_step(self.step));
            self.note_wrong(own, call.sorts.taken, wrong);
        }
        true
    }

    /// Whether a rank that, like this one, goes by messages has the length that this one expects.
    /// Messages alone do not always reveal a difference: ranks with other lengths may choose
    /// another algorithm. (Among neighbours only the ends of an edge know its length.)
    fn len_agrees(&self, boards: &Boards, call: &Call<'_>, rank: u32) -> bool {
        self.len_by_messages(boards, rank) == call.len_of(rank) as u64
    }

    /// Whether such a rank names the same root. (A rank in another operation would usually not, so
    /// the kind is compared first.)
    fn root_agrees(&self, boards: &Boards, call: &Call<'_>, rank: u32) -> bool {
        self.by_messages(boards, rank)[1] == u64::from(call.root())
    }

    fn len_by_messages(&self, boards: &Boards, rank: u32) -> u64 {
        self.by_messages(boards, rank)[0]
    }

    /// The length and the root stated by a rank that has shown that it goes by messages.
    fn by_messages(&self, boards: &Boards, rank: u32) -> [u64; 2] {
        let data = data_of(boards.board(rank), self.cell);
        // SAFETY: the cell has been shown with both in its data.
        unsafe {
            let len = data.cast::<u64>();
            [len.read(), len.byte_add(AT_ROOT).read()]
        }
    }

    /// The length that a rank states.
    fn told(&self, boards: &Boards, rank: u32, header: Header) -> u64 {
        match header.is_by_messages() {
            true => self.len_by_messages(boards, rank),
            false => header.len() as u64,
        }
    }

    #[cold]
    fn note(&mut self, boards: &Boards, call: &Call<'_>, rank: u32, header: Header) {
        let other_root = call.place.is_none()
            && header.is_by_messages()
            && header.kind() == Some(call.kind)
            && !self.root_agrees(boards, call, rank);
        let odd = Odd {
            rank,
            header,
            len: self.told(boards, rank, header),
            sort: call.sorts.taken,
            other_root,
            awaits: false,
        };
        let mine = call.len_of(rank);
        self.more().odd.get_or_insert((odd, mine));
    }

    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    /// The disagreement to be reported, if any. It is reported only once.
    #[inline]
    pub(in crate::direct) fn take_odd(&mut self) -> Option<(Odd, usize)> {
        self.more.as_mut()?.odd.take()
    }

    pub(in crate::direct) fn take_refused(&mut self) -> Vec<Refused> {
        let more = self.more.as_mut();
        more.map_or_else(Vec::new, |more| std::mem::take(&mut more.refused))
    }

    #[cold]
    fn note_verdict(
        &mut self,
        boards: &Boards,
        call: &Call<'_>,
        (rank, header): (u32, Header),
        verdict: Verdict,
    ) {
        let told = Wrong {
            theirs: self.told(boards, rank, header),
            mine: 0,
            awaits: false,
        };
        let wrong = verdict.wrong.unwrap_or(told);
        self.note_wrong((rank, header), call.sorts.taken, wrong);
        self.more().refused.extend(verdict.refused);
    }

    #[cold]
    fn note_wrong(&mut self, (rank, header): (u32, Header), sort: Sort, wrong: Wrong) {
        let odd = Odd {
            rank,
            header,
            len: wrong.theirs,
            sort,
            other_root: false,
            awaits: wrong.awaits,
        };
        let mine = wrong.mine as usize;
        self.more().odd.get_or_insert((odd, mine));
    }

    /// Takes the result and ends the step. To be called when all ranks have been seen; again later
    /// if it returns `None`, because data that is lent is still in use.
    ///
    /// # Errors
    /// If a rank was seen that does not agree, or if the operator does not know the layout.
    ///
    /// # Safety
    /// As [`show`](Self::show).
    #[inline]
    pub(in crate::direct) unsafe fn take(
        &mut self,
        boards: &Boards,
        call: &Call<'_>,
        hands: &mut dyn Hands,
    ) -> Option<Result<()>> {
        if call.may_lend {
            // SAFETY: from the caller.
            return unsafe { self.take_or_borrow(boards, call, hands) };
        }
        let outcome = match self.take_odd() {
            None if call.place.is_some() && call.has_data() => {
                let at = |rank, place| self.place_of(boards, rank, place);
                let header = |rank| self.header_of(boards, rank);
                // A panic in a user-defined operator would unwind and leave the other ranks
                // waiting.
                let guard = NoUnwind::new("an operator of a collective operation");
                // SAFETY: all ranks that this one looks at have shown their parts, and leave them
                // there until this rank says that it has finished the step; the rest is the
                // caller's promise.
                let taken = unsafe { call.take(at, header, boards.takes) };
                guard.done();
                taken
            }
            None => Ok(()),
            Some((odd, mine)) => Err(described(boards.rank, (call.kind, mine), odd)),
        };
        self.end(boards, call.looks, hands);
        Some(outcome)
    }

    /// Ends the step because a rank has died, or because all of its data goes by messages.
    pub(in crate::direct) fn give_up(&mut self, boards: &Boards, hands: &mut dyn Hands) {
        self.call_back(hands);
        if self.shown {
            self.end(boards, 0, hands);
        }
    }

    /// Says that this rank has finished the step.
    #[inline]
    fn end(&self, boards: &Boards, seen: u32, hands: &mut dyn Hands) {
        let turns = &boards.tracks[self.track];
        let turn = turns.enter();
        if turns.in_turn() && self.waiting == 0 && seen == boards.others_mask() {
            turns.proves(self.step);
        }
        let tell = boards.end_on_track(self.track, self.step);
        drop(turn);
        if tell {
            boards.wake(boards.others_mask(), hands);
        }
    }
}

impl Boards {
    /// Says that this rank has finished a step of a track, on which this thread has the turn.
    /// Returns whether to wake the others.
    #[inline]
    pub(in crate::direct) fn end_on_track(&self, track: usize, step: u32) -> bool {
        let turns = &self.tracks[track];
        let (done, tell) = turns.end(step);
        // SAFETY: a board of this communicator. Release: pairs with the Acquire load in
        // `least_behind`; all of this rank's reads come before it. (The store happens while this
        // thread has the turn, so that two threads do not store in the wrong order.)
        unsafe { turns.map.done(self.own()) }.store(done, Ordering::Release);
        tell
    }

    /// The mask of the other ranks.
    #[inline]
    pub(in crate::direct) fn others_mask(&self) -> u32 {
        ((1u32 << self.size()) - 1) & !(1 << self.rank)
    }

    /// Wakes some of the others.
    #[inline]
    fn wake(&self, mut ranks: u32, hands: &mut dyn Hands) {
        while ranks != 0 {
            hands.notify(self.processes[ranks.trailing_zeros() as usize]);
            ranks &= ranks - 1;
        }
    }

    /// The first step of a track that not all other ranks are known to have finished.
    fn least_behind(&self, track: usize) -> Option<u32> {
        let map = &self.tracks[track].map;
        let behind = |(board, _)| {
            // SAFETY: a board of this communicator, mapped as long as it lives. Acquire: pairs with
            // the Release store in `end`; all of the rank's reads of this rank's cells and chunks
            // happened before it. (The word is 0 while no operation has ended.)
            unsafe { map.done(board) }.load(Ordering::Acquire)
        };
        self.others()
            .map(behind)
            .reduce(|a, b| if (a.wrapping_sub(b) as i32) < 0 { a } else { b })
    }
}
