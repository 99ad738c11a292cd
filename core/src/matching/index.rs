//! Lists of entries by key. Each list holds its key's entries in the order in which they were
//! appended.
//!
//! A list is a ring through the entries themselves: the neighbours of the first entry are the
//! second and the last. The table stores the first entry, and the first entry stores the key, so a
//! list needs no memory of its own.
//!
//! Budget: `first` costs one bucket and one entry; `append` and `unlink` cost one bucket and three
//! entries.

use super::buckets::Buckets;
use super::envelope::{Key, SHAPES};
use super::slab::{NIL, Slab};

/// An entry's place in one list.
#[derive(Copy, Clone, Debug)]
pub(super) struct Link {
    /// The previous entry; in the first entry, the last one.
    prev: u32,
    /// The next entry; in the last entry, the first one.
    next: u32,
    place: Place,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Place {
    /// In no list.
    Out,
    First,
    Behind,
}

impl Link {
    /// In no list.
    pub(super) const OUT: Self = Self {
        prev: NIL,
        next: NIL,
        place: Place::Out,
    };

    /// Whether the entry is in a list.
    #[inline]
    pub(super) fn is_in(&self) -> bool {
        self.place != Place::Out
    }
}

/// An entry that can be in several lists at once, one per lane.
pub(super) trait Linked {
    /// The key under which the entry is filed in a lane.
    fn key(&self, lane: usize) -> Key;

    /// The entry's place in the list of a lane.
    fn link(&self, lane: usize) -> &Link;

    /// Mutable access to the entry's place in the list of a lane.
    fn link_mut(&mut self, lane: usize) -> &mut Link;
}

/// Caches the list that was last appended to. Programs repeat themselves, and this finds a repeated
/// key without hashing it.
#[derive(Clone, Debug)]
struct Finger {
    key: Key,
    hash: u32,
    /// The list's first entry; [`NIL`] if the list is gone.
    first: u32,
}

/// The lists, found by key.
#[derive(Clone, Debug)]
pub(super) struct Index {
    firsts: Buckets,
    seed: u64,
    /// One per shape of key.
    fingers: [Finger; SHAPES],
}

impl Index {
    pub(super) fn new(seed: u64) -> Self {
        const NONE: Finger = Finger {
            key: Key::NONE,
            hash: 0,
            first: NIL,
        };
        Self {
            firsts: Buckets::new(),
            seed,
            fingers: [NONE; SHAPES],
        }
    }

    pub(super) fn reserve(&mut self, capacity: usize) {
        self.firsts.reserve(capacity);
    }

    /// The earliest entry filed under a key.
    #[inline]
    pub(super) fn first<V: Linked>(&self, slots: &Slab<V>, lane: usize, key: &Key) -> Option<u32> {
        let finger = &self.fingers[key.shape()];
        if finger.key == *key && finger.first != NIL {
            return Some(finger.first);
        }
        self.find(slots, lane, key, key.hash(self.seed))
    }

    #[inline]
    fn find<V: Linked>(&self, slots: &Slab<V>, lane: usize, key: &Key, hash: u32) -> Option<u32> {
        self.firsts.find(hash, |slot| {
            let entry = slots.get(slot);
            // An entry may be filed under the same hash in two lanes.
            entry.key(lane) == *key && entry.link(lane).place == Place::First
        })
    }

    /// Prefetches the memory that [`guess`](Self::guess) reads.
    #[inline]
    pub(super) fn prefetch(&self, key: &Key) {
        self.firsts.prefetch(key.hash(self.seed));
    }

    /// The entry that [`first`](Self::first) will probably return. Accesses no entry.
    #[inline]
    pub(super) fn guess(&self, key: &Key) -> Option<u32> {
        self.firsts.guess(key.hash(self.seed))
    }

    /// Files an entry under its key in a lane, after the entries that are there already.
    #[inline]
    pub(super) fn append<V: Linked>(&mut self, slots: &mut Slab<V>, lane: usize, slot: u32) {
        let key = slots.get(slot).key(lane);
        let finger = &self.fingers[key.shape()];
        if finger.key == key && finger.first != NIL {
            return Self::append_behind(slots, lane, finger.first, slot);
        }
        let hash = key.hash(self.seed);
        let first = match self.find(slots, lane, &key, hash) {
            Some(first) => {
                Self::append_behind(slots, lane, first, slot);
                first
            }
            None => {
                *slots.get_mut(slot).link_mut(lane) = Link {
                    prev: slot,
                    next: slot,
                    place: Place::First,
                };
                self.firsts.insert(hash, slot);
                slot
            }
        };
        self.fingers[key.shape()] = Finger { key, hash, first };
    }

    /// Adds an entry to the list whose first entry is `first`.
    #[inline]
    fn append_behind<V: Linked>(slots: &mut Slab<V>, lane: usize, first: u32, slot: u32) {
        let last = std::mem::replace(&mut slots.get_mut(first).link_mut(lane).prev, slot);
        slots.get_mut(last).link_mut(lane).next = slot;
        *slots.get_mut(slot).link_mut(lane) = Link {
            prev: last,
            next: first,
            place: Place::Behind,
        };
    }

    /// Removes an entry from its list, wherever in the list it is.
    #[inline]
    pub(super) fn unlink<V: Linked>(&mut self, slots: &mut Slab<V>, lane: usize, slot: u32) {
        let entry = slots.get_mut(slot);
        let key = entry.key(lane);
        let Link { prev, next, place } = std::mem::replace(entry.link_mut(lane), Link::OUT);
        let alone = next == slot;
        if !alone {
            slots.get_mut(prev).link_mut(lane).next = next;
            let behind = slots.get_mut(next).link_mut(lane);
            behind.prev = prev;
            if place == Place::Behind {
                return;
            }
            behind.place = Place::First;
        }
        let finger = &mut self.fingers[key.shape()];
        let hash = if finger.first == slot {
            finger.first = if alone { NIL } else { next };
            finger.hash
        } else {
            key.hash(self.seed)
        };
        if alone {
            self.firsts.remove(hash, slot);
        } else {
            self.firsts.replace(hash, slot, next);
        }
    }

    /// Keys with entries, for tests.
    #[cfg(test)]
    pub(super) fn keys(&self) -> usize {
        self.firsts.len()
    }

    /// Chunks of buckets, for tests.
    #[cfg(test)]
    pub(super) fn chunks(&self) -> usize {
        self.firsts.chunks()
    }

    /// Buckets visited so far, for tests.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        self.firsts.steps()
    }
}
