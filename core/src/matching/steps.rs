//! A counter of the work that operations do, so that tests can bound costs without a clock.
//!
//! Outside of this crate's own tests the type is empty and every method compiles to nothing.

/// Counts compared entries and visited buckets.
#[derive(Clone, Default, Debug)]
pub(super) struct Steps {
    #[cfg(test)]
    taken: std::cell::Cell<u64>,
}

impl Steps {
    /// A counter at zero.
    pub(super) const fn new() -> Self {
        Self {
            #[cfg(test)]
            taken: std::cell::Cell::new(0),
        }
    }

    /// Counts one step.
    #[inline(always)]
    pub(super) fn take(&self) {
        #[cfg(test)]
        self.taken.set(self.taken.get() + 1);
    }

    /// The steps counted so far.
    #[cfg(test)]
    pub(super) fn taken(&self) -> u64 {
        self.taken.get()
    }
}
