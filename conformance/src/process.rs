//! The cases over processes: under a launcher, in one job.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use portolan_core::Device;

use crate::case::cases;
use crate::erased::Erased;
use crate::rank::Rank;
use crate::watchdog::Watchdog;

/// The outcome of a run over processes, on one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Cases that passed.
    pub passed: u32,
    /// Cases that did not apply.
    pub skipped: u32,
}

impl Summary {
    /// The exit code of the program: a run in which no case ran has failed.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        u8::from(self.passed == 0)
    }
}

/// Runs every case whose name contains `filter` on a device that is a rank of some job. Rank 0
/// writes a line per case, and a summary, to `out`.
///
/// Call it from a program that a launcher starts once per rank. A case that fails aborts the job,
/// because the other ranks may wait for this one. Tests that make their own jobs are counted as
/// skipped.
///
/// # Errors
/// Of writing to `out`.
pub fn run_process<D: Device>(
    device: &D,
    filter: &str,
    out: &mut dyn Write,
) -> std::io::Result<Summary> {
    let (rank, size) = (
        device.attributes().world_rank,
        device.attributes().world_size,
    );
    let mut summary = Summary::default();
    let mut line = |text: String| {
        if rank == 0 {
            writeln!(out, "{text}")
        } else {
            Ok(())
        }
    };
    for (case, number) in cases().iter().zip(0..) {
        if !case.name.contains(filter) {
            continue;
        }
        if size < case.min_ranks {
            summary.skipped += 1;
            line(format!(
                "skipped: {}: needs {} ranks",
                case.name, case.min_ranks
            ))?;
            continue;
        }
        let watchdog = Watchdog::new(&format!("{} on rank {rank}", case.name));
        let verdict = catch_unwind(AssertUnwindSafe(|| {
            (case.run)(&Rank::new(&Erased::new(device), number))
        }));
        drop(watchdog);
        match verdict {
            Ok(Ok(())) => {
                summary.passed += 1;
                line(format!("passed: {}", case.name))?;
            }
            Ok(Err(skip)) => {
                summary.skipped += 1;
                line(format!("skipped: {}: {}", case.name, skip.0))?;
            }
            Err(_) => {
                let what = format!("case {} failed on rank {rank} of {size}", case.name);
                device.abort(1, Some("conformance"), Some(&what));
            }
        }
    }
    let jobs: &[&str] = crate::with_cases!(jobs {});
    for name in jobs.iter().filter(|name| name.contains(filter)) {
        summary.skipped += 1;
        line(format!(
            "skipped: {name}: makes jobs of its own, with threads as ranks"
        ))?;
    }
    let Summary { passed, skipped } = summary;
    let name = device.attributes().name;
    line(format!(
        "summary: {name}, {size} processes: {passed} passed, {skipped} skipped"
    ))?;
    Ok(summary)
}
