//! The patterns of the bench suite, for all programs that measure them.
//!
//! The criterion benches of this package run the patterns between threads of one process, over
//! every device that is compiled in. `portolan bench` runs the same code between processes, and the
//! C programs under `peers/` repeat it on other implementations. `docs/benchmarks.md` in the
//! repository explains how to measure and how to interpret the results.
//!
//! - [`Pattern`]: latency, bandwidth, message rate and so on, and the meaning of their figures.
//! - [`Plan`]: how many rounds, for a message of some size. [`Steps`]: what the ranks do in a
//!   round.
//! - [`measure`]: one sample of a pattern, on all ranks of a communicator; [`measure_threads`] if
//!   several threads of a rank take part.
//! - [`machine`]: the limits of the machine itself, with no library in between.
//! - [`gpu`]: buffers on CUDA GPUs, and how fast their driver copies.
//! - [`process`]: what the system knows about this process.
//! - [`threads`]: jobs of pinned threads for criterion's loops.

mod buffers;
mod collective;
mod direct;
pub mod gpu;
mod hidden;
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
