//! libfabric: beside bare loops over it and peers that use it.

use super::{Bound, FEW, Group, Library, Of, goal, over};

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

/// libfabric.
pub(super) const LIBFABRIC: Group = Group {
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
};
