//! Teams: some ranks of a communicator, in an order of their own.

use std::sync::Arc;

/// Some ranks of a communicator in an order of their own, and the caller's place among them.
///
/// Algorithms count in places of a team. In the team of all ranks a place is a rank. In the team of
/// one node, or of one rank per node, the same algorithm is one level of a two-level form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Team {
    rank: u32,
    members: Members,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Members {
    Range { first: u32, count: u32 },
    Listed(Arc<[u32]>),
}

impl Team {
    /// All `size` ranks of a communicator, as seen by `rank`.
    #[must_use]
    pub fn all(rank: u32, size: u32) -> Self {
        Self::range(rank, 0, size)
    }

    /// `count` ranks of a communicator from rank `first` on, as seen by the one in place `rank`.
    #[must_use]
    pub fn range(rank: u32, first: u32, count: u32) -> Self {
        Self {
            rank,
            members: Members::Range { first, count },
        }
    }

    /// The ranks of a communicator in `members`, as seen by the one in place `rank`.
    #[must_use]
    pub fn of(rank: u32, members: impl Into<Arc<[u32]>>) -> Self {
        Self {
            rank,
            members: Members::Listed(members.into()),
        }
    }

    /// The caller's place.
    #[inline]
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of members.
    #[inline]
    #[must_use]
    pub fn size(&self) -> u32 {
        match &self.members {
            Members::Range { count, .. } => *count,
            Members::Listed(members) => members.len() as u32,
        }
    }

    /// The rank, in the communicator, of the member in a place.
    ///
    /// # Panics
    /// If there is no such place (for listed members; in debug builds for a range).
    #[inline]
    #[must_use]
    pub fn member(&self, place: u32) -> u32 {
        match &self.members {
            Members::Range { first, count } => {
                debug_assert!(place < *count);
                first + place
            }
            Members::Listed(members) => members[place as usize],
        }
    }

    /// The place of a rank of the communicator, if it is a member.
    #[must_use]
    pub fn place_of(&self, rank: u32) -> Option<u32> {
        match &self.members {
            Members::Range { first, count } => {
                rank.checked_sub(*first).filter(|place| place < count)
            }
            Members::Listed(members) => members.iter().position(|&m| m == rank).map(|p| p as u32),
        }
    }
}
