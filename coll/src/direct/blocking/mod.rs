//! Blocking operations: each takes one step of the boards after the other until it is done.
//!
//! - [`bcast`]: broadcasts over boards
//! - [`beside`]: ranks that take turns on processors
//! - [`choice`]: measurements that decide between boards and other ways where neither is always
//!   better
//! - [`common_way`]: the step in which ranks agree on the way of an operation
//! - [`exchange`]: every rank learns from every other, in few rounds
//! - [`moves`]: allgather and alltoall over boards, with all their forms
//! - [`neighbours`]: neighbour collectives over boards
//! - [`pair`]: allreduces of two ranks
//! - [`pulled`]: copies from other ranks' buffers
//! - [`reduce`]: reductions over boards
//! - [`rooted`]: gather and scatter over boards
//! - [`scan`]: scans over boards
//! - [`steps`]: the protocol between the boards of a communicator, one step after the other
//! - [`to_root`]: reductions over boards to a root, and how ranks see that there is one

pub(super) mod bcast;
pub(super) mod beside;
pub(super) mod choice;
pub(super) mod common_way;
pub(super) mod exchange;
pub(super) mod moves;
pub(super) mod neighbours;
pub(super) mod pair;
pub(super) mod pulled;
pub(super) mod reduce;
pub(super) mod rooted;
pub(super) mod scan;
pub(super) mod steps;
pub(super) mod to_root;
