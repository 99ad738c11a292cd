//! The trait of Rust types that know their layout.

use crate::{Layout, Primitive};

/// A Rust type whose values can be sent as messages and reduced.
///
/// Derive it for structs and for enums without data:
///
#[cfg_attr(feature = "derive", doc = "```")]
#[cfg_attr(not(feature = "derive"), doc = "```ignore")]
/// use portolan_datatype::{Datatype, Layout};
///
/// #[derive(Clone, Copy, Datatype)]
/// struct Particle {
///     position: [f64; 3],
///     charge: i32,
/// }
///
/// assert_eq!(Layout::of::<Particle>().size(), 28);
/// assert_eq!(Layout::of::<Particle>().extent(), 32);
/// const { assert!(!Particle::CONTIGUOUS) }; // 4 bytes of padding
/// ```
///
/// The stream order is the order of declaration. So two programs agree even if their compilers
/// ordered the fields differently in memory.
///
/// # Safety
/// Senders, receivers and operators trust an implementation:
/// - `layout()` and `layout_for_ever()` always describe the same data: only bytes within
///   `size_of::<Self>()`, none twice, none that can be padding, each with the primitive that is
///   there, and with extent `size_of::<Self>()`.
/// - If `CONTIGUOUS`, then `layout().is_contiguous()`: all bytes of the value are data, in the
///   order of the packed stream.
/// - `PACKED_SIZE` is `layout().size()`.
/// - If `ANY_BITS`, every bit pattern of the data is a valid value, with any bytes as padding.
/// - If `HOMOGENEOUS` is `Some(p)`, then all of the data is `p`.
/// - If `is_valid(value)` returns true, the bytes at `value` are a valid value of `Self`.
/// - A shared reference to a value does not allow its bytes to change (no interior mutability).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be sent as plain data: it does not implement `Datatype`",
    label = "not a `Datatype`",
    note = "numbers, `bool`, `char`, arrays, tuples and complex numbers are; for a struct, or an \
            enum without data, write `#[derive(Clone, Copy, Datatype)]`",
    note = "references, pointers, `Vec`, `String` and `Box` point to memory of one rank: send what \
            they point to, for example the slice of a `Vec`"
)]
pub unsafe trait Datatype: Copy + Send + Sync + 'static {
    /// Whether the value's bytes, in their order in memory, are its packed stream: there is no
    /// padding, and fields lie in the order of declaration.
    const CONTIGUOUS: bool;

    /// Bytes of data in a value: its size without padding, and the size of its layout.
    const PACKED_SIZE: usize;

    /// Whether every bit pattern is a valid value, so that a receive needs no check.
    const ANY_BITS: bool;

    /// The primitive, if all of the data is of one primitive.
    const HOMOGENEOUS: Option<Primitive>;

    /// The layout of one value, with extent `size_of::<Self>()`. Implementations cache it, so that
    /// a call costs no more than a look-up and a count.
    fn layout() -> Layout;

    /// The same layout by reference where it is kept for ever, as that of a primitive is. Callers
    /// then need not count a handle.
    #[inline]
    fn layout_for_ever() -> Option<&'static Layout> {
        None
    }

    /// Whether the bytes at `value` are a valid value.
    ///
    /// # Safety
    /// `value` is valid for reads of `size_of::<Self>()` bytes, of which the data is initialised.
    /// It needs no alignment.
    unsafe fn is_valid(value: *const Self) -> bool;
}

/// The index of the first invalid value among the `count` values at `values`.
///
/// # Safety
/// As [`Datatype::is_valid`], for all of the values.
///
/// ```
/// use portolan_datatype::first_invalid;
/// let bytes = [1u8, 0, 2, 1];
/// // SAFETY: a `bool` is one byte, and there are four.
/// let found = unsafe { first_invalid(bytes.as_ptr().cast::<bool>(), 4) };
/// assert_eq!(found, Some(2));
/// ```
pub unsafe fn first_invalid<T: Datatype>(values: *const T, count: usize) -> Option<usize> {
    if T::ANY_BITS {
        return None;
    }
    // SAFETY: from the caller.
    (0..count).find(|&index| unsafe { !T::is_valid(values.wrapping_add(index)) })
}

/// The single primitive of two kinds of data put together, if there is one. Empty data does not
/// count.
///
/// For implementations of [`Datatype::HOMOGENEOUS`]; `bytes` are the sizes of the two types.
pub const fn same_primitive(
    a: Option<Primitive>,
    a_bytes: usize,
    b: Option<Primitive>,
    b_bytes: usize,
) -> Option<Primitive> {
    match (a, b) {
        (Some(a), Some(b)) if a as u8 == b as u8 => Some(a),
        (a, _) if b_bytes == 0 => a,
        (_, b) if a_bytes == 0 => b,
        _ => None,
    }
}
