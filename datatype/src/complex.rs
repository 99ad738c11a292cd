//! Complex numbers.

use std::ops::{Add, Mul, Neg, Sub};

use crate::{Datatype, Layout, Primitive};

/// A complex number: real part, then imaginary part, as in C, Fortran and the `num-complex` crate.
///
/// ```
/// use portolan_datatype::Complex;
/// let i = Complex { re: 0.0, im: 1.0 };
/// assert_eq!(i * i, Complex { re: -1.0, im: 0.0 });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Complex<T> {
    /// Real part.
    pub re: T,
    /// Imaginary part.
    pub im: T,
}

impl<T: Add<Output = T>> Add for Complex<T> {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Complex {
            re: self.re + other.re,
            im: self.im + other.im,
        }
    }
}

impl<T: Sub<Output = T>> Sub for Complex<T> {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Complex {
            re: self.re - other.re,
            im: self.im - other.im,
        }
    }
}

impl<T: Copy + Add<Output = T> + Sub<Output = T> + Mul<Output = T>> Mul for Complex<T> {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Complex {
            re: self.re * other.re - self.im * other.im,
            im: self.re * other.im + self.im * other.re,
        }
    }
}

impl<T: Neg<Output = T>> Neg for Complex<T> {
    type Output = Self;

    fn neg(self) -> Self {
        Complex {
            re: -self.re,
            im: -self.im,
        }
    }
}

macro_rules! complex {
    ($($t:ty: $primitive:ident;)*) => {$(
        // SAFETY: two floating-point numbers side by side are the primitive, without padding.
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
