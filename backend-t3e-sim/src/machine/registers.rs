//! The E-registers, which bound how many words a PE has in flight.

use std::collections::VecDeque;

use super::time::Time;

/// The E-registers that hold words under way, and the moments at which those will be acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Registers {
    /// In the order of issue: the moment of the acknowledgement, and the number of words.
    busy: VecDeque<(Time, usize)>,
    words: usize,
}

impl Registers {
    /// The first moment, from `now` on, at which `words` more words fit into `limit` registers.
    ///
    /// More words than there are registers wait until all are free, and use them in turns.
    pub(crate) fn room(&mut self, now: Time, words: usize, limit: usize) -> Time {
        self.release(now);
        let mut at = now;
        let mut held = self.words;
        let mut ends: Vec<_> = Vec::new();
        if held + words > limit {
            ends = self.busy.iter().copied().collect();
            ends.sort_unstable();
        }
        for (end, count) in ends {
            if held + words <= limit {
                break;
            }
            at = at.max(end);
            held -= count;
        }
        at
    }

    /// Notes that `words` words are under way until `acknowledged`.
    pub(crate) fn hold(&mut self, words: usize, acknowledged: Time) {
        self.busy.push_back((acknowledged, words));
        self.words += words;
    }

    /// The moment at which everything under way will have been acknowledged.
    pub(crate) fn all_free(&self, now: Time) -> Time {
        self.busy.iter().map(|(at, _)| *at).fold(now, Time::max)
    }

    /// Forgets the words that have been acknowledged by `now`.
    pub(crate) fn release(&mut self, now: Time) {
        self.busy.retain(|(at, _)| *at > now);
        self.words = self.busy.iter().map(|(_, words)| words).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_flight_are_bounded() {
        let at = Time::from_ns;
        let mut registers = Registers::default();
        registers.hold(64, at(300));
        registers.hold(64, at(200));
        assert_eq!(registers.room(at(100), 64, 192), at(100));
        assert_eq!(registers.room(at(100), 128, 192), at(200));
        assert_eq!(registers.room(at(100), 192, 192), at(300));
        assert_eq!(registers.all_free(at(100)), at(300));
        assert_eq!(registers.room(at(250), 128, 192), at(250));
        assert_eq!(registers.all_free(at(400)), at(400));
    }
}
