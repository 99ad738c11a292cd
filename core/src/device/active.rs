//! Active messages: a handler that runs where the message arrives.

use super::args::ProcId;
use super::port::Port;
use crate::transport::Payload;

/// Names the handler of an active message. Each crate above core has a range of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct HandlerId(pub u32);

impl HandlerId {
    /// First id of the range for programs and the facade.
    pub const USER: u32 = 0;
    /// First id of `coll`'s range.
    pub const COLL: u32 = 0x1_0000;
    /// First id of `rma`'s range.
    pub const RMA: u32 = 0x2_0000;
    /// First id of the range for crates that are not part of Portolan.
    pub const OTHER: u32 = 0x10_0000;
}

/// An active message that has arrived. The payload is only valid until the handler returns.
#[derive(Debug)]
pub struct ActiveMessage<'a> {
    /// The sender.
    pub from: ProcId,
    /// Two words of the sender's choice.
    pub args: [u64; 2],
    /// The data.
    pub payload: Payload<'a>,
}

/// Runs inside progress when an active message arrives. Must not block, and may send only through
/// the [`Port`].
///
/// A panic ends the process, because the device holds other operations' buffers at that moment.
pub type Handler = Box<dyn FnMut(&mut dyn Port, ActiveMessage<'_>) + Send>;
