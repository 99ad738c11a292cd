//! The loop that an operator runs over elements side by side.

use std::fmt;

use super::{Op, Repr};
use crate::Layout;
use crate::program::Reducer;

impl Op {
    /// The loop over elements that [`apply`](Self::apply) runs for a predefined operator of
    /// reductions, if the data of `layout` is elements of one type side by side, on which it is
    /// defined. `None` for operators on pairs, and for those that are only for one-sided
    /// communication. For a caller that has few items: it saves looking the loop up twice, once to
    /// [check](Self::check) and once to apply.
    ///
    /// ```
    /// use portolan_datatype::{Layout, Op};
    /// let sum = Op::SUM.elementwise(&Layout::of::<u32>()).expect("defined on numbers");
    /// let (left, mut right) = (1u32, 2u32);
    /// // SAFETY: both are four bytes of initialised memory, apart from each other.
    /// unsafe { sum.apply((&raw const left).cast(), (&raw mut right).cast(), 4) };
    /// assert_eq!(right, 3);
    /// ```
    #[inline]
    pub fn elementwise(&self, layout: &Layout) -> Option<Elementwise> {
        match &self.0 {
            Repr::Predefined(op) if layout.is_contiguous() => op.reducer(layout).map(Elementwise),
            _ => None,
        }
    }
}

/// What a predefined operator does to elements that lie side by side ([`Op::elementwise`]).
#[derive(Clone, Copy)]
pub struct Elementwise(pub(super) Reducer);

impl Elementwise {
    /// Combines `len` bytes of elements at `input` into those at `inout`. A part of an element at
    /// the end is left alone.
    ///
    /// # Safety
    /// `input` is initialised and valid for reads of `len` bytes, `inout` for reads and writes, and
    /// the two do not overlap. No alignment is needed.
    #[inline]
    pub unsafe fn apply(self, input: *const u8, inout: *mut u8, len: usize) {
        // Sizes of elements are powers of two, which saves a division.
        debug_assert!(self.0.element.is_power_of_two());
        let elements = len >> self.0.element.trailing_zeros();
        // SAFETY: from the caller.
        unsafe { (self.0.combine)(input, inout, elements) };
    }
}

impl fmt::Debug for Elementwise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_bytes = self.0.element;
        f.debug_struct("Elementwise")
            .field("of_bytes", &of_bytes)
            .finish_non_exhaustive()
    }
}
