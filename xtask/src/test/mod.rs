//! `cargo xtask test`: runs lanes, one after the other, and counts their checks.
//!
//! A *lane* is one way of testing the tree: the unit tests, the address sanitizer, the conformance
//! suite over processes. Each lane counts the checks that passed, failed and were skipped, with the
//! reason. A lane that ran nothing is a failure. A lane whose tools are missing is skipped, and
//! reports that.
//!
//! Lanes with different compiler flags build into folders of their own below `target/lanes`, so
//! that no lane discards what another has built.

mod counts;
mod hang;
mod lane;
mod leftovers;
mod ranks;
mod sanitize;
mod step;
mod stock;
mod table;
mod times;

use std::fs::{self, File};
use std::process::ExitCode;
use std::time::Instant;

use crate::{Failure, Repo};
use lane::{LANES, Lane, Run};
use leftovers::Leftovers;
use table::Row;

/// `cargo xtask test`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The full matrix: also what takes long (messages above 4 GiB, more ranks, more random cases,
    /// tests marked as slow)
    #[arg(long)]
    all: bool,

    /// Only this lane (may be repeated)
    #[arg(long = "lane", value_name = "NAME", value_parser = lane_names())]
    lanes: Vec<String>,

    /// Say what the lanes are and stop
    #[arg(long)]
    list: bool,

    /// Show all output as it comes
    #[arg(short, long)]
    verbose: bool,
}

fn lane_names() -> clap::builder::PossibleValuesParser {
    LANES
        .iter()
        .map(|lane| lane.name)
        .collect::<Vec<_>>()
        .into()
}

/// Runs the requested lanes; fails if one of them fails.
pub(crate) fn main(repo: &Repo, args: &Args) -> Result<ExitCode, Failure> {
    if args.list {
        LANES
            .iter()
            .for_each(|lane| println!("{:<12} {}", lane.name, lane.about));
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = |lane: &&Lane| args.lanes.is_empty() || args.lanes.iter().any(|n| n == lane.name);
    // Leftovers of other programs from before the run are ignored. A lane that is run alone looks
    // at everything.
    let before = if args.lanes.is_empty() {
        Leftovers::look(repo)
    } else {
        Leftovers::default()
    };
    let mut rows = Vec::new();
    for lane in LANES.iter().filter(wanted) {
        rows.push(run_lane(repo, args, lane, &before)?);
    }
    println!("{}", table::show(&rows));
    let failed = rows.is_empty() || rows.iter().any(Row::failed);
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn run_lane(repo: &Repo, args: &Args, lane: &Lane, before: &Leftovers) -> Result<Row, Failure> {
    let start = Instant::now();
    let folder = repo.target().join("lanes");
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{}.log", lane.name));
    println!("{}: {}", lane.name, lane.about);
    let log = File::create(&path)?;
    let mut run = Run::new(repo, log, before, args.all, args.verbose);
    (lane.run)(&mut run)?;
    let row = Row {
        lane: lane.name,
        not_here: run.is_not_here(),
        counts: run.finish(),
        time: start.elapsed(),
    };
    let verdict = if row.failed() { "FAILED" } else { "ok" };
    println!(
        "{}: {verdict}, {} s; {}",
        lane.name,
        row.time.as_secs(),
        path.display()
    );
    Ok(row)
}
