//! Packets that are delivered while they grow.
//!
//! Nothing grows here in truth: a packet is in its queue as a whole. A receiver takes a longer one
//! out and pretends that a half of it is there, and all of it at the next poll. So a sink meets
//! whatever a transport with real growth can do.

use std::collections::BTreeMap;

use crate::transport::{Destination, Header, Payload, Sink};

/// The packets of one receiver that grow, by their senders.
#[derive(Debug, Default)]
pub(super) struct Growth {
    packets: BTreeMap<u32, Growing>,
    /// Packets that went straight to their places.
    placed: u64,
}

#[derive(Debug)]
pub(super) struct Growing {
    header: Header,
    bytes: Vec<u8>,
    /// Bytes that have been delivered.
    at: usize,
    /// Whether all of it is there.
    whole: bool,
}

impl Growth {
    /// Whether the next packet of `peer` is one that grows.
    pub(super) fn has(&self, peer: u32) -> bool {
        self.packets.contains_key(&peer)
    }

    /// Notes the next packet of `peer`.
    pub(super) fn begin(&mut self, peer: u32, header: Header, bytes: Vec<u8>) {
        let growing = Growing {
            header,
            bytes,
            at: 0,
            whole: false,
        };
        self.packets.insert(peer, growing);
    }

    /// Delivers what there is of the packet of `peer`. Returns its memory once it is over.
    pub(super) fn deliver<S: Sink>(&mut self, peer: u32, sink: &mut S) -> Option<Vec<u8>> {
        let packet = self.packets.get_mut(&peer)?;
        let (header, len) = (packet.header, packet.bytes.len());
        let end = if packet.whole { len } else { len / 2 };
        let destination = match packet.at {
            0 => sink.grows(peer, &header, len),
            _ => Destination::Parts,
        };
        match destination {
            Destination::Whole if packet.whole => {
                sink.packet(peer, &header, Payload::from_slice(&packet.bytes));
                packet.at = len;
            }
            Destination::Whole => {}
            Destination::Here(room) => {
                self.placed += 1;
                // The rest comes soon, but for every third packet.
                let here = if self.placed.is_multiple_of(3) {
                    end
                } else {
                    len
                };
                // SAFETY: there is room for `len` bytes, apart from this vector.
                unsafe {
                    std::ptr::copy_nonoverlapping(packet.bytes.as_ptr(), room.as_ptr(), here);
                }
                sink.placed(peer, &header, len, here);
                packet.at = here;
            }
            Destination::Parts => {
                let part = Payload::from_slice(&packet.bytes[packet.at..end]);
                sink.part(peer, &header, len, packet.at, part);
                packet.at = end;
            }
        }
        packet.whole = true;
        if packet.at < len {
            return None;
        }
        self.packets.remove(&peer).map(|packet| packet.bytes)
    }
}
