//! What is measured, for everybody who measures: the patterns of the bench suite.
//!
//! The criterion benches of this package run them between threads of one process, over every device
//! that is compiled in; `portolan bench` runs the same code between processes, and the C programs
//! under `peers/` repeat it on other implementations. `docs/benchmarks.md` in the repository tells
//! how to measure and how to read what comes out.
//!
//! - [`Pattern`]: latency, bandwidth, message rate and so on, and what their figures mean.
//! - [`Plan`]: how often, for a message of some size. [`Steps`]: what ranks do, in rounds.
//! - [`measure`]: one sample of a pattern, on all ranks of a communicator; [`measure_threads`] if
//!   several threads of a rank take part.
//! - [`machine`]: what the machine itself can do, with nobody's library in between.
//! - [`process`]: what the system knows about this process.
//! - [`threads`]: jobs of pinned threads for criterion's loops.

mod buffers;
mod collective;
mod direct;
pub mod machine;
mod many;
mod measure;
mod pattern;
mod pin;
mod plan;
pub mod process;
mod role;
pub mod threads;
mod waiting;
mod window;

pub use buffers::Buffers;
pub use measure::{Sample, Setup, measure, measure_threads};
pub use pattern::{Axis, Collective, Form, Pattern, Steps, shuffled};
pub use pin::{PinError, allowed_processors, pin};
pub use plan::{ParsePlanError, Plan};
pub use role::Role;
