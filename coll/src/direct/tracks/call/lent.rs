//! Contributions that may be lent ([`lending`](crate::direct::tracks::lending)): where they lie,
//! and where the other of two ranks copies them to.

use portolan_core::Result;

use super::{Call, What};
use crate::direct::blocking::pair::combine_pair;
use crate::direct::data::Stream;

impl Call<'_> {
    /// Whether this rank has a contribution.
    pub(in crate::direct) fn gives(&self) -> bool {
        !matches!(self.what, What::Bcast { root, .. } if root != self.rank)
    }

    /// The address of the contribution, if it lies in one piece and is not written before the other
    /// rank has done with it.
    pub(in crate::direct) fn piece(&self) -> Option<*const u8> {
        let other = 1 - self.rank;
        let data = match &self.what {
            What::Bcast { data, root } if *root == self.rank => *data,
            What::Allgather { send, recv, .. } => {
                send.unwrap_or_else(|| Stream::block(recv, self.rank))
            }
            What::Alltoall { send, .. } => Stream::block((*send)?, other),
            What::Reduce {
                items,
                from,
                to: Some(to),
                ..
            } if from != to && items.is_contiguous() => return Some(from.cast_const()),
            _ => return None,
        };
        data.is_contiguous().then(|| data.address().cast_const())
    }

    /// Where the other rank's contribution can be copied to as it is: where it belongs, if that is
    /// one piece and nothing is combined.
    pub(in crate::direct) fn target(&self) -> Option<*mut u8> {
        let data = self.place_of_theirs()?;
        data.is_contiguous().then(|| data.address())
    }

    /// Takes the other rank's contribution, which is at `from`. `takes` says whether to take its
    /// lines.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    ///
    /// # Safety
    /// As [`take`](Self::take), for the contribution of one rank.
    pub(in crate::direct) unsafe fn take_theirs(&self, from: *mut u8, takes: bool) -> Result<()> {
        match &self.what {
            What::Reduce {
                items,
                from: own,
                to: Some(to),
                ..
            } => {
                // SAFETY: from the caller.
                unsafe { combine_pair(self.rank, items, *own, (from, takes), *to) }
            }
            _ => {
                if let Some(to) = self.place_of_theirs() {
                    // SAFETY: from the caller.
                    unsafe { to.take(0, from, self.len, takes) };
                }
                Ok(())
            }
        }
    }

    /// Where the other rank's contribution belongs; `None` if it is combined.
    fn place_of_theirs(&self) -> Option<Stream<'_>> {
        let other = 1 - self.rank;
        match &self.what {
            What::Bcast { data, .. } => Some(*data),
            What::Allgather { recv, .. } => Some(Stream::block(recv, other)),
            What::Alltoall { recv, .. } => Some(Stream::block(recv, other)),
            _ => None,
        }
    }
}
