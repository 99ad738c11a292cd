//! Ranks that outnumber the cores, that wait, that start, and what memory they need.

use super::{Bound, Group, MANY, Of, goal, run};

/// More ranks than cores.
pub(super) const RANKS: Group = Group {
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
};
