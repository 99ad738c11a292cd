//! Active messages: handlers of the crates above, run where the message arrives.
//!
//! Flooded ranks cannot deadlock. A rank sends at most [`CREDITS`] requests to a peer beyond those
//! that the peer has reported as handled. So the replies of handlers fit into memory that this
//! number bounds, and receiving never has to stop.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::device::{ActiveMessage, Handler, HandlerId, ProcId};
use crate::engine::short::outgoing::Peer;
use crate::engine::state::{Proto, State};
use crate::engine::upper::hooks::{Context, Inside};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::NoUnwind;
use crate::request::{Request, State as Stage};
use crate::status::Status;
use crate::transport::packet::flags;
use crate::transport::{Header, PacketKind, Payload, Sent, Transport};

/// Active messages to one peer that may be under way or not yet handled.
const CREDITS: u32 = 256;
/// Number of handled messages after which the sender is told.
const BATCH: u32 = CREDITS / 4;

/// State of active messages, and other events that are noted during a poll.
#[derive(Default)]
pub(in crate::engine) struct ActiveState {
    /// `None` while the handler runs.
    handlers: BTreeMap<u32, Option<Handler>>,
    /// Messages for handlers that are not registered yet, or are running.
    early: VecDeque<(u32, Header, Vec<u8>)>,
    /// Requests per peer that this rank has sent and that are not reported as handled. Only peers
    /// that it has sent to have an entry.
    used: BTreeMap<u32, u32>,
    /// Requests per peer that were handled here and not reported yet.
    handled: BTreeMap<u32, u32>,
    /// Peers to which one-sided packets have been sent since the last flush.
    pub(in crate::engine) unflushed: BTreeSet<u32>,
    /// Flushes under way, by their peers. A flush of another thread has to wait for what one of
    /// them waits for.
    pub(in crate::engine) flushing: BTreeMap<u32, u32>,
    /// Peers of whose puts this rank has refused one since their last flush.
    pub(in crate::engine) refused_puts: BTreeSet<u32>,
    /// Acknowledgements that arrived during the poll.
    pub(in crate::engine) done_packets: Vec<(u32, Header)>,
    /// Peers that sent nonsense during the poll.
    pub(in crate::engine) misbehaved: Vec<(u32, &'static str)>,
    /// Why peers are held to be dead.
    pub(in crate::engine) reasons: BTreeMap<u32, Box<str>>,
}

impl ActiveState {
    /// Why a peer is held to be dead.
    pub(in crate::engine) fn failure_text(&self, peer: u32) -> Box<str> {
        self.reasons
            .get(&peer)
            .cloned()
            .unwrap_or_else(|| "it has died".into())
    }

    /// Notes that a flush has ended.
    pub(in crate::engine) fn has_flushed(&mut self, peer: u32) {
        if let Some(under_way) = self.flushing.get_mut(&peer) {
            *under_way -= 1;
            if *under_way == 0 {
                self.flushing.remove(&peer);
            }
        }
    }

    /// Peers that must handle active messages before this rank may send them more.
    pub(in crate::engine) fn without_credit(&self) -> impl Iterator<Item = u32> {
        let used = self.used.iter();
        used.filter_map(|(&peer, &used)| (used >= CREDITS).then_some(peer))
    }

    pub(in crate::engine) fn forget(&mut self, peer: u32) {
        self.used.remove(&peer);
        self.handled.remove(&peer);
        self.unflushed.remove(&peer);
        self.flushing.remove(&peer);
        self.refused_puts.remove(&peer);
    }
}

fn active_header(id: HandlerId, args: [u64; 2], reply: bool) -> Header {
    Header {
        kind: PacketKind::Active as u8,
        flags: if reply { flags::REPLY } else { 0 },
        rep: 0,
        channel: 0,
        context: id.0,
        source: args[0] as u32,
        tag: (args[0] >> 32) as u32,
        signature: args[1] as u32,
        cookie: (args[1] >> 32) as u32,
    }
}

fn active_args(header: &Header) -> [u64; 2] {
    [
        u64::from(header.source) | u64::from(header.tag) << 32,
        u64::from(header.signature) | u64::from(header.cookie) << 32,
    ]
}

impl<T: Transport> State<T> {
    /// Sends an active message if there is credit and room; `false` if the caller has to wait.
    pub(in crate::engine) fn try_active(
        &mut self,
        to: ProcId,
        id: HandlerId,
        args: [u64; 2],
        payload: &[u8],
    ) -> Result<bool> {
        self.proto.found_no_room = false;
        let peer = self.proto.check_active(to, payload.len())?;
        if peer == self.proto.me {
            let header = active_header(id, args, true);
            self.proto
                .on_active(peer, &header, Payload::from_slice(payload));
            self.do_noted();
            return Ok(true);
        }
        if self
            .proto
            .active
            .used
            .get(&peer)
            .is_some_and(|&used| used >= CREDITS)
        {
            return Ok(false);
        }
        let header = active_header(id, args, false);
        // Behind packets that already wait, or active messages would overtake each other.
        if self.proto.peers[peer as usize].flags & Peer::WAITING != 0 {
            return Ok(false);
        }
        // If the peer is gone, a later attempt gets the reason as its error.
        self.proto.found_no_room = self.hand_over(peer, &header, payload) != Sent::Done;
        if self.proto.found_no_room {
            return Ok(false);
        }
        *self.proto.active.used.entry(peer).or_default() += 1;
        self.proto.counters.active_sent += 1;
        Ok(true)
    }
}

impl Proto {
    fn check_active(&self, to: ProcId, len: usize) -> Result<u32> {
        self.check_live()?;
        let peer = to.index();
        if peer as usize >= self.peers.len() {
            return Err(self.error(
                ErrorKind::InvalidRank,
                format!(
                    "there is no world rank {peer} in a job of {}",
                    self.peers.len()
                ),
                "use a rank of the job",
            ));
        }
        if len > self.limits.bulk {
            return Err(self.error(
                ErrorKind::InvalidCount,
                format!("an active message of {len} bytes is too long"),
                &format!("send at most {} bytes", self.limits.bulk),
            ));
        }
        if self.peers[peer as usize].flags & Peer::FAILED != 0 {
            return Err(self.peer_failed(peer));
        }
        Ok(peer)
    }

    /// The error for an operation with a dead peer.
    #[cold]
    pub(in crate::engine) fn peer_failed(&self, peer: u32) -> Error {
        let why = self.active.failure_text(peer);
        Error::peer_failed(peer, &why).on_rank(self.me)
    }

    pub(in crate::engine) fn register_handler(
        &mut self,
        id: HandlerId,
        handler: Handler,
    ) -> Result<()> {
        if self.active.handlers.contains_key(&id.0) {
            return Err(self.error(
                ErrorKind::InvalidArgument,
                format!("handler id {:#x} is taken", id.0),
                "take another id of the crate's range",
            ));
        }
        self.active.handlers.insert(id.0, Some(handler));
        let (mine, rest): (VecDeque<_>, _) = std::mem::take(&mut self.active.early)
            .into_iter()
            .partition(|(_, header, _)| header.context == id.0);
        self.active.early = rest;
        for (peer, header, payload) in mine {
            self.on_active(peer, &header, Payload::from_slice(&payload));
        }
        Ok(())
    }

    /// Sends an active message from a handler or a hook: now if there is room, otherwise later.
    pub(in crate::engine) fn active_reply(
        &mut self,
        to: ProcId,
        id: HandlerId,
        args: [u64; 2],
        payload: &[u8],
    ) -> Result<()> {
        let peer = self.check_active(to, payload.len())?;
        let header = active_header(id, args, true);
        if peer == self.me {
            self.on_active(peer, &header, Payload::from_slice(payload));
        } else {
            self.counters.active_sent += 1;
            self.queue_control(peer, header, payload);
        }
        Ok(())
    }

    /// Handles an active message that has arrived, and then those that its handler has sent to this
    /// rank. (One after the other: each may send the next one, and so on.)
    pub(in crate::engine) fn on_active(
        &mut self,
        peer: u32,
        header: &Header,
        payload: Payload<'_>,
    ) {
        let id = header.context;
        if !self.handle_active(peer, header, payload) {
            return;
        }
        let is_of = |(_, header, _): &(u32, Header, Vec<u8>)| header.context == id;
        while let Some(at) = self.active.early.iter().position(is_of)
            && let Some((peer, header, payload)) = self.active.early.remove(at)
        {
            self.handle_active(peer, &header, Payload::from_slice(&payload));
        }
    }

    /// Calls the handler of an active message. `false` if it cannot be called now: it is not
    /// registered yet, or it is running and has sent the message to its own rank. The message is
    /// kept then.
    fn handle_active(&mut self, peer: u32, header: &Header, payload: Payload<'_>) -> bool {
        let slot = self.active.handlers.get_mut(&header.context);
        let Some(mut handler) = slot.and_then(Option::take) else {
            let kept = (peer, *header, payload.to_vec());
            self.active.early.push_back(kept);
            return false;
        };
        self.counters.active_received += 1;
        let message = ActiveMessage {
            from: ProcId::new(peer),
            args: active_args(header),
            // A handler may read the payload as often as it likes.
            payload: payload.to_keep(),
        };
        let guard = NoUnwind::new("a handler");
        handler(&mut Context(Inside(self)), message);
        guard.done();
        payload.take();
        self.active.handlers.insert(header.context, Some(handler));
        if header.flags & flags::REPLY == 0 {
            self.count_handled(peer);
        }
        true
    }

    fn count_handled(&mut self, peer: u32) {
        let handled = self.active.handled.entry(peer).or_default();
        *handled += 1;
        if *handled >= BATCH {
            let count = std::mem::take(handled);
            let header = Header {
                kind: PacketKind::Credit as u8,
                cookie: count,
                ..Header::default()
            };
            self.queue_control(peer, header, &[]);
        }
    }

    /// Handles a peer's report that it has handled active messages of this rank.
    pub(in crate::engine) fn credited_by(&mut self, peer: u32, header: &Header) {
        match self.active.used.get_mut(&peer) {
            Some(used) if *used >= header.cookie => {
                *used -= header.cookie;
                self.shared.tell();
            }
            _ => self.misbehaves(peer, "returned more credit than it was given"),
        }
    }

    /// Completes a request of another crate.
    pub(in crate::engine) fn complete_upper(
        &mut self,
        request: Request,
        status: Status,
    ) -> Result<()> {
        let index = self.active_upper(request)?;
        self.complete(index, status);
        Ok(())
    }

    /// Ends such a request because a peer has failed, with the reason if that is known already.
    pub(in crate::engine) fn fail_upper_by(
        &mut self,
        request: Request,
        peer: ProcId,
    ) -> Result<()> {
        let index = self.active_upper(request)?;
        self.fail_request(index, peer.index());
        Ok(())
    }

    /// Ends such a request with an error.
    pub(in crate::engine) fn fail_upper(&mut self, request: Request, error: Error) -> Result<()> {
        let index = self.active_upper(request)?;
        let status = error.status().copied().unwrap_or(Status::EMPTY);
        let status = Status {
            error: Some(error.kind()),
            ..status
        };
        self.table.entry(index).rare().error = Some(error);
        self.complete(index, status);
        Ok(())
    }

    /// The slot of another crate's request, if that is active.
    fn active_upper(&mut self, request: Request) -> Result<u32> {
        use crate::engine::entry::Op;

        let (index, stage) = self.table.resolve(request).or_else(|error| {
            // The handle may have been given up while the operation continues.
            let index = self.table.resolve_short(request.to_short());
            let index = index.filter(|&index| self.table.handle(index) == request);
            index.map(|index| (index, Stage::Active)).ok_or(error)
        })?;
        if stage == Stage::Active && matches!(self.table.entry(index).op, Op::Upper(_)) {
            return Ok(index);
        }
        Err(self.error(
            ErrorKind::InvalidRequest,
            format!("{request:?} is not an active request of another crate's kind"),
            "complete each such request once",
        ))
    }
}
