//! Jobs: which ranks were started together, and how each learns who it is.
//!
//! A *launcher* starts the processes of a job; a *bootstrap* tells each of them its rank, the
//! number of ranks, and lets them exchange a few short texts ("my inbox is here") before any
//! transport exists. [`Bootstrap`] is that exchange. There are three of them:
//!
//! | bootstrap | ranks are | made by |
//! | --- | --- | --- |
//! | [`pmi1`] | processes under `portolan run`, Hydra's `mpiexec`, `srun --mpi=pmi2` or Flux | [`from_environment`] |
//! | single | one process that was started by hand | [`from_environment`] |
//! | [`InProcess`] | threads of one process, or one thread stepping all of them | [`in_process`], [`InProcess`] |
//!
//! A process that finds signs of a launcher it cannot speak to refuses to start
//! ([`JobError::ForeignLauncher`]): *n* worlds of one rank each look like success and compute
//! nonsense.
//!
//! A bootstrap is used while a job starts and while it ends. Nothing here is on a hot path, every
//! call may block, and every value is text.
//!
//! **Boundary:** this module knows nothing of the rest of the crate: no device, no transport, no
//! settings. The launcher uses it too ([`pmi1::Message`] and [`pmi1::Lines`] are both ends'
//! parser).

mod bootstrap;
mod environment;
mod error;
mod foreign;
mod in_process;
pub mod pmi1;
mod single;

pub use bootstrap::Bootstrap;
pub use environment::{from_environment, from_variables};
pub use error::JobError;
pub use in_process::{InProcess, in_process, stepwise};

/// Environment variable with the job's identity, set by `portolan run` for its ranks.
///
/// It equals the name of the PMI key-value space of that job, so a rank can tell whether the
/// launcher it talks to is the one that set the variable (a job may be started inside another).
pub const JOB_ID_VARIABLE: &str = "PORTOLAN_JOB_ID";

/// Environment variable that allows a job of one under signs of a foreign launcher.
pub const ALLOW_SINGLETON_VARIABLE: &str = "PORTOLAN_ALLOW_SINGLETON";
