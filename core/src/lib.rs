//! The abstract device interface of Portolan, and its model implementation.
//!
//! **What it is.** [`Device`] is the interface that everything above talks to: contiguous and
//! datatype operations, requests, `device_check`, probe, cancel, active messages, one-sided
//! primitives. [`Engine`] implements it over anything that moves bytes: a [`Transport`]. Between
//! them live matching ([`matching`]), the eager and rendezvous protocols, requests, jobs ([`job`]),
//! settings ([`config`]) and the untyped communicator ([`comm`]).
//!
//! **What it is not.** It names no backend: a third party can write a transport, or a whole device,
//! in a crate of its own. It has no typed interface: that is the crate `portolan`.
//!
//! **Who calls it.** From above: `portolan`, `coll` and `rma` (to come), through `Device`. From
//! below: transports, in one place only, the sink that they are handed when they are polled.
//!
//! **Invariants.**
//! - A request is a slot `{channel, index, generation}`. A call with a stale request returns an
//!   error and does no harm.
//! - The path of a small message costs no allocation, no system call, and no lock but the thread
//!   level's own.
//! - Only a rank itself writes into its posted receives ([`device::Caps::CANCEL_LOCAL`]), because
//!   the receiver drives a rendezvous.
//! - Whatever a peer sends is checked before it is believed. A peer that sends nonsense is declared
//!   failed.
//! - Nothing is global: several devices can live in one process, and one thread can step several
//!   ranks. The exception is how much is written to standard error ([`mod@log`]). That is set once
//!   per process, because `tracing` is per process too.

pub mod ahead;
pub mod buffer;
pub mod comm;
pub mod config;
pub mod device;
pub mod engine;
pub mod error;
pub mod group;
pub mod guard;
pub mod job;
pub mod level;
pub mod lines;
pub mod log;
pub mod matching;
pub mod memory_left;
pub mod observe;
pub mod request;
pub mod staging;
pub mod status;
pub mod transport;

pub use buffer::{ContigBuf, MemoryKind, TypedBuf};
pub use device::{Adi, Device, ProcId, SendArgs, SendMode};
pub use engine::Engine;
pub use error::{Blame, Error, ErrorKind, Result};
pub use group::Group;
pub use observe::{WaitKind, Waiting};
pub use request::Request;
pub use status::Status;
pub use transport::Transport;
