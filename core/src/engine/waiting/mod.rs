//! Waiting: for requests, for memory, how long before the core is given away, and the report when
//! it takes too long.
//!
//! - [`cores`]: whether ranks share cores
//! - [`on_memory`]: waiting on memory that peers store into, where they can
//! - [`patience`]: how long a waiting rank keeps polling for a peer on another processor before it
//!   gives its own processor away, where ranks take turns
//! - [`stuck`]: the report of a wait that takes too long
//! - [`wait`]: spin briefly, then give the core away, then sleep

pub(super) mod cores;
pub(super) mod on_memory;
pub(super) mod patience;
pub(super) mod stuck;
pub(super) mod wait;
