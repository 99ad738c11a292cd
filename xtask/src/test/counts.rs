//! Counts of checks, and the output of test programs from which they are read.

use std::collections::BTreeMap;

/// How many checks passed, failed and were skipped, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: u64,
    pub(super) failed: u64,
    /// Reasons for skipping: how often each occurred, and the first check that had it.
    pub(super) skips: BTreeMap<String, (u64, String)>,
    /// Lines that help a person to understand the failures.
    pub(super) failures: Vec<String>,
}

impl Counts {
    /// How many were skipped.
    pub(super) fn skipped(&self) -> u64 {
        self.skips.values().map(|(count, _)| count).sum()
    }

    /// Notes that the check `what` was skipped.
    pub(super) fn skip(&mut self, what: &str, reason: &str) {
        let entry = self
            .skips
            .entry(reason.to_owned())
            .or_insert_with(|| (0, what.to_owned()));
        entry.0 += 1;
    }

    /// Adds the counts of `other`.
    pub(super) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        for (reason, (count, what)) in &other.skips {
            let entry = self
                .skips
                .entry(reason.clone())
                .or_insert_with(|| (0, what.clone()));
            entry.0 += count;
        }
        self.failures.extend_from_slice(&other.failures);
    }
}

/// How a program reports its checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// It does not: the exit code is the only check.
    ExitCode,
    /// As libtest does: the `test result:` lines count. A line `skipped: WHAT: WHY` says that a
    /// test did not apply and returned early.
    Libtest,
    /// As the conformance programs and the thread sanitizer's harness do: `passed: WHAT` and
    /// `skipped: WHAT: WHY`, a line per case.
    Cases,
    /// As criterion does when it only tries the benches: `Testing NAME`, and `Success` if it ran. A
    /// line `DEVICE is missing: WHY` says that a device was left out.
    Benches,
}

/// The text that libtest prints after the name of a test that has run for a minute.
const SLOW: &str = " has been running for over ";

/// Reads the output of one program, line by line.
#[derive(Debug)]
pub(super) struct Reader {
    dialect: Dialect,
    counts: Counts,
    /// Tests of the present test binary that were ignored: name and reason.
    ignored: Vec<(String, String)>,
    /// Tests of the present test binary that returned because they do not apply: name and reason.
    returned: Vec<(String, String)>,
    /// The reason that the program gave for all tests that it ignores.
    default_reason: String,
    /// Tests that have run for long and have not ended.
    slow: Vec<String>,
    /// The last case that passed.
    last: Option<String>,
}

impl Reader {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            counts: Counts::default(),
            ignored: Vec::new(),
            returned: Vec::new(),
            default_reason: "ignored; no reason given".to_owned(),
            slow: Vec::new(),
            last: None,
        }
    }

    /// The tests that are known to be running.
    pub(super) fn running(&self) -> Vec<String> {
        let after = self
            .last
            .iter()
            .map(|case| format!("what comes after {case}"));
        self.slow.iter().cloned().chain(after).collect()
    }

    /// Counts a program that did not end by itself.
    pub(super) fn hung(&mut self) {
        self.counts.failed += 1;
        self.slow.clear();
    }

    /// Keeps lines about a failure, to be printed at the very end.
    pub(super) fn tells(&mut self, lines: impl IntoIterator<Item = String>) {
        self.counts.failures.extend(lines);
    }

    /// Handles a line.
    pub(super) fn line(&mut self, line: &str) {
        match self.dialect {
            Dialect::ExitCode => {}
            Dialect::Libtest => self.libtest(line),
            Dialect::Cases => self.case(line),
            Dialect::Benches => self.bench(line),
        }
    }

    fn libtest(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            return self.result(result);
        }
        if let Some(reason) = line.strip_prefix("ignored: ") {
            reason.clone_into(&mut self.default_reason);
            return;
        }
        let test = line.strip_prefix("test ");
        if let Some((name, _)) = test.and_then(|rest| rest.split_once(SLOW)) {
            self.slow.push(name.to_owned());
            return;
        }
        let named = test.and_then(|rest| rest.rsplit_once(" ... "));
        if let Some((name, _)) = named {
            self.slow.retain(|slow| slow != name);
        }
        if let Some((name, verdict)) = named
            && let Some(rest) = verdict.strip_prefix("ignored")
        {
            let reason = rest.strip_prefix(", ").unwrap_or(&self.default_reason);
            self.ignored.push((name.to_owned(), reason.to_owned()));
            return;
        }
        // If tests run one at a time, the name of the test precedes its output on the same line.
        let said = named.map_or(line, |(_, said)| said);
        if let Some((what, reason)) = skipped(said) {
            self.returned.push((what.to_owned(), reason.to_owned()));
        }
    }

    /// Handles the closing line of a test binary.
    fn result(&mut self, result: &str) {
        let passed = number_before(result, " passed");
        self.counts.failed += number_before(result, " failed");
        let mut left = number_before(result, " ignored");
        for (name, reason) in self.ignored.drain(..).take(left as usize) {
            self.counts.skip(&name, &reason);
            left -= 1;
        }
        for _ in 0..left {
            self.counts.skip("a test", &self.default_reason);
        }
        // libtest counts these tests as passed. Here they count as skipped, and no test counts
        // twice.
        let mut applied = passed;
        for (what, reason) in self.returned.drain(..).take(passed as usize) {
            self.counts.skip(&what, &reason);
            applied -= 1;
        }
        self.counts.passed += applied;
    }

    fn case(&mut self, line: &str) {
        if let Some(case) = line.strip_prefix("passed: ") {
            self.counts.passed += 1;
            self.last = Some(case.to_owned());
        } else if let Some((what, reason)) = skipped(line) {
            self.counts.skip(what, reason);
        }
    }

    fn bench(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("Testing ") {
            self.slow = vec![name.to_owned()];
        } else if line == "Success" {
            self.counts.passed += 1;
            self.slow.clear();
        } else if let Some((device, reason)) = line.split_once(" is missing: ") {
            self.counts.skip(device, reason);
        }
    }

    /// The counts, given whether the program itself succeeded.
    pub(super) fn finish(self, succeeded: bool) -> Counts {
        let mut counts = self.counts;
        if self.dialect == Dialect::ExitCode && succeeded {
            counts.passed += 1;
        }
        // A crash, a time-out or a compile error has no line of its own.
        if !succeeded && counts.failed == 0 {
            counts.failed = 1;
        }
        counts
    }
}

/// The number that precedes `word`.
fn number_before(text: &str, word: &str) -> u64 {
    let before = text.split_once(word).map_or("", |(before, _)| before);
    let digits = before
        .rsplit(|c: char| !c.is_ascii_digit())
        .next()
        .unwrap_or("");
    digits.parse().unwrap_or(0)
}

/// Parses `skipped: WHAT: WHY`.
fn skipped(line: &str) -> Option<(&str, &str)> {
    let rest = line.strip_prefix("skipped: ")?;
    Some(rest.split_once(": ").unwrap_or((rest, "no reason given")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dialect: Dialect, succeeded: bool, lines: &str) -> Counts {
        let mut reader = Reader::new(dialect);
        lines.lines().for_each(|line| reader.line(line));
        reader.finish(succeeded)
    }

    const OK: &str = "test result: ok. 5 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out";

    #[test]
    fn libtest_results_add_up() {
        let one = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 9 filtered out";
        let counts = read(Dialect::Libtest, false, &format!("{OK}\nnoise\n{one}\n"));
        assert_eq!((counts.passed, counts.failed, counts.skipped()), (17, 3, 2));
    }

    #[test]
    fn benches_that_ran_are_counted_and_devices_that_did_not() {
        let lines = "Testing rate/shm/8\nSuccess\nofi is missing: no library\nTesting rate/ofi/8\n";
        let mut reader = Reader::new(Dialect::Benches);
        lines.lines().for_each(|line| reader.line(line));
        assert_eq!(reader.running(), ["rate/ofi/8"]);
        let counts = reader.finish(false);
        assert_eq!((counts.passed, counts.failed, counts.skipped()), (1, 1, 1));
        assert!(counts.skips.contains_key("no library"));
    }

    #[test]
    fn reasons_are_kept() {
        let lines = format!(
            "ignored: needs a package\ntest a::b ... ignored, needs a GPU\ntest c ... ignored\n\
             skipped: shm pull at 2 ranks: refused: by a filter\n{OK}\n"
        );
        let counts = read(Dialect::Libtest, true, &lines);
        assert_eq!((counts.passed, counts.failed, counts.skipped()), (4, 0, 3));
        let reasons: Vec<_> = counts.skips.keys().map(String::as_str).collect();
        assert_eq!(
            reasons,
            ["needs a GPU", "needs a package", "refused: by a filter"]
        );
    }

    #[test]
    fn a_skip_on_the_line_of_a_test_counts() {
        let lines = format!("test x::y ... skipped: x: no reason today\nok\n{OK}");
        let counts = read(Dialect::Libtest, true, &lines);
        assert_eq!(counts.skips["no reason today"], (1, "x".to_owned()));
    }

    #[test]
    fn cases_are_counted_by_line() {
        let lines = "passed: a::b\nskipped: c::d: needs 3 ranks\npassed: e::f\nsummary: x";
        let counts = read(Dialect::Cases, true, lines);
        assert_eq!((counts.passed, counts.failed, counts.skipped()), (2, 0, 1));
    }

    #[test]
    fn a_program_that_dies_without_a_word_has_failed() {
        for dialect in [Dialect::ExitCode, Dialect::Libtest, Dialect::Cases] {
            assert_eq!(read(dialect, false, "").failed, 1, "{dialect:?}");
        }
        assert_eq!(read(Dialect::ExitCode, true, "").passed, 1);
        assert_eq!(read(Dialect::Libtest, true, "").passed, 0);
    }
}
