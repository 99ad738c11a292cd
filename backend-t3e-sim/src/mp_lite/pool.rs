//! Memory for send buffers and landing places, in a part of this PE's symmetric memory.

use std::collections::BTreeMap;

/// Places are aligned to this many bytes: a line of the machine's memory.
const ALIGN: u64 = 64;

/// A first-fit allocator over a range of addresses. Free neighbours are joined.
///
/// ```
/// use portolan_t3e_sim::mp_lite::Pool;
///
/// let mut pool = Pool::new(64, 4096);
/// let place = pool.allocate(100).expect("room for a hundred bytes");
/// assert!(pool.allocate(8192).is_none());
/// pool.free(place);
/// assert_eq!(pool.used(), 0);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pool {
    /// Free ranges: start and length.
    free: BTreeMap<u64, u64>,
    /// Ranges in use: start and length.
    taken: BTreeMap<u64, u64>,
    used: u64,
    len: u64,
}

impl Pool {
    /// Makes a pool of `len` bytes from `base` on, which must be aligned and not 0.
    ///
    /// # Panics
    /// If `base` is 0 or not a multiple of 64.
    #[must_use]
    pub fn new(base: u64, len: u64) -> Self {
        assert!(
            base != 0 && base.is_multiple_of(ALIGN),
            "a pool at {base} would give out places that no header can name"
        );
        let len = len / ALIGN * ALIGN;
        let free = if len == 0 { vec![] } else { vec![(base, len)] };
        Self {
            free: free.into_iter().collect(),
            taken: BTreeMap::new(),
            used: 0,
            len,
        }
    }

    /// Allocates a place of at least `len` bytes, if there is one.
    pub fn allocate(&mut self, len: u64) -> Option<u64> {
        let len = len.max(1).checked_next_multiple_of(ALIGN)?;
        let (&start, &room) = self.free.iter().find(|&(_, &room)| room >= len)?;
        self.free.remove(&start);
        if room > len {
            self.free.insert(start + len, room - len);
        }
        self.taken.insert(start, len);
        self.used += len;
        Some(start)
    }

    /// Frees a place; `false` if it is not in use.
    pub fn free(&mut self, start: u64) -> bool {
        let Some(mut len) = self.taken.remove(&start) else {
            return false;
        };
        self.used -= len;
        let mut start = start;
        if let Some(after) = self.free.remove(&(start + len)) {
            len += after;
        }
        if let Some((&before, &room)) = self.free.range(..start).next_back()
            && before + room == start
        {
            self.free.remove(&before);
            start = before;
            len += room;
        }
        self.free.insert(start, len);
        true
    }

    /// Bytes in all.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the pool has no bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_overlap_and_all_comes_back() {
        let mut pool = Pool::new(64, 64 * 100);
        let mut places = Vec::new();
        while let Some(place) = pool.allocate(65) {
            places.push(place);
        }
        assert_eq!(places.len(), 50);
        assert!(places.windows(2).all(|two| two[0] + 128 <= two[1]));
        // Frees every second place first, so that neighbours must be joined from both sides.
        let (odd, even): (Vec<_>, Vec<_>) = places.into_iter().partition(|at| at / 128 % 2 == 1);
        for place in odd.into_iter().chain(even) {
            assert!(pool.free(place));
            assert!(!pool.free(place), "freed twice");
        }
        assert_eq!(pool.used(), 0);
        assert_eq!(pool.allocate(64 * 100), Some(64));
    }
}
