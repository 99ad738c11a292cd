//! Communicators made out of communicators: the typed wrappers of `core`'s calls.

use portolan_coll::{Creation, compare_creation};
#[cfg(doc)]
use portolan_core::ErrorKind;
use portolan_core::comm::{SplitBy, Tag};
use portolan_core::group::{Comparison, Group};
use portolan_core::level::Level;
use portolan_core::{Device, Result};

use super::Comm;

impl<L: Level, D: Device> Comm<L, D> {
    /// The ranks as a group, from which the program can choose some (MPI-4 section 7.3.2,
    /// `MPI_Comm_group`).
    ///
    /// ```
    /// let odd = portolan::try_threads(5, |world| {
    ///     let comm = world.comm();
    ///     let odd = comm.group().include(&[3, 1])?;
    ///     let odd = comm.create(&odd)?;
    ///     assert_eq!(odd.is_some(), comm.rank() % 2 == 1);
    ///     Ok(odd.map(|odd| odd.rank()))
    /// })?;
    /// assert_eq!(odd, [None, Some(1), None, Some(0), None]);
    /// # Ok::<(), portolan::Error>(())
    /// ```
    #[doc(alias = "MPI_Comm_group")]
    #[must_use]
    pub fn group(&self) -> Group {
        self.inner.group().clone()
    }

    /// The members that are known to be dead, or to have left while something was still wanted of
    /// them, as a group; empty as long as all is well. Not collective: other ranks may know of more
    /// or fewer. The others are `comm.group().difference(&comm.failed())`.
    ///
    /// Only a job that goes on after a death has a use for this
    /// ([`OnFailure::Return`](crate::OnFailure)). An error that says that a rank has failed names
    /// that rank by its number in the whole job ([`Error::peer`](crate::Error::peer)).
    #[must_use]
    pub fn failed(&self) -> Group {
        let (group, device) = (self.inner.group(), self.inner.device());
        // Waits until a death that some call has told of already counts everywhere in the device.
        let _ = device.dead_member(group);
        let is_dead = |(_, member): &(u32, _)| device.failure_of(*member).is_some();
        let dead: Vec<u32> = (0..)
            .zip(group.iter())
            .filter(is_dead)
            .map(|(rank, _)| rank)
            .collect();
        match group.include(&dead) {
            Ok(dead) => dead,
            Err(_) => unreachable!("ranks of the group, each once"),
        }
    }

    /// How similar two communicators are (MPI-4 section 7.4.1, `MPI_Comm_compare`).
    #[doc(alias = "MPI_Comm_compare")]
    #[must_use]
    pub fn compare(&self, other: &Self) -> Comparison {
        self.inner.compare(&other.inner)
    }

    /// Makes a communicator of the ranks in `group` (MPI-4 section 7.4.2, `MPI_Comm_create`);
    /// returns `None` on the other ranks. Collective over this communicator.
    ///
    /// Different ranks may give different groups if these have no rank in common: one call then
    /// makes several communicators.
    ///
    /// # Errors
    /// As [`dup`](Self::dup), and [`InvalidArgument`](ErrorKind::InvalidArgument) if a rank in
    /// `group` is not in this communicator.
    #[doc(alias = "MPI_Comm_create")]
    pub fn create(&self, group: &Group) -> Result<Option<Self>> {
        self.before(Creation::Create)?;
        let new = self.raise(self.inner.create(group))?;
        Ok(new.map(Self::wrap))
    }

    /// As [`create`](Self::create), but collective over `group` only (MPI-4 section 7.4.2,
    /// `MPI_Comm_create_group`). The other ranks need not call it; if they do, it returns `None` at
    /// once. Several threads may create groups on one communicator at once, with different tags.
    ///
    /// # Errors
    /// As [`create`](Self::create), and [`InvalidTag`](ErrorKind::InvalidTag).
    #[doc(alias = "MPI_Comm_create_group")]
    pub fn create_group(&self, group: &Group, tag: impl Into<Tag>) -> Result<Option<Self>> {
        let new = self.raise(self.inner.create_group(group, tag.into()))?;
        Ok(new.map(Self::wrap))
    }

    /// Makes one communicator for each color that the ranks give (MPI-4 section 7.4.2,
    /// `MPI_Comm_split`); returns `None` on ranks that give none. The ranks of a new communicator
    /// are ordered by `key`, and by their rank in this communicator where keys are equal.
    /// Collective.
    ///
    /// ```
    /// // The rows of a matrix of ranks with three columns.
    /// portolan::try_threads(6, |world| {
    ///     let comm = world.comm();
    ///     let row = comm.split(comm.rank() / 3, 0)?.expect("every rank has a row");
    ///     assert_eq!((row.size(), row.rank()), (3, comm.rank() % 3));
    ///     assert!(comm.split(None, 0)?.is_none());
    ///     Ok(())
    /// })?;
    /// # Ok::<(), portolan::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`dup`](Self::dup).
    #[doc(alias = "MPI_Comm_split")]
    pub fn split(&self, color: impl Into<Option<u32>>, key: i64) -> Result<Option<Self>> {
        self.before(Creation::Split)?;
        let new = self.raise(self.inner.split(color.into(), key))?;
        Ok(new.map(Self::wrap))
    }

    /// Makes one communicator for each set of ranks that can share memory, in the order of their
    /// ranks in this communicator (MPI-4 section 7.4.2, `MPI_Comm_split_type` with
    /// `MPI_COMM_TYPE_SHARED`). Collective.
    ///
    /// What counts is the transport: one that cannot make memory that ranks share, such as `ofi`,
    /// gives each rank a communicator of its own. For the ranks of a node, for example to choose
    /// their accelerators, use [`split_by`](Self::split_by) with [`SplitBy::Node`].
    ///
    /// # Errors
    /// As [`dup`](Self::dup).
    #[doc(alias("MPI_Comm_split_type", "MPI_COMM_TYPE_SHARED"))]
    pub fn split_shared(&self) -> Result<Self> {
        self.split_by(SplitBy::SharedMemory, 0)
    }

    /// As [`split_shared`](Self::split_shared), for any property that the transport knows ranks to
    /// share; the ranks are ordered by `key` (MPI-4 section 7.4.2, `MPI_Comm_split_type`).
    /// Collective.
    ///
    /// # Errors
    /// As [`dup`](Self::dup).
    #[doc(alias = "MPI_Comm_split_type")]
    pub fn split_by(&self, by: SplitBy, key: i64) -> Result<Self> {
        self.before(Creation::SplitBy(by))?;
        self.raise(self.inner.split_by(by, key).map(Self::wrap))
    }

    /// As [`split_by`](Self::split_by), for the ranks whose `in_one` is true. The other ranks make
    /// the call as well, and get `None` (`MPI_UNDEFINED`).
    ///
    /// # Errors
    /// As [`dup`](Self::dup).
    #[doc(alias = "MPI_UNDEFINED")]
    pub fn split_some_by(&self, by: SplitBy, in_one: bool, key: i64) -> Result<Option<Self>> {
        self.before(Creation::SplitBy(by))?;
        let part = self.inner.split_some_by(by, in_one, key);
        self.raise(part.map(|part| part.map(Self::wrap)))
    }

    /// In the debug mode, compares the calls of all ranks before a creation that is collective over
    /// this communicator.
    pub(super) fn before(&self, creation: Creation<'_>) -> Result<()> {
        self.raise(compare_creation(&self.inner, creation))
    }
}
