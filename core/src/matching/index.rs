//! Lists of entries by key: each key's entries in the order in which they were appended.
//!
//! Budget: first, one bucket; append and unlink, one bucket and three slots.

use super::envelope::Key;
use super::keymap::KeyMap;
use super::slab::{NIL, Slab};

/// An entry's place in one list. In no list when `node` is [`NIL`].
#[derive(Copy, Clone, Debug)]
pub(super) struct Link {
    prev: u32,
    next: u32,
    node: u32,
}

impl Link {
    /// In no list.
    pub(super) const OUT: Self = Self {
        prev: NIL,
        next: NIL,
        node: NIL,
    };

    /// Whether the entry is in a list.
    #[inline]
    pub(super) const fn is_in(&self) -> bool {
        self.node != NIL
    }
}

/// An entry that can be in several lists at once, one per lane.
pub(super) trait Linked {
    /// The entry's place in the list of a lane.
    fn link(&mut self, lane: usize) -> &mut Link;
}

/// First and last slot of a list that is never empty.
#[derive(Clone, Debug)]
struct List {
    head: u32,
    tail: u32,
}

/// The lists, found by key.
#[derive(Clone, Debug)]
pub(super) struct Index {
    lists: KeyMap<List>,
}

impl Index {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            lists: KeyMap::new(seed),
        }
    }

    pub(super) fn reserve(&mut self, capacity: usize) {
        self.lists.reserve(capacity);
    }

    /// The earliest entry filed under a key.
    #[inline]
    pub(super) fn first(&self, key: &Key) -> Option<u32> {
        let node = self.lists.find(key)?;
        Some(self.lists.value(node).head)
    }

    /// Files an entry under a key, behind those that are there.
    #[inline]
    pub(super) fn append<V: Linked>(
        &mut self,
        slots: &mut Slab<V>,
        lane: usize,
        key: &Key,
        slot: u32,
    ) {
        let node = self.lists.find_or_insert(key, || List {
            head: slot,
            tail: NIL,
        });
        let list = self.lists.value_mut(node);
        let prev = std::mem::replace(&mut list.tail, slot);
        *slots.get_mut(slot).link(lane) = Link {
            prev,
            next: NIL,
            node,
        };
        if prev != NIL {
            slots.get_mut(prev).link(lane).next = slot;
        }
    }

    /// Takes an entry out of its list, from wherever in the list it stands.
    #[inline]
    pub(super) fn unlink<V: Linked>(&mut self, slots: &mut Slab<V>, lane: usize, slot: u32) {
        let link = std::mem::replace(slots.get_mut(slot).link(lane), Link::OUT);
        if link.prev == NIL && link.next == NIL {
            self.lists.remove(link.node);
            return;
        }
        let list = self.lists.value_mut(link.node);
        if link.prev == NIL {
            list.head = link.next;
        } else {
            slots.get_mut(link.prev).link(lane).next = link.next;
        }
        if link.next == NIL {
            self.lists.value_mut(link.node).tail = link.prev;
        } else {
            slots.get_mut(link.next).link(lane).prev = link.prev;
        }
    }

    /// Keys with entries, for tests.
    #[cfg(test)]
    pub(super) fn keys(&self) -> usize {
        self.lists.len()
    }

    /// Nodes visited so far, for tests.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        self.lists.steps()
    }
}
