//! What an operation on a track shows and takes, all in one step.
//!
//! Each rank shows its contribution as a whole; a rank that wants a result makes it from what the
//! others show. Operators get operands in the order of the ranks, from the last to the first.

mod describe;
mod lent;
mod moves;

use std::ops::Range;

use crate::args::{Many, Name};
use crate::direct::agree::sort::Sorts;
use crate::direct::agree::verdict::{Verdict, Wrong};
use crate::direct::boards::board::{Header, Kind, Place};
use crate::direct::data::{Items, Stream};
use crate::direct::tracks::along::Along;
use crate::direct::tracks::listed::Listed;
use crate::direct::tracks::messages::Messages;

/// Bytes that the call that starts an operation takes from boards at once, which is a few
/// microseconds. Larger amounts are left to the next poll.
const AT_ONCE: usize = 32 << 10;

/// One rank's part in an operation.
pub(crate) struct Call<'a> {
    pub(in crate::direct) kind: Kind,
    /// Bytes that ranks compare.
    pub(in crate::direct) len: usize,
    /// The sorts of its items.
    pub(in crate::direct) sorts: Sorts,
    /// The place in which the contribution is shown; `None` if the operation goes by messages.
    pub(in crate::direct) place: Option<Place>,
    /// A checksum of counts, written to the cell ([`counts`](crate::direct::agree::counts)).
    pub(in crate::direct) sum: Option<u64>,
    /// The ranks that this one looks at, and those that it wakes: ranks that look at it, and ranks
    /// that might do so by mistake.
    pub(in crate::direct) looks: u32,
    pub(in crate::direct) wakes: u32,
    /// The header that the rank shows, except for the step. It is marked if the cell begins with
    /// the length and the root.
    pub(in crate::direct) shown: Header,
    /// The header that each rank that this one looks at has to show, except for the step. Only
    /// given if it is the same for all and the header alone decides.
    pub(in crate::direct) wanted: Option<Header>,
    /// Whether all or some of its data goes by messages.
    pub(in crate::direct) has_messages: bool,
    /// Whether its contributions may be lent ([`lending`](crate::direct::tracks::lending)): the
    /// same at both of two ranks that agree.
    pub(in crate::direct) may_lend: bool,
    what: What<'a>,
    root: u32,
    rank: u32,
    size: u32,
}

enum What<'a> {
    /// No data, or data that is not shown.
    Nothing,
    Bcast {
        data: Stream<'a>,
        root: u32,
    },
    Reduce {
        /// The items that each rank shows.
        items: Items<'a>,
        from: *mut u8,
        /// The part of them that is combined, and where the result goes.
        part: Range<usize>,
        to: Option<*mut u8>,
    },
    Allgather {
        send: Option<Stream<'a>>,
        recv: &'a Many<'a>,
        /// Whether all blocks are of one length.
        even: bool,
    },
    Alltoall {
        send: Option<&'a Many<'a>>,
        recv: &'a Many<'a>,
    },
    Along(Along<'a>),
    Listed(Listed<'a>),
}

impl<'a> Call<'a> {
    /// The mask of the other ranks.
    #[inline]
    fn all(&self) -> u32 {
        ((1u32 << self.size) - 1) & !(1 << self.rank)
    }

    /// This rank's check of another's part; `None` if its header alone says whether it agrees.
    /// `told` is the length that the other rank states, and `at` says where its places are.
    ///
    /// # Safety
    /// The rank has shown its part, with this header.
    #[inline]
    pub(in crate::direct) unsafe fn judge(
        &self,
        rank: u32,
        header: Header,
        told: impl Fn() -> u64,
        at: impl Fn(Place) -> *mut u8,
    ) -> Option<Verdict> {
        let taken = self.sorts.taken;
        // SAFETY: from the caller, for both.
        unsafe {
            match &self.what {
                What::Listed(part) => match part.agrees(rank, header, taken, &at) {
                    true => Some(Verdict::default()),
                    false => Some(part.judge(rank, header, taken, at)),
                },
                What::Along(along) => Some(along.judge(rank, header, told(), taken, at)),
                _ => None,
            }
        }
    }

    /// What is wrong with the data that this rank has for itself, if that has not been checked
    /// before.
    #[inline]
    pub(in crate::direct) fn judge_itself(&self) -> Option<Wrong> {
        match &self.what {
            What::Along(along) => along.judge_itself(self.sorts),
            _ => None,
        }
    }

    /// Whether this rank has data to show or to take.
    #[inline]
    pub(in crate::direct) fn has_data(&self) -> bool {
        !matches!(self.what, What::Nothing)
    }

    /// Whether taking what others show is so little work that one call may do all of it.
    #[inline]
    pub(in crate::direct) fn is_short(&self) -> bool {
        match self.what {
            // The others' parts may be long even if this rank's is short.
            What::Listed(_) | What::Along(_) => self.work() <= AT_ONCE,
            _ => self.place == Some(Place::Cell) || self.work() <= AT_ONCE,
        }
    }

    /// Approximately how many bytes this rank copies or combines when it takes what others show.
    fn work(&self) -> usize {
        let others = self.looks_at() as usize;
        match &self.what {
            What::Reduce { items, part, .. } => others * items.with(part.len()).len(),
            What::Bcast { .. } | What::Allgather { .. } | What::Alltoall { .. } => {
                others.saturating_mul(self.len)
            }
            What::Along(along) => along.work(),
            What::Listed(part) => part.work(),
            What::Nothing => 0,
        }
    }

    /// The messages of an operation that otherwise goes over boards.
    pub(in crate::direct) fn messages(&self, name: Name) -> Option<Messages> {
        match &self.what {
            What::Listed(part) if part.has_messages() => Some(part.messages(name)),
            What::Along(along) if along.has_messages() => Some(along.messages(self.size, name)),
            _ => None,
        }
    }

    /// How many ranks it looks at.
    #[inline]
    pub(in crate::direct) fn looks_at(&self) -> u32 {
        // Most operations look at one rank, or at all of a few. (The instruction that counts bits
        // is not in every x86-64.)
        match self.looks & self.looks.wrapping_sub(1) {
            0 => u32::from(self.looks != 0),
            _ => self.looks.count_ones(),
        }
    }

    /// Whether this rank waits for others that do not wait for it.
    #[inline]
    pub(in crate::direct) fn waits_alone(&self) -> bool {
        self.looks != 0 && self.looks & self.wakes == 0
    }

    /// The root that all ranks have to name; 0 if the operation has none.
    pub(in crate::direct) fn root(&self) -> u32 {
        self.root
    }

    /// The length that a rank has to show.
    #[inline]
    pub(in crate::direct) fn len_of(&self, rank: u32) -> usize {
        match &self.what {
            What::Allgather { recv, .. } => Stream::block(recv, rank).len(),
            _ => self.len,
        }
    }
}

#[cfg(test)]
mod tests {
    use portolan_core::buffer::{MemoryKind, TypedBuf};
    use portolan_datatype::Layout;

    use super::*;
    use crate::args::Operation;

    #[test]
    fn what_a_start_takes_at_once_is_short_at_every_rank() {
        let byte = Layout::byte();
        // Never dereferenced.
        let buf = |count| TypedBuf {
            ptr: std::ptr::null_mut(),
            count,
            layout: &byte,
            memory: MemoryKind::Host,
        };
        let is_short = |operation: &Operation<'_>, rank| {
            let mut call = Call::new((rank, 5), Sorts::ANY);
            assert!(call.describe(operation, None, 0), "done on a track");
            call.is_short()
        };
        for (block, short) in [(AT_ONCE / 4, true), (AT_ONCE / 4 + 1, false)] {
            let gather = |rank| Operation::Gather {
                send: (rank != 0).then(|| buf(block)),
                recv: (rank == 0).then(|| Many::Equal(buf(block))),
                root: 0,
                uneven: false,
            };
            assert!(is_short(&gather(1), 1), "it takes nothing");
            assert_eq!(is_short(&gather(0), 0), short);
            let send = None;
            let recv = Many::Equal(buf(block));
            for rank in [0, 1] {
                assert_eq!(is_short(&Operation::Allgather { send, recv }, rank), short);
            }
        }
    }
}
