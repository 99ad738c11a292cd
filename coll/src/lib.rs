//! Collective operations: schedules, the algorithms that write them, and what runs them.
//!
//! **What it is.** Barrier, broadcast, gather, scatter, allgather, alltoall, reduce, allreduce,
//! reduce-scatter, scan and their variants (MPI-4 chapter 6, and the neighbour collectives of
//! chapter 8), in blocking, nonblocking and persistent form, over any
//! [`Device`](portolan_core::Device). One description per operation ([`Operation`]) serves all
//! forms. An algorithm writes a [`schedule`]; a table selects the algorithm ([`select`]).
//!
//! Operations between the two groups of an intercommunicator are in [`inter`].
//!
//! **What it is not.** It knows no backend, only what a device says it can do; it has no typed
//! interface (that is the crate `portolan`) and makes no communicators (that is
//! `portolan_core::comm`; [`compare_creation`] only compares what the ranks call before).
//!
//! **Who calls it.** `portolan`'s communicators, and `rma`, which is to come, for its
//! synchronisation.
//!
//! **Invariants.**
//! - Nothing is sent before the arguments have been validated ([`check()`]).
//! - All ranks choose the same algorithm: from the same table by what all of them know.
//! - Operations on one communicator are started in one order on all ranks; their number, the same
//!   everywhere, tells their messages apart.
//! - An error in one message does not stop a rank's schedule, because others wait for the rest of
//!   it.

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
