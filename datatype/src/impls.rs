//! `Datatype` for the types of the language and of std.

use std::marker::PhantomData;
use std::mem::offset_of;
use std::num::{NonZero, Saturating, Wrapping};

use crate::{Datatype, Layout, Primitive, cached_layout, same_primitive};

/// Types that are one primitive each: whether they have `ANY_BITS`, then the check of a value.
macro_rules! primitives {
    ($($t:ty: $primitive:ident, $any:literal, $valid:expr;)*) => {$(
        // SAFETY: the type has the size of the primitive, no padding, and only values for which
        // the check holds.
        unsafe impl Datatype for $t {
            const CONTIGUOUS: bool = true;
            const PACKED_SIZE: usize = size_of::<$t>();
            const ANY_BITS: bool = $any;
            const HOMOGENEOUS: Option<Primitive> = Some(Primitive::$primitive);

            fn layout() -> Layout {
                const { assert!(size_of::<$t>() == Primitive::$primitive.size()) };
                Layout::primitive(Primitive::$primitive)
            }

            fn layout_for_ever() -> Option<&'static Layout> {
                Some(Layout::primitive_for_ever(Primitive::$primitive))
            }

            unsafe fn is_valid(value: *const Self) -> bool {
                let valid: unsafe fn(*const Self) -> bool = $valid;
                // SAFETY: from the caller.
                unsafe { valid(value) }
            }
        }
    )*};
}

primitives! {
    i8: I8, true, |_| true;
    u8: U8, true, |_| true;
    i16: I16, true, |_| true;
    u16: U16, true, |_| true;
    i32: I32, true, |_| true;
    u32: U32, true, |_| true;
    i64: I64, true, |_| true;
    u64: U64, true, |_| true;
    i128: I128, true, |_| true;
    u128: U128, true, |_| true;
    f32: F32, true, |_| true;
    f64: F64, true, |_| true;
    bool: Bool, false, valid_bool;
    char: Char, false, valid_char;
}

#[cfg(target_pointer_width = "64")]
primitives! {
    isize: I64, true, |_| true;
    usize: U64, true, |_| true;
}

#[cfg(target_pointer_width = "32")]
primitives! {
    isize: I32, true, |_| true;
    usize: U32, true, |_| true;
}

/// # Safety
/// `value` is valid for reads of one byte.
unsafe fn valid_bool(value: *const bool) -> bool {
    // SAFETY: from the caller.
    unsafe { value.cast::<u8>().read() <= 1 }
}

/// # Safety
/// `value` is valid for reads of four bytes.
unsafe fn valid_char(value: *const char) -> bool {
    // SAFETY: from the caller.
    char::from_u32(unsafe { value.cast::<u32>().read_unaligned() }).is_some()
}

macro_rules! non_zeros {
    ($($t:ty),*) => {$(
        // SAFETY: `NonZero` has the layout of its integer, and every value but zero.
        unsafe impl Datatype for NonZero<$t> {
            const CONTIGUOUS: bool = true;
            const PACKED_SIZE: usize = size_of::<$t>();
            const ANY_BITS: bool = false;
            const HOMOGENEOUS: Option<Primitive> = <$t>::HOMOGENEOUS;

            fn layout() -> Layout {
                <$t>::layout()
            }

            unsafe fn is_valid(value: *const Self) -> bool {
                // SAFETY: from the caller.
                unsafe { value.cast::<$t>().read_unaligned() != 0 }
            }
        }
    )*};
}
non_zeros!(
    i8, u8, i16, u16, i32, u32, i64, u64, i128, u128, isize, usize
);

macro_rules! transparent {
    ($($wrapper:ident),*) => {$(
        // SAFETY: the type is `repr(transparent)` over its only field.
        unsafe impl<T: Datatype> Datatype for $wrapper<T> {
            const CONTIGUOUS: bool = T::CONTIGUOUS;
            const PACKED_SIZE: usize = T::PACKED_SIZE;
            const ANY_BITS: bool = T::ANY_BITS;
            const HOMOGENEOUS: Option<Primitive> = T::HOMOGENEOUS;

            fn layout() -> Layout {
                T::layout()
            }

            unsafe fn is_valid(value: *const Self) -> bool {
                // SAFETY: from the caller.
                unsafe { T::is_valid(value.cast()) }
            }
        }
    )*};
}
transparent!(Wrapping, Saturating);

// SAFETY: an array is its elements, one after the other without gaps.
unsafe impl<T: Datatype, const N: usize> Datatype for [T; N] {
    const CONTIGUOUS: bool = T::CONTIGUOUS || N == 0;
    const PACKED_SIZE: usize = N * T::PACKED_SIZE;
    const ANY_BITS: bool = T::ANY_BITS || N == 0;
    const HOMOGENEOUS: Option<Primitive> = T::HOMOGENEOUS;

    fn layout() -> Layout {
        // SAFETY: elements lie one after the other.
        unsafe { cached_layout::<Self>(|| Layout::contiguous(N, &T::layout())) }
    }

    unsafe fn is_valid(value: *const Self) -> bool {
        let first = value.cast::<T>();
        // SAFETY: from the caller, for each of the elements.
        T::ANY_BITS || (0..N).all(|index| unsafe { T::is_valid(first.wrapping_add(index)) })
    }
}

// SAFETY: there is no data.
unsafe impl<T: Send + Sync + 'static + ?Sized> Datatype for PhantomData<T> {
    const CONTIGUOUS: bool = true;
    const PACKED_SIZE: usize = 0;
    const ANY_BITS: bool = true;
    const HOMOGENEOUS: Option<Primitive> = None;

    fn layout() -> Layout {
        <()>::layout()
    }

    unsafe fn is_valid(_: *const Self) -> bool {
        true
    }
}

// SAFETY: there is no data.
unsafe impl Datatype for () {
    const CONTIGUOUS: bool = true;
    const PACKED_SIZE: usize = 0;
    const ANY_BITS: bool = true;
    const HOMOGENEOUS: Option<Primitive> = None;

    fn layout() -> Layout {
        // SAFETY: there is no data.
        unsafe { cached_layout::<Self>(|| Layout::structure(&[], &[], &[])) }
    }

    unsafe fn is_valid(_: *const Self) -> bool {
        true
    }
}

/// Tuples. The compiler may order their fields as it likes; `offset_of!` says where they are.
macro_rules! tuples {
    ($(($($t:ident $index:tt),+))*) => {$(
        // SAFETY: the layout has each field at its offset, and `CONTIGUOUS` holds only if the
        // fields follow each other from the first byte to the last.
        unsafe impl<$($t: Datatype),+> Datatype for ($($t,)+) {
            const CONTIGUOUS: bool = {
                let mut end = 0;
                let mut dense = true;
                $(
                    let at = offset_of!(Self, $index);
                    dense &= $t::CONTIGUOUS && (size_of::<$t>() == 0 || at == end);
                    end += size_of::<$t>();
                )+
                dense && end == size_of::<Self>()
            };
            const PACKED_SIZE: usize = 0 $(+ $t::PACKED_SIZE)+;
            const ANY_BITS: bool = $($t::ANY_BITS)&&+;
            const HOMOGENEOUS: Option<Primitive> = {
                let (mut primitive, mut bytes) = (None, 0);
                $(
                    let size = size_of::<$t>();
                    primitive = same_primitive(primitive, bytes, $t::HOMOGENEOUS, size);
                    bytes += size;
                )+
                let _ = bytes;
                primitive
            };

            fn layout() -> Layout {
                let build = || {
                    let offsets = [$(offset_of!(Self, $index) as isize),+];
                    let fields = [$($t::layout()),+];
                    let data = Layout::structure(&[1; [$($index),+].len()], &offsets, &fields)?;
                    Layout::resized(&data, 0, size_of::<Self>() as isize)
                };
                // SAFETY: each field is at its offset, and the extent is the size.
                unsafe { cached_layout::<Self>(build) }
            }

            unsafe fn is_valid(value: *const Self) -> bool {
                let bytes = value.cast::<u8>();
                // SAFETY: from the caller, for each of the fields.
                unsafe {
                    $($t::is_valid(bytes.wrapping_add(offset_of!(Self, $index)).cast()))&&+
                }
            }
        }
    )*};
}

tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
}
