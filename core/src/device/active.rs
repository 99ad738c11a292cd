//! Active messages: a handler that runs where the message arrives.

use super::args::ProcId;
use crate::error::Result;
use crate::request::Request;
use crate::status::Status;
use crate::transport::Payload;

/// Names the handler of an active message; each crate above core takes a range of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct HandlerId(pub u32);

impl HandlerId {
    /// First id of the range for programs and the facade.
    pub const USER: u32 = 0;
    /// First id of `coll`'s range.
    pub const COLL: u32 = 0x1_0000;
    /// First id of `rma`'s range.
    pub const RMA: u32 = 0x2_0000;
    /// First id of the range for crates that are not Portolan's.
    pub const OTHER: u32 = 0x10_0000;
}

/// An active message where it has arrived. The payload is gone when the handler returns.
#[derive(Debug)]
pub struct ActiveMessage<'a> {
    /// Who sent it.
    pub from: ProcId,
    /// Two words of the sender's choice.
    pub args: [u64; 2],
    /// The data.
    pub payload: Payload<'a>,
}

/// Runs inside progress when an active message arrives. Must not block; sends only through the
/// [`Port`].
///
/// A panic ends the process: other operations' buffers are in the device's hands at that moment.
pub type Handler = Box<dyn FnMut(&mut dyn Port, ActiveMessage<'_>) + Send>;

/// Runs inside progress. Returns whether it got something done. Must not block; sends only through
/// the [`Port`]. A panic ends the process, as in a [`Handler`].
pub type Hook = Box<dyn FnMut(&mut dyn Port) -> bool + Send>;

/// What a handler or hook may do to the device that is running it.
pub trait Port {
    /// This process.
    fn me(&self) -> ProcId;

    /// Sends an active message. The payload is copied if it cannot leave at once, so this never
    /// waits; memory is bounded because a rank accepts no more requests from a peer than it has
    /// replies to it waiting.
    ///
    /// # Errors
    /// [`InvalidRank`](crate::ErrorKind::InvalidRank),
    /// [`InvalidCount`](crate::ErrorKind::InvalidCount),
    /// [`PeerFailed`](crate::ErrorKind::PeerFailed).
    fn send(&mut self, to: ProcId, id: HandlerId, args: [u64; 2], payload: &[u8]) -> Result<()>;

    /// Completes a request of the caller's kind.
    ///
    /// # Errors
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest).
    fn complete(&mut self, request: Request, status: Status) -> Result<()>;

    /// Ends a request of the caller's kind because a peer has failed: whoever completes it gets
    /// [`PeerFailed`](crate::ErrorKind::PeerFailed) with the reason that the device knows.
    ///
    /// # Errors
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest).
    fn fail(&mut self, request: Request, peer: ProcId) -> Result<()>;
}
