//! Numbers filed by hash: a hash table that grows by one bucket at a time (linear hashing, after
//! Litwin, 1980).
//!
//! A bucket is one cache line. It holds the hashes and numbers that are filed there. A search
//! touches that line and the entries whose full hash equals the hash in question, which is almost
//! always only the right entry. It touches no other entries, and splitting a bucket touches none at
//! all.
//!
//! Budget: find, insert and remove cost one bucket, or a few if chance has overfilled one. An
//! insertion splits at most one bucket besides. No operation rehashes the table. The low bits of
//! the hash are the bucket's number: one bit more for buckets that have been split in the current
//! round than for the others.
//!
//! Buckets live in chunks of 4 KiB that never move. The directory of chunks has one pointer per 64
//! buckets, and is the only thing that is copied when it grows.

use super::slab::{IDLE_LIMIT, NIL, Slab};
use super::steps::Steps;
use crate::ahead;

/// Buckets per chunk. A power of two; a new table has one chunk.
const CHUNK: usize = 64;
/// Entries per bucket.
const PLACES: usize = 7;
/// Average number of entries per bucket above which a bucket is added. Buckets that are not split
/// yet hold twice as many as the others, so up to six are expected in some.
const FILL: usize = 3;
/// Bit of a bucket's number: it is an overflow bucket, behind one that is full.
const BEHIND: u32 = 1 << 31;

/// Numbers filed under hashes. Several may have the same hash.
#[derive(Clone, Debug)]
pub(super) struct Buckets {
    chunks: Vec<Box<[Bucket]>>,
    /// Overflow buckets, behind others that are full.
    behind: Slab<Bucket>,
    buckets: u32,
    /// The smallest power of two that is at least `buckets`, minus one.
    mask: u32,
    /// Count of numbers filed.
    len: usize,
    /// The highest `len` since the table was last empty.
    peak: usize,
    /// How many times in a row the table has run empty without having needed its last chunk.
    idle: u32,
    steps: Steps,
}

/// One cache line: entries in the first `len` places, in no particular order.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Bucket {
    hashes: [u32; PLACES],
    numbers: [u32; PLACES],
    len: u32,
    /// The overflow bucket behind this one, if this one has been full; otherwise [`NIL`].
    more: u32,
}

impl Bucket {
    const EMPTY: Self = Self {
        hashes: [0; PLACES],
        numbers: [NIL; PLACES],
        len: 0,
        more: NIL,
    };

    /// The numbers filed here under a hash.
    #[inline]
    fn with(&self, hash: u32) -> impl Iterator<Item = u32> {
        let entries = self.hashes.iter().zip(&self.numbers);
        let entries = entries.take(self.len as usize);
        entries.filter_map(move |(&its, &number)| (its == hash).then_some(number))
    }

    /// The place of an entry, if it is in this bucket.
    #[inline]
    fn place(&self, hash: u32, number: u32) -> Option<usize> {
        (0..PLACES.min(self.len as usize))
            .find(|&at| self.hashes[at] == hash && self.numbers[at] == number)
    }

    /// Adds an entry, if there is room. Returns whether there was.
    #[inline]
    fn push(&mut self, hash: u32, number: u32) -> bool {
        let at = self.len as usize;
        if at >= PLACES {
            return false;
        }
        self.hashes[at] = hash;
        self.numbers[at] = number;
        self.len += 1;
        true
    }

    /// Removes the entry at a place. The last entry takes its place.
    #[inline]
    fn take(&mut self, at: usize) {
        let last = self.len as usize - 1;
        self.hashes[at] = self.hashes[last];
        self.numbers[at] = self.numbers[last];
        self.len -= 1;
    }
}

impl Buckets {
    /// An empty table that has allocated nothing yet.
    pub(super) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            behind: Slab::new(),
            buckets: CHUNK as u32,
            mask: CHUNK as u32 - 1,
            len: 0,
            peak: 0,
            idle: 0,
            steps: Steps::new(),
        }
    }

    /// Makes the table as large as it would be with `capacity` numbers in it. The table must be
    /// empty.
    pub(super) fn reserve(&mut self, capacity: usize) {
        debug_assert_eq!(self.len, 0);
        let chunks = capacity.div_ceil(FILL * CHUNK);
        while self.chunks.len() < chunks.min(BEHIND as usize / CHUNK) {
            self.add_chunk();
        }
        self.buckets = (self.chunks.len().max(1) * CHUNK) as u32;
        self.mask = self.buckets.next_power_of_two() - 1;
    }

    /// How many numbers are filed, for tests.
    #[cfg(test)]
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The number filed under a hash for which `is_it` returns true.
    #[inline]
    pub(super) fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let mut at = self.bucket(hash);
        while at != NIL {
            let bucket = self.get(at);
            self.steps.take();
            if let Some(number) = bucket.with(hash).find(|&number| is_it(number)) {
                return Some(number);
            }
            at = bucket.more;
        }
        None
    }

    /// Any number filed under a hash. Accesses no entry to check that it is the right one.
    #[inline]
    pub(super) fn guess(&self, hash: u32) -> Option<u32> {
        self.find(hash, |_| true)
    }

    /// Prefetches the memory that a search for a hash touches first.
    #[inline]
    pub(super) fn prefetch(&self, hash: u32) {
        if self.len != 0 {
            ahead::prefetch(self.get(self.bucket(hash)));
        }
    }

    /// Files a number under a hash.
    #[inline]
    pub(super) fn insert(&mut self, hash: u32, number: u32) {
        if self.chunks.is_empty() {
            self.add_chunk();
        }
        if self.len >= self.buckets as usize * FILL {
            self.split_one();
        }
        self.put(hash, number);
        self.len += 1;
        self.peak = self.peak.max(self.len);
    }

    /// Replaces a number that is filed under a hash by another.
    #[inline]
    pub(super) fn replace(&mut self, hash: u32, number: u32, other: u32) {
        let mut at = self.bucket(hash);
        loop {
            self.steps.take();
            let bucket = self.get_mut(at);
            if let Some(place) = bucket.place(hash, number) {
                bucket.numbers[place] = other;
                return;
            }
            at = bucket.more;
        }
    }

    /// Removes a number that is filed under a hash.
    #[inline]
    pub(super) fn remove(&mut self, hash: u32, number: u32) {
        let (mut before, mut at) = (NIL, self.bucket(hash));
        loop {
            self.steps.take();
            let bucket = self.get_mut(at);
            if let Some(place) = bucket.place(hash, number) {
                bucket.take(place);
                break;
            }
            (before, at) = (at, bucket.more);
        }
        if before != NIL {
            self.leave_out(before, at);
        }
        self.len -= 1;
        if self.len == 0 {
            self.start_over();
        }
    }

    /// Removes the overflow bucket `at`, behind `before`, if it is empty.
    #[cold]
    fn leave_out(&mut self, before: u32, at: u32) {
        let bucket = self.get(at);
        if bucket.len == 0 {
            self.get_mut(before).more = bucket.more;
            self.behind.remove(at & !BEHIND);
        }
    }

    /// Stores a number in the bucket of its hash.
    #[inline]
    fn put(&mut self, hash: u32, number: u32) {
        let mut at = self.bucket(hash);
        loop {
            self.steps.take();
            let bucket = self.get_mut(at);
            if bucket.push(hash, number) {
                return;
            }
            if bucket.more == NIL {
                return self.put_behind(at, hash, number);
            }
            at = bucket.more;
        }
    }

    /// Stores a number in a new overflow bucket behind the full bucket `at`.
    #[cold]
    fn put_behind(&mut self, at: u32, hash: u32, number: u32) {
        let mut bucket = Bucket::EMPTY;
        bucket.push(hash, number);
        let more = self.behind.insert(bucket);
        debug_assert_eq!(more & BEHIND, 0, "2³¹ buckets are 128 GiB");
        self.get_mut(at).more = more | BEHIND;
    }

    /// Adds one bucket, and moves the numbers that belong there out of the bucket that it is split
    /// from.
    #[inline(never)]
    fn split_one(&mut self) {
        let fresh = self.buckets;
        if fresh == BEHIND >> 1 {
            return; // More than 3 billion numbers: from here on the buckets fill up.
        }
        self.buckets += 1;
        self.mask = self.buckets.next_power_of_two() - 1;
        if fresh as usize == self.chunks.len() * CHUNK {
            self.add_chunk();
        }
        let parent = fresh & (self.mask >> 1);
        let mut bucket = std::mem::replace(self.get_mut(parent), Bucket::EMPTY);
        loop {
            for at in 0..bucket.len as usize {
                self.put(bucket.hashes[at], bucket.numbers[at]);
            }
            if bucket.more == NIL {
                return;
            }
            bucket = self.behind.remove(bucket.more & !BEHIND);
        }
    }

    /// Frees a chunk if the table has run empty often enough without having needed it.
    #[inline]
    fn start_over(&mut self) {
        let peak = std::mem::take(&mut self.peak);
        if self.chunks.len() > 1 {
            self.give_back(peak);
        }
    }

    #[inline(never)]
    fn give_back(&mut self, peak: usize) {
        let fewer = (self.chunks.len() - 1) * CHUNK;
        if peak > fewer * FILL {
            self.idle = 0;
            return;
        }
        self.idle += 1;
        if self.idle >= IDLE_LIMIT {
            self.chunks.pop();
            self.buckets = fewer as u32;
            self.mask = self.buckets.next_power_of_two() - 1;
        }
    }

    #[cold]
    fn add_chunk(&mut self) {
        self.chunks
            .push(vec![Bucket::EMPTY; CHUNK].into_boxed_slice());
    }

    /// The bucket for a hash.
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
    fn get(&self, at: u32) -> &Bucket {
        if at & BEHIND != 0 {
            return self.behind.get(at & !BEHIND);
        }
        &self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }

    #[inline]
    fn get_mut(&mut self, at: u32) -> &mut Bucket {
        if at & BEHIND != 0 {
            return self.behind.get_mut(at & !BEHIND);
        }
        &mut self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }

    /// Chunks of buckets, for tests.
    #[cfg(test)]
    pub(super) fn chunks(&self) -> usize {
        self.chunks.len() + self.behind.chunks()
    }

    /// Buckets visited so far, for tests.
    #[cfg(test)]
    pub(super) fn steps(&self) -> u64 {
        self.steps.taken()
    }
}
