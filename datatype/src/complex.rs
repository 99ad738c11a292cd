//! Complex numbers: those of the `num-complex` crate. They are datatypes for two floating-point
//! types.

use num_complex::Complex;

use crate::{Datatype, Layout, Primitive};

macro_rules! complex {
    ($($t:ty: $primitive:ident;)*) => {$(
        // SAFETY: two floating-point numbers side by side (`#[repr(C)]`) are the primitive, without
        // padding.
        unsafe impl Datatype for Complex<$t> {
            const CONTIGUOUS: bool = true;
            const PACKED_SIZE: usize = size_of::<Self>();
            const ANY_BITS: bool = true;
            const HOMOGENEOUS: Option<Primitive> = Some(Primitive::$primitive);

            fn layout() -> Layout {
                const { assert!(size_of::<Self>() == Primitive::$primitive.size()) };
                Layout::primitive(Primitive::$primitive)
            }

            unsafe fn is_valid(_: *const Self) -> bool {
                true
            }
        }
    )*};
}
complex! { f32: C32; f64: C64; }
