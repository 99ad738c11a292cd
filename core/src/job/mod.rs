//! Jobs: which ranks were started together, and how each rank learns its place.
//!
//! A *launcher* starts the processes of a job. A *bootstrap* tells each of them its rank and the
//! number of ranks, and lets them exchange a few short texts ("my inbox is here") before any
//! transport exists. [`Bootstrap`] is the interface of such an exchange. There are three of them:
//!
//! | bootstrap | ranks are | made by |
//! | --- | --- | --- |
//! | [`pmi1`] | processes under `portolan run`, Hydra's `mpiexec`, `srun --mpi=pmi2` or Flux | [`from_environment`] |
//! | single | one process that was started by hand | [`from_environment`] |
//! | [`InProcess`] | threads of one process, or one thread stepping all of them | [`in_process`], [`InProcess`] |
//!
//! A process that finds signs of a launcher whose protocol it cannot speak refuses to start
//! ([`JobError::ForeignLauncher`]). Otherwise *n* worlds of one rank each would look like a success
//! and compute nonsense.
//!
//! A bootstrap is used only while a job starts and while it ends. Nothing here is on a hot path,
//! every call may block, and every value is text.
//!
//! **Boundary:** this module uses nothing of the rest of the crate except its log: no device, no
//! transport, no settings. The launcher uses this module, too ([`pmi1::Message`] and
//! [`pmi1::Lines`] are the parser of both ends).

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

/// Environment variable with the job's identity, which `portolan run` sets for its ranks.
///
/// It equals the name of the job's PMI key-value space. So a rank can tell whether the launcher
/// that it talks to has set the variable, or the launcher of an outer job has.
pub const JOB_ID_VARIABLE: &str = "PORTOLAN_JOB_ID";
