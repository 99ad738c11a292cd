//! Dead peers: operations that wait for them end with an error; everything else goes on.
//!
//! Receives from any source learn of each failure in their communicator once: those that are posted
//! end with the error, and later ones wait for the living. (A receive that only the dead peer could
//! satisfy would wait for ever; the caller knows of the failure and has to decide.)
//!
//! What a dead peer had sent is delivered first: the transport may hold more packets than one poll
//! takes. So a death is only noted when the transport reports it ([`Proto::note_gone`]). The peer
//! counts as dead once a later poll finds nothing more to deliver ([`State::fail_gone`]).
//!
//! A peer that has left in good order is not dead until a wait needs it. It then counts as dead,
//! except to receives from any source, which wait for the others. Transports do not report such
//! departures; waits ask for them before they sleep.

use crate::device::ProcId;
use crate::engine::entry::{Op, RecvStage};
use crate::engine::short::outgoing::Peer;
use crate::engine::short::unexpected::Arrived;
use crate::engine::state::{Proto, State};
use crate::engine::waiting::wait::Target;
use crate::error::{LEFT, OWN_FAILURE, Result};
use crate::group::Group;
use crate::matching::Pattern;
use crate::request::Request;
use crate::transport::Transport;

/// Polls after which everything that a gone peer had sent must have arrived, even if others keep
/// sending. A poll takes 16 packets of it or more, and there is room for at most a million: the
/// cells of shared memory's longest ring. They count from when the transport gives the reason,
/// because until then the peer may still send.
pub(in crate::engine) const DRAIN: u32 = 1 << 16;

impl<T: Transport> State<T> {
    /// Notes the peers that the transport has found dead. They count as dead once everything that
    /// they had sent is here.
    pub(in crate::engine) fn notice_failures(&mut self) {
        self.proto.failures_seen = self.transport.failures();
        // Together with a peer the transport may have lost a capability.
        self.proto.caps = self.transport.caps();
        // If the other ranks hold this one to be dead, it can talk to none of them, so everything
        // that it waits for has to end.
        let outcast = self.outcast();
        for peer in 0..self.proto.peers.len() as u32 {
            let known = self.proto.peers[peer as usize].flags & Peer::FAILED != 0;
            if known || peer == self.proto.me {
                continue;
            }
            let left = self.transport.has_left(peer);
            let why = self.transport.failure_of(peer).filter(|_| !left);
            if let Some(outcast) = &outcast {
                self.fail_peer(peer, why.unwrap_or_else(|| outcast.clone()).into());
            } else if why.is_some() {
                self.proto.note_gone(peer);
            }
        }
    }

    /// What is said of every peer if the other ranks hold this one to be dead.
    fn outcast(&mut self) -> Option<String> {
        let why = self.transport.failure_of(self.proto.me)?;
        Some(format!("{OWN_FAILURE}{why}"))
    }

    /// Ends a request of another crate's because a peer has failed. That crate may know of the
    /// death before the peer counts as dead here, so the transport is asked for the reason.
    pub(in crate::engine) fn fail_upper_by(
        &mut self,
        request: Request,
        peer: ProcId,
    ) -> Result<()> {
        let dead = peer.index();
        if !self.proto.active.reasons.contains_key(&dead)
            && let Some(why) = self
                .why_gone(dead)
                .or_else(|| self.outcast().map(Into::into))
        {
            self.proto.active.reasons.insert(dead, why);
        }
        self.proto.fail_upper_by(request, peer)
    }

    /// The member of `group` that was found dead first, if any.
    #[inline]
    pub(in crate::engine) fn dead_member(&mut self, group: &Group) -> Option<ProcId> {
        let all_live = self.proto.failed.is_empty();
        if all_live && self.transport.failures() == self.proto.failures_seen {
            return None;
        }
        self.first_dead_of(group)
    }

    #[cold]
    #[inline(never)]
    fn first_dead_of(&mut self, group: &Group) -> Option<ProcId> {
        // Until nothing more of a dead peer arrives: see `fail_gone`.
        while self.transport.failures() != self.proto.failures_seen {
            self.progress();
        }
        self.proto.first_dead(group).map(ProcId::new)
    }

    /// Declares peers dead that sent nonsense during the last poll, and returns how many reports
    /// there were. They count as dead at once: what else they have sent is of no use.
    pub(in crate::engine) fn declare_misbehaved(&mut self) -> usize {
        let reports = std::mem::take(&mut self.proto.active.misbehaved);
        let count = reports.len();
        for (peer, what) in reports {
            if self.proto.peers[peer as usize].flags & Peer::FAILED != 0 {
                // Their packets concern requests that have already ended. And if the other ranks
                // have given up this one, they are not to blame.
                continue;
            }
            crate::log!(ERROR, rank = self.proto.me, peer, "peer {what}");
            self.transport.declare_failed(peer, &format!("it {what}"));
            self.notice_failures();
            if self.proto.peers[peer as usize].flags & Peer::FAILED == 0
                && let Some(why) = self.transport.failure_of(peer)
            {
                self.fail_peer(peer, why.into());
            }
        }
        count
    }

    /// Fails peers that are dead, or that have left the job while something was still to go to
    /// them: operations that wait for them end. This happens only once the transport gives the
    /// reason, because until then it may have lent memory for what they do, and only once what they
    /// had sent has arrived: once a poll that began after that has delivered nothing.
    /// `packets` is the number that the last poll delivered. Returns how many peers were failed.
    pub(in crate::engine) fn fail_gone(&mut self, packets: usize) -> usize {
        let mut gone = std::mem::take(&mut self.proto.gone);
        // A rank that leaves may do so because of a death, which operations here are then to be
        // blamed on. The transport reports the death first, and it is dealt with first.
        gone.sort_by_cached_key(|&(peer, _)| self.transport.has_left(peer));
        let (mut done, mut drains) = (0, false);
        for (peer, polls) in gone {
            let why = self.why_gone(peer);
            if self.transport.failures() != self.proto.failures_seen {
                self.notice_failures();
                drains = true;
            }
            if self.proto.peers[peer as usize].flags & Peer::FAILED != 0 {
                continue;
            }
            let all_here = polls >= DRAIN || (polls > 0 && packets == 0);
            match why {
                Some(why) if all_here && !drains => {
                    self.fail_peer(peer, why);
                    done += 1;
                }
                why => {
                    let polls = why.as_ref().map_or(0, |_| polls.saturating_add(1));
                    drains |= why.is_some_and(|why| *why != *LEFT);
                    self.proto.gone.retain(|&(noted, _)| noted != peer);
                    self.proto.gone.push((peer, polls));
                }
            }
        }
        if drains {
            // Not dealt with yet: the next step looks again, and `dead_member` waits for it.
            self.proto.failures_seen = self.transport.failures().wrapping_sub(1);
        }
        done
    }

    /// Fails a receive whose data was to be pulled from a peer that is gone.
    pub(in crate::engine) fn fail_pull(&mut self, index: u32, peer: u32) {
        if let Some(why) = self.why_gone(peer) {
            self.proto.active.reasons.entry(peer).or_insert(why);
        }
        self.proto.note_gone(peer);
        self.release_offer(index);
        self.proto.fail_request(index, peer);
    }

    /// Why nothing more can come from a peer, if the transport gives a reason.
    fn why_gone(&mut self, peer: u32) -> Option<Box<str>> {
        if self.transport.has_left(peer) {
            return Some(LEFT.into());
        }
        self.transport.failure_of(peer).map(Into::into)
    }

    /// Checks whether a peer that a wait needs has left in good order, which no failure reports.
    /// What waits for that peer then ends with one of the next polls. `false` if the wait needs no
    /// particular peer.
    #[cold]
    pub(in crate::engine) fn look_for_leavers(&mut self, target: Target) -> bool {
        let needed = self.proto.needed(target);
        for &peer in &needed {
            self.look_for_leaver(peer);
        }
        !needed.is_empty()
    }

    /// The same for one peer.
    pub(in crate::engine) fn look_for_leaver(&mut self, peer: u32) {
        let known = self.proto.peers.get(peer as usize);
        let known = known.is_none_or(|peer| peer.flags & Peer::FAILED != 0);
        if !known && self.transport.has_left(peer) {
            self.proto.note_gone(peer);
        }
    }

    fn fail_peer(&mut self, peer: u32, why: Box<str>) {
        let left = &*why == LEFT;
        let what = match left {
            true => "has left the job, and something is still wanted of it".to_owned(),
            false => format!("has failed: {why}"),
        };
        // Not a warning: an operation that needs that rank gets an error that says the same.
        crate::log!(INFO, rank = self.proto.me, peer, "world rank {peer} {what}");
        self.proto.active.reasons.insert(peer, why);
        let flags = &mut self.proto.peers[peer as usize].flags;
        *flags |= Peer::FAILED;
        if left {
            *flags |= Peer::LEFT;
        }
        self.proto.clear_outgoing(peer);
        self.proto.active.forget(peer);
        self.proto.remotes.forget(peer);
        self.proto.ways.forget(peer);
        self.proto.arrivals.forget(peer);
        self.proto.holding.retain(|&holding| holding != peer);
        self.proto.failed.push(peer);
        self.proto.trouble = true;
        let lost = self.proto.unexpected.drain_if(
            |_, arrived| matches!(arrived, Arrived::Offer { peer: from, .. } if *from == peer),
        );
        for (_, arrived) in &lost {
            self.proto.unstore(arrived);
        }
        // A receive in hand is posted, so that it is found among the others.
        self.post_in_hand();
        for index in self.proto.requests_of(peer) {
            // The receiver, which would close the word of an offer, is gone.
            if let Op::Send(op) = &mut self.proto.table.entry(index).op
                && let Some(word) = op.word.take()
            {
                self.transport.offer_close(word);
            }
            self.release_offer(index);
            let blamed = self.proto.blamed_for(index, peer);
            self.proto.fail_request(index, blamed);
        }
        self.end_collectives(peer);
        if let Some(beside) = self.proto.beside.as_ref().filter(|_| left) {
            beside.has_left(peer);
        }
        self.proto.shared.advance_epoch();
    }
}

impl Proto {
    /// Notes that a peer is gone: it refused a packet, or the transport reports its death. What
    /// waits for it ends soon, after everything that it had sent has been delivered.
    #[cold]
    pub(in crate::engine) fn note_gone(&mut self, peer: u32) {
        if !self.gone.iter().any(|&(gone, _)| gone == peer) {
            self.gone.push((peer, 0));
        }
        self.work = true;
    }

    /// Notes that a peer sent something that no correct peer sends.
    #[cold]
    pub(in crate::engine) fn misbehaves(&mut self, peer: u32, what: &'static str) {
        self.active.misbehaved.push((peer, what));
        self.work = true;
    }

    /// The active requests that cannot succeed without `peer`. Receives are removed from their
    /// queues.
    fn requests_of(&mut self, peer: u32) -> Vec<u32> {
        let left = self.has_left(peer);
        let mut doomed = Vec::new();
        let mut wildcards = Vec::new();
        for (index, entry) in self.table.active() {
            if entry
                .op
                .send()
                .is_some_and(|(args, ..)| args.dest.index() == peer)
            {
                doomed.push((index, None));
            }
            match &entry.op {
                Op::Fetch(op) if op.peer == peer => doomed.push((index, None)),
                Op::Remote(op) if op.peer == peer => doomed.push((index, None)),
                Op::Recv(op) => match &op.stage {
                    RecvStage::Transfer(transfer) if transfer.peer == peer => {
                        doomed.push((index, None));
                    }
                    RecvStage::Posted(id) => match op.wanted.pattern() {
                        Pattern {
                            source: Some(source),
                            context,
                            ..
                        } => {
                            if self.process_of(context, source) == Some(peer)
                                || self.is_collective_of(context, peer)
                            {
                                doomed.push((index, Some(*id)));
                            }
                        }
                        Pattern { context, .. } => {
                            if !left && self.is_member(context, peer) {
                                wildcards.push(context);
                                doomed.push((index, Some(*id)));
                            }
                        }
                    },
                    RecvStage::Arriving { peer: from, .. } if *from == peer => {
                        doomed.push((index, None));
                    }
                    RecvStage::Matched | RecvStage::Arriving { .. } | RecvStage::Transfer(_) => {}
                },
                _ => {}
            }
        }
        let told = self.failed.len();
        for context in wildcards {
            if let Some(known) = self.context_mut(context) {
                known.acknowledged = told;
            }
        }
        for (_, posted) in &doomed {
            posted.map(|id| self.posted.cancel(id));
        }
        let stays = |index: &u32| !doomed.iter().any(|(gone, _)| gone == index);
        self.late.retain(stays);
        for queue in [&mut self.pulls, &mut self.begins, &mut self.flows.landing] {
            queue.retain(stays);
        }
        doomed.into_iter().map(|(index, _)| index).collect()
    }

    /// The peer whose end is the reason that an operation ends that needs `peer`. A rank that
    /// leaves may do so because of a death; in a collective context every member learns of that
    /// death.
    fn blamed_for(&mut self, index: u32, peer: u32) -> u32 {
        let send = self.table.entry(index).op.send();
        let context = send.map(|(args, ..)| args.envelope.context);
        context
            .and_then(|context| self.failure_in(context))
            .unwrap_or(peer)
    }

    /// Whether a peer that counts as dead has left in good order.
    fn has_left(&self, peer: u32) -> bool {
        self.peers[peer as usize].flags & Peer::LEFT != 0
    }

    /// The peers that a wait needs, or one of them. A wait for anything needs the peers of all
    /// operations that are under way.
    fn needed(&self, target: Target) -> Vec<u32> {
        let by_all = |request| {
            let of_requests = self.table.active();
            let of_requests = of_requests.filter_map(|(_, entry)| self.needed_by(&entry.op));
            let beside = self.beside.iter();
            let beside = beside.flat_map(|beside| beside.needed(request));
            let of_engine = of_requests.chain(self.active.without_credit());
            of_engine.chain(beside).collect()
        };
        let mut peers: Vec<u32> = match target {
            Target::Any => by_all(None),
            Target::Request(request) => match self.table.active_op(request) {
                // A request of another crate, which may depend on any of the others.
                None | Some(Op::Upper(_)) => by_all(Some(request)),
                Some(op) => self.needed_by(op).into_iter().collect(),
            },
            // Of several ranks that store, some may be done and have left.
            Target::Memory(_) | Target::Message(_) => self.awaited(target).into_iter().collect(),
        };
        peers.retain(|&peer| peer != self.me && (peer as usize) < self.peers.len());
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    fn is_member(&self, context: u32, peer: u32) -> bool {
        self.context_of(context)
            .is_none_or(|known| known.group.rank_of(ProcId::new(peer)).is_some())
    }

    fn context_mut(&mut self, context: u32) -> Option<&mut crate::engine::state::Context> {
        let (first, known) = self.contexts.range_mut(..=context).next_back()?;
        (context - first < known.contexts).then_some(known)
    }

    /// The dead peer because of which a receive that is about to be posted has to fail, if there is
    /// one.
    #[cold]
    pub(in crate::engine) fn failure_for(&mut self, pattern: &Pattern) -> Option<u32> {
        if let Some(dead) = self.failure_in(pattern.context) {
            return Some(dead);
        }
        if let Some(source) = pattern.source {
            let peer = self.process_of(pattern.context, source)?;
            return self.failed.contains(&peer).then_some(peer);
        }
        let told = self
            .context_of(pattern.context)
            .map_or(0, |known| known.acknowledged);
        let peer = self
            .failed
            .iter()
            .skip(told)
            .copied()
            .find(|&peer| !self.has_left(peer) && self.is_member(pattern.context, peer))?;
        let all = self.failed.len();
        if let Some(known) = self.context_mut(pattern.context) {
            known.acknowledged = all;
        }
        Some(peer)
    }
}
