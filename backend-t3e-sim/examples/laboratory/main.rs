//! The laboratory: figures of the emulated T3E, and communication patterns on machines of any size.
//!
//! ```text
//! laboratory figures DIR       curves of time and rate against message size
//! laboratory scale DIR [MOST]  patterns on up to MOST (2048) PEs: curves, host seconds and memory
//! laboratory faults            what a slow link and a slow PE do
//! laboratory one PATTERN PES FAULTS
//!                              one pattern: µs of virtual time, and KiB of memory at the most
//! ```
//! Tables go to standard output, pictures into DIR.
#![allow(clippy::print_stdout, reason = "tables are what it is for")]

mod figures;
mod host;
mod patterns;
mod plot;
mod raw;
mod scale;

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["figures", directory] => figures::measure(Path::new(directory)),
        ["scale", directory] => scale::measure(Path::new(directory), 2048),
        ["scale", directory, most] => scale::measure(Path::new(directory), most.parse()?),
        ["faults"] => scale::faults(),
        ["one", pattern, pes, faults] => scale::one(pattern, pes.parse()?, faults),
        _ => Err("say `figures DIR`, `scale DIR [MOST]` or `faults`".into()),
    }
}
