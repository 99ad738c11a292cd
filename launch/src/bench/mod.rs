//! `portolan bench`: latency, bandwidth and message rate between ranks, as table or as JSON lines.
//!
//! Started by hand the command starts itself as a job ([`crate::again`]); started by a launcher, ours
//! or another, it is a rank of that job and measures. So `mpiexec -n 2 portolan bench latency`
//! measures under Hydra.
//!
//! Time is the device's ([`portolan::Comm::wtime`]), so a machine with virtual time gives its own.

mod kernel;
mod measure;
mod report;

use std::process::ExitCode;

use crate::again::{self, Again};
use crate::cli::{BenchArgs, BenchKind};

/// Measures, or starts the job that measures.
pub(crate) fn main(args: BenchArgs) -> ExitCode {
    if again::is_rank() {
        return rank(&args);
    }
    let job = Again {
        ranks: args.ranks,
        bind: args.bind,
        transport: args.transport,
        variables: Vec::new(),
        words: std::env::args_os().skip(1).collect(),
    };
    ExitCode::from(job.run())
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
