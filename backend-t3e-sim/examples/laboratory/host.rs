//! The cost of an emulation to the host. Each emulation runs in a process of its own, so that its
//! memory can be measured.

use std::error::Error;
use std::process::Command;
use std::time::Instant;

/// The result of one run.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Virtual time of the pattern, in microseconds.
    pub(crate) virtual_us: f64,
    /// Host time of the whole run, in seconds.
    pub(crate) host_s: f64,
    /// The most host memory that the process has touched, in KiB.
    pub(crate) peak_kib: f64,
}

/// Runs this program again for one pattern and `pes` PEs.
pub(crate) fn run_alone(pattern: &str, pes: u32, faults: &str) -> Result<Outcome, Box<dyn Error>> {
    let begin = Instant::now();
    let output = Command::new(std::env::current_exe()?)
        .args(["one", pattern, &pes.to_string(), faults])
        .output()?;
    let host_s = begin.elapsed().as_secs_f64();
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{pattern} on {pes} PEs: {why}").into());
    }
    let mut fields = text.split_whitespace().map(str::parse::<f64>);
    let mut next = || fields.next().ok_or("no answer")?.map_err(|e| e.to_string());
    let (virtual_us, peak) = (next()?, next()?);
    Ok(Outcome {
        virtual_us,
        host_s,
        peak_kib: peak,
    })
}

/// The most memory that this process has touched so far, in KiB.
pub(crate) fn peak_memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let field = line.and_then(|line| line.split_whitespace().nth(1));
    field.and_then(|kib| kib.parse().ok()).unwrap_or(f64::NAN)
}
