//! Loops over libfabric with nothing in between: this project's C program, which starts both of its
//! ranks.

use std::path::{Path, PathBuf};
use std::process::Command;

use portolan_benches::Pattern;

use super::build::{SOON, make, on_path, said_by};
use super::network::Network;
use super::{as_told, places};
use crate::bench::job::Job;

/// The program for a pattern, and the network that it uses.
#[derive(Clone, Debug)]
pub(in crate::bench) struct Loops {
    version: String,
    program: PathBuf,
    network: Network,
}

/// Builds the program for the job's pattern. Returns an error if it cannot do the job, or if
/// something needed to build it is missing.
pub(super) fn find(job: &Job, network: &Network) -> Result<Loops, String> {
    let name = job.pattern.name();
    let pattern = defined(job.pattern).ok_or_else(|| format!("it does not measure {name}"))?;
    if job.ranks != 2 {
        return Err(format!("it measures two ranks, and not {}", job.ranks));
    }
    if job.alloc {
        return Err("libfabric allocates no buffers: left out with --alloc".to_owned());
    }
    build(pattern, network)
}

/// The name under which it is reported as missing.
pub(super) fn name_of(network: &Network) -> String {
    format!("libfabric+{}", network.lowest())
}

/// The pattern as `benches/peers/libfabric.c` calls it.
fn defined(pattern: Pattern) -> Option<&'static str> {
    match pattern {
        Pattern::Latency => Some("LATENCY"),
        Pattern::Bandwidth => Some("BANDWIDTH"),
        Pattern::Bibandwidth => Some("BIBANDWIDTH"),
        Pattern::Rate => Some("RATE"),
        _ => None,
    }
}

fn build(pattern: &str, network: &Network) -> Result<Loops, String> {
    let compiler = on_path("cc").ok_or("cc is not on the path (Debian: apt-get install gcc)")?;
    let program = compile(&compiler, pattern).map_err(|why| {
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
        network: network.clone(),
    };
    let said = said_by(loops.over_network().arg("--version"), SOON)?;
    loops.version = said.trim().to_owned();
    Ok(loops)
}

fn compile(compiler: &Path, pattern: &str) -> Result<PathBuf, String> {
    let define = format!("-DPATTERN=PATTERN_{pattern}");
    let name = format!("libfabric-{}", pattern.to_lowercase());
    let arguments = ["-O3", "-w", &define];
    make(
        compiler,
        "",
        &name,
        "libfabric.c",
        &arguments,
        &["-lfabric"],
    )
}

impl Loops {
    /// The names of library and network, such as `libfabric-1.17+tcp`.
    pub(in crate::bench) fn name(&self) -> String {
        format!("libfabric-{}+{}", self.version, self.network.lowest())
    }

    /// The program, with the network in its environment.
    fn over_network(&self) -> Command {
        let Network {
            provider,
            domain,
            address,
            library,
        } = &self.network;
        let mut command = Command::new(&self.program);
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
        let mut command = self.over_network();
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
    use crate::bench::job::{Watch, start};
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

    #[test]
    #[expect(clippy::print_stderr, reason = "skips are counted by the runner")]
    fn a_rank_does_not_wait_for_one_that_has_ended() {
        let network = Network {
            provider: "shm".to_owned(),
            domain: None,
            address: None,
            library: None,
        };
        let job = Job {
            // The second size takes an hour.
            plans: [1, 1 << 40]
                .map(|rounds| Plan::with_rounds(8, rounds))
                .to_vec(),
            limit: 3600.0,
            ..crate::bench::job::tests::job(Pattern::Latency)
        };
        let loops = match find(&job, &network) {
            Ok(loops) => loops,
            Err(why) => {
                eprintln!("skipped: loops over libfabric: {why}");
                return;
            }
        };
        let (mut child, remarks) = start(&mut loops.command(&job, 0)).unwrap();
        let watch = Watch::over(&child, SOON);
        let pid = child.id() as i32;
        let first = Output::of(&mut child).next().unwrap();
        assert!(first.starts_with("portolan-sample 8 "), "{first}");
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
}
