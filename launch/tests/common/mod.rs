//! Starts the command and waits for its results.

// Each test file is a crate of its own and uses only some of these items.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

/// Time after which something that must happen counts as failed.
const GUARD: Duration = Duration::from_secs(60);

/// The command, with no setting of Portolan's in its environment.
pub(crate) fn portolan(args: &[&str]) -> Command {
    let mut command = of_ours(Command::new(env!("CARGO_BIN_EXE_portolan")));
    command.args(args);
    command
}

/// A command whose output the test reads, with no setting of Portolan's in its environment.
pub(crate) fn of_ours(mut command: Command) -> Command {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["PORTOLAN_", "PMI", "OMPI_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            command.env_remove(&*name);
        }
    }
    // The tests' parent may have made them ignore signals, as `nohup` and background shells do. The
    // command would rightly continue to ignore these signals, so they are reset.
    // SAFETY: between fork and exec the closure only makes system calls.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    command
}

/// The outcome of a command.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Outcome {
    /// The lines of the standard output, sorted: ranks run side by side.
    pub(crate) fn sorted(&self) -> Vec<&str> {
        let mut lines: Vec<_> = self.out.lines().collect();
        lines.sort_unstable();
        lines
    }

    #[track_caller]
    pub(crate) fn expect_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn expect_err(&self, parts: &[&str]) -> &Self {
        for part in parts {
            assert!(self.err.contains(part), "`{part}` is missing: {self:#?}");
        }
        self
    }
}

/// The reason why no job can use libfabric here; `None` if one can.
pub(crate) fn no_libfabric() -> Option<String> {
    let transports = portolan::transports();
    let ofi = transports.into_iter().find(|one| one.name == "ofi");
    ofi.map_or(Some("it is not compiled in".to_owned()), |ofi| ofi.unusable)
}

/// Runs a command to its end, and to the end of everything that holds its output.
pub(crate) fn outcome(mut command: Command, input: &[u8]) -> Outcome {
    command.stdin(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    // A command that does not read its input does not make the test fail.
    let _ = child.stdin.take().unwrap().write_all(input);
    finish(child)
}

/// Waits for the end of a command and of everything that holds its output.
pub(crate) fn finish(mut child: Child) -> Outcome {
    let out = read_all(child.stdout.take().unwrap());
    let err = read_all(child.stderr.take().unwrap());
    let text = |from: mpsc::Receiver<Vec<u8>>| from.recv_timeout(GUARD).ok();
    let (out, err) = (text(out), text(err));
    if out.is_none() || err.is_none() {
        // The guard process ends what the launcher leaves.
        let _ = child.kill();
    }
    let code = child.wait().unwrap().code();
    let shown = |bytes: Option<Vec<u8>>| {
        bytes.map_or("(did not end)".to_owned(), |bytes| {
            String::from_utf8_lossy(&bytes).into()
        })
    };
    let ended = out.is_some() && err.is_some();
    let outcome = Outcome {
        code,
        out: shown(out),
        err: shown(err),
    };
    assert!(
        ended,
        "the job has not ended, or something still holds its output: {outcome:#?}"
    );
    outcome
}

/// `portolan run` with these arguments.
pub(crate) fn run(args: &[&str]) -> Outcome {
    outcome(portolan(&[&["run"], args].concat()), b"")
}

/// `portolan run -n RANKS -- sh -c SCRIPT`.
pub(crate) fn run_script(ranks: u32, options: &[&str], script: &str) -> Outcome {
    run(&[
        &["-n", &ranks.to_string()],
        options,
        &["--", "sh", "-c", script],
    ]
    .concat())
}

/// Starts a command and waits until it has printed `lines` lines. The rest of its output stays
/// readable.
pub(crate) fn started(mut command: Command, lines: usize) -> (Child, Vec<String>) {
    let mut child = command.spawn().expect("the command starts");
    let said = said_until(&mut child, move |said| said.len() == lines);
    (child, said)
}

/// Reads the lines of a command until `enough`. What follows them stays in its output.
pub(crate) fn said_until(
    child: &mut Child,
    enough: impl Fn(&[String]) -> bool + Send + 'static,
) -> Vec<String> {
    let mut reader = BufReader::with_capacity(1, child.stdout.take().unwrap());
    let said = Arc::new(Mutex::new(Vec::new()));
    let (send, received) = mpsc::channel();
    let lines = Arc::clone(&said);
    thread::spawn(move || {
        while !enough(&lines.lock().unwrap()) {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            lines.lock().unwrap().push(line.trim_end().to_owned());
        }
        let _ = send.send(reader.into_inner());
    });
    let rest = received.recv_timeout(GUARD);
    let said = said.lock().unwrap().clone();
    match rest {
        Ok(out) => {
            child.stdout = Some(out);
            said
        }
        Err(_) => {
            let _ = child.kill();
            let err = child.stderr.take().map(read_all);
            let err = err.and_then(|from| from.recv_timeout(GUARD).ok());
            let err = String::from_utf8_lossy(err.as_deref().unwrap_or_default()).into_owned();
            panic!("more lines were expected behind {said:#?}: {err}");
        }
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(pid: u32, signal: i32) {
    // SAFETY: kill touches no memory of this process.
    let result = unsafe { libc::kill(pid as i32, signal) };
    assert_eq!(result, 0, "cannot send signal {signal} to {pid}");
}

/// Waits for something that no event announces; panics if it takes too long.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < GUARD, "waited in vain for: {what}");
        thread::yield_now();
    }
}

/// Whether a process is there and is not a zombie.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

fn read_all(mut from: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (send, received) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        let _ = send.send(bytes);
    });
    received
}
