//! What is measured, for everybody who measures: the patterns of the bench suite.
//!
//! The criterion benches of this package run them between threads of one process, over every device
//! that is compiled in; `portolan bench` runs the same code between processes, and the C programs
//! under `peers/` repeat it on other implementations. `docs/benchmarks.md` in the repository tells
//! how to measure and how to read what comes out.
//!
//! - [`Pattern`]: latency, bandwidth, message rate and so on: what ranks do, and what the time means.
//! - [`Plan`]: how often, for a message of some size.
//! - [`measure`]: one sample of a pattern, on all ranks of a communicator.
//! - [`machine`]: what the machine itself can do, with nobody's library in between.
//! - [`threads`]: jobs of pinned threads for criterion's loops.

mod buffers;
pub mod machine;
mod measure;
mod pattern;
mod pin;
mod plan;
mod role;
pub mod threads;
mod window;

pub use buffers::Buffers;
pub use measure::{Sample, Setup, measure};
pub use pattern::Pattern;
pub use pin::{PinError, allowed_processors, pin};
pub use plan::{ParsePlanError, Plan};
pub use role::Role;
