//! Numbers that look random and follow from a seed.

/// A small generator of pseudo-random numbers (SplitMix64, Steele, Lea and Flood 2014): one word of
/// state, so that a seed in a failure message is all it takes to repeat a run.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that starts from this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    ///
    /// # Panics
    /// If `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        // The high half of the product: uneven by at most bound / 2^64, which no test can see.
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// True once in `n` times.
    ///
    /// # Panics
    /// If `n` is zero.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
