//! Type signatures in 32 bits, so that a mismatch of types is an error and not garbage.
//!
//! MPI compares the *sequence of primitives* of a message with that of the receive (MPI-4, 3.3.1);
//! displacements do not matter, and the message may be shorter. Sequences are hashed by a
//! polynomial over the field of 2^61 − 1 elements. The hash of a concatenation follows from the
//! hashes of its parts, and that of `n` repetitions takes O(log n) steps.

use std::fmt;

use crate::Primitive;

/// The type signature of a message.
///
/// A signature is a function of the sequence of primitives alone, however that was built. So equal
/// sequences always match, and a receive is refused only where MPI calls it erroneous. Two
/// different sequences match by accident with a probability of about 2⁻³¹.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Signature(u32);

/// Marks the signatures of sequences of more than one primitive.
const MIXED: u32 = 1 << 31;

impl Signature {
    /// Matches everything: bytes, packed data, and the empty message.
    pub const ANY: Signature = Signature(0);

    /// The signature of any number of items, one or more, of one primitive.
    pub const fn homogeneous(primitive: Primitive) -> Signature {
        if primitive.is_wild() {
            Signature::ANY
        } else {
            Signature(primitive.code() as u32)
        }
    }

    /// The 32 bits, as an envelope carries them.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// A signature from an envelope. Every value is legal; one that no layout has matches only
    /// itself and [`ANY`](Self::ANY).
    pub const fn from_bits(bits: u32) -> Signature {
        Signature(bits)
    }

    /// Whether a message of signature `self` may be received as one of signature `other`.
    ///
    /// ```
    /// use portolan_datatype::{Layout, Signature};
    /// let sent = Layout::of::<[f64; 4]>().signature(32);
    /// assert!(sent.matches(Layout::of::<f64>().signature(32)));
    /// assert!(!sent.matches(Layout::of::<i64>().signature(32)));
    /// assert!(sent.matches(Signature::ANY));
    /// ```
    pub const fn matches(self, other: Signature) -> bool {
        self.0 == other.0 || self.0 == 0 || other.0 == 0
    }

    /// The primitive, if the signature is of only one; for messages.
    pub const fn primitive(self) -> Option<Primitive> {
        if self.0 == 0 || self.0 > u8::MAX as u32 {
            return None;
        }
        Primitive::from_code(self.0 as u8)
    }
}

/// For messages: the primitive, `anything`, or the hash of a mixed sequence.
impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.primitive()) {
            (0, _) => f.write_str("anything"),
            (_, Some(primitive)) => write!(f, "{primitive}"),
            (bits, None) => write!(f, "mixed types ({:08x})", bits & !MIXED),
        }
    }
}

/// The primitives that a sequence contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Empty,
    Only(Primitive),
    Mixed,
}

/// Everything about a sequence of primitives that can be combined: a monoid under
/// [`then`](Tally::then).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    pub(crate) bytes: usize,
    pub(crate) elements: usize,
    hash: u64,
    /// BASE to the power of the number of elements.
    power: u64,
    kind: Kind,
    /// Whether packed data is among the elements, which may stand for any types.
    packed: bool,
}

/// 2^61 − 1.
const PRIME: u64 = (1 << 61) - 1;
/// Any large number below the prime that has no pattern (from the digits of π).
const BASE: u64 = 0x0243_f6a8_885a_308d;
/// Stands for an element of which only the beginning is there.
const TORN: u64 = 0x1319_8a2e;

fn mul(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    reduce((wide as u64 & PRIME) + (wide >> 61) as u64)
}

fn reduce(x: u64) -> u64 {
    if x >= PRIME { x - PRIME } else { x }
}

impl Tally {
    pub(crate) const EMPTY: Tally = Tally {
        bytes: 0,
        elements: 0,
        hash: 0,
        power: 1,
        kind: Kind::Empty,
        packed: false,
    };

    pub(crate) fn of(primitive: Primitive) -> Tally {
        Tally {
            bytes: primitive.size(),
            elements: 1,
            hash: u64::from(primitive.code()),
            power: BASE,
            kind: Kind::Only(primitive),
            packed: primitive == Primitive::Packed,
        }
    }

    /// The sequence `self` followed by `next`. Sizes wrap here, because the constructors have
    /// checked them.
    pub(crate) fn then(self, next: Tally) -> Tally {
        let kind = match (self.kind, next.kind) {
            (Kind::Empty, other) | (other, Kind::Empty) => other,
            (Kind::Only(a), Kind::Only(b)) if a == b => self.kind,
            _ => Kind::Mixed,
        };
        Tally {
            bytes: self.bytes.wrapping_add(next.bytes),
            elements: self.elements.wrapping_add(next.elements),
            hash: reduce(mul(self.hash, next.power) + next.hash),
            power: mul(self.power, next.power),
            kind,
            packed: self.packed || next.packed,
        }
    }

    /// The sequence `n` times over, by repeated squaring.
    pub(crate) fn repeat(self, mut n: usize) -> Tally {
        let (mut result, mut square) = (Tally::EMPTY, self);
        while n > 0 {
            if n & 1 == 1 {
                result = result.then(square);
            }
            n >>= 1;
            if n > 0 {
                square = square.then(square);
            }
        }
        result
    }

    /// Whether two sequences are equal; wrong with a probability of one in 2^61.
    pub(crate) fn same(&self, other: &Tally) -> bool {
        (self.bytes, self.elements, self.hash) == (other.bytes, other.elements, other.hash)
    }

    /// The only primitive, if there is exactly one.
    #[inline]
    pub(crate) fn only(&self) -> Option<Primitive> {
        match self.kind {
            Kind::Only(primitive) => Some(primitive),
            _ => None,
        }
    }

    /// The signature of any number of repetitions, if it is the same for all numbers.
    #[inline]
    pub(crate) fn uniform(&self) -> Option<Signature> {
        match self.kind {
            _ if self.packed => Some(Signature::ANY),
            Kind::Empty => Some(Signature::ANY),
            Kind::Only(primitive) => Some(Signature::homogeneous(primitive)),
            Kind::Mixed => None,
        }
    }

    /// The signature of the sequence, followed by a torn element if `torn`.
    pub(crate) fn signature(&self, torn: bool) -> Signature {
        if self.packed {
            return Signature::ANY;
        }
        match self.kind {
            Kind::Empty if !torn => return Signature::ANY,
            Kind::Only(primitive) if !torn => return Signature::homogeneous(primitive),
            _ => {}
        }
        let hash = if torn {
            reduce(mul(self.hash, BASE) + TORN)
        } else {
            self.hash
        };
        Signature(MIXED | (scramble(hash) as u32 >> 1))
    }
}

/// Spreads the hash's 61 bits over the low 32.
fn scramble(hash: u64) -> u64 {
    let x = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^ (x >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetition_is_concatenation() {
        let item = Tally::of(Primitive::I32).then(Tally::of(Primitive::F64));
        let mut sum = Tally::EMPTY;
        for n in 0..40 {
            let power = item.repeat(n);
            assert_eq!(
                (power.hash, power.power, power.bytes),
                (sum.hash, sum.power, sum.bytes)
            );
            sum = sum.then(item);
        }
    }

    #[test]
    fn order_and_length_matter() {
        let (a, b) = (Tally::of(Primitive::I32), Tally::of(Primitive::F64));
        assert_ne!(a.then(b).signature(false), b.then(a).signature(false));
        assert_ne!(
            a.then(b).signature(false),
            a.then(b).then(a).signature(false)
        );
        assert_ne!(a.then(b).signature(false), a.then(b).signature(true));
    }

    #[test]
    fn packed_data_inside_matches_everything() {
        let t = Tally::of(Primitive::I32).then(Tally::of(Primitive::Packed));
        assert_eq!(t.signature(false), Signature::ANY);
    }
}
