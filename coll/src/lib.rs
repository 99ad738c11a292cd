//! Collective operations: schedules, the algorithms that write them, and the code that runs them.
//!
//! **What it is.** Barrier, broadcast, gather, scatter, allgather, alltoall, reduce, allreduce,
//! reduce-scatter, scan and their variants (MPI-4 chapter 6, and the neighbour collectives of
//! chapter 8), in blocking, nonblocking and persistent form, over any
//! [`Device`](portolan_core::Device). One description per operation ([`Operation`]) serves all
//! forms. An algorithm writes a [`schedule`]; a table selects the algorithm ([`select`]).
//!
//! Operations between the two groups of an intercommunicator are in [`inter`].
//!
//! **What it is not.** It does not know which backend it runs on, only what the device says it can
//! do. It has no typed interface (that is the crate `portolan`) and makes no communicators (that is
//! `portolan_core::comm`; [`compare_creation`] only compares the ranks' calls before one is made).
//!
//! **Who calls it.** `portolan`'s communicators and, once it exists, `rma` for its synchronisation.
//!
//! **Invariants.**
//! - Nothing is sent before the arguments have been validated ([`check()`]).
//! - All ranks choose the same algorithm: each consults the same table, using only values that all
//!   ranks know.
//! - All ranks start the operations on a communicator in the same order. Each operation therefore
//!   has the same number on every rank, and that number tells its messages apart from those of
//!   others.
//! - An error in one message does not stop a rank's schedule, because other ranks wait for the rest
//!   of it.

pub mod algorithms;
pub mod args;
pub mod exact;
pub mod inter;
pub mod problem;
pub mod schedule;
pub mod select;

mod active;
mod blocking;
mod check;
mod compare;
mod counters;
mod direct;
mod levels;
mod lower;
mod memory;
mod neighbour;
mod options;
mod plan;
mod run;
mod scratch;
#[cfg(test)]
mod simulate;
mod start;
mod state;
mod team;
mod units;

pub use args::{BlocksArg, LayoutsArg, Many, Name, Operation};
pub use blocking::run;
pub use check::{check, check_inter};
pub use compare::{
    Creation, compare_creation, compare_inter_creation, start_comparing, start_comparing_inter,
};
pub use counters::{Counters, Totals, counted, totals};
pub use levels::Levels;
pub use options::{Options, configure};
pub use start::{Persistent, start};
pub use team::Team;
