//! Conversion of numbers to exact sums and back, in the layouts of a schedule.

use portolan_datatype::{Datatype, Layout, LayoutError, MsgRep};

use super::real::Real;
use super::sum::Sum;

/// The type of the numbers. A complex number counts as two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `f32`.
    Single,
    /// `f64`.
    Double,
}

/// A conversion in a schedule ([`Step::Convert`](crate::schedule::Step::Convert)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convert {
    /// Each number becomes a [`Sum`] of itself alone.
    Widen(Kind),
    /// Each sum is rounded to a number.
    Round(Kind),
}

impl Kind {
    /// The layout of the sums that stand for an item with `bytes` bytes of numbers.
    pub(super) fn sums(self, bytes: usize) -> Result<Layout, LayoutError> {
        let (sum, number) = match self {
            Self::Single => (Layout::of::<Sum<f32>>(), size_of::<f32>()),
            Self::Double => (Layout::of::<Sum<f64>>(), size_of::<f64>()),
        };
        match bytes / number {
            1 => Ok(sum),
            numbers => Layout::contiguous(numbers, &sum),
        }
    }
}

/// Converts `count` items of numbers, in the layout `numbers`, to or from as many items of sums.
///
/// # Safety
/// `from` is valid for reads of all data, `to` for writes; they do not overlap. The data of
/// `numbers` is of the kind that `how` names, and an item of sums has one sum for each number.
pub(crate) unsafe fn convert(
    how: Convert,
    numbers: &Layout,
    count: usize,
    from: *const u8,
    to: *mut u8,
) {
    // SAFETY: from the caller, in each case.
    unsafe {
        match how {
            Convert::Widen(Kind::Single) => widen::<f32>(numbers, count, from, to),
            Convert::Widen(Kind::Double) => widen::<f64>(numbers, count, from, to),
            Convert::Round(Kind::Single) => round::<f32>(numbers, count, from, to),
            Convert::Round(Kind::Double) => round::<f64>(numbers, count, from, to),
        }
    }
}

/// Bytes of numbers that are packed at a time: a multiple of each number's size.
const PART: usize = 1024;

/// # Safety
/// As [`convert`].
unsafe fn widen<T: Real>(numbers: &Layout, count: usize, from: *const u8, to: *mut u8) {
    let (len, mut to) = (numbers.size() * count, to.cast::<Sum<T>>());
    let mut part = [0u8; PART];
    for at in (0..len).step_by(PART) {
        let now = PART.min(len - at);
        // SAFETY: from the caller; `part` has room, and then holds numbers, for which any bits are
        // valid.
        unsafe {
            numbers.pack_range(from, count, at, part.as_mut_ptr(), now, MsgRep::Native);
            for number in part[..now].chunks_exact(size_of::<T>()) {
                let mut sum = Sum::new();
                sum.add(number.as_ptr().cast::<T>().read_unaligned());
                to.write_unaligned(sum);
                to = to.add(1);
            }
        }
    }
}

/// # Safety
/// As [`convert`].
unsafe fn round<T: Real>(numbers: &Layout, count: usize, from: *const u8, to: *mut u8) {
    const { assert!(<Sum<f64> as Datatype>::ANY_BITS && <Sum<f32> as Datatype>::ANY_BITS) };
    let (len, mut from) = (numbers.size() * count, from.cast::<Sum<T>>());
    let mut part = [0u8; PART];
    for at in (0..len).step_by(PART) {
        let now = PART.min(len - at);
        // SAFETY: from the caller; any bits are valid for sums.
        unsafe {
            for number in part[..now].chunks_exact_mut(size_of::<T>()) {
                let value = from.read_unaligned().value();
                number.as_mut_ptr().cast::<T>().write_unaligned(value);
                from = from.add(1);
            }
            numbers.unpack_range(to, count, at, part.as_ptr(), now, MsgRep::Native);
        }
    }
}
