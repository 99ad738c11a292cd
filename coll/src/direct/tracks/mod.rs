//! Nonblocking and persistent operations: each takes one step of a track.
//!
//! - [`along`]: neighbour collectives on a track
//! - [`begun`]: an operation under way: shown when it starts, taken when everybody has shown
//! - [`call`]: what an operation shows and takes: all of it is one step
//! - [`hope`]: how often the call that starts an operation looks for the others
//! - [`kept`]: descriptions of operations that are done later
//! - [`listed`]: gathers, scatters and alltoalls with lengths of their own on a track
//! - [`messages`]: messages of an operation over boards, for what is longer than a place there
//! - [`pending`]: an operation between the call that starts it and its end
//! - [`turns`]: whose turn it is on a track

pub(super) mod along;
pub(super) mod begun;
pub(super) mod call;
pub(super) mod hope;
pub(super) mod kept;
pub(super) mod listed;
pub(super) mod messages;
pub(super) mod pending;
pub(super) mod turns;
