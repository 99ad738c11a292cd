//! Making groups from groups: MPI-4 sections 7.3.1 and 7.3.2.

use super::Group;
use crate::device::ProcId;
use crate::error::{Error, ErrorKind, Result};

/// How alike two groups, or two communicators, are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// For groups: the same members in the same order. For communicators: the same communicator
    /// (`MPI_IDENT`).
    #[doc(alias = "MPI_IDENT")]
    Identical,
    /// For communicators only: the same members in the same order, but different contexts
    /// (`MPI_CONGRUENT`).
    #[doc(alias = "MPI_CONGRUENT")]
    Congruent,
    /// The same members in a different order (`MPI_SIMILAR`).
    #[doc(alias = "MPI_SIMILAR")]
    Similar,
    /// Different members (`MPI_UNEQUAL`).
    #[doc(alias = "MPI_UNEQUAL")]
    Unequal,
}

/// Ranks at equal distances: `first`, `first + stride`, … up to at most `last` (one triplet of
/// `MPI_Group_range_incl`). A negative stride counts down.
///
/// ```
/// use portolan_core::group::RankRange;
///
/// let ranks = |first, last, stride| RankRange { first, last, stride }.ranks().map(Vec::from_iter);
/// assert_eq!(ranks(1, 8, 3)?, [1, 4, 7]);
/// assert_eq!(ranks(5, 2, -1)?, [5, 4, 3, 2]);
/// assert!(ranks(5, 2, 1).is_err());
/// # Ok::<(), portolan_core::Error>(())
/// ```
#[doc(alias = "MPI_Group_range_incl")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RankRange {
    /// The first rank.
    pub first: u32,
    /// The bound that the range does not pass.
    pub last: u32,
    /// The distance from each rank to the next; not 0.
    pub stride: i64,
}

impl RankRange {
    /// The ranks of the range, in order.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if the stride is 0 or leads away from
    /// `last`.
    pub fn ranks(self) -> Result<impl ExactSizeIterator<Item = u32>> {
        let Self {
            first,
            last,
            stride,
        } = self;
        let distance = i64::from(last) - i64::from(first);
        if stride == 0 || (distance != 0 && (distance < 0) != (stride < 0)) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("the range of ranks {first} to {last} by {stride} leads nowhere"),
            )
            .remedy("use a stride that leads from the first rank to the last"));
        }
        let steps = (distance / stride) as usize;
        // No product exceeds the distance.
        Ok((0..steps + 1).map(move |n| (i64::from(first) + n as i64 * stride) as u32))
    }
}

impl Group {
    /// This group's members, then the other group's members that are not in this one
    /// (`MPI_Group_union`).
    #[doc(alias = "MPI_Group_union")]
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let added = other.iter().filter(|&process| !self.contains(process));
        Self::distinct(self.iter().chain(added).collect())
    }

    /// This group's members that are also in the other group, in this group's order
    /// (`MPI_Group_intersection`).
    #[doc(alias = "MPI_Group_intersection")]
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self::distinct(self.iter().filter(|&p| other.contains(p)).collect())
    }

    /// This group's members that are not in the other group, in this group's order
    /// (`MPI_Group_difference`).
    #[doc(alias = "MPI_Group_difference")]
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self::distinct(self.iter().filter(|&p| !other.contains(p)).collect())
    }

    /// The members with these ranks, in the given order (`MPI_Group_incl`).
    ///
    /// # Errors
    /// [`InvalidRank`](ErrorKind::InvalidRank) if a rank is outside of the group,
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if a rank occurs twice.
    #[doc(alias = "MPI_Group_incl")]
    pub fn include(&self, ranks: &[u32]) -> Result<Self> {
        self.check_ranks(ranks)?;
        let members: Option<_> = ranks.iter().map(|&rank| self.process(rank)).collect();
        Ok(Self::distinct(members.unwrap_or_default()))
    }

    /// All members except those with these ranks, in this group's order (`MPI_Group_excl`).
    ///
    /// # Errors
    /// As [`include`](Self::include).
    #[doc(alias = "MPI_Group_excl")]
    pub fn exclude(&self, ranks: &[u32]) -> Result<Self> {
        let sorted = self.check_ranks(ranks)?;
        let stay = |(rank, _): &(u32, ProcId)| sorted.binary_search(rank).is_err();
        let members = (0..).zip(self.iter()).filter(stay);
        Ok(Self::distinct(
            members.map(|(_, process)| process).collect(),
        ))
    }

    /// The members in these ranges of ranks, in the given order (`MPI_Group_range_incl`).
    ///
    /// # Errors
    /// As [`include`](Self::include) and [`RankRange::ranks`].
    #[doc(alias = "MPI_Group_range_incl")]
    pub fn include_ranges(&self, ranges: &[RankRange]) -> Result<Self> {
        self.include(&self.expand(ranges)?)
    }

    /// The members outside of these ranges of ranks, in this group's order
    /// (`MPI_Group_range_excl`).
    ///
    /// # Errors
    /// As [`include_ranges`](Self::include_ranges).
    #[doc(alias = "MPI_Group_range_excl")]
    pub fn exclude_ranges(&self, ranges: &[RankRange]) -> Result<Self> {
        self.exclude(&self.expand(ranges)?)
    }

    /// The ranks in another group of the members with these ranks; `None` for members that are not
    /// in the other group (`MPI_Group_translate_ranks`).
    ///
    /// ```
    /// use portolan_core::Group;
    ///
    /// let world = Group::world(6);
    /// let even = world.include(&[4, 2, 0])?;
    /// assert_eq!(world.translate(&[0, 1, 2], &even)?, [Some(2), None, Some(1)]);
    /// # Ok::<(), portolan_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidRank`](ErrorKind::InvalidRank) if a rank is outside of this group.
    #[doc(alias = "MPI_Group_translate_ranks")]
    pub fn translate(&self, ranks: &[u32], other: &Self) -> Result<Vec<Option<u32>>> {
        let there = |&rank: &u32| match self.process(rank) {
            Some(process) => Ok(other.rank_of(process)),
            None => Err(self.outside(rank)),
        };
        ranks.iter().map(there).collect()
    }

    /// How alike the groups are (`MPI_Group_compare`); never
    /// [`Congruent`](Comparison::Congruent).
    #[doc(alias = "MPI_Group_compare")]
    #[must_use]
    pub fn compare(&self, other: &Self) -> Comparison {
        if self == other {
            Comparison::Identical
        } else if self.size() == other.size() && self.iter().all(|p| other.contains(p)) {
            Comparison::Similar
        } else {
            Comparison::Unequal
        }
    }

    /// The first member that is also in the other group.
    #[must_use]
    pub fn common(&self, other: &Self) -> Option<ProcId> {
        self.iter().find(|&process| other.contains(process))
    }

    fn expand(&self, ranges: &[RankRange]) -> Result<Vec<u32>> {
        let mut all = Vec::new();
        for range in ranges {
            let ranks = range.ranks()?;
            // Checks the ends first, so that a huge range need not be expanded to be rejected. The
            // bound itself need not be a rank of the range, nor of the group (MPI-4 section 7.3.2).
            let steps = ranks.len() as i64 - 1;
            let end = (i64::from(range.first) + steps * range.stride) as u32;
            let outside = [range.first, end].into_iter().find(|&r| r >= self.size());
            if let Some(rank) = outside {
                return Err(self.outside(rank));
            }
            all.extend(ranks);
        }
        Ok(all)
    }

    /// The ranks in ascending order, after checking that they are in the group and distinct.
    fn check_ranks(&self, ranks: &[u32]) -> Result<Vec<u32>> {
        if let Some(&rank) = ranks.iter().find(|&&rank| rank >= self.size()) {
            return Err(self.outside(rank));
        }
        let mut sorted = ranks.to_vec();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(sorted),
            Some(pair) => Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("rank {} of the group is named twice", pair[0]),
            )
            .remedy("name every rank once")),
        }
    }

    #[cold]
    fn outside(&self, rank: u32) -> Error {
        let remedy = match self.size() {
            0 => "the group is empty".to_owned(),
            size => format!("use ranks 0 to {}", size - 1),
        };
        let what = format!("rank {rank} is outside of a group of {}", self.size());
        Error::new(ErrorKind::InvalidRank, what).remedy(remedy)
    }
}
