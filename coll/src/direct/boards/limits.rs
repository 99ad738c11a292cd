//! Up to what length boards are used.
//!
//! All data that goes through a chunk is copied twice, by cores that wait for each other. From some
//! length on another way may win, which goes from buffer to buffer.

use crate::direct::boards::board::Kind;

/// Whether measurements decide which way an operation of `len` bytes takes
/// ([`choice`](crate::direct::blocking::choice)).
///
/// (Times over boards relative to messages. Two pinned processes, a line taking 120 ns from one to
/// the other: broadcast 0.5 at 8 bytes, 1.0 at 8 KiB, 1.7 at 64 KiB; allreduce 0.5, 1.2 and 1.3;
/// allgather 0.4, 1.0 and 1.7; reduce-scatter 0.5, 0.9 and 1.3, then 0.8 at 256 KiB. Eight
/// processes on two cores: broadcast 0.4 throughout, allreduce 0.55 at 64 KiB, allgather 0.55,
/// alltoall 0.95 at 8 KiB and 1.1 to 1.3 from 64 KiB on. Another machine, two processes: broadcast
/// 0.7 at 16 KiB, 0.9 at 64 KiB, 1.1 at 256 KiB, 0.85 at 4 MiB; allgather 0.75, 0.9, 0.9 and 0.85;
/// alltoall 0.75, 0.9, 1.3 and 0.75. Alltoall again, with two chunks in a step: two processes 0.55
/// to 0.65 from 32 KiB to 1 MiB and 0.5 at 4 MiB; four on two cores 0.3 at 32 KiB, 0.45 at 64 KiB,
/// 0.6 at 256 KiB and 1 MiB; eight 0.45, 0.7 and 0.85 to 1 at 64 KiB, 256 KiB and 1 MiB.)
#[inline]
pub(in crate::direct) fn is_measured(kind: Kind, ranks: u32, len: u64) -> bool {
    let limit = match (kind, ranks) {
        (Kind::Bcast | Kind::AllgatherChosen | Kind::Alltoall, 2) => 16 << 10,
        (Kind::Alltoall | Kind::ScatterListed, _) => 32 << 10,
        _ => return false,
    };
    len >= limit
}
