//! The launcher's side of PMI-1: who asks what, and what is answered.
//!
//! The server is a state machine without input and output: lines of the ranks go in, [`Reaction`]s
//! come out. It answers what MPICH's and our own clients ask; a line that is not PMI-1 ends the
//! job, because whoever sent it would wait for an answer for ever.

mod server;
#[cfg(test)]
mod server_tests;
mod spawn_block;

pub(super) use server::{Reaction, Server, StuckFence};
