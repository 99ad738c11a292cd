//! Libraries below MPI, measured by programs of their own: `ucx_perftest` and `fi_pingpong`.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use portolan_benches::{Pattern, Plan, Sample};

use super::build::{on_path, said_by};
use super::network::Network;
use super::processors;
use crate::bench::job::Job;
use crate::os;

/// How often a client is started until its server is there, and the time in between.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(50);

/// A program that measures a library between two processes.
#[derive(Clone, Debug)]
pub(in crate::bench) struct Tool {
    name: String,
    kind: Kind,
    /// libfabric's.
    provider: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ucx,
    Libfabric,
}

/// Those that are here and measure that pattern, and those that are missing, with the reason. libfabric's uses
/// the network that everybody uses, or shared memory; UCX's is one of those that are asked for as `tuned`.
pub(super) fn find(
    job: &Job,
    network: Option<&Network>,
    tuned: bool,
) -> (Vec<Tool>, Vec<(String, String)>) {
    let (mut tools, mut missing) = (Vec::new(), Vec::new());
    let provider = network.map_or("shm", |network| &network.provider);
    let lowest = network.map_or("shm", Network::lowest);
    let all = [
        (
            Kind::Ucx,
            "ucx_perftest",
            "ucx-utils",
            ["ucx_info", "-v"],
            "posix",
        ),
        (
            Kind::Libfabric,
            "fi_pingpong",
            "libfabric-bin",
            ["fi_info", "--version"],
            lowest,
        ),
    ];
    for (kind, program, package, version, transport) in all {
        let asked = tuned || kind == Kind::Libfabric;
        let fits = asked && job.ranks == 2 && kind.columns(job.pattern).is_some();
        if !fits {
            continue;
        }
        if job.buffers > 1 {
            let why = "it uses one buffer for all messages: left out with --buffers".to_owned();
            missing.push((program.to_owned(), why));
            continue;
        }
        if on_path(program).is_none() {
            let why = format!("it is not on the path (Debian: apt-get install {package})");
            missing.push((program.to_owned(), why));
            continue;
        }
        let said = said_by(Command::new(version[0]).arg(version[1])).unwrap_or_default();
        let number =
            |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
        let number = said.split_whitespace().find(number).unwrap_or("unknown");
        tools.push(Tool {
            name: format!("{program}-{number}+{transport}"),
            kind,
            provider: provider.to_owned(),
        });
    }
    (tools, missing)
}

impl Kind {
    /// The test that measures a pattern, the column of its figure (0 is the first), and how many of
    /// our unit one of its is.
    fn columns(self, pattern: Pattern) -> Option<(&'static str, usize, f64)> {
        match (self, pattern) {
            (Self::Ucx, Pattern::Latency) => Some(("tag_lat", 1, 1.0)),
            // Units of 2²⁰ bytes per second.
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

    /// Measures every size; `step` is called for each. A size that it cannot do has no figure.
    pub(in crate::bench) fn sample(
        &self,
        job: &Job,
        step: &mut dyn FnMut(),
    ) -> Result<Vec<Sample>, String> {
        let mut samples = Vec::new();
        for plan in &job.plans {
            samples.push(self.one(job, plan)?);
            step();
        }
        Ok(samples)
    }

    fn one(&self, job: &Job, plan: &Plan) -> Result<Sample, String> {
        let (test, column, unit) = self
            .kind
            .columns(job.pattern)
            .ok_or_else(|| format!("it does not measure {}", job.pattern.name()))?;
        let messages = if job.pattern.has_windows() {
            plan.rounds * u64::from(job.window)
        } else {
            plan.rounds
        };
        let port = free_port()?;
        let command = |rank: usize| {
            let mut command = pinned(rank, job, self.kind.program());
            match self.kind {
                Kind::Ucx => {
                    command.env("UCX_TLS", "posix,self");
                    // Nothing is no size to it.
                    command.args(["-t", test, "-s", &plan.bytes.max(1).to_string(), "-f", "-v"]);
                    command.args(["-n", &messages.to_string(), "-w", &plan.warm_up.to_string()]);
                    command.args(["-p", &port.to_string()]);
                }
                Kind::Libfabric => {
                    command.args(["-p", &self.provider, "-e", "rdm", "-m", test]);
                    command.args(["-S", &plan.bytes.max(1).to_string()]);
                    command.args(["-I", &messages.to_string()]);
                    let which = if rank == 0 { "-B" } else { "-P" };
                    command.args([which, &port.to_string()]);
                }
            }
            command
        };
        let server = Server::start(command(0))?;
        let mut client = command(1);
        client.arg("127.0.0.1");
        let said = server.ask(&mut client)?;
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
}

impl Kind {
    fn program(self) -> &'static str {
        match self {
            Self::Ucx => "ucx_perftest",
            Self::Libfabric => "fi_pingpong",
        }
    }
}

/// The number in a column of words or of fields between commas.
fn figure(line: &str, column: usize) -> Option<f64> {
    let mut words = line.split([',', ' ', '\t']).filter(|word| !word.is_empty());
    let value = words.nth(column)?.parse::<f64>().ok()?;
    (value.is_finite() && value > 0.0).then_some(value)
}

/// A command on the processor that a rank of the job would have.
fn pinned(rank: usize, job: &Job, program: &str) -> Command {
    match processors(rank, job) {
        Some(processor) if on_path("taskset").is_some() => {
            let mut command = Command::new("taskset");
            command.args(["-c", &processor.to_string(), program]);
            command
        }
        _ => Command::new(program),
    }
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16, String> {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| format!("there is no free port: {error}"))
}

/// The side that waits for the other.
struct Server(Child);

impl Server {
    fn start(mut command: Command) -> Result<Self, String> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        os::end_with_this_process(&mut command);
        let child = command.spawn();
        child
            .map(Self)
            .map_err(|error| format!("cannot start it: {error}"))
    }

    /// What the client says, once the server is there.
    fn ask(mut self, client: &mut Command) -> Result<String, String> {
        let mut why = String::new();
        for _ in 0..ATTEMPTS {
            thread::sleep(PAUSE);
            match said_by(client) {
                Ok(said) => return Ok(said),
                Err(error) => why = error,
            }
            if let Ok(Some(status)) = self.0.try_wait() {
                return Err(format!("the other side has ended ({status}); {why}"));
            }
        }
        Err(why)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends by itself, unless its client did not come.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_their_columns() {
        let ucx = "20000,0.373,1.011,1.011,7.55,7.55,989386,989386";
        assert_eq!(figure(ucx, 1), Some(0.373));
        assert_eq!(figure(ucx, 7), Some(989_386.0));
        let fi = "8       10k     =10k     156k        0.03s      4.59       1.74       0.57";
        assert_eq!(figure(fi, 6), Some(1.74));
        for nothing in ["", "a,b", "8,nan", "8,0"] {
            assert_eq!(figure(nothing, 1), None);
        }
    }
}
