//! Packets: their form on the wire, where they wait, and how they are put in order.
//!
//! - [`arrival`]: a packet where it arrived, and the contents of its header
//! - [`gap`]: packets that never arrive, over TCP
//! - [`headerless`]: packets without a header, where the previous one had the same
//! - [`inbox`]: receive buffers, and the packets that lie in them until they are delivered
//! - [`parts`]: packets that are longer than a provider sends at once, and go in several messages
//! - [`slots`]: packets under way, each in a slot until the provider reports that it has left
//! - [`wire`]: the header that precedes every packet on the wire

pub(crate) mod arrival;
pub(crate) mod gap;
pub(crate) mod headerless;
pub(crate) mod inbox;
pub(crate) mod parts;
pub(crate) mod slots;
pub(crate) mod wire;
