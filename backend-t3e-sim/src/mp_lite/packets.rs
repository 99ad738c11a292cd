//! Extension: the device's own packets (active messages and the like), which match nothing. They
//! travel as buffered messages do, in order, and are handed to the device as they come.

use super::header::Inbound;
use super::header::Outbound;
use super::lite::{Lite, Packet};
use super::peer::Logged;
use super::steps::Step;
use super::wire::{Buffer, Wire};

impl<B: Buffer> Lite<B> {
    /// Sends a packet whose bytes `fill` writes. Returns `false`, without calling `fill`, if there
    /// is no room for it.
    pub fn send_packet(
        &mut self,
        wire: &mut impl Wire,
        peer: u32,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        if self.peer(peer).to_smsg.room(wire) == 0 {
            self.stats.held += 1;
            return false;
        }
        let Some(at) = self.pool.allocate(len as u64) else {
            self.stats.held += 1;
            return false;
        };
        wire.step(Step::Allocate);
        wire.step(Step::Copy(len as u64));
        let mut bytes = vec![0; len];
        fill(&mut bytes);
        wire.write(at, &bytes);
        let len = len as u64;
        wire.step(Step::Log);
        let state = self.peer(peer);
        state.log.push_back(Logged::Packet { at });
        let words = Inbound::Packet { at, len }.words();
        state.to_smsg.post(wire, peer, words);
        true
    }

    /// The sender of the next packet that has arrived. The packet stays until it is
    /// [received](Self::receive_packet).
    #[must_use]
    pub fn next_packet(&self) -> Option<u32> {
        self.packets.front().map(|packet| packet.peer)
    }

    /// Receives the next packet.
    pub fn receive_packet(&mut self, wire: &mut impl Wire) -> Option<(u32, Vec<u8>)> {
        let Packet { peer, at, len } = self.packets.pop_front()?;
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        wire.step(Step::Piece);
        wire.get_bytes(peer, at, &mut bytes);
        let (gap, seen) = (None, 0);
        self.owe(wire, peer, Outbound::RecvDone { at, len, gap, seen });
        Some((peer, bytes))
    }
}
