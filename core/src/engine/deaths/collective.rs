//! The consequences of a death in the collective contexts of a communicator. They concern every
//! member.
//!
//! In such a context a rank may wait for a living rank that in turn waits, directly or not, for the
//! dead one, or that has heard of the death and has given up. So every operation that has not been
//! matched ends with the error, and so do operations that are started later. Messages that wait
//! here for a receive are dropped: they belong to operations that end as well, and no other
//! operation may receive them. A sender that waits for its message to be received is told that it
//! was.
//! Matched operations go on, because both sides are there for them.

use crate::device::ProcId;
use crate::engine::entry::SendStage;
use crate::engine::short::outgoing::Peer;
use crate::engine::short::unexpected::{Arrived, OfferBody};
use crate::engine::state::{Proto, State};
use crate::group::Group;
use crate::transport::packet::flags;
use crate::transport::{Header, Transport};

impl<T: Transport> State<T> {
    /// Handles the death of `peer`: ends the unmatched sends of its communicators' collective
    /// operations, and drops the messages that wait here for them. (Receives end in
    /// `requests_of`, with the other operations that wait for the dead.)
    pub(in crate::engine) fn end_collectives(&mut self, peer: u32) {
        for index in self.proto.collective_sends(peer) {
            // A send that its receiver has taken goes on. Where offers cannot be taken back, the
            // receiver has to drop them.
            if self.take_back(index) {
                self.release_offer(index);
                self.proto.fail_request(index, peer);
            }
        }
        for arrived in self.proto.collective_arrivals(peer) {
            match arrived {
                Arrived::Offer {
                    peer,
                    header,
                    body,
                    taken,
                } => self.drop_offer(peer, &header, &body, taken),
                Arrived::Eager { peer, header, .. } => {
                    if header.flags & flags::SYNCHRONOUS != 0 {
                        self.proto.acknowledge(peer, header.cookie);
                    }
                }
                Arrived::Looped { .. } => {}
            }
        }
    }

    /// Drops an announced message: tells its sender that it was received, unless the sender has
    /// cancelled it.
    pub(in crate::engine) fn drop_offer(
        &mut self,
        from: u32,
        header: &Header,
        body: &OfferBody,
        taken: bool,
    ) {
        let mine = |word| taken || self.transport.offer_take(from, word);
        if body.word.is_none_or(mine) {
            self.proto.acknowledge(from, header.cookie);
        }
    }
}

impl Proto {
    /// The sends in collective contexts of `peer`'s communicators that have not been matched.
    fn collective_sends(&self, peer: u32) -> Vec<u32> {
        let waiting = |stage| {
            matches!(
                stage,
                SendStage::Queued | SendStage::Unasked { left: 0 } | SendStage::Offered
            )
        };
        let sends = self.table.active().filter(|(_, entry)| {
            entry.op.send().is_some_and(|(args, _, stage)| {
                waiting(stage) && self.is_collective_of(args.envelope.context, peer)
            })
        });
        sends.map(|(index, _)| index).collect()
    }

    /// Removes from the queue the messages of other ranks that wait in those contexts. If `peer`
    /// has left in good order, only the announced ones: an operation that it has finished may be
    /// under way here, and need the others.
    fn collective_arrivals(&mut self, peer: u32) -> Vec<Arrived> {
        let mut contexts: Vec<u32> = self.unexpected.iter().map(|(_, e, _)| e.context).collect();
        contexts.sort_unstable();
        contexts.dedup();
        contexts.retain(|&context| self.is_collective_of(context, peer));
        if contexts.is_empty() {
            return Vec::new();
        }
        let left = self.peers[peer as usize].flags & Peer::LEFT != 0;
        let goes = |arrived: &Arrived| match arrived {
            Arrived::Offer { .. } => true,
            Arrived::Eager { .. } => !left,
            Arrived::Looped { .. } => false,
        };
        let dropped = self
            .unexpected
            .drain_if(|envelope, arrived| goes(arrived) && contexts.contains(&envelope.context));
        let mut arrivals = Vec::with_capacity(dropped.len());
        for (_, arrived) in dropped {
            self.unstore(&arrived);
            arrivals.push(arrived);
        }
        arrivals
    }

    /// Whether this is a collective context of a communicator.
    pub(in crate::engine) fn is_collective(&self, context: u32) -> bool {
        self.collective_group(context).is_some()
    }

    /// Whether this is a collective context of a communicator that `peer` is in.
    pub(in crate::engine) fn is_collective_of(&self, context: u32, peer: u32) -> bool {
        self.collective_group(context)
            .is_some_and(|group| group.rank_of(ProcId::new(peer)).is_some())
    }

    /// The group of the communicator that has this collective context; `None` for contexts of
    /// point-to-point messages, and for unknown ones.
    fn collective_group(&self, context: u32) -> Option<&Group> {
        let (&first, known) = self.contexts.range(..context).next_back()?;
        (context - first < known.contexts).then_some(&known.group)
    }

    /// The dead member that prevents operations from starting in a collective context.
    pub(in crate::engine) fn failure_in(&self, context: u32) -> Option<u32> {
        self.first_dead(self.collective_group(context)?)
    }

    /// The member of `group` that was found dead first, if any.
    pub(in crate::engine) fn first_dead(&self, group: &Group) -> Option<u32> {
        let is_member = |peer: &&u32| group.rank_of(ProcId::new(**peer)).is_some();
        self.failed.iter().find(is_member).copied()
    }
}
