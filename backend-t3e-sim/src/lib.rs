//! A Cray T3E in virtual time: torus, E-registers, SHMEM and MP_Lite.
//!
//! **What it is.** [`T3e`] is a device of its own: a rank of a job on an emulated machine, whose
//! messages travel by MP_Lite ([`mp_lite`]) over SHMEM ([`Shmem`]). The machine ([`machine`]) knows
//! every PE's clock and memory, and what is under way on each link; every step has a price.
//! `docs/t3e.md` has the prices, the pictures and the laboratory, `docs/mp-lite.md` the protocol.
//!
//! **What it is not.** It does not simulate the processor: a program's computation takes no virtual
//! time unless the program charges it.
//!
//! **Who calls it.** The facade, through `Device`; programs that study a protocol or a pattern,
//! through [`run`] and `Shmem`; tests, which drive [`machine::Machine`] by hand.
//!
//! **Invariants.**
//! - The machine is a pure state machine: no threads, no clock of the host, no I/O. Drivers
//!   ([`drive`]) let PEs be threads or processes; virtual times are the same.
//! - Exactly one PE's program runs at a time: the PE with the smallest clock, and of several the
//!   one with the lowest number. So a seed determines everything about a run.
//! - Nothing is visible before its modelled arrival, and effects that no fence orders may be seen
//!   in any order.
//! - No wait lasts for ever: when all PEs wait, or one makes no call, every PE gets an error that
//!   names them.
//!
//! ```
//! use portolan_t3e_sim::{Condition, Config, run};
//!
//! // PE 0 puts a word into PE 1's memory; PE 1 waits for it.
//! let clocks = run(2, &Config::default(), |pe| {
//!     let word = pe.malloc(8).unwrap();
//!     let begin = pe.clock();
//!     match pe.my_pe() {
//!         0 => pe.put64(1, word, &[7]).unwrap(),
//!         _ => pe.wait_until(word, Condition::Equal(7)).unwrap(),
//!     }
//!     pe.clock() - begin
//! })?;
//! assert_eq!(clocks[1].to_string(), "2.524 µs");
//! # Ok::<(), portolan_core::Error>(())
//! ```

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
