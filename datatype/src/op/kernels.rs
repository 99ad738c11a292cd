//! The loops of the predefined operators: one simple loop for each operator and primitive, which
//! the compiler vectorises. Elements need no alignment.

use std::ops::{Add, BitAnd, BitOr, Mul, Not, Sub};

use super::Predefined;
use crate::Complex;

/// Combines that many elements: `(input, inout, elements)`.
///
/// # Safety
/// `input` is valid for reads and `inout` for reads and writes of that many elements, which are
/// valid values; the two do not overlap.
pub(super) type Combine = unsafe fn(*const u8, *mut u8, usize);

/// # Safety
/// As [`Combine`], for elements of type `T`.
#[inline(always)]
unsafe fn each<T: Copy>(
    input: *const u8,
    inout: *mut u8,
    elements: usize,
    combine: impl Fn(T, T) -> T,
) {
    let (input, inout) = (input.cast::<T>(), inout.cast::<T>());
    for index in 0..elements {
        // SAFETY: from the caller.
        unsafe {
            let (a, b) = (input.add(index), inout.add(index));
            b.write_unaligned(combine(a.read_unaligned(), b.read_unaligned()));
        }
    }
}

/// A `Combine` from an expression over two elements.
macro_rules! combine {
    ($t:ty, $f:expr) => {
        // SAFETY: the signature's promise is that of `Combine`.
        Some(|input, inout, elements| unsafe { each::<$t>(input, inout, elements, $f) })
    };
}

/// # Safety
/// As [`Combine`], for bytes.
pub(super) unsafe fn replace(input: *const u8, inout: *mut u8, elements: usize) {
    // SAFETY: from the caller.
    unsafe { std::ptr::copy_nonoverlapping(input, inout, elements) };
}

/// The operations on an integer type that the loops need.
pub(super) trait Integer: Copy + Ord {
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn truth(self) -> bool;
    fn from_truth(truth: bool) -> Self;
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl Integer for $t {
            #[inline(always)]
            fn plus(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn times(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn and(self, other: Self) -> Self { self & other }
            #[inline(always)]
            fn or(self, other: Self) -> Self { self | other }
            #[inline(always)]
            fn xor(self, other: Self) -> Self { self ^ other }
            #[inline(always)]
            fn truth(self) -> bool { self != 0 }
            #[inline(always)]
            fn from_truth(truth: bool) -> Self { truth.into() }
        }
    )*};
}
integers!(i8, u8, i16, u16, i32, u32, i64, u64, i128, u128);

pub(super) const fn integer<T: Integer + 'static>(op: Predefined) -> Option<Combine> {
    match op {
        Predefined::Sum => combine!(T, T::plus),
        Predefined::Prod => combine!(T, T::times),
        Predefined::Min => combine!(T, |a, b| if a < b { a } else { b }),
        Predefined::Max => combine!(T, |a, b| if a > b { a } else { b }),
        Predefined::Land => combine!(T, |a, b| T::from_truth(a.truth() & b.truth())),
        Predefined::Lor => combine!(T, |a, b| T::from_truth(a.truth() | b.truth())),
        Predefined::Lxor => combine!(T, |a, b| T::from_truth(a.truth() ^ b.truth())),
        Predefined::Band => combine!(T, T::and),
        Predefined::Bor => combine!(T, T::or),
        Predefined::Bxor => combine!(T, T::xor),
        _ => None,
    }
}

/// The operations on a floating-point type that the loops need.
pub(super) trait Float:
    Copy + PartialOrd + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + 'static
{
    type Bits: BitAnd<Output = Self::Bits>
        + BitOr<Output = Self::Bits>
        + Not<Output = Self::Bits>
        + Copy;

    fn bits(self) -> Self::Bits;
    fn from_bits(bits: Self::Bits) -> Self;
    /// All bits, or none.
    fn mask(all: bool) -> Self::Bits;
}

macro_rules! floats {
    ($($t:ty, $bits:ty;)*) => {$(
        impl Float for $t {
            type Bits = $bits;

            #[inline(always)]
            fn bits(self) -> $bits {
                self.to_bits()
            }

            #[inline(always)]
            fn from_bits(bits: $bits) -> Self {
                Self::from_bits(bits)
            }

            #[inline(always)]
            fn mask(all: bool) -> $bits {
                if all { !0 } else { 0 }
            }
        }
    )*};
}
floats! { f32, u32; f64, u64; }

/// The maximum of two values, or their minimum. The result is the same to the last bit in either
/// order, because ranks may combine the same values in different orders and must get the same
/// result. NaN wins; +0 is more than −0.
#[inline(always)]
#[expect(clippy::eq_op, reason = "only NaN differs from itself")]
fn extreme<T: Float, const MAX: bool>(a: T, b: T) -> T {
    let wins = |a: T, b: T| if MAX { a > b } else { a < b };
    let of = |a: T, b: T| if wins(a, b) { a } else { b };
    // Of two numbers, both orders give the same, except for zeros of different signs.
    let (one, other) = (of(a, b).bits(), of(b, a).bits());
    let number = if MAX { one & other } else { one | other };
    // (Computed on bits, and two NaNs are combined bit by bit: all of it is a few vector
    // instructions.)
    let (nan, other_nan) = (T::mask(a != a), T::mask(b != b));
    T::from_bits(number & !(nan | other_nan) | a.bits() & nan | b.bits() & other_nan)
}

pub(super) const fn float<T: Float>(op: Predefined) -> Option<Combine> {
    match op {
        Predefined::Sum => combine!(T, |a, b| a + b),
        Predefined::Prod => combine!(T, |a, b| a * b),
        Predefined::Min => combine!(T, extreme::<T, false>),
        Predefined::Max => combine!(T, extreme::<T, true>),
        _ => None,
    }
}

pub(super) const fn complex<T: Float>(op: Predefined) -> Option<Combine>
where
    Complex<T>: Add<Output = Complex<T>> + Mul<Output = Complex<T>>,
{
    match op {
        Predefined::Sum => combine!(Complex<T>, |a, b| a + b),
        Predefined::Prod => combine!(Complex<T>, |a, b| a * b),
        _ => None,
    }
}

/// On bytes that are 0 or 1, the bitwise operators are the logical ones.
pub(super) const fn boolean(op: Predefined) -> Option<Combine> {
    match op {
        Predefined::Land => combine!(u8, |a, b| a & b),
        Predefined::Lor => combine!(u8, |a, b| a | b),
        Predefined::Lxor => combine!(u8, |a, b| a ^ b),
        _ => None,
    }
}

pub(super) const fn bits(op: Predefined) -> Option<Combine> {
    match op {
        Predefined::Band | Predefined::Bor | Predefined::Bxor => integer::<u8>(op),
        _ => None,
    }
}
