//! Intercommunicators of parts of two groups that have an intercommunicator already.
//!
//! Both groups agree together, over the communicator that they share, so no leader is needed. Every
//! rank learns which ranks take part on either side. If one side is empty, all ranks know it, and
//! make nothing.

use super::super::among::mark;
use super::super::meet::Call;
use super::InterCommunicator;
use crate::device::Device;
use crate::error::{ErrorKind, Result};
use crate::group::Group;

/// The ranks that take part: ranks of the [merged](InterCommunicator::merged) communicator, in
/// their new order.
struct Sides {
    local: Vec<u32>,
    remote: Vec<u32>,
}

impl<D: Device> InterCommunicator<D> {
    /// The intercommunicator of some ranks of either group (`MPI_Comm_create`). Each group passes
    /// those of its own ranks that take part, and all of its ranks pass the same. `None` on ranks
    /// that do not take part, and on all ranks if a group passes an empty one. Collective over both
    /// groups.
    ///
    /// # Errors
    /// As [`Communicator::dup`](crate::comm::Communicator::dup), and
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) if any rank's `group` has a member that is
    /// not in the local group, or if the ranks of a group pass different ones. All ranks of both
    /// groups get this error, because a rank with correct arguments could not notice by itself.
    pub fn create_part(&self, group: &Group) -> Result<Option<Self>> {
        let merged = self.merged();
        let checked = merged.check_members_of(group, self.local_group());
        let place = group.rank_of(merged.process());
        // One more than the place, so that 0 means none; and whether this rank's group is invalid,
        // which the others must learn.
        let mine = [
            place.map_or(0, |place| u64::from(place) + 1),
            mark(group),
            u64::from(checked.is_err()),
        ];
        merged.meet(Call::Create)?;
        let all = merged.allgather_words(&mine)?;
        checked?;
        let (said, _) = all.as_chunks::<3>();
        if let Some(wrong) = said.iter().position(|[.., wrong]| *wrong != 0) {
            return Err(merged.error(
                ErrorKind::InvalidArgument,
                format!("rank {wrong} of the two groups together gave members that are not in its own group"),
                "give ranks of the local group on each side",
            ));
        }
        let of_one_mind = |side: &[[u64; 3]]| side.iter().all(|[_, mark, _]| *mark == side[0][1]);
        let first = self.first_of_second() as usize;
        if !of_one_mind(&said[..first]) || !of_one_mind(&said[first..]) {
            return Err(merged.error(
                ErrorKind::InvalidArgument,
                "the ranks of a group disagree about who of it takes part".to_owned(),
                "give the same group on all ranks of a side",
            ));
        }
        let sides = self.sides(|rank| Some(said[rank as usize][0]).filter(|&place| place != 0));
        if sides.is_one_sided() {
            return Ok(None);
        }
        self.on_sides(place.map(|_| sides))
    }

    /// One intercommunicator per `color` that is passed in both groups, made of the ranks that pass
    /// it (`MPI_Comm_split`). `None` for ranks that pass no color (`MPI_UNDEFINED`), and for those
    /// whose color no rank of the other group passes. The new ranks on either side are ordered by
    /// `key`, and by rank in the old group where keys are equal. Collective over both groups.
    ///
    /// # Errors
    /// As [`Communicator::dup`](crate::comm::Communicator::dup).
    pub fn split(&self, color: Option<u32>, key: i64) -> Result<Option<Self>> {
        let mine = color.map_or(0, |color| u64::from(color) + 1);
        let merged = self.merged();
        merged.meet(Call::Split)?;
        let all = merged.allgather_words(&[mine, key.cast_unsigned()])?;
        let (said, _) = all.as_chunks::<2>();
        let of = |color: u64| {
            self.sides(|rank| {
                let [theirs, key] = said[rank as usize];
                (theirs == color).then(|| key.cast_signed())
            })
        };
        let (first, second) = said.split_at(self.first_of_second() as usize);
        let there = |[color, _]: &[u64; 2]| *color != 0 && second.iter().any(|[c, _]| c == color);
        if !first.iter().any(there) {
            return Ok(None);
        }
        let sides = color.map(|_| of(mine));
        self.on_sides(sides.filter(|sides| !sides.is_one_sided()))
    }

    /// The rank in the merged communicator of the second group's first member.
    fn first_of_second(&self) -> u32 {
        self.local_offset().max(self.remote_offset())
    }

    /// The ranks on either side for which `key` returns a key, ordered by key.
    fn sides<K: Ord>(&self, key: impl Fn(u32) -> Option<K>) -> Sides {
        let ordered = |first: u32, count: u32| {
            let keyed = |rank: u32| key(rank).map(|key| (key, rank));
            let mut part: Vec<(K, u32)> = (first..first + count).filter_map(keyed).collect();
            part.sort_unstable();
            part.into_iter().map(|(_, rank)| rank).collect()
        };
        Sides {
            local: ordered(self.local_offset(), self.size()),
            remote: ordered(self.remote_offset(), self.remote_size()),
        }
    }

    /// Agrees on the contexts of a new intercommunicator, and makes it of the ranks in `sides`;
    /// `None` for other ranks. The ranks of both groups must have met.
    fn on_sides(&self, sides: Option<Sides>) -> Result<Option<Self>> {
        let (merged, low) = (self.merged(), self.0.low);
        let groups = match sides {
            None => None,
            Some(Sides { local, remote }) => {
                let all = merged.group();
                Some((all.include(&local)?, all.include(&remote)?))
            }
        };
        let pool = &merged.0.job.pool;
        let both = merged.decide()?;
        let across = merged
            .agree(Call::Across)
            // Other ranks may have agreed, and sent already.
            .inspect_err(|_| pool.release_unswept(both))?;
        let Some((local, remote)) = groups else {
            pool.release(both);
            pool.release(across);
            return Ok(None);
        };
        let group = if low {
            local.union(&remote)
        } else {
            remote.union(&local)
        };
        let rank = group.rank_of(merged.process()).unwrap_or(0);
        let new = merged.derive(group, rank, both, None);
        let new = new.inspect_err(|_| pool.release_unswept(across))?;
        Self::with(new, across, self.messages(), local, low).map(Some)
    }
}

impl Sides {
    /// Whether either side is empty.
    fn is_one_sided(&self) -> bool {
        self.local.is_empty() || self.remote.is_empty()
    }
}
