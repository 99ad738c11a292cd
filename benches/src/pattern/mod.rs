//! What is measured, and what the figures mean.

mod steps;

pub(crate) use steps::ping_pong;
pub use steps::{Steps, shuffled};

/// What is measured. Where the OSU suite has the same, it is named.
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
    /// Half a round trip while as many threads of each rank do the same at a time, as
    /// `osu_latency_mt`.
    Multithread,
    /// How much of a send hides behind what its sender computes meanwhile.
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
    /// Receives with a tag of their own each are posted, and their messages sent in the opposite
    /// order.
    DrainReverse,
    /// The same in a random order.
    DrainRandom,
    /// From the start of the job until every rank has had a message.
    Startup,
    /// The processor time of a rank that waits.
    Idle,
    /// Memory of a rank that has talked to its two neighbours.
    MemoryRing,
    /// Memory of a rank that has talked to every other.
    MemoryAll,
    /// A collective operation, as `osu_bcast` and its like. The size is that of the whole message
    /// where there is one (broadcast, reductions), else of one rank's block.
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
    /// With counts, which are all the same, as in the OSU suite; so are those of the other ones
    /// with a v.
    Gatherv,
    Scatterv,
    Allgatherv,
    Alltoallv,
    /// With a layout for each block, which are all the same.
    Alltoallw,
    ReduceScatterBlock,
    /// On a ring, with the rank before and the rank after this one; so are the other ones of
    /// neighbours.
    NeighbourAllgather,
    NeighbourAllgatherv,
    NeighbourAlltoall,
    NeighbourAlltoallv,
    NeighbourAlltoallw,
    /// Its blocking form is [`Pattern::Barrier`].
    Barrier,
}

impl Collective {
    /// All of them that have a size.
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

    /// Whether it is one of neighbours.
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

    /// Names in the [forms](Form).
    fn names(self) -> [&'static str; 4] {
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
            Self::Barrier => names!("barrier"),
        }
    }
}

/// In which form a collective operation is called, and what is measured of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// The time of a blocking call.
    Blocking,
    /// The time from the start of a nonblocking one until it has been waited for.
    Nonblocking,
    /// How much of that hides behind a computation of its length that looks at it now and then.
    Hidden,
    /// The time from the start of a persistent one until it has been waited for.
    Persistent,
}

/// What the sizes of a [plan](crate::Plan) mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Length of a message in bytes.
    Bytes,
    /// How many receives or messages wait.
    Waiting,
    /// Nothing: there is one figure.
    None,
}

/// How the figures of the ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pool {
    Mean,
    Sum,
    Most,
}

/// Name, unit, sizes, pooling and what a figure is of.
struct Facts(&'static str, &'static str, Axis, Pool, Of);

/// Whose figures count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// A pair's: that of the rank that starts.
    Starter,
    /// A pair's: that of the rank that answers.
    Answerer,
    /// Every rank's.
    All,
}

/// Patterns that are no collective operation in a form.
const SINGLES: usize = 16;
/// The blocking one first.
const FORMS: [Form; 4] = [
    Form::Blocking,
    Form::Nonblocking,
    Form::Hidden,
    Form::Persistent,
];

impl Pattern {
    const COUNT: usize = SINGLES + FORMS.len() * (Collective::ALL.len() + 1) - 1;

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
            // The blocking one is a pattern by itself.
            if form > 0 {
                all[at] = Self::Collective(Collective::Barrier, FORMS[form]);
                at += 1;
            }
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

    /// The unit of its values. A megabyte is 10⁶ bytes, a KiB 1024.
    #[must_use]
    pub fn unit(self) -> &'static str {
        self.facts().1
    }

    /// What the sizes of its plans mean.
    #[must_use]
    pub fn axis(self) -> Axis {
        self.facts().2
    }

    pub(crate) fn pool(self) -> Pool {
        self.facts().3
    }

    /// Whether a smaller value is a better one.
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

    /// Whether it is one between pairs of ranks.
    #[must_use]
    pub fn is_paired(self) -> bool {
        self.facts().4 != Of::All
    }

    /// Whether windows of messages are sent.
    #[must_use]
    pub fn has_windows(self) -> bool {
        matches!(self, Self::Bandwidth | Self::Bibandwidth | Self::Rate)
    }

    /// Whether the figure of a rank that starts, or else answers, or is in no pair, counts.
    pub(crate) fn counts(self, role: crate::Role) -> bool {
        match (self.facts().4, role) {
            (Of::All, _)
            | (Of::Starter, crate::Role::Starts { .. })
            | (Of::Answerer, crate::Role::Answers { .. }) => true,
            (Of::Starter | Of::Answerer, _) => false,
        }
    }

    /// Length of a message, if the [plan](crate::Plan) says `size`: the same, except where that is
    /// the number of receives that wait.
    #[must_use]
    pub fn message_bytes(self, size: usize) -> usize {
        match self.axis() {
            Axis::Bytes => size,
            Axis::Waiting | Axis::None => 8,
        }
    }

    /// What it means that so many rounds took that many seconds, for the patterns whose time is
    /// what counts; the others have their value from elsewhere.
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
        let mut names: Vec<_> = Pattern::ALL.iter().map(|pattern| pattern.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Pattern::ALL.len());
    }
}
