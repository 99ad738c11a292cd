//! The machine: a pure state machine with virtual time. It has no threads, no clock of the host and
//! no I/O.
//!
//! [`Machine`] knows every PE's clock and memory, the links, and what is under way on them. It
//! takes [`Call`]s and says which PE's program runs next; [`drive`](crate::drive) runs the
//! programs.

mod address;
mod call;
mod costs;
mod event;
mod execute;
mod heap;
mod meet;
mod memory;
mod network;
mod pe;
mod preset;
mod registers;
mod report;
mod rng;
mod run;
mod setup;
mod sparse;
mod time;
mod torus;
mod transfer;

pub use address::Addr;
pub use call::{Answer, Arrival, Atomic, Call, Condition, Reason, Refusal, Reply, Stride};
pub use costs::Costs;
pub use preset::Preset;
pub use run::{Machine, Next};
pub use setup::Setup;
pub use time::Time;
pub use torus::{Direction, Torus};
