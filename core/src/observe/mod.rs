//! What a device reports about itself: counters, traces, and the operations it waits for.

mod counters;
mod trace;
mod waiting;

pub use counters::Counters;
pub(crate) use trace::{Event, Tracer, of_rank};
pub use waiting::{WaitKind, Waiting};
