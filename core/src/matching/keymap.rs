//! A hash table that grows by one bucket at a time (linear hashing, after Litwin, 1980).
//!
//! Budget: find, one bucket; insert, one bucket and at most one split of one bucket; remove, one
//! bucket. No operation looks at a second bucket for any other reason, and none rehashes: the
//! table's bucket numbers are the low bits of the hash, one bit more for the buckets that have
//! been split in the current round than for the others.
//!
//! Buckets live in chunks of 4 KiB that never move. The directory of chunks is one pointer per
//! 1024 buckets; it is the only thing whose growth copies anything.

use super::envelope::{Key, SHAPES};
use super::slab::{NIL, Slab};
use super::steps::Steps;

const CHUNK_BITS: u32 = 10;
const CHUNK: usize = 1 << CHUNK_BITS;

/// Buckets of a new table. A power of two, at most [`CHUNK`].
const FIRST_BUCKETS: u32 = 64;

/// Values filed under keys, each with a node number that stays the same until it is removed.
#[derive(Clone, Debug)]
pub(super) struct KeyMap<V> {
    nodes: Slab<Node<V>>,
    /// Heads of chains of nodes.
    chunks: Vec<Box<[u32]>>,
    buckets: u32,
    /// The smallest power of two that is not below `buckets`, less one.
    mask: u32,
    seed: u64,
    /// The node that was last filed under, by shape of key: programs repeat themselves, and a key
    /// met again is found without its hash. [`NIL`], or a node that is there.
    fingers: [u32; SHAPES],
    steps: Steps,
}

#[derive(Clone, Debug)]
struct Node<V> {
    key: Key,
    hash: u32,
    next: u32,
    value: V,
}

impl<V> KeyMap<V> {
    /// An empty table, without any memory yet.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            nodes: Slab::new(),
            chunks: Vec::new(),
            buckets: FIRST_BUCKETS,
            mask: FIRST_BUCKETS - 1,
            seed,
            fingers: [NIL; SHAPES],
            steps: Steps::default(),
        }
    }

    /// Makes the table as large as it would become with `capacity` keys in it. For an empty table.
    pub(super) fn reserve(&mut self, capacity: usize) {
        debug_assert!(self.nodes.is_empty());
        self.nodes.reserve(capacity);
        let buckets = u32::try_from(capacity).unwrap_or(NIL >> 1);
        self.buckets = self.buckets.max(buckets);
        self.mask = self.buckets.next_power_of_two() - 1;
        while self.chunks.len() * CHUNK < self.buckets as usize {
            self.add_chunk();
        }
    }

    /// The node of a key.
    #[inline]
    pub(super) fn find(&self, key: &Key) -> Option<u32> {
        if self.nodes.is_empty() {
            return None;
        }
        let finger = self.finger(key);
        if finger.is_some() {
            return finger;
        }
        self.find_hashed(key, key.hash(self.seed))
    }

    /// The node under the finger, if it is this key's.
    #[inline]
    fn finger(&self, key: &Key) -> Option<u32> {
        let node = self.fingers[key.kind as usize % SHAPES];
        self.steps.take();
        (node != NIL && self.nodes.get(node).key == *key).then_some(node)
    }

    #[inline]
    fn find_hashed(&self, key: &Key, hash: u32) -> Option<u32> {
        let mut at = self.head(self.bucket(hash));
        while at != NIL {
            self.steps.take();
            let node = self.nodes.get(at);
            if node.key == *key {
                return Some(at);
            }
            at = node.next;
        }
        None
    }

    /// The node of a key, made with `value()` if there is none.
    #[inline]
    pub(super) fn find_or_insert(&mut self, key: &Key, value: impl FnOnce() -> V) -> u32 {
        if let Some(node) = self.finger(key) {
            return node;
        }
        let node = self.find_or_insert_hashed(key, value);
        self.fingers[key.kind as usize % SHAPES] = node;
        node
    }

    #[inline(never)]
    fn find_or_insert_hashed(&mut self, key: &Key, value: impl FnOnce() -> V) -> u32 {
        if self.chunks.is_empty() {
            self.add_chunk();
        }
        let hash = key.hash(self.seed);
        match self.find_hashed(key, hash) {
            Some(node) => node,
            None => self.insert(*key, hash, value()),
        }
    }

    fn insert(&mut self, key: Key, hash: u32, value: V) -> u32 {
        let bucket = self.bucket(hash);
        let next = self.head(bucket);
        let node = self.nodes.insert(Node {
            key,
            hash,
            next,
            value,
        });
        self.set_head(bucket, node);
        if self.nodes.len() > self.buckets as usize {
            self.split_one();
        }
        node
    }

    /// Removes a node. The chain is walked to it: a handful of nodes whatever the table's size.
    pub(super) fn remove(&mut self, node: u32) -> V {
        for finger in &mut self.fingers {
            if *finger == node {
                *finger = NIL;
            }
        }
        let removed = self.nodes.get(node);
        let bucket = self.bucket(removed.hash);
        let next = removed.next;
        let first = self.head(bucket);
        if first == node {
            self.set_head(bucket, next);
        } else {
            let mut at = first;
            while self.nodes.get(at).next != node {
                self.steps.take();
                at = self.nodes.get(at).next;
            }
            self.nodes.get_mut(at).next = next;
        }
        self.nodes.remove(node).value
    }

    #[inline]
    pub(super) fn value(&self, node: u32) -> &V {
        &self.nodes.get(node).value
    }

    #[inline]
    pub(super) fn value_mut(&mut self, node: u32) -> &mut V {
        &mut self.nodes.get_mut(node).value
    }

    /// Keys in the table, for tests.
    #[cfg(test)]
    pub(super) const fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Adds one bucket and moves to it what belongs there from the one bucket it is split from.
    fn split_one(&mut self) {
        let fresh = self.buckets;
        if fresh == NIL >> 1 {
            return; // Two thousand million keys; chains grow from here.
        }
        self.buckets += 1;
        self.mask = self.buckets.next_power_of_two() - 1;
        if fresh as usize == self.chunks.len() * CHUNK {
            self.add_chunk();
        }
        let parent = fresh & (self.mask >> 1);
        let mut at = self.head(parent);
        let (mut stay, mut moved) = (NIL, NIL);
        while at != NIL {
            self.steps.take();
            let bucket = self.bucket(self.nodes.get(at).hash);
            let chain = if bucket == fresh {
                &mut moved
            } else {
                &mut stay
            };
            let next = std::mem::replace(&mut self.nodes.get_mut(at).next, *chain);
            *chain = at;
            at = next;
        }
        self.set_head(parent, stay);
        self.set_head(fresh, moved);
    }

    #[cold]
    fn add_chunk(&mut self) {
        self.chunks.push(vec![NIL; CHUNK].into_boxed_slice());
    }

    #[inline]
    fn bucket(&self, hash: u32) -> u32 {
        let bucket = hash & self.mask;
        if bucket < self.buckets {
            bucket
        } else {
            bucket & (self.mask >> 1)
        }
    }

    #[inline]
    fn head(&self, bucket: u32) -> u32 {
        self.chunks[bucket as usize >> CHUNK_BITS][bucket as usize & (CHUNK - 1)]
    }

    #[inline]
    fn set_head(&mut self, bucket: u32, node: u32) {
        self.chunks[bucket as usize >> CHUNK_BITS][bucket as usize & (CHUNK - 1)] = node;
    }

    /// Nodes visited so far, for tests.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        self.steps.taken()
    }
}
