//! Counts per key.

use crate::matching::buckets::Buckets;
use crate::matching::envelope::Key;
use crate::matching::slab::Slab;

/// Keys, each with a count that is not zero.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    buckets: Buckets,
    counts: Slab<(Key, u32)>,
}

impl Counts {
    pub(super) const fn new() -> Self {
        Self {
            buckets: Buckets::new(),
            counts: Slab::new(),
        }
    }

    fn find(&self, key: &Key) -> Option<u32> {
        let is_it = |at| self.counts.get(at).0 == *key;
        self.buckets.find(key.hash(0), is_it)
    }

    /// Whether a key's count is not zero.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.find(key).is_some()
    }

    /// Increments the count of a key.
    pub(super) fn add(&mut self, key: &Key) {
        match self.find(key) {
            Some(at) => self.counts.get_mut(at).1 += 1,
            None => {
                let at = self.counts.insert((*key, 1));
                self.buckets.insert(key.hash(0), at);
            }
        }
    }

    /// Decrements the count of a key, which must not be zero.
    pub(super) fn remove(&mut self, key: &Key) {
        let at = self.find(key).expect("a key that was counted");
        let count = &mut self.counts.get_mut(at).1;
        *count -= 1;
        if *count == 0 {
            self.buckets.remove(key.hash(0), at);
            self.counts.remove(at);
        }
    }
}
