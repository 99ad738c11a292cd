//! Measures how long the death of a rank goes unnoticed.
//!
//! All ranks wait in a receive. This command kills one of them and measures the time until the
//! receives of the others have failed, on the monotonic clock that all processes of a machine
//! share.

use std::io::{self, BufRead, BufReader, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use portolan::{Error, ErrorKind};
use portolan_benches::Sample;

use super::args::BenchArgs;
use super::job::{PATIENCE, launcher, start};
use super::machine::Probe;
use super::phases::Choice;
use super::record::Run;
use super::suite;
use crate::os;
use crate::run::Bind;

/// Prefix of the line that a waiting rank prints: rank, process id, transport.
const WAITING: &str = "portolan-waiting";
/// Prefix of the line that a rank prints when its receive has failed: rank, time in nanoseconds.
const NOTICED: &str = "portolan-noticed";

/// Time for the ranks to fall asleep before the kill, as ranks that wait for long do.
const REST: Duration = Duration::from_millis(50);

/// Runs the measurement for the command.
pub(super) fn measure(args: &BenchArgs, ranks: u32) -> Result<Run, String> {
    let pin = args.pin.clone().unwrap_or(Bind::None);
    let wanted: Vec<_> = match &args.transport[..] {
        [] => vec![None],
        list => list.iter().map(|name| Some(name.as_str())).collect(),
    };
    let probe = Probe::new().between(&pin, ranks, false);
    let mut run = Run::about(args, None, ranks, Some(&pin));
    for transport in wanted {
        let mut samples = Vec::new();
        let mut name = String::new();
        for _ in 0..args.repeat {
            let (transport, value) = one_death(ranks, transport, &pin)?;
            let (bytes, rounds) = (0, 1);
            samples.push(vec![Sample {
                bytes,
                value,
                rounds,
            }]);
            name = transport;
        }
        run.entries.push(suite::of_one(&name, samples));
    }
    run.machine = Some(probe.finish(&Choice::ALL, &[]).0);
    Ok(run)
}

/// Kills the last rank of a job. Returns the transport, and the milliseconds until the last of the
/// other ranks has noticed.
fn one_death(ranks: u32, transport: Option<&str>, pin: &Bind) -> Result<(String, f64), String> {
    let options = ["--on-failure", "return"];
    let mut command = launcher(ranks, transport, pin, PATIENCE, &options)?;
    command.args(["bench-rank", "failure", "--window", "1", "--limit", "1"]);
    let (mut child, remarks) = start(&mut command)?;
    let out = child.stdout.take().ok_or("the job has no output")?;
    let mut lines = BufReader::new(out).lines().map_while(Result::ok);

    let (mut waiting, mut victim, mut name) = (0, None, String::new());
    while waiting < ranks {
        let Some(line) = lines.next() else { break };
        let Some(rest) = line.strip_prefix(WAITING) else {
            continue;
        };
        let words: Vec<_> = rest.split_whitespace().collect();
        if let [rank, pid, transport] = words[..] {
            waiting += 1;
            name = transport.to_owned();
            if rank.parse() == Ok(ranks - 1) {
                victim = pid.parse::<i32>().ok().filter(|&pid| pid > 1);
            }
        }
    }
    let mut last = None;
    if let (true, Some(victim)) = (waiting == ranks, victim) {
        thread::sleep(REST);
        let begun = os::monotonic_nanoseconds();
        os::kill(victim, libc::SIGKILL);
        let noticed: Vec<u64> = lines
            .filter_map(|line| line.strip_prefix(NOTICED)?.trim().parse().ok())
            .collect();
        if noticed.len() as u32 == ranks - 1 {
            last = noticed.into_iter().max().map(|at| at.saturating_sub(begun));
        }
    }
    // The exit status is ignored: the job is meant to fail.
    let _ = child.wait();
    let remarks = remarks.text();
    last.map(|ns| (name, ns as f64 / 1e6)).ok_or_else(|| {
        format!(
            "not every rank noticed the death of rank {}\n{remarks}",
            ranks - 1
        )
    })
}

/// Runs as a rank: waits for a message that never comes.
pub(super) fn rank() -> ExitCode {
    super::builder().run(|world| {
        let comm = world.comm();
        let last = comm.size() - 1;
        comm.barrier()?;
        let (me, pid) = (comm.rank(), std::process::id());
        say(&format!("{WAITING} {me} {pid} {}\n", comm.transport()));
        // The last rank waits for rank 0 until it is killed; all others wait for the last rank.
        let source = if me == last { 0 } else { last };
        match comm.recv_one::<u8>(source, 0) {
            Err(error) if error.kind() == ErrorKind::PeerFailed => {
                say(&format!("{NOTICED} {}\n", os::monotonic_nanoseconds()));
                Ok(())
            }
            Err(error) => Err(error),
            Ok(_) => {
                let what = "a message has come that nobody sent";
                Err(Error::new(ErrorKind::Internal, what))
            }
        }
    })
}

fn say(line: &str) {
    // A write error is ignored: without a listener there is no measurement.
    let _ = io::stdout().lock().write_all(line.as_bytes());
}
