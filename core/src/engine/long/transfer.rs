//! Moving the data of an offer: pulled by the receiver, streamed by the sender, or half by each.
//!
//! ```text
//! sender                       receiver
//!                                opens its buffer
//!   push ... push ◀───────────── Take(request, second half, buffer)
//!                                pull ... pull the first half
//!   Pushed ────────────────────▶
//!   complete ◀────────────────── Done
//! ```
//!
//! The sender writes only into a buffer whose receive is matched, and only what the receiver has
//! asked for. A matched receive can no longer be cancelled, so nothing changes for
//! [`Caps::CANCEL_LOCAL`](crate::device::Caps). A push that is refused becomes a stream. So does a
//! pull, once the sender has nothing else under way for the receive.

use std::ops::Range;
use std::time::Instant;

use portolan_datatype::MsgRep;

use crate::engine::entry::{Op, RecvStage, SendStage, Transfer};
use crate::engine::long::flows::fault;
use crate::engine::long::rendezvous::TakeBody;
use crate::engine::long::room::{Room, served};
use crate::engine::long::shared::is_in_halves;
use crate::engine::long::ways::{SPLIT_BOTH, Way};
use crate::engine::state::{Proto, State};
use crate::status::Status;
use crate::transport::packet::flags;
use crate::transport::{
    Exposure, Header, PacketKind, Payload, Pulled, Pulls, Transport, TransportCaps,
};

/// Bytes pulled or pushed for one message before it is other work's turn.
pub(in crate::engine) const TURN: usize = 1 << 20;
/// Bytes of an absent sender's message that are pulled before the first check whether the sender is
/// back. Each later turn multiplies the amount pulled so far by four. Shorter remainders are not
/// streamed.
const FIRST_TURN: usize = 64 << 10;
/// Looks of an absent sender after which it is expected to look again. One look alone means little:
/// the call that begins an operation looks, too.
const LOOKS: u32 = 2;
/// Shortest message of which the sender may push a half. Each half costs a system call.
pub(in crate::engine) const SPLIT: usize = 16 << 10;
/// Longest message that this rank pulls as soon as a hook's receive has matched it. Hooks also run
/// in calls that start operations, and such calls should return at once and not after a copy.
/// Pulling longer messages begins in the next poll.
const AT_ONCE: usize = 8 << 10;
/// The second half of a split message begins at a multiple of this.
const PAGE: usize = 4096;

/// A half of a message that this rank writes into the receiver's buffer.
#[derive(Debug)]
pub(in crate::engine) struct Push {
    pub(in crate::engine) peer: u32,
    /// The header of the stream that takes over if pushing is refused.
    pub(in crate::engine) header: Header,
    pub(in crate::engine) send: u32,
    pub(in crate::engine) buffer: Exposure,
    /// The part that the receiver asked for, and what is left of it.
    pub(in crate::engine) asked: Range<usize>,
    pub(in crate::engine) left: Range<usize>,
}

/// What decides the way of a transfer.
#[derive(Clone, Copy, Debug)]
enum Choice {
    /// There is no choice: it is this way.
    This(Way),
    /// The sender is absent, so the data is pulled.
    Absent,
    /// The measurements decide. `splits`: whether the two halves may move separately.
    Measured { splits: bool },
}

/// Whether a transfer needs more pulling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pulling {
    Over,
    More,
    Later,
}

/// The result of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Everything has been moved.
    Whole,
    More,
    /// The rest is under way without this rank's help.
    Later,
    Refused,
    Gone,
}

impl<T: Transport> State<T> {
    /// Starts to move the data for a matched receive.
    pub(in crate::engine) fn begin_transfer(&mut self, index: u32) {
        // If it has to wait, `ways.end` returns it later, or `begin_late` does when it is its turn.
        if let Some(way) = self.choose_way(index, false) {
            self.begin_way(index, way);
        }
    }

    /// Starts receives that wait because their sender was absent: those whose sender is back by
    /// now, and one whose sender is not, if no other message of an absent sender is being pulled.
    /// So a window that is announced while its sender does not listen yet is not pulled as a whole.
    /// Other pulls do not count: as long as other senders keep offering messages, there is always
    /// one under way.
    pub(in crate::engine) fn begin_late(&mut self) -> usize {
        let (mut begun, mut place) = (0, 0);
        let mut pulls = self.pulls_absent();
        while let Some(index) = self.proto.late.first(place) {
            if pulls && matches!(self.choice(index), Some(Choice::Absent)) {
                place += 1;
                continue;
            }
            self.proto.late.take(place);
            if let Some(way) = self.choose_way(index, true) {
                self.begin_way(index, way);
            }
            begun += 1;
            pulls = self.pulls_absent();
        }
        begun
    }

    /// Whether an absent sender's message is being pulled, or was in this step.
    fn pulls_absent(&mut self) -> bool {
        let proto = &mut self.proto;
        let (pulls, table) = (&proto.pulls, &mut proto.table);
        let mut absent = |&index| table.transfer(index).is_some_and(|(_, one)| one.absent);
        proto.has_pulled_absent || pulls.iter().any(&mut absent)
    }

    fn begin_way(&mut self, index: u32, way: Way) {
        let Some((data, transfer)) = self.proto.table.transfer(index) else {
            return;
        };
        let wanted = transfer.wanted;
        match way {
            Way::Pull => transfer.mine = 0..wanted,
            Way::Stream => return self.proto.ask(index, 0..wanted),
            Way::Split => {
                let middle = (wanted / 2).next_multiple_of(PAGE);
                transfer.mine = 0..wanted;
                let (peer, target) = (transfer.peer, data.contiguous());
                let target = target.map_or(std::ptr::null_mut(), |(start, _)| start);
                // SAFETY: the receive's buffer is the device's until the request completes,
                // `wanted` is at most its length, and it is withdrawn before the completion is
                // seen. What this rank writes meanwhile is the other half.
                transfer.opened = unsafe { self.transport.expose_mut(target, wanted) };
                if transfer.opened.is_some() {
                    transfer.mine.end = middle;
                    self.proto.ask(index, middle..wanted);
                    // Ask now, so that both halves move at the same time.
                    self.flush_peer(peer);
                }
            }
        }
        // Earlier pulls come first.
        let far = self.proto.caps.contains(TransportCaps::PULL_FAR);
        let queued = self.proto.has_pulled || !far && !self.proto.pulls.is_empty();
        if queued || self.pull(index) != Pulling::Over {
            self.proto.pulls.push_back(index);
            self.proto.leave_work();
        }
    }

    /// Whether beginning a transfer means that this rank itself copies for long. Asking the sender
    /// for data does not take long.
    pub(in crate::engine) fn takes_long(&mut self, index: u32) -> bool {
        let Some((_, transfer)) = self.proto.table.transfer(index) else {
            return false;
        };
        let (peer, len) = (transfer.peer, transfer.wanted);
        if len <= AT_ONCE || self.proto.caps.contains(TransportCaps::PULL_FAR) {
            return false;
        }
        match self.choice(index) {
            Some(Choice::This(way)) => way != Way::Stream,
            Some(Choice::Absent) => true,
            Some(Choice::Measured { .. }) => {
                let both = self.proto.exposed > 0;
                !self.proto.ways.go_on_streaming(peer, len, both)
            }
            None => false,
        }
    }

    /// Pulls one part of the data that is to be pulled. Messages are pulled one after the other,
    /// because several at a time would only evict each other from the caches. But those that the
    /// network moves without this rank's help move at the same time.
    pub(in crate::engine) fn advance_pulls(&mut self) -> usize {
        // A copy made when another message's transfer began counts, too.
        let count = match self.proto.has_pulled {
            true => 0,
            false => self.proto.pulls.len(),
        };
        for _ in 0..count {
            let Some(index) = self.proto.pulls.pop_front() else {
                break;
            };
            match self.pull(index) {
                Pulling::Over => return 1,
                Pulling::More => {
                    self.proto.pulls.push_front(index);
                    return 1;
                }
                Pulling::Later => self.proto.pulls.push_back(index),
            }
        }
        0
    }

    /// The way of a transfer that begins now; `None` if it has to wait. `its_turn`: it has waited
    /// because its sender was absent, and it is its turn now.
    fn choose_way(&mut self, index: u32, its_turn: bool) -> Option<Way> {
        let splits = match self.choice(index)? {
            Choice::This(way) => return Some(way),
            Choice::Absent => return self.pull_or_wait(index, its_turn),
            Choice::Measured { splits } => splits,
        };
        let (_, transfer) = self.proto.table.transfer(index)?;
        let (peer, wanted, both) = (transfer.peer, transfer.wanted, self.proto.exposed > 0);
        let allowed = |way| way != Way::Split || splits;
        let way = self.proto.ways.begin(peer, wanted, both, index, allowed);
        // A transfer that has to wait is asked about again, and the answer may then differ.
        transfer.measured = way.is_some();
        way
    }

    /// Only one absent sender's message is pulled at a time: by the time it is the next one's turn
    /// its sender may be back.
    fn pull_or_wait(&mut self, index: u32, its_turn: bool) -> Option<Way> {
        let others = self.proto.has_pulled || !self.proto.pulls.is_empty();
        let (_, transfer) = self.proto.table.transfer(index)?;
        if !its_turn && (others || !self.proto.late.is_empty()) {
            self.proto.late.push(transfer.peer, index);
            self.proto.leave_work();
            return None;
        }
        transfer.absent = true;
        transfer.looks = self.transport.looks(transfer.peer);
        Some(Way::Pull)
    }

    /// Whether this rank has a long message on offer, and an operation under way that polls now and
    /// then.
    pub(in crate::engine) fn attends(&self) -> bool {
        self.proto.exposed > 0 && self.proto.hooks.awake()
    }

    /// Whether the rest of a message that is being pulled is better streamed, because its sender
    /// was absent and is back, or looks now and then. Both sides then copy at the same time, and
    /// the sender does not have to wait in the end for what this rank copies alone.
    fn is_back(&mut self, index: u32) -> bool {
        let both = self.proto.exposed > 0;
        let Some((_, transfer)) = self.proto.table.transfer(index) else {
            return false;
        };
        let (peer, rest) = (transfer.peer, transfer.mine.len());
        let Some(exposure) = transfer.exposure.filter(|_| transfer.absent) else {
            return false;
        };
        if rest < FIRST_TURN {
            return false;
        }
        let listens = match self.transport.pulls(peer, &exposure, rest, false) {
            Pulls::Measured => true,
            // Where messages go both ways, each rank copies for itself.
            Pulls::Absent if both => false,
            Pulls::Absent => self.transport.looks(peer).wrapping_sub(transfer.looks) >= LOOKS,
            _ => false,
        };
        listens && self.proto.ways.streams(peer, transfer.wanted, both)
    }

    /// The choice that the transport and the data leave.
    fn choice(&mut self, index: u32) -> Option<Choice> {
        let pushes = self.proto.caps.contains(TransportCaps::PUSH);
        let both = self.proto.exposed > 0;
        let (data, transfer) = self.proto.table.transfer(index)?;
        let (peer, wanted) = (transfer.peer, transfer.wanted);
        let native = transfer.rep == MsgRep::Native;
        let plain = native && data.contiguous().is_some();
        let direct = plain || native && served(&self.transport, data).is_some();
        if wanted == 0 {
            // Nothing to move: the end of the (empty) pull ends the transfer.
            return Some(Choice::This(Way::Pull));
        }
        let Some(exposure) = &transfer.exposure else {
            return Some(Choice::This(Way::Stream));
        };
        let waited = transfer.header.flags & flags::WAITED != 0;
        let splits = pushes && plain && wanted >= SPLIT;
        let way = match self.transport.pulls(peer, exposure, wanted, waited) {
            Pulls::Never => Way::Stream,
            Pulls::Whole => Way::Pull,
            Pulls::Absent => return Some(Choice::Absent),
            Pulls::Contiguous if direct => Way::Pull,
            Pulls::Contiguous => Way::Stream,
            Pulls::Shared
                if plain
                    && data.contiguous().is_some_and(|(target, _)| {
                        is_in_halves(&self.transport, target, wanted)
                    }) =>
            {
                Way::Split
            }
            Pulls::Shared => Way::Pull,
            Pulls::Always if splits && (!both || wanted >= SPLIT_BOTH) => Way::Split,
            Pulls::Always => Way::Pull,
            Pulls::Measured if !direct => Way::Stream,
            Pulls::Measured => return Some(Choice::Measured { splits }),
        };
        Some(Choice::This(way))
    }

    /// Pulls the next part of a transfer.
    fn pull(&mut self, index: u32) -> Pulling {
        // Checked before a turn as well, because a turn takes long and much may have happened since
        // the last one.
        let (mut turn, mut back) = (Turn::More, self.is_back(index));
        let pulls = !back;
        if pulls {
            turn = self.pull_turn(index);
            back = turn == Turn::More && self.is_back(index);
        }
        let Some((_, transfer)) = self.proto.table.transfer(index) else {
            return Pulling::Over;
        };
        debug_assert!(
            !transfer.absent || turn != Turn::Later,
            "pulls from absent senders are over when the call returns"
        );
        let far = self.proto.caps.contains(TransportCaps::PULL_FAR);
        let copied = pulls && matches!(turn, Turn::More | Turn::Whole) && transfer.wanted > 0;
        self.proto.has_pulled |= !far && copied;
        self.proto.has_pulled_absent |= copied && transfer.absent;
        match turn {
            Turn::More if !back => return Pulling::More,
            Turn::Later => return Pulling::Later,
            Turn::Gone => {
                let peer = transfer.peer;
                self.fail_pull(index, peer);
            }
            Turn::Whole => {
                let (peer, cookie) = (transfer.peer, transfer.header.cookie);
                self.proto.acknowledge(peer, cookie);
                self.proto.arrived(index);
            }
            Turn::Refused | Turn::More => {
                transfer.stranded = true;
                self.proto.arrived(index);
            }
        }
        Pulling::Over
    }

    fn pull_turn(&mut self, index: u32) -> Turn {
        // A rank that only looks in passing, and whose own message the peer is reading meanwhile,
        // has nothing to wait for, and does not look often. It pulls whole turns.
        let alone = self.attends();
        let far = self.proto.caps.contains(TransportCaps::PULL_FAR);
        let Some((data, transfer)) = self.proto.table.transfer(index) else {
            return Turn::Whole;
        };
        let most = match transfer.absent && !alone {
            true => (3 * transfer.mine.start).clamp(FIRST_TURN, TURN),
            false => TURN,
        };
        let turn = transfer.mine.end.min(transfer.mine.start + most);
        while transfer.mine.start < turn {
            let Some(exposure) = transfer.exposure else {
                return Turn::Refused;
            };
            let start = transfer.mine.start;
            let spare = (&mut self.proto.flows, &mut self.proto.scratch);
            let room = Room::of(&self.transport, spare, data, transfer, turn - start);
            let len = room.len;
            let timed = transfer.measured && self.proto.ways.times(transfer.peer);
            let since = (timed && !far).then(Instant::now);
            // SAFETY: the receive's buffer is the device's until the request completes, and
            // `wanted`, which `mine` is a part of, is at most its length. The rest is the engine's.
            let pulled = unsafe {
                self.transport
                    .pull(transfer.peer, &exposure, start as u64, room.start, len)
            };
            if let Some(since) = since {
                self.proto.ways.copied(transfer.peer, since.elapsed());
            }
            match pulled {
                Pulled::Done => {
                    let used = (&mut self.proto.flows, &mut self.proto.counters);
                    // SAFETY: the pull has written all of it; the buffer as above.
                    unsafe { room.filled(used, transfer) };
                    transfer.mine.start += len;
                    self.proto.counters.bytes_pulled += len as u64;
                }
                Pulled::Stream => return Turn::Refused,
                Pulled::Gone => return Turn::Gone,
                Pulled::Later => return Turn::Later,
            }
        }
        if transfer.mine.is_empty() {
            Turn::Whole
        } else {
            Turn::More
        }
    }

    /// Advances every push.
    pub(in crate::engine) fn advance_pushes(&mut self) -> usize {
        let count = self.proto.pushes.len();
        for _ in 0..count {
            let Some(mut push) = self.proto.pushes.pop_front() else {
                break;
            };
            match self.push_turn(&mut push) {
                Turn::More | Turn::Later => self.proto.pushes.push_back(push),
                Turn::Gone => self.proto.note_gone(push.peer),
                Turn::Whole => {
                    let header = Header {
                        kind: PacketKind::Pushed as u8,
                        ..push.header
                    };
                    self.proto.queue_control(push.peer, header, &[]);
                    self.half_sent(push.send);
                }
                // The stream starts from the beginning, so what was already pushed is sent again.
                Turn::Refused => {
                    self.proto
                        .push_stream(push.peer, push.header, push.send, push.asked);
                }
            }
        }
        count
    }

    fn push_turn(&mut self, push: &mut Push) -> Turn {
        let op = self.proto.table.send(push.send);
        let Some((source, _)) = op.and_then(|op| op.data.contiguous()) else {
            return Turn::Refused;
        };
        let (start, len) = (push.left.start, push.left.len().min(TURN));
        // SAFETY: the sender leaves the buffer to the device until the request completes; `left` is
        // a part of what was asked for, which lies in it.
        let pushed = unsafe {
            let source = source.add(start);
            self.transport
                .push(push.peer, &push.buffer, start as u64, source, len)
        };
        match pushed {
            Pulled::Done => {
                push.left.start += len;
                self.proto.counters.bytes_pushed += len as u64;
                if push.left.is_empty() {
                    Turn::Whole
                } else {
                    Turn::More
                }
            }
            Pulled::Stream => Turn::Refused,
            Pulled::Gone => Turn::Gone,
            Pulled::Later => Turn::Later,
        }
    }

    /// Notes that the half of a send that the receiver asked for has left.
    fn half_sent(&mut self, index: u32) {
        let Some(op) = self.proto.table.send(index) else {
            return;
        };
        match op.stage {
            SendStage::Pushing {
                acknowledged: false,
            } => op.stage = SendStage::Pushed,
            _ => self.send_finished(index),
        }
    }

    /// Ends a send, or half of one, whose stream has come to its end.
    pub(in crate::engine) fn stream_finished(&mut self, index: u32) {
        match self.proto.table.send(index).map(|op| op.stage) {
            Some(SendStage::Pushing { .. }) => self.half_sent(index),
            _ => self.send_finished(index),
        }
    }
}

impl Proto {
    /// Asks the sender for a part of the data.
    fn ask(&mut self, index: u32, part: Range<usize>) {
        let receive = self.table.handle(index).to_short();
        let Some((_, transfer)) = self.table.transfer(index) else {
            return;
        };
        let body = TakeBody {
            receive,
            from: part.start as u64,
            until: part.end as u64,
            buffer: transfer.opened,
        };
        transfer.theirs = part;
        let peer = transfer.peer;
        let opened = transfer.opened.map_or(0, |_| flags::OPENED);
        let header = Header {
            kind: PacketKind::Take as u8,
            flags: opened,
            ..transfer.header
        };
        let (bytes, len) = body.to_bytes();
        self.queue_control(peer, header, &bytes[..len]);
    }

    /// Handles a piece of data of an offer that this rank has taken.
    pub(in crate::engine) fn on_data(&mut self, peer: u32, header: &Header, payload: Payload<'_>) {
        let Some(index) = self.table.resolve_short(header.cookie) else {
            return self.misbehaves(peer, "sent data that nobody asked for");
        };
        let Op::Recv(op) = &mut self.table.entry(index).op else {
            return self.misbehaves(peer, "sent data for a request that is no receive");
        };
        let RecvStage::Transfer(transfer) = &mut op.stage else {
            return self.misbehaves(peer, "sent data for a receive that is not matched");
        };
        if transfer.peer != peer
            || transfer.theirs.is_empty()
            || payload.len() > transfer.theirs.len()
        {
            return self.misbehaves(peer, "sent more data than it was asked for");
        }
        if header.flags & flags::BROKEN != 0 {
            transfer.broken = true;
            transfer.theirs.start = transfer.theirs.end;
            return self.arrived(index);
        }
        let position = transfer.theirs.start;
        let goes_unasked = transfer.measured
            && transfer.header.flags & flags::WAITED != 0
            && transfer.total <= self.lengths.unasked as u64
            && self.ways.times_copies(peer);
        let far = self.caps.contains(TransportCaps::PULL_FAR);
        let timed = transfer.measured && !far && self.ways.times(peer);
        let since = (goes_unasked || timed).then(Instant::now);
        // SAFETY: the receive's buffer is the device's until the request completes; the piece lies
        // in it (just checked) and comes from the transport's memory.
        unsafe { self.land(index, position, payload) };
        let took = since.map(|since| since.elapsed());
        if let Some(took) = took.filter(|_| timed) {
            self.ways.copied(peer, took);
        }
        if let Some(took) = took.filter(|_| goes_unasked) {
            // An unasked message takes two copies. The reader's takes most of the time, because the
            // cache lines have to travel for it.
            self.ways.would_take(peer, payload.len(), took * 5 / 4);
        }
        if let Some((_, transfer)) = self.table.transfer(index) {
            transfer.theirs.start += payload.len();
        }
        self.arrived(index);
    }

    /// Handles a `Pushed`: the sender has pushed what a `Take` asked for.
    pub(in crate::engine) fn on_pushed(&mut self, peer: u32, header: &Header) {
        let index = self.table.resolve_short(header.cookie);
        let transfer = index.and_then(|index| self.table.transfer(index));
        let transfer = transfer.map(|(_, transfer)| transfer);
        let legal = |transfer: &&mut Transfer| transfer.peer == peer && transfer.opened.is_some();
        let (Some(index), Some(transfer)) = (index, transfer.filter(legal)) else {
            return self.misbehaves(peer, "pushed data that nobody asked for");
        };
        transfer.theirs.start = transfer.theirs.end;
        self.arrived(index);
    }

    /// Called when something has come for a transfer: ends the transfer, or asks for what cannot be
    /// pulled.
    pub(in crate::engine) fn arrived(&mut self, index: u32) {
        let Some((data, transfer)) = self.table.transfer(index) else {
            return;
        };
        if !transfer.theirs.is_empty() {
            return;
        }
        if !transfer.mine.is_empty() {
            if transfer.stranded && transfer.broken {
                // Nothing more comes, and the sender waits for the end of this half.
                transfer.mine = 0..0;
                let (peer, cookie) = (transfer.peer, transfer.header.cookie);
                self.acknowledge(peer, cookie);
                return self.arrived(index);
            }
            if transfer.stranded {
                let rest = std::mem::take(&mut transfer.mine);
                // The rest is streamed, because an opened buffer serves one `Take` only.
                let opened = transfer.opened.take();
                self.close(opened);
                self.ask(index, rest);
            }
            return;
        }
        if let (Some(landing), Some(data)) = (&mut transfer.landing, data.driven()) {
            let over = landing.is_over(data);
            landing.count(&mut self.counters);
            if !over {
                self.leave_work();
                return self.flows.landing.push_back(index);
            }
        }
        let (peer, mut status) = (transfer.peer, transfer.status());
        let fault = fault(data).or_else(|| transfer.fault());
        let (measured, opened) = (transfer.measured, transfer.opened.take());
        self.close(opened);
        if measured {
            self.begins.extend(self.ways.end(peer));
            self.work |= !self.begins.is_empty();
        }
        self.blame(index, &mut status, fault);
        self.counters.rendezvous_received += 1;
        self.counters.bytes_received += status.bytes;
        self.complete(index, status);
    }

    /// Closes a buffer to its pusher before the user's call returns.
    fn close(&mut self, opened: Option<Exposure>) {
        if let Some(opened) = opened {
            self.withdrawals.push(opened);
            self.work = true;
        }
    }
}

impl Transfer {
    /// The error to report if the data does not come.
    fn fault(&self) -> Option<String> {
        let (total, source) = (self.total, self.header.source);
        self.broken.then(|| {
            format!(
                "a message of {total} bytes is in memory of a device that the driver of its sender, rank \
                 {source}, could not read"
            )
        })
    }

    fn status(&self) -> Status {
        let lost = self.total > self.wanted as u64;
        Status {
            source: self.header.source,
            tag: self.header.tag,
            error: lost.then_some(crate::error::ErrorKind::Truncated),
            bytes: self.wanted as u64,
            sent: self.total,
            cancelled: false,
            rep: self.delivered,
        }
    }
}
