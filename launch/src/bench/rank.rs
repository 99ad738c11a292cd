//! A rank of a sample.

use std::io::{self, Write};
use std::process::ExitCode;

use portolan::{Comm, Error, ErrorKind, Result};
use portolan_benches::{Pattern, Plan, Sample, Setup, measure};

use super::args::{BenchArgs, BenchRankArgs};
use super::job::{SAMPLE, TRANSPORT};
use super::{failure, report, suite};

/// `portolan bench-rank`: takes one sample of each size and tells it to `portolan bench`.
pub(crate) fn main(args: &BenchRankArgs) -> ExitCode {
    let Some(pattern) = args.kind.pattern() else {
        return failure::rank();
    };
    let setup = Setup {
        pattern,
        window: args.window,
        limit: args.limit,
    };
    portolan::run(|world| {
        let comm = world.comm();
        check(&comm, pattern)?;
        say(&comm, &format!("{TRANSPORT} {}\n", comm.transport()));
        for plan in &args.plans {
            let sample = measure(&comm, &setup, plan)?;
            let Sample {
                bytes,
                value,
                rounds,
            } = sample;
            say(&comm, &format!("{SAMPLE} {bytes} {value:e} {rounds}\n"));
        }
        Ok::<(), Error>(())
    })
}

/// `portolan bench` that some launcher has started as a rank: takes all samples and reports them.
pub(super) fn in_a_job(args: &BenchArgs) -> ExitCode {
    let Some(pattern) = args.kind.pattern() else {
        report::complain(
            "a failure is measured by a job of its own: start this without a launcher",
        );
        return ExitCode::from(2);
    };
    let setup = Setup {
        pattern,
        window: args.window,
        limit: args.seconds,
    };
    let plans = args.plans(pattern);
    portolan::run(|world| {
        let comm = world.comm();
        check(&comm, pattern)?;
        let sample = |plan: &Plan| measure(&comm, &setup, plan);
        let take = || plans.iter().map(sample).collect::<Result<Vec<_>>>();
        let samples = (0..args.repeat)
            .map(|_| take())
            .collect::<Result<Vec<_>>>()?;
        if comm.rank() == 0 {
            let results = suite::Results::of_one(comm.transport(), samples);
            report::write(
                &results,
                &report::Head::new(args, pattern, comm.size(), None),
            );
        }
        Ok::<(), Error>(())
    })
}

fn check(comm: &Comm, pattern: Pattern) -> Result<()> {
    if comm.size() >= 2 || !pattern.is_paired() {
        return Ok(());
    }
    let what = format!(
        "{} needs two ranks or more, and this job has one",
        pattern.name()
    );
    Err(Error::new(ErrorKind::InvalidArgument, what).remedy("start it with two ranks"))
}

fn say(comm: &Comm, line: &str) {
    if comm.rank() == 0 {
        // Nobody listens any more: then nobody misses it.
        let _ = io::stdout().lock().write_all(line.as_bytes());
    }
}
