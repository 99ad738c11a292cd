//! Deaths: ends the operations that can no longer succeed.
//!
//! The provider knows nothing of deaths. Receives are cancelled in the provider; if a message came
//! first, they end with that. An operation that the provider does not release although its peer is
//! dead is given up after a while. Its memory, which is the device's own, remains the provider's
//! until that releases it or is closed.

use super::slots::What;
use super::tags::{End, Tags};
use crate::ofi::Ofi;

/// Polls for which the provider may keep an operation that cannot end, or a look unanswered.
pub(super) const PATIENCE: u32 = 2000;

/// An operation that a death has ended and that the provider still has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Doomed {
    number: u32,
    /// The serial number of the operation that was in the slot then.
    serial: u64,
    /// Polls until it is given up.
    left: u32,
}

impl Tags {
    /// Handles deaths that have been adopted and were not known here.
    #[cold]
    pub(super) fn notice_deaths(&mut self, ofi: &mut Ofi) {
        self.failures_seen = ofi.adopted;
        // If the others hold this rank to be dead, it can communicate with none of them.
        let outcast = ofi.has_adopted(ofi.rank);
        let dead: Vec<u32> = (0..ofi.size)
            .filter(|&peer| peer != ofi.rank && (outcast || ofi.has_adopted(peer)))
            .filter(|&peer| !self.contexts.is_dead(peer))
            .collect();
        for peer in dead {
            self.fail_peer(ofi, peer);
        }
    }

    fn fail_peer(&mut self, ofi: &mut Ofi, peer: u32) {
        self.contexts.died(peer);
        self.end_what_needs(ofi, peer);
    }

    /// Ends the operations that cannot succeed without a rank that has died or left.
    pub(super) fn end_what_needs(&mut self, ofi: &mut Ofi, peer: u32) {
        let left = self.contexts.has_left(peer);
        let mut wildcards = Vec::new();
        for number in self.slots.numbers() {
            match &self.slots.at(number).what {
                What::Send(send) => {
                    let collective = self.contexts.is_collective_of(send.context, peer);
                    if send.peer == peer || collective {
                        self.fail_send(ofi, number, peer);
                    }
                }
                What::Receive(receive) if receive.doom.is_some() => {
                    // It matched a message before it could be taken back. The sender of that
                    // message may die as well.
                    let from = receive.from;
                    let source = from.source;
                    let source = source.and_then(|it| self.contexts.process(from.context, it));
                    if source == Some(peer) {
                        self.doom_again(number);
                    }
                }
                What::Receive(receive) => {
                    let from = receive.from;
                    let doomed = self.contexts.is_collective_of(from.context, peer)
                        || match from.source {
                            Some(source) => {
                                self.contexts.process(from.context, source) == Some(peer)
                            }
                            None => !left && self.contexts.is_member(from.context, peer),
                        };
                    if doomed && from.source.is_none() {
                        wildcards.push(from.context);
                    }
                    if doomed {
                        self.doom_receive(ofi, number, peer);
                    }
                }
                What::Lost(lost) if lost.awaits == Some(peer) => self.stop_awaiting(number),
                _ => {}
            }
        }
        for context in wildcards {
            self.contexts.tell(context);
        }
    }

    /// Ends a send that cannot succeed without `peer`: its receiver, or another member of its
    /// collective operation.
    fn fail_send(&mut self, ofi: &Ofi, number: u32, peer: u32) {
        let slot = self.slots.at(number);
        let under_way = slot.under_way;
        let What::Send(send) = &slot.what else {
            return;
        };
        let (to, mut left) = (send.peer, true);
        let has_left = self.contexts.has_left(to);
        let without_receiver = has_left.then(|| send.end_without_receiver(ofi.link.at_once));
        if under_way && let Some(end) = without_receiver {
            // The provider would have completed it by now.
            return self.lose(number, end);
        }
        if under_way {
            // The provider may report an error for it, or complete it.
            let serial = slot.serial;
            return self.doom(number, serial);
        }
        if let Some(queue) = self.unsent.get_mut(&to) {
            queue.retain(|&waiting| {
                left &= waiting != number;
                waiting != number
            });
            if queue.is_empty() {
                self.unsent.remove(&to);
            }
        }
        let end = without_receiver.unwrap_or(End::Failed(peer));
        if left {
            // It waits only for the report that it was matched. That may still come, from a
            // receiver that lives.
            self.lose(number, end);
            self.release(number);
        } else {
            self.finish(number, end);
        }
    }

    /// Cancels a receive that cannot succeed.
    pub(super) fn doom_receive(&mut self, ofi: &mut Ofi, number: u32, peer: u32) {
        let slot = self.slots.at(number);
        let What::Receive(receive) = &mut slot.what else {
            return;
        };
        if receive.broken {
            return self.finish(number, End::Failed(peer));
        }
        if slot.under_way {
            receive.doom = Some(peer);
            let serial = slot.serial;
            self.doom(number, serial);
        } else if receive.claimed.is_some() {
            // The provider has the message, and is asked for it later: `claim` then limits its
            // time.
            return;
        } else if self.contexts.has_left(peer) {
            // The provider may have its message: `scan_unposted` finds out.
            return;
        }
        self.retract(ofi, number, End::Failed(peer));
    }

    /// Gives the provider time again for a receive that another death doomed before, and that it
    /// has not taken back.
    fn doom_again(&mut self, number: u32) {
        let slot = self.slots.at(number);
        if slot.under_way {
            let serial = slot.serial;
            self.doom(number, serial);
        }
    }

    /// Starts the time within which the provider has to release an operation.
    pub(super) fn doom(&mut self, number: u32, serial: u64) {
        let left = PATIENCE;
        self.doomed.push(Doomed {
            number,
            serial,
            left,
        });
    }

    /// Gives up operations that the provider has kept for too long.
    pub(super) fn give_up(&mut self, ofi: &mut Ofi) -> usize {
        let mut over = Vec::new();
        let slots = &mut self.slots;
        self.doomed.retain_mut(|doomed| {
            let slot = slots.at(doomed.number);
            let alive = slot.under_way && slot.serial == doomed.serial;
            doomed.left -= 1;
            if alive && doomed.left == 0 {
                over.push(doomed.number);
            }
            alive && doomed.left > 0
        });
        for &number in &over {
            self.give_up_one(ofi, number);
        }
        over.len()
    }

    fn give_up_one(&mut self, ofi: &Ofi, number: u32) {
        match &self.slots.at(number).what {
            What::Send(send) => {
                let dead = self.contexts.dead_in(send.context);
                let peer = dead.unwrap_or(send.peer);
                self.lose(number, End::Failed(peer));
            }
            What::Receive(receive) => {
                let from = receive.from;
                let Some(source) = from.source else {
                    return self.inquire(ofi, number); // Whose message it is, is unknown.
                };
                let source = self.contexts.process(from.context, source);
                // A living sender still sends the rest of its message.
                if let Some(peer) = source.filter(|&peer| self.contexts.is_dead(peer)) {
                    self.give_up_receive(ofi, number, peer);
                }
            }
            _ => {}
        }
    }

    /// Gives up a receive that has matched a message of a dead rank.
    pub(super) fn give_up_receive(&mut self, ofi: &Ofi, number: u32, peer: u32) {
        portolan_core::log!(WARN, rank = ofi.rank, peer, "gave up a message of the dead");
        self.posted -= 1;
        self.lose(number, End::Failed(peer));
    }
}
