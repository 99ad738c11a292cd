//! The allocated parts of the symmetric heap: one account for all PEs.

use std::collections::BTreeMap;

use super::costs::LINE;

/// A first-fit allocator over free ranges, in whole lines.
#[derive(Debug)]
pub(crate) struct Heap {
    free: BTreeMap<usize, usize>,
    used: BTreeMap<usize, usize>,
    size: usize,
}

impl Heap {
    /// Makes a heap of `heap` free bytes, which follow `statics` bytes that are never allocated.
    pub(crate) fn new(statics: usize, heap: usize) -> Self {
        let start = statics.next_multiple_of(LINE);
        let size = start + heap / LINE * LINE;
        let mut free = BTreeMap::new();
        if size > start {
            free.insert(start, size - start);
        }
        Self {
            free,
            used: BTreeMap::new(),
            size,
        }
    }

    /// Allocates `len` bytes and returns their offset, or the number of free bytes if they do not
    /// fit in one piece.
    pub(crate) fn allocate(&mut self, len: usize) -> Result<usize, usize> {
        let left = |heap: &Self| heap.free.values().sum();
        let Some(need) = len.max(1).checked_next_multiple_of(LINE) else {
            return Err(left(self));
        };
        let found = self.free.iter().find(|(_, room)| **room >= need);
        let Some((&at, &room)) = found else {
            return Err(left(self));
        };
        self.free.remove(&at);
        if room > need {
            self.free.insert(at + need, room - need);
        }
        self.used.insert(at, need);
        Ok(at)
    }

    /// Frees the range at `at` and joins it with its neighbours. Returns whether it was allocated.
    pub(crate) fn free(&mut self, at: usize) -> bool {
        let Some(mut len) = self.used.remove(&at) else {
            return false;
        };
        let mut at = at;
        if let Some(after) = self.free.remove(&(at + len)) {
            len += after;
        }
        if let Some((&before, &room)) = self.free.range(..at).next_back()
            && before + room == at
        {
            at = before;
            len += room;
        }
        self.free.insert(at, len);
        true
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_freed_joins_and_can_be_used_again() {
        let mut heap = Heap::new(60, 300);
        assert_eq!(heap.size(), 64 + 256);
        let blocks: Vec<_> = (0..4).map(|_| heap.allocate(33).unwrap()).collect();
        assert_eq!(blocks, [64, 128, 192, 256]);
        assert_eq!(heap.allocate(1), Err(0));
        for block in [128, 256, 192] {
            assert!(heap.free(block));
        }
        assert!(!heap.free(192));
        assert_eq!(heap.allocate(192), Ok(128));
        assert_eq!(heap.allocate(usize::MAX), Err(0));
    }
}
