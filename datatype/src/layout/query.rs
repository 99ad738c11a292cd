//! Queries of sizes, bounds, counts and signatures.

use std::ops::Range;

use super::Layout;
use crate::signature::Tally;
use crate::{LayoutError, MsgRep, Primitive, Signature};

/// Layouts with more parts than this get a table for finding a position in the packed stream.
const MARKED_PARTS: usize = 16;

impl Layout {
    /// Bytes of data in one item (`MPI_Type_size`).
    #[doc(alias = "MPI_Type_size")]
    pub fn size(&self) -> usize {
        self.0.tally.bytes
    }

    /// Bytes from one item to the next (`MPI_Type_get_extent`); negative if `resized` made it so.
    #[doc(alias = "MPI_Type_get_extent")]
    pub fn extent(&self) -> isize {
        self.0.extent
    }

    /// Lower bound, in bytes from an item's address.
    pub fn lb(&self) -> isize {
        self.0.bounds.lb()
    }

    /// Upper bound, in bytes from an item's address.
    pub fn ub(&self) -> isize {
        self.0.bounds.ub()
    }

    /// The lowest byte of data (`MPI_Type_get_true_extent`), in bytes from an item's address.
    #[doc(alias = "MPI_Type_get_true_extent")]
    pub fn true_lb(&self) -> isize {
        self.0.bounds.true_lb()
    }

    /// Bytes from the lowest byte of data to the end of the highest.
    pub fn true_extent(&self) -> isize {
        self.0.bounds.true_ub() - self.0.bounds.true_lb()
    }

    /// The strictest alignment among the primitives, in bytes; 1 if there is no data. Extents are
    /// rounded up to it. The data itself need not be aligned: nothing in this crate requires any
    /// alignment.
    pub fn alignment(&self) -> usize {
        self.0.bounds.align()
    }

    /// The primitive that the layout is made of, if there is only one.
    #[inline]
    pub fn homogeneous(&self) -> Option<Primitive> {
        self.0.tally.only()
    }

    /// Whether the layout consists of uninterpreted bytes or of packed data, which are never
    /// converted.
    pub fn is_opaque(&self) -> bool {
        self.0.tally.only().is_some_and(Primitive::is_wild)
    }

    /// Whether any number of items, each one extent after the one before, is one run of bytes that
    /// begins at displacement 0 and is in the order of the packed stream. Then
    /// [`pack_range`](Self::pack_range) is a plain copy, and may be skipped.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.commit().is_contiguous()
    }

    /// Bytes of the packed stream of `count` items. All representations have the same size,
    /// because primitives have (see [`Primitive`]).
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    pub fn packed_size(&self, count: usize, _rep: MsgRep) -> Result<usize, LayoutError> {
        let (constructor, what) = ("packed_size", "the packed size");
        self.size()
            .checked_mul(count)
            .ok_or(LayoutError::Overflow { constructor, what })
    }

    /// The bytes that `count` items touch, relative to the buffer's address: the lowest, and the
    /// end of the highest. Empty if they touch none.
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    ///
    /// ```
    /// use portolan_datatype::Layout;
    /// let column = Layout::vector(3, 1, 4, &Layout::of::<i32>())?;
    /// assert_eq!(column.span(1)?, 0..36);
    /// assert_eq!(column.span(0)?, 0..0);
    /// # Ok::<(), portolan_datatype::LayoutError>(())
    /// ```
    pub fn span(&self, count: usize) -> Result<Range<isize>, LayoutError> {
        if count == 0 || self.size() == 0 {
            return Ok(0..0);
        }
        let bounds = &self.0.bounds;
        let ends = || {
            let last = isize::try_from(count - 1)
                .ok()?
                .checked_mul(self.extent())?;
            let low = bounds.true_lb().checked_add(last.min(0))?;
            let high = bounds.true_ub().checked_add(last.max(0))?;
            high.checked_sub(low)?;
            Some(low..high)
        };
        ends().ok_or(LayoutError::Overflow {
            constructor: "span",
            what: "the last displacement",
        })
    }

    /// How many whole items `bytes` of data are (`MPI_Get_count`); `None` where MPI returns
    /// `MPI_UNDEFINED`.
    #[doc(alias("MPI_Get_count", "MPI_UNDEFINED"))]
    pub fn count(&self, bytes: usize) -> Option<usize> {
        match self.size() {
            0 => (bytes == 0).then_some(0),
            size => bytes.is_multiple_of(size).then(|| bytes / size),
        }
    }

    /// How many primitives `bytes` of data are (`MPI_Get_elements`); `None` if they end inside
    /// one.
    ///
    /// ```
    /// use portolan_datatype::Layout;
    /// let s = Layout::structure(&[1, 1], &[0, 8], &[Layout::of::<i32>(), Layout::of::<f64>()])?;
    /// assert_eq!((s.elements(16), s.count(16)), (Some(3), None));
    /// assert_eq!(s.elements(7), None);
    /// # Ok::<(), portolan_datatype::LayoutError>(())
    /// ```
    #[doc(alias = "MPI_Get_elements")]
    pub fn elements(&self, bytes: usize) -> Option<usize> {
        match self.prefix(bytes) {
            (tally, false) => Some(tally.elements),
            (_, true) => None,
        }
    }

    /// The signature of the first `bytes` of the packed stream of as many items as they fill.
    ///
    /// The sender computes it for its whole message, and the receiver for as many bytes as arrived:
    /// the message's type must be a prefix of the receive's (MPI-4, 3.3.1).
    pub fn signature(&self, bytes: usize) -> Signature {
        if let Some(primitive) = self.0.tally.only()
            && bytes.is_multiple_of(primitive.size())
            && bytes > 0
        {
            return Signature::homogeneous(primitive);
        }
        let (tally, torn) = self.prefix(bytes);
        tally.signature(torn)
    }

    /// The signature of every message of one item or more, if it does not depend on the number of
    /// items. That is so if all of the data is of one primitive or is packed data, or if there is
    /// none.
    ///
    /// ```
    /// use portolan_datatype::{Layout, Primitive, Signature};
    /// let pairs = Layout::of::<[f64; 2]>();
    /// assert_eq!(pairs.uniform(), Some(Signature::homogeneous(Primitive::F64)));
    /// assert_eq!(Layout::byte().uniform(), Some(Signature::ANY));
    /// let s = Layout::structure(&[1, 1], &[0, 8], &[Layout::of::<i32>(), Layout::of::<f64>()])?;
    /// assert_eq!(s.uniform(), None);
    /// # Ok::<(), portolan_datatype::LayoutError>(())
    /// ```
    #[inline]
    pub fn uniform(&self) -> Option<Signature> {
        self.0.tally.uniform()
    }

    /// The primitives in the first `bytes` of the stream, and whether the range ends inside another
    /// one.
    fn prefix(&self, bytes: usize) -> (Tally, bool) {
        if self.size() == 0 {
            return (Tally::EMPTY, bytes > 0);
        }
        let mut layout = self;
        let mut sum = self.0.tally.repeat(bytes / self.size());
        loop {
            let rest = bytes - sum.bytes;
            if rest == 0 {
                return (sum, false);
            }
            // Here 0 < rest < layout.size(): either a primitive is cut, or the layout has parts.
            let Some((before, part)) = layout.part_at(rest) else {
                return (sum, true);
            };
            let inside = (rest - before.bytes) / part.size();
            sum = sum.then(before).then(part.0.tally.repeat(inside));
            layout = part;
        }
    }

    /// The part in which byte `at` of an item lies: the primitives before the part, and the part's
    /// layout. `None` for a primitive.
    fn part_at(&self, at: usize) -> Option<(Tally, &Layout)> {
        let count = self.0.contents.part_count();
        let (mut index, mut sum) = (0, Tally::EMPTY);
        if count > MARKED_PARTS {
            let marks = self.marks();
            index = marks.partition_point(|mark| mark.bytes <= at) - 1;
            sum = marks[index];
        }
        while index < count {
            let part = self.0.contents.part(index, self.0.lowered.as_ref())?;
            let next = sum.then(part.old.0.tally.repeat(part.repeat()?));
            if at < next.bytes {
                return Some((sum, part.old));
            }
            (index, sum) = (index + 1, next);
        }
        None
    }

    fn marks(&self) -> &[Tally] {
        self.0.marks.get_or_init(|| {
            let mut sum = Tally::EMPTY;
            self.parts()
                .map(|part| {
                    let before = sum;
                    sum = sum.then(part.old.0.tally.repeat(part.repeat().unwrap_or(0)));
                    before
                })
                .collect()
        })
    }
}
