//! Pairs of a value and its index, for `maxloc` and `minloc`.

use std::mem::offset_of;

use crate::{Datatype, Layout, Primitive, cached_layout, same_primitive};

/// A value and an index, usually the rank that has the value: MPI's pair types (MPI-4, 6.9.4).
///
/// `Pair<f32>` is `MPI_FLOAT_INT`, `Pair<f64>` is `MPI_DOUBLE_INT`, `Pair<i32>` is `MPI_2INT`,
/// `Pair<i16>` is `MPI_SHORT_INT` and `Pair<i64>` is `MPI_LONG_INT` where `long` has 64 bits: the
/// same memory as C's structures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd)]
#[repr(C)]
pub struct Pair<T> {
    /// The value that is compared.
    pub value: T,
    /// Where the value was found. Among equal values the one with the lowest index wins.
    pub index: i32,
}

// SAFETY: the layout has both fields at their offsets; it is contiguous only if they fill the
// structure (`repr(C)` keeps their order).
unsafe impl<T: Datatype> Datatype for Pair<T> {
    const CONTIGUOUS: bool =
        T::CONTIGUOUS && size_of::<T>() + size_of::<i32>() == size_of::<Self>();
    const PACKED_SIZE: usize = T::PACKED_SIZE + size_of::<i32>();
    const ANY_BITS: bool = T::ANY_BITS;
    const HOMOGENEOUS: Option<Primitive> = same_primitive(
        T::HOMOGENEOUS,
        size_of::<T>(),
        i32::HOMOGENEOUS,
        size_of::<i32>(),
    );

    fn layout() -> Layout {
        let build = || {
            let offsets = [0, offset_of!(Self, index) as isize];
            let data = Layout::structure(&[1, 1], &offsets, &[T::layout(), i32::layout()])?;
            Layout::resized(&data, 0, size_of::<Self>() as isize)
        };
        // SAFETY: each field is at its offset, and the extent is the size.
        unsafe { cached_layout::<Self>(build) }
    }

    unsafe fn is_valid(value: *const Self) -> bool {
        // SAFETY: from the caller; the value is the first field.
        unsafe { T::is_valid(value.cast()) }
    }
}
