//! Message passing between the ranks of a job: one interface, every transport.
//!
//! A *job* is a set of *ranks*. Ranks are either processes, started by `portolan run` or another
//! launcher, or threads of one process. They send each other typed messages through communicators.
//! The transport that carries the messages (shared memory, a network) is chosen when the job
//! starts.
//!
//! ```
//! // Every rank adds its number to a sum that goes around a ring, and rank 0 has the total.
//! fn ring(comm: &portolan::Comm) -> portolan::Result<u64> {
//!     let (me, n) = (comm.rank(), comm.size());
//!     let (left, right) = ((me + n - 1) % n, (me + 1) % n);
//!     if me == 0 {
//!         comm.send_one(&0u64, right, 7)?;
//!         let (sum, _) = comm.recv_one::<u64>(left, 7)?;
//!         return Ok(sum);
//!     }
//!     let (sum, status) = comm.recv_one::<u64>(left, 7)?;
//!     assert_eq!(status.source, left);
//!     comm.send_one(&(sum + u64::from(me)), right, 7)?;
//!     Ok(0)
//! }
//!
//! // As a program of processes: `portolan::run(|world| ring(&world.comm()).map(drop))` in `main`.
//! // Here, as four threads of this one:
//! let sums = portolan::try_threads(4, |world| ring(&world.comm()))?;
//! assert_eq!(sums, [6, 0, 0, 0]);
//! # Ok::<(), portolan::Error>(())
//! ```
//!
//! # Where to begin
//! - [`run`] is the body of a program's `main`: it joins the job and handles errors. [`init`] or a
//!   [`Builder`] returns a [`World`], the world returns a [`Comm`], and the `Comm` has all the
//!   calls; its documentation has a table of them.
//! - [`threads`], [`try_threads`] and [`run_threads`] run a whole job in one process, for tests and
//!   experiments.
//! - [`coll`] has the collective operations: broadcasts, reductions and the rest.
//! - [`device_memory`] sends from and receives into a GPU's memory.
//! - [`Datatype`] says which types can be sent, and can be derived; a [`Layout`] describes data
//!   with gaps.
//! - `docs/guide.md` in the repository is a short tour.
//!
//! # Safety
//! Leaking a value is safe in Rust, so a lifetime alone cannot protect a buffer that the runtime
//! uses in the background. There are three ways to pass a buffer, none of which needs `unsafe`:
//! blocking calls on borrowed buffers; [scopes](Comm::scope), which end only after every operation
//! started in them; and requests that [own their buffers](Comm::isend_owned). Received values are
//! checked if their type has invalid bit patterns, and a mismatch of types is an error.
//!
//! # Threads
//! The thread level is part of the type: a `Comm<Single>` cannot leave its thread, while a
//! `Comm<Multiple>` ([`Builder::multiple`]) may be used by any number of threads at once.
//!
//! # Features
//! Features decide what is compiled in, never what is used: `shm` (default), shared memory of one
//! node; `ofi`, libfabric, which is opened at run time; `memory`, the reference transport between
//! threads; `t3e-sim`, an emulated Cray T3E in virtual time, for one thread per rank. The setting
//! `PORTOLAN_TRANSPORT` or [`Builder::transport`] chooses the transport. If neither is given, the
//! ranks use the best one that is usable on all of them. An explicit choice is honoured or is an
//! error.

/// The programs of the guide are doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/guide.md")]
mod guide {}

mod any;
mod builder;
mod choose;
pub mod coll;
mod comm;
pub mod device_memory;
mod hosted;
#[cfg(feature = "t3e-sim")]
mod one_thread;
mod program_error;
mod ranks;
mod run;
mod wakers;
mod world;

pub use portolan_core::comm::{Errors, Key, Source, SplitBy, Tag, Tags};
pub use portolan_core::config::{OnFailure, SettingError, Settings};
pub use portolan_core::group::{Comparison, Group, RankRange};
pub use portolan_core::level::{Level, Multiple, Single};
pub use portolan_core::{Blame, Device, Error, ErrorKind, ProcId, Result, Status};
pub use portolan_datatype as datatype;
pub use portolan_datatype::{Datatype, Layout, Op};

/// (Feature `shm`; in a program it is `portolan::SharedAllocator`.)
#[cfg(feature = "shm")]
pub use portolan_shm::SharedAllocator;

pub use any::AnyDevice;
pub use builder::{Builder, init};
pub use choose::{TransportInfo, rank_variables, transports};
pub use comm::topology;
pub use comm::{
    AnyRequest, Buffer, BufferMut, CartComm, Comm, Completion, DupRequest, Failed, InterComm,
    InterDupRequest, Memory, Message, OwnedMessage, OwnedRequest, Parts, PersistentRecv,
    PersistentSend, RecvRequest, RemoteLeader, RequestFuture, Scope, ScopedRecv, ScopedSend,
    SendRequest, StableBuf, StableBufMut, wait_all, wait_any, wait_any_of, wait_some,
};
pub use hosted::Hosted;
pub use program_error::ProgramError;
pub use ranks::{in_process, run_threads, threads, try_threads};
pub use run::run;
pub use world::{Leaks, World};

/// The program in the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}
