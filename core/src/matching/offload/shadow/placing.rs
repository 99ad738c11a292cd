//! The downward half of the shadow list: which receives the card may have, and when.

use super::{Place, ShadowList};
use crate::matching::offload::device::{Refusal, TagOffload};
use crate::matching::slab::NIL;

/// Number of waiting receives that are examined to find the place of a refused one.
const LOOK: usize = 16;

impl<T, D: TagOffload> ShadowList<T, D> {
    /// Decides where to put a new receive.
    pub(super) fn place(&mut self, slot: u32) {
        let receive = self.receives.get(slot);
        let pattern = receive.pattern;
        if receive.len < self.min_len || !self.device.caps().admits(&pattern, receive.len) {
            self.counters.unsupported += 1;
            self.keep(slot);
        } else if self.kept.any(&pattern) || self.waiting.any(&pattern) {
            self.counters.blocked += 1;
            self.wait(slot);
        } else if !self.epoch_allows() {
            self.counters.held_by_epoch += 1;
            self.wait(slot);
        } else {
            match self.post(slot) {
                Ok(()) => {}
                Err(Refusal::NoRoom) => {
                    self.counters.no_room += 1;
                    self.wait(slot);
                }
                Err(Refusal::Unsupported) => {
                    self.counters.unsupported += 1;
                    self.keep(slot);
                }
            }
        }
    }

    /// Whether all receives that the card has not answered were posted at the current count.
    fn epoch_allows(&self) -> bool {
        self.adding == 0 || self.adding_seen == self.seen
    }

    /// Posts a receive to the card.
    fn post(&mut self, slot: u32) -> Result<(), Refusal> {
        let id = self.id(slot);
        let receive = self.receives.get_mut(slot);
        let result = self.device.post(
            id,
            &receive.pattern,
            &receive.buffer,
            receive.len,
            self.seen,
        );
        if result.is_ok() {
            receive.place = Place::Adding;
            self.adding += 1;
            self.adding_seen = self.seen;
            self.counters.posted += 1;
        }
        result
    }

    /// Posts waiting receives to the card, oldest first, until something is in the way.
    pub(super) fn promote(&mut self) {
        while self.waiting_first != NIL && self.epoch_allows() {
            let slot = self.waiting_first;
            if self.kept.any(&self.receives.get(slot).pattern) {
                return;
            }
            match self.post(slot) {
                Ok(()) => self.unlink_waiting(slot),
                Err(Refusal::NoRoom) => return,
                Err(Refusal::Unsupported) => {
                    self.counters.unsupported += 1;
                    self.unlink_waiting(slot);
                    self.keep(slot);
                }
            }
        }
    }

    pub(super) fn keep(&mut self, slot: u32) {
        let receive = self.receives.get_mut(slot);
        receive.place = Place::Kept;
        self.kept.add(&receive.pattern);
    }

    /// Appends the newest receive to those that wait.
    fn wait(&mut self, slot: u32) {
        self.link_waiting(slot, NIL);
    }

    /// Puts a receive that the card has refused back among those that wait, in its old position.
    ///
    /// That position is nearly always the front, because the receive had gone ahead of those that
    /// wait. If many older receives wait, it stays in software instead, so that they need not all
    /// be examined.
    pub(super) fn wait_again(&mut self, slot: u32) {
        let stamp = self.receives.stamp(slot);
        let mut before = self.waiting_first;
        for _ in 0..LOOK {
            if before == NIL || self.receives.stamp(before) > stamp {
                self.link_waiting(slot, before);
                return;
            }
            before = self.receives.get(before).next;
        }
        self.keep(slot);
    }

    /// Links a receive into the list of those that wait, before another or at the end.
    fn link_waiting(&mut self, slot: u32, before: u32) {
        let prev = if before == NIL {
            std::mem::replace(&mut self.waiting_last, slot)
        } else {
            std::mem::replace(&mut self.receives.get_mut(before).prev, slot)
        };
        let receive = self.receives.get_mut(slot);
        receive.place = Place::Waiting;
        receive.prev = prev;
        receive.next = before;
        self.waiting.add(&receive.pattern);
        if prev == NIL {
            self.waiting_first = slot;
        } else {
            self.receives.get_mut(prev).next = slot;
        }
    }

    pub(super) fn unlink_waiting(&mut self, slot: u32) {
        let receive = self.receives.get_mut(slot);
        let prev = std::mem::replace(&mut receive.prev, NIL);
        let next = std::mem::replace(&mut receive.next, NIL);
        self.waiting.remove(&receive.pattern);
        if prev == NIL {
            self.waiting_first = next;
        } else {
            self.receives.get_mut(prev).next = next;
        }
        if next == NIL {
            self.waiting_last = prev;
        } else {
            self.receives.get_mut(next).prev = prev;
        }
    }
}
