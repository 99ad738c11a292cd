//! Active messages: a handler that runs where the message arrives.

use super::args::ProcId;
use super::port::Port;
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
