//! Two ranks over shared memory: with any buffers, with buffers of the library, and matching.

use super::{Bound, Command, FEW, Group, Of, goal, part, run};

// Both depend on the distance of the cores, so of a few samples only one or two are of the same
// phase. Hence many short samples.
const LATENCY: &[Command] = &[run(
    "latency --peers --tuned --repeat 8 --seconds 0.02 --sizes 0,8,64,256,512,1k,2k,4k,8k,16k,32k,64k,256k,1M,4M",
)];
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

/// Buffers of the program.
pub(super) const ANY_BUFFERS: Group = Group {
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
};

/// Buffers of the library.
pub(super) const ALLOCATED: Group = Group {
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
};

/// Many messages and receives that wait.
pub(super) const MATCHING: Group = Group {
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
};

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(runs: &[Command]) -> Vec<&str> {
        let words = runs[0].words.split_once("--sizes ").unwrap().1;
        words.split(' ').next().unwrap().split(',').collect()
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
