//! The reference transport: ranks in one process, queues under one mutex.
//!
//! Written to be read and copied: it has every method of [`Transport`] in its plainest correct
//! form, and every optional extra. A new backend starts from this file and replaces one part after
//! the other. The engine's tests and the conformance suite run on it, with capacities small enough
//! to show every sign of back-pressure.
//!
//! Ranks may be threads, or one thread may step all of them: nothing here waits for a peer.
//!
//! A rank that is dropped while its thread panics has failed. Otherwise it has left in good order:
//! it accepts nothing any more, and does not count as failed.

mod bell;
mod block;
mod growing;
mod network;
mod remote;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use block::Block;
use growing::Growth;
use network::{Network, Span, Word};
use remote::Ends;

use super::{
    Begun, Bell, DirectMemory, Exposure, Header, Limits, Payload, Pulled, Pulls, Remote, Sent,
    Sink, Token, Transport, TransportCaps,
};
use crate::buffer::MemoryKind;
use crate::error::{Error, ErrorKind, Result};

/// Sizes and capabilities of a network.
#[derive(Clone, Debug)]
pub struct Options {
    /// Packets that may be under way between two ranks, in each direction.
    pub packets: usize,
    /// Size limits that the engine must respect.
    pub limits: Limits,
    /// Offer words per rank.
    pub offers: usize,
    /// Most packets that one poll delivers.
    pub per_poll: usize,
    /// Bytes of directly reachable memory that all ranks together may allocate.
    pub direct: usize,
    /// Number of consecutive ranks that claim to share a node. In truth all ranks are equally near.
    pub ranks_per_node: u32,
    /// Which ways messages may take, where senders' memory can be read. Unless it is
    /// [`Pulls::Always`], memory of a rank that is in a call is not read.
    pub pulls: Pulls,
    /// Which of the optional extras there are; extras that this transport does not have are
    /// ignored.
    pub caps: TransportCaps,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            packets: 64,
            limits: Limits {
                short: 192,
                bulk: 16 << 10,
                eager: 4 << 10,
                piece: 2 << 10,
                bundle: 1 << 10,
                grows: 0,
            },
            offers: 256,
            per_poll: 32,
            direct: 1 << 30,
            ranks_per_node: u32::MAX,
            pulls: Pulls::Whole,
            caps: TransportCaps::PULL
                | TransportCaps::OFFER_WORD
                | TransportCaps::DIRECT
                | TransportCaps::SLEEP,
        }
    }
}

/// Everything that this transport can do.
const CAPS: TransportCaps = TransportCaps::PULL
    .union(TransportCaps::OFFER_WORD)
    .union(TransportCaps::DIRECT)
    .union(TransportCaps::SLEEP)
    .union(TransportCaps::REMOTE)
    .union(TransportCaps::ATOMICS);

/// The `n` ranks of a new network.
///
/// ```
/// use portolan_core::transport::{memory, Header, Sent, Transport};
///
/// let mut ranks = memory::network(2);
/// // SAFETY: rank 1 exists and is not rank 0; the three bytes are readable.
/// let sent = unsafe { ranks[0].send_short(1, &Header::default(), b"abc".as_ptr(), 3) };
/// assert_eq!(sent, Sent::Done);
/// ```
///
/// # Panics
/// If `n` is zero.
#[must_use]
pub fn network(n: u32) -> Vec<InMemory> {
    network_with(n, Options::default())
}

/// The `n` ranks of a new network with sizes and capabilities of the caller's choice.
///
/// # Panics
/// If `n` or one of the capacities is zero, or the limits are below those that the engine needs.
#[must_use]
pub fn network_with(n: u32, mut options: Options) -> Vec<InMemory> {
    assert!(n > 0, "a network has at least one rank");
    assert!(
        options.packets > 0 && options.per_poll > 0,
        "a capacity is zero: {options:?}"
    );
    assert!(
        options.limits.short >= 192,
        "short is {}, not 192 or more",
        options.limits.short
    );
    assert!(
        options.limits.bulk >= 1024,
        "bulk is {}, not 1024 or more",
        options.limits.bulk
    );
    options.caps &= CAPS;
    let network = Arc::new(Network::new(n, options));
    (0..n)
        .map(|rank| InMemory {
            network: Arc::clone(&network),
            rank,
            next: 0,
            ends: Ends::default(),
            growth: Growth::default(),
            caps: network.options.caps,
        })
        .collect()
}

/// One rank of a [`network`].
#[derive(Debug)]
pub struct InMemory {
    network: Arc<Network>,
    rank: u32,
    /// The peer with which the next poll begins, so that none is starved.
    next: u32,
    ends: Ends,
    growth: Growth,
    /// The capabilities that this rank still has.
    caps: TransportCaps,
}

impl InMemory {
    /// Removes capabilities from this rank, as a death does with some networks.
    #[cfg(test)]
    pub(crate) fn lose(&mut self, caps: TransportCaps) {
        self.caps -= caps;
    }

    /// Finds room for a packet, has `fill` write it and hands it over.
    ///
    /// `fill` runs without the lock. The room cannot disappear meanwhile, because no other rank
    /// adds to the queues of this one.
    fn hand_over(
        &mut self,
        peer: u32,
        header: &Header,
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Sent {
        debug_assert!(peer < self.network.size && peer != self.rank);
        let queue = self.network.queue(self.rank, peer);
        let mut bytes = {
            let mut state = self.network.state();
            if state.failed[self.rank as usize].is_some() || state.is_gone(peer) {
                return Sent::Gone;
            }
            if state.queues[queue].packets.len() >= self.network.options.packets {
                return Sent::Full;
            }
            state.queues[queue].spare.pop().unwrap_or_default()
        };
        bytes.clear();
        bytes.reserve(len);
        fill(bytes.as_mut_ptr());
        // SAFETY: `reserve` made room for `len` bytes, all of which `fill` has initialised.
        unsafe { bytes.set_len(len) };

        let mut state = self.network.state();
        if state.left[peer as usize] {
            // The peer has left meanwhile.
            return Sent::Done;
        }
        state.queues[queue].packets.push_back((*header, bytes));
        let asleep = state.armed[peer as usize];
        drop(state);
        if asleep {
            self.network.bells[peer as usize].ring();
        }
        Sent::Done
    }

    /// Delivers the next packet of `peer`, or a part of it, if there is one and `sink` accepts it.
    /// Returns the packet's memory if it is over.
    fn deliver_next<S: Sink>(&mut self, peer: u32, sink: &mut S) -> Option<Option<Vec<u8>>> {
        if self.growth.has(peer) {
            if !sink.accepts(peer) {
                return None;
            }
        } else {
            // The lock is not held while the sink runs.
            let (header, bytes) = self.next_packet(peer, sink)?;
            let Limits { short, grows, .. } = self.network.options.limits;
            if bytes.len() <= short || bytes.len() > grows {
                sink.packet(peer, &header, Payload::from_slice(&bytes));
                return Some(Some(bytes));
            }
            self.growth.begin(peer, header, bytes);
        }
        Some(self.growth.deliver(peer, sink))
    }

    /// Takes the next packet of `peer`, if there is one and `sink` accepts it.
    fn next_packet<S: Sink>(&self, peer: u32, sink: &mut S) -> Option<(Header, Vec<u8>)> {
        let queue = self.network.queue(peer, self.rank);
        if self.network.state().queues[queue].packets.is_empty() || !sink.accepts(peer) {
            return None;
        }
        let mut state = self.network.state();
        let was_full = state.queues[queue].packets.len() == self.network.options.packets;
        let packet = state.queues[queue].packets.pop_front();
        // A sender may be asleep because this queue was full: it should try again.
        let wake = was_full && state.armed[peer as usize];
        drop(state);
        if wake {
            self.network.bells[peer as usize].ring();
        }
        packet
    }
}

// SAFETY: packets are vectors; exposed and registered memory is accessed under the same lock under
// which its exposure or registration ends.
unsafe impl Transport for InMemory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn caps(&self) -> TransportCaps {
        self.caps
    }

    fn limits(&self) -> Limits {
        self.network.options.limits
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.network.size
    }

    fn node_of(&self, peer: u32) -> u32 {
        peer / self.network.options.ranks_per_node.max(1)
    }

    fn node_name(&self) -> String {
        "memory".to_owned()
    }

    unsafe fn send_short(
        &mut self,
        peer: u32,
        header: &Header,
        data: *const u8,
        len: usize,
    ) -> Sent {
        debug_assert!(len <= self.network.options.limits.short);
        self.hand_over(peer, header, len, |place| {
            // SAFETY: the caller promised `len` readable bytes at `data`; `place` has room for
            // them, in a buffer that only this call knows. Nothing is read if `len` is 0.
            unsafe {
                if len > 0 {
                    std::ptr::copy_nonoverlapping(data, place, len);
                }
            }
        })
    }

    unsafe fn send_bulk<F: FnOnce(*mut u8)>(
        &mut self,
        peer: u32,
        header: &Header,
        len: usize,
        fill: F,
    ) -> Sent {
        debug_assert!(len <= self.network.options.limits.bulk);
        self.hand_over(peer, header, len, fill)
    }

    fn has_room(&mut self, peer: u32, len: usize, piece: usize) -> bool {
        let queue = self.network.queue(self.rank, peer);
        let waiting = self.network.state().queues[queue].packets.len();
        waiting + len.div_ceil(piece.max(1)) <= self.network.options.packets
    }

    fn poll<S: Sink>(&mut self, sink: &mut S) -> usize {
        let size = self.network.size;
        let first = self.next;
        self.next = (first + 1) % size;
        let finished = self.ends.tell(sink);
        let mut packets = 0;
        let me = self.rank;
        for peer in (0..size)
            .map(|n| (first + n) % size)
            .filter(|&peer| peer != me)
        {
            while packets < self.network.options.per_poll {
                let Some(delivered) = self.deliver_next(peer, sink) else {
                    break;
                };
                packets += 1;
                let Some(bytes) = delivered else {
                    break; // The next poll finds the rest of it.
                };
                let queue = self.network.queue(peer, self.rank);
                self.network.state().queues[queue].spare.push(bytes);
            }
        }
        finished + packets
    }

    fn bell(&self) -> Arc<dyn Bell> {
        Arc::clone(&self.network.bells[self.rank as usize]) as Arc<dyn Bell>
    }

    fn arm(&mut self) {
        // Senders read `armed` under the lock under which they add the packet. So either the poll
        // that follows sees the packet, or its sender rings. No fence is needed.
        self.network.state().armed[self.rank as usize] = true;
    }

    fn disarm(&mut self) {
        self.network.state().armed[self.rank as usize] = false;
    }

    fn set_present(&mut self, present: bool) {
        self.network.present[self.rank as usize].store(present, Ordering::Relaxed);
    }

    fn note_processor(&mut self, processor: u32) {
        let here = processor.saturating_add(1);
        self.network.processors[self.rank as usize].store(here, Ordering::Relaxed);
    }

    fn processor_of(&self, peer: u32) -> Option<u32> {
        let word = self.network.processors.get(peer as usize)?;
        word.load(Ordering::Relaxed).checked_sub(1)
    }

    fn failures(&self) -> u32 {
        self.network.failures.load(Ordering::Relaxed)
    }

    fn failure_of(&self, peer: u32) -> Option<String> {
        self.network.state().failed.get(peer as usize)?.clone()
    }

    fn has_left(&mut self, peer: u32) -> bool {
        // This is the lock under which the peer has sent and left: all that it sent is in its
        // queue.
        let state = self.network.state();
        let left = state.left.get(peer as usize) == Some(&true);
        left && state.failed[peer as usize].is_none()
    }

    fn declare_failed(&mut self, peer: u32, why: &str) {
        let mut state = self.network.state();
        let Some(failed @ None) = state.failed.get_mut(peer as usize) else {
            return;
        };
        *failed = Some(why.to_owned());
        self.network.failures.fetch_add(1, Ordering::Relaxed);
        drop(state);
        for bell in &self.network.bells {
            bell.ring();
        }
    }

    unsafe fn expose(&mut self, data: *const u8, len: usize) -> Option<Exposure> {
        let shared = self.shares(data, len);
        if !shared && !self.caps().contains(TransportCaps::PULL) {
            return None;
        }
        let mut state = self.network.state();
        let number = state.number();
        let span = Span {
            ptr: data,
            len,
            shared,
        };
        state.exposed.insert((self.rank, number), span);
        Some(Exposure(token(number)))
    }

    fn shares(&self, data: *const u8, len: usize) -> bool {
        let state = self.network.state();
        let mine = state
            .direct
            .iter()
            .filter(|((owner, _), _)| *owner == self.rank);
        mine.into_iter().any(|(_, block)| block.holds(data, len))
    }

    fn withdraw(&mut self, exposure: &Exposure) {
        self.network
            .state()
            .exposed
            .remove(&(self.rank, number_of(&exposure.0)));
    }

    /// Taking the lock waits for peers that are copying, because they hold it meanwhile.
    fn close(&mut self) {
        if std::thread::panicking() {
            // Otherwise the other ranks would wait for something that never comes.
            self.declare_failed(self.rank, "it panicked");
        }
        let mut state = self.network.state();
        state.left[self.rank as usize] = true;
        state.registered.retain(|&(owner, _), _| owner != self.rank);
        state.exposed.retain(|&(owner, _), _| owner != self.rank);
    }

    fn pulls(&self, peer: u32, exposure: &Exposure, _len: usize, _inside: bool) -> Pulls {
        let state = self.network.state();
        let span = state.exposed.get(&(peer, number_of(&exposure.0)));
        match span.is_some_and(|span| span.shared) {
            true => Pulls::Shared,
            false => self.network.options.pulls,
        }
    }

    unsafe fn pull(
        &mut self,
        peer: u32,
        exposure: &Exposure,
        offset: u64,
        target: *mut u8,
        len: usize,
    ) -> Pulled {
        let Some(present) = self.network.present.get(peer as usize) else {
            return Pulled::Stream;
        };
        let state = self.network.state();
        if state.is_gone(peer) {
            return Pulled::Gone;
        }
        let Some(span) = state.exposed.get(&(peer, number_of(&exposure.0))) else {
            return Pulled::Stream;
        };
        let always = span.shared || self.network.options.pulls == Pulls::Always;
        if present.load(Ordering::Relaxed) && !always {
            // Both sides are in the library, so streaming shares the work.
            return Pulled::Stream;
        }
        match usize::try_from(offset) {
            Ok(offset) if offset <= span.len && len <= span.len - offset => {
                // SAFETY: the span is still exposed, because withdrawing takes the lock that is
                // held here, and the range was checked against it. The caller promised the target,
                // which cannot overlap the source: that is another rank's buffer in use.
                unsafe { std::ptr::copy_nonoverlapping(span.ptr.add(offset), target, len) };
                Pulled::Done
            }
            _ => Pulled::Stream,
        }
    }

    unsafe fn register(&mut self, data: *mut u8, len: usize, _memory: MemoryKind) -> Option<Token> {
        self.register_span(data, len)
    }

    fn deregister(&mut self, token: &Token) {
        let key = (self.rank, number_of(token));
        self.network.state().registered.remove(&key);
    }

    unsafe fn begin_remote(
        &mut self,
        peer: u32,
        token: &Token,
        offset: u64,
        what: Remote,
        id: u32,
    ) -> Begun {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.begin(peer, token, offset, what, id) }
    }

    fn offer_open(&mut self) -> Option<u32> {
        if !self.caps().contains(TransportCaps::OFFER_WORD) {
            return None;
        }
        let mut state = self.network.state();
        let words = &mut state.offers[self.rank as usize];
        let word = words.iter().position(|&word| word == Word::Free)?;
        words[word] = Word::Open;
        Some(word as u32)
    }

    fn offer_take(&mut self, peer: u32, word: u32) -> bool {
        if peer >= self.network.size {
            return false;
        }
        match self.network.state().word(peer, word) {
            Some(word @ Word::Open) => {
                *word = Word::Taken;
                true
            }
            Some(word @ Word::Cancelled) => {
                *word = Word::Free;
                false
            }
            // A peer that names such a word misbehaves; its message does not exist.
            _ => false,
        }
    }

    fn offer_cancel(&mut self, word: u32) -> bool {
        match self.network.state().word(self.rank, word) {
            Some(word @ Word::Open) => {
                *word = Word::Cancelled;
                true
            }
            _ => false,
        }
    }

    fn offer_close(&mut self, word: u32) {
        if let Some(word) = self.network.state().word(self.rank, word) {
            *word = Word::Free;
        }
    }

    fn alloc(&mut self, len: usize) -> Result<DirectMemory> {
        if !self.caps().contains(TransportCaps::DIRECT) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "transport memory was made without directly reachable memory",
            ));
        }
        let mut state = self.network.state();
        let used: usize = state.direct.values().map(|block| block.len).sum();
        let budget = self.network.options.direct;
        let block = Block::new(len).filter(|block| block.len <= budget.saturating_sub(used));
        let Some(block) = block else {
            let what = format!("{len} bytes do not fit: {used} of {budget} bytes are in use");
            let remedy = "free regions, or make the network with larger Options::direct";
            return Err(Error::new(ErrorKind::Exhausted, what)
                .remedy(remedy)
                .on_rank(self.rank));
        };
        let number = state.number();
        let memory = DirectMemory {
            ptr: block.ptr.as_ptr(),
            len,
            key: token(number),
        };
        state.direct.insert((self.rank, number), block);
        Ok(memory)
    }

    unsafe fn free(&mut self, memory: DirectMemory) {
        self.network
            .state()
            .direct
            .remove(&(self.rank, number_of(&memory.key)));
    }

    fn map(&mut self, peer: u32, key: &[u8; 32]) -> Option<(*mut u8, usize)> {
        let state = self.network.state();
        let block = state.direct.get(&(peer, number_of(key)))?;
        Some((block.ptr.as_ptr(), block.asked))
    }

    fn nudge(&mut self, peer: u32) {
        // The lock orders this call with `arm`: if this comes first, the peer sees the store; if
        // `arm` comes first, this rings.
        let asleep = self.network.state().armed[peer as usize];
        if asleep {
            self.network.bells[peer as usize].ring();
        }
    }

    fn memory_used(&self) -> u64 {
        let state = self.network.state();
        let mine = state
            .direct
            .iter()
            .filter(|((owner, _), _)| *owner == self.rank);
        mine.map(|(_, block)| block.len as u64).sum()
    }

    fn describe(&self) -> Vec<(String, String)> {
        let options = &self.network.options;
        vec![
            (
                "queues".to_owned(),
                format!("{} packets per pair", options.packets),
            ),
            (
                "large messages".to_owned(),
                "copied while the sender is outside".to_owned(),
            ),
        ]
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        self.close();
        let mut state = self.network.state();
        for from in 0..self.network.size {
            let queue = self.network.queue(from, self.rank);
            state.queues[queue].packets.clear();
        }
    }
}

/// A token that contains a number. Peers may send any bytes, so numbers are looked up, never
/// trusted.
fn token(number: u64) -> [u8; 32] {
    let mut token = [0; 32];
    token[..8].copy_from_slice(&number.to_le_bytes());
    token
}

fn number_of(token: &[u8; 32]) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|n| token[n]))
}

#[cfg(test)]
mod tests;
