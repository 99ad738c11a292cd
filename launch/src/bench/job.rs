//! One sample: a job of Portolan or of a peer, and the output that is read from it.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use portolan_benches::{Pattern, Plan, Sample};

use super::forced::Forced;
use super::output::{Output, Remarks};
use super::peers::{Loops, Peer, Tool};
use crate::os;
use crate::run::Bind;

/// Prefix of a line with a figure: bytes, value, rounds. The peers' programs print the same.
pub(super) const SAMPLE: &str = "portolan-sample";
/// Prefix of a peer's line for a size that it cannot measure: bytes, reason.
const NO_SAMPLE: &str = "portolan-no-sample ";
/// Prefix of the line that names the transport.
pub(super) const TRANSPORT: &str = "portolan-transport";
/// The line that says that ranks are on several nodes, of which some have several.
pub(super) const LEVELS: &str = "portolan-levels";

/// Least time after which a sample that does not end is given up.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);

/// How many times the longest time for one size a size may take in all: up to three quarters of it
/// to warm up, once for the rounds, and, where something is hidden behind a computation, five times
/// as long again.
const WHOLE: f64 = 8.0;

/// The most seconds that every launcher reads as a number.
const MOST: f64 = 2e9;

/// Additional time for a peer's `mpiexec` to end a sample that has run out of its
/// [`patience`](Job::patience). After that the `mpiexec` itself is killed, with its ranks.
const GRACE: Duration = Duration::from_secs(30);

/// A time-out in the form in which launchers are told: whole seconds.
pub(super) fn whole_seconds(patience: Duration) -> String {
    patience.as_secs().to_string()
}

/// What is done in a sample, the same for every contender.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) pattern: Pattern,
    pub(super) ranks: u32,
    pub(super) window: u32,
    /// Buffers that the messages of a window use in turn, in each direction.
    pub(super) buffers: u32,
    /// Whether buffers are the library's.
    pub(super) alloc: bool,
    /// Whether buffers are on GPUs.
    pub(super) cuda: bool,
    /// Whether Portolan's windows are in scopes.
    pub(super) scope: bool,
    /// Threads of a rank.
    pub(super) threads: u32,
    /// Longest time for one size, in seconds.
    pub(super) limit: f64,
    pub(super) plans: Vec<Plan>,
    pub(super) pin: Bind,
    /// Whether there are more ranks than cores.
    pub(super) crowded: bool,
    /// Processes that spin alongside the sample.
    pub(super) busy: u32,
}

/// Whose performance is measured.
#[derive(Clone, Debug)]
pub(super) enum Contender {
    /// Portolan, over this transport or over the best.
    Ours(Option<String>),
    /// Portolan with one algorithm of a collective operation.
    Forced(Forced),
    /// Another implementation.
    Peer(Peer),
    /// A library below MPI implementations, measured by its own program.
    Tool(Tool),
    /// libfabric, measured by a C program of this project with nothing in between.
    Loops(Loops),
}

/// The figure for one size, or the reason why there is none.
pub(super) type OfSize = Result<Sample, String>;

/// The result of a sample.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The transport that carried the messages; `None` for a peer.
    pub(super) transport: Option<String>,
    /// Whether the job has said that its ranks are on several nodes, of which some have several.
    pub(super) levels: bool,
    /// One entry for each plan. Only peers can lack a figure for some sizes.
    pub(super) samples: Vec<OfSize>,
    /// Other output that the user should see.
    pub(super) remarks: String,
}

impl Contender {
    /// The contender's name, as far as it is known before it has run.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Ours(transport) => transport.clone().unwrap_or_else(|| "portolan".to_owned()),
            Self::Forced(forced) => forced.algorithm.to_owned(),
            Self::Peer(peer) => peer.name(),
            Self::Tool(tool) => tool.name().to_owned(),
            Self::Loops(loops) => loops.name(),
        }
    }

    /// Whether the contender is not Portolan.
    pub(super) fn is_peer(&self) -> bool {
        matches!(self, Self::Peer(_) | Self::Tool(_) | Self::Loops(_))
    }

    /// Time after which `portolan bench` itself ends a sample of this contender; `None` if the
    /// contender's launcher does that.
    pub(super) fn limit(&self, job: &Job) -> Option<Duration> {
        match self {
            // Portolan's launcher has its own time-out and cleans up afterwards, which it could not
            // do if it were killed.
            Self::Ours(_) => None,
            Self::Forced(forced) => forced.limit(job.patience() + GRACE),
            // An `mpiexec` has a time-out as well, but it may hang all the same.
            Self::Peer(_) => Some(job.patience() + GRACE),
            Self::Tool(_) | Self::Loops(_) => Some(job.patience()),
        }
    }

    /// Takes a sample and calls `step` for each figure.
    pub(super) fn sample(&self, job: &Job, step: &mut dyn FnMut()) -> Result<Outcome, String> {
        let begun = os::monotonic_nanoseconds();
        let limit = self.limit(job);
        let mut outcome = match self {
            Self::Ours(transport) => listen(ours(job, transport.as_deref(), begun)?, limit, step)?,
            Self::Forced(forced) => forced.sample(job, limit, step)?,
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
            // Another implementation's messages are not meant for the user of Portolan.
            outcome.remarks.clear();
        }
        Ok(outcome)
    }
}

impl Job {
    /// Time after which a sample that has not ended is given up: [`PATIENCE`] and what all sizes
    /// may take, so that a long `--seconds` is never mistaken for a job that hangs.
    pub(super) fn patience(&self) -> Duration {
        let sizes = WHOLE * self.limit * self.plans.len() as f64;
        Duration::from_secs_f64((PATIENCE.as_secs_f64() + sizes).min(MOST))
    }

    /// The arguments of the C programs, in the form that `benches/peers/peer.h` describes.
    pub(super) fn words(&self, begun: u64) -> Vec<String> {
        let mut words = vec![
            self.window.to_string(),
            self.buffers.to_string(),
            self.limit.to_string(),
            self.threads.to_string(),
            begun.to_string(),
            u8::from(self.alloc).to_string(),
        ];
        words.extend(self.plans.iter().map(Plan::to_string));
        words
    }
}

/// This command itself, under its own launcher.
pub(super) fn ours(job: &Job, transport: Option<&str>, begun: u64) -> Result<Command, String> {
    let mut command = launcher(job.ranks, transport, &job.pin, job.patience(), &[])?;
    as_rank(&mut command, job, begun);
    Ok(command)
}

/// Adds the arguments with which this program is a rank of a sample.
pub(super) fn as_rank(command: &mut Command, job: &Job, begun: u64) {
    command
        .args(["bench-rank", job.pattern.name()])
        .args(["--window", &job.window.to_string()])
        .args(["--buffers", &job.buffers.to_string()])
        .args(job.alloc.then_some("--alloc"))
        .args(job.cuda.then_some("--cuda"))
        .args(job.scope.then_some("--scope"))
        .args(["--limit", &job.limit.to_string()])
        .args(["--threads", &job.threads.to_string()])
        .args(["--begun", &begun.to_string()])
        .args(job.plans.iter().map(Plan::to_string));
}

/// This program's own file.
pub(super) fn own_file() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("cannot find this program's own file: {error}"))
}

/// `portolan run OPTIONS -- portolan`, without the arguments of the ranks.
pub(super) fn launcher(
    ranks: u32,
    transport: Option<&str>,
    pin: &Bind,
    patience: Duration,
    options: &[&str],
) -> Result<Command, String> {
    let program = own_file()?;
    let mut command = Command::new(&program);
    let patience = whole_seconds(patience);
    command.args(["run", "-n", &ranks.to_string(), "--timeout", &patience]);
    command.args(["--bind", &pin.to_string()]).args(options);
    if let Some(transport) = transport {
        command.args(["--transport", transport]);
    }
    command.arg("--").arg(&program);
    Ok(command)
}

/// Starts a job whose output this process reads, and whose launcher is told to end it when this
/// process ends.
pub(super) fn start(command: &mut Command) -> Result<(Child, Remarks), String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    os::end_with_this_process(command, libc::SIGTERM);
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot start {name}: {error}"))?;
    let remarks = Remarks::of(&mut child);
    Ok((child, remarks))
}

/// Ends a process that takes too long, together with its descendants.
pub(super) struct Watch {
    time: Duration,
    ended: mpsc::Sender<()>,
    thread: thread::JoinHandle<bool>,
}

impl Watch {
    /// Kills the child and its descendants after `time`.
    pub(super) fn over(child: &Child, time: Duration) -> Self {
        let (ended, told) = mpsc::channel();
        let pid = i32::try_from(child.id()).ok();
        let thread = thread::spawn(move || {
            let late = told.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
            if let (true, Some(pid)) = (late, pid) {
                // The child is stopped first, so that it starts nothing while its descendants are
                // listed.
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

    /// Waits for the end of the child without reaping it. Returns an error if the child's time ran
    /// out.
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

/// Reads the output of a job to its end. If there is a `limit`, a job that takes longer is killed.
pub(super) fn listen(
    mut command: Command,
    limit: Option<Duration>,
    step: &mut dyn FnMut(),
) -> Result<Outcome, String> {
    let (mut child, remarks) = start(&mut command)?;
    let watch = limit.map(|limit| Watch::over(&child, limit));
    let (mut transport, mut levels, mut samples) = (None, false, Vec::new());
    for line in Output::of(&mut child) {
        if let Some(name) = line.strip_prefix(TRANSPORT) {
            transport = Some(name.trim().to_owned());
        } else if line.trim_end() == LEVELS {
            levels = true;
        } else if let Some(sample) = line.strip_prefix(SAMPLE).and_then(parse) {
            samples.push(Ok(sample));
            step();
        } else if let Some((_, why)) = line
            .strip_prefix(NO_SAMPLE)
            .and_then(|rest| rest.split_once(' '))
        {
            samples.push(Err(why.to_owned()));
            step();
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
        levels,
        samples,
        remarks,
    })
}

/// Parses the text that follows [`SAMPLE`].
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

    /// A job of two unpinned ranks that measures nothing.
    pub(in crate::bench) fn job(pattern: Pattern) -> Job {
        Job {
            pattern,
            ranks: 2,
            window: 64,
            buffers: 1,
            alloc: false,
            cuda: false,
            scope: false,
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
    fn a_sample_has_the_time_that_it_was_given() {
        let job = |limit, sizes| Job {
            limit,
            plans: vec![Plan::with_rounds(8, 1); sizes],
            ..job(Pattern::Latency)
        };
        for (limit, sizes) in [(0.1, 1), (1.0, 15), (45.0, 15), (700.0, 1)] {
            let (job, needs) = (job(limit, sizes), limit * sizes as f64);
            let patience = job.patience();
            assert!(patience >= PATIENCE);
            // With the warm-up, and a computation that is five times as long.
            assert!(patience.as_secs_f64() > 6.75 * needs + 60.0, "{patience:?}");
            // The launcher is told so.
            let command = ours(&job, None, 0).unwrap();
            let words: Vec<_> = command.get_args().collect();
            let told = words.windows(2).find(|words| words[0] == "--timeout");
            assert_eq!(told.unwrap()[1], &*whole_seconds(patience));
        }
        assert_eq!(job(1e15, 15).patience().as_secs_f64(), MOST);
    }

    #[test]
    fn ranks_are_told_where_buffers_are_and_whether_windows_are_scopes() {
        let plain = || job(Pattern::Bandwidth);
        let told = |job: &Job, option: &str| {
            let command = ours(job, None, 0).unwrap();
            command.get_args().any(|word| word == option)
        };
        let [mut alloc, mut cuda, mut scope] = [plain(), plain(), plain()];
        (alloc.alloc, cuda.cuda, scope.scope) = (true, true, true);
        for (job, option) in [(alloc, "--alloc"), (cuda, "--cuda"), (scope, "--scope")] {
            assert!(told(&job, option) && !told(&plain(), option), "{option}");
        }
    }

    #[test]
    fn a_command_that_is_not_there_is_named() {
        let error = listen(Command::new("/no/such/command"), None, &mut || {}).unwrap_err();
        assert!(error.contains("/no/such/command"), "{error}");
    }

    #[test]
    fn a_size_without_a_figure_has_a_reason_in_its_place() {
        let mut command = Command::new("printf");
        command.arg(
            "portolan-sample 8 1.0 1\nportolan-no-sample 3000000000 too long for it\n\
             portolan-sample 64 2.0 1\n",
        );
        let mut steps = 0;
        let outcome = listen(command, None, &mut || steps += 1).unwrap();
        let said: Vec<_> = outcome.samples.iter().map(Result::as_ref).collect();
        let values: Vec<_> = said
            .iter()
            .map(|of| of.map(|sample| sample.value))
            .collect();
        let why = "too long for it".to_owned();
        assert_eq!(values, [Ok(1.0), Err(&why), Ok(2.0)]);
        assert_eq!(steps, 3);
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
            // Like an `mpiexec` that hangs: the process that holds the output open is its child.
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
