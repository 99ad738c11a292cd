//! How two groups come to have an intercommunicator.
//!
//! Each group has a communicator and a leader; the leaders have one in common. Whatever all ranks
//! have to agree on, each group agrees on by itself, the leaders swap what came out, and each tells
//! its group. Before anything else each group meets, so that a rank which makes a communicator of
//! another kind is told, as elsewhere. An error on one side is told to the other, so that nobody
//! waits for those who have given up. Once the context of the merged communicator is agreed on, the
//! leaders are not needed any more.

use super::super::context::{Key, Offer, Whom};
use super::super::meet::Call;
use super::super::{Communicator, Tag};
use super::InterCommunicator;
use super::link::Link;
use crate::device::{Device, ProcId};
use crate::error::{Error, ErrorKind, Result};
use crate::group::Group;

/// Where a leader finds the other one.
#[derive(Clone, Copy, Debug)]
pub struct RemoteLeader<'a, D: Device> {
    /// A communicator that has both leaders.
    pub peer: &'a Communicator<D>,
    /// The other leader's rank there.
    pub rank: u32,
    /// Tells creations apart that two leaders may do at once; nothing to do with tags of messages.
    pub tag: Tag,
}

impl<D: Device> InterCommunicator<D> {
    /// The intercommunicator of this group and another (`MPI_Intercomm_create`). Collective over
    /// both groups: each calls it with its own communicator and leader. `remote` is needed on the
    /// leader only, and not looked at elsewhere.
    ///
    /// The error mode is inherited from `local`.
    ///
    /// # Errors
    /// [`InvalidRank`](ErrorKind::InvalidRank) if a leader is outside of its communicator;
    /// [`InvalidTag`](ErrorKind::InvalidTag); [`InvalidArgument`](ErrorKind::InvalidArgument) if
    /// the leader has no `remote`, the groups have a process in common, or other ranks of this one
    /// make a communicator of another kind; [`InvalidCommunicator`](ErrorKind::InvalidCommunicator)
    /// if the leaders' communicator is of another job; [`Exhausted`](ErrorKind::Exhausted);
    /// [`PeerFailed`](ErrorKind::PeerFailed). What is wrong with a leader's arguments its whole
    /// group is told. After an error both groups may try again, with the same tag, too: the calls
    /// of one leader with it belong to those of the other in their order, those that failed as
    /// well. So a group that has not called when the other one's call failed ends its next call
    /// with that error.
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
        // Both groups have met, and the leaders after that: everybody has come.
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

/// This side, and on its leader the connection to the other one.
struct Sides<'a, D: Device> {
    local: &'a Communicator<D>,
    leader: u32,
    link: Result<Link<'a, D>>,
}

/// What one side knows of the other.
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

    /// Each side tells the other who it is.
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
        // The other side is waiting even if this one cannot begin.
        let able = self.local.check_members();
        if able.is_ok()
            && let Err(error) = self.local.meet(Call::IntercommCreate)
        {
            // All ranks here know of this, and the other side's leader may be waiting; or it never
            // comes, so that this one does not wait for its word. What is said lies there until its
            // leader's next call with this tag, which it ends: calls belong together in their
            // order.
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

    /// Bitwise and over both sides.
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

    /// What the other side has to say, for everybody on this one; this side's leader says `mine`.
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
            // The other side would wait for the next round.
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

/// A leader's connection, if what it was given makes sense.
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
