//! Messages sent in pieces without an offer: one side reads a piece while the other writes the
//! next.
//!
//! ```text
//! sender                       receiver
//!   First(length) ───────────▶ match: into the receive, or into memory of its own
//!   Next ─────────────────────▶ goes on
//!   Next ─────────────────────▶ the last: complete, or stored like an eager message
//!   complete
//! ```
//!
//! Like an eager message it needs no answer, and like a stream it lets both processors copy at the
//! same time. [`Proto::form`] decides which messages that a call waits for are sent this way. Other
//! messages go so in windows (`Proto::goes_unasked`), if the transport has room for the whole
//! message. Between the pieces of one message there is no other message between the two ranks,
//! although packets of other kinds may come between: a message that has begun and finds no room
//! waits at the head of the peer's queue. So the receiver needs no name for a message that is
//! arriving, only its sender's number.
//!
//! If no receive matches, the message counts only once all of it is here: then it is matched, or
//! stored. If a receive matches, the receive can no longer be taken back; if the sender dies, it
//! ends with the error. After a death, whole messages that are still found are delivered, but a
//! partial one binds no receive.

use std::collections::BTreeMap;

use portolan_datatype::MsgRep;

use crate::device::{SendArgs, SendMode};
use crate::engine::data::Data;
use crate::engine::entry::{Op, RecvStage, SendOp, SendStage};
use crate::engine::long::shared::AT_ONCE;
use crate::engine::long::unasked::CLASSES;
use crate::engine::short::outgoing::Peer;
use crate::engine::short::recv::verdict;
use crate::engine::short::send::{Launched, header};
use crate::engine::short::unexpected::{Stored, envelope};
use crate::engine::state::{Proto, State};
use crate::request::State as Stage;
use crate::status::Status;
use crate::transport::packet::flags;
use crate::transport::{Header, Limits, PacketKind, Payload, Sent, Transport, TransportCaps};

/// The most memory that is reserved at once on a peer's word about a message's length.
const BELIEVED: usize = 1 << 20;

/// Polls that one message makes to find room. Each takes in the packets that have come, at most as
/// many as a rank takes from another at a time, and copies no more than they carry
/// ([`State::take_in`]).
const POLLS: u32 = 8;

/// The shortest pieces of messages in windows are this many times as long as those of others. (Two
/// processes whose cores are apart, windows of 32 and 48 KiB, pieces of 16 KiB instead of 8: 1.36
/// and 1.13 times the bandwidth. Where the cores are near: 0.97 and 1.00, and with a buffer for
/// each message 1.07 at 32 KiB.)
const IN_WINDOWS: usize = 2;

/// Lengths at which messages change their form.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Lengths {
    /// Longest message that a blocking call sends in one packet, whoever the receiver is. It is
    /// less than the eager limit where receivers may want to read the message in place, and can at
    /// once.
    pub(in crate::engine) whole: usize,
    /// The same from memory that peers load themselves.
    pub(in crate::engine) at_once: usize,
    /// Longest message that may go unasked.
    pub(in crate::engine) unasked: usize,
    /// Longest message that is eager.
    pub(in crate::engine) eager: usize,
    /// Whether receivers cannot read messages in place, so that there is no point in asking them.
    settled: bool,
}

impl Lengths {
    pub(in crate::engine) fn new(limits: &Limits, caps: TransportCaps) -> Self {
        let asks = caps & (TransportCaps::PULL | TransportCaps::PULL_FAR) == TransportCaps::PULL;
        // Pieces shorter than the longest packet mean that both sides copy.
        let copies = limits.piece < limits.bulk;
        let longest = (limits.eager << (CLASSES - 1)).min(u32::MAX as usize);
        // Each call waits for the other, so one copy takes less time than two.
        let whole = limits.eager >> u32::from(asks);
        Self {
            whole,
            at_once: whole.min(AT_ONCE),
            unasked: if copies { longest } else { limits.eager },
            eager: limits.eager,
            settled: copies && !caps.contains(TransportCaps::PULL),
        }
    }

    /// The length class of a message.
    fn class(&self, len: usize, eager: usize) -> usize {
        let times = len.div_ceil(eager.max(1)).max(1);
        (times.next_power_of_two().ilog2() as usize).min(CLASSES - 1)
    }
}

/// The form in which a message leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Form {
    /// In one packet.
    Whole,
    /// In pieces (in one if it is short), without an offer.
    Pieces,
    /// Announced by an offer.
    Offer,
}

impl Proto {
    /// The form of a message of `len` bytes. `waited`: a blocking call sends it from contiguous
    /// memory. (Of other messages there may be many at a time, so that nobody waits for the answer
    /// to one. Whether those go in pieces all the same has been asked before, by
    /// [`try_unasked`](State::try_unasked).)
    pub(in crate::engine) fn form(&mut self, args: &SendArgs, len: usize, waited: bool) -> Form {
        let (peer, eager) = (args.dest.index(), self.limits.eager);
        if self.peers[peer as usize].flags & Peer::HOLD != 0 {
            return Form::Offer;
        }
        if len <= if waited { self.lengths.whole } else { eager } {
            return Form::Whole;
        }
        if waited && self.goes_unasked(args, len, waited) {
            Form::Pieces
        } else {
            Form::Offer
        }
    }

    /// Whether the next message of this kind goes unasked.
    fn goes_unasked(&mut self, args: &SendArgs, len: usize, waited: bool) -> bool {
        let asks = !matches!(args.mode, SendMode::Standard | SendMode::Ready);
        // An announced message can be taken back when a member of the communicator dies.
        if asks || len > self.lengths.unasked || self.is_collective(args.envelope.context) {
            return false;
        }
        let class = self.lengths.class(len, self.limits.eager);
        let peer = args.dest.index();
        if !waited && !self.unasked.in_window(peer, class, self.shared.polls()) {
            return false;
        }
        let pulls = || self.unasked.goes_both_ways(peer) && self.ways.pulls_both_ways(peer, len);
        self.lengths.settled || self.unasked.next(peer, class, waited) && (waited || !pulls())
    }

    /// Notes that a message has begun to leave unasked.
    fn went_unasked(&mut self, peer: u32, len: usize, waited: bool) {
        let class = self.lengths.class(len, self.limits.eager);
        self.unasked.went(peer, class, waited);
        if !waited {
            self.ways.went_unasked(peer);
        }
    }

    /// Notes that `peer` has taken a message of `len` bytes, as a stream or by reading it.
    /// `waited`: a call of this rank waits for it.
    pub(in crate::engine) fn offer_was_taken(
        &mut self,
        peer: u32,
        len: usize,
        waited: bool,
        as_stream: bool,
    ) {
        if len <= self.lengths.unasked {
            let class = self.lengths.class(len, self.limits.eager);
            self.unasked.taken(peer, class, waited, as_stream);
        }
    }
}

/// Bytes of a message's pieces: all of the message if it is short, or if it may leave in a packet
/// that grows (`grows`). Messages in windows have long pieces, because the receiver has those of
/// earlier messages to read meanwhile. But they have at least two, because a first piece that holds
/// everything is taken for a short message.
fn piece_of(limits: &Limits, data: &Data, waited: bool, grows: bool) -> usize {
    let len = data.len();
    let grows = grows && matches!(data, Data::Contig(_)) && len <= limits.grows;
    if len <= limits.eager || grows {
        return len.max(1);
    }
    let piece = limits.piece_of(len);
    match waited {
        true => piece,
        false => {
            let long = (IN_WINDOWS * limits.piece).min(len.div_ceil(2));
            piece.max(long).min(limits.bulk)
        }
    }
}

/// Hands over as many pieces of a message as find room, beginning at position `from`. Returns how
/// many bytes of the message have left altogether, and the result of the last packet.
///
/// # Safety
/// `args` must be legal, the buffer readable, and `piece` at most [`Limits::bulk`].
unsafe fn send_pieces<T: Transport>(
    transport: &mut T,
    piece: usize,
    args: &SendArgs,
    data: &Data,
    from: usize,
    grows: bool,
) -> (usize, Sent) {
    let len = data.len();
    let signature = data.signature(len).bits();
    if from == 0
        && len <= piece
        && let Data::Contig(buf) = data
    {
        let header = header(PacketKind::Eager, args, signature);
        let peer = args.dest.index();
        // SAFETY: the caller vouches for the peer and the buffer, and for `piece`.
        let sent = unsafe {
            match grows {
                true => transport.send_growing(peer, &header, buf.ptr, len),
                false => transport.send_bulk_from(peer, &header, buf.ptr, len),
            }
        };
        return (if sent == Sent::Done { len } else { 0 }, sent);
    }
    let mut header = header(PacketKind::First, args, signature);
    header.cookie = len as u32;
    let mut left = from;
    while left < len {
        if left > 0 {
            header.kind = PacketKind::Next as u8;
        }
        let part = piece.min(len - left);
        // SAFETY: the caller vouches for the peer and the buffer, of which this is a part, and for
        // `piece`; `read` writes all of it.
        let sent = unsafe {
            transport.send_bulk(args.dest.index(), &header, part, |target| {
                data.read(left, target, part, args.rep);
            })
        };
        if sent != Sent::Done {
            return (left, sent);
        }
        left += part;
    }
    (left, Sent::Done)
}

impl<T: Transport> State<T> {
    /// Sends a message of middle length without asking, if that is its form and nothing prevents
    /// it. If the caller does not wait for the message, it leaves now as a whole or not at all: a
    /// remainder would wait for this rank's next call, whereas the receiver can read an announced
    /// message by itself.
    ///
    /// # Safety
    /// `args` must be legal; the buffer must stay readable until the request completes, if there is
    /// one.
    #[cold]
    #[inline(never)]
    pub(in crate::engine) unsafe fn try_unasked(
        &mut self,
        args: &SendArgs,
        data: &Data,
        waited: bool,
    ) -> Launched {
        let (peer, len) = (args.dest.index(), data.len());
        let proto = &mut self.proto;
        // A message that has begun and cannot go on needs a slot.
        if peer == proto.me || proto.peers[peer as usize].flags != 0 || !proto.table.has_room() {
            return Launched::No;
        }
        if proto
            .lengths
            .is_shared(&self.transport, data, args.rep, waited)
        {
            return Launched::No;
        }
        let grows = waited && proto.is_waited_for();
        let piece = piece_of(&proto.limits, data, waited, grows);
        let unasked = match waited {
            true => proto.form(args, len, waited) != Form::Offer,
            false => proto.goes_unasked(args, len, waited) && self.finds_room(peer, len, piece),
        };
        if !unasked {
            return Launched::No;
        }
        // SAFETY: the caller's promise; no limit that `piece_of` knows is above `bulk`.
        let (left, sent) = unsafe { send_pieces(&mut self.transport, piece, args, data, 0, grows) };
        if left == 0 {
            return Launched::No;
        }
        self.proto.went_unasked(peer, len, waited);
        if sent == Sent::Done {
            self.count_eager(len);
            return Launched::Yes;
        }
        let request = self.proto.table.claim(Stage::Active);
        let request = request.expect("nothing was claimed since a slot was seen to be free");
        let op = SendOp {
            args: *args,
            data: data.clone(),
            stage: SendStage::Unasked { left },
            waited,
            shared: false,
            word: None,
            exposure: None,
        };
        let index = request.index();
        self.proto.table.entry(index).set_op(Op::Send(Box::new(op)));
        self.proto.queue_send(peer, index);
        Launched::Begun(request)
    }

    /// Whether a whole message in such pieces finds room. Where long messages go both ways, and
    /// receives are waiting for them, this rank takes in what has arrived. The peer does the same
    /// and thereby makes room. That does not count as a poll: it neither ends a window nor tells
    /// peers that this rank looks.
    fn finds_room(&mut self, peer: u32, len: usize, piece: usize) -> bool {
        for _ in 0..POLLS {
            if self.transport.has_room(peer, len, piece) {
                return true;
            }
            let proto = &self.proto;
            if !proto.unasked.goes_both_ways(peer) || proto.posted.is_empty() {
                return false;
            }
            let some = self.take_in(peer) > 0;
            // The peer may have told this rank to hold, or packets to it may be waiting; and a
            // blocking receive may have taken the last slot.
            let clear = self.proto.peers[peer as usize].flags == 0 && self.proto.table.has_room();
            if !some || !clear {
                return false;
            }
        }
        false
    }

    /// Sends the pieces of a queued request, or the rest of them; `false` if there is no room yet.
    pub(in crate::engine) fn launch_pieces(&mut self, index: u32) -> bool {
        let Self { transport, proto } = self;
        let is_waited_for = proto.is_waited_for();
        let Some(op) = proto.table.send(index) else {
            return true;
        };
        let grows = op.waited && is_waited_for;
        let from = match op.stage {
            SendStage::Unasked { left } => left,
            _ => 0,
        };
        let (peer, len, waited) = (op.args.dest.index(), op.data.len(), op.waited);
        let piece = piece_of(&proto.limits, &op.data, waited, grows);
        let (left, sent) =
            // SAFETY: the sender leaves the buffer to the device until the request completes;
            // `piece` as above.
            unsafe { send_pieces(transport, piece, &op.args, &op.data, from, grows) };
        // Set even if nothing has left: the form is decided.
        op.stage = SendStage::Unasked { left };
        if from == 0 && left > 0 {
            proto.went_unasked(peer, len, waited);
        }
        if sent == Sent::Done {
            proto.counters.eager_sent += 1;
            proto.counters.bytes_sent += len as u64;
            proto.complete_send(index);
        }
        // Nothing leaves to a dead peer; the request ends when the death is noticed.
        if sent == Sent::Gone {
            proto.note_gone(peer);
        }
        sent != Sent::Full
    }
}

/// Messages that arrive in pieces, by their senders: at most one from each.
#[derive(Debug, Default)]
pub(in crate::engine) struct Arrivals {
    peers: BTreeMap<u32, Arrival>,
}

impl Arrivals {
    /// Whether a message from this peer is arriving.
    pub(super) fn has(&self, peer: u32) -> bool {
        self.peers.contains_key(&peer)
    }

    /// Notes that a peer has died: the receive that it has begun to fill ends. A message without a
    /// receive may still arrive whole, because what the dead have sent is delivered.
    pub(in crate::engine) fn forget(&mut self, peer: u32) {
        let met = |arrival: &Arrival| matches!(arrival.place, Place::Receive { .. });
        if self.peers.get(&peer).is_some_and(met) {
            self.peers.remove(&peer);
        }
    }
}

/// A message of which a part has arrived.
#[derive(Debug)]
pub(super) struct Arrival {
    /// The header that the message would have had in a single packet.
    header: Header,
    total: usize,
    here: usize,
    place: Place,
}

impl Arrival {
    /// A message of `total` bytes, of which `here` are in the buffer of the receive that it has
    /// matched, which takes it as it is.
    pub(super) fn in_receive(header: Header, total: usize, here: usize, index: u32) -> Self {
        let status = Status::received(header.source, header.tag, total as u64);
        let rep = MsgRep::Native;
        Self {
            header,
            total,
            here,
            place: Place::Receive { index, rep, status },
        }
    }
}

/// Where its data goes.
#[derive(Debug)]
enum Place {
    /// Into the buffer of this receive, in this representation. `status` is what the receive ends
    /// with; it says how many bytes to copy.
    Receive {
        index: u32,
        rep: MsgRep,
        status: Status,
    },
    /// Into memory of this rank, because no receive has matched.
    Store(Vec<u8>),
}

impl Proto {
    /// Handles the first piece of a message.
    #[inline(never)]
    pub(in crate::engine) fn on_first(&mut self, peer: u32, header: &Header, payload: Payload<'_>) {
        let total = header.cookie as usize;
        let header = Header {
            kind: PacketKind::Eager as u8,
            flags: header.flags & flags::READY,
            cookie: 0,
            ..*header
        };
        if self.arrivals.has(peer) {
            return self.misbehaves(peer, "began a message amid another one");
        }
        if payload.len() == total {
            return self.on_eager(peer, &header, payload);
        }
        self.begin_message(peer, &header, total);
        self.on_next(peer, payload);
    }

    /// Notes that a message has begun to arrive, and finds a place for its data.
    pub(super) fn begin_message(&mut self, peer: u32, header: &Header, total: usize) {
        let arrival = Arrival {
            place: self.place_of(peer, header, total),
            header: *header,
            total,
            here: 0,
        };
        self.begin_arrival(peer, arrival);
    }

    /// Notes that a message has begun to arrive from a peer from which none is arriving.
    pub(super) fn begin_arrival(&mut self, peer: u32, arrival: Arrival) {
        self.unasked.comes(peer);
        let before = self.arrivals.peers.insert(peer, arrival);
        debug_assert!(before.is_none(), "one message at a time");
    }

    /// Handles a piece of a message.
    #[inline(never)]
    pub(in crate::engine) fn on_next(&mut self, peer: u32, payload: Payload<'_>) {
        let Some(arrival) = self.arrivals.peers.get_mut(&peer) else {
            return self.misbehaves(peer, "went on with a message that it had not begun");
        };
        let (at, len) = (arrival.here, payload.len());
        if len == 0 || len > arrival.total - at {
            return self.misbehaves(peer, "sent a piece of a message that is no part of it");
        }
        arrival.here += len;
        match &mut arrival.place {
            Place::Store(bytes) => payload.append_to(bytes),
            Place::Receive { index, rep, status } => {
                if let Some(op) = self.table.recv(*index) {
                    let part = len.min((status.bytes as usize).saturating_sub(at));
                    if part > 0 {
                        // SAFETY: the buffer of a receive is the device's until it is over;
                        // `at + part` is at most `bytes`, which is at most its length, and `part`
                        // at most the payload's, which is in the transport's memory.
                        unsafe { op.data.unload(at, payload, part, *rep) };
                    }
                    op.stage = RecvStage::Arriving {
                        peer,
                        here: arrival.here,
                    };
                }
            }
        }
        if arrival.here == arrival.total {
            self.arrived_whole(peer);
        }
    }

    /// Where to put the data of a message that has begun to arrive: into the earliest receive that
    /// matches.
    fn place_of(&mut self, peer: u32, header: &Header, total: usize) -> Place {
        let store = || Place::Store(Vec::with_capacity(total.min(BELIEVED)));
        if self.peers[peer as usize].flags & Peer::FAILED != 0 {
            // The rest may never come, so no receive is bound to wait for it.
            return store();
        }
        let envelope = envelope(header);
        let posted = self.posted.match_arrival(&envelope);
        let index = posted.or_else(|| self.put_down_for(&envelope));
        let check = self.check_signature;
        let Some((index, op)) = index.and_then(|index| Some((index, self.table.recv(index)?)))
        else {
            return store();
        };
        let (status, rep) = verdict(&op.data, header, total, check);
        op.stage = RecvStage::Arriving { peer, here: 0 };
        Place::Receive { index, rep, status }
    }

    /// Ends a message all of whose pieces have arrived.
    fn arrived_whole(&mut self, peer: u32) {
        let Some(Arrival { header, place, .. }) = self.arrivals.peers.remove(&peer) else {
            return;
        };
        match place {
            Place::Receive {
                index, mut status, ..
            } => {
                self.blame_receive(index, &mut status);
                self.delivered(peer, &header, status.bytes);
                self.complete(index, status);
            }
            Place::Store(bytes) => {
                if !self.deliver_to_match(peer, &header, Payload::from_slice(&bytes)) {
                    self.store(peer, &header, Stored::Heap(bytes.into_boxed_slice()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{ContigBuf, MemoryKind};
    use portolan_datatype::Signature;

    fn contiguous(len: usize) -> Data {
        Data::Contig(ContigBuf {
            ptr: std::ptr::null_mut(),
            len,
            signature: Signature::ANY,
            memory: MemoryKind::Host,
        })
    }

    /// The rest of a message that has begun in pieces goes in pieces, whatever fits a packet now.
    #[test]
    fn what_has_begun_in_pieces_goes_on_in_pieces() {
        let mut ranks = crate::transport::memory::network(2);
        let bytes = [7; 3000];
        let args = SendArgs::new(crate::ProcId::new(1), 3, 0, 5);
        let Data::Contig(buf) = contiguous(bytes.len()) else {
            unreachable!("it is");
        };
        let data = Data::Contig(ContigBuf {
            ptr: bytes.as_ptr().cast_mut(),
            ..buf
        });
        for (from, kind, len) in [(0, PacketKind::Eager, 3000), (1000, PacketKind::Next, 2000)] {
            // SAFETY: rank 1 exists, the array is readable, and 4 KiB fit a packet.
            let left = unsafe { send_pieces(&mut ranks[0], 4096, &args, &data, from, true) };
            assert_eq!(left, (3000, Sent::Done));
            let mut seen = Seen::default();
            ranks[1].poll(&mut seen);
            assert_eq!(seen.0, [(kind as u8, len)]);
        }
    }

    /// Kind and length of the packets that have come.
    #[derive(Default)]
    struct Seen(Vec<(u8, usize)>);

    impl crate::transport::Sink for Seen {
        fn accepts(&mut self, _peer: u32) -> bool {
            true
        }

        fn packet(&mut self, _peer: u32, header: &Header, payload: Payload<'_>) {
            self.0.push((header.kind, payload.len()));
        }
    }

    #[test]
    fn messages_of_windows_have_long_pieces_and_two_at_least() {
        let limits = |eager| Limits {
            short: 192,
            bulk: 32 << 10,
            eager,
            piece: 8 << 10,
            bundle: 0,
            grows: 0,
        };
        let pieces = |eager, len| {
            let data = contiguous(len);
            [true, false].map(|waited| piece_of(&limits(eager), &data, waited, waited))
        };
        assert_eq!(pieces(16 << 10, 16 << 10), [16 << 10; 2], "one packet");
        assert_eq!(pieces(16 << 10, 24 << 10), [8 << 10, 12 << 10]);
        assert_eq!(pieces(16 << 10, 32 << 10), [8 << 10, 16 << 10]);
        assert_eq!(pieces(16 << 10, 128 << 10), [32 << 10; 2]);
        assert_eq!(pieces(8 << 10, 12 << 10), [8 << 10; 2]);
        assert_eq!(pieces(0, 0), [1; 2]);
    }
}
