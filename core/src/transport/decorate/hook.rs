//! The questions that a decorator is asked, and when.

use crate::transport::{Header, Sent};

/// A packet that has arrived, before the engine sees it.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// The sender.
    pub peer: u32,
    /// Its header; the engine gets what the hook leaves here.
    pub header: &'a mut Header,
    /// Its bytes; the engine gets what the hook leaves here. Empty unless [`Hook::READS_PAYLOADS`]
    /// is set.
    pub payload: &'a mut Vec<u8>,
    /// Number of bytes that arrived.
    pub len: usize,
}

/// A decorator of transports. Every method has a default that changes nothing.
pub trait Hook: Send + 'static {
    /// Whether [`arrived`](Self::arrived) wants the bytes, which have to be copied for that.
    const READS_PAYLOADS: bool = false;

    /// A packet of `len` bytes is about to be handed over. If the hook returns a result, the engine
    /// gets that in place of the transport's, and nothing is sent.
    fn sending(&mut self, peer: u32, header: &Header, len: usize) -> Option<Sent> {
        let _ = (peer, header, len);
        None
    }

    /// A packet was handed over, with this result.
    fn sent(&mut self, peer: u32, header: &Header, len: usize, outcome: Sent) {
        let _ = (peer, header, len, outcome);
    }

    /// Whether a packet of `peer` may be delivered now. Asked before each packet; one that may not
    /// is offered again by a later poll.
    fn accepts(&mut self, peer: u32) -> bool {
        let _ = peer;
        true
    }

    /// Whether `len` bytes may be pulled from the memory of `peer` or pushed to it now; otherwise
    /// they have to be streamed.
    fn reaches(&mut self, peer: u32, len: usize) -> bool {
        let _ = (peer, len);
        true
    }

    /// A packet has arrived and is about to be delivered.
    fn arrived(&mut self, arrival: Arrival<'_>) {
        let _ = arrival;
    }

    /// Whether the hook has held something back since it was last asked. If so the rank must not
    /// sleep, because nothing would wake it. Asked once per poll.
    fn holds_back(&mut self) -> bool {
        false
    }

    /// A peer that is to be declared dead now, and why. Asked once per poll.
    fn condemns(&mut self) -> Option<(u32, String)> {
        None
    }
}
