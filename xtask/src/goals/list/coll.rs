//! Collective operations.

use super::{Bound, FEW, Group, Of, goal, run};

/// Two ranks, each on a core of its own.
pub(super) const TWO_RANKS: Group = Group {
    name: "coll",
    title: "Collective operations of two ranks",
    least: FEW,
    goals: &[
        goal(
            "Short ones, µs",
            Bound::AtMost(0.7),
            Of::BestPeer,
            &[
                run("barrier -n 2 --peers --tuned"),
                run("bcast --sizes 8 --peers --tuned"),
                run("allreduce --sizes 8 --peers --tuned"),
            ],
        ),
        goal(
            "Long ones, beside peers with their default settings, µs",
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
        // The best of these settings are those without `process_vm_readv`.
        goal(
            "The same beside peers with tuned settings, too, µs",
            Bound::AtMost(0.8),
            Of::BestPeer,
            &[
                run("bcast --sizes 64k,256k,1M,4M --peers --tuned"),
                run("allreduce --sizes 64k,256k,1M,4M --peers --tuned"),
                run("allgather --sizes 64k,256k,1M,4M --peers --tuned"),
                run("alltoall --sizes 64k,256k,1M,4M --peers --tuned"),
                run("reduce-scatter --sizes 64k,256k,1M,4M --peers --tuned"),
            ],
        ),
    ],
};

/// More ranks than cores.
pub(super) const FOUR_AND_EIGHT: Group = Group {
    name: "coll-ranks",
    title: "Collective operations of four and eight ranks on two cores",
    least: FEW,
    goals: &[
        goal(
            "Four ranks, µs",
            Bound::AtMost(0.8),
            Of::BestPeer,
            // Where the system puts ranks that outnumber the cores differs from sample to
            // sample, and decides about short operations. On a map all have the same places.
            &[run(
                "coll -n 4 --map apart --sizes 8,1k,64k,1M --peers --only openmpi",
            )],
        ),
        goal(
            "Eight ranks, µs",
            Bound::AtMost(0.8),
            Of::BestPeer,
            &[run(
                "coll -n 8 --map apart --sizes 8,1k,64k,1M --peers --only openmpi",
            )],
        ),
    ],
};

/// Nonblocking forms of two ranks.
pub(super) const NONBLOCKING: Group = Group {
    name: "icoll",
    title: "Nonblocking collective operations of two ranks",
    least: FEW,
    goals: &[
        goal(
            "As a ratio to the blocking forms, µs",
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
                run("exscan --sizes 8,4k,64k"),
                run("iexscan --sizes 8,4k,64k"),
                run("gatherv --sizes 8,4k,64k"),
                run("igatherv --sizes 8,4k,64k"),
                run("scatterv --sizes 8,4k,64k"),
                run("iscatterv --sizes 8,4k,64k"),
                run("allgatherv --sizes 8,4k,64k"),
                run("iallgatherv --sizes 8,4k,64k"),
                run("alltoallw --sizes 8,4k,64k"),
                run("ialltoallw --sizes 8,4k,64k"),
                run("reduce-scatter-block --sizes 8,4k,64k"),
                run("ireduce-scatter-block --sizes 8,4k,64k"),
                run("neighbor-allgatherv --sizes 8,4k,64k"),
                run("ineighbor-allgatherv --sizes 8,4k,64k"),
                run("neighbor-alltoallw --sizes 8,4k,64k"),
                run("ineighbor-alltoallw --sizes 8,4k,64k"),
                run("barrier-alone -n 2"),
                run("ibarrier -n 2"),
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
                run("ireduce-overlap --sizes 1M,4M"),
                run("igather-overlap --sizes 1M,4M"),
                run("iscatter-overlap --sizes 1M,4M"),
                run("ireduce-scatter-overlap --sizes 1M,4M"),
                run("iscan-overlap --sizes 1M,4M"),
                run("ialltoallv-overlap --sizes 1M,4M"),
                run("ineighbor-alltoall-overlap --sizes 1M,4M"),
            ],
        ),
    ],
};
