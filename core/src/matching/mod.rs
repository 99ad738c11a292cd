//! Matching: decides which receive gets which message.
//!
//! MPI's rule (MPI 4.1, section 3.5) is one sentence: if more than one pair of send and receive
//! could be matched, the earliest send and the earliest receive are. This module implements that
//! rule as a pure state machine. It moves no bytes, reads no clock, holds no lock and knows no
//! transport, so the engine, the tests and the fuzzers all drive the same code.
//!
//! * [`PostedQueue`]: receives waiting for messages.
//! * [`UnexpectedQueue`]: messages waiting for receives.
//! * [`Matcher`]: both, with the pair rule between them.
//! * [`offload`]: the same decisions when a network card matches too.
//!
//! Every operation costs the same whether ten or a hundred thousand entries wait: posting,
//! matching, probing with any wildcard, cancelling from the middle. No operation rehashes a table
//! or moves an entry, and a queue that has reached its working size allocates no more.
//! `docs/matching.md` explains how, with a table of costs.
//!
//! ```
//! use portolan_core::matching::{Envelope, Pattern, PostedQueue};
//!
//! let mut posted = PostedQueue::new();
//! posted.post(Pattern { context: 0, source: None, tag: Some(7) }, "any source, tag 7");
//! posted.post(Pattern { context: 0, source: Some(3), tag: Some(7) }, "source 3, tag 7");
//!
//! // The wildcard was posted first, so it is served first although both match.
//! let message = Envelope { context: 0, source: 3, tag: 7 };
//! assert_eq!(posted.match_arrival(&message), Some("any source, tag 7"));
//! assert_eq!(posted.match_arrival(&message), Some("source 3, tag 7"));
//! assert_eq!(posted.match_arrival(&message), None);
//! ```

#![forbid(unsafe_code)]

mod buckets;
mod envelope;
mod index;
mod matcher;
pub mod offload;
mod posted;
mod recent;
mod slab;
mod steps;
mod unexpected;

pub(crate) use envelope::Wanted;
pub use envelope::{Envelope, Pattern};
pub use matcher::{Arrived, Matcher, Received};
pub use posted::{PostedId, PostedQueue};
pub use unexpected::{UnexpectedId, UnexpectedQueue};

#[cfg(test)]
mod tests;
