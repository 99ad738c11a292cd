//! For how long nothing has come from a rank that has left in good order.

use std::time::{Duration, Instant};

/// Time between two looks that count as two. The provider is asked no more often whether anything
/// is unread: that takes two system calls, and a wait may look with every poll.
const LOOK: Duration = Duration::from_millis(10);

/// Looks after which everything that the rank sent has been read even if there always is something
/// to read, because others keep sending, or because this rank itself looks at what has arrived. In
/// ten seconds or more this rank reads more than the system keeps for it.
pub(crate) const LOOKS: u32 = 1000;

/// A rank that has left. What it sent before may still arrive.
#[derive(Debug)]
pub(crate) struct Leaver {
    /// The number of its next packet, at the last look.
    expected: u32,
    /// When a look first found that number, and nothing unread.
    pub(crate) since: Instant,
    /// Looks so far, and when the last one was.
    pub(crate) looks: u32,
    looked: Instant,
}

impl Leaver {
    /// A rank that is looked at for the first time.
    pub(crate) fn new(expected: u32) -> Self {
        let now = Instant::now();
        Self {
            expected,
            since: now,
            looks: 0,
            looked: now,
        }
    }

    /// Looks at it again. `unread` tells whether there is something to read that this rank may have
    /// sent.
    pub(crate) fn look(&mut self, expected: u32, unread: impl FnOnce() -> bool) {
        if self.expected != expected {
            *self = Self::new(expected);
        }
        if self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        self.looks = self.looks.saturating_add(1);
        if self.looks < LOOKS && unread() {
            self.since = Instant::now();
        }
    }

    /// As if the last look had been so long ago.
    #[cfg(test)]
    pub(crate) fn age(&mut self, time: Duration) {
        for at in [&mut self.since, &mut self.looked] {
            *at = at.checked_sub(time).expect("a while");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rank that was first looked at a second ago.
    fn long_ago() -> (Leaver, Duration) {
        let second = Duration::from_secs(1);
        let mut leaver = Leaver::new(7);
        leaver.age(second);
        (leaver, second)
    }

    #[test]
    fn what_comes_starts_the_time_again() {
        for (expected, unread, again) in [(7, false, false), (7, true, true), (8, false, true)] {
            let (mut leaver, second) = long_ago();
            leaver.look(expected, || unread);
            let restarted = leaver.since.elapsed() < second;
            assert_eq!(restarted, again, "{expected}, {unread}");
        }
    }

    /// Something to read may be others'.
    #[test]
    fn what_can_be_read_does_so_for_a_limited_time() {
        let (mut leaver, second) = long_ago();
        for _ in 0..LOOKS {
            leaver.age(LOOK);
            leaver.look(7, || false);
        }
        leaver.age(LOOK);
        leaver.look(7, || panic!("the answer does not matter"));
        assert!(leaver.since.elapsed() >= second);
    }

    #[test]
    fn looks_in_a_row_count_as_one_and_ask_once() {
        let (mut leaver, second) = long_ago();
        let (start, mut asked) = (Instant::now(), 0);
        for _ in 0..10 * LOOKS {
            leaver.look(7, || {
                asked += 1;
                false
            });
        }
        let most = 1 + start.elapsed().as_millis() / LOOK.as_millis();
        assert!(asked >= 1 && asked <= most, "asked {asked} times");
        assert!(u128::from(leaver.looks) == asked && leaver.since.elapsed() >= second);
    }
}
