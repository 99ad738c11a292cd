//! Collective operations: every rank of a communicator takes part (MPI-4 chapter 6).
//!
//! An operation and its arguments are one value, which every form of the call takes:
//!
//! | | call | buffers |
//! | --- | --- | --- |
//! | blocking | [`Comm::run`]`(Allreduce::new(&mine, &mut sum, Op::SUM))` | any |
//! | nonblocking in a scope | [`Scope::start`](crate::Scope::start)`(…)` | borrowed |
//! | nonblocking, in structs and tasks | [`Comm::start_owned`]`(Allreduce::new(vec, vec, Op::SUM))` | owned |
//! | persistent | [`Comm::persistent`]`(…)` | owned |
//!
//! The most common ones are methods of [`Comm`], too:
//! [`comm.allreduce(&mine, &mut sum, &Op::SUM)`](Comm::allreduce),
//! [`comm.bcast(&mut data, 0)`](Comm::bcast),
//! [`comm.allreduce_one(x, &Op::SUM)`](Comm::allreduce_one).
//!
//! # Rules
//! - All ranks of a communicator call the same operations on it in the same order, including
//!   nonblocking ones, with matching lengths and types. One thread of a rank at a time makes such
//!   calls. `PORTOLAN_COLL_CHECK=on` compares the calls of all ranks, at the price of a few
//!   messages.
//! - Arguments are checked before any message is sent; the checks are the same in every form.
//! - Where an operation has a block per rank, the blocks are equally long and side by side unless
//!   counts are given. MPI's v forms are [`counts`](Gather::counts) and
//!   [`counts_at`](Gather::counts_at).
//! - `in_place` takes one buffer, which is both sent from and received into.
//! - For part of a buffer, or its items in another order, give a [`strided`] buffer.
//! - An operator of the program's own ([`Op::new`](crate::Op::new)) runs within calls that make
//!   progress, of any form and on any communicator. It must not make calls on communicators itself,
//!   and neither may the drop of its captures: such calls panic while the device is at work.
//! - If an operator panics while other ranks wait for its result, they would wait for ever. So the
//!   process ends.

mod alltoall;
mod alltoallw;
mod bcast;
mod blocks;
mod call;
mod data;
pub mod exact;
mod forms;
mod gather;
mod ground;
mod inter;
mod neighbour;
mod one;
mod persistent;
mod reduce;
mod reduce_scatter;
mod request;
mod room;
mod root;
mod short;
mod sides;
mod vecs;

pub use alltoall::{Allgather, Alltoall};
pub use alltoallw::{Alltoallw, Shapes};
pub use bcast::{Barrier, Bcast};
pub use call::{Buffers, Collective, Look, View};
pub use data::{Data, IntoData, strided};
pub use forms::ScopedCollective;
pub use gather::{Gather, Scatter};
pub use neighbour::{NeighbourAllgather, NeighbourAlltoall, NeighbourAlltoallw};
pub use persistent::PersistentCollective;
pub use reduce::{Allreduce, Exscan, Reduce, Scan};
pub use reduce_scatter::{ReduceScatter, ReduceScatterBlock, reduce_local};
pub use request::CollectiveRequest;
pub use root::Root;
pub use sides::{NoBuffer, Receives, RecvOnly, SendOnly, SendRecv, Sides};

pub use crate::comm::{Buffer, BufferMut};
pub use portolan_coll::Counters;

#[cfg(doc)]
use crate::Comm;
