//! Lower and upper bounds (MPI-4, 5.1.6 and 5.1.7).

use super::contents::Part;
use crate::Primitive;

/// Bounds of an item, relative to the address given for it, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Lowest byte of data and end of the highest, if there is any data.
    data: Option<(isize, isize)>,
    /// Bounds set with `resized`. If there are any, only they count, as with MPI's bound markers.
    marks: Option<(isize, isize)>,
    /// The strictest alignment among the primitives: a power of two.
    align: usize,
}

impl Bounds {
    pub(super) const EMPTY: Bounds = Bounds {
        data: None,
        marks: None,
        align: 1,
    };

    pub(super) fn of(primitive: Primitive) -> Bounds {
        Bounds {
            data: Some((0, primitive.size() as isize)),
            marks: None,
            align: primitive.align(),
        }
    }

    /// Adds the copies of an older layout that `part` places. `None` on overflow.
    pub(super) fn add(&mut self, part: &Part<'_>, old: &Bounds) -> Option<()> {
        if part.repeat()? == 0 {
            return Some(());
        }
        let (low, high) = part.shifts()?;
        self.data = merge(self.data, old.data, low, high)?;
        self.marks = merge(self.marks, old.marks, low, high)?;
        self.align = self.align.max(old.align);
        Some(())
    }

    /// Sets the bounds (`resized`). `None` on overflow.
    pub(super) fn mark(&mut self, lb: isize, extent: isize) -> Option<()> {
        self.marks = Some((lb, lb.checked_add(extent)?));
        Some(())
    }

    /// Returns `None` if a bound or an extent does not fit.
    pub(super) fn check(&self) -> Option<()> {
        if let Some((lb, ub)) = self.data {
            let extent = ub.checked_sub(lb)?;
            let rounded = isize::try_from((extent as usize).next_multiple_of(self.align)).ok()?;
            lb.checked_add(rounded)?;
        }
        if let Some((lb, ub)) = self.marks {
            ub.checked_sub(lb)?;
        }
        Some(())
    }

    pub(super) fn true_lb(&self) -> isize {
        self.data.map_or(0, |(lb, _)| lb)
    }

    pub(super) fn true_ub(&self) -> isize {
        self.data.map_or(0, |(_, ub)| ub)
    }

    pub(super) fn lb(&self) -> isize {
        self.marks.map_or_else(|| self.true_lb(), |(lb, _)| lb)
    }

    /// The upper bound. Without marks, the extent is rounded up so that the next item is aligned
    /// (MPI's ε).
    pub(super) fn ub(&self) -> isize {
        if let Some((_, ub)) = self.marks {
            return ub;
        }
        let extent = (self.true_ub() - self.true_lb()) as usize;
        // `check` has made sure that this does not overflow.
        self.true_lb() + extent.next_multiple_of(self.align) as isize
    }

    pub(super) fn extent(&self) -> isize {
        self.ub() - self.lb()
    }

    pub(super) fn align(&self) -> usize {
        self.align
    }
}

/// Widens `sum` by `old` moved to the lowest and to the highest place.
fn merge(
    sum: Option<(isize, isize)>,
    old: Option<(isize, isize)>,
    low: isize,
    high: isize,
) -> Option<Option<(isize, isize)>> {
    let Some((lb, ub)) = old else {
        return Some(sum);
    };
    let placed = (lb.checked_add(low)?, ub.checked_add(high)?);
    Some(Some(match sum {
        None => placed,
        Some((lb, ub)) => (lb.min(placed.0), ub.max(placed.1)),
    }))
}
