//! What a device tells of itself: counters, traces, and what it waits for.

mod counters;
mod trace;
mod waiting;

pub use counters::Counters;
pub(crate) use trace::{Event, Tracer};
pub use waiting::{WaitKind, Waiting};
