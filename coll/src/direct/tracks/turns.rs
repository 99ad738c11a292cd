//! The steps of the operations under way on a track, as a rank knows them.
//!
//! An operation on a track is one step. Operations take steps in the order in which they start, and
//! may end in another order. In a word of its board (`TrackMap::done`) a rank says that it has
//! finished all steps before a certain one. A rank that wants to reuse a cell or a chunk looks at
//! these words of the others. It does so once in as many steps as the track has cells, and
//! remembers what it saw.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::direct::boards::board::{Place, TrackMap};
use crate::state::lock;

/// What a rank knows of a track.
///
/// The fields that threads of one rank share are atomics, but are only loaded and stored plainly: a
/// thread must have the turn to use them ([`enter`](Self::enter)), and that orders the accesses. No
/// thread has the turn while an operator runs. So an operator that starts an operation of its own
/// takes the next step, as any other start would, and ends it before the step that the operator
/// belongs to.
#[derive(Debug)]
pub(in crate::direct) struct Turns {
    track: usize,
    /// The offsets of its places.
    pub(in crate::direct) map: TrackMap,
    /// The step of the next operation.
    next: AtomicU32,
    /// All other ranks have finished the steps before this one.
    proved: AtomicU32,
    /// This rank has finished the steps before this one.
    done: AtomicU32,
    /// Which steps from `done` on are over as well, as a mask: bit 0 stands for step `done`.
    over: AtomicU64,
    /// The turn, if the rank may have several threads.
    turn: Option<Mutex<()>>,
}

/// Not 0, because every cell contains 0 at the beginning.
const FIRST: u32 = 1;

impl Turns {
    pub(in crate::direct) fn new(track: usize, map: TrackMap, many_threads: bool) -> Self {
        Self {
            track,
            map,
            next: AtomicU32::new(FIRST),
            proved: AtomicU32::new(FIRST),
            done: AtomicU32::new(FIRST),
            over: AtomicU64::new(0),
            turn: many_threads.then(Mutex::default),
        }
    }

    /// Waits for the turn, which lasts as long as the returned guard. With one thread it costs
    /// nothing.
    #[inline]
    pub(in crate::direct) fn enter(&self) -> Option<MutexGuard<'_, ()>> {
        self.turn.as_ref().map(lock)
    }

    /// The step that [`take`](Self::take) takes next.
    #[inline]
    pub(in crate::direct) fn upcoming(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    /// Takes the step of an operation that starts now.
    #[inline]
    pub(in crate::direct) fn take(&self) -> u32 {
        let step = self.upcoming();
        self.next.store(step.wrapping_add(1), Ordering::Relaxed);
        step
    }

    /// How many steps a step with data may be ahead of those that all ranks have finished.
    #[inline]
    fn limit(&self, place: Place) -> u32 {
        match place {
            Place::Cell => self.map.cells,
            Place::Chunk => self.map.chunks,
        }
    }

    /// Whether the place of a step may be written. `look` finds the first step that not all others
    /// have finished.
    #[inline]
    pub(in crate::direct) fn has_room(
        &self,
        step: u32,
        place: Place,
        look: impl FnOnce() -> Option<u32>,
    ) -> bool {
        let limit = self.limit(place);
        if step.wrapping_sub(self.done.load(Ordering::Relaxed)) >= limit {
            return false;
        }
        // The difference may be negative: if this rank is the late one, the others may have
        // finished this very step, and later ones.
        let fits = || {
            let ahead = step.wrapping_sub(self.proved.load(Ordering::Relaxed));
            (ahead as i32) < limit as i32
        };
        if fits() {
            return true;
        }
        if let Some(least) = look() {
            self.proves(least);
        }
        fits()
    }

    /// Records that all others have finished the steps before this one.
    #[inline]
    pub(in crate::direct) fn proves(&self, step: u32) {
        let known = self.proved.load(Ordering::Relaxed);
        if (step.wrapping_sub(known) as i32) > 0 {
            self.proved.store(step, Ordering::Relaxed);
        }
    }

    /// A step that was shown is over. Returns the step before which all are over, and whether to
    /// wake sleeping ranks so that they see it. They are not woken every time: a rank that waits
    /// for room for a chunk may learn of it one step late, when a step that all ranks have started
    /// already is over.
    #[inline]
    pub(in crate::direct) fn end(&self, step: u32) -> (u32, bool) {
        let before = self.done.load(Ordering::Relaxed);
        let over = self.over.load(Ordering::Relaxed);
        let ended = if over == 0 && step == before {
            1
        } else {
            let over = over | 1 << step.wrapping_sub(before);
            let ended = over.trailing_ones();
            let left = over.checked_shr(ended).unwrap_or(0);
            self.over.store(left, Ordering::Relaxed);
            ended
        };
        let done = before.wrapping_add(ended);
        self.done.store(done, Ordering::Relaxed);
        let each = (self.map.chunks / 2).max(1);
        // The numbers of places are powers of two, so this tests whether a multiple was passed.
        (done, (before ^ done) & !(each - 1) != 0)
    }

    /// Whether operations on the track are started one after the other. If so, a rank that shows a
    /// step has finished all steps before it.
    #[inline]
    pub(in crate::direct) fn in_turn(&self) -> bool {
        self.track > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::boards::board::{CHUNK, Map};

    fn turns(many_threads: bool) -> Turns {
        Turns::new(0, Map::new(2, CHUNK).track(0), many_threads)
    }

    #[test]
    fn what_ends_out_of_order_counts_when_all_before_it_have_ended() {
        let turns = turns(false);
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
        let late = || AtomicU32::new(u32::MAX);
        let turns = Turns {
            next: late(),
            proved: late(),
            done: late(),
            ..turns(true)
        };
        let (last, first) = (turns.take(), turns.take());
        assert_eq!((last, first), (u32::MAX, 0));
        assert!(turns.has_room(first, Place::Chunk, || None));
        assert_eq!(turns.end(first).0, u32::MAX);
        assert_eq!(turns.end(last).0, 1);
    }

    #[test]
    fn a_place_is_free_when_everybody_has_its_last_step_behind_it() {
        let turns = turns(false);
        let limit = turns.map.chunks;
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
