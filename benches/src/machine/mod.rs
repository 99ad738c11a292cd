//! The limits of the machine itself, with no library in between.
//!
//! On a virtual machine these figures change during a measurement: the host moves the virtual
//! processors, and two that were neighbours at one moment share no cache at the next. So the
//! figures are taken before and after every sample, and only samples of the [same
//! phase](same_phase) are compared.

mod copies;
mod relay;
mod turns;

pub use copies::{copy_of_fresh_memory, pull_of_fresh_memory};
pub use relay::{Relayed, relayed};

use crate::pin::PinError;
use turns::{OneLine, Swapped, TwoLines, Yielded, hand_over};

/// The speed at which two processors hand a cache line to each other.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// One way of a cache line that one side stores and the other loads, in nanoseconds. There are
    /// two lines, one for each direction.
    pub load_store: f64,
    /// The same with one line for both directions.
    pub one_line: f64,
    /// One way of a cache line that each side takes by compare-and-swap, in nanoseconds. There is
    /// one line for both directions.
    pub compare_and_swap: f64,
}

/// How much longer a line may take at one moment than at another of the same phase.
const SAME: f64 = 1.25;

/// Whether two hand-over times, in nanoseconds one way, are of one phase of the machine: neither is
/// more than a quarter longer than the other. There are no fixed bounds: with them a machine at 90
/// ± 2 ns would change between two phases, and a machine at 190 and 300 ns would stay in one.
#[must_use]
pub fn same_phase(one: f64, other: f64) -> bool {
    one.max(other) <= SAME * one.min(other)
}

/// How close two processors are, judged by the time of a cache line one way. This is a word for
/// people; [`same_phase`] decides which samples are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Below 40 ns: probably hardware threads of one core.
    Sibling,
    /// 40 to 90 ns: they share a cache.
    Near,
    /// 90 to 180 ns: they are on one chip, some way apart.
    Far,
    /// Above: they share no cache, or other work disturbs them.
    Apart,
}

impl Phase {
    /// The phase for a hand-over time in nanoseconds.
    #[must_use]
    pub fn of(line: f64) -> Self {
        match line {
            ns if ns < 40.0 => Self::Sibling,
            ns if ns < 90.0 => Self::Near,
            ns if ns < 180.0 => Self::Far,
            _ => Self::Apart,
        }
    }

    /// The phase in one word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sibling => "sibling",
            Self::Near => "near",
            Self::Far => "far",
            Self::Apart => "apart",
        }
    }
}

impl Limits {
    /// Measures for some milliseconds between two processors, which should be idle otherwise.
    ///
    /// # Errors
    /// If a thread cannot be put on one of them.
    pub fn measure(one: usize, other: usize) -> Result<Self, PinError> {
        Ok(Self {
            load_store: hand_over(one, other, &TwoLines::default())?,
            one_line: hand_over(one, other, &OneLine::default())?,
            compare_and_swap: hand_over(one, other, &Swapped::default())?,
        })
    }
}

/// Nanoseconds until one thread sees what another thread on the same processor has written, if each
/// calls `sched_yield` while it waits.
///
/// # Errors
/// If a thread cannot be put on it.
pub fn yield_to_each_other(processor: usize) -> Result<f64, PinError> {
    hand_over(processor, processor, &Yielded::default())
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
            eprintln!("skipped: two_processors_hand_over_and_copy: this needs two processors");
            return;
        };
        let limits = Limits::measure(one, other).unwrap();
        for ns in [limits.load_store, limits.one_line, limits.compare_and_swap] {
            assert!(ns > 0.0 && ns.is_finite());
        }
        let seconds = copy_of_fresh_memory(one, other, 100_000).unwrap();
        assert!(seconds > 0.0 && seconds.is_finite());
        let twice = relayed(one, other, 100_000).unwrap();
        for figure in [twice.stream, twice.both, twice.one_way] {
            assert!(figure > 0.0 && figure.is_finite());
        }
        // NaN if it is forbidden.
        assert!(pull_of_fresh_memory(one, other, 100_000).unwrap() != 0.0);
    }

    #[test]
    fn one_processor_is_enough_to_yield() {
        let ns = yield_to_each_other(allowed_processors()[0]).unwrap();
        assert!(ns > 0.0 && ns.is_finite());
    }

    #[test]
    fn a_processor_that_is_not_there_is_an_error_and_no_hang() {
        let here = allowed_processors()[0];
        assert!(Limits::measure(here, usize::MAX).is_err());
        assert!(Limits::measure(usize::MAX, here).is_err());
        assert!(yield_to_each_other(usize::MAX).is_err());
    }

    #[test]
    fn phases_have_their_names() {
        let names = [25.0, 55.0, 130.0, 260.0].map(|line| Phase::of(line).name());
        assert_eq!(names, ["sibling", "near", "far", "apart"]);
    }

    #[test]
    fn one_phase_is_a_matter_of_ratio() {
        assert!(same_phase(88.0, 92.0) && same_phase(92.0, 88.0));
        assert!(same_phase(50.0, 62.5) && !same_phase(50.0, 62.6));
        assert!(!same_phase(190.0, 300.0) && !same_phase(300.0, 190.0));
    }
}
