//! Contributions that are lent instead of shown, and who decides that.
//!
//! A contribution of some length is copied twice over a track: into a chunk by its owner, and out
//! of it by its reader, one after the other. Between two ranks the owner can *lend* it instead: it
//! exposes the buffer and says so in its cell, the reader copies from there, once, and says in its
//! own cell that it has. Only then is the buffer the caller's again. Which of the two is faster
//! depends on the machine, so the reader, who sees both, measures them ([`Wishes`]) and says on its
//! board which it wishes. The owner lends where that is wished and its data lies in one piece.
//!
//! In the cells of operations in which contributions may be lent ([`is_lendable`]) there are
//! [`Words`] behind the header, whether anything is lent or not. So a rank that has lent something
//! knows from the other's header whether the other will say that it has read it. A rank whose
//! header is of another kind, or names another length, does not read at all: it has seen that the
//! two do not agree.

use std::sync::Mutex;
use std::sync::atomic::AtomicU32;

use portolan_core::device::Exposure;

use crate::direct::blocking::choice::Class;
use crate::direct::boards::board::{Header, IN_CELL, Kind, small};
use crate::state::lock;

/// Bytes of the shortest contribution that is lent.
pub(in crate::direct) const LEAST: usize = 1 << SHORTEST;
/// Binary logarithms of the shortest and the longest contributions that are lent.
const SHORTEST: u32 = 14;
const LONGEST: u32 = small(0).ilog2();
const LENGTHS: usize = (LONGEST - SHORTEST + 1) as usize;

/// Whether ranks that show this header in an operation of two ranks have [`Words`] in their cells.
#[inline(never)]
pub(in crate::direct) fn is_lendable(header: Header) -> bool {
    (LEAST..=small(0)).contains(&header.len())
        && !header.is_by_messages()
        && header.kind().is_some_and(is_of_kind)
}

/// Whether contributions to such an operation may be lent.
#[inline]
fn is_of_kind(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Bcast | Kind::BcastAwaited | Kind::AllgatherChosen | Kind::Alltoall | Kind::Allreduce
    )
}

/// Whether all blocks of an allgather of two ranks are of one length that may be lent. Such an
/// allgather has a kind of its own.
#[inline]
pub(in crate::direct) fn are_lendable(size: u32, shortest: usize, longest: usize) -> bool {
    size == 2 && shortest == longest && (LEAST..=small(0)).contains(&longest)
}

/// What a rank says in its cell about its contribution, behind the header. All of it shares the
/// header's cache line.
#[derive(Clone, Copy)]
pub(in crate::direct) struct Words(*mut u8);

/// Offsets in the data of a cell.
const HOW: usize = size_of::<Exposure>();
const SEEN: usize = HOW + 4;
const TOOK: usize = SEEN + 4;
const _: () = assert!(TOOK + 4 <= IN_CELL - 64);

/// How a rank gives its contribution: the values of [`Words::how`]. A contribution that was lent is
/// shown after all if the other rank cannot copy it.
pub(in crate::direct) const SHOWN: u32 = 0;
pub(in crate::direct) const LENT: u32 = 1;

/// What a rank has done with the other's contribution: the values of [`Words::seen`].
pub(in crate::direct) const NOT_YET: u32 = 0;
/// It could not copy it, and waits for it to be shown.
pub(in crate::direct) const REFUSED: u32 = 1;
/// It will not read it again.
pub(in crate::direct) const DONE: u32 = 2;

impl Words {
    /// The words in this data of a cell.
    ///
    /// # Safety
    /// The cell is on a board that stays mapped while this is used. Its header is lendable, or will
    /// be.
    pub(in crate::direct) unsafe fn of(data: *mut u8) -> Self {
        Self(data)
    }

    fn word<'a>(self, at: usize) -> &'a AtomicU32 {
        // SAFETY: by the promise to `of`; the data of a cell begins at a multiple of 8, and these
        // words are only accessed as atomics while the header is lendable.
        unsafe { &*self.0.add(at).cast::<AtomicU32>() }
    }

    /// Whether the contribution is [`SHOWN`] or [`LENT`].
    pub(in crate::direct) fn how<'a>(self) -> &'a AtomicU32 {
        self.word(HOW)
    }

    /// What the cell's owner has done with the other's contribution: [`NOT_YET`], [`REFUSED`] or
    /// [`DONE`].
    pub(in crate::direct) fn seen<'a>(self) -> &'a AtomicU32 {
        self.word(SEEN)
    }

    /// Nanoseconds that it took to show the contribution; 0 if that was not measured.
    pub(in crate::direct) fn took<'a>(self) -> &'a AtomicU32 {
        self.word(TOOK)
    }

    /// What is lent.
    ///
    /// # Safety
    /// The contribution is lent.
    pub(in crate::direct) unsafe fn exposure(self) -> Exposure {
        // SAFETY: from the caller; an exposure is bytes.
        Exposure(unsafe { self.0.cast::<[u8; 32]>().read_unaligned() })
    }

    /// Says what is lent.
    ///
    /// # Safety
    /// The cell is this rank's, and free.
    pub(in crate::direct) unsafe fn lend(self, exposure: &Exposure) {
        // SAFETY: from the caller.
        unsafe { self.0.cast::<[u8; 32]>().write_unaligned(exposure.0) };
    }
}

/// Seconds until the owner of something lent hears that it has been read: about the way of one
/// cache line. A step in which nothing is lent does not wait for that.
const HEARS: f64 = 150e-9;

/// Contributions of a similar length, in similar operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::direct) struct Category(usize);

impl Category {
    pub(in crate::direct) fn of(kind: Kind, len: usize) -> Self {
        let length = len.max(1).ilog2().clamp(SHORTEST, LONGEST) - SHORTEST;
        let group = usize::from(kind.is_reduction());
        Self(group * LENGTHS + length as usize)
    }

    fn bit(self) -> u32 {
        1 << self.0
    }
}

const CATEGORIES: usize = 2 * LENGTHS;

/// Contributions that do not come as they were wished before the wish is given up: more than are
/// under way at once in most programs. An owner decides when it starts an operation.
const PATIENCE: u32 = 64;

/// What a rank says on its board: a bit for each category that it wishes to be lent, and a bit for
/// each of which it wishes to know how long the owner takes to show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::direct) struct Wished(pub(in crate::direct) u32);

impl Wished {
    pub(in crate::direct) fn is_lent(self, category: Category) -> bool {
        self.0 & category.bit() != 0
    }

    pub(in crate::direct) fn is_timed(self, category: Category) -> bool {
        self.0 & category.bit() << CATEGORIES != 0
    }
}

/// What a rank has learned about the other's contributions.
#[derive(Debug)]
pub(in crate::direct) struct Wishes(Mutex<Learned>);

#[derive(Debug)]
struct Learned {
    /// For each category, what it costs over boards, and lent.
    classes: [Class; CATEGORIES],
    /// For each, how many contributions in a row have not come as they were wished.
    other: [u32; CATEGORIES],
    /// Whether the system forbids to copy from the other rank's buffers.
    forbidden: bool,
}

impl Wishes {
    pub(in crate::direct) fn new() -> Self {
        Self(Mutex::new(Learned {
            classes: [Class::NEW; CATEGORIES],
            other: [0; CATEGORIES],
            forbidden: false,
        }))
    }

    /// Whether the next contribution of a category is measured.
    pub(in crate::direct) fn is_timed(&self, category: Category) -> bool {
        let learned = lock(&self.0);
        !learned.forbidden && learned.classes[category.0].is_measured()
    }

    /// A contribution has come in one of the two ways. It took that many seconds, for the owner and
    /// the reader together, if both have measured it. Returns what this rank wishes from now on.
    pub(in crate::direct) fn came(
        &self,
        category: Category,
        lent: bool,
        seconds: Option<f64>,
    ) -> Wished {
        let learned = &mut *lock(&self.0);
        let class = &mut learned.classes[category.0];
        let other = &mut learned.other[category.0];
        if class.wishes_other() == lent {
            *other = 0;
            let more = if lent { HEARS } else { 0.0 };
            class.ended(seconds.map(|seconds| seconds + more));
        } else {
            // The owner has begun this operation before it heard of the wish, or it cannot fulfil
            // it, or this rank had no room for what was lent.
            *other += 1;
            if *other == PATIENCE {
                *other = 0;
                class.leave_other();
            }
        }
        learned.wished()
    }

    /// The system forbids to copy. Returns what this rank wishes from now on.
    pub(in crate::direct) fn forbid(&self) -> Wished {
        let learned = &mut *lock(&self.0);
        learned.forbidden = true;
        learned.wished()
    }
}

impl Learned {
    fn wished(&self) -> Wished {
        if self.forbidden {
            return Wished::default();
        }
        let classes = self.classes.iter().enumerate();
        let bits = classes.map(|(category, class)| {
            let (lent, timed) = (class.wishes_other(), class.is_measured());
            u32::from(lent) << category | u32::from(timed) << (category + CATEGORIES)
        });
        Wished(bits.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::agree::sort::Sort;

    #[test]
    fn only_contributions_of_such_lengths_are_lent() {
        let header = |kind, len| Header::new(3, kind, Sort::ANY, len);
        for kind in [
            Kind::Bcast,
            Kind::BcastAwaited,
            Kind::AllgatherChosen,
            Kind::Alltoall,
            Kind::Allreduce,
        ] {
            for (len, lendable) in [
                (0, false),
                ((16 << 10) - 1, false),
                (16 << 10, true),
                (64 << 10, true),
                ((64 << 10) + 1, false),
                (Header::GAPS.start, false),
                (Header::LONG, false),
            ] {
                assert_eq!(is_lendable(header(kind, len)), lendable, "{kind:?} {len}");
            }
            assert!(!is_lendable(header(kind, 20_000).by_messages()));
        }
        assert!(
            !is_lendable(header(Kind::Allgather, 20_000)),
            "of any lengths"
        );
        assert!(!is_lendable(header(Kind::Scan, 20_000)));
    }

    #[test]
    fn the_faster_way_is_wished() {
        let (category, other) = (
            Category::of(Kind::Bcast, 40_000),
            Category::of(Kind::Allreduce, 40_000),
        );
        for cost in [[1.0, 2.0], [2.0, 1.0]] {
            let wishes = Wishes::new();
            let mut wished = Wished::default();
            for _ in 0..100 {
                let lent = wished.is_lent(category);
                let timed = wished.is_timed(category);
                wished = wishes.came(category, lent, timed.then_some(cost[usize::from(lent)]));
            }
            assert_eq!(wished.is_lent(category), cost[1] < cost[0]);
            assert!(!wished.is_lent(other), "nothing is known about others");
        }
    }

    #[test]
    fn what_is_never_lent_is_not_wished_for_ever() {
        let (wishes, category) = (Wishes::new(), Category::of(Kind::Alltoall, 16 << 10));
        let mut lent = 0;
        for _ in 0..1000 {
            lent += u32::from(wishes.came(category, false, Some(1.0)).is_lent(category));
        }
        assert!((1..100).contains(&lent), "{lent}");
    }

    /// As many are under way as there are trials, so none of a trial comes as it was wished.
    #[test]
    fn contributions_that_began_before_a_wish_do_not_count_against_it() {
        let (wishes, category) = (Wishes::new(), Category::of(Kind::Bcast, 16 << 10));
        let mut under_way = std::collections::VecDeque::from([false; 24]);
        let mut lent = 0;
        for _ in 0..200 {
            let way = under_way.pop_front().unwrap();
            lent += u32::from(way);
            let seconds = if way { 1.0 } else { 2.0 };
            let wished = wishes.came(category, way, Some(seconds));
            under_way.push_back(wished.is_lent(category));
        }
        assert!(lent > 100, "{lent}");
    }

    #[test]
    fn what_is_forbidden_is_not_wished() {
        let (wishes, category) = (Wishes::new(), Category::of(Kind::Bcast, 16 << 10));
        assert_eq!(wishes.forbid(), Wished::default());
        for _ in 0..100 {
            assert_eq!(wishes.came(category, false, None), Wished::default());
        }
        assert!(!wishes.is_timed(category));
    }
}
