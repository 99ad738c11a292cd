//! One program of a lane: started, watched, its lines counted and kept.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::counts::{Counts, Dialect, Reader};
use crate::Failure;

/// Lines of output that are shown of a program that failed.
const TAIL: usize = 60;

/// How long something may hold a program's output open after the program has ended.
const GRACE: Duration = Duration::from_secs(10);

/// A program to run.
pub(super) struct Step<'a> {
    /// What it is, for people.
    pub(super) what: &'a str,
    pub(super) command: Command,
    pub(super) dialect: Dialect,
    /// After this time it is killed, with everything that it started.
    pub(super) limit: Duration,
}

impl Step<'_> {
    /// Runs it. Its output goes to `log`, whole; a tail of it to the terminal if it fails.
    pub(super) fn run(mut self, log: &mut File, verbose: bool) -> Result<Counts, Failure> {
        writeln!(log, "==== {}: {:?}", self.what, self.command)?;
        let (reader, writer) = io::pipe()?;
        self.command
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer);
        // A group of its own, so that a time-out ends what it has started too.
        let child = self.command.process_group(0).spawn();
        let child = child.map_err(|error| format!("cannot start {:?}: {error}", self.command))?;
        // The command holds the other end of the pipe.
        drop(self.command);
        let mut output = Output {
            reader: Reader::new(self.dialect),
            log,
            tail: Vec::new(),
            verbose,
        };
        let verdict = follow(child, &lines(reader), self.limit, &mut output)?;
        let Output { reader, tail, .. } = output;
        if let Err(why) = &verdict {
            if !verbose {
                tail.iter().for_each(|line| println!("    | {line}"));
            }
            println!("    {}: {why}", self.what);
        }
        Ok(reader.finish(verdict.is_ok()))
    }
}

/// Where lines go.
struct Output<'a> {
    reader: Reader,
    log: &'a mut File,
    tail: Vec<String>,
    verbose: bool,
}

impl Output<'_> {
    fn line(&mut self, line: String) -> Result<(), Failure> {
        writeln!(self.log, "{line}")?;
        self.reader.line(&line);
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
}

/// What of a line shows a person that work goes on.
fn news(line: &str) -> Option<&str> {
    let words = line.trim_start();
    let begins = |word: &str| words.starts_with(word);
    (begins("Running ") || begins("Doc-tests ") || begins("summary: ")).then_some(words)
}

/// The lines that come out of a pipe.
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

/// Follows a program to its end. The inner error says how it went wrong.
fn follow(
    mut child: Child,
    lines: &Receiver<String>,
    limit: Duration,
    output: &mut Output<'_>,
) -> Result<Result<(), String>, Failure> {
    let start = Instant::now();
    let mut ended: Option<Instant> = None;
    loop {
        match lines.recv_timeout(Duration::from_millis(500)) {
            Ok(line) => output.line(line)?,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                if ended.is_none() && child.try_wait()?.is_some() {
                    ended = Some(Instant::now());
                }
            }
        }
        if ended.is_some_and(|ended| ended.elapsed() > GRACE) {
            kill_group(&child);
            return Ok(Err(
                "left processes that go on writing; they were killed".to_owned()
            ));
        }
        if ended.is_none() && start.elapsed() > limit {
            kill_group(&child);
            child.wait()?;
            return Ok(Err(format!("killed after {} s", limit.as_secs())));
        }
    }
    let status = child.wait()?;
    Ok(if status.success() {
        Ok(())
    } else {
        Err(status.to_string())
    })
}

/// Kills a program and what it has started, unless they have left its process group.
fn kill_group(child: &Child) {
    let group = format!("-{}", child.id());
    // That it is gone already is no reason to complain.
    let _ = Command::new("kill")
        .args(["-KILL", "--", &group])
        .stderr(Stdio::null())
        .status();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Counts {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let path = std::env::temp_dir().join(format!("xtask-step-{}", std::process::id()));
        let mut log = File::create(&path).unwrap();
        let step = Step {
            what: "a script",
            command,
            dialect: Dialect::Cases,
            limit,
        };
        let counts = step.run(&mut log, false).unwrap();
        // Tests run side by side and share the name; whoever is last removes it.
        let _ = std::fs::remove_file(path);
        counts
    }

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn both_streams_are_read() {
        let counts = shell("echo passed: a; echo passed: b >&2", LONG);
        assert_eq!((counts.passed, counts.failed), (2, 0));
    }

    #[test]
    fn an_exit_code_is_a_failure() {
        let counts = shell("echo passed: a; exit 3", LONG);
        assert_eq!((counts.passed, counts.failed), (1, 1));
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let counts = shell("echo passed: a; tail -f /dev/null", Duration::ZERO);
        assert_eq!(counts.failed, 1);
    }
}
