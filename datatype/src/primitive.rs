//! The primitive types: what every layout is made of in the end.

use std::fmt;
use std::mem::{align_of, size_of};

/// A type that is not made of others, with a fixed size and a fixed meaning.
///
/// Primitives correspond to MPI's predefined datatypes (MPI-4, 3.2.2). Their sizes are the same on
/// every machine. So a position in a packed stream means the same to both ranks of a message,
/// whatever representation is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Primitive {
    /// Eight uninterpreted bits (`MPI_BYTE`): never converted, matches everything.
    #[doc(alias = "MPI_BYTE")]
    Byte = 1,
    /// A byte of a packed stream (`MPI_PACKED`): never converted, matches everything.
    #[doc(alias = "MPI_PACKED")]
    Packed = 2,
    /// `i8`.
    I8 = 3,
    /// `u8`.
    U8 = 4,
    /// `i16`.
    I16 = 5,
    /// `u16`.
    U16 = 6,
    /// `i32`.
    I32 = 7,
    /// `u32`.
    U32 = 8,
    /// `i64`, and `isize` where that is 64 bits wide.
    I64 = 9,
    /// `u64`, and `usize` where that is 64 bits wide.
    U64 = 10,
    /// `i128`.
    I128 = 11,
    /// `u128`.
    U128 = 12,
    /// `f32`.
    F32 = 13,
    /// `f64`.
    F64 = 14,
    /// `bool`: one byte, 0 or 1.
    Bool = 15,
    /// Rust's `char`: a Unicode scalar value in 32 bits.
    Char = 16,
    /// [`Complex<f32>`](crate::Complex): real part, then imaginary part.
    C32 = 17,
    /// [`Complex<f64>`](crate::Complex): real part, then imaginary part.
    C64 = 18,
}

impl Primitive {
    /// Every primitive, in the order of their codes.
    pub const ALL: [Primitive; 18] = {
        use Primitive::*;
        [
            Byte, Packed, I8, U8, I16, U16, I32, U32, I64, U64, I128, U128, F32, F64, Bool, Char,
            C32, C64,
        ]
    };

    /// The number of this primitive in signatures: 1 or more, the same on every machine and in
    /// every version of this crate.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The primitive with that code.
    pub const fn from_code(code: u8) -> Option<Primitive> {
        if code == 0 || code as usize > Self::ALL.len() {
            return None;
        }
        Some(Self::ALL[code as usize - 1])
    }

    /// Size in bytes, in memory and in every message representation.
    pub const fn size(self) -> usize {
        use Primitive::*;
        match self {
            Byte | Packed | I8 | U8 | Bool => 1,
            I16 | U16 => 2,
            I32 | U32 | F32 | Char => 4,
            I64 | U64 | F64 | C32 => 8,
            I128 | U128 | C64 => 16,
        }
    }

    /// Alignment in bytes that this machine's compiler gives it.
    pub const fn align(self) -> usize {
        use Primitive::*;
        match self {
            Byte | Packed | I8 | U8 | Bool => 1,
            I16 | U16 => align_of::<u16>(),
            I32 | U32 | Char => align_of::<u32>(),
            F32 | C32 => align_of::<f32>(),
            I64 | U64 => align_of::<u64>(),
            F64 | C64 => align_of::<f64>(),
            I128 | U128 => align_of::<u128>(),
        }
    }

    /// Width in bytes of the units that are reversed when the byte order changes: the size, except
    /// that the two halves of a complex number are reversed one by one.
    pub const fn swap_width(self) -> usize {
        match self {
            Primitive::C32 => size_of::<f32>(),
            Primitive::C64 => size_of::<f64>(),
            other => other.size(),
        }
    }

    /// Whether it stands for uninterpreted bytes and therefore matches every type.
    pub const fn is_wild(self) -> bool {
        matches!(self, Primitive::Byte | Primitive::Packed)
    }

    /// The name for messages.
    pub const fn name(self) -> &'static str {
        use Primitive::*;
        match self {
            Byte => "byte",
            Packed => "packed",
            I8 => "i8",
            U8 => "u8",
            I16 => "i16",
            U16 => "u16",
            I32 => "i32",
            U32 => "u32",
            I64 => "i64",
            U64 => "u64",
            I128 => "i128",
            U128 => "u128",
            F32 => "f32",
            F64 => "f64",
            Bool => "bool",
            Char => "char",
            C32 => "complex f32",
            C64 => "complex f64",
        }
    }
}

impl fmt::Display for Primitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_positions_in_the_table() {
        for p in Primitive::ALL {
            assert_eq!(Primitive::from_code(p.code()), Some(p));
        }
        assert_eq!(Primitive::from_code(0), None);
        assert_eq!(Primitive::from_code(19), None);
    }

    #[test]
    fn halves_of_complex_numbers_are_swapped_one_by_one() {
        for p in Primitive::ALL {
            assert_eq!(p.size() % p.swap_width(), 0, "{p}");
        }
        assert_eq!(Primitive::C64.swap_width(), 8);
    }
}
