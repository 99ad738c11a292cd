//! Up to what length boards are used.
//!
//! Through a chunk all data is copied twice, by cores that wait for each other. Messages, which go from buffer to buffer
//! where the device can do that, win from some length on. Ranks show each other the length first, over
//! the board: it is agreed on before the first message is sent, and ranks that disagree are told so.

use super::board::Kind;

/// Whether an operation of so many bytes goes by messages. Bytes are those that ranks compare: of one
/// block where there are blocks.
#[inline]
pub(super) fn by_messages(kind: Kind, ranks: u32, len: u64) -> bool {
    let limit = match (kind, ranks) {
        (Kind::Bcast, 2) => 256 << 10,
        (Kind::Allgather, 2) => 256 << 10,
        (Kind::Alltoall, 2) => 256 << 10,
        _ => return false,
    };
    len >= limit
}
