//! Messages that wait for receives.
//!
//! A receive or probe can ask for a message in four ways: by exact envelope, with any source, with
//! any tag, or with both open. Each message is filed in four lists, one for each way, so that the
//! answer is always the head of one list.
//!
//! Budget of a receive or probe: if the queue is empty, one load and one comparison. If the
//! earliest message matches, one more comparison. Otherwise, one bucket of a hash table and a few
//! comparisons. Storing a message costs one entry in the ring of recent messages, plus four buckets
//! if the message is filed later.

use super::envelope::{Envelope, Key, Pattern, SHAPES, Wanted};
use super::index::{Index, Link, Linked};
use super::recent::{NEAR, Recent};
use super::slab::{Id, Slab};

/// Names a waiting message until it is taken or drained. After that the id is stale and finds
/// nothing.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct UnexpectedId(Id);

/// Messages in the order in which they arrived, each with a value of the caller's choice.
///
/// ```
/// use portolan_core::matching::{Envelope, Pattern, UnexpectedQueue};
///
/// let mut unexpected = UnexpectedQueue::new();
/// unexpected.push(Envelope { context: 0, source: 1, tag: 5 }, "early");
/// unexpected.push(Envelope { context: 0, source: 2, tag: 5 }, "late");
///
/// // A probe finds the earliest and leaves it; a matched probe takes it by its id.
/// let found = unexpected.find(&Pattern { context: 0, source: None, tag: Some(5) }).unwrap();
/// assert_eq!(unexpected.get(found).unwrap().0.source, 1);
/// assert_eq!(unexpected.take(found).unwrap().1, "early");
/// assert_eq!(unexpected.take_match(&Pattern::any(0)).unwrap().1, "late");
/// ```
#[derive(Clone)]
pub struct UnexpectedQueue<M> {
    slots: Slab<Entry<M>>,
    recent: Recent,
    index: Index,
}

#[derive(Clone)]
struct Entry<M> {
    envelope: Envelope,
    links: [Link; SHAPES],
    message: M,
}

impl<M> Linked for Entry<M> {
    #[inline]
    fn key(&self, lane: usize) -> Key {
        self.envelope.key(lane)
    }

    #[inline]
    fn link(&self, lane: usize) -> &Link {
        &self.links[lane]
    }

    #[inline]
    fn link_mut(&mut self, lane: usize) -> &mut Link {
        &mut self.links[lane]
    }
}

impl<M> UnexpectedQueue<M> {
    /// An empty queue that has allocated nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::with_seed(0)
    }

    /// An empty queue with memory for `capacity` messages.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let mut queue = Self::new();
        queue.slots.reserve(capacity);
        queue.index.reserve(capacity);
        queue
    }

    /// An empty queue whose distribution of keys over buckets depends on `seed`; see
    /// [`PostedQueue::with_seed`](super::PostedQueue::with_seed).
    #[must_use]
    pub fn with_seed(seed: u64) -> Self {
        Self {
            slots: Slab::new(),
            recent: Recent::default(),
            index: Index::new(seed),
        }
    }

    /// Adds a message after all others.
    #[inline]
    pub fn push(&mut self, envelope: Envelope, message: M) -> UnexpectedId {
        if self.recent.is_full() {
            self.index_oldest();
        }
        let slot = self.slots.insert(Entry {
            envelope,
            links: [Link::OUT; SHAPES],
            message,
        });
        self.recent.push(Wanted::from(&envelope), slot);
        UnexpectedId(self.slots.id(slot))
    }

    /// The earliest message that matches. It stays in the queue.
    #[inline]
    #[must_use]
    pub fn find(&self, pattern: &Pattern) -> Option<UnexpectedId> {
        if self.slots.is_empty() {
            return None;
        }
        if let Some(slot) = self.first_indexed(pattern) {
            return Some(UnexpectedId(self.slots.id(slot)));
        }
        let at = self.recent.first(&Wanted::from(pattern));
        (at < self.recent.len()).then(|| UnexpectedId(self.slots.id(self.recent.slot(at))))
    }

    /// Removes and returns the earliest message that matches, if any does.
    #[inline]
    pub fn take_match(&mut self, pattern: &Pattern) -> Option<(Envelope, M)> {
        if self.slots.is_empty() {
            return None;
        }
        if let Some(slot) = self.first_indexed(pattern) {
            return Some(self.remove_indexed(slot));
        }
        let at = self.recent.first(&Wanted::from(pattern));
        let found = (at < self.recent.len()).then(|| {
            let slot = self.recent.remove(at);
            let entry = self.slots.remove(slot);
            (entry.envelope, entry.message)
        });
        if at >= NEAR {
            // The search went far; this shortens the ring so that the next ones do not.
            self.index_oldest();
        }
        found
    }

    /// A waiting message with its envelope.
    #[inline]
    #[must_use]
    pub fn get(&self, id: UnexpectedId) -> Option<(&Envelope, &M)> {
        let entry = self.slots.get(self.slots.resolve(id.0)?);
        Some((&entry.envelope, &entry.message))
    }

    /// Mutable access to a waiting message (to add parts that arrive later, say).
    #[inline]
    pub fn get_mut(&mut self, id: UnexpectedId) -> Option<(&Envelope, &mut M)> {
        let slot = self.slots.resolve(id.0)?;
        let entry = self.slots.get_mut(slot);
        Some((&entry.envelope, &mut entry.message))
    }

    /// Removes a message. `None` if it was taken or drained already.
    #[inline]
    pub fn take(&mut self, id: UnexpectedId) -> Option<(Envelope, M)> {
        let slot = self.slots.resolve(id.0)?;
        Some(self.remove(slot))
    }

    /// How many messages wait.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether no message waits.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The waiting messages, earliest first. For diagnostics only: it allocates and sorts.
    pub fn iter(&self) -> impl Iterator<Item = (UnexpectedId, &Envelope, &M)> {
        self.slots.in_order().into_iter().map(|slot| {
            let entry = self.slots.get(slot);
            let id = UnexpectedId(self.slots.id(slot));
            (id, &entry.envelope, &entry.message)
        })
    }

    /// Removes every message for which `gone` returns true, and returns them, earliest first.
    ///
    /// Used when a peer fails or a communicator is freed. It looks at every message.
    pub fn drain_if(&mut self, mut gone: impl FnMut(&Envelope, &M) -> bool) -> Vec<(Envelope, M)> {
        let mut drained = Vec::new();
        for slot in self.slots.in_order() {
            let entry = self.slots.get(slot);
            if gone(&entry.envelope, &entry.message) {
                drained.push(self.remove(slot));
            }
        }
        drained
    }

    #[inline]
    fn first_indexed(&self, pattern: &Pattern) -> Option<u32> {
        if self.slots.len() == self.recent.len() {
            return None;
        }
        let key = pattern.key();
        self.index.first(&self.slots, key.shape(), &key)
    }

    /// Moves the oldest of the recent messages into the index.
    #[inline(never)]
    fn index_oldest(&mut self) {
        for slot in std::iter::from_fn(|| self.recent.pop()).take(NEAR) {
            for shape in 0..SHAPES {
                self.index.append(&mut self.slots, shape, slot);
            }
        }
    }

    fn remove(&mut self, slot: u32) -> (Envelope, M) {
        if self.slots.get(slot).links[0].is_in() {
            return self.remove_indexed(slot);
        }
        self.recent.remove(self.recent.position(slot));
        let entry = self.slots.remove(slot);
        (entry.envelope, entry.message)
    }

    fn remove_indexed(&mut self, slot: u32) -> (Envelope, M) {
        for shape in 0..SHAPES {
            self.index.unlink(&mut self.slots, shape, slot);
        }
        let entry = self.slots.remove(slot);
        (entry.envelope, entry.message)
    }

    /// Work done so far, for tests.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        self.recent.steps() + self.index.steps()
    }

    /// Chunks of slots, chunks of the index and keys in it, for tests.
    #[cfg(test)]
    pub(super) fn footprint(&self) -> (usize, usize, usize) {
        let index = &self.index;
        (self.slots.chunks(), index.chunks(), index.keys())
    }
}

impl<M> Default for UnexpectedQueue<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: std::fmt::Debug> std::fmt::Debug for UnexpectedQueue<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let messages = self
            .iter()
            .map(|(_, envelope, message)| (envelope, message));
        f.debug_list().entries(messages).finish()
    }
}
