//! Messages that leave whole: the two hot paths, messages that arrive before their receive, and
//! packets that find no room.
//!
//! - [`blocking`]: a blocking send that cannot leave at once
//! - [`bundle`]: short messages to one rank that leave in one packet
//! - [`in_hand`]: a blocking receive whose thread polls with the lock held, so that it needs no
//!   request
//! - [`loopback`]: messages from a rank to itself
//! - [`outgoing`]: packets and streams that wait to leave
//! - [`probe`]: which message could be received, and taking it out of matching
//! - [`recv`]: receiving: the hot path
//! - [`send`]: sending: the hot path
//! - [`unexpected`]: messages that have arrived before their receive

pub(super) mod blocking;
pub(super) mod bundle;
pub(super) mod in_hand;
pub(super) mod loopback;
pub(super) mod outgoing;
pub(super) mod probe;
pub(super) mod recv;
pub(super) mod send;
pub(super) mod unexpected;
