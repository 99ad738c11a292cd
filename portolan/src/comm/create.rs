//! Communicators out of communicators: typed faces of `core`'s.

use portolan_coll::{Creation, compare_creation};
#[cfg(doc)]
use portolan_core::ErrorKind;
use portolan_core::comm::{SplitBy, Tag};
use portolan_core::group::{Comparison, Group};
use portolan_core::level::Level;
use portolan_core::{Device, Result};

use super::Comm;

impl<L: Level, D: Device> Comm<L, D> {
    /// The ranks, as a group (MPI-4 section 7.3.2, `MPI_Comm_group`): for choosing some of them.
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

    /// How alike two communicators are (MPI-4 section 7.4.1, `MPI_Comm_compare`).
    #[doc(alias = "MPI_Comm_compare")]
    #[must_use]
    pub fn compare(&self, other: &Self) -> Comparison {
        self.inner.compare(&other.inner)
    }

    /// A communicator of the ranks that are in `group` (MPI-4 section 7.4.2, `MPI_Comm_create`);
    /// `None` on the others. Collective over this communicator.
    ///
    /// Ranks that are not in each other's groups may give different ones: several communicators are
    /// made at once then.
    ///
    /// # Errors
    /// As [`dup`](Self::dup), and [`InvalidArgument`](ErrorKind::InvalidArgument) if somebody in
    /// `group` is not in this communicator.
    #[doc(alias = "MPI_Comm_create")]
    pub fn create(&self, group: &Group) -> Result<Option<Self>> {
        self.before(Creation::Create)?;
        let new = self.raise(self.inner.create(group))?;
        Ok(new.map(Self::wrap))
    }

    /// The same, collective over `group` only (MPI-4 section 7.4.2, `MPI_Comm_create_group`): the
    /// other ranks need not call it, and go on at once with `None` if they do. Several threads may
    /// do this at once on one communicator, with different tags.
    ///
    /// # Errors
    /// As [`create`](Self::create), and [`InvalidTag`](ErrorKind::InvalidTag).
    #[doc(alias = "MPI_Comm_create_group")]
    pub fn create_group(&self, group: &Group, tag: impl Into<Tag>) -> Result<Option<Self>> {
        let new = self.raise(self.inner.create_group(group, tag.into()))?;
        Ok(new.map(Self::wrap))
    }

    /// One communicator for each color that ranks give (MPI-4 section 7.4.2, `MPI_Comm_split`);
    /// `None` for those that give none. Their ranks there are in the order of `key`, and of the
    /// ranks here where keys are equal. Collective.
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

    /// One communicator for each set of ranks that can share memory (MPI-4 section 7.4.2,
    /// `MPI_Comm_split_type` with `MPI_COMM_TYPE_SHARED`), in the order of the ranks here.
    /// Collective.
    ///
    /// # Errors
    /// As [`dup`](Self::dup).
    #[doc(alias("MPI_Comm_split_type", "MPI_COMM_TYPE_SHARED"))]
    pub fn split_shared(&self) -> Result<Self> {
        self.split_by(SplitBy::SharedMemory, 0)
    }

    /// The same for anything that the transport knows ranks to have in common, in the order of
    /// `key` (MPI-4 section 7.4.2, `MPI_Comm_split_type`). Collective.
    ///
    /// # Errors
    /// As [`dup`](Self::dup).
    #[doc(alias = "MPI_Comm_split_type")]
    pub fn split_by(&self, by: SplitBy, key: i64) -> Result<Self> {
        self.before(Creation::SplitBy(by))?;
        self.raise(self.inner.split_by(by, key).map(Self::wrap))
    }

    /// The same of the ranks that are `in_one`; `None` for the others (`MPI_UNDEFINED`), which call
    /// it all the same.
    ///
    /// # Errors
    /// As [`dup`](Self::dup).
    #[doc(alias = "MPI_UNDEFINED")]
    pub fn split_some_by(&self, by: SplitBy, in_one: bool, key: i64) -> Result<Option<Self>> {
        self.before(Creation::SplitBy(by))?;
        let part = self.inner.split_some_by(by, in_one, key);
        self.raise(part.map(|part| part.map(Self::wrap)))
    }

    /// Compares what the ranks call in the debug mode, before a creation that is collective over
    /// this communicator.
    pub(super) fn before(&self, creation: Creation<'_>) -> Result<()> {
        self.raise(compare_creation(&self.inner, creation))
    }
}
