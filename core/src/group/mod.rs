//! Groups: ordered sets of processes (MPI-4 section 7.3).
//!
//! Groups are local: nothing here communicates. This file defines them; `algebra.rs` makes groups
//! from groups.
//!
//! Most groups in real programs are regular: all ranks, those of one node, every n-th. They need no
//! table, however many processes they have. Other groups have a table, and an index by process,
//! which is made when a rank is first looked up.

mod algebra;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

pub use algebra::{Comparison, RankRange};

use crate::device::ProcId;

/// An ordered set of processes. A process's position is its rank (MPI-4 section 7.2.1).
///
/// Reference counted: clones share the table.
///
/// ```
/// use portolan_core::{Group, ProcId};
///
/// let world = Group::world(8);
/// let odd = world.include(&[1, 3, 5, 7])?;
/// assert_eq!(odd.process(2), Some(ProcId::new(5)));
/// assert_eq!(world.difference(&odd).rank_of(ProcId::new(6)), Some(3));
/// # Ok::<(), portolan_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Group(Repr);

#[derive(Clone, Debug)]
enum Repr {
    /// Ranks are process ids: 0 to size − 1.
    Identity(u32),
    /// Rank r is process first + r · stride; the stride is not 0, and the size at least 1.
    Strided { first: u32, stride: i32, size: u32 },
    /// Anything else.
    Table(Arc<Table>),
}

#[derive(Debug)]
struct Table {
    members: Box<[ProcId]>,
    /// The ranks, ordered by process.
    by_process: OnceLock<Box<[u32]>>,
}

/// Up to this many members, a linear search is faster than the index.
const SHORT: usize = 16;

impl Group {
    /// The group of the processes 0 to `size` − 1.
    #[must_use]
    pub fn world(size: u32) -> Self {
        Self(Repr::Identity(size))
    }

    /// The group without members (`MPI_GROUP_EMPTY`).
    #[doc(alias = "MPI_GROUP_EMPTY")]
    #[must_use]
    pub fn empty() -> Self {
        Self::world(0)
    }

    /// The group of these processes, in this order. If a process occurs again, only its first
    /// position counts.
    #[must_use]
    pub fn new(members: impl Into<Vec<ProcId>>) -> Self {
        let mut members = members.into();
        if let Some(regular) = regular(&members) {
            return Self(regular);
        }
        let sorted = by_process(&members);
        let again: Vec<u32> = sorted
            .windows(2)
            .filter(|pair| members[pair[0] as usize] == members[pair[1] as usize])
            .map(|pair| pair[1])
            .collect();
        if !again.is_empty() {
            let mut keep = vec![true; members.len()];
            again.iter().for_each(|&rank| keep[rank as usize] = false);
            let mut keep = keep.into_iter();
            members.retain(|_| keep.next() == Some(true));
        }
        Self::distinct(members)
    }

    /// The group of processes that are known to be distinct.
    fn distinct(members: Vec<ProcId>) -> Self {
        let table = |members: Vec<ProcId>| {
            Repr::Table(Arc::new(Table {
                members: members.into_boxed_slice(),
                by_process: OnceLock::new(),
            }))
        };
        Self(regular(&members).unwrap_or_else(|| table(members)))
    }

    /// Number of members (`MPI_Group_size`).
    #[doc(alias = "MPI_Group_size")]
    #[inline]
    #[must_use]
    pub fn size(&self) -> u32 {
        match &self.0 {
            Repr::Identity(size) | Repr::Strided { size, .. } => *size,
            Repr::Table(table) => table.members.len() as u32,
        }
    }

    /// Whether the group has no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.size() == 0
    }

    /// The process with this rank; `None` outside of the group.
    #[inline]
    #[must_use]
    pub fn process(&self, rank: u32) -> Option<ProcId> {
        match &self.0 {
            Repr::Identity(size) => (rank < *size).then(|| ProcId::new(rank)),
            Repr::Strided {
                first,
                stride,
                size,
            } => (rank < *size).then(|| nth(*first, *stride, rank)),
            Repr::Table(table) => table.members.get(rank as usize).copied(),
        }
    }

    /// The rank of a process; `None` if it is not a member (`MPI_Group_rank` for the caller's).
    #[doc(alias = "MPI_Group_rank")]
    #[must_use]
    pub fn rank_of(&self, process: ProcId) -> Option<u32> {
        match &self.0 {
            Repr::Identity(size) => (process.index() < *size).then(|| process.index()),
            Repr::Strided {
                first,
                stride,
                size,
            } => {
                let (distance, stride) = (
                    i64::from(process.index()) - i64::from(*first),
                    i64::from(*stride),
                );
                let rank = distance / stride;
                (distance % stride == 0 && (0..i64::from(*size)).contains(&rank))
                    .then_some(rank as u32)
            }
            Repr::Table(table) => table.rank_of(process),
        }
    }

    /// Whether a process is a member.
    #[must_use]
    pub fn contains(&self, process: ProcId) -> bool {
        self.rank_of(process).is_some()
    }

    /// The members, ordered by rank.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = ProcId> + '_ {
        (0..self.size() as usize).map(|rank| match &self.0 {
            Repr::Identity(_) => ProcId::new(rank as u32),
            Repr::Strided { first, stride, .. } => nth(*first, *stride, rank as u32),
            Repr::Table(table) => table.members[rank],
        })
    }
}

impl PartialEq for Group {
    /// Whether both have the same members in the same order.
    fn eq(&self, other: &Self) -> bool {
        self.size() == other.size() && self.iter().eq(other.iter())
    }
}

impl Eq for Group {}

impl Table {
    fn rank_of(&self, process: ProcId) -> Option<u32> {
        if self.members.len() <= SHORT {
            let rank = self.members.iter().position(|&member| member == process);
            return rank.map(|rank| rank as u32);
        }
        let ranks = self.by_process.get_or_init(|| by_process(&self.members));
        let at = ranks.binary_search_by_key(&process, |&rank| self.members[rank as usize]);
        at.ok().map(|place| ranks[place])
    }
}

/// The ranks, ordered by process, and by rank where a process occurs more than once.
fn by_process(members: &[ProcId]) -> Box<[u32]> {
    let mut ranks: Box<[u32]> = (0..members.len() as u32).collect();
    ranks.sort_unstable_by_key(|&rank| (members[rank as usize], rank));
    ranks
}

#[inline]
fn nth(first: u32, stride: i32, rank: u32) -> ProcId {
    ProcId::new(first.wrapping_add(rank.wrapping_mul(stride.cast_unsigned())))
}

/// The form without a table, if the members are regular. They are distinct then.
fn regular(members: &[ProcId]) -> Option<Repr> {
    let size = members.len() as u32;
    let Some(first) = members.first().map(|member| member.index()) else {
        return Some(Repr::Identity(0));
    };
    let second = members.get(1).map_or(first.wrapping_add(1), |m| m.index());
    let stride = i32::try_from(i64::from(second) - i64::from(first)).ok()?;
    let even = |pair: &[ProcId]| {
        i64::from(pair[1].index()) - i64::from(pair[0].index()) == i64::from(stride)
    };
    if stride == 0 || !members.windows(2).all(even) {
        return None;
    }
    Some(match (first, stride) {
        (0, 1) => Repr::Identity(size),
        _ => Repr::Strided {
            first,
            stride,
            size,
        },
    })
}
