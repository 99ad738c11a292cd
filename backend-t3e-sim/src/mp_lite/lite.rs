//! The state of the protocol on one PE, and the parts that sending and receiving share.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use portolan_core::matching::{Envelope, Pattern, PostedId, PostedQueue, UnexpectedQueue};

use super::header::{Form, Inbound, Label, Outbound};
use super::peer::Peer;
use super::place::Places;
use super::pool::Pool;
use super::slab::Slab;
use super::stats::Stats;
use super::wire::{Arrival, Buffer, Wire};

/// The mode of a send, which decides when it is complete (extension: the seed has only the first).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The send is complete when its buffer may be used again.
    Standard,
    /// The send is complete when its message is received. The data is not copied: it stays where it
    /// is until the receiver pulls it.
    Synchronous,
    /// As standard; the program promises that the receive is posted.
    Ready,
    /// As standard, but the message is never announced: it leaves at once, or waits here, where it
    /// can be taken back.
    Immediate,
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A send is complete.
    Sent,
    /// A receive is complete. Bytes that did not fit into its buffer are lost.
    Received(Arrival),
    /// The operation was cancelled before it matched.
    Cancelled,
    /// The peer has failed.
    Failed(u32),
}

/// An operation that is over.
#[derive(Clone, Debug)]
pub struct Done<B> {
    /// The token given by the caller.
    pub token: u64,
    /// The outcome of the operation.
    pub outcome: Outcome,
    /// The buffer of the operation.
    pub buffer: B,
}

/// A message to send.
#[derive(Clone, Debug)]
pub struct Outgoing<B> {
    /// The PE that receives it.
    pub peer: u32,
    /// Context and tag.
    pub label: Label,
    /// How the data is to be read.
    pub form: Form,
    /// When the send is complete.
    pub mode: Mode,
    /// The data.
    pub buffer: B,
    /// A token by which the caller recognises the operation.
    pub token: u64,
}

/// A receive.
#[derive(Clone, Debug)]
pub(super) struct RecvOp<B> {
    pub(super) token: u64,
    pub(super) pattern: Pattern,
    pub(super) buffer: B,
    pub(super) stage: Stage,
    /// The receive is being taken back because this peer has failed (extension).
    pub(super) doomed: Option<u32>,
    /// Its place among the posted receives; `None` once it is matched or being taken back.
    pub(super) posted: Option<PostedId>,
}

/// The place in which a receive waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// On this PE only: its message will come through a send buffer, or in its header.
    Apart { age: u64 },
    /// At its source, too, which may put the message straight into this place.
    Preposted { peer: u32, at: u64 },
    /// Nowhere: it has met its message, and takes it in parts (extension).
    Taking(Taking),
}

/// An announced message whose parts are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Taking {
    pub(super) arrival: Arrival,
    pub(super) message: u32,
    /// The place in which parts land; `None` while there is no memory for it.
    pub(super) at: Option<u64>,
    pub(super) done: u64,
}

/// A message that no receive has matched, taken out of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiting {
    pub(super) peer: u32,
    pub(super) header: Inbound,
}

/// One of the device's own packets that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Packet {
    pub(super) peer: u32,
    pub(super) at: u64,
    pub(super) len: u64,
}

/// MP_Lite on one PE, as a pure state machine. Every call is given the [`Wire`] that it works on;
/// nothing here blocks, sleeps or knows the time.
///
/// A message is identified by the PE that sent it, a context and a tag, as in [`Envelope`]s and
/// [`Pattern`]s of the core; the field `source` of those is a PE here.
#[derive(Clone, Debug)]
pub struct Lite<B> {
    pub(super) me: u32,
    pub(super) size: u32,
    pub(super) places: Places,
    pub(super) pool: Pool,
    /// Most bytes of send buffers that messages waiting for their receive may take.
    pub(super) buffered_max: u64,
    pub(super) buffered_now: u64,
    /// Whether receives are preposted at all.
    pub(super) preposting: bool,
    /// The peers with which this PE has communicated.
    pub(super) peers: BTreeMap<u32, Peer>,
    pub(super) sends: Slab<Outgoing<B>>,
    pub(super) receives: Slab<RecvOp<B>>,
    /// The queues are boxed, because a `Lite` is moved around on the small stacks of PEs.
    pub(super) posted: Box<PostedQueue<u32>>,
    /// Receives that are not preposted, by age.
    pub(super) apart: BTreeMap<u64, u32>,
    pub(super) age: u64,
    /// Messages that no receive has matched and that were moved out of their queue (extension).
    pub(super) spilled: Box<UnexpectedQueue<Waiting>>,
    /// Messages that a matched probe has taken (extension).
    pub(super) taken: Slab<Waiting>,
    /// The device's own packets that have arrived (extension).
    pub(super) packets: VecDeque<Packet>,
    /// Receives of announced messages that wait for memory (extension).
    pub(super) starved: VecDeque<u32>,
    /// Peers to which something waits to be sent.
    pub(super) busy: BTreeSet<u32>,
    pub(super) done: VecDeque<Done<B>>,
    pub(super) stats: Stats,
    pub(super) news: Vec<u32>,
    /// The rule that a test has switched off, to see whether the exploration notices.
    #[cfg(test)]
    pub(super) broken: Option<super::model::Rule>,
}

impl<B: Buffer> Lite<B> {
    /// Makes the protocol on PE `me` of `size`, with queues at `places` and buffers in `pool`.
    /// Messages that wait for their receive take at most `buffered_max` bytes of the pool. Places
    /// and pool lie in zeroed symmetric memory and do not overlap; `places` and `size` are the same
    /// on every PE.
    #[must_use]
    pub fn new(me: u32, size: u32, places: Places, pool: Pool, buffered_max: u64) -> Self {
        Self {
            me,
            size,
            places,
            pool,
            buffered_max,
            buffered_now: 0,
            preposting: true,
            peers: BTreeMap::new(),
            sends: Slab::default(),
            receives: Slab::default(),
            posted: boxed(PostedQueue::new),
            apart: BTreeMap::new(),
            age: 0,
            spilled: boxed(UnexpectedQueue::new),
            taken: Slab::default(),
            packets: VecDeque::new(),
            starved: VecDeque::new(),
            busy: BTreeSet::new(),
            done: VecDeque::new(),
            stats: Stats::default(),
            news: Vec::new(),
            #[cfg(test)]
            broken: None,
        }
    }

    /// One round of `MP_Wait`: handles the headers that peers have written, and moves on the sends
    /// that wait; a send goes through a send buffer if no receive is preposted for it.
    pub fn progress(&mut self, wire: &mut impl Wire) {
        let mut news = std::mem::take(&mut self.news);
        wire.news(&mut news);
        for peer in news.drain(..) {
            self.hear(wire, peer);
        }
        self.news = news;
        self.feed(wire);
        let busy: Vec<u32> = self.busy.iter().copied().collect();
        for peer in busy {
            self.settle(wire, peer);
            self.launch(wire, peer, true);
            // The headers that kept this PE from telling the peer may have left.
            self.tell(wire, peer);
        }
    }

    /// Reads both queues of a peer.
    pub(super) fn hear(&mut self, wire: &mut impl Wire, peer: u32) {
        self.hear_receiver(wire, peer);
        self.hear_sender(wire, peer);
    }

    /// Fetches an operation that is over, if there is one.
    pub fn next_done(&mut self) -> Option<Done<B>> {
        self.done.pop_front()
    }

    /// Sets whether receives are preposted at all. They are by default; comparisons switch it off.
    pub fn preposts_receives(&mut self, prepost: bool) {
        self.preposting = prepost;
    }

    /// Sets the most bytes of send buffers that messages waiting for their receive may take.
    pub fn limit_buffers(&mut self, bytes: u64) {
        self.buffered_max = bytes;
    }

    /// Whether a receive waits that a message from `peer` would match.
    #[must_use]
    pub fn expects(&self, peer: u32, label: Label) -> bool {
        self.posted.peek_arrival(&envelope(peer, label)).is_some()
    }

    /// Describes for people the operations that wait here: a line each, for the first few.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        let any = |part: Option<u32>| part.map_or("any".to_owned(), |n| n.to_string());
        let receives = self.receives.iter().map(|(_, op)| {
            let (source, tag) = (any(op.pattern.source), any(op.pattern.tag));
            let len = op.buffer.len();
            format!("receive of up to {len} bytes from PE {source} with tag {tag}")
        });
        let sends = self.sends.iter().map(|(_, send)| {
            let (len, to, tag) = (send.buffer.len(), send.peer, send.label.tag);
            format!("send of {len} bytes to PE {to} with tag {tag}")
        });
        let mut lines: Vec<String> = receives.chain(sends).take(4).collect();
        let all = self.receives.len() + self.sends.len();
        if all > lines.len() {
            lines.push(format!("and {} more", all - lines.len()));
        }
        lines
    }

    /// Whether there is an operation that is over and has not been fetched.
    #[must_use]
    pub fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// Whether an operation of this token is under way.
    #[must_use]
    pub fn is_waiting(&self, token: u64) -> bool {
        self.sends.iter().any(|(_, send)| send.token == token)
            || self.receives.iter().any(|(_, op)| op.token == token)
    }

    /// The counts of this PE.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Bytes of send buffers and landing places in use.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.pool.used()
    }

    /// Reserves memory that peers can reach, for layers above; freed by [`release`](Self::release).
    pub fn reserve(&mut self, len: u64) -> Option<u64> {
        self.pool.allocate(len)
    }

    /// Frees a place from [`reserve`](Self::reserve); `false` if it is not one.
    pub fn release(&mut self, at: u64) -> bool {
        self.pool.free(at)
    }

    /// Whether everything that this PE has to send has left.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.busy.is_empty()
    }

    pub(super) fn peer(&mut self, peer: u32) -> &mut Peer {
        let (me, places) = (self.me, self.places);
        self.peers
            .entry(peer)
            .or_insert_with(|| Peer::new(me, peer, &places))
    }

    pub(super) fn finish(&mut self, wire: &mut impl Wire, token: u64, outcome: Outcome, buffer: B) {
        wire.step(super::steps::Step::Finish);
        self.done.push_back(Done {
            token,
            outcome,
            buffer,
        });
    }

    /// Queues a header for a peer, behind those that already wait, and sends what can leave.
    pub(super) fn owe(&mut self, wire: &mut impl Wire, peer: u32, header: Outbound) {
        let state = self.peer(peer);
        // The header carries what was seen when it was decided on, not when there is room for it.
        let seen = state.smsg.next as u16;
        state.owed.push_back(header.at_seen(seen));
        self.busy.insert(peer);
        self.settle(wire, peer);
        self.tell(wire, peer);
    }

    /// Writes the headers that wait for a peer, as far as there is room in its queues.
    pub(super) fn settle(&mut self, wire: &mut impl Wire, peer: u32) {
        let state = self.peer(peer);
        while let Some(header) = state.owed.front()
            && state.to_rmsg.room(wire) > 0
        {
            let words = header.words();
            state.to_rmsg.post(wire, peer, words);
            state.owed.pop_front();
        }
        while let Some(header) = state.replies.front()
            && state.to_smsg.room(wire) > 0
        {
            let words = header.words();
            state.to_smsg.post(wire, peer, words);
            state.replies.pop_front();
        }
        while self.peer(peer).to_smsg.room(wire) > 0
            && let Some(take) = self.peer(peer).takes.pop_front()
        {
            self.put_part(wire, peer, take);
        }
        if self.peer(peer).is_idle() {
            self.busy.remove(&peer);
        }
    }

    /// Tells a peer how many headers of its queues here have been deleted, if that is due.
    pub(super) fn tell(&mut self, wire: &mut impl Wire, peer: u32) {
        let (me, places) = (self.me, self.places);
        let state = self.peer(peer);
        if state.rmsg.is_due() {
            let told = u64::from(state.rmsg.tell());
            wire.put(peer, places.rmsg_told(me), &[told]);
        }
        // The peer takes this as permission to forget small messages. So every header that makes
        // the peer take out a prepost because of those messages must have left before.
        if state.smsg.is_due() && state.owed.is_empty() {
            let told = u64::from(state.smsg.tell());
            wire.fence();
            wire.put(peer, places.smsg_told(me), &[told]);
        }
    }
}

/// Puts the result of `make` on the heap, in a stack frame of its own.
#[inline(never)]
fn boxed<T>(make: impl FnOnce() -> T) -> Box<T> {
    Box::new(make())
}

/// The envelope of a message for the core's queues.
pub(super) fn envelope(peer: u32, label: Label) -> Envelope {
    Envelope {
        context: label.context,
        source: peer,
        tag: label.tag,
    }
}
