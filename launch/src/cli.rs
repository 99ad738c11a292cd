//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use portolan_core::config::{Bytes, OnFailure, SettingValue};

use crate::bench::{BenchArgs, BenchRankArgs};

/// Message passing between the ranks of a job: start one, or see what this machine offers.
#[derive(Debug, Parser)]
#[command(name = "portolan", version, about, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// The command line of this process. Ends it if there is nothing to do, or if that is wrong.
    pub(crate) fn of_this_process() -> Self {
        Self::of(std::env::args_os().collect()).unwrap_or_else(|error| error.exit())
    }

    /// Also takes `-np N`, as launchers of MPI have it.
    fn of(mut words: Vec<OsString>) -> Result<Self, clap::Error> {
        let failed = match Self::try_parse_from(&words) {
            Err(error) if error.use_stderr() => error,
            parsed => return parsed,
        };
        // By the rules for short options it means `-n p`, which is no number. So a line that is
        // right has none, except among the words of the program.
        match words.iter_mut().find(|word| *word == "-np") {
            Some(word) => *word = "--ranks".into(),
            None => return Err(failed),
        }
        Self::try_parse_from(words)
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure between ranks: latency, bandwidth, message rate and more
    Bench(BenchArgs),
    /// A rank of `bench`
    #[command(hide = true)]
    BenchRank(BenchRankArgs),
    /// Other work beside a bench
    #[command(hide = true)]
    BenchSpin {
        /// Where to spin
        processor: Option<usize>,
    },
    /// Compute a picture with four processes, and measure what they talk through
    Demo(DemoArgs),
    /// Start N ranks of a program on this machine
    Run(RunArgs),
    /// Show version, transports, settings and limits
    Info(InfoArgs),
}

/// `portolan run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Rank 0 reads the standard input; the others read nothing. The exit code is that of the first rank
that fails (128 + the signal's number if a signal killed it), 124 after --timeout, 126 or 127 if
PROGRAM cannot be started, 125 if the launcher itself fails.

Signals that ask a program to end or to report (INT, TERM, HUP, QUIT, USR1, USR2, TSTP, CONT) go on
to every rank. When the launcher has ended, whatever way, no process of the job is left.")]
pub(crate) struct RunArgs {
    /// Number of ranks
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) ranks: u32,

    /// Transport to use (sets PORTOLAN_TRANSPORT); unset means the best usable one
    #[arg(long, value_name = "NAME")]
    pub(crate) transport: Option<String>,

    /// Processors: `none`, `core` (one core per rank, in turn), or a list such as 0,2,4-7 (rank i
    /// gets entry i)
    #[arg(long, value_name = "WHERE", default_value = "none")]
    pub(crate) bind: crate::run::Bind,

    /// Put `[rank] ` before every line of output
    #[arg(short, long)]
    pub(crate) label: bool,

    /// End the job after this time; ranks that can report what they wait for are asked to first
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) timeout: Option<Duration>,

    /// Show who waits for whom when ranks have waited this long (sets PORTOLAN_STUCK_AFTER)
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) stuck_after: Option<Duration>,

    /// Set an environment variable for every rank (may be repeated)
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) variables: Vec<(String, String)>,

    /// When a rank fails: end the others (`abort`), or let them go on (`return`); sets and
    /// overrides PORTOLAN_ON_FAILURE
    #[arg(long, value_name = "WHAT",
          value_parser = PossibleValuesParser::new(OnFailure::CHOICES)
              .try_map(|text| OnFailure::parse(&text)))]
    pub(crate) on_failure: Option<OnFailure>,

    /// The program and its arguments
    // With `allow_hyphen_values`, an option that does not exist would be the program.
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
}

/// `portolan demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Number of ranks that compute
    #[arg(short = 'n', long = "ranks", value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) ranks: u32,

    /// Points of the grid in each direction
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) size: u32,

    /// Time steps
    #[arg(long, default_value_t = 1000)]
    pub(crate) steps: u32,

    /// Where to write the picture
    #[arg(long, value_name = "FILE", default_value = "heat.png")]
    pub(crate) output: PathBuf,

    /// Transport to use; unset means the best usable one
    #[arg(long, value_name = "NAME")]
    pub(crate) transport: Option<String>,
}

/// `portolan info`.
#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// As one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// The manual page of the settings (docs/settings.md) instead
    #[arg(long, conflicts_with = "json")]
    pub(crate) manual: bool,

    /// The algorithms of collective operations instead, and when each is chosen
    #[arg(long, conflicts_with_all = ["json", "manual"])]
    pub(crate) collectives: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let time = text
        .parse()
        .ok()
        .and_then(|s| Duration::try_from_secs_f64(s).ok());
    time.filter(|time| !time.is_zero())
        .ok_or_else(|| "not a time in seconds above 0".to_owned())
}

pub(crate) fn positive(text: &str) -> Result<f64, String> {
    seconds(text).map(|time| time.as_secs_f64())
}

pub(crate) fn bytes(text: &str) -> Result<usize, String> {
    Bytes::parse(text).map(|bytes| bytes.0)
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("not of the form NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    fn run(words: &[&str]) -> Result<RunArgs, clap::Error> {
        let words = ["portolan", "run"].iter().chain(words);
        match Cli::of(words.map(OsString::from).collect())?.command {
            Command::Run(args) => Ok(args),
            other => unreachable!("`run` was asked for, not {other:?}"),
        }
    }

    #[test]
    fn the_programs_own_options_are_left_alone() {
        let args = run(&["-n", "3", "prog", "-n", "7", "--label"]).unwrap();
        assert_eq!((args.ranks, args.label), (3, false));
        assert_eq!(args.command, ["prog", "-n", "7", "--label"]);
        assert_eq!(run(&["-n", "1", "--", "-x"]).unwrap().command, ["-x"]);
        let args = run(&["-n", "1", "prog", "-np", "2", "--", "-h"]).unwrap();
        assert_eq!(args.command, ["prog", "-np", "2", "--", "-h"]);
    }

    #[test]
    fn the_number_of_ranks_is_given_in_any_usual_way() {
        for words in [
            &["-n2", "prog", "-np", "3"][..],
            &["-n=2", "prog", "-np", "3"],
            &["--ranks=2", "prog", "-np", "3"],
            &["-np", "2", "prog", "-np", "3"],
            &["--np", "2", "prog", "-np", "3"],
            &["--label", "-np", "2", "--", "prog", "-np", "3"],
        ] {
            let args = run(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
            assert_eq!((args.ranks, args.command.len()), (2, 3), "{words:?}");
        }
    }

    #[test]
    fn misspelt_options_and_choices_are_told_what_there_is() {
        for (words, told) in [
            (&["-n", "2", "--labl", "prog"][..], "'--label'"),
            (&["-np", "2", "--labl", "prog"], "'--label'"),
            (&["-n", "2", "--on-failure", "x", "prog"], "abort, return"),
        ] {
            let said = run(words).unwrap_err().to_string();
            assert!(said.contains(told), "{words:?}: {said}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for words in [
            &["-n", "0", "prog"][..],
            &["-n", "-1", "prog"],
            &["-n", "2"],
            &["prog"],
            &["prog", "-np", "2"],
            &["-n", "2", "-np", "2", "prog"],
            &["-n", "2", "--timeout", "0", "prog"],
            &["-n", "2", "--timeout", "soon", "prog"],
            &["-n", "2", "--env", "A", "prog"],
            &["-n", "2", "--env", "=A", "prog"],
            &["-n", "2", "--bind", "3-1", "prog"],
            &["-n", "2", "--on-failure", "ignore", "prog"],
        ] {
            assert!(run(words).is_err(), "{words:?}");
        }
    }
}
