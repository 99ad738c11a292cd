//! The patterns, and the meaning of their figures.

mod scoped;
mod steps;

pub(crate) use steps::ping_pong;
pub use steps::{Steps, shuffled};

/// A pattern. If the OSU suite measures the same, its program is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Half a round trip, as `osu_latency`.
    Latency,
    /// Windows of messages one way, each window answered, as `osu_bw`.
    Bandwidth,
    /// Windows both ways at a time, as `osu_bibw`.
    Bibandwidth,
    /// As `Bandwidth`, counting messages, as `osu_mbw_mr`.
    Rate,
    /// Half a round trip while as many threads of each rank do the same at the same time, as
    /// `osu_latency_mt`.
    Multithread,
    /// The share of a send that hides behind its sender's computation.
    Overlap,
    /// A barrier of all ranks, as `osu_barrier`.
    Barrier,
    /// Half a round trip of [8 bytes](Self::message_bytes) while receives that do not match are
    /// waiting on both sides.
    Depth,
    /// The same while receives from any source are waiting.
    DepthWildcard,
    /// The same while messages that nobody receives are waiting.
    DepthUnexpected,
    /// Receives with a tag of their own each are posted, and their messages are sent in the
    /// opposite order.
    DrainReverse,
    /// The same with messages in a random order.
    DrainRandom,
    /// Time from the start of the job until every rank has received a message.
    Startup,
    /// The processor time of a waiting rank.
    Idle,
    /// Memory of a rank that has exchanged messages with its two neighbours.
    MemoryRing,
    /// Memory of a rank that has exchanged messages with every other rank.
    MemoryAll,
    /// A collective operation, as `osu_bcast` and the like. The size is that of the whole message
    /// if there is one (broadcast, reductions), else of one rank's block.
    Collective(Collective, Form),
}

/// Which collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "they are the names of the operations")]
pub enum Collective {
    Bcast,
    Gather,
    Scatter,
    Allgather,
    Alltoall,
    Reduce,
    Allreduce,
    ReduceScatter,
    Scan,
    Exscan,
    /// With counts, which are all equal, as in the OSU suite. The same holds for the other
    /// operations with a v.
    Gatherv,
    Scatterv,
    Allgatherv,
    Alltoallv,
    /// With a layout for each block; all blocks are equal.
    Alltoallw,
    ReduceScatterBlock,
    /// On a ring, with the rank before and the rank after this one. The same holds for the other
    /// neighbour operations.
    NeighbourAllgather,
    NeighbourAllgatherv,
    NeighbourAlltoall,
    NeighbourAlltoallv,
    NeighbourAlltoallw,
    /// Its blocking form is timed call by call, as the other forms and operations are. (For
    /// [`Pattern::Barrier`] the clock is read before the first call and after the last one.)
    Barrier,
}

/// The names of a collective operation in each [form](Form).
macro_rules! names {
    ($name:literal) => {
        [
            $name,
            concat!("i", $name),
            concat!("i", $name, "-overlap"),
            concat!($name, "-init"),
        ]
    };
}

impl Collective {
    /// All operations that have a size.
    pub const ALL: [Self; 21] = [
        Self::Bcast,
        Self::Gather,
        Self::Scatter,
        Self::Allgather,
        Self::Alltoall,
        Self::Reduce,
        Self::Allreduce,
        Self::ReduceScatter,
        Self::Scan,
        Self::Exscan,
        Self::Gatherv,
        Self::Scatterv,
        Self::Allgatherv,
        Self::Alltoallv,
        Self::Alltoallw,
        Self::ReduceScatterBlock,
        Self::NeighbourAllgather,
        Self::NeighbourAllgatherv,
        Self::NeighbourAlltoall,
        Self::NeighbourAlltoallv,
        Self::NeighbourAlltoallw,
    ];

    /// Whether it is a neighbour operation.
    #[must_use]
    pub fn is_of_neighbours(self) -> bool {
        matches!(
            self,
            Self::NeighbourAllgather
                | Self::NeighbourAllgatherv
                | Self::NeighbourAlltoall
                | Self::NeighbourAlltoallv
                | Self::NeighbourAlltoallw
        )
    }

    /// Whether it takes a layout for each block.
    pub(crate) fn has_shapes(self) -> bool {
        matches!(self, Self::Alltoallw | Self::NeighbourAlltoallw)
    }

    /// The names in each [form](Form).
    fn names(self) -> [&'static str; 4] {
        match self {
            Self::Bcast => names!("bcast"),
            Self::Gather => names!("gather"),
            Self::Scatter => names!("scatter"),
            Self::Allgather => names!("allgather"),
            Self::Alltoall => names!("alltoall"),
            Self::Reduce => names!("reduce"),
            Self::Allreduce => names!("allreduce"),
            Self::ReduceScatter => names!("reduce-scatter"),
            Self::Scan => names!("scan"),
            Self::Exscan => names!("exscan"),
            Self::Gatherv => names!("gatherv"),
            Self::Scatterv => names!("scatterv"),
            Self::Allgatherv => names!("allgatherv"),
            Self::Alltoallv => names!("alltoallv"),
            Self::Alltoallw => names!("alltoallw"),
            Self::ReduceScatterBlock => names!("reduce-scatter-block"),
            Self::NeighbourAllgather => names!("neighbor-allgather"),
            Self::NeighbourAllgatherv => names!("neighbor-allgatherv"),
            Self::NeighbourAlltoall => names!("neighbor-alltoall"),
            Self::NeighbourAlltoallv => names!("neighbor-alltoallv"),
            Self::NeighbourAlltoallw => names!("neighbor-alltoallw"),
            Self::Barrier => {
                let [_, nonblocking, hidden, persistent] = names!("barrier");
                ["barrier-alone", nonblocking, hidden, persistent]
            }
        }
    }

    /// The [names](Self::names) in British spelling, if that is different.
    fn british(self) -> Option<[&'static str; 4]> {
        match self {
            Self::NeighbourAllgather => Some(names!("neighbour-allgather")),
            Self::NeighbourAllgatherv => Some(names!("neighbour-allgatherv")),
            Self::NeighbourAlltoall => Some(names!("neighbour-alltoall")),
            Self::NeighbourAlltoallv => Some(names!("neighbour-alltoallv")),
            Self::NeighbourAlltoallw => Some(names!("neighbour-alltoallw")),
            _ => None,
        }
    }
}

/// The form in which a collective operation is called, and what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// The time of a blocking call.
    Blocking,
    /// The time from the start of a nonblocking operation until it has been waited for.
    Nonblocking,
    /// The share of a nonblocking operation that hides behind a computation of the same length,
    /// which checks it now and then.
    Hidden,
    /// The time from the start of a persistent operation until it has been waited for.
    Persistent,
}

/// The meaning of the sizes of a [plan](crate::Plan).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Length of a message in bytes.
    Bytes,
    /// Number of receives or messages that wait.
    Waiting,
    /// None: there is one figure.
    None,
}

/// How the figures of the ranks are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    Mean,
    Sum,
    Most,
}

/// Name, unit, axis, pooling, and the ranks whose figures count.
struct Facts(&'static str, &'static str, Axis, Pool, Of);

/// Whose figures count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// In each pair, the rank that starts.
    Starter,
    /// In each pair, the rank that answers.
    Answerer,
    /// Every rank.
    All,
}

/// Number of patterns other than collective operations in a form.
const SINGLES: usize = 16;
/// The blocking form comes first.
const FORMS: [Form; 4] = [
    Form::Blocking,
    Form::Nonblocking,
    Form::Hidden,
    Form::Persistent,
];

impl Pattern {
    const COUNT: usize = SINGLES + FORMS.len() * (Collective::ALL.len() + 1);

    /// Every pattern.
    pub const ALL: [Self; Self::COUNT] = {
        let mut all = [Self::Latency; Self::COUNT];
        let mut at = 0;
        while at < SINGLES {
            all[at] = Self::SINGLE[at];
            at += 1;
        }
        let mut form = 0;
        while form < FORMS.len() {
            let mut which = 0;
            while which < Collective::ALL.len() {
                all[at] = Self::Collective(Collective::ALL[which], FORMS[form]);
                (at, which) = (at + 1, which + 1);
            }
            all[at] = Self::Collective(Collective::Barrier, FORMS[form]);
            at += 1;
            form += 1;
        }
        all
    };

    const SINGLE: [Self; SINGLES] = [
        Self::Latency,
        Self::Bandwidth,
        Self::Bibandwidth,
        Self::Rate,
        Self::Multithread,
        Self::Overlap,
        Self::Barrier,
        Self::Depth,
        Self::DepthWildcard,
        Self::DepthUnexpected,
        Self::DrainReverse,
        Self::DrainRandom,
        Self::Startup,
        Self::Idle,
        Self::MemoryRing,
        Self::MemoryAll,
    ];

    fn facts(self) -> Facts {
        use Axis::{Bytes, Waiting};
        use Of::{All, Answerer, Starter};
        use Pool::{Mean, Most, Sum};
        match self {
            Self::Latency => Facts("latency", "us", Bytes, Mean, Starter),
            Self::Bandwidth => Facts("bandwidth", "MB/s", Bytes, Sum, Starter),
            Self::Bibandwidth => Facts("bibandwidth", "MB/s", Bytes, Sum, Starter),
            Self::Rate => Facts("rate", "messages/s", Bytes, Sum, Starter),
            Self::Multithread => Facts("multithread", "us", Bytes, Mean, Starter),
            Self::Overlap => Facts("overlap", "% hidden", Bytes, Mean, Starter),
            Self::Barrier => Facts("barrier", "us", Axis::None, Mean, All),
            Self::Depth => Facts("depth", "us", Waiting, Mean, Starter),
            Self::DepthWildcard => Facts("depth-wildcard", "us", Waiting, Mean, Starter),
            Self::DepthUnexpected => Facts("depth-unexpected", "us", Waiting, Mean, Starter),
            Self::DrainReverse => Facts("drain-reverse", "us", Waiting, Mean, Starter),
            Self::DrainRandom => Facts("drain-random", "us", Waiting, Mean, Starter),
            Self::Startup => Facts("startup", "ms", Axis::None, Most, All),
            Self::Idle => Facts("idle", "% of a core", Axis::None, Mean, Answerer),
            Self::MemoryRing => Facts("memory-ring", "KiB/rank", Axis::None, Mean, All),
            Self::MemoryAll => Facts("memory-all", "KiB/rank", Axis::None, Mean, All),
            Self::Collective(which, form) => {
                let unit = match form {
                    Form::Blocking | Form::Nonblocking | Form::Persistent => "us",
                    Form::Hidden => "% hidden",
                };
                let axis = match which {
                    Collective::Barrier => Axis::None,
                    _ => Bytes,
                };
                Facts(which.names()[form as usize], unit, axis, Mean, All)
            }
        }
    }

    /// Its name, on command lines and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.facts().0
    }

    /// Another spelling of the name, which command lines accept: "neighbour" for "neighbor".
    #[must_use]
    pub fn alias(self) -> Option<&'static str> {
        match self {
            Self::Collective(which, form) => Some(which.british()?[form as usize]),
            _ => None,
        }
    }

    /// The unit of its values. A megabyte is 10⁶ bytes, a KiB 1024 bytes.
    #[must_use]
    pub fn unit(self) -> &'static str {
        self.facts().1
    }

    /// The meaning of its plans' sizes.
    #[must_use]
    pub fn axis(self) -> Axis {
        self.facts().2
    }

    pub(crate) fn pool(self) -> Pool {
        self.facts().3
    }

    /// Whether smaller values are better.
    #[must_use]
    pub fn less_is_better(self) -> bool {
        !matches!(
            self,
            Self::Bandwidth
                | Self::Bibandwidth
                | Self::Rate
                | Self::Overlap
                | Self::Collective(_, Form::Hidden)
        )
    }

    /// Whether the pattern is between pairs of ranks.
    #[must_use]
    pub fn is_paired(self) -> bool {
        self.facts().4 != Of::All
    }

    /// Whether its buffers can be memory of [`Comm::alloc`](portolan::Comm::alloc)
    /// ([`Setup::allocated`](crate::Setup::allocated)).
    #[must_use]
    pub fn allocates(self) -> bool {
        self.has_windows() || matches!(self, Self::Latency | Self::Overlap)
    }

    /// Whether its buffers can be memory of CUDA GPUs ([`Setup::cuda`](crate::Setup::cuda)).
    #[must_use]
    pub fn has_gpu_buffers(self) -> bool {
        matches!(self, Self::Latency | Self::Bandwidth | Self::Bibandwidth)
    }

    /// Whether its figure is of time by the device's clock, which may be a virtual one. Jobs are
    /// timed by the clock that their processes share, and memory is not timed.
    #[must_use]
    pub fn is_timed_by_device(self) -> bool {
        !matches!(self, Self::Startup | Self::MemoryRing | Self::MemoryAll)
    }

    /// Whether windows of messages are sent.
    #[must_use]
    pub fn has_windows(self) -> bool {
        matches!(self, Self::Bandwidth | Self::Bibandwidth | Self::Rate)
    }

    /// Whether the figure of a rank with this role counts.
    pub(crate) fn counts(self, role: crate::Role) -> bool {
        match (self.facts().4, role) {
            (Of::All, _)
            | (Of::Starter, crate::Role::Starts { .. })
            | (Of::Answerer, crate::Role::Answers { .. }) => true,
            (Of::Starter | Of::Answerer, _) => false,
        }
    }

    /// Length of a message if the [plan](crate::Plan) says `size`. That is `size` itself, except
    /// where `size` is the number of waiting entries, or there are no sizes: then it is 8 bytes.
    #[must_use]
    pub fn message_bytes(self, size: usize) -> usize {
        match self.axis() {
            Axis::Bytes => size,
            Axis::Waiting | Axis::None => 8,
        }
    }

    /// The figure if `rounds` rounds took `seconds` seconds. Only for patterns whose figure is
    /// derived from time; the others compute it directly.
    #[must_use]
    pub fn value(self, seconds: f64, rounds: u64, size: usize, window: u32) -> f64 {
        let rounds = rounds as f64;
        let messages = rounds * f64::from(window);
        match self {
            Self::Bandwidth => messages * size as f64 / seconds / 1e6,
            Self::Bibandwidth => 2.0 * messages * size as f64 / seconds / 1e6,
            Self::Rate => messages / seconds,
            Self::Barrier => seconds / rounds * 1e6,
            Self::DrainReverse | Self::DrainRandom => seconds / (rounds * size as f64) * 1e6,
            _ => seconds / (2.0 * rounds) * 1e6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_their_units() {
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} {b}");
        // 10 round trips in 20 µs: 1 µs one way.
        near(Pattern::Latency.value(20e-6, 10, 8, 64), 1.0);
        near(Pattern::Barrier.value(20e-6, 10, 0, 64), 2.0);
        // 10 windows of 64 messages of 1000 bytes in 1 ms: 640 MB/s, 640,000 messages/s.
        near(Pattern::Bandwidth.value(1e-3, 10, 1000, 64), 640.0);
        near(Pattern::Bibandwidth.value(1e-3, 10, 1000, 64), 1280.0);
        near(Pattern::Rate.value(1e-3, 10, 1000, 64), 640_000.0);
        // 1000 matches, twice, in 1 ms: half a microsecond each.
        near(Pattern::DrainReverse.value(1e-3, 2, 1000, 64), 0.5);
    }

    #[test]
    fn names_are_names() {
        for pattern in Pattern::ALL {
            let name = pattern.name();
            let british = name.replace("neighbor", "neighbour");
            assert_eq!(pattern.alias().unwrap_or(name), british);
        }
        let mut names: Vec<_> = Pattern::ALL.iter().map(|pattern| pattern.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Pattern::ALL.len());
    }
}
