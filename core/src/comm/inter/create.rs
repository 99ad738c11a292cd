//! Connecting two groups by an intercommunicator.
//!
//! Each group has a communicator and a leader, and the two leaders share a communicator. To agree
//! on something, each group first agrees among itself, then the leaders exchange the results, and
//! each leader tells its group. Before anything else, the ranks of each group meet, so that a rank
//! that makes another kind of communicator is noticed, as elsewhere. An error on one side is
//! reported to the other side, so that no rank waits for ranks that have given up. Once the context
//! of the merged communicator is agreed on, the leaders have no further part.

use super::super::context::{Key, Offer, Whom};
use super::super::meet::Call;
use super::super::{Communicator, Tag};
use super::InterCommunicator;
use super::link::Link;
use crate::device::{Device, ProcId};
use crate::error::{Error, ErrorKind, Result};
use crate::group::Group;

/// How a leader reaches the other leader.
#[derive(Clone, Copy, Debug)]
pub struct RemoteLeader<'a, D: Device> {
    /// A communicator that contains both leaders.
    pub peer: &'a Communicator<D>,
    /// The other leader's rank in `peer`.
    pub rank: u32,
    /// Distinguishes creations that the same two leaders may run at once. Unrelated to the tags of
    /// messages.
    pub tag: Tag,
}

impl<D: Device> InterCommunicator<D> {
    /// The intercommunicator of this group and another (`MPI_Intercomm_create`). Collective over
    /// both groups: each calls it with its own communicator and leader, and all ranks of a group
    /// name the same leader. `remote` is required on the leader and ignored on other ranks.
    ///
    /// The error mode is inherited from `local`.
    ///
    /// # Errors
    /// [`InvalidRank`](ErrorKind::InvalidRank) if a leader is outside of its communicator;
    /// [`InvalidTag`](ErrorKind::InvalidTag); [`InvalidArgument`](ErrorKind::InvalidArgument) if
    /// the leader has no `remote`, the groups have a process in common, or other ranks of this
    /// group name another leader or make a communicator of another kind;
    /// [`InvalidCommunicator`](ErrorKind::InvalidCommunicator) if the leaders' communicator belongs
    /// to another job; [`Exhausted`](ErrorKind::Exhausted); [`PeerFailed`](ErrorKind::PeerFailed).
    /// If a leader's arguments are wrong, its whole group gets the error.
    ///
    /// After an error both groups may try again, even with the same tag. The calls of the two
    /// leaders with one tag are paired in order, including those that failed. So if one group's
    /// call fails before the other group has called, the other group's next call fails with the
    /// same error.
    pub fn create(
        local: &Communicator<D>,
        leader: u32,
        remote: Option<RemoteLeader<'_, D>>,
    ) -> Result<Self> {
        local.check_rank("local leader", leader)?;
        let mut sides = Sides::new(local, leader, remote);
        let other = sides.meet()?;
        let mine = local.group();
        if let Some(both) = mine.common(&other.group) {
            return Err(local.error(
                ErrorKind::InvalidArgument,
                format!("process {} is in both groups", both.index()),
                "make intercommunicators of groups that have nobody in common",
            ));
        }
        let leaders = sides.leaders(&other);
        let low = leaders.0 < leaders.1;
        let (mut contexts, mut in_order) = ((local.context(), other.context), leaders);
        if !low {
            contexts = (contexts.1, contexts.0);
            in_order = (leaders.1, leaders.0);
        }
        let key = Key {
            context: contexts.0,
            whom: Whom::Both {
                other: contexts.1,
                leaders: in_order,
            },
        };
        let ranks = mine.size() + other.group.size();
        // Both groups have met, and then the leaders have, so every rank has arrived.
        let context = local.decide_by(key, ranks, |offer| sides.and(offer))?;
        let (group, offset) = if low {
            (mine.union(&other.group), 0)
        } else {
            (other.group.union(mine), other.group.size())
        };
        let merged = local.derive(group, offset + local.rank(), context, None)?;
        Self::on(merged, local, mine.clone(), low)
    }
}

/// This side and, on its leader, the connection to the other side.
struct Sides<'a, D: Device> {
    local: &'a Communicator<D>,
    leader: u32,
    link: Result<Link<'a, D>>,
}

/// What one side knows about the other.
struct Other {
    context: u32,
    leader: ProcId,
    group: Group,
}

impl<'a, D: Device> Sides<'a, D> {
    fn new(local: &'a Communicator<D>, leader: u32, remote: Option<RemoteLeader<'a, D>>) -> Self {
        Self {
            local,
            leader,
            link: link(local, remote),
        }
    }

    /// Tells each side which context, leader and group the other side has.
    fn meet(&mut self) -> Result<Other> {
        let leader = self.local.group().process(self.leader);
        let head = [self.local.context(), leader.map_or(0, ProcId::index)];
        let members = self.local.group().iter().map(ProcId::index);
        let words = head.into_iter().chain(members);
        if self.local.rank() == self.leader
            && let Ok(link) = &mut self.link
        {
            link.begin();
        }
        // The other side waits for a message even if this side cannot begin.
        let able = self.local.check_members();
        if able.is_ok()
            && let Err(error) = self.local.meet(Call::IntercommCreate(self.leader))
        {
            // All ranks of this side get this error. The other side's leader may be waiting, so it
            // is told. But it may also never call, so this leader does not wait for its answer. In
            // that case the message stays until the other leader's next call with this tag and
            // fails that call, because the leaders' calls are paired in order.
            if self.local.rank() == self.leader
                && let Ok(link) = &mut self.link
            {
                link.give_up(&error);
            }
            return Err(error);
        }
        let mine = able.map(|()| words.flat_map(u32::to_le_bytes).collect());
        let theirs = self.together(mine)?;
        let (words, _) = theirs.as_chunks::<4>();
        let mut words = words.iter().map(|word| u32::from_le_bytes(*word));
        let (Some(context), Some(leader)) = (words.next(), words.next()) else {
            return Err(self.nonsense("nothing"));
        };
        let group = Group::new(words.map(ProcId::new).collect::<Vec<_>>());
        let leader = ProcId::new(leader);
        let processes = self.local.device().attributes().world_size;
        if !group.contains(leader) || group.iter().any(|member| member.index() >= processes) {
            return Err(self.nonsense("a group that cannot be"));
        }
        Ok(Other {
            context,
            leader,
            group,
        })
    }

    /// The processes of this side's leader and of the other's.
    fn leaders(&self, other: &Other) -> (u32, u32) {
        let mine = self.local.group().process(self.leader);
        (mine.map_or(0, ProcId::index), other.leader.index())
    }

    /// Bitwise AND over both sides.
    fn and(&mut self, offer: &mut Offer) -> Result<()> {
        let agreed = self.local.and_words(offer);
        let mine = agreed.map(|()| offer.iter().flat_map(|word| word.to_le_bytes()).collect());
        let theirs = self.together(mine)?;
        let (words, _) = theirs.as_chunks::<8>();
        if words.len() != offer.len() {
            return Err(self.nonsense("too little"));
        }
        for (word, theirs) in offer.iter_mut().zip(words) {
            *word &= u64::from_le_bytes(*theirs);
        }
        Ok(())
    }

    /// Returns the other side's message to all ranks of this side. This side's leader sends `mine`
    /// in exchange.
    fn together(&mut self, mine: Result<Vec<u8>>) -> Result<Vec<u8>> {
        let local = self.local;
        if local.rank() != self.leader {
            mine?;
            return local.share(Ok(Vec::new()), self.leader);
        }
        let link = match &mut self.link {
            Ok(link) => link,
            Err(error) => return local.share(Err(error.clone()), self.leader),
        };
        let theirs = link.swap(&mine);
        let met = mine.is_ok() && theirs.is_ok();
        let shared = local.share(mine.and(theirs), self.leader);
        if let Err(error) = &shared
            && met
        {
            // Otherwise the other side would wait for the next round.
            link.give_up(error);
        }
        shared
    }

    #[cold]
    fn nonsense(&self, what: &str) -> Error {
        self.local.error(
            ErrorKind::PeerMisbehaved,
            format!("the other group's leader said {what}"),
            "create intercommunicators in the same order on both sides, or with other tags",
        )
    }
}

/// A leader's connection to the other leader, if its arguments make sense.
fn link<'a, D: Device>(
    local: &Communicator<D>,
    remote: Option<RemoteLeader<'a, D>>,
) -> Result<Link<'a, D>> {
    let Some(RemoteLeader { peer, rank, tag }) = remote else {
        return Err(local.error(
            ErrorKind::InvalidArgument,
            "the local leader does not know the remote one".to_owned(),
            "give the leader a communicator that it shares with the other leader",
        ));
    };
    if !peer.of_job(local) {
        return Err(local.error(
            ErrorKind::InvalidCommunicator,
            "the leaders' communicator is of another job".to_owned(),
            "give one that comes from the same world",
        ));
    }
    peer.check_rank("remote leader", rank)?;
    peer.check_tag(tag)?;
    match peer.group().process(rank) {
        Some(process) if !local.group().contains(process) => Ok(Link::new(peer, process, tag)),
        _ => Err(local.error(
            ErrorKind::InvalidArgument,
            format!("remote leader {rank} is in the local group"),
            "make intercommunicators of groups that have nobody in common",
        )),
    }
}
