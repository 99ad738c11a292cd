//! The requests of a scope. The first few are stored in place, so that most scopes allocate
//! nothing.

use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;

use portolan_core::Request;

/// The requests of a scope that are not known to be complete.
#[derive(Debug)]
pub(super) struct Registry {
    /// Which slots of `first` are taken, one bit each.
    taken: Cell<u32>,
    /// A slot is written only when it is taken: filling all of them in advance makes a scope of one
    /// nonblocking broadcast 4 % longer.
    first: [Cell<MaybeUninit<Request>>; 32],
    /// The requests that found no free slot in `first`.
    more: RefCell<Vec<Option<Request>>>,
}

impl Registry {
    pub(super) fn new() -> Self {
        Self {
            taken: Cell::new(0),
            first: [const { Cell::new(MaybeUninit::uninit()) }; 32],
            more: RefCell::default(),
        }
    }

    /// Adds a request; returns its place.
    pub(super) fn add(&self, request: Request) -> usize {
        let place = self.taken.get().trailing_ones() as usize;
        if let Some(slot) = self.first.get(place) {
            slot.set(MaybeUninit::new(request));
            self.taken.set(self.taken.get() | 1 << place);
            return place;
        }
        let mut more = self.more.borrow_mut();
        more.push(Some(request));
        place + more.len() - 1
    }

    /// Whether there is none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.taken.get() == 0 && self.more.borrow().is_empty()
    }

    /// Frees a place.
    pub(super) fn remove(&self, place: usize) {
        if place < self.first.len() {
            self.taken.set(self.taken.get() & !(1 << place));
            return;
        }
        let mut more = self.more.borrow_mut();
        more[place - self.first.len()] = None;
        while more.last() == Some(&None) {
            more.pop();
        }
    }

    /// Calls `visit` with each request.
    pub(super) fn each(&self, mut visit: impl FnMut(Request)) {
        let mut left = self.taken.get();
        while left != 0 {
            let slot = self.first[left.trailing_zeros() as usize].get();
            // SAFETY: its bit is set, and `add` writes a slot before it sets the slot's bit.
            let request = unsafe { slot.assume_init() };
            visit(request);
            left &= left - 1;
        }
        self.more
            .borrow()
            .iter()
            .flatten()
            .copied()
            .for_each(&mut visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_finds_every_request_and_reuses_places() {
        let registry = Registry::new();
        // SAFETY: no device is asked about them.
        let request = |n: u64| unsafe { Request::from_bits(1 << 32 | n) };
        let places: Vec<_> = (0..40).map(|n| registry.add(request(n))).collect();
        assert_eq!(places, (0..40).collect::<Vec<_>>());
        for place in [3, 31, 32, 39, 38] {
            registry.remove(place);
        }
        assert!(!registry.is_empty());
        let mut left = Vec::new();
        registry.each(|request| left.push(request.to_bits() & 63));
        let expected: Vec<u64> = (0..38).filter(|n| ![3, 31, 32].contains(n)).collect();
        assert_eq!(left, expected);
        assert_eq!(registry.add(request(50)), 3);
        assert_eq!(registry.add(request(51)), 31);
        assert_eq!(registry.add(request(52)), 38);
        for place in (0..39).filter(|&place| place != 32) {
            registry.remove(place);
        }
        assert!(registry.is_empty());
    }
}
