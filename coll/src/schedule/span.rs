//! The places of the data that a schedule moves.

/// One of a schedule's memories, which get their addresses when the schedule runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Base {
    /// The caller's send buffer.
    Send,
    /// The caller's receive buffer, or the only buffer of operations that have just one.
    Recv,
    /// The schedule's own memory.
    Scratch,
}

/// A layout of the schedule, as an index into its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LayoutId(pub(super) u32);

impl LayoutId {
    /// Plain bytes. Messages of plain bytes match any type.
    pub const BYTES: Self = Self(0);
}

/// `count` items of a layout, beginning `offset` bytes after the beginning of a memory.
///
/// The other side of a message, or of a copy, may have another layout: only the packed streams have
/// to agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The memory.
    pub base: Base,
    /// Bytes from the memory's beginning to displacement 0 of the first item.
    pub offset: isize,
    /// Number of items.
    pub count: usize,
    /// Layout of an item.
    pub layout: LayoutId,
    /// Bytes of data in an item.
    pub size: usize,
    /// Bytes from one item to the next.
    pub extent: isize,
}

impl Span {
    /// Plain bytes.
    #[must_use]
    pub fn bytes(base: Base, offset: usize, len: usize) -> Self {
        Self {
            base,
            offset: offset as isize,
            count: len,
            layout: LayoutId::BYTES,
            size: 1,
            extent: 1,
        }
    }

    /// Bytes of the packed stream.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.count * self.size
    }

    /// Whether there is no data.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `count` of the items, from number `first` on.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn items(&self, first: usize, count: usize) -> Self {
        assert!(
            first <= self.count && count <= self.count - first,
            "items {first}+{count} of {}",
            self.count
        );
        Self {
            offset: self.offset + first as isize * self.extent,
            count,
            ..*self
        }
    }

    /// Both as one span, if the other's items directly follow this one's.
    #[must_use]
    pub fn joined(&self, next: &Self) -> Option<Self> {
        let all = Self {
            count: self.count.checked_add(next.count)?,
            ..*self
        };
        let first = all.items(self.count, next.count);
        (first == *next).then_some(all)
    }

    /// Part number `index` of the items divided into `parts` parts of nearly equal length. Later
    /// parts are not longer than earlier ones.
    #[must_use]
    pub fn part(&self, index: usize, parts: usize) -> Self {
        let range = part(self.count, index, parts);
        self.items(range.start, range.len())
    }
}

/// Part number `index` of 0..`count` divided into `parts` parts of nearly equal length, longer ones
/// first.
#[must_use]
pub fn part(count: usize, index: usize, parts: usize) -> std::ops::Range<usize> {
    let (each, more) = (count / parts, count % parts);
    let first = index * each + index.min(more);
    first..first + each + usize::from(index < more)
}

/// One block per rank of a communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Blocks with the same number of items, side by side: the items of `whole` in `ranks` parts.
    Equal {
        /// All blocks together.
        whole: Span,
        /// Number of blocks.
        ranks: u32,
    },
    /// Blocks with any number of items, anywhere.
    Listed(Vec<Span>),
}

impl Blocks {
    /// The block of a rank.
    #[inline]
    #[must_use]
    pub fn of(&self, rank: u32) -> Span {
        match self {
            Self::Equal { whole, ranks } => {
                let each = whole.count / *ranks as usize;
                whole.items(rank as usize * each, each)
            }
            Self::Listed(spans) => spans[rank as usize],
        }
    }

    /// Blocks `first` to `first + count` as one span, if they lie side by side by construction.
    #[must_use]
    pub fn range(&self, first: u32, count: u32) -> Option<Span> {
        match self {
            Self::Equal { whole, ranks } => {
                let each = whole.count / *ranks as usize;
                Some(whole.items(first as usize * each, count as usize * each))
            }
            Self::Listed(_) => None,
        }
    }

    /// Whether all blocks are equally long by construction, so that every rank knows it without
    /// communication.
    #[must_use]
    pub fn are_equal(&self) -> bool {
        matches!(self, Self::Equal { .. })
    }

    /// Number of blocks.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        match self {
            Self::Equal { ranks, .. } => *ranks,
            Self::Listed(spans) => spans.len() as u32,
        }
    }

    /// Bytes of data in all blocks together.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Equal { whole, .. } => whole.len(),
            Self::Listed(spans) => spans.iter().map(Span::len).sum(),
        }
    }

    /// Whether there is no data in any block.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_everything_once() {
        for count in 0..40 {
            for parts in 1..9 {
                let mut next = 0;
                for index in 0..parts {
                    let range = part(count, index, parts);
                    assert_eq!(range.start, next);
                    next = range.end;
                }
                assert_eq!(next, count);
            }
        }
    }
}
