//! One rank of the conformance suite over processes:
//! `portolan run -n 4 -- target/debug/examples/conformance_rank [FILTER]`
//!
//! Rank 0 prints a line per case and a summary. The exit code is 0 if cases ran and all passed.

use std::error::Error;
use std::process::ExitCode;

use portolan_conformance::run_process;
use portolan_core::config::Settings;
use portolan_core::{Device, job};
use portolan_t3e_sim::{T3e, device};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let settings = Settings::from_env()?;
    let mut bootstrap = job::from_environment(false)?;
    let config = device::config(bootstrap.size(), &settings)?;
    let pe = portolan_t3e_sim::open(&mut *bootstrap, &config)?;
    let t3e = T3e::new(pe, &settings, true)?;
    let filter = std::env::args().nth(1).unwrap_or_default();
    let summary = run_process(&t3e, &filter, &mut std::io::stdout().lock())?;
    t3e.end()?;
    bootstrap.finalize()?;
    Ok(ExitCode::from(summary.exit_code()))
}
