//! Messages from memory that peers load themselves: announced, and copied once.
//!
//! ```text
//! sender                       receiver
//!   Offer ───────────────────▶ match, copy from the sender's memory into the receive's
//!   complete ◀──────────────── Done
//! ```
//!
//! They are offers like others ([`rendezvous`](crate::engine::long::rendezvous)), but there is
//! nothing to choose: a single copy by load and store is the fastest way, whether the sender is in
//! a call or not. So they are announced where others would be copied into the transport's memory,
//! and [`ways`](crate::engine::long::ways) and [`unasked`](crate::engine::long::unasked) learn from
//! them neither what a way costs nor which way a peer prefers. There they count only as traffic in
//! their direction, because other messages that go the opposite way compete with them for memory:
//! as messages on offer and as bytes given at their sender, and as long messages that have come at
//! their receiver (other than those that a receive in hand has copied).

use portolan_datatype::MsgRep;

use crate::buffer::ContigBuf;
use crate::engine::data::Data;
use crate::engine::long::pieces::Lengths;
use crate::engine::state::State;
use crate::transport::Transport;

/// Longest message of a blocking call that leaves at once even from such memory, because two copies
/// take less time than an answer. Of other messages those that are short enough to be sent eagerly
/// do: several answers of a window would have to wait for each other.
pub(in crate::engine) const AT_ONCE: usize = 4 << 10;

/// Shortest message of which the sender copies a half, if it is in a call and the receive's buffer
/// is such memory, too.
pub(in crate::engine) const HALVES: usize = 256 << 10;

impl Lengths {
    /// Whether a message is only announced, because its receiver copies it from where it is.
    /// `waited`: a blocking call sends it.
    #[inline]
    pub(in crate::engine) fn is_shared(
        &self,
        transport: &impl Transport,
        data: &Data,
        rep: MsgRep,
        waited: bool,
    ) -> bool {
        let at_once = if waited { self.at_once } else { self.eager };
        data.len() > at_once
            && (rep == MsgRep::Native || matches!(data, Data::Contig(_)))
            && data
                .contiguous()
                .is_some_and(|(start, len)| transport.shares(start, len))
    }
}

impl<T: Transport> State<T> {
    /// Whether a blocking call sends a message in one packet, whoever the receiver is.
    #[inline(always)]
    pub(in crate::engine) fn leaves_whole(&self, buf: &ContigBuf) -> bool {
        let lengths = &self.proto.lengths;
        buf.len <= lengths.at_once
            || buf.len <= lengths.whole && !self.transport.shares(buf.ptr, buf.len)
    }
}

/// Whether the sender of a message in such memory, which is in a call, copies a half of it to
/// `target`.
pub(in crate::engine) fn is_in_halves(
    transport: &impl Transport,
    target: *const u8,
    len: usize,
) -> bool {
    len >= HALVES && transport.shares(target, len)
}
