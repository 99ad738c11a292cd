//! Waiting: for requests, for memory, how long before giving the core away, and what is said when
//! it takes too long.
//!
//! - [`cores`]: whether ranks share cores
//! - [`on_memory`]: waiting on memory that peers store into, where they can
//! - [`patience`]: how long a rank looks for one that runs on another processor before it gives its
//!   own away, where ranks take turns
//! - [`stuck`]: what is said of a wait that takes too long
//! - [`wait`]: spin briefly, then give the core away, then sleep

pub(super) mod cores;
pub(super) mod on_memory;
pub(super) mod patience;
pub(super) mod stuck;
pub(super) mod wait;
