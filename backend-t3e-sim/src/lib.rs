//! A Cray T3E in virtual time: torus, E-registers, SHMEM and MP_Lite.

mod addr;
mod caps;
mod config;
pub mod device;
pub mod drive;
pub mod machine;
pub mod mp_lite;
mod one_sided;
mod open;
mod progress;
mod send;
pub mod shmem;

pub use config::Config;
pub use device::T3e;
pub use machine::{Addr, Atomic, Condition, Costs, Preset, Time, Torus};
pub use open::{in_process, open, probe, run, run_owned};
pub use shmem::Shmem;
