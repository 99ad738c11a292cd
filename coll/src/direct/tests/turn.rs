//! One operation of a sequence, and what ranks contribute to it.

use portolan_core::{MemoryKind, TypedBuf};
use portolan_datatype::{Layout, Op};

use crate::simulate::Random;

/// How items are laid out in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lie {
    /// Side by side.
    Plain,
    /// With gaps between them.
    Gaps,
    /// In reverse order: the extent is negative.
    Backwards,
    /// Each item begins with a gap: the lower bound is above 0.
    Behind,
}

impl Lie {
    /// Another arrangement, for the other buffer.
    pub(super) fn other(self) -> Self {
        match self {
            Self::Plain => Self::Gaps,
            Self::Gaps => Self::Plain,
            Self::Backwards => Self::Behind,
            Self::Behind => Self::Backwards,
        }
    }

    /// The layout of an item, the words from one item to the next, and the words from an item's
    /// beginning to its number.
    fn of_item(self) -> (Layout, isize, usize) {
        let item = Layout::of::<u64>();
        let resized = |old, lb, extent| Layout::resized(old, lb, extent).unwrap();
        match self {
            Self::Plain => (item, 1, 0),
            Self::Gaps => (resized(&item, 0, 24), 3, 0),
            Self::Backwards => (resized(&item, 0, -16), -2, 0),
            Self::Behind => {
                let behind = Layout::hindexed_block(1, &[8], &item).unwrap();
                (resized(&behind, 8, 24), 3, 1)
            }
        }
    }
}

/// Items of a buffer.
pub(super) struct Items {
    pub(super) layout: Layout,
    count: usize,
    stride: isize,
    /// Words before the first item's beginning, and words from an item's beginning to its number.
    origin: usize,
    lead: usize,
    data: Vec<u64>,
}

pub(super) const GAP: u64 = 0xdead_beef;

impl Items {
    pub(super) fn new(lie: Lie, count: usize) -> Self {
        let (layout, stride, lead) = lie.of_item();
        let words = count * stride.unsigned_abs();
        let origin = match stride < 0 {
            true => words.saturating_sub(stride.unsigned_abs()),
            false => 0,
        };
        Self {
            layout,
            count,
            stride,
            origin,
            lead,
            data: vec![GAP; words],
        }
    }

    pub(super) fn with(lie: Lie, values: impl ExactSizeIterator<Item = u64>) -> Self {
        let mut items = Self::new(lie, values.len());
        items.set(0, values);
        items
    }

    /// The position of an item's number.
    fn place(&self, item: usize) -> usize {
        let first = self.origin + self.lead;
        first
            .checked_add_signed(item as isize * self.stride)
            .unwrap()
    }

    pub(super) fn set(&mut self, first: usize, values: impl Iterator<Item = u64>) {
        for (item, value) in (first..self.count).zip(values) {
            let place = self.place(item);
            self.data[place] = value;
        }
    }

    pub(super) fn get(&self) -> Vec<u64> {
        let mut left = self.data.clone();
        let take = |item| std::mem::replace(&mut left[self.place(item)], GAP);
        let got = (0..self.count).map(take).collect();
        assert!(left.iter().all(|&gap| gap == GAP), "a gap was written");
        got
    }

    /// The address of the first item.
    pub(super) fn ptr(&mut self) -> *mut u8 {
        self.data.as_mut_ptr().wrapping_add(self.origin).cast()
    }

    pub(super) fn buf(&mut self, count: usize) -> TypedBuf<'_> {
        TypedBuf {
            ptr: self.ptr(),
            count,
            layout: &self.layout,
            memory: MemoryKind::Host,
        }
    }
}

/// The form in which an operation is called, the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Blocking,
    Nonblocking,
    /// Started this many times.
    Persistent(usize),
}

/// One operation of the sequence: the same on all ranks.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) seed: u64,
    pub(super) what: usize,
    pub(super) count: usize,
    pub(super) root: u32,
    pub(super) in_place: bool,
    pub(super) lie: Lie,
    pub(super) form: Form,
    /// Counts per rank, for the v forms.
    pub(super) counts: Vec<usize>,
}

pub(super) const WHATS: usize = 12;

impl Turn {
    pub(super) fn draw(random: &mut Random, ranks: u32, longest: usize) -> Self {
        // Mostly short counts; also counts at the limits of cells and of chunks of both lengths,
        // for long places, and too long for those.
        let counts = [
            0, 1, 1, 1, 2, 7, 15, 16, 60, 500, 1024, 8192, 8193, 30_000, 34_817, 80_000, 140_000,
        ];
        let count = counts[random.below(counts.len())].min(longest);
        let each = |_| match random.below(4) {
            0 => 0,
            1 => count,
            _ => random.below(count + 1),
        };
        let counts = (0..ranks).map(each).collect();
        Self {
            seed: random.next(),
            what: random.below(WHATS),
            count,
            root: random.below(ranks as usize) as u32,
            in_place: random.below(3) == 0,
            lie: match random.below(8) {
                0 => Lie::Gaps,
                1 => Lie::Backwards,
                2 => Lie::Behind,
                _ => Lie::Plain,
            },
            form: Form::Blocking,
            counts,
        }
    }

    /// The same operation in a form that is also drawn.
    pub(super) fn in_any_form(mut self, random: &mut Random) -> Self {
        self.form = match random.below(8) {
            0 => Form::Blocking,
            // In place, a second start would begin with the result of the first.
            1 | 2 => Form::Persistent(if self.in_place {
                1
            } else {
                1 + random.below(3)
            }),
            _ => Form::Nonblocking,
        };
        self
    }

    /// The contribution of rank `rank` at `index`.
    pub(super) fn value(&self, rank: u32, index: usize) -> u64 {
        let mixed = self.seed ^ (u64::from(rank) << 40) ^ index as u64;
        mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) | 1
    }

    pub(super) fn values(
        &self,
        rank: u32,
        first: usize,
        count: usize,
    ) -> impl ExactSizeIterator<Item = u64> {
        (0..count).map(move |index| self.value(rank, first + index))
    }

    /// The reduction of all `ranks` at `index`.
    pub(super) fn reduced(&self, ranks: std::ops::Range<u32>, index: usize) -> Option<u64> {
        ranks.map(|rank| self.value(rank, index)).reduce(compose)
    }
}

/// Composition of affine maps: associative, and not commutative.
pub(super) fn compose(left: u64, right: u64) -> u64 {
    let (a, b, c, d) = (
        left as u32,
        (left >> 32) as u32,
        right as u32,
        (right >> 32) as u32,
    );
    u64::from(a.wrapping_mul(c)) | u64::from(b.wrapping_mul(c).wrapping_add(d)) << 32
}

/// [`compose`] for items in any arrangement.
pub(super) fn operator() -> Op {
    let each = |layout: &Layout, count: usize, left: *const u8, right: *mut u8| {
        for item in 0..count {
            let at = item as isize * layout.extent() + layout.true_lb();
            let (left, right) = (
                left.wrapping_offset(at).cast::<u64>(),
                right.wrapping_offset(at),
            );
            let right = right.cast::<u64>();
            // SAFETY: `Op::apply` promises that both are items of one number.
            unsafe {
                right.write_unaligned(compose(left.read_unaligned(), right.read_unaligned()));
            };
        }
    };
    // SAFETY: it touches the data of the items only.
    unsafe { Op::from_raw(false, each) }
}

pub(super) fn displacements(counts: &[usize]) -> Vec<isize> {
    // In reverse order, with a hole of one item between two blocks.
    let mut end: usize = counts.iter().map(|count| count + 1).sum();
    let place = |&count: &usize| {
        end -= count + 1;
        end as isize
    };
    counts.iter().map(place).collect()
}
