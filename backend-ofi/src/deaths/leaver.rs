//! For how long nothing has come from a rank that has left in good order.

use std::time::{Duration, Instant};

/// Time between two looks that count as two.
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

    /// Looks at it again. `unread`: there is something to read that this rank may have sent.
    pub(crate) fn look(&mut self, expected: u32, unread: bool) {
        if self.expected != expected {
            *self = Self::new(expected);
        }
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            self.looks += 1;
        }
        if unread && self.looks < LOOKS {
            self.since = Instant::now();
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
        leaver.since = leaver.since.checked_sub(second).expect("a while");
        (leaver, second)
    }

    #[test]
    fn what_comes_starts_the_time_again() {
        for (expected, unread, again) in [(7, false, false), (7, true, true), (8, false, true)] {
            let (mut leaver, second) = long_ago();
            leaver.look(expected, unread);
            let restarted = leaver.since.elapsed() < second;
            assert_eq!(restarted, again, "{expected}, {unread}");
        }
    }

    /// Something to read may be others'.
    #[test]
    fn what_can_be_read_does_so_for_a_limited_time() {
        let (mut leaver, second) = long_ago();
        for _ in 0..2 * LOOKS {
            leaver.look(7, false);
        }
        assert!(leaver.looks < LOOKS / 2, "looks in a row count as one");
        for _ in 0..LOOKS {
            leaver.looked = leaver.looked.checked_sub(LOOK).expect("a while");
            leaver.look(7, false);
        }
        leaver.look(7, true);
        assert!(leaver.since.elapsed() >= second);
    }
}
