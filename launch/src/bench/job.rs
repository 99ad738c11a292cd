//! One sample: a job of ours or of a peer, and what it says.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::thread;

use portolan_benches::{Pattern, Plan, Sample};

use super::peers::{Loops, Peer, Tool};
use crate::os;
use crate::run::Bind;

/// Begins a line with a figure: bytes, value, rounds. The peers' programs say the same.
pub(super) const SAMPLE: &str = "portolan-sample";
/// Begins the line that names the transport.
pub(super) const TRANSPORT: &str = "portolan-transport";

/// When a sample that does not end is given up, in seconds.
pub(super) const PATIENCE: &str = "600";

/// What is done in a sample, by whoever does it.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) pattern: Pattern,
    pub(super) ranks: u32,
    pub(super) window: u32,
    /// Buffers that the messages of a window use by turns, each way.
    pub(super) buffers: u32,
    /// Threads of a rank.
    pub(super) threads: u32,
    /// Longest time of a size, in seconds.
    pub(super) limit: f64,
    pub(super) plans: Vec<Plan>,
    pub(super) pin: Bind,
    /// Whether there are more ranks than cores.
    pub(super) crowded: bool,
}

/// Who is measured.
#[derive(Clone, Debug)]
pub(super) enum Contender {
    /// Portolan, over this transport or over the best.
    Ours(Option<String>),
    /// Portolan with one algorithm of a collective operation.
    Forced(Forced),
    /// Another implementation.
    Peer(Peer),
    /// A library below such implementations, by its own program.
    Tool(Tool),
    /// libfabric, by a program of ours with nothing in between.
    Loops(Loops),
}

/// An algorithm of a collective operation that is used whatever the size, by messages.
#[derive(Clone, Debug)]
pub(super) struct Forced {
    pub(super) transport: Option<String>,
    pub(super) algorithm: String,
    /// The rule that makes it so.
    pub(super) table: String,
}

/// What a sample came to.
#[derive(Debug)]
pub(super) struct Outcome {
    /// What carried the messages, if it was ours.
    pub(super) transport: Option<String>,
    /// A figure for each plan.
    pub(super) samples: Vec<Sample>,
    /// What else was said, on the standard error.
    pub(super) remarks: String,
}

impl Contender {
    /// What it is called, as far as that is known before it has run.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Ours(transport) => transport.clone().unwrap_or_else(|| "portolan".to_owned()),
            Self::Forced(forced) => forced.algorithm.to_owned(),
            Self::Peer(peer) => peer.name(),
            Self::Tool(tool) => tool.name().to_owned(),
            Self::Loops(loops) => loops.name(),
        }
    }

    /// Whether it is not ours.
    pub(super) fn is_peer(&self) -> bool {
        matches!(self, Self::Peer(_) | Self::Tool(_) | Self::Loops(_))
    }

    /// Takes a sample; `step` is called for each figure.
    pub(super) fn sample(&self, job: &Job, step: &mut dyn FnMut()) -> Result<Outcome, String> {
        let begun = os::monotonic_nanoseconds();
        let outcome = match self {
            Self::Ours(transport) => listen(ours(job, transport.as_deref(), begun)?, step)?,
            Self::Forced(forced) => {
                let mut command = ours(job, forced.transport.as_deref(), begun)?;
                command.env("PORTOLAN_COLL_TABLE", &forced.table);
                command.env("PORTOLAN_COLL_DIRECT", "off");
                // Its name stays that of the algorithm.
                Outcome {
                    transport: None,
                    ..listen(command, step)?
                }
            }
            Self::Peer(peer) => listen(peer.command(job, begun), step)?,
            Self::Loops(loops) => listen(loops.command(job, begun), step)?,
            Self::Tool(tool) => Outcome {
                transport: None,
                samples: tool.sample(job, step)?,
                remarks: String::new(),
            },
        };
        let expected: Vec<usize> = job.plans.iter().map(|plan| plan.bytes).collect();
        let got: Vec<usize> = outcome.samples.iter().map(|sample| sample.bytes).collect();
        if got != expected {
            return Err(format!(
                "it measured sizes {got:?} instead of {expected:?}\n{}",
                outcome.remarks
            ));
        }
        Ok(outcome)
    }
}

impl Job {
    /// What our programs in C are told, as `benches/peers/peer.h` says.
    pub(super) fn words(&self, begun: u64) -> Vec<String> {
        let mut words = vec![
            self.window.to_string(),
            self.buffers.to_string(),
            self.limit.to_string(),
            self.threads.to_string(),
            begun.to_string(),
        ];
        words.extend(self.plans.iter().map(Plan::to_string));
        words
    }
}

/// This command itself, under its own launcher.
fn ours(job: &Job, transport: Option<&str>, begun: u64) -> Result<Command, String> {
    let mut command = launcher(job.ranks, transport, &job.pin, &[])?;
    command
        .args(["bench-rank", job.pattern.name()])
        .args(["--window", &job.window.to_string()])
        .args(["--buffers", &job.buffers.to_string()])
        .args(["--limit", &job.limit.to_string()])
        .args(["--threads", &job.threads.to_string()])
        .args(["--begun", &begun.to_string()])
        .args(job.plans.iter().map(Plan::to_string));
    Ok(command)
}

/// `portolan run OPTIONS -- portolan`, without what the ranks are told.
pub(super) fn launcher(
    ranks: u32,
    transport: Option<&str>,
    pin: &Bind,
    options: &[&str],
) -> Result<Command, String> {
    let program = std::env::current_exe()
        .map_err(|error| format!("cannot find this program's own file: {error}"))?;
    let mut command = Command::new(&program);
    command.args(["run", "-n", &ranks.to_string(), "--timeout", PATIENCE]);
    command.args(["--bind", &pin.to_string()]).args(options);
    if let Some(transport) = transport {
        command.args(["--transport", transport]);
    }
    command.arg("--").arg(&program);
    Ok(command)
}

/// Starts a job whose output is listened to, and which ends with this process.
pub(super) fn start(mut command: Command) -> Result<(Child, Remarks), String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    os::end_with_this_process(&mut command);
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot start {name}: {error}"))?;
    let remarks = Remarks::of(&mut child);
    Ok((child, remarks))
}

/// Reads a standard error, so that its writer never has to wait.
pub(super) struct Remarks(Option<thread::JoinHandle<String>>);

impl Remarks {
    fn of(child: &mut Child) -> Self {
        let read = |mut from: std::process::ChildStderr| {
            let mut bytes = Vec::new();
            let _ = from.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Self(
            child
                .stderr
                .take()
                .map(|from| thread::spawn(move || read(from))),
        )
    }

    /// All of it, when there is no more.
    pub(super) fn text(self) -> String {
        self.0
            .and_then(|thread| thread.join().ok())
            .unwrap_or_default()
    }
}

fn listen(command: Command, step: &mut dyn FnMut()) -> Result<Outcome, String> {
    let (mut child, remarks) = start(command)?;
    let (mut transport, mut samples) = (None, Vec::new());
    if let Some(out) = child.stdout.take() {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if let Some(name) = line.strip_prefix(TRANSPORT) {
                transport = Some(name.trim().to_owned());
            } else if let Some(sample) = line.strip_prefix(SAMPLE).and_then(parse) {
                samples.push(sample);
                step();
            }
        }
    }
    let status = child
        .wait()
        .map_err(|error| format!("cannot wait for the job: {error}"))?;
    let remarks = remarks.text();
    if !status.success() {
        return Err(format!("the job failed ({status})\n{}", remarks.trim_end()));
    }
    Ok(Outcome {
        transport,
        samples,
        remarks,
    })
}

/// What follows [`SAMPLE`].
fn parse(text: &str) -> Option<Sample> {
    let mut words = text.split_whitespace();
    let sample = Sample {
        bytes: words.next()?.parse().ok()?,
        value: words.next()?.parse().ok()?,
        rounds: words.next()?.parse().ok()?,
    };
    (words.next().is_none() && sample.value.is_finite()).then_some(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_as_both_sides_write_them() {
        let sample = parse(" 8 1.25e-1 10000").unwrap();
        assert_eq!(
            (sample.bytes, sample.value, sample.rounds),
            (8, 0.125, 10_000)
        );
        assert_eq!(parse(" 65536 38.515229 1000").unwrap().value, 38.515229);
        for bad in ["", " 8", " 8 1.0", " 8 nan 1", " 8 1.0 1 1", " x 1.0 1"] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_command_that_is_not_there_is_named() {
        let error = listen(Command::new("/no/such/command"), &mut || {}).unwrap_err();
        assert!(error.contains("/no/such/command"), "{error}");
    }

    #[test]
    fn a_job_that_fails_says_why() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo because >&2; exit 3"]);
        let error = listen(command, &mut || {}).unwrap_err();
        assert!(error.contains("because") && error.contains('3'), "{error}");
    }
}
