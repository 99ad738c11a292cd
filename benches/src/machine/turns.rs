//! Two sides that wait for each other, over and over, and the time of one turn.

use std::hint::spin_loop;
use std::panic::resume_unwind;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use crate::pin::{PinError, pin};

/// Number of turns that are timed together, and how often. The shortest time counts, because every
/// disturbance makes it longer.
const TURNS: u32 = 1000;
const BATCHES: u32 = 8;

/// Number of looks after which a side assumes that the other has no processor, and yields its own.
/// That takes tens of microseconds, so no turn that counts is affected. Without the yield, beside
/// other work (another measurement, for example) both sides would spin in vain for whole time
/// slices.
const LOOKS: u32 = 2000;
/// Pauses between two yields. If no other thread wants the processor, a side that makes system
/// calls without pause slows the other side down.
const PAUSES: u32 = 100;

/// Spins until `ready` returns true.
#[inline]
pub(super) fn until(mut ready: impl FnMut() -> bool) {
    let mut looks = 0;
    while !ready() {
        if looks < LOOKS {
            looks += 1;
            spin_loop();
        } else {
            thread::yield_now();
            (0..PAUSES).for_each(|_| spin_loop());
        }
    }
}

/// Two sides that take turns. Turns count from 1.
pub(super) trait Turns: Sync {
    /// What the first side does in a turn.
    fn first(&self, turn: u32);
    /// What the second side does in it.
    fn second(&self, turn: u32);
}

/// A word that is alone in its cache line, and in the pair of lines that the processor fetches
/// together.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Line(AtomicU32);

impl Line {
    pub(super) fn set(&self, value: u32) {
        // Release: partner of the load in `await_value`.
        self.0.store(value, Ordering::Release);
    }

    pub(super) fn await_value(&self, value: u32) {
        until(|| self.is(value));
    }

    fn is(&self, value: u32) -> bool {
        // Acquire: partner of the store in `set`.
        self.0.load(Ordering::Acquire) == value
    }

    fn replace(&self, old: u32, new: u32) {
        // AcqRel and Acquire: partners of each other on the two sides.
        until(|| {
            self.0
                .compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
        });
    }
}

/// A line for each direction, which one side stores and the other loads.
#[derive(Debug, Default)]
pub(super) struct TwoLines {
    pub(super) to_second: Line,
    pub(super) to_first: Line,
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

/// One line for both directions, stored and loaded.
#[derive(Debug, Default)]
pub(super) struct OneLine(Line);

impl Turns for OneLine {
    fn first(&self, turn: u32) {
        self.0.set(2 * turn - 1);
        self.0.await_value(2 * turn);
    }

    fn second(&self, turn: u32) {
        self.0.await_value(2 * turn - 1);
        self.0.set(2 * turn);
    }
}

/// One line for both directions, which each side takes exclusively at once.
#[derive(Debug, Default)]
pub(super) struct Swapped(Line);

impl Turns for Swapped {
    fn first(&self, turn: u32) {
        self.0.replace(2 * turn - 2, 2 * turn - 1);
    }

    fn second(&self, turn: u32) {
        self.0.replace(2 * turn - 1, 2 * turn);
    }
}

/// Two sides on one processor, which yield it to each other and do nothing else: this is the limit
/// for ranks that share a processor.
#[derive(Debug, Default)]
pub(super) struct Yielded(Line);

impl Turns for Yielded {
    fn first(&self, turn: u32) {
        self.0.set(2 * turn - 1);
        while !self.0.is(2 * turn) {
            thread::yield_now();
        }
    }

    fn second(&self, turn: u32) {
        while !self.0.is(2 * turn - 1) {
            thread::yield_now();
        }
        self.0.set(2 * turn);
    }
}

/// Nanoseconds of one way: the shortest of several batches.
pub(super) fn hand_over(one: usize, other: usize, turns: &impl Turns) -> Result<f64, PinError> {
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

/// Runs a function on each of two processors at the same time, and returns the first one's result.
pub(super) fn on_two<R: Send>(
    one: usize,
    other: usize,
    first: impl FnOnce() -> R + Send,
    second: impl FnOnce() + Send,
) -> Result<R, PinError> {
    let (both, refused) = (Barrier::new(2), AtomicBool::new(false));
    // Neither side begins unless both threads are on their processors; otherwise it would wait for
    // ever.
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
    // If the first side has no result, the second was refused, and that error has been returned.
    Ok(first.unwrap_or_else(|| unreachable!("both sides were placed")))
}
