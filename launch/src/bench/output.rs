//! What a child process says, read in threads.
//!
//! A pipe ends when the last process that holds it has ended, and that need not be the child: a
//! compiler may leave a server of its cache behind, and an `mpiexec` that is killed its ranks. So
//! what is said later than [`LINGER`] after the child's end is not waited for.

use std::io::{BufRead, BufReader, Read};
use std::process::Child;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use crate::os;

/// How long a pipe is read after the child has ended.
const LINGER: Duration = Duration::from_secs(2);

/// The lines of a child's standard output, until its end or the child's.
pub(super) struct Output {
    heard: Receiver<Heard>,
    /// Whether the child has ended.
    ended: bool,
}

/// The standard error of a child. It is read all the time, so that the child never blocks while it
/// writes there.
pub(super) struct Remarks(Receiver<String>);

enum Heard {
    Line(String),
    /// The child has ended.
    End,
}

impl Output {
    pub(super) fn of(child: &mut Child) -> Self {
        let (tell, heard) = mpsc::channel();
        if let Some(pipe) = child.stdout.take() {
            let tell = tell.clone();
            thread::spawn(move || each_line(pipe, &tell, Heard::Line));
        }
        if let Ok(pid) = i32::try_from(child.id()) {
            thread::spawn(move || {
                os::await_end(pid);
                // Nobody listens any more if the pipe has ended before.
                let _ = tell.send(Heard::End);
            });
        }
        Self {
            heard,
            ended: false,
        }
    }
}

impl Iterator for Output {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        loop {
            let heard = match self.ended {
                false => self.heard.recv().ok()?,
                true => self.heard.recv_timeout(LINGER).ok()?,
            };
            match heard {
                Heard::Line(line) => return Some(line),
                Heard::End => self.ended = true,
            }
        }
    }
}

impl Remarks {
    pub(super) fn of(child: &mut Child) -> Self {
        let (tell, heard) = mpsc::channel();
        if let Some(pipe) = child.stderr.take() {
            thread::spawn(move || each_line(pipe, &tell, |line| line));
        }
        Self(heard)
    }

    /// All that a child said that has ended.
    pub(super) fn text(self) -> String {
        let mut text = String::new();
        loop {
            match self.0.recv_timeout(LINGER) {
                Ok(line) => {
                    text.push_str(&line);
                    text.push('\n');
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return text,
            }
        }
    }
}

/// Sends the lines of a pipe until it ends, cannot be read, or nobody listens.
fn each_line<T>(pipe: impl Read, to: &Sender<T>, as_told: impl Fn(String) -> T) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    while pipe.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let end = line.len() - usize::from(line.last() == Some(&b'\n'));
        let told = as_told(String::from_utf8_lossy(&line[..end]).into_owned());
        if to.send(told).is_err() {
            return;
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Instant;

    use super::*;

    fn child(script: &str) -> (Child, Output, Remarks) {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (output, remarks) = (Output::of(&mut child), Remarks::of(&mut child));
        (child, output, remarks)
    }

    #[test]
    fn all_that_a_child_says_is_heard() {
        let (mut child, output, remarks) = child("echo a; echo; printf b; echo c >&2");
        assert_eq!(output.collect::<Vec<_>>(), ["a", "", "b"]);
        assert!(child.wait().unwrap().success());
        assert_eq!(remarks.text(), "c\n");
    }

    #[test]
    fn a_process_that_outlives_the_child_is_not_waited_for() {
        let begun = Instant::now();
        // The process that stays holds both pipes; its number is the first line.
        let (mut child, mut output, remarks) = child("sleep 600 & echo $!; echo said; exit 3");
        let pid: i32 = output.next().unwrap().parse().unwrap();
        assert_eq!(output.collect::<Vec<_>>(), ["said"]);
        assert_eq!(child.wait().unwrap().code(), Some(3));
        assert_eq!(remarks.text(), "");
        assert!(begun.elapsed() < Duration::from_secs(60));
        assert!(!os::has_gone(pid));
        os::kill(pid, libc::SIGKILL);
    }
}
