//! Free pieces of the segment, that neighbours become one of.

use std::collections::BTreeMap;

/// Pieces by their offsets. No two of them touch.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Pieces(BTreeMap<u64, u64>);

impl Pieces {
    pub(crate) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Takes space from the first piece that is long enough.
    pub(crate) fn take(&mut self, len: u64) -> Option<u64> {
        let (&offset, &have) = self.0.iter().find(|(_, have)| **have >= len)?;
        self.0.remove(&offset);
        if have > len {
            self.0.insert(offset + len, have - len);
        }
        Some(offset)
    }

    /// Adds a piece, joined with its neighbours.
    pub(crate) fn give(&mut self, mut offset: u64, mut len: u64) {
        if let Some(after) = self.0.remove(&(offset + len)) {
            len += after;
        }
        if let Some((&before, &have)) = self.0.range(..offset).next_back()
            && before + have == offset
        {
            self.0.remove(&before);
            (offset, len) = (before, len + have);
        }
        self.0.insert(offset, len);
    }
}

impl IntoIterator for Pieces {
    type Item = (u64, u64);
    type IntoIter = std::collections::btree_map::IntoIter<u64, u64>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_become_one_piece() {
        let mut pieces = Pieces::new();
        pieces.give(8192, 4096);
        pieces.give(0, 4096);
        pieces.give(4096, 4096);
        assert_eq!(pieces.0, BTreeMap::from([(0, 12288)]));
        assert_eq!(pieces.take(4096), Some(0));
        assert_eq!(pieces.take(16384), None);
        assert_eq!(pieces.take(8192), Some(4096));
        assert_eq!(pieces, Pieces::new());
    }
}
