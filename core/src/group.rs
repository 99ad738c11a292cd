//! Groups: ordered sets of processes.

use std::sync::Arc;

use crate::device::ProcId;

/// An ordered set of processes; a process's position is its rank (MPI-4 section 7.2.1).
///
/// Counted: clones share the table. The group of all of a job's processes in order takes no table.
#[derive(Clone, Debug)]
pub struct Group(Repr);

#[derive(Clone, Debug)]
enum Repr {
    /// Ranks are process ids: 0 to size − 1.
    Identity(u32),
    Table(Arc<[ProcId]>),
}

impl Group {
    /// The group of the processes 0 to `size` − 1.
    #[must_use]
    pub fn world(size: u32) -> Self {
        Self(Repr::Identity(size))
    }

    /// The group of these processes, in this order.
    #[must_use]
    pub fn new(members: impl Into<Arc<[ProcId]>>) -> Self {
        Self(Repr::Table(members.into()))
    }

    /// Number of members.
    #[inline]
    #[must_use]
    pub fn size(&self) -> u32 {
        match &self.0 {
            Repr::Identity(size) => *size,
            Repr::Table(table) => table.len() as u32,
        }
    }

    /// The process with this rank; `None` outside of the group.
    #[inline]
    #[must_use]
    pub fn process(&self, rank: u32) -> Option<ProcId> {
        match &self.0 {
            Repr::Identity(size) => (rank < *size).then(|| ProcId::new(rank)),
            Repr::Table(table) => table.get(rank as usize).copied(),
        }
    }

    /// The rank of a process; `None` if it is not a member.
    #[must_use]
    pub fn rank_of(&self, process: ProcId) -> Option<u32> {
        match &self.0 {
            Repr::Identity(size) => (process.index() < *size).then(|| process.index()),
            Repr::Table(table) => table
                .iter()
                .position(|&member| member == process)
                .map(|rank| rank as u32),
        }
    }

    /// The members by rank.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = ProcId> + '_ {
        (0..self.size() as usize).map(|rank| match &self.0 {
            Repr::Identity(_) => ProcId::new(rank as u32),
            Repr::Table(table) => table[rank],
        })
    }
}

impl PartialEq for Group {
    fn eq(&self, other: &Self) -> bool {
        self.size() == other.size() && self.iter().eq(other.iter())
    }
}

impl Eq for Group {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_and_table_agree() {
        let table = Group::new((0..4).map(ProcId::new).collect::<Vec<_>>());
        assert_eq!(Group::world(4), table);
        assert_eq!(table.process(3), Some(ProcId::new(3)));
        assert_eq!(table.process(4), None);
        assert_eq!(Group::world(4).rank_of(ProcId::new(4)), None);
        assert_eq!(
            Group::new(vec![ProcId::new(7)]).rank_of(ProcId::new(7)),
            Some(0)
        );
    }
}
