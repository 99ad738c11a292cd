//! The shadow list's downward half: which receives the device may have, and when.

use super::{Place, ShadowList};
use crate::matching::offload::device::{Refusal, TagOffload};
use crate::matching::slab::NIL;

/// How many of the receives that wait are looked at for the place of one that was refused.
const LOOK: usize = 16;

impl<T, D: TagOffload> ShadowList<T, D> {
    /// Decides where a new receive goes.
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

    /// Whether whatever the device has not answered was posted at the present count.
    fn epoch_allows(&self) -> bool {
        self.adding == 0 || self.adding_seen == self.seen
    }

    /// Offers a receive to the device.
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

    /// Gives waiting receives to the device, oldest first, for as long as nothing is in the way.
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

    /// Puts the newest receive behind those that wait.
    fn wait(&mut self, slot: u32) {
        self.link_waiting(slot, NIL);
    }

    /// Puts a receive that the device has refused back among those that wait, in its place.
    ///
    /// Its place is nearly always the front, since it had gone ahead of those that wait. Should
    /// many older ones wait, the receive stays in software rather than have them all looked at.
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

    /// Links a receive into those that wait, before another or at the end.
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
