//! One suite of tests, run over every Portolan device.
//!
//! **What it is.** The contract of [`Device`](portolan_core::Device) as tests. A backend implements
//! how its devices are made ([`Sut`], or [`Transports`] for a transport under the engine) and adds
//! one line to a test file:
//!
//! ```text
//! portolan_conformance::suite!(Over<MyTransports>);
//! ```
//!
//! That line becomes one `#[test]` per case and number of ranks (1, 2, 3, 4, 5 and 8), in modules
//! by subject; ranks are threads. The same cases run over processes: a program opens its device and
//! passes it to [`run_process`], under any launcher.
//!
//! **What it is not.** It measures nothing and knows no backend. It does not test what a device may
//! choose, such as when a large send completes.
//!
//! **Who calls it.** The tests of each backend, including backends outside of Portolan.
//!
//! **Rules.**
//! - A *case* ([`Case`]) gets a [`Rank`] of a job and may share the job with other cases: its
//!   contexts and handler ids are its own. A *job test* makes its own jobs, because it kills ranks,
//!   changes settings or uses several threads.
//! - A skip gives its reason, prints a line that begins with `skipped:`, and is counted. A run in
//!   which no test ran fails.
//! - A capability bit is tested both ways: where it is not set, the operation must really be
//!   absent.
//! - Nothing depends on the speed of the machine. A watchdog reports a case that hangs and ends the
//!   test program, after minutes.
//! - Random values follow from a seed that the failure message names.

pub mod bytes;
pub mod jobs;
pub mod subjects;

mod case;
mod erased;
mod leaving;
mod over;
mod pending;
mod plain;
mod process;
mod rank;
mod rings;
mod suite;
mod sut;
mod watchdog;

pub use case::{Case, CaseFn, Skip, Verdict, case, cases};
pub use erased::Erased;
pub use leaving::leaving;
pub use over::{Over, Transports, on_threads};
pub use pending::Pending;
pub use plain::{Lent, Plain};
pub use process::{Summary, run_process};
pub use rank::Rank;
pub use suite::{run_case, run_cases_in_one_job, run_job};
pub use sut::{Job, Sut};
pub use watchdog::Watchdog;
