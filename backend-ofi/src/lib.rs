//! libfabric: the transport between ranks that any libfabric provider can connect.
//!
//! **What it is.** [`Ofi`] implements [`Transport`](portolan_core::Transport) over reliable
//! datagram endpoints: loopback TCP on a laptop, a fabric in a cluster. Packets are plain messages
//! with 40 bytes in front; they arrive in a few large buffers that all peers share. The library is
//! opened at run time (`sys/libfabric-sys`), so a program built with this crate also runs where
//! there is no libfabric.
//!
//! **What it is not.** It neither matches messages nor blocks: the engine in `portolan-core` does
//! both.
//!
//! **Who calls it.** The engine, with `&mut`, from one thread at a time. [`open`] makes one rank of
//! a job of processes; [`in_process`] makes all ranks of a job of threads, each with an endpoint of
//! its own. [`offers`] and [`probe`] report what is available.
//!
//! **Invariants.**
//! - The provider is not relied on for order or against loss: the packets of a pair of ranks are
//!   numbered, and delivered by number. A packet that the provider has no room for stays here, and
//!   the engine is told when there is no room here either. A receiver that does not poll is sent at
//!   most 128 packets by each sender.
//! - What is kept for every rank of the job is small and of fixed size: 65 bytes and its address.
//!   (32 of them are in `Peers`; the others say where its address is, its node, its process,
//!   whether it has left or been talked to, and how many packets it was sent and says it has sent.)
//!   Where heartbeats watch ranks of other nodes there are 120 more (`deaths::pulse`), and the
//!   names of the hosts. A rank of this node takes a descriptor, by which its death is noticed. The
//!   provider learns an address when the first packet to that rank leaves, and headers are
//!   remembered from then on.
//! - The contents of a packet are checked before they are believed; a peer that sends nonsense is
//!   reported.
//! - A rank that leaves waits until its last packets have gone, and then announces that it leaves.
//!   A process that ends without the announcement counts as dead.
//! - On the path of a packet, this crate neither allocates nor makes a system call of its own.
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
