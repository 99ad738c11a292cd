//! `portolan bench`: latency, bandwidth and message rate between ranks, as table or as JSON lines.
//!
//! Started by hand the command starts itself as a job ([`crate::run`]); started by a launcher, ours
//! or another, it is a rank of that job and measures. So `mpiexec -n 2 portolan bench latency`
//! measures under Hydra.
//!
//! Time is the device's ([`portolan::Comm::wtime`]), so a machine with virtual time gives its own.

mod kernel;
mod measure;
mod report;

use std::process::ExitCode;

use crate::cli::{BenchArgs, BenchKind, RunArgs};
use crate::os;
use crate::run::Bind;

/// Measures, or starts the job that measures.
pub(crate) fn main(args: BenchArgs) -> ExitCode {
    let in_a_job = ["PMI_FD", "PMI_PORT"]
        .iter()
        .any(|name| std::env::var_os(name).is_some());
    if in_a_job { rank(&args) } else { start(args) }
}

/// Starts this command again as the ranks of a job.
fn start(args: BenchArgs) -> ExitCode {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            report::complain(&format!("cannot find this program's own file: {error}"));
            return ExitCode::from(125);
        }
    };
    let cores = os::allowed_cpus().map_or(1, |cpus| cpus.len());
    let bind = args.bind.unwrap_or(if args.ranks as usize <= cores {
        Bind::Core
    } else {
        Bind::None
    });
    let command = std::iter::once(program.into())
        .chain(std::env::args_os().skip(1))
        .collect();
    crate::run::main(RunArgs {
        ranks: args.ranks,
        transport: args.transport,
        bind,
        label: false,
        timeout: None,
        variables: Vec::new(),
        on_failure: None,
        command,
    })
}

/// This process's part in the measurement.
fn rank(args: &BenchArgs) -> ExitCode {
    portolan::run(|world| {
        let comm = world.comm();
        if comm.size() < 2 {
            let text = "a bench needs two ranks or more: portolan bench -n 2";
            return Err(portolan::Error::new(
                portolan::ErrorKind::InvalidArgument,
                text,
            ));
        }
        let table = report::Report::new(args, &comm);
        for &bytes in sizes(args) {
            let result = measure::measure(args, &comm, bytes)?;
            table.row(bytes, &result);
        }
        Ok(())
    })
}

fn sizes(args: &BenchArgs) -> &[usize] {
    if !args.bytes.is_empty() {
        return &args.bytes;
    }
    match args.kind {
        BenchKind::Latency => &[
            0,
            8,
            64,
            512,
            4 << 10,
            16 << 10,
            64 << 10,
            256 << 10,
            1 << 20,
            4 << 20,
        ],
        BenchKind::Bandwidth => &[
            64,
            512,
            4 << 10,
            16 << 10,
            64 << 10,
            256 << 10,
            1 << 20,
            4 << 20,
        ],
        BenchKind::Rate => &[8],
    }
}
