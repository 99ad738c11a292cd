//! The table at the end of a run. It tells what failed to a reader who sees only the last lines of
//! the output.

use std::fmt::Write;
use std::time::Duration;

use super::counts::Counts;

/// A lane that has ended.
pub(super) struct Row {
    pub(super) lane: &'static str,
    pub(super) counts: Counts,
    /// Whether the lane as a whole does not apply to this machine.
    pub(super) not_here: bool,
    pub(super) time: Duration,
}

impl Row {
    /// Whether the lane failed: a check failed, or none ran.
    pub(super) fn failed(&self) -> bool {
        self.counts.failed > 0 || self.ran_nothing()
    }

    fn ran_nothing(&self) -> bool {
        !self.not_here && self.counts.passed + self.counts.failed == 0
    }
}

/// The table, the reasons for skipping, and the closing line.
pub(super) fn show(rows: &[Row]) -> String {
    let mut text = String::from("\nlane           passed   failed  skipped     time\n");
    let mut total = Counts::default();
    let mut empty = 0;
    for row in rows {
        let counts = &row.counts;
        let note = if row.ran_nothing() {
            "  ran nothing: a failure"
        } else {
            ""
        };
        empty += u64::from(row.ran_nothing());
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:<12} {:>8} {:>8} {:>8} {:>6} s{note}",
            row.lane,
            counts.passed,
            counts.failed,
            counts.skipped(),
            row.time.as_secs(),
        );
        total.add(counts);
    }
    for row in rows {
        for (reason, (count, what)) in &row.counts.skips {
            let _ = writeln!(
                text,
                "skipped in {}: {count} × {reason} (first: {what})",
                row.lane
            );
        }
    }
    for row in rows {
        for line in &row.counts.failures {
            let _ = writeln!(text, "failed in {}: {line}", row.lane);
        }
    }
    let failed = total.failed + empty;
    let _ = write!(
        text,
        "\n{} passed, {failed} failed, {} skipped",
        total.passed,
        total.skipped()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(passed: u64, failed: u64, not_here: bool) -> Row {
        let counts = Counts {
            passed,
            failed,
            ..Counts::default()
        };
        Row {
            lane: "unit",
            counts,
            not_here,
            time: Duration::ZERO,
        }
    }

    #[test]
    fn a_lane_that_ran_nothing_fails() {
        assert!(row(0, 0, false).failed());
        assert!(!row(0, 0, true).failed());
        assert!(row(4, 1, false).failed());
        assert!(!row(4, 0, false).failed());
    }

    #[test]
    fn the_last_line_counts_everything() {
        let mut skipping = row(2, 0, false);
        skipping.counts.skip("a", "no reason");
        let text = show(&[skipping, row(0, 0, false), row(1, 2, false)]);
        assert_eq!(text.lines().last(), Some("3 passed, 3 failed, 1 skipped"));
        assert!(
            text.contains("skipped in unit: 1 × no reason (first: a)"),
            "{text}"
        );
    }

    #[test]
    fn what_failed_is_said_behind_the_table() {
        let mut failing = row(2, 1, false);
        failing.counts.failures.push("a::b".to_owned());
        let text = show(&[failing, row(1, 0, false)]);
        let last: Vec<_> = text.lines().rev().take(3).collect();
        assert_eq!(
            last,
            ["3 passed, 1 failed, 0 skipped", "", "failed in unit: a::b"]
        );
    }
}
