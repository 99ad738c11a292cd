//! Nonblocking and persistent operations: each takes one step of a track.
//!
//! - [`along`]: neighbour collectives on a track
//! - [`begun`]: an operation under way: shown when it starts, taken when all ranks have shown
//! - [`call`]: what an operation shows and takes, all in one step
//! - [`hope`]: how often the call that starts an operation looks for the other ranks
//! - [`kept`]: owned descriptions of operations that run later
//! - [`listed`]: gathers, scatters and alltoalls with block lengths of their own on a track
//! - [`messages`]: messages of an operation over boards, for data that is longer than a place there
//! - [`pending`]: an operation between the call that starts it and its end
//! - [`turns`]: the steps of the operations on a track, and their order

pub(super) mod along;
pub(super) mod begun;
pub(super) mod call;
pub(super) mod hope;
pub(super) mod kept;
pub(super) mod listed;
pub(super) mod messages;
pub(super) mod pending;
pub(super) mod turns;
