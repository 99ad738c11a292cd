//! Sums without rounding.

use std::fmt;

use portolan_datatype::{Datatype, Layout, Op, Primitive};

use super::real::Real;
use super::real::sealed::Format;

/// An exact sum of floating-point numbers: an integer wide enough for every bit of every value.
///
/// Nothing is rounded until [`value`](Self::value), so the sum depends on which numbers were added,
/// and not on their order, nor on how they were spread over sums that were then added up: the words
/// are the same bit for bit. Sums can be sent like any [`Datatype`] and reduced by
/// [`op`](Self::op).
///
/// There is room for 2^42 numbers of `f32`, and for 2^76 of `f64`, of any size.
///
/// Results are those of IEEE 754 with one rounding at the end, to nearest, ties to even:
/// - A sum out of range is an infinity. A sum that passes through numbers out of range and returns
///   is not.
/// - Infinities of one sign give that infinity; of both signs, or with a NaN, NaN (always the same
///   one).
/// - A sum that is zero is +0, unless all of what was added was -0: then it is -0. The sum of
///   nothing is +0.
///
/// ```
/// use portolan_coll::exact::Sum;
/// let mut sum = Sum::<f64>::new();
/// sum.add_slice(&[1e300, 1.0, -1e300, 1e-300]);
/// assert_eq!(sum.value(), 1.0 + 1e-300);
/// assert_eq!([1e300, 1.0, -1e300, 1e-300].iter().sum::<f64>(), 1e-300);
/// ```
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Sum<T: Real> {
    words: T::Words,
}

/// Flags of the last word.
const PLUS_INFINITY: u64 = 1;
const MINUS_INFINITY: u64 = 2;
const NOT_A_NUMBER: u64 = 4;
/// Something other than a negative zero was added.
const NOT_MINUS_ZERO: u64 = 8;
const MINUS_ZERO: u64 = 16;

/// A finite value: its sign, its digits, and the bit of the sum to which its lowest digit belongs.
struct Parts {
    negative: bool,
    digits: u64,
    shift: u32,
}

/// The effect of a number on a sum: it adds its parts, or only sets flags.
#[inline]
fn parts<T: Format>(x: T) -> Result<Parts, u64> {
    let raw = x.to_raw();
    let exponent = raw >> T::FRACTION & T::SPECIAL;
    let fraction = raw & ((1 << T::FRACTION) - 1);
    let negative = raw >> T::FRACTION > T::SPECIAL;
    if exponent == T::SPECIAL {
        let flags = match (fraction, negative) {
            (0, false) => PLUS_INFINITY,
            (0, true) => MINUS_INFINITY,
            _ => NOT_A_NUMBER,
        };
        return Err(flags | NOT_MINUS_ZERO);
    }
    if exponent == 0 && fraction == 0 {
        return Err(if negative { MINUS_ZERO } else { NOT_MINUS_ZERO });
    }
    // Subnormal numbers have the exponent of the smallest normal ones, but without the hidden
    // digit.
    let hidden = u64::from(exponent > 0) << T::FRACTION;
    Ok(Parts {
        negative,
        digits: fraction | hidden,
        shift: exponent.max(1) as u32 - 1,
    })
}

impl<T: Real> Sum<T> {
    /// The sum of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self { words: T::NOTHING }
    }

    /// The operator that adds sums.
    #[must_use]
    pub fn op() -> Op {
        Op::new(true, |left: Self, mut right: Self| {
            right.merge(&left);
            right
        })
    }

    /// Adds a number.
    #[inline]
    pub fn add(&mut self, x: T) {
        let (digits, flags) = self.split();
        match parts(x) {
            Err(set) => *flags |= set,
            Ok(parts) => {
                *flags |= NOT_MINUS_ZERO;
                let word = (parts.shift / 64) as usize;
                let wide = u128::from(parts.digits) << (parts.shift % 64);
                let (low, high) = (wide as u64, (wide >> 64) as u64);
                let end = &mut digits[word..];
                if parts.negative {
                    subtract(end, low, high);
                } else {
                    add(end, low, high);
                }
            }
        }
    }

    /// Adds numbers. Faster than one by one.
    pub fn add_slice(&mut self, numbers: &[T]) {
        // Words of 32 bits in 64: this many numbers can be added before carries have to be
        // propagated.
        const RUN: usize = 1 << 30;
        for run in numbers.chunks(RUN) {
            if run.len() < 16 {
                run.iter().for_each(|&x| self.add(x));
                continue;
            }
            let mut loose = [0i64; LOOSE];
            let (mut flags, mut any) = (0, false);
            for &x in run {
                match parts(x) {
                    Err(set) => flags |= set,
                    Ok(parts) => {
                        any = true;
                        let word = (parts.shift / 32) as usize;
                        let wide = u128::from(parts.digits) << (parts.shift % 32);
                        let sign = -i64::from(parts.negative);
                        for (index, word) in loose[word..word + 3].iter_mut().enumerate() {
                            let digits = i64::from((wide >> (32 * index)) as u32);
                            *word += (digits ^ sign) - sign;
                        }
                    }
                }
            }
            self.add_loose(&loose, flags | if any { NOT_MINUS_ZERO } else { 0 });
        }
    }

    /// Adds words of 32 bits whose carries have not been propagated.
    fn add_loose(&mut self, loose: &[i64; LOOSE], set: u64) {
        let (digits, flags) = self.split();
        *flags |= set;
        // Carries may have either sign. Above the last word, the carry is the same in every word.
        let mut carry = 0i128;
        for (index, word) in digits.iter_mut().enumerate() {
            let at = |index: usize| loose.get(index).map_or(0, |&word| i128::from(word));
            carry += i128::from(*word) + at(2 * index) + (at(2 * index + 1) << 32);
            *word = carry as u64;
            carry >>= 64;
        }
    }

    /// Adds another sum.
    #[inline]
    pub fn merge(&mut self, other: &Self) {
        let (digits, flags) = self.split();
        let Some((more, set)) = other
            .words
            .as_ref()
            .split_last()
            .map(|(set, more)| (more, set))
        else {
            return;
        };
        let mut carry = false;
        for (word, &more) in digits.iter_mut().zip(more) {
            (*word, carry) = word.carrying(more, carry);
        }
        *flags |= set;
    }

    /// The sum, rounded once.
    #[must_use]
    pub fn value(&self) -> T {
        let mut words = self.words;
        let Some((flags, digits)) = words.as_mut().split_last_mut() else {
            return T::from_raw(0);
        };
        let (plus, minus) = (*flags & PLUS_INFINITY != 0, *flags & MINUS_INFINITY != 0);
        let infinity = || T::from_raw(T::SPECIAL << T::FRACTION);
        match (plus, minus) {
            _ if *flags & NOT_A_NUMBER != 0 => return T::not_a_number(),
            (true, true) => return T::not_a_number(),
            (true, false) => return infinity(),
            (false, true) => return infinity().negated(),
            (false, false) => {}
        }
        let negative = digits.last().is_some_and(|&top| top >> 63 == 1);
        if negative {
            negate(digits);
        }
        let Some(raw) = round(digits, T::FRACTION, T::SPECIAL) else {
            let all_minus_zero = *flags & (MINUS_ZERO | NOT_MINUS_ZERO) == MINUS_ZERO;
            let zero = T::from_raw(0);
            return if all_minus_zero { zero.negated() } else { zero };
        };
        let size = T::from_raw(raw);
        if negative { size.negated() } else { size }
    }

    #[inline]
    fn split(&mut self) -> (&mut [u64], &mut u64) {
        match self.words.as_mut() {
            [digits @ .., flags] => (digits, flags),
            [] => unreachable!("sums have words"),
        }
    }
}

/// Number of 32-bit words that hold the digits of every finite value, plus one for the last carry.
const LOOSE: usize = 2098usize.div_ceil(32) + 1;

trait Carrying: Sized {
    fn carrying(self, other: Self, carry: bool) -> (Self, bool);
}

impl Carrying for u64 {
    #[inline(always)]
    fn carrying(self, other: Self, carry: bool) -> (Self, bool) {
        let (sum, first) = self.overflowing_add(other);
        let (sum, second) = sum.overflowing_add(carry.into());
        (sum, first | second)
    }
}

/// Adds two words at the low end; the carry propagates as far as necessary.
#[inline]
fn add(words: &mut [u64], low: u64, high: u64) {
    let mut carry = false;
    (words[0], carry) = words[0].carrying(low, carry);
    (words[1], carry) = words[1].carrying(high, carry);
    for word in &mut words[2..] {
        if !carry {
            break;
        }
        (*word, carry) = word.overflowing_add(1);
    }
}

/// Subtracts two words at the low end; the borrow propagates as far as necessary.
#[inline]
fn subtract(words: &mut [u64], low: u64, high: u64) {
    let (first, borrow) = words[0].overflowing_sub(low);
    words[0] = first;
    let (second, by_high) = words[1].overflowing_sub(high);
    let (second, by_borrow) = second.overflowing_sub(borrow.into());
    words[1] = second;
    let mut borrow = by_high | by_borrow;
    for word in &mut words[2..] {
        if !borrow {
            break;
        }
        (*word, borrow) = word.overflowing_sub(1);
    }
}

fn negate(words: &mut [u64]) {
    let mut carry = true;
    for word in words {
        (*word, carry) = (!*word).overflowing_add(carry.into());
    }
}

/// The stored form of the value with these digits, rounded to nearest, ties to even. `None` for
/// zero.
fn round(digits: &[u64], fraction: u32, special: u64) -> Option<u64> {
    let top = digits.iter().rposition(|&word| word != 0)?;
    let highest = 64 * top as u32 + digits[top].ilog2();
    if highest <= fraction {
        // Subnormal, or with the smallest exponent: no digit is lost, and the hidden digit becomes
        // the lowest bit of the exponent.
        return Some(digits[0]);
    }
    let shift = highest - fraction;
    let exponent = u64::from(shift) + 1;
    if exponent >= special {
        return Some(special << fraction);
    }
    let (word, bit) = ((shift / 64) as usize, shift % 64);
    let next = digits.get(word + 1).copied().unwrap_or(0);
    let pair = u128::from(next) << 64 | u128::from(digits[word]);
    let kept = (pair >> bit) as u64 & ((2 << fraction) - 1);
    let (half_word, half_bit) = (((shift - 1) / 64) as usize, (shift - 1) % 64);
    let half = digits[half_word] >> half_bit & 1 == 1;
    let below = digits[half_word] & ((1 << half_bit) - 1) != 0
        || digits[..half_word].iter().any(|&word| word != 0);
    let up = half && (below || kept & 1 == 1);
    // A carry out of the digits goes into the exponent, which is then right, for infinity too.
    Some((exponent << fraction) + (kept - (1 << fraction)) + u64::from(up))
}

impl<T: Real> Default for Sum<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Real> PartialEq for Sum<T> {
    /// Whether both have the same words, that is, whether they are exactly the same sum of numbers
    /// of the same kinds.
    fn eq(&self, other: &Self) -> bool {
        self.words.as_ref() == other.words.as_ref()
    }
}

impl<T: Real + fmt::Debug> fmt::Debug for Sum<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sum").field(&self.value()).finish()
    }
}

impl<T: Real> Extend<T> for Sum<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, numbers: I) {
        numbers.into_iter().for_each(|x| self.add(x));
    }
}

impl<T: Real> FromIterator<T> for Sum<T> {
    fn from_iter<I: IntoIterator<Item = T>>(numbers: I) -> Self {
        let mut sum = Self::new();
        sum.extend(numbers);
        sum
    }
}

// SAFETY: a sum consists of its words only (`repr(transparent)`), an array of integers for which
// all bits are valid.
unsafe impl<T: Real> Datatype for Sum<T> {
    const CONTIGUOUS: bool = <T::Words as Datatype>::CONTIGUOUS;
    const PACKED_SIZE: usize = <T::Words as Datatype>::PACKED_SIZE;
    const ANY_BITS: bool = <T::Words as Datatype>::ANY_BITS;
    const HOMOGENEOUS: Option<Primitive> = <T::Words as Datatype>::HOMOGENEOUS;

    fn layout() -> Layout {
        <T::Words as Datatype>::layout()
    }

    unsafe fn is_valid(_: *const Self) -> bool {
        true
    }
}
