//! The launcher's side of PMI-1: the requests of ranks, and their answers.
//!
//! The server is a state machine without input and output: lines from the ranks go in,
//! [`Reaction`]s come out. It answers the requests of MPICH's and of Portolan's own clients. A line
//! that is not PMI-1 ends the job, because its sender would wait for an answer for ever.

mod server;
#[cfg(test)]
mod server_tests;
mod spawn_block;

pub(super) use server::{Reaction, Server, StuckFence};
