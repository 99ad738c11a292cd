//! Receives of long messages whose senders were absent when the messages were matched.
//!
//! Only one absent sender's message is pulled at a time; the others wait here. By the time it is
//! their turn their senders may be back, and the data then moves the best way. So a sender that is
//! back is found even behind senders that are not. Of each sender only the first receive is
//! examined: the answer mostly holds for those behind it (except where a transport considers a
//! longer message worth waking its sender), and a window makes many.

use std::collections::VecDeque;

/// The waiting receives, by their senders.
#[derive(Debug, Default)]
pub(in crate::engine) struct Late {
    /// No queue is empty. The sender that was served last is at the end.
    senders: VecDeque<(u32, VecDeque<u32>)>,
}

impl Late {
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.senders.is_empty()
    }

    /// Adds a receive behind the others from `peer`.
    pub(in crate::engine) fn push(&mut self, peer: u32, index: u32) {
        let known = self.senders.iter_mut().find(|(sender, _)| *sender == peer);
        match known {
            Some((_, queue)) => queue.push_back(index),
            None => self.senders.push_back((peer, VecDeque::from([index]))),
        }
    }

    /// The first receive from the sender at this position.
    pub(in crate::engine) fn first(&self, place: usize) -> Option<u32> {
        let (_, queue) = self.senders.get(place)?;
        queue.front().copied()
    }

    /// Removes that receive and moves its sender to the end.
    pub(in crate::engine) fn take(&mut self, place: usize) {
        let Some((peer, mut queue)) = self.senders.remove(place) else {
            return;
        };
        queue.pop_front();
        if !queue.is_empty() {
            self.senders.push_back((peer, queue));
        }
    }

    /// Keeps the receives for which `keep` returns `true`.
    pub(in crate::engine) fn retain(&mut self, keep: impl Fn(&u32) -> bool) {
        self.senders.retain_mut(|(_, queue)| {
            queue.retain(&keep);
            !queue.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_take_turns_and_their_receives_keep_their_order() {
        let mut late = Late::default();
        for index in [10, 11, 12, 20, 30, 31] {
            late.push(index / 10, index);
        }
        late.retain(|&index| index != 20 && index != 11);
        let first = |late: &Late, place| late.first(place);
        assert_eq!((first(&late, 0), first(&late, 1)), (Some(10), Some(30)));
        late.take(1);
        assert_eq!((first(&late, 0), first(&late, 1)), (Some(10), Some(31)));
        late.take(0);
        assert_eq!((first(&late, 0), first(&late, 1)), (Some(31), Some(12)));
        late.take(0);
        late.take(0);
        assert!(late.is_empty());
    }
}
