//! What the machine can do at best, with nobody's library in between.
//!
//! On a virtual machine these figures change while one looks: the host moves the virtual processors,
//! and two that were neighbours in one moment share no cache in the next. So the figures are taken
//! before and after every sample, and samples are compared that were taken in the same [`Phase`].

use std::hint::{black_box, spin_loop};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use crate::pin::{PinError, pin};

/// Turns that are timed at once, and how often: the least is quoted, because everything that
/// disturbs makes it longer.
const TURNS: u32 = 1000;
const BATCHES: u32 = 8;
/// How often memory is copied.
const COPIES: u32 = 30;

/// What two processors can do for each other.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// One way of a cache line that one side stores and the other loads, in nanoseconds: two lines,
    /// one for each direction.
    pub load_store: f64,
    /// One way of a cache line that is taken by compare-and-swap, in nanoseconds: one line for both
    /// directions.
    pub compare_and_swap: f64,
}

/// How near two processors are to each other, by the time that a cache line takes one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Below 40 ns: they seem to be threads of one core.
    Sibling,
    /// 40 to 90 ns: they share a cache.
    Near,
    /// Above: they share none, or somebody else uses them.
    Far,
}

impl Phase {
    /// In one word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sibling => "sibling",
            Self::Near => "near",
            Self::Far => "far",
        }
    }
}

impl Limits {
    /// Measures for some milliseconds between two processors, which should have nothing else to do.
    ///
    /// # Errors
    /// If a thread cannot be put on one of them.
    pub fn measure(one: usize, other: usize) -> Result<Self, PinError> {
        Ok(Self {
            load_store: hand_over(one, other, &TwoLines::default())?,
            compare_and_swap: hand_over(one, other, &OneLine::default())?,
        })
    }

    /// The phase that they show.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.load_store {
            ns if ns < 40.0 => Phase::Sibling,
            ns if ns < 90.0 => Phase::Near,
            _ => Phase::Far,
        }
    }
}

/// Two sides that wait for each other, over and over. Turns count from 1.
trait Turns: Sync {
    /// What the first side does in a turn.
    fn first(&self, turn: u32);
    /// What the second side does in it.
    fn second(&self, turn: u32);
}

/// A word that is alone in its cache line, and in the pair of lines that is fetched together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU32);

impl Line {
    fn set(&self, value: u32) {
        // Release: partner of the load in `await_value`.
        self.0.store(value, Ordering::Release);
    }

    fn await_value(&self, value: u32) {
        // Acquire: partner of the store in `set`.
        while self.0.load(Ordering::Acquire) != value {
            spin_loop();
        }
    }

    fn replace(&self, old: u32, new: u32) {
        // AcqRel and Acquire: partners of each other on the two sides.
        while self
            .0
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            spin_loop();
        }
    }
}

/// A line for each direction, which one side stores and the other loads.
#[derive(Debug, Default)]
struct TwoLines {
    to_second: Line,
    to_first: Line,
}

impl Turns for TwoLines {
    fn first(&self, turn: u32) {
        self.to_second.set(turn);
        self.to_first.await_value(turn);
    }

    fn second(&self, turn: u32) {
        self.to_second.await_value(turn);
        self.to_first.set(turn);
    }
}

/// One line for both directions, which is taken exclusive at once.
#[derive(Debug, Default)]
struct OneLine(Line);

impl Turns for OneLine {
    fn first(&self, turn: u32) {
        self.0.replace(2 * turn - 2, 2 * turn - 1);
    }

    fn second(&self, turn: u32) {
        self.0.replace(2 * turn - 1, 2 * turn);
    }
}

/// Nanoseconds of one way: the least of some batches.
fn hand_over(one: usize, other: usize, turns: &impl Turns) -> Result<f64, PinError> {
    let all = 1..=BATCHES * TURNS;
    let first = || {
        let mut least = f64::INFINITY;
        for batch in 0..BATCHES {
            let begun = Instant::now();
            for turn in 1..=TURNS {
                turns.first(batch * TURNS + turn);
            }
            least = least.min(begun.elapsed().as_secs_f64());
        }
        least * 1e9 / f64::from(2 * TURNS)
    };
    let second = || all.clone().for_each(|turn| turns.second(turn));
    on_two(one, other, first, second)
}

/// Bytes per second, in units of 10⁶, at which one processor copies what the other has just
/// written: the best of some copies.
///
/// # Errors
/// If a thread cannot be put on one of them.
pub fn copy_of_fresh_memory(one: usize, other: usize, bytes: usize) -> Result<f64, PinError> {
    let turns = TwoLines::default();
    let shared = Mutex::new(vec![0_u8; bytes]);
    // Never contended: the turns say whose it is.
    let hold = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    let reader = || {
        let mut own = vec![1_u8; bytes];
        let mut least = f64::INFINITY;
        for turn in 1..=COPIES {
            turns.to_second.set(turn);
            turns.to_first.await_value(turn);
            let fresh = hold();
            let begun = Instant::now();
            own.copy_from_slice(black_box(&fresh));
            least = least.min(begun.elapsed().as_secs_f64());
            black_box(&mut own);
        }
        bytes as f64 / least / 1e6
    };
    let writer = || {
        for turn in 1..=COPIES {
            turns.to_second.await_value(turn);
            black_box(&mut *hold()).fill(turn as u8);
            turns.to_first.set(turn);
        }
    };
    on_two(one, other, reader, writer)
}

/// Runs a function on each of two processors at a time; the result is the first one's.
fn on_two<R: Send>(
    one: usize,
    other: usize,
    first: impl FnOnce() -> R + Send,
    second: impl FnOnce() + Send,
) -> Result<R, PinError> {
    let (both, refused) = (Barrier::new(2), AtomicBool::new(false));
    // Neither side begins unless both are where they belong: it would wait for ever.
    let placed = |processor| {
        let pinned = pin(processor);
        // Relaxed: the barrier orders it before the load.
        refused.fetch_or(pinned.is_err(), Ordering::Relaxed);
        both.wait();
        let go = !refused.load(Ordering::Relaxed);
        pinned.map(|()| go)
    };
    let (first, second) = thread::scope(|scope| {
        let second = scope.spawn(|| {
            placed(other).map(|go| {
                if go {
                    second();
                }
            })
        });
        let first = scope.spawn(|| placed(one).map(|go| go.then(first)));
        (first.join(), second.join())
    });
    let first = first.unwrap_or_else(|panic| resume_unwind(panic))?;
    second.unwrap_or_else(|panic| resume_unwind(panic))?;
    // The second side would have been the one that was refused.
    Ok(first.unwrap_or_else(|| unreachable!("both sides were placed")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allowed_processors;

    #[test]
    #[allow(clippy::print_stderr, reason = "a skip has a reason that is seen")]
    fn two_processors_hand_over_and_copy() {
        let processors = allowed_processors();
        let [one, other, ..] = processors[..] else {
            eprintln!("ignored: this needs two processors");
            return;
        };
        let limits = Limits::measure(one, other).unwrap();
        assert!(limits.load_store > 0.0 && limits.load_store.is_finite());
        assert!(limits.compare_and_swap > 0.0 && limits.compare_and_swap.is_finite());
        let rate = copy_of_fresh_memory(one, other, 100_000).unwrap();
        assert!(rate > 0.0 && rate.is_finite());
    }

    #[test]
    fn a_processor_that_is_not_there_is_an_error_and_no_hang() {
        let here = allowed_processors()[0];
        assert!(Limits::measure(here, usize::MAX).is_err());
        assert!(Limits::measure(usize::MAX, here).is_err());
    }

    #[test]
    fn phases_have_their_bounds() {
        let phase = |load_store| {
            let limits = Limits {
                load_store,
                compare_and_swap: 1.0,
            };
            limits.phase().name()
        };
        assert_eq!(phase(25.0), "sibling");
        assert_eq!(phase(55.0), "near");
        assert_eq!(phase(260.0), "far");
    }
}
