//! One program of a lane: starts and watches it, counts its checks, and keeps its output.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::counts::{Counts, Dialect, Reader};
use super::hang;
use super::times::Times;
use crate::Failure;

/// How many lines of output are shown of a program that failed.
const TAIL: usize = 60;

/// How many lines are shown about where a hanging program is. The log has all of them.
const PLACES: usize = 200;

/// How many of these lines are repeated at the end, and how many lines of the output of a program
/// that crashed.
const BRIEF: usize = 40;

/// How many lines are shown of the output of a failed test, its name included.
const WHY: usize = 8;

/// How many lines about failures of one program are shown at the end.
const FAILURES: usize = 120;

/// How long another process may hold a program's output open after the program has ended.
const GRACE: Duration = Duration::from_secs(10);

/// How often the processes below a program are killed before the program itself is.
const STRIKES: u32 = 3;

/// A program to run.
pub(super) struct Step<'a> {
    /// Its name for people.
    pub(super) what: &'a str,
    pub(super) command: Command,
    pub(super) dialect: Dialect,
    pub(super) limits: Limits,
}

/// How long a program may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// After this time the program is killed, with everything that it has started.
    pub(super) whole: Duration,
    /// After this time without a sign of progress, the processes below the program are killed;
    /// cargo then continues with the next test program. A running compiler counts as a sign of
    /// progress.
    pub(super) quiet: Duration,
}

impl Step<'_> {
    /// Runs the program. All output goes to `log`, and its tail to the terminal if the program
    /// fails.
    pub(super) fn run(self, log: &mut File, verbose: bool) -> Result<Counts, Failure> {
        let what = self.what;
        let mut output = Output::new(self.dialect, log, verbose);
        let (mut watch, lines) = self.start(&mut output)?;
        let verdict = watch.follow(&lines, &mut output)?;
        output.finish(what, &verdict)
    }

    /// Starts the program, and a thread that reads its output.
    fn start(mut self, output: &mut Output<'_>) -> Result<(Watch, Receiver<String>), Failure> {
        writeln!(output.log, "==== {}: {:?}", self.what, self.command)?;
        let (reader, writer) = io::pipe()?;
        self.command
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer);
        // The program has a process group of its own, so that a time-out also ends its descendants.
        let child = self.command.process_group(0).spawn();
        let child = child.map_err(|error| format!("cannot start {:?}: {error}", self.command))?;
        // `self.command`, which is dropped here, holds the write end of the pipe.
        Ok((Watch::new(child, self.limits), lines(reader)))
    }
}

/// The destination of the output.
struct Output<'a> {
    reader: Reader,
    times: Times,
    log: &'a mut File,
    tail: Vec<String>,
    /// Lines about failures.
    failures: Vec<String>,
    /// Whether the present output is that of failed tests. The output of passed tests is shown as
    /// well, in another section.
    of_failures: bool,
    /// How many of the next lines are about a failure, too.
    telling: usize,
    verbose: bool,
}

impl<'a> Output<'a> {
    fn new(dialect: Dialect, log: &'a mut File, verbose: bool) -> Self {
        Self {
            reader: Reader::new(dialect),
            times: Times::new(),
            log,
            tail: Vec::new(),
            failures: Vec::new(),
            of_failures: false,
            telling: 0,
            verbose,
        }
    }

    /// Prints how the program ended, and returns its counts.
    fn finish(mut self, what: &str, verdict: &Result<(), String>) -> Result<Counts, Failure> {
        if let Err(why) = verdict {
            if !self.verbose {
                self.tail.iter().for_each(|line| println!("    | {line}"));
            }
            println!("    {what}: {why}");
            if self.failures.is_empty() {
                self.recall();
            }
            // Keeps the first lines, and the last ones, where a crash or a hang may be.
            if let Some(more) = self.failures.len().checked_sub(FAILURES) {
                self.failures.drain(FAILURES / 2..FAILURES / 2 + more);
            }
            self.failures.push(format!("{what}: {why}"));
            self.reader.tells(self.failures);
        }
        self.times.write(self.log)?;
        Ok(self.reader.finish(verdict.is_ok()))
    }

    /// Adds the last lines of the output to those about failures.
    fn recall(&mut self) {
        let skipped = self.tail.len().saturating_sub(BRIEF);
        self.failures
            .extend(self.tail[skipped..].iter().map(|line| format!("| {line}")));
    }

    fn line(&mut self, line: String) -> Result<(), Failure> {
        writeln!(self.log, "{line}")?;
        match line.as_str() {
            "failures:" => self.of_failures = true,
            "successes:" => self.of_failures = false,
            _ if line.starts_with("test result: ") => self.of_failures = false,
            _ => {}
        }
        let why = says_why(&line) || self.telling > 0 && line.contains(" panicked at ");
        if self.of_failures && why {
            self.telling = WHY;
        }
        if dies(&line) {
            // The crash has no line that names the test.
            self.recall();
            let program = self.times.program();
            self.failures.push(format!("in {program}:{line}"));
        } else if self.telling > 0 || names_failed(&line) {
            self.telling = self.telling.saturating_sub(1);
            self.failures.push(line.clone());
        }
        self.reader.line(&line);
        self.times.line(&line);
        if self.verbose {
            println!("    | {line}");
        } else if let Some(news) = news(&line) {
            println!("    {news}");
        }
        if self.tail.len() == TAIL {
            self.tail.remove(0);
        }
        self.tail.push(line);
        Ok(())
    }

    /// Prints which processes hang, and where.
    fn hangs(&mut self, why: &str, processes: &[hang::Process]) -> Result<(), Failure> {
        let mut lines = vec![format!("{why} in {}", self.times.program())];
        let running = self.reader.running();
        lines.extend(running.iter().map(|test| format!("still running: {test}")));
        lines.extend(hang::describe(processes));
        for line in &lines {
            writeln!(self.log, "hangs: {line}")?;
        }
        // The last output may have the ranks' reports of what they wait for.
        self.recall();
        self.failures.extend(lines.iter().take(BRIEF).cloned());
        let left_out = lines.len().saturating_sub(PLACES);
        lines.truncate(PLACES);
        lines.iter().for_each(|line| println!("    hangs: {line}"));
        if left_out > 0 {
            println!("    hangs: {left_out} lines more in the log");
        }
        self.reader.hung();
        Ok(())
    }
}

/// The part of a line that shows the user that work continues, or that it does not.
fn news(line: &str) -> Option<&str> {
    let words = line.trim_start();
    let begins = |word: &str| words.starts_with(word);
    let show = begins("Running ") || begins("Doc-tests ") || begins("summary: ") || is_slow(line);
    show.then_some(words)
}

/// Whether libtest says in this line that a test has failed.
fn names_failed(line: &str) -> bool {
    line.starts_with("test ") && line.ends_with(" ... FAILED")
}

/// Whether the output of a failed test begins after this line.
fn says_why(line: &str) -> bool {
    line.starts_with("---- ") && line.ends_with(" ----")
}

/// Whether cargo says in this line that a test program died. A program whose tests failed exits
/// with 101.
fn dies(line: &str) -> bool {
    let says = line
        .trim_start()
        .starts_with("process didn't exit successfully: ");
    says && !line.ends_with("(exit status: 101)")
}

/// Whether libtest says in this line that a test has run for a minute.
fn is_slow(line: &str) -> bool {
    line.starts_with("test ") && line.contains(" has been running for over ")
}

/// Whether a line is a sign of progress. The repeated reports of waiting ranks are not.
fn is_progress(line: &str) -> bool {
    !is_slow(line) && !line.starts_with("portolan: ")
}

/// The lines that arrive from a pipe.
fn lines(reader: io::PipeReader) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(reader);
        let mut bytes = Vec::new();
        while reader
            .read_until(b'\n', &mut bytes)
            .is_ok_and(|read| read > 0)
        {
            let line = String::from_utf8_lossy(&bytes);
            if sender
                .send(line.trim_end_matches(['\n', '\r']).to_owned())
                .is_err()
            {
                return;
            }
            bytes.clear();
        }
    });
    receiver
}

/// A program that is watched to its end.
struct Watch {
    child: Child,
    limits: Limits,
    start: Instant,
    /// The last sign of progress.
    sign: Instant,
    ended: Option<Instant>,
    strikes: u32,
}

impl Watch {
    fn new(child: Child, limits: Limits) -> Self {
        let now = Instant::now();
        Self {
            child,
            limits,
            start: now,
            sign: now,
            ended: None,
            strikes: 0,
        }
    }

    /// Watches the program to its end. The inner error describes how it failed.
    fn follow(
        &mut self,
        lines: &Receiver<String>,
        output: &mut Output<'_>,
    ) -> Result<Result<(), String>, Failure> {
        loop {
            match lines.recv_timeout(Duration::from_millis(500)) {
                Ok(line) => {
                    if is_progress(&line) {
                        self.sign = Instant::now();
                    }
                    output.line(line)?;
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    if self.ended.is_none() && self.child.try_wait()?.is_some() {
                        self.ended = Some(Instant::now());
                    }
                }
            }
            if let Some(why) = self.overdue(output)? {
                return Ok(Err(why));
            }
        }
        let status = self.child.wait()?;
        Ok(if status.success() && self.strikes == 0 {
            Ok(())
        } else {
            Err(status.to_string())
        })
    }

    /// Kills what takes too long. Returns the reason if the whole program was killed.
    fn overdue(&mut self, output: &mut Output<'_>) -> Result<Option<String>, Failure> {
        if let Some(ended) = self.ended {
            let left = ended.elapsed() > GRACE;
            if left {
                hang::kill_group(self.child.id());
            }
            let why = "left processes that go on writing; they were killed";
            return Ok(left.then(|| why.to_owned()));
        }
        let late = self.start.elapsed() > self.limits.whole;
        if !late && self.sign.elapsed() <= self.limits.quiet {
            return Ok(None);
        }
        let processes = hang::below(self.child.id());
        if !late && hang::makes(&processes) {
            self.sign = Instant::now();
            return Ok(None);
        }
        let why = if late {
            format!("{} s are over", self.limits.whole.as_secs())
        } else {
            format!("{} s without a sign", self.limits.quiet.as_secs())
        };
        output.hangs(&why, &processes)?;
        self.strikes += 1;
        self.sign = Instant::now();
        hang::kill(&processes);
        if late || processes.is_empty() || self.strikes == STRIKES {
            hang::kill_group(self.child.id());
            self.child.wait()?;
            return Ok(Some(format!("killed: {why}")));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(script: &str, dialect: Dialect, limits: Limits) -> Step<'static> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Step {
            what: "a script",
            command,
            dialect,
            limits,
        }
    }

    /// The result of `run` with a log, and the log's content afterwards.
    fn logged<R>(run: impl FnOnce(&mut File) -> R) -> (R, String) {
        let name = format!("xtask-step-{:?}", thread::current().id());
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let result = run(&mut File::create(&path).unwrap());
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        (result, text)
    }

    fn shell(script: &str, limits: Limits) -> Counts {
        logged(|log| {
            step(script, Dialect::Cases, limits)
                .run(log, false)
                .unwrap()
        })
        .0
    }

    const LONG: Duration = Duration::from_secs(600);
    const PATIENT: Limits = Limits {
        whole: LONG,
        quiet: LONG,
    };

    #[test]
    fn both_streams_are_read() {
        let counts = shell("echo passed: a; echo passed: b >&2", PATIENT);
        assert_eq!((counts.passed, counts.failed), (2, 0));
    }

    #[test]
    fn an_exit_code_is_a_failure() {
        let counts = shell("echo passed: a; exit 3", PATIENT);
        assert_eq!((counts.passed, counts.failed), (1, 1));
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let whole = Duration::ZERO;
        let limits = Limits { whole, ..PATIENT };
        let counts = shell("echo passed: a; tail -f /dev/null", limits);
        assert_eq!(counts.failed, 1);
    }

    /// In the test, `tail` stands for a test program and the shell for cargo, which continues. The
    /// test that hangs is named.
    #[test]
    fn a_hang_is_named_and_what_comes_after_it_runs() {
        let script = "echo '     Running tests/a.rs (target/debug/deps/a-0123)'
            echo 'test a::stuck has been running for over 60 seconds'
            echo 'test a::slow has been running for over 60 seconds'
            echo 'test a::slow ... ok'
            tail -f /dev/null &
            echo 'it hangs'
            wait
            echo 'test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured'";
        let (counts, log) = logged(|log| {
            let mut output = Output::new(Dialect::Libtest, log, false);
            let (mut watch, lines) = step(script, Dialect::Libtest, PATIENT)
                .start(&mut output)
                .unwrap();
            while output.tail.last().is_none_or(|line| line != "it hangs") {
                output.line(lines.recv().unwrap()).unwrap();
            }
            // As if the time were over.
            watch.limits.quiet = Duration::ZERO;
            assert_eq!(watch.overdue(&mut output).unwrap(), None);
            watch.limits = PATIENT;
            let verdict = watch.follow(&lines, &mut output).unwrap();
            output.finish("a script", &verdict).unwrap()
        });
        assert_eq!((counts.passed, counts.failed), (5, 1));
        let again = ["| it hangs", "still running: a::stuck"];
        for line in again {
            assert!(counts.failures.iter().any(|l| l == line), "{counts:?}");
        }
        assert!(log.contains("hangs: 0 s without a sign in a\n"), "{log}");
        assert!(log.contains("still running: a::stuck\n"), "{log}");
        assert!(!log.contains("still running: a::slow\n"), "{log}");
        assert!(log.contains("tail -f"), "{log}");
    }

    #[test]
    fn what_failed_is_kept_for_the_end() {
        let script = "echo 'test a::fails ... FAILED'
            echo 'test a::works ... ok'
            echo 'successes:'
            echo '---- a::works stdout ----'
            echo 'nothing of interest'
            echo 'failures:'
            echo '---- a::fails stdout ----'
            echo 'left: 1, right: 2'
            echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured'
            echo 'error: test failed, to rerun pass `--test a`'
            exit 101";
        let fails = |script| {
            let run = |log: &mut File| step(script, Dialect::Libtest, PATIENT).run(log, false);
            logged(run).0.unwrap().failures
        };
        let failures = fails(script);
        assert_eq!(failures[0], "test a::fails ... FAILED");
        assert_eq!(failures[1], "---- a::fails stdout ----");
        assert_eq!(failures[2], "left: 1, right: 2");
        assert_eq!(failures.last().unwrap(), "a script: exit status: 101");

        let script = "echo '     Running tests/a.rs (target/debug/deps/a-0123)'
            echo 'test a::works ... ok'
            echo \"  process didn't exit successfully: \\`a-0123\\` (signal: 11, SIGSEGV: invalid memory reference)\"
            echo 'test b::works ... ok'
            exit 101";
        let failures = fails(script);
        assert_eq!(failures[1], "| test a::works ... ok");
        assert!(failures[2].starts_with("in a:"), "{failures:?}");
        assert_eq!(failures.len(), 4);
        assert!(shell("echo passed: a", PATIENT).failures.is_empty());

        let script = "for n in $(seq 500); do echo \"test a::fails_$n ... FAILED\"; done; exit 101";
        let failures = fails(script);
        assert_eq!(failures.len(), FAILURES + 1);
        assert_eq!(failures[0], "test a::fails_1 ... FAILED");
        assert_eq!(failures[FAILURES - 1], "test a::fails_500 ... FAILED");
    }

    #[test]
    fn ranks_that_say_that_they_wait_are_no_sign() {
        assert!(!is_progress("portolan: rank 0 has waited for 10 s"));
        assert!(!is_progress("test a has been running for over 60 seconds"));
        assert!(is_progress("test a ... ok"));
        assert!(is_progress("   Compiling portolan-core v0.1.0"));
    }
}
