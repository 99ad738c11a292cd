//! The lanes, and the environment in which they run.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::counts::{Counts, Dialect};
use super::leftovers::{self, Leftovers};
use super::step::{Limits, Step};
use super::{ranks, sanitize, stock};
use crate::{Failure, Repo};

/// One way of testing the tree.
pub(super) struct Lane {
    pub(super) name: &'static str,
    /// A description in one line.
    pub(super) about: &'static str,
    pub(super) run: fn(&mut Run<'_>) -> Result<(), Failure>,
}

/// All lanes, in the order in which they run: the lanes that fail fast come first, and the lane
/// that looks for leftovers comes last.
pub(super) const LANES: &[Lane] = &[
    Lane {
        name: "fmt",
        about: "the sources are formatted",
        run: stock::fmt,
    },
    Lane {
        name: "layout",
        about: "the rules of the house hold",
        run: stock::layout,
    },
    Lane {
        name: "clippy",
        about: "no lint complains, in any target",
        run: stock::clippy,
    },
    Lane {
        name: "unit",
        about: "unit, property, integration and doc tests",
        run: stock::unit,
    },
    Lane {
        name: "examples",
        about: "every example gives what it should",
        run: stock::examples,
    },
    Lane {
        name: "benches",
        about: "every bench runs, over every device",
        run: stock::benches,
    },
    Lane {
        name: "conformance",
        about: "the suite, ranks as processes",
        run: ranks::conformance,
    },
    Lane {
        name: "interop",
        about: "with MPICH on the other side",
        run: ranks::interop,
    },
    Lane {
        name: "instructions",
        about: "an 8-byte message costs what is recorded",
        run: stock::instructions,
    },
    Lane {
        name: "loom",
        about: "every interleaving of the lock-free parts",
        run: sanitize::loom,
    },
    Lane {
        name: "asan",
        about: "the tests under the address sanitizer",
        run: sanitize::asan,
    },
    Lane {
        name: "tsan",
        about: "rings, inbox and bell: thread sanitizer",
        run: sanitize::tsan,
    },
    Lane {
        name: "docs",
        about: "the documentation builds, links hold",
        run: stock::docs,
    },
    Lane {
        name: "leftovers",
        about: "nothing of ours is left behind",
        run: leftovers::lane,
    },
];

/// Longest time of one program of a lane: about four times that of the longest, a build from
/// scratch included.
const WHOLE: Duration = Duration::from_secs(40 * 60);

/// Longest time without a sign of progress: about four times that of the longest test.
const QUIET: Duration = Duration::from_secs(4 * 60);

/// A running lane.
pub(super) struct Run<'a> {
    pub(super) repo: &'a Repo,
    /// Whether the full matrix was asked for.
    pub(super) all: bool,
    /// Leftovers from before the first lane.
    pub(super) before: &'a Leftovers,
    log: File,
    verbose: bool,
    counts: Counts,
    not_here: bool,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        repo: &'a Repo,
        log: File,
        before: &'a Leftovers,
        all: bool,
        verbose: bool,
    ) -> Self {
        Self {
            repo,
            all,
            before,
            log,
            verbose,
            counts: Counts::default(),
            not_here: false,
        }
    }

    /// Runs a program and counts its checks. Returns whether all of them are good.
    pub(super) fn step(
        &mut self,
        what: &str,
        dialect: Dialect,
        command: Command,
    ) -> Result<bool, Failure> {
        let step = Step {
            what,
            command,
            dialect,
            limits: self.limits(),
        };
        let counts = step.run(&mut self.log, self.verbose)?;
        self.counts.add(&counts);
        Ok(counts.failed == 0)
    }

    /// Runs a program that must succeed before anything can be counted. Returns whether it did.
    pub(super) fn prepare(&mut self, what: &str, command: Command) -> Result<bool, Failure> {
        let step = Step {
            what,
            command,
            dialect: Dialect::ExitCode,
            limits: self.limits(),
        };
        let counts = step.run(&mut self.log, self.verbose)?;
        self.counts.failed += counts.failed;
        Ok(counts.failed == 0)
    }

    /// The time limits of a program, which are longer if the full matrix was asked for.
    fn limits(&self) -> Limits {
        let times = if self.all { 4 } else { 1 };
        Limits {
            whole: WHOLE * times,
            quiet: QUIET * times,
        }
    }

    /// Counts a check that was made by this program itself.
    pub(super) fn check(&mut self, what: &str, problems: &[String]) {
        for problem in problems {
            println!("    {what}: {problem}");
        }
        if problems.is_empty() {
            self.counts.passed += 1;
        } else {
            self.counts.failed += 1;
        }
    }

    /// Notes that the lane cannot run on this machine.
    pub(super) fn not_here(&mut self, reason: &str) {
        println!("    skipped: {reason}");
        self.counts.skip("the lane", reason);
        self.not_here = true;
    }

    /// Notes that `what` is left out, and why.
    pub(super) fn leave_out(&mut self, what: &str, reason: &str) {
        self.counts.skip(what, reason);
    }

    /// Whether the lane cannot run on this machine.
    pub(super) fn is_not_here(&self) -> bool {
        self.not_here
    }

    /// The counts of the lane.
    pub(super) fn finish(self) -> Counts {
        self.counts
    }

    /// Sets the variables that make tests do more, if the full matrix was asked for.
    pub(super) fn thorough(&self, command: &mut Command) {
        if self.all {
            command.env("PROPTEST_CASES", "4096");
        }
    }

    /// Cargo of the nightly toolchain, building into a folder of its own; `None` if the toolchain
    /// is missing.
    pub(super) fn nightly(&self, folder: &str) -> Option<Command> {
        let works = |mut command: Command| {
            let command = command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .stdin(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        let nightly = |words: &[&str]| {
            let mut command = self.repo.command("rustup");
            command.args(["run", "nightly"]).args(words);
            command
        };
        if !works(nightly(&["cargo", "--version"])) {
            return None;
        }
        let mut command = nightly(&["cargo"]);
        command.env(
            "CARGO_TARGET_DIR",
            self.repo.target().join("lanes").join(folder),
        );
        Some(command)
    }
}
