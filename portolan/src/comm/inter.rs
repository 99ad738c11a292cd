//! Communication between two groups: the typed wrappers of `core`'s intercommunicators.

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

/// Two groups that communicate with each other (MPI-4 section 7.6): a rank addresses ranks of the
/// *other* group.
///
/// Made by [`Comm::intercomm_create`]. Like [`Comm`], it is a cheap counted handle.
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

/// How a leader reaches the other group's leader ([`Comm::intercomm_create`]).
#[derive(Clone, Copy, Debug)]
pub struct RemoteLeader<'a, L: Level = Single, D: Device = AnyDevice<L>> {
    /// A communicator that contains both leaders.
    pub peer: &'a Comm<L, D>,
    /// The other leader's rank there.
    pub rank: u32,
    /// Distinguishes creations that the same two leaders make at once; unrelated to the tags of
    /// messages.
    pub tag: Tag,
}

impl<L: Level, D: Device> Comm<L, D> {
    /// Makes the intercommunicator of this communicator's ranks and another communicator's (MPI-4
    /// section 7.6.2, `MPI_Intercomm_create`). Collective over both: each side calls it on its own
    /// communicator, with one of its ranks as `leader`, the same on all of them. Only the leader
    /// needs to give `remote`; the other ranks' is ignored.
    ///
    /// # Errors
    /// [`InvalidRank`](ErrorKind::InvalidRank) if a leader is outside of its communicator;
    /// [`InvalidTag`](ErrorKind::InvalidTag); [`InvalidArgument`](ErrorKind::InvalidArgument) if
    /// the leader has no `remote`, the ranks of a side name different leaders, or a rank is on both
    /// sides;
    /// [`InvalidCommunicator`](ErrorKind::InvalidCommunicator) if the leaders' communicator belongs
    /// to another job; those of [`dup`](Self::dup). Errors in a leader's arguments are reported on
    /// every rank of its side.
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

    /// The other group, as a communicator for messages: sends and receives on it, in all their
    /// forms, address ranks of the other group. Its [`size`](Comm::size) is the other group's, and
    /// its [`rank`](Comm::rank) is the caller's in its own group. Its name, attributes and error
    /// mode are the intercommunicator's. Collective calls on it fail with
    /// [`InvalidCommunicator`](ErrorKind::InvalidCommunicator).
    #[inline]
    pub fn remote(&self) -> &Comm<L, D> {
        &self.remote
    }

    /// The caller's rank in its own group (MPI-4 section 7.4.1, `MPI_Comm_rank`).
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

    /// Number of ranks in the caller's group (MPI-4 section 7.4.1, `MPI_Comm_size`).
    #[doc(alias = "MPI_Comm_size")]
    #[must_use]
    pub fn size(&self) -> u32 {
        self.inner.size()
    }

    /// Number of ranks in the other group (MPI-4 section 7.6.1, `MPI_Comm_remote_size`).
    #[doc(alias = "MPI_Comm_remote_size")]
    #[must_use]
    pub fn remote_size(&self) -> u32 {
        self.inner.remote_size()
    }

    /// The ranks of the caller's group (MPI-4 section 7.3.2, `MPI_Comm_group`).
    #[doc(alias = "MPI_Comm_group")]
    #[must_use]
    pub fn group(&self) -> Group {
        self.inner.local_group().clone()
    }

    /// The ranks of the other group (MPI-4 section 7.6.1, `MPI_Comm_remote_group`).
    #[doc(alias = "MPI_Comm_remote_group")]
    #[must_use]
    pub fn remote_group(&self) -> Group {
        self.inner.remote_group().clone()
    }

    /// How similar two intercommunicators are (MPI-4 section 7.4.1, `MPI_Comm_compare`).
    #[doc(alias = "MPI_Comm_compare")]
    #[must_use]
    pub fn compare(&self, other: &Self) -> Comparison {
        self.inner.compare(&other.inner)
    }

    /// Sets how errors are handled from now on (MPI-4 section 9.3, `MPI_Comm_set_errhandler`).
    #[doc(alias = "MPI_Comm_set_errhandler")]
    pub fn set_errors(&self, errors: Errors) {
        self.inner.set_errors(errors);
    }

    /// Makes another intercommunicator of the same groups (MPI-4 section 7.4.2, `MPI_Comm_dup`).
    /// Collective over both.
    ///
    /// # Errors
    /// As [`Comm::dup`].
    #[doc(alias = "MPI_Comm_dup")]
    pub fn dup(&self) -> Result<Self> {
        self.before(Creation::Dup)?;
        self.remote.raise(self.inner.dup()).map(Self::wrap)
    }

    /// Makes the intercommunicator of some ranks of either group (MPI-4 section 7.4.2,
    /// `MPI_Comm_create`). Each group chooses among its own ranks: all ranks of a group give the
    /// same `group`. Returns `None` on ranks that do not take part, and on all ranks if either
    /// group chooses none. Collective over both.
    ///
    /// # Errors
    /// As [`Comm::dup`], and [`InvalidArgument`](ErrorKind::InvalidArgument) on every rank if the
    /// `group` of some rank has members outside of its local group, or if the ranks of a group give
    /// different ones.
    #[doc(alias = "MPI_Comm_create")]
    pub fn create(&self, group: &Group) -> Result<Option<Self>> {
        self.before(Creation::Create)?;
        let new = self.remote.raise(self.inner.create_part(group))?;
        Ok(new.map(Self::wrap))
    }

    /// Makes one intercommunicator for each color that ranks of both groups give (MPI-4 section
    /// 7.4.2, `MPI_Comm_split`). Returns `None` on ranks that give no color, or one that no rank of
    /// the other group gives. The ranks on either side are ordered by `key`, and by their rank in
    /// this intercommunicator where keys are equal. Collective over both.
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

    /// Makes one communicator of both groups (MPI-4 section 7.6.2, `MPI_Intercomm_merge`). The
    /// group that gives `high` comes after the one that does not; if both give the same, the order
    /// is unspecified. Collective over both.
    ///
    /// # Errors
    /// As [`Comm::dup`], and [`InvalidArgument`](ErrorKind::InvalidArgument) on every rank if the
    /// ranks of a group disagree about `high`.
    #[doc(alias = "MPI_Intercomm_merge")]
    pub fn merge(&self, high: bool) -> Result<Comm<L, D>> {
        self.before(Creation::Merge)?;
        self.remote.raise(self.inner.merge(high)).map(Comm::wrap)
    }

    /// In the debug mode, compares the calls of all ranks of both groups before a creation over
    /// both.
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
