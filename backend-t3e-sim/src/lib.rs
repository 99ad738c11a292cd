//! A Cray T3E in virtual time: torus, E-registers, SHMEM and MP_Lite.

pub mod drive;
pub mod machine;
pub mod shmem;

pub use machine::{Addr, Atomic, Condition, Costs, Time};
pub use shmem::Shmem;
