//! Libraries below MPI, measured by their own programs: `ucx_perftest` and `fi_pingpong`.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use portolan_benches::{Pattern, Plan, Sample};

use super::build::{SOON, on_path, said_by};
use super::network::Network;
use super::places;
use crate::bench::job::{Job, Outcome};
use crate::os::{self, CpuSet};
use crate::run::leftovers;

/// How often a client is started until its server listens, and the pause in between.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(50);

/// Why there is no figure for 0 bytes.
const NO_EMPTY: &str = "it sends no empty messages";

/// A program that measures a library between two processes.
#[derive(Clone, Debug)]
pub(in crate::bench) struct Tool {
    name: String,
    kind: Kind,
    /// libfabric's provider.
    provider: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ucx,
    Libfabric,
}

/// The tools that are installed and measure what the job does, and the others, each with the reason
/// why it is left out. libfabric's tool uses the same network as all contenders, or shared memory.
pub(super) fn find(job: &Job, network: Option<&Network>) -> (Vec<Tool>, Vec<(String, String)>) {
    let (mut tools, mut missing) = (Vec::new(), Vec::new());
    for kind in [Kind::Ucx, Kind::Libfabric] {
        match Tool::find(kind, job, network) {
            Ok(tool) => tools.push(tool),
            Err(why) => missing.push((kind.program().to_owned(), why)),
        }
    }
    (tools, missing)
}

impl Tool {
    fn find(kind: Kind, job: &Job, network: Option<&Network>) -> Result<Self, String> {
        kind.check(job)?;
        let program = kind.program();
        let (package, version, transport) = match kind {
            Kind::Ucx => ("ucx-utils", ["ucx_info", "-v"], "posix"),
            Kind::Libfabric => {
                let lowest = network.map_or("shm", Network::lowest);
                ("libfabric-bin", ["fi_info", "--version"], lowest)
            }
        };
        if on_path(program).is_none() {
            return Err(format!(
                "it is not on the path (Debian: apt-get install {package})"
            ));
        }
        let said = said_by(Command::new(version[0]).arg(version[1]), SOON).unwrap_or_default();
        let number =
            |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
        let number = said.split_whitespace().find(number).unwrap_or("unknown");
        Ok(Self {
            name: format!("{program}-{number}+{transport}"),
            kind,
            provider: network
                .map_or("shm", |network| &network.provider)
                .to_owned(),
        })
    }
}

impl Kind {
    /// Refuses a job that the tool cannot do, with the reason.
    fn check(self, job: &Job) -> Result<(), String> {
        if self.columns(job.pattern).is_none() {
            return Err(format!("it does not measure {}", job.pattern.name()));
        }
        if job.ranks != 2 {
            return Err(format!("it measures two ranks, and not {}", job.ranks));
        }
        if job.buffers > 1 {
            return Err("it uses one buffer for all messages: left out with --buffers".to_owned());
        }
        if job.alloc {
            return Err("it has no buffers of the library: left out with --alloc".to_owned());
        }
        if job.plans.iter().all(|plan| plan.bytes == 0) {
            return Err(NO_EMPTY.to_owned());
        }
        Ok(())
    }

    fn program(self) -> &'static str {
        match self {
            Self::Ucx => "ucx_perftest",
            Self::Libfabric => "fi_pingpong",
        }
    }

    /// The test that measures a pattern, the column of its figure (counted from 0), and how many of
    /// Portolan's units its unit is.
    fn columns(self, pattern: Pattern) -> Option<(&'static str, usize, f64)> {
        match (self, pattern) {
            // The columns: iterations, a percentile, the mean latency of recent rounds and of all
            // rounds (the latter is what Portolan reports), then bandwidth and message rate, each
            // of recent rounds and of all.
            (Self::Ucx, Pattern::Latency) => Some(("tag_lat", 3, 1.0)),
            // In units of 2²⁰ bytes per second.
            (Self::Ucx, Pattern::Bandwidth) => Some(("tag_bw", 5, 1.048_576)),
            (Self::Ucx, Pattern::Rate) => Some(("tag_bw", 7, 1.0)),
            // The last but one of: bytes, sent, acknowledged, total, time, MB/s, µs each, M/s.
            (Self::Libfabric, Pattern::Latency) => Some(("tagged", 6, 1.0)),
            _ => None,
        }
    }
}

impl Tool {
    pub(in crate::bench) fn name(&self) -> &str {
        &self.name
    }

    /// Measures every size and calls `step` for each. A size that the tool cannot measure has a
    /// reason instead of a figure.
    ///
    /// # Errors
    /// If it can measure none of them, or if all sizes together take longer than a sample may.
    pub(in crate::bench) fn sample(
        &self,
        job: &Job,
        step: &mut dyn FnMut(),
    ) -> Result<Outcome, String> {
        let until = Instant::now() + job.patience();
        each(&job.plans, |plan| {
            step();
            let one = match plan.bytes {
                0 => Err(NO_EMPTY.to_owned()),
                _ => self.one(job, plan, until),
            };
            one.map_err(|why| (why, Instant::now() >= until))
        })
    }

    fn one(&self, job: &Job, plan: &Plan, until: Instant) -> Result<Sample, String> {
        let (test, column, unit) = self
            .kind
            .columns(job.pattern)
            .ok_or_else(|| format!("it does not measure {}", job.pattern.name()))?;
        let port = free_port()?;
        let command = |rank: usize| self.command(job, plan, test, rank, port);
        let server = Server::start(command(0))?;
        let client = || {
            let mut client = command(1);
            client.arg("127.0.0.1");
            client
        };
        let said = server.ask(client, until)?;
        let last = said
            .lines()
            .rfind(|line| !line.trim().is_empty())
            .unwrap_or_default();
        let value = figure(last, column).ok_or_else(|| format!("it said: {}", said.trim_end()))?;
        Ok(Sample {
            bytes: plan.bytes,
            value: value * unit,
            rounds: plan.rounds,
        })
    }

    /// One side of a test.
    fn command(&self, job: &Job, plan: &Plan, test: &str, rank: usize, port: u16) -> Command {
        // The tool counts messages, not windows.
        let window = if job.pattern.has_windows() {
            u64::from(job.window)
        } else {
            1
        };
        let [messages, before] = [plan.rounds, plan.warm_up].map(|rounds| rounds * window);
        let mut command = pinned(rank, job, self.kind.program());
        match self.kind {
            Kind::Ucx => {
                command.env("UCX_TLS", "posix,self");
                command.args(["-t", test, "-s", &plan.bytes.to_string(), "-f", "-v"]);
                command.args(["-n", &messages.to_string(), "-w", &before.to_string()]);
                if job.pattern.has_windows() {
                    // The sends that are under way at a time, for which it has a number of its own.
                    command.args(["-O", &window.to_string()]);
                }
                command.args(["-p", &port.to_string()]);
            }
            // The tool has no warm-up rounds.
            Kind::Libfabric => {
                command.args(["-p", &self.provider, "-e", "rdm", "-m", test]);
                command.args(["-S", &plan.bytes.to_string()]);
                command.args(["-I", &messages.to_string()]);
                let which = if rank == 0 { "-B" } else { "-P" };
                command.args([which, &port.to_string()]);
            }
        }
        command
    }
}

/// A sample of each size that `one` can measure, or the reason why not. An error if it can measure
/// none, or if it reports that its time has run out.
fn each(
    plans: &[Plan],
    mut one: impl FnMut(&Plan) -> Result<Sample, (String, bool)>,
) -> Result<Outcome, String> {
    let mut samples = Vec::new();
    for plan in plans {
        samples.push(match one(plan) {
            Ok(sample) => Ok(sample),
            Err((why, true)) => return Err(why),
            Err((why, false)) => Err(why),
        });
    }
    if samples.iter().all(Result::is_err)
        && let Some(Err(why)) = samples.first()
    {
        return Err(why.clone());
    }
    Ok(Outcome {
        transport: None,
        levels: false,
        samples,
        remarks: String::new(),
    })
}

/// The number in a column of words or of fields between commas.
fn figure(line: &str, column: usize) -> Option<f64> {
    let mut words = line.split([',', ' ', '\t']).filter(|word| !word.is_empty());
    let value = words.nth(column)?.parse::<f64>().ok()?;
    (value.is_finite() && value > 0.0).then_some(value)
}

/// A command bound to the processors on which a rank of the job would run. The process binds itself
/// before it becomes the program, so no other program has to be installed for that.
fn pinned(rank: usize, job: &Job, program: &str) -> Command {
    let mut command = Command::new(program);
    let place = places(job).and_then(|places| places.get(rank).cloned());
    if let Some(place) = place {
        os::bind(&mut command, CpuSet::of(place));
    }
    command
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16, String> {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| format!("there is no free port: {error}"))
}

/// The process that waits for the client.
struct Server {
    process: Child,
    /// A client has been served, so the process ends by itself.
    served: bool,
}

/// The longest time that a server has for its end, once its client has ended.
const GRACE: Duration = Duration::from_secs(5);

impl Server {
    fn start(mut command: Command) -> Result<Self, String> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        os::end_with_this_process(&mut command, libc::SIGKILL);
        let child = command.spawn();
        child
            .map(|process| Self {
                process,
                served: false,
            })
            .map_err(|error| format!("cannot start it: {error}"))
    }

    /// The client's output. The client is started until the server listens; it must have ended by
    /// `until`.
    fn ask(mut self, client: impl Fn() -> Command, until: Instant) -> Result<String, String> {
        let mut why = String::new();
        for _ in 0..ATTEMPTS {
            thread::sleep(PAUSE);
            let left = until.saturating_duration_since(Instant::now());
            match said_by(&mut client(), left) {
                Ok(said) => {
                    self.served = true;
                    return Ok(said);
                }
                Err(error) => why = error,
            }
            if Instant::now() >= until {
                break;
            }
            if let Ok(Some(status)) = self.process.try_wait() {
                return Err(format!("the other side has ended ({status}); {why}"));
            }
        }
        Err(why)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server ends by itself, unless its client did not come. It may need a moment after the
        // client's end, and leaves its shared memory behind if it is killed before.
        let until = Instant::now() + if self.served { GRACE } else { Duration::ZERO };
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        leftovers::remove(&[self.process.id() as i32]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Bind;

    fn sampled(can: &[usize], in_time: bool) -> Result<Outcome, String> {
        let plans = [0, 1, 8].map(|bytes| Plan::with_rounds(bytes, 3));
        each(&plans, |plan| match plan.bytes {
            bytes if can.contains(&bytes) => Ok(Sample {
                bytes,
                value: 1.0,
                rounds: plan.rounds,
            }),
            bytes => Err((format!("no {bytes}"), !in_time)),
        })
    }

    #[test]
    fn a_size_that_a_tool_cannot_do_has_no_figure() {
        let outcome = sampled(&[1, 8], true).unwrap();
        let sizes: Vec<_> = outcome
            .samples
            .into_iter()
            .map(|sample| sample.map(|sample| sample.bytes))
            .collect();
        assert_eq!(sizes, [Err("no 0".to_owned()), Ok(1), Ok(8)]);
        assert_eq!(sampled(&[], true).unwrap_err(), "no 0");
        // Once the time is over, no further size is tried.
        assert_eq!(sampled(&[0, 8], false).unwrap_err(), "no 1");
    }

    #[test]
    fn a_job_that_a_tool_cannot_do_is_refused_with_the_reason() {
        let usual = |pattern| Job {
            plans: vec![Plan::with_rounds(8, 3)],
            ..crate::bench::job::tests::job(pattern)
        };
        for (pattern, [ucx, libfabric]) in [
            (Pattern::Latency, [true, true]),
            (Pattern::Bandwidth, [true, false]),
            (Pattern::Rate, [true, false]),
            (Pattern::Barrier, [false, false]),
        ] {
            let job = usual(pattern);
            assert_eq!(Kind::Ucx.check(&job).is_ok(), ucx, "{pattern:?}");
            assert_eq!(Kind::Libfabric.check(&job).is_ok(), libfabric);
        }
        let refused = |job: Job| Kind::Ucx.check(&job).unwrap_err();
        let latency = || usual(Pattern::Latency);
        for (job, why) in [
            (usual(Pattern::Barrier), "it does not measure barrier"),
            (
                Job {
                    ranks: 4,
                    ..latency()
                },
                "it measures two ranks, and not 4",
            ),
            (
                Job {
                    buffers: 2,
                    ..latency()
                },
                "left out with --buffers",
            ),
            (
                Job {
                    alloc: true,
                    ..latency()
                },
                "left out with --alloc",
            ),
            (
                Job {
                    plans: vec![Plan::with_rounds(0, 3)],
                    ..latency()
                },
                NO_EMPTY,
            ),
        ] {
            let said = refused(job);
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn a_tool_is_bound_where_its_rank_would_be() {
        let allowed = os::allowed_cpus().unwrap();
        let (first, last) = (allowed[0], allowed[allowed.len() - 1]);
        let job = |pin| Job {
            pin,
            ..crate::bench::job::tests::job(Pattern::Latency)
        };
        let said = |rank, pin| {
            let mut command = pinned(rank, &job(pin), "grep");
            assert_eq!(command.get_program(), "grep");
            command.args(["Cpus_allowed_list", "/proc/self/status"]);
            let said = said_by(&mut command, SOON).unwrap();
            said.split_whitespace().next_back().map(str::to_owned)
        };
        let list = || Bind::List(vec![first, last]);
        assert_eq!(said(0, list()), Some(first.to_string()));
        assert_eq!(said(1, list()), Some(last.to_string()));
        if first != last {
            assert_ne!(said(0, Bind::None), Some(first.to_string()));
        }
        // A processor that is not there is an error, and not another place.
        let mut nowhere = pinned(0, &job(Bind::List(vec![1023, 1023])), "true");
        assert!(said_by(&mut nowhere, SOON).is_err());
    }

    #[test]
    fn a_client_that_does_not_end_is_ended() {
        let endless = || {
            let mut command = Command::new("sleep");
            command.arg("100000");
            command
        };
        let server = Server::start(endless()).unwrap();
        let until = Instant::now() + 2 * PAUSE;
        let error = server.ask(endless, until).unwrap_err();
        assert!(error.contains("it had not ended"), "{error}");
    }

    #[test]
    fn rounds_before_those_that_count_have_whole_windows_too() {
        let tool = Tool {
            name: "ucx_perftest".to_owned(),
            kind: Kind::Ucx,
            provider: String::new(),
        };
        let words = |pattern| -> Vec<String> {
            let job = Job {
                window: 64,
                ..crate::bench::job::tests::job(pattern)
            };
            let command = tool.command(&job, &Plan::with_rounds(8, 100), "test", 0, 1);
            let words = command.get_args().map(|word| word.to_string_lossy());
            words.map(|word| word.into_owned()).collect()
        };
        let has = |pattern, pair: [&str; 2]| words(pattern).windows(2).any(|words| words == pair);
        assert!(has(Pattern::Rate, ["-O", "64"]) && has(Pattern::Bandwidth, ["-O", "64"]));
        assert!(!words(Pattern::Latency).contains(&"-O".to_owned()));
        assert!(has(Pattern::Rate, ["-n", "6400"]) && has(Pattern::Rate, ["-w", "640"]));
        assert!(has(Pattern::Latency, ["-n", "100"]) && has(Pattern::Latency, ["-w", "10"]));
    }

    #[test]
    fn figures_are_found_in_their_columns() {
        let ucx = "20000,0.373,1.012,1.011,7.56,7.55,989387,989386";
        let of = |pattern| {
            let (_, column, _) = Kind::Ucx.columns(pattern)?;
            figure(ucx, column)
        };
        // The mean of all rounds, as Portolan reports it.
        assert_eq!(of(Pattern::Latency), Some(1.011));
        assert_eq!(of(Pattern::Bandwidth), Some(7.55));
        assert_eq!(of(Pattern::Rate), Some(989_386.0));
        let fi = "8       10k     =10k     156k        0.03s      4.59       1.74       0.57";
        assert_eq!(figure(fi, 6), Some(1.74));
        for nothing in ["", "a,b", "8,nan", "8,0"] {
            assert_eq!(figure(nothing, 1), None);
        }
    }
}
