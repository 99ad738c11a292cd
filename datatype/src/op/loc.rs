//! `maxloc` and `minloc`: pairs of a value and an index (MPI-4, 6.9.4).

use crate::signature::Tally;
use crate::{Layout, MsgRep, Primitive};

/// Combines pairs: `(input, inout, pairs, extent, offset of the index)`, all in bytes.
type CombinePairs = unsafe fn(*const u8, *mut u8, usize, isize, isize);

/// How the pairs of a layout are combined.
#[derive(Clone, Copy)]
pub(super) struct Pairs {
    combine: CombinePairs,
    value: Primitive,
    index: Primitive,
}

/// A kind of pair: the index is an `i32`, or of the value's type (as in Fortran).
struct Kind {
    value: Primitive,
    index: Primitive,
    max: CombinePairs,
    min: CombinePairs,
}

macro_rules! kinds {
    ($($value:ident $v:ty, $index:ident $i:ty;)*) => {
        &[$(Kind {
            value: Primitive::$value,
            index: Primitive::$index,
            max: each::<$v, $i, true>,
            min: each::<$v, $i, false>,
        }),*]
    };
}

const KINDS: &[Kind] = kinds! {
    I8 i8, I32 i32;
    U8 u8, I32 i32;
    I16 i16, I32 i32;
    U16 u16, I32 i32;
    I32 i32, I32 i32;
    U32 u32, I32 i32;
    I64 i64, I32 i32;
    U64 u64, I32 i32;
    F32 f32, I32 i32;
    F64 f64, I32 i32;
    F32 f32, F32 f32;
    F64 f64, F64 f64;
    I64 i64, I64 i64;
};

/// How items of that layout are combined; `None` unless they are pairs.
pub(super) fn pairs(layout: &Layout, max: bool) -> Option<Pairs> {
    let found = KINDS.iter().find(|kind| {
        let pair = Tally::of(kind.value).then(Tally::of(kind.index));
        layout.size().is_multiple_of(pair.bytes)
            && layout
                .tally()
                .same(&pair.repeat(layout.size() / pair.bytes))
    })?;
    let combine = if max { found.max } else { found.min };
    Some(Pairs {
        combine,
        value: found.value,
        index: found.index,
    })
}

impl Pairs {
    /// Combines items of a layout that [`pairs`] has accepted.
    ///
    /// # Safety
    /// As [`Op::apply`](crate::Op::apply).
    pub(super) unsafe fn apply(
        self,
        layout: &Layout,
        count: usize,
        input: *const u8,
        inout: *mut u8,
    ) {
        let pair = self.value.size() + self.index.size();
        // SAFETY: from the caller; the places come from the layout.
        unsafe {
            if let Some((value, index)) = layout.places_of_pair() {
                let (input, inout) = (input.wrapping_offset(value), inout.wrapping_offset(value));
                (self.combine)(input, inout, count, layout.extent(), index - value);
                return;
            }
            // Pairs in some other arrangement: combined in packed form, item by item.
            let size = layout.size();
            let (mut a, mut b) = (vec![0u8; size], vec![0u8; size]);
            for item in 0..count as isize {
                let at = item.wrapping_mul(layout.extent());
                let (input, inout) = (input.wrapping_offset(at), inout.wrapping_offset(at));
                layout.pack_range(input, 1, 0, a.as_mut_ptr(), size, MsgRep::Native);
                layout.pack_range(inout, 1, 0, b.as_mut_ptr(), size, MsgRep::Native);
                let offset = self.value.size() as isize;
                (self.combine)(
                    a.as_ptr(),
                    b.as_mut_ptr(),
                    size / pair,
                    pair as isize,
                    offset,
                );
                layout.unpack_range(inout, 1, 0, b.as_ptr(), size, MsgRep::Native);
            }
        }
    }
}

/// # Safety
/// `input` is valid for reads and `inout` for reads and writes of `count` pairs, `extent` bytes
/// apart, whose index lies `offset` bytes after the value; the two do not overlap.
unsafe fn each<V: Copy + PartialOrd, I: Copy + PartialOrd, const MAX: bool>(
    input: *const u8,
    inout: *mut u8,
    count: usize,
    extent: isize,
    offset: isize,
) {
    for item in 0..count as isize {
        let at = item.wrapping_mul(extent);
        let (a, b) = (input.wrapping_offset(at), inout.wrapping_offset(at));
        // SAFETY: from the caller.
        unsafe {
            let (a_index, b_index) = (a.wrapping_offset(offset), b.wrapping_offset(offset));
            let (a, b) = (a.cast::<V>(), b.cast::<V>());
            let (a_index, b_index) = (a_index.cast::<I>(), b_index.cast::<I>());
            let place = (a_index.read_unaligned(), b_index.read_unaligned());
            match wins::<V, MAX>(a.read_unaligned(), b.read_unaligned()) {
                Verdict::Input => {
                    b.write_unaligned(a.read_unaligned());
                    b_index.write_unaligned(place.0);
                }
                // Values that tie may differ in their bits (+0 and −0), so the pair is copied as a
                // whole.
                Verdict::Tie if comes_first((a, a_index), (b, b_index)) => {
                    b.write_unaligned(a.read_unaligned());
                    b_index.write_unaligned(place.0);
                }
                Verdict::Tie | Verdict::Inout => {}
            }
        }
    }
}

/// Which of two pairs whose values tie wins: the one with the lower index. If the indices are equal
/// too, the bytes decide, so that the result is the same in either order.
///
/// # Safety
/// All four are readable.
#[inline(always)]
unsafe fn comes_first<V, I: Copy + PartialOrd>(
    a: (*const V, *const I),
    b: (*mut V, *mut I),
) -> bool {
    // SAFETY: from the caller; numbers have no padding.
    unsafe {
        let (one, other) = (a.1.read_unaligned(), b.1.read_unaligned());
        if one < other || other < one {
            return one < other;
        }
        let bytes = |value: *const V, index: *const I| {
            let value = std::slice::from_raw_parts(value.cast::<u8>(), size_of::<V>());
            let index = std::slice::from_raw_parts(index.cast::<u8>(), size_of::<I>());
            (value, index)
        };
        bytes(a.0, a.1) < bytes(b.0, b.1)
    }
}

enum Verdict {
    Input,
    Tie,
    Inout,
}

/// Which of two values wins. NaN beats every number and ties with NaN, so that the result does
/// not depend on the order of the ranks.
#[inline(always)]
#[expect(clippy::eq_op, reason = "only NaN differs from itself")]
fn wins<V: Copy + PartialOrd, const MAX: bool>(a: V, b: V) -> Verdict {
    match (a != a, b != b) {
        (true, true) => Verdict::Tie,
        (true, false) => Verdict::Input,
        (false, true) => Verdict::Inout,
        _ if a == b => Verdict::Tie,
        _ if (a > b) == MAX => Verdict::Input,
        _ => Verdict::Inout,
    }
}
