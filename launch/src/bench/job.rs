//! One sample: a job of ours or of a peer, and what it says.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use portolan_benches::{Pattern, Plan, Sample};

use super::peers::{Loops, Peer, Tool};
use crate::os;
use crate::run::Bind;

/// Begins a line with a figure: bytes, value, rounds. The peers' programs say the same.
pub(super) const SAMPLE: &str = "portolan-sample";
/// Begins the line that names the transport.
pub(super) const TRANSPORT: &str = "portolan-transport";

/// When a sample that does not end is given up.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);

/// What launchers have to end a sample that is given up, in order; where one stands still it is
/// ended, with its ranks.
const GRACE: Duration = Duration::from_secs(30);

/// [`PATIENCE`] in seconds, as launchers are told.
pub(super) fn patience() -> String {
    PATIENCE.as_secs().to_string()
}

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
    /// Processes beside it that spin.
    pub(super) busy: u32,
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

/// The figure of a size, or why there is none.
pub(super) type OfSize = Result<Sample, String>;

/// What a sample came to.
#[derive(Debug)]
pub(super) struct Outcome {
    /// What carried the messages, if it was ours.
    pub(super) transport: Option<String>,
    /// One for each plan; only tools lack some.
    pub(super) samples: Vec<OfSize>,
    /// What else was said that its user should hear.
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

    /// When a sample of it is ended, if nobody else does that.
    pub(super) fn limit(&self) -> Option<Duration> {
        match self {
            // Its own launcher does, and cleans up behind it; killed, it could not.
            Self::Ours(_) | Self::Forced(_) => None,
            // An mpiexec is told its time, and may stand still all the same.
            Self::Peer(_) => Some(PATIENCE + GRACE),
            Self::Tool(_) | Self::Loops(_) => Some(PATIENCE),
        }
    }

    /// Takes a sample; `step` is called for each figure.
    pub(super) fn sample(&self, job: &Job, step: &mut dyn FnMut()) -> Result<Outcome, String> {
        let begun = os::monotonic_nanoseconds();
        let limit = self.limit();
        let mut outcome = match self {
            Self::Ours(transport) => listen(ours(job, transport.as_deref(), begun)?, limit, step)?,
            Self::Forced(forced) => {
                let mut command = ours(job, forced.transport.as_deref(), begun)?;
                command.env("PORTOLAN_COLL_TABLE", &forced.table);
                command.env("PORTOLAN_COLL_DIRECT", "off");
                // Its name stays that of the algorithm.
                Outcome {
                    transport: None,
                    ..listen(command, limit, step)?
                }
            }
            Self::Peer(peer) => listen(peer.command(job, begun), limit, step)?,
            Self::Loops(loops) => listen(loops.command(job, begun), limit, step)?,
            Self::Tool(tool) => tool.sample(job, step)?,
        };
        let expected: Vec<usize> = job.plans.iter().map(|plan| plan.bytes).collect();
        let pairs = outcome.samples.iter().zip(&expected);
        let fit = pairs.fold(
            outcome.samples.len() == expected.len(),
            |fit, (got, bytes)| fit && got.as_ref().map_or(true, |got| got.bytes == *bytes),
        );
        if !fit {
            let got: Vec<usize> = outcome
                .samples
                .iter()
                .flatten()
                .map(|sample| sample.bytes)
                .collect();
            return Err(format!(
                "it measured sizes {got:?} instead of {expected:?}\n{}",
                outcome.remarks
            ));
        }
        if let Self::Peer(_) | Self::Loops(_) = self {
            // What another implementation has to say about itself is not for our user.
            outcome.remarks.clear();
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
    command.args(["run", "-n", &ranks.to_string(), "--timeout", &patience()]);
    command.args(["--bind", &pin.to_string()]).args(options);
    if let Some(transport) = transport {
        command.args(["--transport", transport]);
    }
    command.arg("--").arg(&program);
    Ok(command)
}

/// Starts a job whose output is listened to, and which ends with this process.
pub(super) fn start(command: &mut Command) -> Result<(Child, Remarks), String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    os::end_with_this_process(command);
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

/// Ends a process that takes too long, and all that it has started: that may hold its output.
pub(super) struct Watch {
    time: Duration,
    ended: mpsc::Sender<()>,
    thread: thread::JoinHandle<bool>,
}

impl Watch {
    /// Kills a child and its descendants when so much time is over.
    pub(super) fn over(child: &Child, time: Duration) -> Self {
        let (ended, told) = mpsc::channel();
        let pid = i32::try_from(child.id()).ok();
        let thread = thread::spawn(move || {
            let late = told.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
            if let (true, Some(pid)) = (late, pid) {
                // Stopped, it starts nobody while it is asked whom it has started.
                os::stop(pid);
                let descendants = os::descendants(pid);
                os::kill(pid, libc::SIGKILL);
                for pid in descendants {
                    os::kill(pid, libc::SIGKILL);
                }
            }
            late
        });
        Self {
            time,
            ended,
            thread,
        }
    }

    /// Waits for the end of the child, which is not reaped; an error if its time has run out.
    pub(super) fn until_end_of(self, child: &Child) -> Result<(), String> {
        if let Ok(pid) = i32::try_from(child.id()) {
            os::await_end(pid);
        }
        drop(self.ended);
        match self.thread.join() {
            Ok(true) => Err(format!("it had not ended after {:?}", self.time)),
            _ => Ok(()),
        }
    }
}

/// Hears a job to its end, which it has to come to in a `limit` of time if there is one.
fn listen(
    mut command: Command,
    limit: Option<Duration>,
    step: &mut dyn FnMut(),
) -> Result<Outcome, String> {
    let (mut child, remarks) = start(&mut command)?;
    let watch = limit.map(|limit| Watch::over(&child, limit));
    let (mut transport, mut samples) = (None, Vec::new());
    if let Some(out) = child.stdout.take() {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if let Some(name) = line.strip_prefix(TRANSPORT) {
                transport = Some(name.trim().to_owned());
            } else if let Some(sample) = line.strip_prefix(SAMPLE).and_then(parse) {
                samples.push(Ok(sample));
                step();
            }
        }
    }
    let in_time = watch.map_or(Ok(()), |watch| watch.until_end_of(&child));
    let status = child
        .wait()
        .map_err(|error| format!("cannot wait for the job: {error}"))?;
    let remarks = remarks.text();
    in_time.map_err(|why| format!("{why}\n{}", remarks.trim_end()))?;
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
pub(super) mod tests {
    use super::*;

    /// Two ranks wherever they like, and nothing to do.
    pub(in crate::bench) fn job(pattern: Pattern) -> Job {
        Job {
            pattern,
            ranks: 2,
            window: 64,
            buffers: 1,
            threads: 1,
            limit: 1.0,
            plans: Vec::new(),
            pin: Bind::None,
            crowded: false,
            busy: 0,
        }
    }

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
        let error = listen(Command::new("/no/such/command"), None, &mut || {}).unwrap_err();
        assert!(error.contains("/no/such/command"), "{error}");
    }

    #[test]
    fn a_job_that_fails_says_why() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo because >&2; exit 3"]);
        let error = listen(command, None, &mut || {}).unwrap_err();
        assert!(error.contains("because") && error.contains('3'), "{error}");
    }

    #[test]
    fn a_job_that_does_not_end_is_ended() {
        let endless = || {
            let mut command = Command::new("sh");
            // As an mpiexec that stands still: who holds the output is what it has started.
            command.args(["-c", "echo portolan-sample 8 1.0 1; sleep 100000 & wait"]);
            command
        };
        let mut steps = 0;
        let soon = Some(Duration::from_millis(20));
        let error = listen(endless(), soon, &mut || steps += 1).unwrap_err();
        assert!(error.contains("it had not ended after 20ms"), "{error}");
        assert!(steps <= 1);
        let mut command = Command::new("echo");
        command.arg("portolan-sample 8 1.0 1");
        let outcome = listen(command, Some(PATIENCE), &mut || {}).unwrap();
        assert_eq!(outcome.samples.len(), 1);
    }
}
