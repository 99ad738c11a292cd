//! The type of a rank's items in five bits of a header, by which ranks see that their types match.
//!
//! Messages carry signatures of 32 bits, for which a header has no room. Five bits are enough to
//! tell the primitive types apart; all layouts of several primitives share one sort of their own.
//! As with messages, bytes and packed data match everything.
//!
//! Ranks that see another sort go on as if nothing were wrong, and return the error at the end.
//! That works because all ranks count the same steps as long as the lengths are equal. If they
//! stopped, a rank with bytes, to which no other looks wrong, would wait for them.

use std::fmt;

use portolan_core::buffer::TypedBuf;
use portolan_datatype::{Layout, Primitive, Signature};

use crate::args::{Many, Operation};

/// The sort of a rank's items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::direct) struct Sort(u8);

const _: () = assert!(Primitive::ALL.len() < Sort::MIXED.0 as usize);

impl Sort {
    /// The sort that matches everything.
    pub(in crate::direct) const ANY: Self = Self(0);
    /// The sort of items of several primitives.
    const MIXED: Self = Self((1 << Self::BITS) - 1);
    /// Bits that a sort takes in a header.
    pub(in crate::direct) const BITS: u32 = 5;

    /// The sort of items of this layout.
    #[inline]
    pub(in crate::direct) fn of_layout(layout: &Layout) -> Self {
        match layout.uniform() {
            Some(signature) => Self(signature.bits() as u8),
            None => Self::MIXED,
        }
    }

    /// Whether data of this sort may be received as `other`.
    #[inline]
    pub(in crate::direct) fn matches(self, other: Self) -> bool {
        self == other || self == Self::ANY || other == Self::ANY
    }

    #[inline]
    pub(in crate::direct) fn bits(self) -> u64 {
        self.0.into()
    }

    /// The sort in the lowest bits of `bits`.
    #[inline]
    pub(in crate::direct) fn from_bits(bits: u64) -> Self {
        Self(bits as u8 & Self::MIXED.0)
    }
}

/// The sorts of one rank's items in an operation. The items that it shows may be of another sort
/// than those that it takes: ranks may answer a request of one type with another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::direct) struct Sorts {
    /// The sort of the items that it shows.
    pub(in crate::direct) shown: Sort,
    /// The sort of the items that it takes from others.
    pub(in crate::direct) taken: Sort,
}

impl Sorts {
    /// Sorts that match everything.
    pub(in crate::direct) const ANY: Self = Self {
        shown: Sort::ANY,
        taken: Sort::ANY,
    };

    /// The sorts of what the operation moves at this rank.
    #[inline]
    pub(in crate::direct) fn of(operation: &Operation<'_>, rank: u32) -> Self {
        let one = |buf: &TypedBuf<'_>| Sort::of_layout(buf.layout);
        let many = |many: &Many<'_>| match many {
            Many::Equal(buf) => Sort::of_layout(buf.layout),
            Many::Blocks(blocks) => Sort::of_layout(blocks.layout),
            // Each block has its own layout.
            Many::Layouts(_) => Sort::ANY,
        };
        let both = |sort| Self {
            shown: sort,
            taken: sort,
        };
        let some = |sort: Option<Sort>| sort.unwrap_or(Sort::ANY);
        let at_root = |root, all: &Option<Many<'_>>| {
            let all = all.as_ref().filter(|_| rank == root);
            some(all.map(many))
        };
        match operation {
            Operation::Barrier => Self::ANY,
            Operation::Bcast { data, .. } => both(one(data)),
            Operation::Reduce { send, recv, .. } => {
                both(some(send.as_ref().or(recv.as_ref()).map(one)))
            }
            Operation::Allreduce { recv, .. }
            | Operation::ReduceScatter { recv, .. }
            | Operation::ReduceScatterBlock { recv, .. }
            | Operation::Scan { recv, .. } => both(one(recv)),
            Operation::Allgather { send, recv } => Self {
                shown: send.as_ref().map_or_else(|| many(recv), one),
                taken: many(recv),
            },
            Operation::Alltoall { send, recv } => Self {
                shown: many(send.as_ref().unwrap_or(recv)),
                taken: many(recv),
            },
            Operation::Gather {
                send, recv, root, ..
            } => Self {
                shown: some(send.as_ref().map(one)),
                taken: at_root(*root, recv),
            },
            Operation::Scatter {
                send, recv, root, ..
            } => Self {
                shown: at_root(*root, send),
                taken: some(recv.as_ref().map(one)),
            },
            Operation::NeighbourAllgather { send, recv } => Self {
                shown: one(send),
                taken: many(recv),
            },
            Operation::NeighbourAlltoall { send, recv } => Self {
                shown: many(send),
                taken: many(recv),
            },
        }
    }
}

/// As shown in error messages.
impl fmt::Display for Sort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::MIXED => f.write_str("several types"),
            Self(code) => Signature::from_bits(code.into()).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primitives_are_told_apart_and_bytes_match_everything() {
        let sorts: Vec<Sort> = Primitive::ALL
            .map(|primitive| Sort::of_layout(&Layout::primitive(primitive)))
            .into();
        for (one, primitive) in sorts.iter().zip(Primitive::ALL) {
            for (other, another) in sorts.iter().zip(Primitive::ALL) {
                let wild = primitive.is_wild() || another.is_wild();
                assert_eq!(
                    one.matches(*other),
                    wild || primitive == another,
                    "{primitive} and {another}"
                );
            }
            assert_eq!(Sort::from_bits(one.bits()), *one);
        }
    }

    #[test]
    fn several_primitives_are_of_a_sort_of_their_own() {
        let pair = Layout::structure(
            &[1, 1],
            &[0, 4],
            &[Layout::of::<i32>(), Layout::of::<f32>()],
        );
        let same = Layout::structure(
            &[1, 2],
            &[0, 8],
            &[Layout::of::<f32>(), Layout::of::<f32>()],
        );
        let [pair, same] = [pair, same].map(|layout| Sort::of_layout(&layout.expect("a layout")));
        let single = Sort::of_layout(&Layout::of::<f32>());
        assert!(!pair.matches(single) && pair.matches(pair) && pair.matches(Sort::ANY));
        assert_eq!(same, single);
        assert_eq!(
            [pair.to_string(), single.to_string()],
            ["several types", "f32"]
        );
    }
}
