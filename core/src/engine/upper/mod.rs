//! Code of the crates above that runs inside progress.
//!
//! - [`active`]: active messages: handlers of the crates above, run where the message arrives
//! - [`hooks`]: hooks, and what hooks and handlers may do inside progress

pub(super) mod active;
pub(super) mod hooks;
