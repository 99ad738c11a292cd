//! Sorts a file of numbers on all ranks.
//!
//! Shows gathering samples of any length, an alltoall of counts and one of data, a scan, and
//! reductions that check that no number was lost; the steps are in `src/sample_sort.rs`.
//!
//! ```text
//! portolan run -n 4 -- target/release/sample_sort --input numbers.txt --output sorted.txt
//! ```

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use portolan::{Op, World};
use portolan_examples::sample_sort;

/// Sorts whole numbers.
#[derive(Debug, Parser)]
struct Options {
    /// A file with one number per line
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,

    /// Where the sorted numbers go, one per line
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// How many numbers are made up, without a file
    #[arg(long, default_value_t = 1_000_000)]
    count: usize,
}

fn main() -> ExitCode {
    let options = Options::parse();
    portolan::run(|world| program(&world, &options))
}

fn program(world: &World, options: &Options) -> Result<(), Box<dyn Error + Send + Sync>> {
    let comm = world.comm();
    let (rank, ranks) = (comm.rank(), comm.size());
    let numbers = match &options.input {
        None => sample_sort::generate(options.count, rank, ranks),
        Some(path) => {
            // If this fails, the other ranks learn of it while they wait for their shares.
            let all = (rank == 0).then(|| sample_sort::read(path)).transpose()?;
            sample_sort::share_out(&comm, all)?
        }
    };
    let before = sample_sort::sum(&comm, &numbers)?;
    let sorted = sample_sort::sort(&comm, numbers)?;
    let in_order = sample_sort::is_sorted(&comm, &sorted)?;
    let complete = sample_sort::sum(&comm, &sorted)? == before;
    let most = comm.allreduce_one(sorted.len() as u64, &Op::MAX)?;
    if rank == 0 {
        let (count, sum) = (before.count, before.sum);
        println!("{count} numbers, their sum {sum}");
        println!(
            "most on one rank {most}, of {} in equal shares",
            count.div_ceil(u64::from(ranks))
        );
        println!("in order {in_order}, complete {complete}");
    }
    if !(in_order && complete) {
        return Err("the result is wrong: please report it".into());
    }
    match &options.output {
        None => Ok(()),
        Some(path) => match comm.gather_vecs(&sorted, 0)? {
            Some(parts) => write(path, &parts),
            None => Ok(()),
        },
    }
}

fn write(path: &Path, parts: &[Vec<i64>]) -> Result<(), Box<dyn Error + Send + Sync>> {
    let failed = |error| format!("cannot write `{}`: {error}", path.display());
    let mut file = BufWriter::new(File::create(path).map_err(failed)?);
    for number in parts.iter().flatten() {
        writeln!(file, "{number}").map_err(failed)?;
    }
    file.flush().map_err(failed)?;
    Ok(())
}
