//! Loops with nothing in between: this project's C programs, which start both of their ranks.
//!
//! - Over libfabric, the yardstick for a layer above it.
//! - By `process_vm_readv`, the limit for a layer whose receivers read messages where they are. It
//!   is no peer, because nothing is matched, so it is measured only if it is asked for.

use std::path::PathBuf;
use std::process::Command;

use portolan_benches::Pattern;

use super::build::{SOON, make, on_path, said_by};
use super::network::Network;
use super::{as_told, places};
use crate::bench::job::Job;

/// How the names of loops by `process_vm_readv` begin.
const READV: &str = "readv";

/// The program for a pattern, and what it uses.
#[derive(Clone, Debug)]
pub(in crate::bench) struct Loops {
    version: String,
    program: PathBuf,
    /// The network; `None`: `process_vm_readv`.
    network: Option<Network>,
}

/// Builds the program for the job's pattern, over this network, or by `process_vm_readv`. Returns
/// an error if it cannot do the job, or if something needed to build it is missing.
pub(super) fn find(job: &Job, network: Option<&Network>) -> Result<Loops, String> {
    let name = job.pattern.name();
    let pattern = defined(job.pattern).ok_or_else(|| format!("it does not measure {name}"))?;
    if job.ranks != 2 {
        return Err(format!("it measures two ranks, and not {}", job.ranks));
    }
    if job.alloc {
        return Err("it has no library that allocates buffers: left out with --alloc".to_owned());
    }
    build(pattern, network)
}

/// The name under which it is reported as missing.
pub(super) fn name_of(network: Option<&Network>) -> String {
    match network {
        Some(network) => format!("libfabric+{}", network.lowest()),
        None => READV.to_owned(),
    }
}

/// Whether parts of names ask for loops by `process_vm_readv`.
pub(super) fn are_wanted(parts: &[String]) -> bool {
    parts.iter().any(|part| part.starts_with(READV))
}

/// The pattern as the programs call it.
fn defined(pattern: Pattern) -> Option<&'static str> {
    match pattern {
        Pattern::Latency => Some("LATENCY"),
        Pattern::Bandwidth => Some("BANDWIDTH"),
        Pattern::Bibandwidth => Some("BIBANDWIDTH"),
        Pattern::Rate => Some("RATE"),
        _ => None,
    }
}

fn build(pattern: &str, network: Option<&Network>) -> Result<Loops, String> {
    let compiler = on_path("cc").ok_or("cc is not on the path (Debian: apt-get install gcc)")?;
    let define = format!("-DPATTERN=PATTERN_{pattern}");
    let (program, libraries): (_, &[&str]) = match network {
        Some(_) => ("libfabric", &["-lfabric"]),
        None => (READV, &[]),
    };
    let name = format!("{program}-{}", pattern.to_lowercase());
    let source = format!("{program}.c");
    let arguments = ["-O3", "-w", &define];
    let built = make(&compiler, "", &name, &source, &arguments, libraries);
    let program = built.map_err(|why| {
        if why.contains("rdma/") || why.contains("-lfabric") {
            "the headers of libfabric are not here (Debian: apt-get install libfabric-dev)"
                .to_owned()
        } else {
            why
        }
    })?;
    let mut loops = Loops {
        version: String::new(),
        program,
        network: network.cloned(),
    };
    let said = said_by(loops.in_environment().arg("--version"), SOON)?;
    loops.version = said.trim().to_owned();
    Ok(loops)
}

impl Loops {
    /// The names of library and network, such as `libfabric-1.17+tcp`; or `readv` and the system's
    /// version.
    pub(in crate::bench) fn name(&self) -> String {
        let version = &self.version;
        match &self.network {
            Some(network) => format!("libfabric-{version}+{}", network.lowest()),
            None => format!("{READV}-{version}"),
        }
    }

    /// The program, with the network in its environment.
    fn in_environment(&self) -> Command {
        let mut command = Command::new(&self.program);
        let Some(network) = &self.network else {
            return command;
        };
        let Network {
            provider,
            domain,
            address,
            library,
        } = network;
        command.env("LIBFABRIC_PROVIDER", provider);
        if let Some(domain) = domain {
            command.env("LIBFABRIC_DOMAIN", domain);
        }
        if let Some(address) = address {
            command.env("LIBFABRIC_ADDRESS", address.to_string());
        }
        if let Some(library) = library {
            // Preloaded, its functions take precedence over those of the library with which the
            // program was built.
            command.env("LD_PRELOAD", library);
        }
        command
    }

    /// Starts the program as the job requires. `begun` is the moment of the monotonic clock at
    /// which the job began.
    pub(in crate::bench) fn command(&self, job: &Job, begun: u64) -> Command {
        let mut command = self.in_environment();
        if let Some(places) = places(job) {
            command.env("PEER_PROCESSORS", as_told(&places));
        }
        command.args(job.words(begun));
        command
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;

    use portolan_benches::Plan;

    use super::*;
    use crate::bench::job::{Contender, Watch, start};
    use crate::bench::output::Output;
    use crate::os;
    use crate::run::leftovers;

    /// Processor time that a process has used, in hundredths of a second.
    fn used(pid: i32) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
        let ticks = fields.split_whitespace().skip(11).take(2);
        ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
    }

    fn shm() -> Network {
        Network {
            provider: "shm".to_owned(),
            domain: None,
            address: None,
            library: None,
        }
    }

    /// The loops of a job, if they can be built here.
    #[expect(clippy::print_stderr, reason = "skips are counted by the runner")]
    fn found(job: &Job, network: Option<&Network>) -> Option<Loops> {
        find(job, network)
            .inspect_err(|why| eprintln!("skipped: loops {}: {why}", name_of(network)))
            .ok()
    }

    #[test]
    fn a_rank_does_not_wait_for_one_that_has_ended() {
        let job = Job {
            // The second size takes an hour.
            plans: [1, 1 << 40]
                .map(|rounds| Plan::with_rounds(8, rounds))
                .to_vec(),
            limit: 3600.0,
            ..crate::bench::job::tests::job(Pattern::Latency)
        };
        for network in [Some(&shm()), None] {
            if let Some(loops) = found(&job, network) {
                ends_behind_the_other(&loops, &job);
            }
        }
    }

    #[expect(clippy::print_stderr, reason = "skips are counted by the runner")]
    fn ends_behind_the_other(loops: &Loops, job: &Job) {
        let (mut child, remarks) = start(&mut loops.command(job, 0)).unwrap();
        let watch = Watch::over(&child, SOON);
        let pid = child.id() as i32;
        let first = Output::of(&mut child).next().unwrap_or_default();
        if !first.starts_with("portolan-sample 8 ") {
            child.wait().unwrap();
            let said = remarks.text();
            assert!(said.contains("not permitted"), "{first}, {said}");
            eprintln!("skipped: process_vm_readv is forbidden here");
            return;
        }
        let until = used(pid) + 20;
        while used(pid) < until && !os::has_gone(pid) {
            thread::yield_now();
        }
        let [other] = os::descendants(pid)[..] else {
            panic!("there is one more rank");
        };
        os::kill(other, libc::SIGKILL);
        watch.until_end_of(&child).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(2));
        // What libfabric's provider leaves there.
        leftovers::remove(&[pid, other]);
        let said = remarks.text();
        assert!(
            said.contains("the other rank: is not there any more"),
            "{said}"
        );
    }

    #[test]
    #[expect(clippy::print_stderr, reason = "skips are counted by the runner")]
    fn every_pattern_of_reads_runs() {
        for pattern in [
            Pattern::Latency,
            Pattern::Bandwidth,
            Pattern::Bibandwidth,
            Pattern::Rate,
        ] {
            let job = Job {
                window: 5,
                buffers: 2,
                limit: 0.01,
                plans: [0, 100, 100_000]
                    .map(|size| Plan::with_rounds(size, 3))
                    .to_vec(),
                ..crate::bench::job::tests::job(pattern)
            };
            let Some(loops) = found(&job, None) else {
                return;
            };
            assert!(loops.name().starts_with("readv-"), "{}", loops.name());
            let outcome = Contender::Loops(loops).sample(&job, &mut || ());
            let samples = match outcome {
                Ok(outcome) => outcome.samples,
                Err(why) if why.contains("not permitted") => {
                    eprintln!("skipped: process_vm_readv is forbidden here");
                    return;
                }
                Err(why) => panic!("{}: {why}", pattern.name()),
            };
            let sizes = samples.into_iter().map(|sample| sample.unwrap().bytes);
            assert!(sizes.eq([0, 100, 100_000]), "{}", pattern.name());
        }
    }

    #[test]
    fn reads_are_measured_if_they_are_asked_for() {
        let parts = |parts: &[&str]| {
            parts
                .iter()
                .map(|&part| part.to_owned())
                .collect::<Vec<_>>()
        };
        assert!(are_wanted(&parts(&["openmpi-5", "readv"])));
        assert!(are_wanted(&parts(&["readv-6.18"])));
        assert!(!are_wanted(&[]) && !are_wanted(&parts(&["a", "read"])));
        let job = crate::bench::job::tests::job(Pattern::Startup);
        let why = find(&job, None).unwrap_err();
        assert_eq!(why, "it does not measure startup");
    }
}
