//! Receives that wait for messages.
//!
//! Budget of an arrival: if the queue is empty, one load and one comparison. If the earliest
//! receive matches, one more comparison. Otherwise, one bucket of a hash table for each shape of
//! pattern (exact, any source, any tag, any) that has receives there, and a few comparisons. No
//! allocation, no lock, no system call.

use super::envelope::{Envelope, Key, Pattern, SHAPES, Wanted};
use super::index::{Index, Link, Linked};
use super::recent::{NEAR, Recent};
use super::slab::{Id, Slab};

/// From so many receives on, their memory does not stay in the nearer caches.
const MANY: usize = 1 << 14;
/// Once the queue has been that long, it prefetches until this few receives are left.
const FEW: usize = 1 << 9;

/// Names a posted receive until it is matched, cancelled or drained. After that the id is stale and
/// finds nothing.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct PostedId(Id);

/// Receives in the order in which they were posted, each with a value of the caller's choice.
///
/// ```
/// use portolan_core::matching::{Envelope, Pattern, PostedQueue};
///
/// let mut posted = PostedQueue::new();
/// let first = posted.post(Pattern::any(0), 'a');
/// posted.post(Pattern::any(0), 'b');
/// assert_eq!(posted.cancel(first), Some('a'));
/// assert_eq!(posted.cancel(first), None, "the id is stale");
/// assert_eq!(posted.match_arrival(&Envelope { context: 0, source: 1, tag: 2 }), Some('b'));
/// assert!(posted.is_empty());
/// ```
#[derive(Clone)]
pub struct PostedQueue<T> {
    slots: Slab<Entry<T>>,
    recent: Recent,
    index: Index,
    /// Number of indexed receives of each shape, so that an arrival searches only shapes that are
    /// present.
    indexed: [u32; SHAPES],
}

#[derive(Clone)]
struct Entry<T> {
    wanted: Wanted,
    link: Link,
    value: T,
}

impl<T> Linked for Entry<T> {
    #[inline]
    fn key(&self, _lane: usize) -> Key {
        self.wanted.key()
    }

    #[inline]
    fn link(&self, _lane: usize) -> &Link {
        &self.link
    }

    #[inline]
    fn link_mut(&mut self, _lane: usize) -> &mut Link {
        &mut self.link
    }
}

impl<T> PostedQueue<T> {
    /// An empty queue that has allocated nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::with_seed(0)
    }

    /// An empty queue with memory for `capacity` receives.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let mut queue = Self::new();
        queue.slots.reserve(capacity);
        queue.index.reserve(capacity);
        queue
    }

    /// An empty queue whose distribution of keys over buckets depends on `seed`.
    ///
    /// The seed never affects what matches. Two queues with the same seed that receive the same
    /// calls do the same work.
    #[must_use]
    pub fn with_seed(seed: u64) -> Self {
        Self {
            slots: Slab::new(),
            recent: Recent::default(),
            index: Index::new(seed),
            indexed: [0; SHAPES],
        }
    }

    /// Adds a receive after all others.
    #[inline(always)]
    pub fn post(&mut self, pattern: Pattern, value: T) -> PostedId {
        self.post_wanted(Wanted::from(&pattern), value)
    }

    /// Like [`post`](Self::post), for a pattern in words.
    #[inline(always)]
    pub(crate) fn post_wanted(&mut self, wanted: Wanted, value: T) -> PostedId {
        if self.recent.is_full() {
            self.index_oldest();
        }
        let slot = self.slots.insert(Entry {
            wanted,
            link: Link::OUT,
            value,
        });
        self.recent.push(wanted, slot);
        PostedId(self.slots.newest(slot))
    }

    /// Removes and returns the earliest posted receive that matches, if any does.
    #[inline(always)]
    pub fn match_arrival(&mut self, envelope: &Envelope) -> Option<T> {
        if self.slots.is_empty() {
            return None;
        }
        // Programs mostly send in the order in which the receives were posted.
        if self.slots.len() == self.recent.len()
            && let Some(slot) = self.recent.take_oldest(&Wanted::from(envelope))
        {
            return Some(self.slots.remove(slot).value);
        }
        // A copy, so that the envelope needs an address in memory on this path only.
        let envelope = *envelope;
        self.match_further(&envelope)
    }

    /// Searches for a receive other than the earliest of a short queue.
    #[inline(never)]
    fn match_further(&mut self, envelope: &Envelope) -> Option<T> {
        if self.slots.len() > self.recent.len()
            && let Some(slot) = self.first_indexed(envelope)
        {
            return Some(self.remove_indexed(slot).value);
        }
        let at = self.recent.first(&Wanted::from(envelope));
        if at >= NEAR {
            return self.match_far(at);
        }
        if at == self.recent.len() {
            return None;
        }
        let slot = self.recent.remove(at);
        Some(self.slots.remove(slot).value)
    }

    /// Ends a search among the recent receives that went far, and shortens the ring so that the
    /// next searches do not.
    #[inline(never)]
    fn match_far(&mut self, at: usize) -> Option<T> {
        let found = (at < self.recent.len()).then(|| {
            let slot = self.recent.remove(at);
            self.slots.remove(slot).value
        });
        self.index_oldest();
        found
    }

    /// The receive that [`match_arrival`](Self::match_arrival) would remove. It stays posted.
    #[must_use]
    pub fn peek_arrival(&self, envelope: &Envelope) -> Option<PostedId> {
        let indexed = self.first_indexed(envelope);
        let slot = indexed.or_else(|| {
            let at = self.recent.first(&Wanted::from(envelope));
            (at < self.recent.len()).then(|| self.recent.slot(at))
        })?;
        Some(PostedId(self.slots.id(slot)))
    }

    /// Number of arrivals by which [`prefetch`](Self::prefetch) starts ahead.
    pub(crate) const AHEAD: usize = 6;

    /// Number of arrivals ahead at which [`prefetch`](Self::prefetch) pays off: 0 while the memory
    /// is in the nearer caches.
    #[inline(always)]
    pub(crate) const fn looks_ahead(&self) -> usize {
        if self.is_spread() {
            return Self::AHEAD;
        }
        0
    }

    /// Whether so many receives are posted, or were at the queue's longest, that their memory is
    /// not in a near cache.
    #[inline(always)]
    const fn is_spread(&self) -> bool {
        self.slots.len() > FEW && self.slots.spread() > MANY
    }

    /// Prefetches part of the memory for an arrival that is `places` arrivals behind the next one.
    /// Each call for it, at decreasing `places`, uses what the call before has prefetched. The last
    /// one returns the value of the receive that will probably match. Works for receives without
    /// wildcards only.
    pub(crate) fn prefetch(&self, envelope: &Envelope, places: usize) -> Option<&T> {
        let key = envelope.key(0);
        match places {
            6 => self.index.prefetch(&key),
            4 => self.slots.prefetch(self.index.guess(&key)?),
            2 => return Some(&self.slots.get(self.index.guess(&key)?).value),
            _ => {}
        }
        None
    }

    /// Removes a receive that has not matched yet; `None` if it was matched or removed already.
    #[inline]
    pub fn cancel(&mut self, id: PostedId) -> Option<T> {
        let slot = self.slots.resolve(id.0)?;
        Some(self.remove(slot).value)
    }

    /// A receive's pattern and value, while it is posted.
    #[inline]
    #[must_use]
    pub fn get(&self, id: PostedId) -> Option<(Pattern, &T)> {
        let entry = self.slots.get(self.slots.resolve(id.0)?);
        Some((entry.wanted.pattern(), &entry.value))
    }

    /// Mutable access to a receive's value while it is posted.
    #[inline]
    pub fn get_mut(&mut self, id: PostedId) -> Option<&mut T> {
        let slot = self.slots.resolve(id.0)?;
        Some(&mut self.slots.get_mut(slot).value)
    }

    /// How many receives are posted.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether no receive is posted.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The posted receives, earliest first. For diagnostics only: it allocates and sorts.
    pub fn iter(&self) -> impl Iterator<Item = (PostedId, Pattern, &T)> {
        self.slots.in_order().into_iter().map(|slot| {
            let entry = self.slots.get(slot);
            let id = PostedId(self.slots.id(slot));
            (id, entry.wanted.pattern(), &entry.value)
        })
    }

    /// Removes every receive for which `gone` returns true, and returns them, earliest first.
    ///
    /// Used when a peer fails or a communicator is freed. It looks at every receive.
    pub fn drain_if(&mut self, mut gone: impl FnMut(&Pattern, &T) -> bool) -> Vec<(Pattern, T)> {
        let mut drained = Vec::new();
        for slot in self.slots.in_order() {
            let entry = self.slots.get(slot);
            let pattern = entry.wanted.pattern();
            if gone(&pattern, &entry.value) {
                drained.push((pattern, self.remove(slot).value));
            }
        }
        drained
    }

    /// The earliest indexed receive that matches: the earliest of the first receives of the four
    /// shapes.
    #[inline(never)]
    fn first_indexed(&self, envelope: &Envelope) -> Option<u32> {
        if self.indexed[1..] == [0; SHAPES - 1] {
            return self.index.first(&self.slots, 0, &envelope.key(0));
        }
        (0..SHAPES)
            .filter(|&shape| self.indexed[shape] != 0)
            .filter_map(|shape| self.index.first(&self.slots, 0, &envelope.key(shape)))
            .min_by_key(|&slot| self.slots.stamp(slot))
    }

    /// Moves the oldest of the recent receives into the index.
    #[inline(never)]
    fn index_oldest(&mut self) {
        if self.is_spread() {
            // The receives after these are moved next, and their buckets are not in a near cache.
            for at in NEAR..self.recent.len().min(2 * NEAR) {
                self.index.prefetch(&self.recent.wanted(at).key());
            }
        }
        for slot in std::iter::from_fn(|| self.recent.pop()).take(NEAR) {
            let wanted = self.slots.get(slot).wanted;
            self.indexed[wanted.shape()] += 1;
            self.index.append(&mut self.slots, 0, slot);
        }
    }

    fn remove(&mut self, slot: u32) -> Entry<T> {
        if self.slots.get(slot).link.is_in() {
            return self.remove_indexed(slot);
        }
        self.recent.remove(self.recent.position(slot));
        self.slots.remove(slot)
    }

    fn remove_indexed(&mut self, slot: u32) -> Entry<T> {
        self.index.unlink(&mut self.slots, 0, slot);
        let entry = self.slots.remove(slot);
        self.indexed[entry.wanted.shape()] -= 1;
        entry
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

impl<T> Default for PostedQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for PostedQueue<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let receives = self.iter().map(|(_, pattern, value)| (pattern, value));
        f.debug_list().entries(receives).finish()
    }
}
