//! What the crates above run inside progress.
//!
//! - [`active`]: active messages: handlers of the crates above, run where the message arrives
//! - [`hooks`]: what the crates above run inside progress, and what they and handlers may do there

pub(super) mod active;
pub(super) mod hooks;
