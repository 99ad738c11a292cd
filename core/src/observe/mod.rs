//! What a device tells of itself: counters and traces.

mod counters;
mod trace;

pub use counters::Counters;
pub(crate) use trace::{Event, Tracer};
