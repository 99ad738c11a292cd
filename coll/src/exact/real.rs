//! The floating-point types whose sums can be exact.

use portolan_datatype::Datatype;

/// A floating-point type of IEEE 754: `f32` and `f64`.
pub trait Real: Datatype + sealed::Format {}

impl Real for f32 {}
impl Real for f64 {}

pub(super) mod sealed {
    use portolan_datatype::Datatype;

    /// How a type stores its values.
    pub trait Format: Copy {
        /// The words of a sum: enough for every bit of every finite value, and for sums of more
        /// than 2^40 values, in two's complement; then one word of flags.
        type Words: Datatype + AsRef<[u64]> + AsMut<[u64]>;
        /// The sum of no operands.
        const NOTHING: Self::Words;
        /// Number of stored bits of the fraction.
        const FRACTION: u32;
        /// The stored exponent of infinities and NaN: all ones.
        const SPECIAL: u64;

        fn to_raw(self) -> u64;
        fn from_raw(raw: u64) -> Self;
        fn negated(self) -> Self;
        fn not_a_number() -> Self;
    }

    macro_rules! formats {
        ($($t:ty: $raw:ty, $fraction:literal, $special:literal, $words:literal;)*) => {$(
            impl Format for $t {
                type Words = [u64; $words];
                const NOTHING: Self::Words = [0; $words];
                const FRACTION: u32 = $fraction;
                const SPECIAL: u64 = $special;

                #[inline]
                fn to_raw(self) -> u64 {
                    self.to_bits().into()
                }

                #[inline]
                fn from_raw(raw: u64) -> Self {
                    Self::from_bits(raw as $raw)
                }

                #[inline]
                fn negated(self) -> Self {
                    -self
                }

                fn not_a_number() -> Self {
                    Self::NAN
                }
            }
        )*};
    }
    // `f32`: values are multiples of 2^-149 below 2^128, which takes 277 bits, with 43 to spare in
    // 5 words of 64. `f64`: multiples of 2^-1074 below 2^1024, which takes 2,098 bits, with 78 to
    // spare in 34.
    formats! {
        f32: u32, 23, 0xff, 6;
        f64: u64, 52, 0x7ff, 35;
    }
}
