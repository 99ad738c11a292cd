//! Communicators out of communicators.

use std::sync::Arc;

use super::among::Among;
use super::context::{Key, Whom};
use super::meet::Call;
use super::{Communicator, New, Tag, Topology};
use crate::device::{Caps, Device, ProcId};
use crate::error::{ErrorKind, Result};
use crate::group::Group;

/// What the ranks of one part have in common, where the device says who is where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SplitBy {
    /// They can load and store each other's memory (`MPI_COMM_TYPE_SHARED`).
    SharedMemory,
    /// They run on one node (`MPI_COMM_TYPE_HW_GUIDED` with a node).
    Node,
}

impl<D: Device> Communicator<D> {
    /// A communicator with the same group and contexts of its own (`MPI_Comm_dup`): messages on one
    /// never match receives on the other. Attributes are copied as their keys say, a topology as it
    /// is; the error mode is inherited.
    ///
    /// Collective. Like all collectives on one communicator, creations are called in the same
    /// order on every rank; creations from *different* communicators may run in several threads
    /// at once.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted), on every rank, when no context id is free on all of
    /// them; [`PeerFailed`](ErrorKind::PeerFailed).
    pub fn dup(&self) -> Result<Self> {
        let context = self.agree(Call::Dup)?;
        let topology = self.0.topology.clone();
        let new = self.derive(self.group().clone(), self.rank(), context, topology)?;
        new.inherit_attributes(self);
        Ok(new)
    }

    /// A communicator of some of this one's processes (`MPI_Comm_create`); `None` on ranks that
    /// are not in `group`. Collective over this communicator.
    ///
    /// Ranks that are not in each other's groups may give different ones: several communicators are
    /// made at once then.
    ///
    /// # Errors
    /// As [`dup`](Self::dup), and [`InvalidArgument`](ErrorKind::InvalidArgument) if `group` has a
    /// member that this communicator does not have.
    pub fn create(&self, group: &Group) -> Result<Option<Self>> {
        self.check_part(group)?;
        self.create_on(group, Call::Create, None)
    }

    /// The same with a topology, for a group that was checked.
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

    /// The same, collective over `group` only (`MPI_Comm_create_group`): the other ranks need not
    /// call it; `None` at once where they do.
    ///
    /// Several threads may do this at once on one communicator, with different tags. The tag has
    /// nothing to do with those of messages.
    ///
    /// # Errors
    /// As [`create`](Self::create), and [`InvalidTag`](ErrorKind::InvalidTag).
    pub fn create_group(&self, group: &Group, tag: Tag) -> Result<Option<Self>> {
        // Not `check_members`: those outside of the group may be dead.
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

    /// The communicator of the calling process alone (`MPI_COMM_SELF`). Local: its context is one
    /// that no other communicator ever has, so nobody is asked.
    ///
    /// # Errors
    /// [`InvalidCommunicator`](ErrorKind::InvalidCommunicator) if there is one of this world
    /// already.
    pub fn alone(&self) -> Result<Self> {
        let Some(context) = self.0.job.pool.reserve_alone() else {
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

    /// One communicator per `color`, of the ranks that give it (`MPI_Comm_split`); `None` for ranks
    /// that give none (`MPI_UNDEFINED`). The new ranks are in the order of `key`, and of the ranks
    /// here where keys are equal. Collective.
    ///
    /// # Errors
    /// As [`dup`](Self::dup).
    pub fn split(&self, color: Option<u32>, key: i64) -> Result<Option<Self>> {
        self.split_as(Call::Split, color, key)
    }

    fn split_as(&self, call: Call<'_>, color: Option<u32>, key: i64) -> Result<Option<Self>> {
        self.meet(call)?;
        // One more than the color, so that 0 is none.
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

    /// One communicator for each set of ranks that have something in common
    /// (`MPI_Comm_split_type`), in the order of `key` as in [`split`](Self::split). Collective,
    /// with one `by`.
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

    /// The same of the ranks that are `in_one`; `None` for the others (`MPI_UNDEFINED`), which call
    /// it all the same.
    ///
    /// # Errors
    /// As [`dup`](Self::dup).
    pub fn split_some_by(&self, by: SplitBy, in_one: bool, key: i64) -> Result<Option<Self>> {
        let device = self.device();
        let direct = device.attributes().caps.contains(Caps::DIRECT);
        let color = if by == SplitBy::SharedMemory && !direct {
            self.rank()
        } else {
            // The lowest rank there: the same on all of them, however the device counts nodes.
            let node = device.node_of(self.process());
            let mut processes = self.group().iter();
            let first = processes.position(|process| device.node_of(process) == node);
            first.map_or(self.rank(), |first| first as u32)
        };
        self.split_as(Call::SplitBy(by), in_one.then_some(color), key)
    }

    /// The new communicator of `group` with a context that was agreed on.
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

    /// The caller.
    pub(super) fn process(&self) -> ProcId {
        ProcId::new(self.device().attributes().world_rank)
    }

    fn check_part(&self, group: &Group) -> Result<()> {
        self.check_members_of(group, self.group())
    }

    /// That nobody in `part` is outside of `whole`.
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
