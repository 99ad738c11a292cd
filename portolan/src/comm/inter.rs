//! Two groups that talk to each other: typed faces of `core`'s intercommunicators.

use portolan_coll::{Counters, Creation, compare_inter_creation};
#[cfg(doc)]
use portolan_core::ErrorKind;
use portolan_core::comm::{self, Errors, InterCommunicator, Tag};
use portolan_core::group::{Comparison, Group};
use portolan_core::level::{Level, Single};
use portolan_core::{Device, Result};

use super::Comm;
use crate::any::AnyDevice;
use crate::hosted::Hosted;

/// Two groups that talk to each other (MPI-4 section 7.6): a rank names ranks of the *other* group.
///
/// Made by [`Comm::intercomm_create`]. A cheap counted handle, as [`Comm`] is.
///
/// ```
/// use portolan::RemoteLeader;
///
/// // Three ranks that have questions, two that have answers.
/// portolan::try_threads(5, |world| {
///     let all = world.comm();
///     let asks = all.rank() < 3;
///     let own = all.split(u32::from(asks), 0)?.expect("everybody has a side");
///     // Rank 0 of each side leads it; the leaders know each other as ranks 0 and 3 of all.
///     let remote = RemoteLeader { peer: &all, rank: if asks { 3 } else { 0 }, tag: 1.into() };
///     let inter = own.intercomm_create(0, Some(remote))?;
///     assert_eq!(inter.remote_size(), if asks { 2 } else { 3 });
///     if asks {
///         inter.remote().send_one(&inter.rank(), inter.rank() % 2, 7)?;
///     } else {
///         for from in (inter.rank()..3).step_by(2) {
///             assert_eq!(inter.remote().recv_one::<u32>(from, 7)?.0, from);
///         }
///     }
///     let merged = inter.merge(asks)?;
///     assert_eq!(merged.rank(), if asks { 2 + inter.rank() } else { inter.rank() });
///     Ok(())
/// })?;
/// # Ok::<(), portolan::Error>(())
/// ```
pub struct InterComm<L: Level = Single, D: Device = AnyDevice<L>> {
    remote: Comm<L, D>,
    pub(crate) inner: InterCommunicator<Hosted<D>>,
}

/// Where a leader finds the other one ([`Comm::intercomm_create`]).
#[derive(Clone, Copy, Debug)]
pub struct RemoteLeader<'a, L: Level = Single, D: Device = AnyDevice<L>> {
    /// A communicator that has both leaders.
    pub peer: &'a Comm<L, D>,
    /// The other leader's rank there.
    pub rank: u32,
    /// Tells creations apart that two leaders may do at once; nothing to do with tags of messages.
    pub tag: Tag,
}

impl<L: Level, D: Device> Comm<L, D> {
    /// The intercommunicator of this communicator's ranks and another's (MPI-4 section 7.6.2,
    /// `MPI_Intercomm_create`). Collective over both: each side calls it on its own communicator,
    /// with one of its ranks as `leader`. `remote` is needed on the leader only, and not looked at
    /// elsewhere.
    ///
    /// # Errors
    /// [`InvalidRank`](ErrorKind::InvalidRank) if a leader is outside of its communicator;
    /// [`InvalidTag`](ErrorKind::InvalidTag); [`InvalidArgument`](ErrorKind::InvalidArgument) if
    /// the leader has no `remote`, or somebody is on both sides;
    /// [`InvalidCommunicator`](ErrorKind::InvalidCommunicator) if the leaders' communicator is of
    /// another job; those of [`dup`](Self::dup). What is wrong with a leader's arguments its whole
    /// side is told.
    #[doc(alias = "MPI_Intercomm_create")]
    pub fn intercomm_create(
        &self,
        leader: u32,
        remote: Option<RemoteLeader<'_, L, D>>,
    ) -> Result<InterComm<L, D>> {
        let remote = remote.map(|remote| comm::RemoteLeader {
            peer: &remote.peer.inner,
            rank: remote.rank,
            tag: remote.tag,
        });
        self.before(Creation::IntercommCreate(leader))?;
        let inter = InterCommunicator::create(&self.inner, leader, remote);
        self.raise(inter).map(InterComm::wrap)
    }
}

impl<L: Level, D: Device> InterComm<L, D> {
    pub(super) fn wrap(inner: InterCommunicator<Hosted<D>>) -> Self {
        Self {
            remote: Comm::wrap(inner.messages().clone()),
            inner,
        }
    }

    /// The other group, for messages: sends and receives on it, in all their forms, name ranks of
    /// the other group. Its [`size`](Comm::size) is theirs, its [`rank`](Comm::rank) the caller's
    /// on this side; its name, attributes and error mode are the intercommunicator's. What all
    /// ranks of a communicator do together is
    /// [`InvalidCommunicator`](ErrorKind::InvalidCommunicator).
    #[inline]
    pub fn remote(&self) -> &Comm<L, D> {
        &self.remote
    }

    /// The caller's rank on its side (MPI-4 section 7.4.1, `MPI_Comm_rank`).
    #[doc(alias = "MPI_Comm_rank")]
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.inner.rank()
    }

    /// What this rank's collective operations between the two groups have cost so far (see
    /// [`Comm::counted`]).
    #[must_use]
    pub fn counted(&self, what: Counters) -> u64 {
        portolan_coll::counted(self.inner.merged(), what)
    }

    /// Number of ranks on the caller's side (MPI-4 section 7.4.1, `MPI_Comm_size`).
    #[doc(alias = "MPI_Comm_size")]
    #[must_use]
    pub fn size(&self) -> u32 {
        self.inner.size()
    }

    /// Number of ranks on the other side (MPI-4 section 7.6.1, `MPI_Comm_remote_size`).
    #[doc(alias = "MPI_Comm_remote_size")]
    #[must_use]
    pub fn remote_size(&self) -> u32 {
        self.inner.remote_size()
    }

    /// The ranks of the caller's side (MPI-4 section 7.3.2, `MPI_Comm_group`).
    #[doc(alias = "MPI_Comm_group")]
    #[must_use]
    pub fn group(&self) -> Group {
        self.inner.local_group().clone()
    }

    /// The ranks of the other side (MPI-4 section 7.6.1, `MPI_Comm_remote_group`).
    #[doc(alias = "MPI_Comm_remote_group")]
    #[must_use]
    pub fn remote_group(&self) -> Group {
        self.inner.remote_group().clone()
    }

    /// How alike two intercommunicators are (MPI-4 section 7.4.1, `MPI_Comm_compare`).
    #[doc(alias = "MPI_Comm_compare")]
    #[must_use]
    pub fn compare(&self, other: &Self) -> Comparison {
        self.inner.compare(&other.inner)
    }

    /// Says what becomes of errors from now on (MPI-4 section 9.3, `MPI_Comm_set_errhandler`).
    #[doc(alias = "MPI_Comm_set_errhandler")]
    pub fn set_errors(&self, errors: Errors) {
        self.inner.set_errors(errors);
    }

    /// Another intercommunicator of the same groups (MPI-4 section 7.4.2, `MPI_Comm_dup`).
    /// Collective over both.
    ///
    /// # Errors
    /// As [`Comm::dup`].
    #[doc(alias = "MPI_Comm_dup")]
    pub fn dup(&self) -> Result<Self> {
        self.before(Creation::Dup)?;
        self.remote.raise(self.inner.dup()).map(Self::wrap)
    }

    /// The intercommunicator of some ranks of either group (MPI-4 section 7.4.2,
    /// `MPI_Comm_create`): each group says which of its own, with one `group` on all of its ranks.
    /// `None` on ranks that do not take part, and on all where a group says nobody. Collective over
    /// both.
    ///
    /// # Errors
    /// As [`Comm::dup`], and [`InvalidArgument`](ErrorKind::InvalidArgument) on every rank if
    /// somebody in the `group` of one of them is not in its local group, or the ranks of a group
    /// disagree.
    #[doc(alias = "MPI_Comm_create")]
    pub fn create(&self, group: &Group) -> Result<Option<Self>> {
        self.before(Creation::Create)?;
        let new = self.remote.raise(self.inner.create_part(group))?;
        Ok(new.map(Self::wrap))
    }

    /// One intercommunicator for each color that ranks of both groups give (MPI-4 section 7.4.2,
    /// `MPI_Comm_split`); `None` for those that give none, or one that nobody in the other group
    /// gives. The ranks on either side are in the order of `key`, and of the ranks here where keys
    /// are equal. Collective over both.
    ///
    /// ```
    /// use portolan::RemoteLeader;
    ///
    /// // Every client gets servers of its own.
    /// portolan::try_threads(5, |world| {
    ///     let all = world.comm();
    ///     let client = all.rank() < 2;
    ///     let own = all.split(u32::from(client), 0)?.expect("everybody has a side");
    ///     let remote = RemoteLeader { peer: &all, rank: if client { 2 } else { 0 }, tag: 1.into() };
    ///     let inter = own.intercomm_create(0, Some(remote))?;
    ///     let pair = inter.split(inter.rank() % 2, 0)?.expect("both sides have both colors");
    ///     let (clients, servers) = if client { (1, 2 - inter.rank()) } else { (1, 2 - inter.rank() % 2) };
    ///     let expected = if client { (clients, servers) } else { (servers, clients) };
    ///     assert_eq!((pair.size(), pair.remote_size()), expected);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Comm::dup`].
    #[doc(alias = "MPI_Comm_split")]
    pub fn split(&self, color: impl Into<Option<u32>>, key: i64) -> Result<Option<Self>> {
        self.before(Creation::Split)?;
        let new = self.remote.raise(self.inner.split(color.into(), key))?;
        Ok(new.map(Self::wrap))
    }

    /// One communicator of both groups (MPI-4 section 7.6.2, `MPI_Intercomm_merge`): the group that
    /// says `high` comes after the one that does not; if both say the same, in some order.
    /// Collective over both.
    ///
    /// # Errors
    /// As [`Comm::dup`], and [`InvalidArgument`](ErrorKind::InvalidArgument), on every rank, if the
    /// ranks of a group disagree about `high`.
    #[doc(alias = "MPI_Intercomm_merge")]
    pub fn merge(&self, high: bool) -> Result<Comm<L, D>> {
        self.before(Creation::Merge)?;
        self.remote.raise(self.inner.merge(high)).map(Comm::wrap)
    }

    /// Compares what the ranks of both groups call in the debug mode, before a creation over both.
    fn before(&self, creation: Creation<'_>) -> Result<()> {
        self.remote
            .raise(compare_inter_creation(&self.inner, creation))
    }
}

impl<L: Level, D: Device> Clone for InterComm<L, D> {
    fn clone(&self) -> Self {
        Self {
            remote: self.remote.clone(),
            inner: self.inner.clone(),
        }
    }
}

impl<L: Level, D: Device> std::fmt::Debug for InterComm<L, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InterComm")
            .field("name", &self.remote.name())
            .field("rank", &self.rank())
            .field("size", &self.size())
            .field("remote_size", &self.remote_size())
            .finish_non_exhaustive()
    }
}
