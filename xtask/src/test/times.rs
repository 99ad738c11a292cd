//! The time that each test program of a step takes.

use std::fs::File;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// How many programs are listed.
const SLOWEST: usize = 20;

/// The time at which each program began, according to cargo's output.
#[derive(Debug)]
pub(super) struct Times {
    /// The present program. At first it is the step itself, while cargo builds.
    name: String,
    since: Instant,
    over: Vec<(Duration, String)>,
}

impl Times {
    pub(super) fn new() -> Self {
        Self {
            name: "the step itself".to_owned(),
            since: Instant::now(),
            over: Vec::new(),
        }
    }

    /// Handles a line.
    pub(super) fn line(&mut self, line: &str) {
        if let Some(name) = program(line) {
            self.next(name);
        }
    }

    /// The program that runs.
    pub(super) fn program(&self) -> &str {
        &self.name
    }

    fn next(&mut self, name: String) {
        let name = std::mem::replace(&mut self.name, name);
        self.over.push((self.since.elapsed(), name));
        self.since = Instant::now();
    }

    /// Writes the slowest programs to the log.
    pub(super) fn write(mut self, log: &mut File) -> io::Result<()> {
        self.next(String::new());
        self.over.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
        for (time, name) in self.over.iter().take(SLOWEST) {
            writeln!(log, "time: {:7.1} s {name}", time.as_secs_f64())?;
        }
        Ok(())
    }
}

/// The program that cargo starts according to `line`. The name of the executable distinguishes test
/// programs, the name of the source does not.
fn program(line: &str) -> Option<String> {
    let words = line.trim_start();
    if let Some(package) = words.strip_prefix("Doc-tests ") {
        return Some(format!("the documentation of {package}"));
    }
    let (_, path) = words.strip_prefix("Running ")?.rsplit_once(" (")?;
    let file = path.trim_end_matches(')').rsplit('/').next()?;
    let name = file.rsplit_once('-').map_or(file, |(name, _)| name);
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_named_after_their_files() {
        let name = |line| program(line).unwrap_or_default();
        let line = "     Running unittests src/lib.rs (target/debug/deps/portolan_core-0af1)";
        assert_eq!(name(line), "portolan_core");
        assert_eq!(
            name("   Doc-tests portolan_core"),
            "the documentation of portolan_core"
        );
        assert_eq!(name("test running::a ... ok"), "");
    }
}
