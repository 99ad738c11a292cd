//! MP_Lite's SHMEM module: messages by means of put, get and local memory.
//!
//! **What it is.** The whole protocol of Turner's MP_Lite for the Cray T3E, as a pure state machine
//! ([`Lite`]) over a small trait ([`Wire`]). It has circular queues of 24-byte headers per peer
//! (`smsg`, `rmsg`), preposted receives into which the sender puts directly, buffering at the
//! source for all other messages, a log of what was buffered, and the handshakes that close the gap
//! between the two ways. [`MpLite`] has its calls: `mp_asend`, `mp_arecv`, `mp_wait`, `mp_send`,
//! `mp_recv`.
//!
//! **Where to find things.** Headers are in `header.rs` and `words.rs`, queues in `queue.rs` and
//! `place.rs`, sending in `send.rs`, receiving in `recv.rs`, and the handling of receivers' answers
//! in `answer.rs`. What the device interface needs beyond the paper has files of its own:
//! `announce.rs`, `cancel.rs`, `probe.rs`, `packets.rs`, `failure.rs`. The proof of the gap, by
//! exploration, is in `model.rs`, `world.rs` and `explore.rs`.
//!
//! # The gap
//! A receive can be preposted after its sender has looked and before the sender's buffered header
//! arrives. Then each side believes that the other has to act. The receiver notices this: a
//! buffered message arrives that matches a preposted receive. The receiver pulls the data, and its
//! `recv_done` signal, with a negative number of bytes, also takes the prepost out at the sender.
//! Until then the sender uses no prepost that matches a message in its log.
//!
//! Messages of at most 8 bytes travel in their header and have no `recv_done`, so nothing would
//! ever clear them from the log. Every header of the receiver therefore says how many headers the
//! receiver has seen, and that clears them: a prepost written after the message was seen cannot be
//! meant for it.
//!
//! **Invariants**
//! - Headers are seen in the order in which they were written, whatever order their words arrive
//!   in.
//! - A prepost is either used by its sender or unposted, never both: it is not used while a message
//!   that might have met it is in the log.
//! - The only remote memory that is read is messages in send buffers.

mod announce;
mod answer;
mod calls;
mod cancel;
#[cfg(test)]
mod directed;
#[cfg(test)]
mod explore;
mod failure;
mod figures;
mod header;
mod lite;
mod loopback;
#[cfg(test)]
mod model;
mod on_shmem;
mod packets;
mod peer;
mod place;
mod pool;
mod probe;
mod queue;
mod recv;
mod send;
mod slab;
mod stats;
mod steps;
mod wire;
mod words;
#[cfg(test)]
mod world;

pub use calls::{MpId, MpLite, Placed, Waits};
pub use figures::{Way, time_of};
pub use header::{Form, HEADER, IN_HEADER, LONGEST, Label};
pub use lite::{Done, Lite, Mode, Outcome, Outgoing};
pub use loopback::Loopback;
pub use on_shmem::{OnShmem, statics};
pub use place::{Places, QSIZE};
pub use pool::Pool;
pub use stats::Stats;
pub use steps::{Step, StepCosts};
pub use wire::{Arrival, Buffer, Wire};
