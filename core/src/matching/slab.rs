//! Slots that never move: chunks of entries, a free list, and ids that can be recognised as stale.
//!
//! Budget: `insert` and `remove` neither allocate, once the working size has been reached, nor
//! loop.

use crate::ahead::prefetch;

/// "No slot": the end of every list of slot numbers.
pub(super) const NIL: u32 = u32::MAX;

/// Slots per chunk. A chunk is reserved as a whole and initialised one slot at a time, so that no
/// insertion initialises more than its own slot.
const CHUNK_BITS: u32 = 8;
const CHUNK: usize = 1 << CHUNK_BITS;

/// How many times in a row the slab must run empty without having needed its last chunk before that
/// chunk is freed. Far above one, so that a program that fills and drains the queue in phases
/// allocates in the first phase only.
pub(super) const IDLE_LIMIT: u32 = 64;

/// A slot number, and the low half of the entry's stamp, which distinguishes one use of the slot
/// from the next.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Id(u64);

impl Id {
    /// The id as one word, for foreign libraries that carry a word for the caller.
    pub(super) const fn to_bits(self) -> u64 {
        self.0
    }

    /// The id that [`to_bits`](Self::to_bits) turned into this word.
    pub(super) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline]
    const fn new(index: u32, stamp: u64) -> Self {
        Self(index as u64 | stamp << 32)
    }

    #[inline]
    const fn index(self) -> u32 {
        self.0 as u32
    }
}

/// Entries at stable slot numbers, stamped with a sequence number in order of insertion.
#[derive(Clone, Debug)]
pub(super) struct Slab<V> {
    /// The first chunk, accessible without a look-up. Almost every queue fits into it.
    first: Vec<Slot<V>>,
    /// The other chunks.
    more: Vec<Vec<Slot<V>>>,
    /// Number of slots that hold an entry.
    live: u32,
    /// Head of the list of free slots below `used`.
    free: u32,
    /// Number of slots in use or on the free list. Higher slots have not been used since the slab
    /// was last empty.
    used: u32,
    /// How many times in a row the slab has run empty without having needed its last chunk.
    idle: u32,
    next_stamp: u64,
}

#[derive(Clone, Debug)]
struct Slot<V> {
    stamp: u64,
    next_free: u32,
    value: Option<V>,
}

impl<V> Slab<V> {
    pub(super) const fn new() -> Self {
        Self {
            first: Vec::new(),
            more: Vec::new(),
            live: 0,
            free: NIL,
            used: 0,
            idle: 0,
            next_stamp: 0,
        }
    }

    /// Reserves memory for `capacity` entries now.
    pub(super) fn reserve(&mut self, capacity: usize) {
        if capacity > 0 {
            self.first.reserve_exact(CHUNK - self.first.len());
        }
        while (self.more.len() + 1) * CHUNK < capacity {
            self.more.push(Vec::with_capacity(CHUNK));
        }
    }

    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.live as usize
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Number of slots over which the entries are spread: the highest number of entries since the
    /// slab was last empty.
    #[inline]
    pub(super) const fn spread(&self) -> usize {
        self.used as usize
    }

    /// Stores an entry and gives it the next stamp.
    #[inline(always)]
    pub(super) fn insert(&mut self, value: V) -> u32 {
        let stamp = self.next_stamp;
        self.next_stamp += 1;
        self.live += 1;
        let index = if self.free == NIL {
            self.used
        } else {
            self.free
        };
        let Some(slot) = self.slot_mut(index) else {
            return self.insert_fresh(Slot {
                stamp,
                next_free: NIL,
                value: Some(value),
            });
        };
        let next_free = slot.next_free;
        slot.stamp = stamp;
        slot.value = Some(value);
        if index == self.used {
            self.used += 1;
        } else {
            self.free = next_free;
        }
        index
    }

    /// Stores an entry in a slot that has never been used.
    #[cold]
    fn insert_fresh(&mut self, slot: Slot<V>) -> u32 {
        let index = self.used;
        // Slot numbers and NIL share 32 bits. So many entries would take hundreds of gigabytes, and
        // the engine's limit on unexpected memory applies long before that.
        assert!(index < NIL, "a matching queue holds at most {NIL} entries");
        match (index as usize >> CHUNK_BITS).checked_sub(1) {
            None => {
                self.first.reserve_exact(CHUNK - self.first.len());
                self.first.push(slot);
            }
            Some(chunk) => {
                if chunk == self.more.len() {
                    self.more.push(Vec::with_capacity(CHUNK));
                }
                self.more[chunk].push(slot);
            }
        }
        self.used += 1;
        index
    }

    /// Takes an entry out of its slot.
    ///
    /// # Panics
    ///
    /// If the slot is free. Slot numbers must come from this module's own lists or from
    /// [`resolve`].
    ///
    /// [`resolve`]: Self::resolve
    #[inline(always)]
    pub(super) fn remove(&mut self, index: u32) -> V {
        let free = self.free;
        let slot = self.slot_mut(index).expect("slot number in range");
        let value = slot.value.take().expect("occupied slot");
        slot.next_free = free;
        self.free = index;
        self.live -= 1;
        if self.live == 0 {
            self.start_over();
        }
        value
    }

    /// Forgets the free list, so that an empty slab hands out its lowest slots again, which are the
    /// ones in cache. Stamps keep counting, so older ids stay stale.
    #[inline]
    fn start_over(&mut self) {
        let touched = self.used as usize;
        self.free = NIL;
        self.used = 0;
        if !self.more.is_empty() {
            self.give_back(touched);
        }
    }

    #[cold]
    fn give_back(&mut self, touched: usize) {
        if touched > self.more.len() * CHUNK {
            self.idle = 0;
            return;
        }
        self.idle += 1;
        if self.idle >= IDLE_LIMIT {
            self.more.pop();
        }
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> &V {
        self.slot(index)
            .and_then(|slot| slot.value.as_ref())
            .expect("occupied slot")
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> &mut V {
        self.slot_mut(index)
            .and_then(|slot| slot.value.as_mut())
            .expect("occupied slot")
    }

    /// Prefetches the cache lines of a slot.
    pub(super) fn prefetch(&self, index: u32) {
        if let Some(slot) = self.slot(index) {
            let first = std::ptr::from_ref(slot);
            prefetch(first);
            // The slot may span two lines.
            prefetch(first.wrapping_add(1).cast::<u8>().wrapping_sub(1));
        }
    }

    /// The stamp of the entry in a slot: smaller means inserted earlier.
    #[inline]
    pub(super) fn stamp(&self, index: u32) -> u64 {
        self.slot(index).expect("slot number in range").stamp
    }

    /// The id by which callers may refer to the entry until it is removed.
    #[inline]
    pub(super) fn id(&self, index: u32) -> Id {
        Id::new(index, self.stamp(index))
    }

    /// The id of the entry that was inserted last, which must be in this slot.
    #[inline]
    pub(super) fn newest(&self, index: u32) -> Id {
        debug_assert_eq!(self.stamp(index), self.next_stamp - 1);
        Id::new(index, self.next_stamp - 1)
    }

    /// The slot that an id names, or `None` if that entry is gone.
    ///
    /// An id holds only the low half of the stamp. So a stale id passes for a live one only if
    /// exactly a multiple of 2³² entries was inserted between the two uses of the slot.
    #[inline]
    pub(super) fn resolve(&self, id: Id) -> Option<u32> {
        let slot = self.slot(id.index())?;
        let live = slot.value.is_some() && Id::new(id.index(), slot.stamp) == id;
        live.then_some(id.index())
    }

    /// The slots that hold entries, in order of insertion. Allocates, and takes `n log n` time.
    pub(super) fn in_order(&self) -> Vec<u32> {
        let mut live: Vec<u32> = (0..self.used)
            .filter(|&index| self.slot(index).is_some_and(|slot| slot.value.is_some()))
            .collect();
        live.sort_unstable_by_key(|&index| self.stamp(index));
        live
    }

    /// Chunks allocated, for tests.
    #[cfg(test)]
    pub(super) fn chunks(&self) -> usize {
        self.more.len() + usize::from(self.first.capacity() > 0)
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<V>> {
        match self.first.get(index as usize) {
            Some(slot) => Some(slot),
            None => {
                let chunk = (index as usize >> CHUNK_BITS).checked_sub(1)?;
                self.more.get(chunk)?.get(index as usize & (CHUNK - 1))
            }
        }
    }

    #[inline]
    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<V>> {
        match self.first.get_mut(index as usize) {
            Some(slot) => Some(slot),
            None => {
                let chunk = (index as usize >> CHUNK_BITS).checked_sub(1)?;
                let chunk = self.more.get_mut(chunk)?;
                chunk.get_mut(index as usize & (CHUNK - 1))
            }
        }
    }
}
