//! Whose turn it is on a track: what a rank knows of the steps of the operations that are under way on it.
//!
//! An operation on a track is one step. Operations take steps in the order in which they start, and may end in
//! another. A rank says in a word of its board (`Map::track_done`) before which step it has all behind it; who wants
//! to write a cell or a chunk again looks at these words of the others, once in as many steps as the track has
//! cells, and remembers what it saw.

use super::board;
use super::steps::Place;

/// What a rank knows of a track.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    track: usize,
    /// The step of the next operation.
    next: u32,
    /// All other ranks have the steps before this one behind them.
    proved: u32,
    /// This rank has.
    done: u32,
    /// Which steps from `done` on are over as well: bit 0 is `done`'s.
    over: u64,
}

/// Not 0, which is in every cell at the beginning.
const FIRST: u32 = 1;

impl Turns {
    pub(super) fn new(track: usize) -> Self {
        Self {
            track,
            next: FIRST,
            proved: FIRST,
            done: FIRST,
            over: 0,
        }
    }

    /// The step of an operation that starts now.
    #[inline]
    pub(super) fn take(&mut self) -> u32 {
        let step = self.next;
        self.next = step.wrapping_add(1);
        step
    }

    /// How far ahead of what all have behind them a step with data there may be.
    #[inline]
    fn limit(&self, place: Place) -> u32 {
        match place {
            Place::Cell => board::cells(self.track),
            Place::Chunk => board::chunks(self.track),
        }
    }

    /// Whether the place of a step may be written; `look` finds out the least that the others have behind them.
    #[inline]
    pub(super) fn has_room(
        &mut self,
        step: u32,
        place: Place,
        look: impl FnOnce() -> Option<u32>,
    ) -> bool {
        let limit = self.limit(place);
        if step.wrapping_sub(self.done) >= limit {
            return false;
        }
        // What all others have behind them may be this very step, and more: it is this rank that is late.
        let ahead = |proved: u32| step.wrapping_sub(proved) as i32;
        if ahead(self.proved) >= limit as i32
            && let Some(least) = look()
        {
            self.proves(least);
        }
        ahead(self.proved) < limit as i32
    }

    /// All others have the steps before this one behind them.
    #[inline]
    pub(super) fn proves(&mut self, step: u32) {
        if (step.wrapping_sub(self.proved) as i32) > 0 {
            self.proved = step;
        }
    }

    /// A step that was shown is over. Returns before which step all are, and whether those should hear of it who sleep:
    /// not every time, but before they could wait for it.
    #[inline]
    pub(super) fn end(&mut self, step: u32) -> (u32, bool) {
        let before = self.done;
        self.over |= 1 << step.wrapping_sub(before);
        let ended = self.over.trailing_ones();
        self.over = self.over.checked_shr(ended).unwrap_or(0);
        self.done = before.wrapping_add(ended);
        let each = (board::chunks(self.track) / 2).max(1);
        (self.done, before / each != self.done / each)
    }

    /// Whether operations on the track are started one after the other: then whoever shows a step has all before it
    /// behind it.
    #[inline]
    pub(super) fn in_turn(&self) -> bool {
        self.track > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_out_of_order_counts_when_all_before_it_have_ended() {
        let mut turns = Turns::new(0);
        let steps: Vec<u32> = (0..6).map(|_| turns.take()).collect();
        assert_eq!(steps, [1, 2, 3, 4, 5, 6]);
        assert_eq!(turns.end(3).0, 1);
        assert_eq!(turns.end(2).0, 1);
        assert_eq!(turns.end(1).0, 4);
        assert_eq!(turns.end(4).0, 5);
        assert_eq!(turns.end(6).0, 5);
        assert_eq!(turns.end(5).0, 7);
    }

    #[test]
    fn steps_go_around_the_end_of_their_numbers() {
        let mut turns = Turns {
            next: u32::MAX,
            proved: u32::MAX,
            done: u32::MAX,
            ..Turns::new(0)
        };
        let (last, first) = (turns.take(), turns.take());
        assert_eq!((last, first), (u32::MAX, 0));
        assert!(turns.has_room(first, Place::Chunk, || None));
        assert_eq!(turns.end(first).0, u32::MAX);
        assert_eq!(turns.end(last).0, 1);
    }

    #[test]
    fn a_place_is_free_when_everybody_has_its_last_step_behind_it() {
        let mut turns = Turns::new(0);
        let limit = board::chunks(0);
        let step = FIRST + limit;
        assert!(!turns.has_room(step, Place::Chunk, || unreachable!("the own step is first")));
        turns.end(FIRST);
        assert!(!turns.has_room(step, Place::Chunk, || Some(FIRST)));
        assert!(turns.has_room(step, Place::Chunk, || Some(FIRST + 1)));
        assert!(turns.has_room(step, Place::Cell, || unreachable!("cells are many")));
        turns.proves(step + 5);
        assert!(turns.has_room(step, Place::Chunk, || unreachable!("all are further")));
    }
}
