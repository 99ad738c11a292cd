//! Packets: how they lie on the wire, where they wait, and how they are put in order.
//!
//! - [`arrival`]: a packet where it arrived: what its header says
//! - [`gap`]: packets that never come, over TCP
//! - [`headerless`]: packets without a header, where the one before it had the same
//! - [`inbox`]: what has arrived: receive buffers, and packets that lie in them until they are
//!   delivered
//! - [`parts`]: what is longer than a provider sends at once goes in several of its messages
//! - [`slots`]: packets under way: each lies in a slot until the provider says that it has left
//! - [`wire`]: what goes in front of every packet on the wire

pub(crate) mod arrival;
pub(crate) mod gap;
pub(crate) mod headerless;
pub(crate) mod inbox;
pub(crate) mod parts;
pub(crate) mod slots;
pub(crate) mod wire;
