//! Node-local shared memory: the transport between ranks of one machine.
//!
//! **What it is.** [`Shm`] implements [`Transport`](portolan_core::Transport). One memory file
//! without a name holds everything that the ranks share. A small message travels with its header in
//! one cache line, in a ring that belongs to an ordered pair of ranks. A longer message goes
//! through a bulk area that stays in the caches, or the receiver reads it from the sender's address
//! space while the sender is busy elsewhere. Ranks sleep on a futex in the file, learn of each
//! other's death as an event, and share memory that every rank can load from and store to.
//! `docs/shm.md` has the pictures.
//!
//! **What it is not.** It neither matches messages nor waits for them: the engine in
//! `portolan-core` does both.
//!
//! **Who calls it.** The engine, with `&mut`, from one thread at a time. [`open`] makes one rank of
//! a job of processes, [`in_process`] all ranks of a job of threads; both use the same structures.
//!
//! **Invariants.**
//! - Nothing that is read from the segment is trusted before it is checked: no bytes that a peer
//!   writes lead to a panic or to an access outside the allocated part of the segment. (Vectors of
//!   a program with [`SharedAllocator`] lie there as well, and what their allocator notes beside
//!   them: a process that writes through a wild pointer can reach those, as its own.)
//! - Nothing in the segment is a lock: a rank can be killed at any instruction.
//! - Memory of the segment is allocated before its first use, after a check of how much memory is
//!   left.
//! - A packet between two ranks that already talk costs no allocation, no locked instruction and no
//!   system call, except the one that wakes a sleeping receiver. (On Zen 5 one of 32 lone messages
//!   of 2 to 4 KiB is timed, with a fence and two looks at the clock.)
//!
//! ```
//! use portolan_core::transport::{Header, Payload, Sink, Transport};
//!
//! struct Count(usize);
//! impl Sink for Count {
//!     fn accepts(&mut self, _peer: u32) -> bool {
//!         true
//!     }
//!     fn packet(&mut self, peer: u32, _header: &Header, payload: Payload<'_>) {
//!         assert_eq!((peer, payload.to_vec()), (0, b"ahoy".to_vec()));
//!         self.0 += 1;
//!     }
//! }
//!
//! let mut ranks = portolan_shm::in_process_with(2, &portolan_shm::Config::default())?;
//! // SAFETY: rank 1 exists, is not rank 0, and the slice is readable.
//! let _ = unsafe { ranks[0].send_short(1, &Header::default(), b"ahoy".as_ptr(), 4) };
//! let mut count = Count(0);
//! ranks[1].poll(&mut count);
//! assert_eq!(count.0, 1);
//! # Ok::<(), portolan_core::Error>(())
//! ```

// Under loom, only the lock-free structures are compiled: see `sync`.
#[cfg(not(loom))]
mod addr;
#[cfg(not(loom))]
mod allocator;
mod bell;
#[cfg(not(loom))]
mod bulk;
#[cfg(not(loom))]
mod caps;
#[cfg(not(loom))]
mod config;
#[cfg(not(loom))]
mod grow;
#[cfg(not(loom))]
mod hand_over;
#[cfg(not(loom))]
mod heap;
#[cfg(all(test, not(loom)))]
mod hostile;
mod inbox;
#[cfg(not(loom))]
mod line;
#[cfg(not(loom))]
mod link;
#[cfg(not(loom))]
mod manner;
#[cfg(not(loom))]
mod memory_limit;
#[cfg(not(loom))]
mod offer;
#[cfg(not(loom))]
mod one_sided;
#[cfg(not(loom))]
mod open;
mod optional;
#[cfg(not(loom))]
mod pieces;
#[cfg(not(loom))]
mod places;
#[cfg(not(loom))]
mod progress;
#[cfg(not(loom))]
mod pull;
mod ring;
#[cfg(not(loom))]
mod segment;
#[cfg(not(loom))]
mod send;
#[cfg(not(loom))]
mod shm;
mod sync;
#[cfg(not(loom))]
mod watch;

#[cfg(not(loom))]
pub use allocator::SharedAllocator;
#[cfg(not(loom))]
pub use config::{Cma, Config};
#[cfg(not(loom))]
pub use open::{in_process, in_process_with, open, open_with, probe};
#[cfg(not(loom))]
pub use shm::Shm;

#[cfg(all(loom, test))]
mod model;
