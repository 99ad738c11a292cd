//! The smallest items that an operator combines one by one.

use super::{Op, Predefined, Repr};
use crate::Layout;
use crate::layout::Contents;

impl Op {
    /// The smallest known items of which an item of `layout` is made, side by side, and how many
    /// there are: combining these one after the other combines the whole item. An array of 1000
    /// numbers is 1000 numbers, however it is described.
    ///
    /// ```
    /// use portolan_datatype::{Layout, Op};
    /// let array = Layout::contiguous(1000, &Layout::of::<f64>())?;
    /// assert_eq!(Op::SUM.unit(&array), (&Layout::of::<f64>(), 1000));
    /// # Ok::<(), portolan_datatype::LayoutError>(())
    /// ```
    #[inline]
    pub fn unit<'a>(&'a self, layout: &'a Layout) -> (&'a Layout, usize) {
        match &self.0 {
            Repr::User(user) => user.unit(layout),
            Repr::Predefined(op) => match layout.homogeneous() {
                Some(primitive) if !op.is_of_pairs() && layout.is_contiguous() => {
                    // Sizes of primitives are powers of two, which saves a division.
                    let each = layout.size() >> primitive.size().trailing_zeros();
                    (Layout::primitive_for_ever(primitive), each)
                }
                _ => self.side_by_side(layout),
            },
        }
    }

    /// Goes down as long as the item is one thing repeated, and the operator accepts that thing.
    fn side_by_side<'a>(&self, layout: &'a Layout) -> (&'a Layout, usize) {
        let mut unit = (layout, 1usize);
        loop {
            let (count, old) = match unit.0.contents() {
                Contents::Dup { old } => (1, old),
                Contents::Contiguous { count, old } => (*count, old),
                _ => return unit,
            };
            match unit.1.checked_mul(count) {
                Some(each) if self.check(old).is_ok() => unit = (old, each),
                _ => return unit,
            }
        }
    }
}

impl Predefined {
    #[inline]
    fn is_of_pairs(self) -> bool {
        matches!(self, Self::Maxloc | Self::Minloc)
    }
}
