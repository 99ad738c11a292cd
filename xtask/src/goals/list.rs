//! The goals.

/// Goals about one subject.
#[derive(Debug)]
pub(super) struct Group {
    /// The name on the command line.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// The number of samples of each side that a verdict needs.
    pub(super) least: u64,
    pub(super) goals: &'static [Goal],
}

/// The usual minimum of samples: the median of fewer is a mean.
pub(super) const FEW: u64 = 3;
/// The minimum for ranks that share processors, where a single sample says little.
pub(super) const MANY: u64 = 9;

/// One goal.
#[derive(Debug)]
pub(super) struct Goal {
    pub(super) what: &'static str,
    pub(super) bound: Bound,
    pub(super) of: Of,
    /// The smallest and largest size that it is about; `None` for all that are measured.
    pub(super) sizes: Option<(u64, u64)>,
    pub(super) runs: &'static [Command],
}

/// A run of `portolan bench`.
#[derive(Debug)]
pub(super) struct Command {
    /// Its arguments.
    pub(super) words: &'static str,
    /// Environment variables.
    pub(super) settings: &'static [(&'static str, &'static str)],
    /// The libfabric under Portolan and under the loops that are measured alongside it.
    pub(super) library: Library,
}

/// Which libfabric is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Library {
    /// The system's.
    Systems,
    /// The one in MPICH's wheel, so that all contenders have the same.
    OfTheWheel,
}

/// The bound of a goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// No bound: the figure is only shown.
    Shown,
}

/// What a figure is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// Its ratio to the best peer's figure.
    BestPeer,
    /// The figure itself.
    Itself,
    /// Its ratio to the figure of the first size.
    FirstSize,
    /// The same, for Portolan and for each peer by itself.
    FirstSizeOfEach,
    /// Its ratio to the time of a cache line from core to core.
    Line,
    /// Its ratio to the time, or the rate, of two copies by two cores.
    TwoCopies,
    /// The ratio of the nonblocking forms, in the second run, to the blocking forms in the first.
    Blocking,
}

impl Goal {
    pub(super) fn commands(&self) -> impl Iterator<Item = &'static Command> {
        self.runs.iter()
    }

    /// Whether the goal is about messages of this size.
    pub(super) fn concerns(&self, size: u64) -> bool {
        self.sizes
            .is_none_or(|(from, to)| (from..=to).contains(&size))
    }
}

impl Bound {
    pub(super) fn holds(self, measure: f64) -> bool {
        match self {
            Self::AtMost(limit) => measure <= limit,
            Self::AtLeast(limit) => measure >= limit,
            Self::Shown => true,
        }
    }
}

/// The names of the groups, for the command line.
pub(super) fn groups() -> Vec<&'static str> {
    GROUPS.iter().map(|group| group.name).collect()
}

const fn run(words: &'static str) -> Command {
    Command {
        words,
        settings: &[],
        library: Library::Systems,
    }
}

/// A run over one provider of libfabric.
const fn over(
    words: &'static str,
    settings: &'static [(&'static str, &'static str)],
    library: Library,
) -> Command {
    Command {
        words,
        settings,
        library,
    }
}

/// A goal about all sizes that its runs measure.
const fn goal(what: &'static str, bound: Bound, of: Of, runs: &'static [Command]) -> Goal {
    Goal {
        what,
        bound,
        of,
        sizes: None,
        runs,
    }
}

/// A goal about some of the sizes.
const fn part(
    what: &'static str,
    bound: Bound,
    of: Of,
    sizes: (u64, u64),
    runs: &'static [Command],
) -> Goal {
    Goal {
        what,
        bound,
        of,
        sizes: Some(sizes),
        runs,
    }
}

const LATENCY: &[Command] = &[run(
    "latency --peers --tuned --sizes 0,8,64,256,512,1k,2k,4k,8k,16k,32k,64k,256k,1M,4M",
)];
// Windows depend most on the distance of the cores, so of a few samples only one or two are of the
// same phase. Hence many short samples.
const ONE_WAY: &[Command] = &[run(
    "bandwidth --peers --tuned --repeat 6 --seconds 0.02 --sizes 1k,2k,4k,8k,16k,32k,64k,128k,256k,512k,1M,2M,4M",
)];
const BOTH_WAYS: &[Command] = &[run(
    "bibandwidth --peers --tuned --repeat 6 --seconds 0.02 --sizes 1k,2k,4k,8k,16k,32k,64k,128k,256k,512k,1M,2M,4M",
)];
const ONE_WAY_MANY: &[Command] = &[run(
    "bandwidth --peers --tuned --buffers 64 --repeat 6 --seconds 0.02 --sizes 64k,256k,1M",
)];
const BOTH_WAYS_MANY: &[Command] = &[run(
    "bibandwidth --peers --tuned --buffers 64 --repeat 6 --seconds 0.02 --sizes 64k,256k,1M",
)];
/// Buffers of `Comm::alloc`, beside peers with buffers of MPI_Alloc_mem.
const ALLOC_LATENCY: &[Command] = &[run(
    "latency --alloc --peers --tuned --sizes 8,4k,8k,16k,32k,64k,256k,1M,4M",
)];
const ALLOC_ONE_WAY: &[Command] = &[run(
    "bandwidth --alloc --peers --tuned --repeat 6 --seconds 0.02 --sizes 1k,4k,8k,16k,32k,64k,256k,1M,4M",
)];
const ALLOC_BOTH_WAYS: &[Command] = &[run(
    "bibandwidth --alloc --peers --tuned --repeat 6 --seconds 0.02 --sizes 1k,4k,8k,16k,32k,64k,256k,1M,4M",
)];
const ALLOC_MANY: &[Command] = &[
    run(
        "bandwidth --alloc --peers --tuned --buffers 64 --repeat 6 --seconds 0.02 --sizes 64k,256k,1M",
    ),
    run(
        "bibandwidth --alloc --peers --tuned --buffers 64 --repeat 6 --seconds 0.02 --sizes 64k,256k,1M",
    ),
];
const SHM: &[(&str, &str)] = &[("PORTOLAN_OFI_PROVIDER", "shm")];
const TCP: &[(&str, &str)] = &[
    ("PORTOLAN_OFI_PROVIDER", "tcp"),
    ("PORTOLAN_OFI_INTERFACE", "lo"),
];
/// Beside contenders with the system's version of libfabric. Another version has another provider,
/// so it would be another comparison.
const OFI_LATENCY: &str = "latency --transport ofi --peers --only libfabric,openmpi-4.1.4+ofi --sizes 8,64,1k,4k,8k,16k,64k,256k,1M";
const OFI_BANDWIDTH: &str = "bandwidth --transport ofi --peers --only libfabric,openmpi-4.1.4+ofi --sizes 1k,4k,8k,16k,64k,256k,1M";
const OFI_RATE: &str = "rate --transport ofi --peers --only libfabric,openmpi-4.1.4+ofi --sizes 8";
/// Beside contenders that have the wheel's version, or can be made to use it.
const OFI_2_LATENCY: &str = "latency --transport ofi --peers --only libfabric,mpich-5.0.2+ofi --sizes 8,64,1k,4k,8k,16k,64k,256k,1M";
const OFI_2_BANDWIDTH: &str = "bandwidth --transport ofi --peers --only libfabric,mpich-5.0.2+ofi --sizes 1k,4k,8k,16k,64k,256k,1M";
const OFI_2_RATE: &str = "rate --transport ofi --peers --only libfabric,mpich-5.0.2+ofi --sizes 8";

/// Every goal.
pub(super) const GROUPS: &[Group] = &[
    Group {
        name: "shm",
        title: "Shared memory, two ranks",
        least: FEW,
        goals: &[
            part(
                "Latency of short messages, µs",
                Bound::AtMost(0.8),
                Of::BestPeer,
                (0, 64),
                LATENCY,
            ),
            part(
                "The same by the machine",
                Bound::AtMost(1.4),
                Of::Line,
                (0, 64),
                LATENCY,
            ),
            part(
                "Latency to 4 KiB, µs",
                Bound::AtMost(0.8),
                Of::BestPeer,
                (256, 4 << 10),
                LATENCY,
            ),
            part(
                "Latency to 64 KiB, µs",
                Bound::AtMost(0.75),
                Of::BestPeer,
                (8 << 10, 64 << 10),
                LATENCY,
            ),
            part(
                "The same by two copies alone, as they are measured here",
                Bound::Shown,
                Of::TwoCopies,
                (1 << 10, 4 << 20),
                LATENCY,
            ),
            part(
                "Latency of long messages, µs",
                Bound::Shown,
                Of::BestPeer,
                (256 << 10, 4 << 20),
                LATENCY,
            ),
            goal(
                "Windows one way, MB/s",
                Bound::AtLeast(1.1),
                Of::BestPeer,
                ONE_WAY,
            ),
            goal(
                "The same by two copies alone, as they are measured here",
                Bound::Shown,
                Of::TwoCopies,
                ONE_WAY,
            ),
            goal(
                "Windows both ways, MB/s",
                Bound::AtLeast(1.1),
                Of::BestPeer,
                BOTH_WAYS,
            ),
            goal(
                "The same by two copies alone, one message behind the other",
                Bound::Shown,
                Of::TwoCopies,
                BOTH_WAYS,
            ),
            goal(
                "Windows one way, a buffer for each message, MB/s",
                Bound::AtLeast(1.1),
                Of::BestPeer,
                ONE_WAY_MANY,
            ),
            goal(
                "Windows both ways, a buffer for each message, MB/s",
                Bound::AtLeast(1.1),
                Of::BestPeer,
                BOTH_WAYS_MANY,
            ),
            goal(
                "Messages of 8 bytes, per second",
                Bound::AtLeast(1.4),
                Of::BestPeer,
                &[run(
                    "rate --peers --tuned --repeat 6 --seconds 0.05 --sizes 8",
                )],
            ),
            goal(
                "Hidden behind computation, %",
                Bound::AtLeast(90.0),
                Of::Itself,
                &[run("overlap --sizes 64k,1M,4M")],
            ),
        ],
    },
    Group {
        name: "alloc",
        title: "Shared memory, two ranks, buffers of the library",
        least: FEW,
        goals: &[
            part(
                "Latency, buffers of the library, µs",
                Bound::AtMost(0.75),
                Of::BestPeer,
                (8 << 10, 4 << 20),
                ALLOC_LATENCY,
            ),
            goal(
                "Windows one way, buffers of the library, MB/s",
                Bound::AtLeast(1.1),
                Of::BestPeer,
                ALLOC_ONE_WAY,
            ),
            goal(
                "Windows both ways, buffers of the library, MB/s",
                Bound::AtLeast(1.1),
                Of::BestPeer,
                ALLOC_BOTH_WAYS,
            ),
            goal(
                "Windows, a buffer of the library for each message, MB/s",
                Bound::AtLeast(1.1),
                Of::BestPeer,
                ALLOC_MANY,
            ),
            goal(
                "Hidden behind computation, buffers of the library, %",
                Bound::AtLeast(90.0),
                Of::Itself,
                &[run("overlap --alloc --sizes 64k,1M,4M")],
            ),
        ],
    },
    Group {
        name: "matching",
        title: "Matching among many",
        least: FEW,
        goals: &[
            goal(
                "8 bytes past so many that do not match, µs",
                Bound::AtMost(1.5),
                Of::FirstSize,
                &[
                    run("depth --sizes 10,1000,100000 --repeat 9 --seconds 1"),
                    run("depth-wildcard --sizes 10,1000,100000 --seconds 1"),
                    run("depth-unexpected --sizes 10,1000,100000 --seconds 1"),
                ],
            ),
            goal(
                "8 bytes past so many that do not match, and how peers grow with their number, µs",
                Bound::Shown,
                Of::FirstSizeOfEach,
                &[
                    run("depth --peers --sizes 10,1000,10000 --repeat 3 --seconds 0.1"),
                    run("depth-unexpected --peers --sizes 10,1000,10000 --repeat 3 --seconds 0.1"),
                ],
            ),
            goal(
                "A match while so many are drained, µs",
                Bound::AtMost(3.0),
                Of::FirstSize,
                &[
                    run("drain-reverse --sizes 10,1000,100000 --seconds 1"),
                    run("drain-random --sizes 10,1000,100000 --seconds 1"),
                ],
            ),
        ],
    },
    Group {
        name: "ranks",
        title: "More ranks than cores, and waiting",
        least: MANY,
        goals: &[
            goal(
                "Pairs of 4 and 8 ranks on two cores, partners on one core, then on two, 8 bytes, µs",
                Bound::AtMost(0.8),
                Of::BestPeer,
                &[
                    run(
                        "latency -n 4 --map together --repeat 9 --iterations 200000 --seconds 1 --sizes 8 --peers --only openmpi",
                    ),
                    run(
                        "latency -n 8 --map together --repeat 9 --iterations 200000 --seconds 1 --sizes 8 --peers --only openmpi",
                    ),
                    run(
                        "latency -n 4 --map apart --repeat 9 --iterations 200000 --seconds 1 --sizes 8 --peers --only openmpi",
                    ),
                    run(
                        "latency -n 8 --map apart --repeat 9 --iterations 200000 --seconds 1 --sizes 8 --peers --only openmpi",
                    ),
                ],
            ),
            goal(
                "Barrier of 4 and 8 ranks on two cores, one rank behind the other on a core, then by turns, µs",
                Bound::AtMost(0.8),
                Of::BestPeer,
                &[
                    run("barrier -n 4 --map together --repeat 20 --peers --only openmpi"),
                    run("barrier -n 8 --map together --repeat 20 --peers --only openmpi"),
                    run("barrier -n 4 --map apart --repeat 20 --peers --only openmpi"),
                    run("barrier -n 8 --map apart --repeat 20 --peers --only openmpi"),
                ],
            ),
            goal(
                "Two ranks while both cores are busy with other work, 8 bytes, µs",
                Bound::AtMost(0.8),
                Of::BestPeer,
                &[run(
                    "latency -n 2 --busy 2 --repeat 16 --iterations 500000 --seconds 1 --sizes 8 --peers --tuned --only openmpi",
                )],
            ),
            goal(
                "Two ranks on one core, 8 bytes, µs",
                Bound::Shown,
                Of::BestPeer,
                &[run(
                    "latency -n 2 --pin 0,0 --repeat 9 --sizes 8 --peers --tuned --only openmpi",
                )],
            ),
            goal(
                "Processor time of a rank that waits, %",
                Bound::AtMost(0.1),
                Of::Itself,
                &[run("idle --repeat 9 --seconds 3")],
            ),
            goal(
                "Start of 64 ranks, ms",
                Bound::Shown,
                Of::BestPeer,
                // Both peers, whatever peers are chosen for the other goals: it is not known in
                // advance which of them starts faster.
                &[run("startup --repeat 9 --peers --only openmpi,mpich")],
            ),
            goal(
                "Memory of one of 8, 64 and 200 ranks that talk to their neighbours, and of 64 that talk to all, KiB",
                Bound::Shown,
                Of::Itself,
                &[
                    run("memory-ring -n 8"),
                    run("memory-ring -n 64"),
                    run("memory-ring -n 200"),
                    run("memory-all -n 64"),
                ],
            ),
        ],
    },
    Group {
        name: "coll",
        title: "Collective operations",
        least: FEW,
        goals: &[
            goal(
                "Short ones of two ranks, µs",
                Bound::AtMost(0.7),
                Of::BestPeer,
                &[
                    run("barrier -n 2 --peers"),
                    run("bcast --sizes 8 --peers"),
                    run("allreduce --sizes 8 --peers"),
                ],
            ),
            goal(
                "Long ones of two ranks, µs",
                Bound::AtMost(0.8),
                Of::BestPeer,
                &[
                    run("bcast --sizes 64k,256k,1M,4M --peers"),
                    run("allreduce --sizes 64k,256k,1M,4M --peers"),
                    run("allgather --sizes 64k,256k,1M,4M --peers"),
                    run("alltoall --sizes 64k,256k,1M,4M --peers"),
                    run("reduce-scatter --sizes 64k,256k,1M,4M --peers"),
                ],
            ),
            goal(
                "Four ranks on two cores, µs",
                Bound::AtMost(0.8),
                Of::BestPeer,
                // Where the system puts ranks that outnumber the cores differs from sample to
                // sample, and decides about short operations. On a map all have the same places.
                &[run(
                    "coll -n 4 --map apart --sizes 8,1k,64k,1M --peers --only openmpi",
                )],
            ),
            goal(
                "Eight ranks on two cores, µs",
                Bound::AtMost(0.8),
                Of::BestPeer,
                &[run(
                    "coll -n 8 --map apart --sizes 8,1k,64k,1M --peers --only openmpi",
                )],
            ),
            goal(
                "Nonblocking forms, µs",
                Bound::AtMost(1.3),
                Of::Blocking,
                &[
                    // Each nonblocking form directly after its blocking form, because phases last
                    // for minutes.
                    run("bcast --sizes 8,4k,64k"),
                    run("ibcast --sizes 8,4k,64k"),
                    run("allreduce --sizes 8,4k,64k"),
                    run("iallreduce --sizes 8,4k,64k"),
                    run("allgather --sizes 8,4k,64k"),
                    run("iallgather --sizes 8,4k,64k"),
                    run("reduce --sizes 8,4k,64k"),
                    run("ireduce --sizes 8,4k,64k"),
                    run("alltoall --sizes 8,4k,64k"),
                    run("ialltoall --sizes 8,4k,64k"),
                    run("gather --sizes 8,4k,64k"),
                    run("igather --sizes 8,4k,64k"),
                    run("scatter --sizes 8,4k,64k"),
                    run("iscatter --sizes 8,4k,64k"),
                    run("alltoallv --sizes 8,4k,64k"),
                    run("ialltoallv --sizes 8,4k,64k"),
                    run("reduce-scatter --sizes 8,4k,64k"),
                    run("ireduce-scatter --sizes 8,4k,64k"),
                    run("scan --sizes 8,4k,64k"),
                    run("iscan --sizes 8,4k,64k"),
                    run("neighbor-allgather --sizes 8,4k,64k"),
                    run("ineighbor-allgather --sizes 8,4k,64k"),
                    run("neighbor-alltoall --sizes 8,4k,64k"),
                    run("ineighbor-alltoall --sizes 8,4k,64k"),
                    run("neighbor-alltoallv --sizes 8,4k,64k"),
                    run("ineighbor-alltoallv --sizes 8,4k,64k"),
                ],
            ),
            goal(
                "Hidden behind computation, %",
                Bound::AtLeast(90.0),
                Of::Itself,
                &[
                    run("ibcast-overlap --sizes 1M,4M"),
                    run("iallreduce-overlap --sizes 1M,4M"),
                    run("iallgather-overlap --sizes 1M,4M"),
                    run("ialltoall-overlap --sizes 1M,4M"),
                ],
            ),
        ],
    },
    Group {
        name: "ofi",
        title: "libfabric",
        least: FEW,
        goals: &[
            goal(
                "Latency over TCP, libfabric 1.17 under all, µs",
                Bound::AtMost(1.15),
                Of::BestPeer,
                &[over(OFI_LATENCY, TCP, Library::Systems)],
            ),
            goal(
                "Windows over TCP, libfabric 1.17 under all, MB/s",
                Bound::AtLeast(0.87),
                Of::BestPeer,
                &[over(OFI_BANDWIDTH, TCP, Library::Systems)],
            ),
            goal(
                "Messages of 8 bytes over TCP, libfabric 1.17 under all, per second",
                Bound::AtLeast(0.87),
                Of::BestPeer,
                &[over(OFI_RATE, TCP, Library::Systems)],
            ),
            goal(
                "Latency over TCP, libfabric 2.5 under all, µs",
                Bound::AtMost(1.15),
                Of::BestPeer,
                &[over(OFI_2_LATENCY, TCP, Library::OfTheWheel)],
            ),
            goal(
                "Windows over TCP, libfabric 2.5 under all, MB/s",
                Bound::AtLeast(0.87),
                Of::BestPeer,
                &[over(OFI_2_BANDWIDTH, TCP, Library::OfTheWheel)],
            ),
            goal(
                "Messages of 8 bytes over TCP, libfabric 2.5 under all, per second",
                Bound::AtLeast(0.87),
                Of::BestPeer,
                &[over(OFI_2_RATE, TCP, Library::OfTheWheel)],
            ),
            goal(
                "Latency over libfabric's shared memory, libfabric 1.17 under all, µs",
                Bound::AtMost(1.15),
                Of::BestPeer,
                &[over(OFI_LATENCY, SHM, Library::Systems)],
            ),
            goal(
                "Windows over libfabric's shared memory, libfabric 1.17 under all, MB/s",
                Bound::AtLeast(0.87),
                Of::BestPeer,
                &[over(OFI_BANDWIDTH, SHM, Library::Systems)],
            ),
            goal(
                "Messages of 8 bytes over libfabric's shared memory, libfabric 1.17 under all, per second",
                Bound::AtLeast(0.87),
                Of::BestPeer,
                &[over(OFI_RATE, SHM, Library::Systems)],
            ),
            goal(
                "Latency over libfabric's shared memory, libfabric 2.5 under all, µs",
                Bound::AtMost(1.15),
                Of::BestPeer,
                &[over(OFI_2_LATENCY, SHM, Library::OfTheWheel)],
            ),
            goal(
                "Windows over libfabric's shared memory, libfabric 2.5 under all, MB/s",
                Bound::AtLeast(0.87),
                Of::BestPeer,
                &[over(OFI_2_BANDWIDTH, SHM, Library::OfTheWheel)],
            ),
            goal(
                "Messages of 8 bytes over libfabric's shared memory, libfabric 2.5 under all, per second",
                Bound::AtLeast(0.87),
                Of::BestPeer,
                &[over(OFI_2_RATE, SHM, Library::OfTheWheel)],
            ),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(runs: &[Command]) -> Vec<&str> {
        let words = runs[0].words.split_once("--sizes ").unwrap().1;
        words.split(' ').next().unwrap().split(',').collect()
    }

    #[test]
    fn what_is_decided_has_enough_samples() {
        for group in GROUPS {
            let decided = group.goals.iter().filter(|goal| goal.bound != Bound::Shown);
            for command in decided.flat_map(Goal::commands) {
                let words: Vec<_> = command.words.split(' ').collect();
                let at = words.iter().position(|word| *word == "--repeat");
                let own = at.map(|at| words[at + 1].parse::<u64>().unwrap());
                let samples = own.unwrap_or(super::super::REPEAT.into());
                assert!(samples >= group.least, "{}", command.words);
            }
        }
    }

    #[test]
    fn starts_are_beside_both_peers_whatever_is_chosen() {
        let ranks = GROUPS.iter().find(|group| group.name == "ranks").unwrap();
        let all = || ranks.goals.iter().flat_map(Goal::commands);
        let start = all().find(|command| command.words.starts_with("startup"));
        assert!(start.unwrap().words.contains(" --only openmpi,mpich"));
    }

    #[test]
    fn windows_have_every_power_of_two() {
        let named = |power: u32| match power {
            10..20 => format!("{}k", 1 << (power - 10)),
            _ => format!("{}M", 1 << (power - 20)),
        };
        let all: Vec<String> = (10..=22).map(named).collect();
        assert_eq!(sizes(ONE_WAY), all);
        assert_eq!(sizes(BOTH_WAYS), all);
        let latency = sizes(LATENCY);
        let short = ["256", "512", "1k", "2k", "4k", "8k", "16k", "32k", "64k"];
        assert!(
            short.iter().all(|size| latency.contains(size)),
            "{latency:?}"
        );
    }
}
