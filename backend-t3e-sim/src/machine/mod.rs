//! The machine: a pure state machine with virtual time. No threads, no clock of the host, no I/O.

mod address;
mod call;
mod costs;
mod time;

pub use address::Addr;
pub use call::{Answer, Atomic, Call, Condition, Reason, Refusal, Reply, Stride};
pub use costs::Costs;
pub use time::Time;
