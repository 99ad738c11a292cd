//! One rank of a sample.

use std::io::{self, Write};
use std::process::ExitCode;

use portolan::{Builder, Comm, Error, ErrorKind, Op, Result, SplitBy};
use portolan_benches::{Pattern, Plan, Sample, Setup, measure, measure_threads};

use super::args::{BenchArgs, BenchRankArgs};
use super::job::{LEVELS, SAMPLE, TRANSPORT};
use super::memory::Ranks;
use super::record::Run;
use super::{failure, memory, suite, table};

/// `portolan bench-rank`: takes one sample of each size and prints it for `portolan bench`.
pub(crate) fn main(args: &BenchRankArgs) -> ExitCode {
    let Some(pattern) = args.kind.pattern() else {
        return failure::rank();
    };
    let setup = Setup {
        pattern,
        window: args.window,
        buffers: args.buffers,
        allocated: args.alloc,
        cuda: args.cuda,
        scoped: args.scope,
        limit: args.limit,
        threads: args.threads,
        begun: args.begun,
    };
    let say = |rank: u32, line: &str| {
        if rank == 0 {
            // A write error is ignored: it means that `portolan bench` no longer reads.
            let _ = io::stdout().lock().write_all(line.as_bytes());
        }
    };
    let tell = |rank, sample: &Sample| {
        let Sample {
            bytes,
            value,
            rounds,
        } = sample;
        say(rank, &format!("{SAMPLE} {bytes} {value:e} {rounds}\n"));
    };
    if pattern == Pattern::Multithread {
        return builder().multiple().run(|world| {
            let comm = world.comm();
            check(comm.size(), pattern)?;
            say(comm.rank(), &format!("{TRANSPORT} {}\n", comm.transport()));
            for plan in &args.plans {
                tell(comm.rank(), &measure_threads(&comm, &setup, plan)?);
            }
            Ok::<(), Error>(())
        });
    }
    builder().run(|world| {
        let comm = world.comm();
        check(comm.size(), pattern)?;
        say(comm.rank(), &format!("{TRANSPORT} {}\n", comm.transport()));
        if args.about && has_levels(&comm)? {
            say(comm.rank(), &format!("{LEVELS}\n"));
        }
        for plan in &args.plans {
            tell(comm.rank(), &measure(&comm, &setup, plan)?);
        }
        Ok::<(), Error>(())
    })
}

/// How this command's ranks join their job: the vectors of its allocator (`portolan`'s
/// `SharedAllocator`) are shared only if the setting for it is given, as most programs' are not.
pub(crate) fn builder() -> Builder {
    let builder = Builder::new();
    match std::env::var_os("PORTOLAN_SHM_ALLOC_MIN") {
        Some(_) => builder,
        None => builder.setting("SHM_ALLOC_MIN", "64T"),
    }
}

/// `portolan bench` as a rank that some launcher has started: takes all samples and reports them.
pub(super) fn in_a_job(args: &BenchArgs) -> ExitCode {
    let pattern = match args.kind.pattern() {
        Some(pattern) if pattern != Pattern::Startup => pattern,
        _ => {
            table::complain(&format!(
                "{} is measured by jobs of its own: start this without a launcher",
                args.kind.name()
            ));
            return ExitCode::from(2);
        }
    };
    let fits = || memory::check(args, Ranks::of_this_job());
    if let Err(why) = args.check_in_a_job().and_then(|()| fits()) {
        table::complain(&why);
        return ExitCode::from(2);
    }
    let setup = Setup {
        pattern,
        window: args.window(),
        buffers: args.buffers(),
        allocated: args.alloc,
        cuda: args.cuda,
        scoped: args.scope,
        limit: args.seconds(),
        threads: args.threads(),
        begun: 0,
    };
    let plans = args.plans(pattern);
    let report = |size, transport: &str, samples| {
        let mut run = Run::about(args, Some(pattern), size, None);
        run.entries = vec![suite::of_one(transport, samples)];
        super::write(&run, args.json);
    };
    if pattern == Pattern::Multithread {
        return builder().multiple().run(|world| {
            let comm = world.comm();
            check(comm.size(), pattern)?;
            let samples = each(args, &plans, |plan| measure_threads(&comm, &setup, plan))?;
            if comm.rank() == 0 {
                report(comm.size(), comm.transport(), samples);
            }
            Ok::<(), Error>(())
        });
    }
    builder().run(|world| {
        let comm = world.comm();
        check(comm.size(), pattern)?;
        let samples = each(args, &plans, |plan| measure(&comm, &setup, plan))?;
        if comm.rank() == 0 {
            report(comm.size(), comm.transport(), samples);
        }
        Ok::<(), Error>(())
    })
}

/// Takes all samples of all sizes.
fn each(
    args: &BenchArgs,
    plans: &[Plan],
    sample: impl Fn(&Plan) -> Result<Sample>,
) -> Result<Vec<Vec<Sample>>> {
    let take = |_| plans.iter().map(&sample).collect();
    (0..args.repeat).map(take).collect()
}

/// Whether ranks are on several nodes, of which some have several.
fn has_levels(comm: &Comm) -> Result<bool> {
    let here = comm.split_by(SplitBy::Node, 0)?.size();
    let most = comm.allreduce_one(here, &Op::MAX)?;
    Ok(1 < most && most < comm.size())
}

fn check(size: u32, pattern: Pattern) -> Result<()> {
    if size >= 2 || !pattern.is_paired() {
        return Ok(());
    }
    let what = format!(
        "{} needs two ranks or more, and this job has one",
        pattern.name()
    );
    Err(Error::new(ErrorKind::InvalidArgument, what).remedy("start it with two ranks"))
}
