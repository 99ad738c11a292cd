//! libfabric: the transport between ranks that any of its providers can connect.
//!
//! **What it is.** [`Ofi`] implements [`Transport`](portolan_core::Transport) over reliable
//! datagram endpoints: loopback TCP on a laptop, a fabric in a cluster. Packets are plain messages
//! with 40 bytes in front; they arrive in a few large buffers that all peers share. The library is
//! opened at run time (`sys/libfabric-sys`); a program that is built with this crate runs without
//! it, too.
//!
//! **What it is not.** It matches nothing and waits for nothing: the engine in `portolan-core`
//! does.
//!
//! **Who calls it.** The engine, with `&mut`, from one thread at a time. [`open`] makes one rank of
//! a job of processes, [`in_process`] all ranks of a job of threads, each with an endpoint of its
//! own. [`offers`] and [`probe`] say what there is.
//!
//! **Invariants.**
//! - Order and loss are not the provider's affair: packets of a pair are numbered, and delivered by
//!   number. What the provider has no room for stays here, and the engine is told when that is all.
//!   A receiver that does not look gets 128 packets of each sender and no more.
//! - Nothing that grows with the number of ranks is kept but 32 bytes and the address of each; the
//!   provider learns an address when the first packet leaves.
//! - What a packet says is checked before it is believed; a peer that sends nonsense is reported.
//! - A rank that leaves waits until its last packets have gone, and says that it leaves; the end of
//!   a process that has not said so is its death.
//! - No allocation and no system call of ours on the path of a packet.
//!
//! ```
//! use portolan_core::transport::{Header, Payload, Sent, Sink, Transport};
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
//! let Ok(mut ranks) = portolan_ofi::in_process_with(2, &portolan_ofi::Config::default()) else {
//!     return; // There is no libfabric here.
//! };
//! let mut count = Count(0);
//! // SAFETY: rank 1 exists, is not rank 0, and the slice is readable.
//! while unsafe { ranks[0].send_short(1, &Header::default(), b"ahoy".as_ptr(), 4) } == Sent::Full {
//!     ranks[0].poll(&mut count);
//!     ranks[1].poll(&mut count);
//! }
//! while count.0 == 0 {
//!     ranks[0].poll(&mut count);
//!     ranks[1].poll(&mut count);
//! }
//! ```

mod addr;
#[cfg(test)]
mod busy;
mod caps;
mod config;
mod deaths;
mod endpoint;
mod memory;
mod native;
mod ofi;
mod one_sided;
mod packets;
mod peer;
mod progress;
mod quirks;
mod send;
mod shared;
mod start;
#[cfg(test)]
mod testing;

pub use config::Config;
pub use memory::hmem::accelerators;
pub use native::{Native, matching};
pub use ofi::Ofi;
pub use start::open::{in_process, in_process_with, open, open_with, probe};
pub use start::provider::{Offer, offers, registration};
