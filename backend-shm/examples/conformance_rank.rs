//! One rank of the conformance suite over processes:
//! `portolan run -n 4 -- target/debug/examples/conformance_rank [FILTER]`
//!
//! Rank 0 prints a line per case and a summary. The exit code is 0 if cases ran and all passed.

use std::error::Error;
use std::process::ExitCode;

use portolan_conformance::run_process;
use portolan_core::config::Settings;
use portolan_core::level::Single;
use portolan_core::{Device, Engine, job};
use portolan_shm::{SharedAllocator, Shm};

/// Receivers read vectors where they are, unless `PORTOLAN_SHM_ALLOC_MIN` is longer than they are.
#[global_allocator]
static ALLOCATOR: SharedAllocator = SharedAllocator::new();

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let settings = Settings::from_env()?;
    let mut bootstrap = job::from_environment(false)?;
    let transport = portolan_shm::open(&mut *bootstrap, &settings)?;
    let engine = Engine::<Shm, Single>::new(transport, &settings)?;
    let filter = std::env::args().nth(1).unwrap_or_default();
    let summary = run_process(&engine, &filter, &mut std::io::stdout().lock())?;
    engine.end()?;
    bootstrap.finalize()?;
    Ok(ExitCode::from(summary.exit_code()))
}
