//! Making communicators from communicators.

use std::sync::Arc;

use super::among::Among;
use super::context::{Key, Pool, Whom};
use super::meet::Call;
use super::{Communicator, New, Tag, Topology};
use crate::device::{Caps, Device, ProcId};
use crate::error::{ErrorKind, Result};
use crate::group::Group;

/// The property that the ranks of one new communicator share, as far as the device knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SplitBy {
    /// They can load and store each other's memory (`MPI_COMM_TYPE_SHARED`). Over a device without
    /// such memory, each rank is alone, even if others run on its node.
    SharedMemory,
    /// They run on one node (`MPI_COMM_TYPE_HW_GUIDED` with a node).
    Node,
}

impl<D: Device> Communicator<D> {
    /// A communicator with the same group and contexts of its own (`MPI_Comm_dup`): messages on one
    /// never match receives on the other. Each attribute is copied as its key says, the topology is
    /// copied unchanged, and the error mode is inherited.
    ///
    /// Collective. Like all collectives on one communicator, creations are called in the same order
    /// on every rank. Creations from *different* communicators may run in several threads at once.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted), on every rank, when no context id is free on all of
    /// them; [`PeerFailed`](ErrorKind::PeerFailed); that of a copy hook, on the ranks where it
    /// fails.
    pub fn dup(&self) -> Result<Self> {
        let context = self.agree(Call::Dup)?;
        let topology = self.0.topology.clone();
        let new = self.derive(self.group().clone(), self.rank(), context, topology)?;
        new.inherit_attributes(self)?;
        Ok(new)
    }

    /// A communicator of some of this communicator's processes (`MPI_Comm_create`); `None` on ranks
    /// that are not in `group`. Collective over this communicator.
    ///
    /// Ranks may pass different groups, provided that the groups do not overlap. One call then
    /// makes several communicators.
    ///
    /// # Errors
    /// As [`dup`](Self::dup), and [`InvalidArgument`](ErrorKind::InvalidArgument) if `group` has a
    /// member that this communicator does not have.
    pub fn create(&self, group: &Group) -> Result<Option<Self>> {
        self.check_part(group)?;
        self.create_on(group, Call::Create, None)
    }

    /// Like [`create`](Self::create), with a topology, for a group that has been checked.
    pub(super) fn create_on(
        &self,
        group: &Group,
        call: Call<'_>,
        topology: Option<Arc<Topology>>,
    ) -> Result<Option<Self>> {
        self.check_members()?;
        let context = self.agree(call)?;
        match group.rank_of(self.process()) {
            Some(rank) => {
                let new = self.derive(group.clone(), rank, context, topology)?;
                Ok(Some(new))
            }
            None => {
                self.0.job.pool.release(context);
                Ok(None)
            }
        }
    }

    /// Like [`create`](Self::create), but collective over `group` only (`MPI_Comm_create_group`).
    /// The other ranks need not call it; if they do, it returns `None` at once.
    ///
    /// Several threads may do this at once on one communicator, with different tags. These tags are
    /// separate from those of messages.
    ///
    /// # Errors
    /// As [`create`](Self::create), and [`InvalidTag`](ErrorKind::InvalidTag).
    pub fn create_group(&self, group: &Group, tag: Tag) -> Result<Option<Self>> {
        // Not `check_members`: ranks outside of the group may be dead.
        self.check_not_ended()?;
        self.check_part(group)?;
        self.check_tag(tag)?;
        let Some(rank) = group.rank_of(self.process()) else {
            return Ok(None);
        };
        if let Some(dead) = self.device().dead_member(group) {
            return Err(self.member_failed(dead));
        }
        let among = Among::new(self, group, tag);
        let key = Key {
            context: self.context(),
            whom: Whom::Some(tag),
        };
        self.meet_by(Call::CreateGroup(group), |offer| among.and_words(offer))?;
        let context = self.decide_by(key, group.size(), |offer| among.and_words(offer))?;
        self.derive(group.clone(), rank, context, None).map(Some)
    }

    /// The communicator of the calling process alone (`MPI_COMM_SELF`). Local: its context is
    /// reserved for it, so there is no need to agree with other ranks.
    ///
    /// # Errors
    /// [`InvalidCommunicator`](ErrorKind::InvalidCommunicator) if this world already has one.
    pub fn alone(&self) -> Result<Self> {
        let Some(context) = self.take_local(Pool::reserve_alone) else {
            return Err(self.error(
                ErrorKind::InvalidCommunicator,
                "the process has its communicator of itself alone already".to_owned(),
                "use a clone of that, or a duplicate",
            ));
        };
        let group = Group::new(vec![self.process()]);
        let new = self.derive(group, 0, context, None)?;
        new.set_name("self");
        Ok(new)
    }

    /// One communicator per `color`, made of the ranks that pass it (`MPI_Comm_split`); `None` for
    /// ranks that pass no color (`MPI_UNDEFINED`). The new ranks are ordered by `key`, and by rank
    /// in this communicator where keys are equal. Collective.
    ///
    /// # Errors
    /// As [`dup`](Self::dup).
    pub fn split(&self, color: Option<u32>, key: i64) -> Result<Option<Self>> {
        self.split_as(Call::Split, color, key)
    }

    fn split_as(&self, call: Call<'_>, color: Option<u32>, key: i64) -> Result<Option<Self>> {
        self.meet(call)?;
        // One more than the color: 0 means none.
        let mine = color.map_or(0, |color| u64::from(color) + 1);
        let all = self.allgather_words(&[mine, key.cast_unsigned()])?;
        let (pairs, _) = all.as_chunks::<2>();
        let mut part: Vec<(i64, u32)> = (0..)
            .zip(pairs)
            .filter(|(_, [theirs, _])| *theirs == mine)
            .map(|(rank, [_, key])| (key.cast_signed(), rank))
            .collect();
        let context = self.decide()?;
        if color.is_none() {
            self.0.job.pool.release(context);
            return Ok(None);
        }
        part.sort_unstable();
        let member = |&(_, rank): &(i64, u32)| self.group().process(rank);
        let group = Group::new(part.iter().filter_map(member).collect::<Vec<_>>());
        let place = part.iter().position(|&(_, rank)| rank == self.rank());
        let rank = place.map_or(0, |place| place as u32);
        self.derive(group, rank, context, None).map(Some)
    }

    /// One communicator for each set of ranks that share the property `by` (`MPI_Comm_split_type`),
    /// ordered by `key` as in [`split`](Self::split). Collective, with the same `by` on all ranks.
    ///
    /// # Errors
    /// As [`dup`](Self::dup).
    pub fn split_by(&self, by: SplitBy, key: i64) -> Result<Self> {
        let part = self.split_some_by(by, true, key)?;
        part.ok_or_else(|| {
            self.error(
                ErrorKind::Internal,
                "a color was lost".to_owned(),
                "please report it",
            )
        })
    }

    /// Like [`split_by`](Self::split_by), but only for the ranks that pass `in_one`. The others
    /// take part in the call and get `None` (`MPI_UNDEFINED`).
    ///
    /// # Errors
    /// As [`dup`](Self::dup).
    pub fn split_some_by(&self, by: SplitBy, in_one: bool, key: i64) -> Result<Option<Self>> {
        let device = self.device();
        let direct = device.attributes().caps.contains(Caps::DIRECT);
        let color = if by == SplitBy::SharedMemory && !direct {
            self.rank()
        } else {
            // The lowest rank on this node. All ranks of the node find the same one, however the
            // device numbers nodes.
            let node = device.node_of(self.process());
            let mut processes = self.group().iter();
            let first = processes.position(|process| device.node_of(process) == node);
            first.map_or(self.rank(), |first| first as u32)
        };
        self.split_as(Call::SplitBy(by), in_one.then_some(color), key)
    }

    /// The new communicator of `group`, with a context that has been agreed on.
    pub(super) fn derive(
        &self,
        group: Group,
        rank: u32,
        context: u32,
        topology: Option<Arc<Topology>>,
    ) -> Result<Self> {
        let new = New {
            parent: Some(self),
            group,
            rank,
            context,
            collective: true,
            errors: self.errors(),
            name: format!("{}+", self.name()),
            topology,
        };
        Self::build(Arc::clone(&self.0.device), Arc::clone(&self.0.job), new)
    }

    /// The calling process.
    pub(super) fn process(&self) -> ProcId {
        ProcId::new(self.device().attributes().world_rank)
    }

    fn check_part(&self, group: &Group) -> Result<()> {
        self.check_members_of(group, self.group())
    }

    /// Checks that every process of `part` is in `whole`.
    pub(super) fn check_members_of(&self, part: &Group, whole: &Group) -> Result<()> {
        let Some(alien) = part.iter().find(|&p| !whole.contains(p)) else {
            return Ok(());
        };
        let what = format!(
            "process {} of the new group is not in the communicator",
            alien.index()
        );
        let remedy = "take the members from the parent's group";
        Err(self.error(ErrorKind::InvalidArgument, what, remedy))
    }
}
