//! Operations of two ranks in which contributions may be lent ([`lending`]).
//!
//! Such a step has two ends: this rank has done with the other's contribution, which it says in its
//! cell, and the other has done with what this rank has lent. The step is over at this rank when it
//! has come to both.
//!
//! [`lending`]: crate::direct::tracks::lending

use std::sync::atomic::Ordering;

use portolan_core::Result;
use portolan_core::comm::NoUnwind;
use portolan_core::device::{Exposing, Exposure};

use super::Begun;
use crate::direct::agree::odd::described;
use crate::direct::boards::board::{Place, data_of};
use crate::direct::boards::view::Boards;
use crate::direct::tracks::call::Call;
use crate::direct::tracks::hands::Hands;
use crate::direct::tracks::lending::{
    Category, DONE, LENT, NOT_YET, REFUSED, SHOWN, Wished, Words, is_lendable,
};

/// A contribution that this rank lends.
pub(super) struct Lent {
    exposure: Exposure,
    /// The outcome of this rank's part, once it has done with the other's contribution.
    outcome: Option<Result<()>>,
}

/// What the other rank has done with a contribution that is lent to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// It may read it, now or later.
    Open,
    /// It cannot, and wants it shown.
    Refused,
    /// It will not read it, or not again.
    Over,
}

impl Begun {
    /// Lends the contribution if the other rank wishes it so, and if it lies in one piece. To be
    /// called before it is shown.
    ///
    /// # Safety
    /// The buffers of `call` are the operation's until it is over.
    pub(in crate::direct) unsafe fn lend(
        &mut self,
        boards: &Boards,
        call: &Call<'_>,
        device: &dyn Exposing,
    ) {
        if !boards
            .wished_by_other()
            .is_lent(Category::of(call.kind, call.len))
        {
            return;
        }
        let Some(data) = call.piece() else { return };
        // SAFETY: from the caller. It is withdrawn before the operation is over.
        let exposure = unsafe { device.expose(data, call.len) };
        if let Some(exposure) = exposure {
            self.more().lent = Some(Lent {
                exposure,
                outcome: None,
            });
        }
    }

    /// Shows the contribution, or says that it is lent.
    ///
    /// # Safety
    /// As [`show`](Self::show); the place is free.
    pub(super) unsafe fn show_or_lend(&self, boards: &Boards, call: &Call<'_>, hands: &dyn Hands) {
        let words = self.words(boards, boards.rank);
        let mut took = 0;
        // Relaxed, for all of them: the header is stored afterwards, and nobody looks before.
        match self.lent() {
            Some(lent) => {
                // SAFETY: the cell is this rank's, and free.
                unsafe { words.lend(&lent.exposure) };
                words.how().store(LENT, Ordering::Relaxed);
            }
            None => {
                let wished = boards.wished_by_other();
                let timed = wished.is_timed(Category::of(call.kind, call.len));
                let since = timed.then(|| hands.wtime());
                // SAFETY: from the caller.
                unsafe { call.write(self.place_on(boards, boards.own(), self.place), false) };
                took = since.map_or(0, |since| nanoseconds(hands.wtime() - since));
                words.how().store(SHOWN, Ordering::Relaxed);
            }
        }
        words.took().store(took, Ordering::Relaxed);
        words.seen().store(NOT_YET, Ordering::Relaxed);
        // Either way has this copy, so it is not measured.
        // SAFETY: from the caller.
        unsafe { call.keep_own() };
    }

    /// As [`take`](Self::take).
    ///
    /// # Safety
    /// As [`take`](Self::take).
    #[inline(never)]
    pub(super) unsafe fn take_or_borrow(
        &mut self,
        boards: &Boards,
        call: &Call<'_>,
        hands: &mut dyn Hands,
    ) -> Option<Result<()>> {
        let own = self.words(boards, boards.rank);
        let mut outcome = self.lent_mut().and_then(|lent| lent.outcome.take());
        if outcome.is_none() {
            outcome = match self.take_odd() {
                Some((odd, mine)) => Some(Err(described(boards.rank, (call.kind, mine), odd))),
                // SAFETY: from the caller.
                None => unsafe { self.fetch(boards, call, hands) },
            };
            let seen = if outcome.is_some() { DONE } else { REFUSED };
            if own.seen().load(Ordering::Relaxed) != seen {
                // Release: pairs with the Acquire load in `use_of`; all of this rank's reads of
                // what the other has lent come before it.
                own.seen().store(seen, Ordering::Release);
                boards.wake(boards.others_mask(), hands);
            }
        }
        // SAFETY: from the caller.
        unsafe { self.give_back(boards, call, hands) };
        match (self.lent_mut(), outcome) {
            (None, Some(outcome)) => {
                self.end(boards, call.looks, hands);
                Some(outcome)
            }
            (None, None) => None,
            (Some(lent), outcome) => {
                lent.outcome = outcome;
                None
            }
        }
    }

    /// Whether [`take_or_borrow`](Self::take_or_borrow) may get further.
    pub(super) fn may_end(&self, boards: &Boards) -> bool {
        match self.lent() {
            Some(lent) if lent.outcome.is_some() => self.use_of(boards) != Use::Open,
            _ => true,
        }
    }

    /// Takes the other rank's contribution; `None` if this rank cannot copy from where it is lent,
    /// and waits for it to be shown.
    ///
    /// # Safety
    /// As [`take`](Self::take).
    unsafe fn fetch(
        &self,
        boards: &Boards,
        call: &Call<'_>,
        hands: &mut dyn Hands,
    ) -> Option<Result<()>> {
        if call.looks == 0 {
            return Some(Ok(()));
        }
        let theirs = self.words(boards, 1 - boards.rank);
        let category = Category::of(call.kind, call.len);
        // Acquire: pairs with the Release store in `give_back`, after which the chunk is there.
        let lent = theirs.how().load(Ordering::Acquire) == LENT;
        let timed = boards.wishes.is_timed(category);
        let since = timed.then(|| hands.wtime());
        let outcome = if lent {
            // SAFETY: from the caller.
            unsafe { self.borrow(boards, call, hands) }?
        } else {
            let there = self.place_of(boards, 1 - boards.rank, Place::Chunk);
            // SAFETY: from the caller; the other rank leaves its part there until this rank has
            // finished the step.
            unsafe { take(call, there, boards.takes) }
        };
        let took = theirs.took().load(Ordering::Relaxed);
        let seconds = since
            .filter(|_| lent || took > 0)
            .map(|since| hands.wtime() - since + f64::from(took) * 1e-9);
        boards.wish(boards.wishes.came(category, lent, seconds));
        Some(outcome)
    }

    /// Copies the other rank's contribution from where it is lent; `None` if that is not possible.
    ///
    /// # Safety
    /// As [`take`](Self::take), and the contribution is lent.
    unsafe fn borrow(
        &self,
        boards: &Boards,
        call: &Call<'_>,
        hands: &mut dyn Hands,
    ) -> Option<Result<()>> {
        let (own, other) = (self.words(boards, boards.rank), 1 - boards.rank);
        if own.seen().load(Ordering::Relaxed) == REFUSED {
            return None;
        }
        let direct = call.target();
        // This rank's chunk of the step is free unless its own contribution is there.
        let is_spare = self.lent().is_some() || !call.gives();
        let to = match direct {
            Some(to) => to,
            None if is_spare => self.place_on(boards, boards.own(), Place::Chunk),
            None => return None,
        };
        // SAFETY: the other rank has said so in this step.
        let exposure = unsafe { self.words(boards, other).exposure() };
        // SAFETY: a whole contribution fits into its target, or into a chunk.
        let done = unsafe { hands.pull(boards.processes[other as usize], &exposure, to, call.len) };
        if !done {
            boards.wish(boards.wishes.forbid());
            return None;
        }
        if direct.is_some() {
            return Some(Ok(()));
        }
        // SAFETY: from the caller.
        Some(unsafe { take(call, to, false) })
    }

    /// Ends what this rank lends if the other rank has done with it, or shows it if the other rank
    /// cannot copy it.
    ///
    /// # Safety
    /// As [`take`](Self::take).
    unsafe fn give_back(&mut self, boards: &Boards, call: &Call<'_>, hands: &mut dyn Hands) {
        let Some(lent) = self.lent() else { return };
        match self.use_of(boards) {
            Use::Open => return,
            Use::Over => hands.withdraw(&lent.exposure),
            Use::Refused => {
                hands.withdraw(&lent.exposure);
                // SAFETY: from the caller; the chunk was free when the cell was shown, and this
                // rank has used it for the other's contribution at most, and has done with that.
                unsafe { call.write(self.place_on(boards, boards.own(), self.place), false) };
                let words = self.words(boards, boards.rank);
                // Release: pairs with the Acquire load in `fetch`.
                words.how().store(SHOWN, Ordering::Release);
                boards.wake(boards.others_mask(), hands);
            }
        }
        self.more().lent = None;
    }

    /// Ends what this rank lends, because the other rank has died.
    pub(super) fn call_back(&mut self, hands: &mut dyn Hands) {
        if let Some(lent) = self.more.as_mut().and_then(|more| more.lent.take()) {
            hands.withdraw(&lent.exposure);
        }
    }

    fn lent(&self) -> Option<&Lent> {
        self.more.as_ref()?.lent.as_ref()
    }

    fn lent_mut(&mut self) -> Option<&mut Lent> {
        self.more.as_mut()?.lent.as_mut()
    }

    fn use_of(&self, boards: &Boards) -> Use {
        let other = 1 - boards.rank;
        let header = self.header_of(boards, other);
        if header.step() != self.step {
            return Use::Open;
        }
        if !is_lendable(header) {
            return Use::Over;
        }
        // Acquire: pairs with the Release store in `take_or_borrow`.
        match self.words(boards, other).seen().load(Ordering::Acquire) {
            DONE => Use::Over,
            REFUSED => Use::Refused,
            _ => Use::Open,
        }
    }

    fn words(&self, boards: &Boards, rank: u32) -> Words {
        // SAFETY: a board of this communicator, which stays mapped; the callers know that the
        // header is lendable.
        unsafe { Words::of(data_of(boards.board(rank), self.cell)) }
    }
}

/// A time in whole nanoseconds; at least one, because none would mean that it was not measured.
fn nanoseconds(seconds: f64) -> u32 {
    // A conversion of a number that is too large, or too small, gives the nearest one.
    ((seconds * 1e9) as u32).max(1)
}

/// As [`Call::take_theirs`]. A panic in a user-defined operator would unwind and leave the other
/// rank waiting, so it ends the process.
///
/// # Safety
/// As [`Call::take_theirs`].
unsafe fn take(call: &Call<'_>, from: *mut u8, takes: bool) -> Result<()> {
    let guard = NoUnwind::new("an operator of a collective operation");
    // SAFETY: from the caller.
    let taken = unsafe { call.take_theirs(from, takes) };
    guard.done();
    taken
}

impl Boards {
    /// What the other of two ranks wishes.
    fn wished_by_other(&self) -> Wished {
        // SAFETY: a board of this communicator. Relaxed: a hint; the rank that reads it decides,
        // and says so in its cell.
        let word = unsafe { self.map.loan_wishes(self.board(1 - self.rank)) };
        Wished(word.load(Ordering::Relaxed))
    }

    /// Says what this rank wishes.
    fn wish(&self, wished: Wished) {
        // SAFETY: as above.
        let word = unsafe { self.map.loan_wishes(self.own()) };
        if word.load(Ordering::Relaxed) != wished.0 {
            word.store(wished.0, Ordering::Relaxed);
        }
    }
}
