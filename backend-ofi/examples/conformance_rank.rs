//! One rank of the conformance suite over processes:
//! `portolan run -n 4 -- target/debug/examples/conformance_rank [FILTER]`; with
//! `PORTOLAN_MATCH=native` the provider matches.
//!
//! Rank 0 prints a line per case and a summary. The exit code is 0 if cases ran and all passed. It
//! is also 0 if libfabric, or the provider that is asked for, is not here; the program then says
//! so.

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use portolan_conformance::run_process;
use portolan_core::config::Settings;
use portolan_core::level::Single;
use portolan_core::{Device, Engine, job};
use portolan_ofi::{Config, Native, Ofi, offers};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let settings = Settings::from_env()?;
    if let Some(why) = missing(&Config::from_settings(&settings)) {
        let rank = std::env::var("PMI_RANK").unwrap_or_default();
        if matches!(&*rank, "" | "0") {
            writeln!(
                std::io::stdout(),
                "skipped: the suite over libfabric: {why}"
            )?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut bootstrap = job::from_environment(false)?;
    let transport = portolan_ofi::open(&mut *bootstrap, &settings)?;
    let code = if transport.matches() {
        run(&Native::<Single>::new(transport, &settings)?)?
    } else {
        run(&Engine::<Ofi, Single>::new(transport, &settings)?)?
    };
    bootstrap.finalize()?;
    Ok(code)
}

/// Why there is nothing to run the suite over.
fn missing(config: &Config) -> Option<String> {
    let (version, offers) = match offers(config) {
        Ok(found) => found,
        Err(why) => return Some(why),
    };
    let wish = config.provider.as_deref()?;
    let named = |name: &str| name == wish || name.split(';').any(|layer| layer == wish);
    let there = offers.iter().any(|offer| named(&offer.provider));
    (!there).then(|| format!("libfabric {version} has no provider {wish} here"))
}

fn run<D: Device>(device: &D) -> Result<ExitCode, Box<dyn Error>> {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let summary = run_process(device, &filter, &mut std::io::stdout().lock())?;
    device.end()?;
    Ok(ExitCode::from(summary.exit_code()))
}
