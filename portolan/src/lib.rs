//! Message passing between the ranks of a job: one interface, every transport.
//!
//! A *job* is a set of *ranks*: processes that `portolan run` or another launcher has started, or
//! threads of one process. Ranks send each other typed messages through communicators. What carries
//! them (shared memory, a network) is chosen when the job starts.
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
//! - [`run`] is the body of a program's `main`: it joins the job and sees to errors. [`init`] or a
//!   [`Builder`] gives a [`World`], the world a [`Comm`], and that has all the calls;
//!   its documentation has a table of them.
//! - [`threads`] and [`try_threads`] run a whole job in one process: for tests and for trying
//!   things out.
//! - [`coll`] has the operations of all ranks together: broadcasts, reductions and their kin.
//! - [`device_memory`]: sends and receives from and to a GPU's memory.
//! - [`Datatype`] says what can be sent, and can be derived; a [`Layout`] describes data with gaps.
//! - `docs/guide.md` in the repository is a short tour.
//!
//! # Safety
//! Leaks are safe in Rust, so a lifetime alone cannot protect a buffer that the runtime uses in the
//! background. There are three ways here, and none of them needs `unsafe`: blocking calls on
//! borrowed buffers; [scopes](Comm::scope), which end after everything that was started in them;
//! and requests that [own their buffers](Comm::isend_owned). Received values are checked where not
//! every bit pattern is one, and a mismatch of types is an error.
//!
//! # Threads
//! The thread level is in the type: `Comm<Single>` cannot leave its thread, `Comm<Multiple>`
//! ([`Builder::multiple`]) may be used by any number of threads at once.
//!
//! # Features
//! Features say what is compiled in and never change what is used: `shm` (default), shared memory
//! of one node; `ofi`, libfabric, which is opened at run time; `memory`, the reference transport
//! between threads; `t3e-sim`, an emulated Cray T3E in virtual time, for one thread per rank. What
//! is used, the setting `PORTOLAN_TRANSPORT` or [`Builder::transport`] says; unset means the best
//! one that is usable on every rank. An explicit choice is honoured or is an error.

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
mod ranks;
mod run;
mod world;

pub use portolan_core::comm::{Errors, Key, Source, SplitBy, Tag, Tags};
pub use portolan_core::config::{OnFailure, Settings};
pub use portolan_core::group::{Comparison, Group, RankRange};
pub use portolan_core::level::{Level, Multiple, Single};
pub use portolan_core::{Blame, Device, Error, ErrorKind, Result, Status};
pub use portolan_datatype as datatype;
pub use portolan_datatype::{Datatype, Layout, Op};

pub use any::AnyDevice;
pub use builder::{Builder, init};
pub use choose::{TransportInfo, rank_variables, transports};
pub use comm::topology;
pub use comm::{
    AnyRequest, Buffer, BufferMut, CartComm, Comm, Completion, DupRequest, Failed, InterComm,
    InterDupRequest, Message, OwnedRequest, Parts, PersistentRecv, PersistentSend, RecvRequest,
    RemoteLeader, RequestFuture, Scope, ScopedRecv, ScopedSend, SendRequest, StableBuf,
    StableBufMut, wait_all, wait_any, wait_any_of, wait_some,
};
pub use hosted::Hosted;
pub use ranks::{Jobs, threads, try_threads};
pub use run::run;
pub use world::{Leaks, World};

/// The program in the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}
