//! A program that no longer prints anything: its processes, and where their threads are.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

/// Programs that only wait for another. They are not shown, and they end by themselves.
const WAITING: &[&str] = &["cargo", "rustdoc", "rustup"];

/// Programs that build programs. They may print nothing for minutes, and end by themselves.
const MAKING: &[&str] = &[
    "rustc",
    "clippy-driver",
    "rust-lld",
    "build-script-bu",
    "cc",
    "cc1",
    "collect2",
    "ld",
];

/// Frames that are shown of each thread.
const FRAMES: u32 = 16;

/// How long a debugger may take, in seconds, before `timeout` ends it.
const DEBUGGER: &str = "60";

/// A process below a step's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pid: u32,
    name: String,
}

/// The processes that `root` has started, and their descendants: parents first.
pub(super) fn below(root: u32) -> Vec<Process> {
    let mut children: BTreeMap<u32, Vec<Process>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        // If the process has ended meanwhile, there is no `stat` to read.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some((name, _, parent)) = parse(&stat) {
            let name = name.to_owned();
            children
                .entry(parent)
                .or_default()
                .push(Process { pid, name });
        }
    }
    let mut found = children.remove(&root).unwrap_or_default();
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        let more = children.remove(&parent.pid).unwrap_or_default();
        found.extend(more);
        next += 1;
    }
    found
}

/// Whether one of them is a compiler or a linker, whose silence means nothing.
pub(super) fn makes(processes: &[Process]) -> bool {
    let mut names = processes.iter().map(|process| process.name.as_str());
    names.any(|name| MAKING.contains(&name))
}

/// Name, state and parent of a process or thread, from its `stat`. The name may contain anything.
fn parse(stat: &str) -> Option<(&str, &str, u32)> {
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let mut words = after.split_ascii_whitespace();
    Some((name, words.next()?, words.next()?.parse().ok()?))
}

/// Where every thread of every process is.
pub(super) fn describe(processes: &[Process]) -> Vec<String> {
    let mut lines = Vec::new();
    for process in processes {
        if WAITING.contains(&process.name.as_str()) {
            continue;
        }
        lines.push(format!("process {}: {}", process.pid, words(process)));
        lines.extend(threads(process.pid));
        lines.extend(debugger(process.pid));
    }
    lines
}

/// The command line, or the name if the system does not tell it.
fn words(process: &Process) -> String {
    let bytes = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
    if text.trim().is_empty() {
        return process.name.clone();
    }
    text.trim().chars().take(300).collect()
}

/// The threads, by name. A test's thread has the first 15 bytes of the test's name.
fn threads(pid: u32) -> Vec<String> {
    let mut lines = Vec::new();
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    for task in tasks.into_iter().flatten().flatten() {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let stat = read("stat");
        let Some((name, state, _)) = parse(&stat) else {
            continue;
        };
        let place = read("wchan");
        let id = task.file_name().to_string_lossy().into_owned();
        lines.push(format!("  thread {id} {name}: state {state}, in {place}"));
    }
    lines
}

/// The backtraces from gdb, if it is installed and permitted.
fn debugger(pid: u32) -> Vec<String> {
    let mut command = Command::new("timeout");
    command
        .args([DEBUGGER, "gdb", "--batch", "--nx", "-ex"])
        .arg(format!("thread apply all backtrace {FRAMES}"))
        .args(["--pid", &pid.to_string()])
        .stdin(Stdio::null());
    let output = command.output().map(|output| output.stdout);
    let text = String::from_utf8(output.unwrap_or_default()).unwrap_or_default();
    let frame = |line: &&str| line.starts_with("Thread ") || line.starts_with('#');
    text.lines()
        .filter(frame)
        .map(|l| format!("  {l}"))
        .collect()
}

/// Kills processes, the youngest first. Processes that have already ended are ignored.
pub(super) fn kill(processes: &[Process]) {
    for process in processes.iter().rev() {
        // Programs that wait for another end by themselves, and report what they have seen.
        if !WAITING.contains(&process.name.as_str()) {
            signal(&process.pid.to_string());
        }
    }
}

/// Kills a program and its descendants, except those that have left its process group.
pub(super) fn kill_group(leader: u32) {
    signal(&format!("-{leader}"));
}

/// Sends SIGKILL. It is no error if the target has already ended.
fn signal(whom: &str) {
    let _ = Command::new("kill")
        .args(["-KILL", "--", whom])
        .stderr(Stdio::null())
        .status();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_brackets_are_read() {
        assert_eq!(parse("17 (a) b (c) S 4 17 0"), Some(("a) b (c", "S", 4)));
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn compilers_may_be_silent_and_tests_may_not() {
        let processes = |names: [&str; 2]| {
            names.map(|name| Process {
                pid: 0,
                name: name.to_owned(),
            })
        };
        assert!(makes(&processes(["cargo", "rustc"])));
        assert!(!makes(&processes(["cargo", "conformance"])));
    }

    #[test]
    fn children_are_found_described_and_ended() {
        let mut command = Command::new("sh");
        command.args(["-c", "tail -f /dev/null & echo; wait"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        // Once the program has written a line, it has started the other.
        let mut line = [0];
        let mut out = child.stdout.take().unwrap();
        std::io::Read::read_exact(&mut out, &mut line).unwrap();
        let found = below(std::process::id());
        let shell = found.iter().position(|process| process.pid == child.id());
        let found: Vec<_> = std::iter::once(found[shell.unwrap()].clone())
            .chain(below(child.id()))
            .collect();
        assert_eq!(found.len(), 2, "{found:?}");
        let lines = describe(&found);
        assert!(
            lines.iter().any(|line| line.contains("tail -f")),
            "{lines:?}"
        );
        assert!(
            lines.iter().any(|line| line.contains("state S")),
            "{lines:?}"
        );
        kill(&found);
        // Without the kill this would wait for ever.
        child.wait().unwrap();
    }
}
