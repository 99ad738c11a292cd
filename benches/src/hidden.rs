//! Operations that are hidden behind a computation.

use std::hint::black_box;

use crate::process::monotonic_nanoseconds;

/// The share of an operation in percent that is hidden behind a computation. `alone` is how long it
/// takes without one, `with` how long the two take together, and `compute` how long the computation
/// in between takes.
///
/// The time by which the two together exceed the computation was not hidden behind it.
pub(crate) fn hidden_share(alone: f64, with: f64, compute: f64) -> f64 {
    let open = (with - compute) / alone;
    let hidden = if alone > 0.0 { 1.0 - open } else { 0.0 };
    100.0 * hidden.clamp(0.0, 1.0)
}

/// A computation that the compiler cannot remove.
pub(crate) fn compute(turns: u64) {
    let mut value = 1_u64;
    for turn in 0..turns {
        value = black_box(value.wrapping_mul(turn | 1));
    }
}

/// How long a turn of [`compute`] takes.
pub(crate) fn seconds_of_a_turn() -> f64 {
    const TURNS: u64 = 100_000;
    compute(TURNS);
    let begun = monotonic_nanoseconds();
    compute(TURNS);
    (monotonic_nanoseconds() - begun).max(1) as f64 * 1e-9 / TURNS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exceeds_the_computation_is_not_hidden() {
        // Of an operation of 4 seconds beside a computation of 16.
        for (with, share) in [(16.0, 100.0), (17.0, 75.0), (18.0, 50.0), (20.0, 0.0)] {
            assert_eq!(hidden_share(4.0, with, 16.0), share);
        }
        // A computation that is shorter than the operation hides as much as it lasts.
        assert_eq!(hidden_share(4.0, 4.0, 1.0), 25.0);
    }

    /// Clocks are read at different moments, and an operation may be slower beside a computation.
    #[test]
    fn it_is_a_share_whatever_the_clock_says() {
        assert_eq!(hidden_share(4.0, 15.9, 16.0), 100.0);
        assert_eq!(hidden_share(4.0, 30.0, 16.0), 0.0);
        assert_eq!(hidden_share(0.0, 16.0, 16.0), 0.0);
    }
}
